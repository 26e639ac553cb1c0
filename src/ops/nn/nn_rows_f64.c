/* nn_rows_f64.c - norms and activations of f64 rows, as the formulas are written. */
#include <math.h>
#include "ops/nn/nn_rows.h"

#define SQRT_HALF 0.70710678118654752440
#define SQRT_2_OVER_PI 0.79788456080286535588
#define ONE_OVER_SQRT_2_PI 0.39894228040143267794

double attn_act_f64(int32_t act, double x)
{
    switch (act) {
    case ATTN_ACT_RELU:
        return x < 0 ? 0 : x;
    case ATTN_ACT_SILU:
        return x / (1 + exp(-x));
    case ATTN_ACT_GELU_ERF:
        return 0.5 * x * erfc(-x * SQRT_HALF);
    case ATTN_ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)));
    case ATTN_ACT_GELU_QUICK:
        return x / (1 + exp(-1.702 * x));
    case ATTN_ACT_TANH:
        return tanh(x);
    default:
        return x;
    }
}

static double swish_slope(double x, double by)
{
    const double s = 1 / (1 + exp(-by * x));
    return s + by * x * s * (1 - s);
}

double attn_act_slope_f64(int32_t act, double x)
{
    switch (act) {
    case ATTN_ACT_RELU:
        return x > 0 ? 1 : x <= 0 ? 0 : x;
    case ATTN_ACT_SILU:
        return swish_slope(x, 1);
    case ATTN_ACT_GELU_ERF:
        return 0.5 * erfc(-x * SQRT_HALF) + x * ONE_OVER_SQRT_2_PI * exp(-0.5 * x * x);
    case ATTN_ACT_GELU_TANH: {
        const double t = tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x));
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * 0.044715 * x * x);
    }
    case ATTN_ACT_GELU_QUICK:
        return swish_slope(x, 1.702);
    case ATTN_ACT_TANH:
        return 1 - tanh(x) * tanh(x);
    default:
        return 1;
    }
}

static void stats(const attn_rows_norm_job *job, const double *x, double *mean, double *scale)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; job->kind == ATTN_NORM_LAYER && i < job->n; i++)
        sum += x[i];
    *mean = sum / (double)job->n;
    for (int64_t i = 0; i < job->n; i++)
        squares += (x[i] - *mean) * (x[i] - *mean);
    *scale = 1 / sqrt(squares / (double)job->n + job->eps);
}

static double weight_at(const attn_rows_norm_job *job, int64_t i)
{
    return job->weight ? ((const double *)job->weight)[i] + job->offset : 1;
}

void attn_norm_row_f64(const attn_rows_norm_job *job, const double *x, double *y)
{
    double mean, scale;
    stats(job, x, &mean, &scale);
    for (int64_t i = 0; i < job->n; i++)
        y[i] = (x[i] - mean) * scale * weight_at(job, i) + (job->bias ? ((const double *)job->bias)[i] : 0);
}

void attn_norm_row_grad_f64(const attn_rows_norm_job *job, const double *x, const double *dy, double *dx, double *dw,
                            double *db)
{
    double mean, scale, sum_g = 0, sum_gx = 0;
    stats(job, x, &mean, &scale);
    for (int64_t i = 0; i < job->n; i++) {
        const double xhat = (x[i] - mean) * scale, g = dy[i] * weight_at(job, i);
        sum_g += g;
        sum_gx += g * xhat;
        if (dw)
            dw[i] += dy[i] * xhat;
        if (db)
            db[i] += dy[i];
    }
    const double mean_g = job->kind == ATTN_NORM_LAYER ? sum_g / (double)job->n : 0, mean_gx = sum_gx / (double)job->n;
    for (int64_t i = 0; dx && i < job->n; i++) {
        const double xhat = (x[i] - mean) * scale, g = dy[i] * weight_at(job, i);
        dx[i] = (job->accumulate ? dx[i] : 0) + scale * (g - mean_g - xhat * mean_gx);
    }
}
