/* rare_act.c - activations as their formulas are written. */
#include "layers/rare_act.h"
#include <math.h>

#define LAPLACE_MEAN 0.707107
#define LAPLACE_WIDTH (0.282095 * 1.41421356237309504880)
#define SQRT_HALF 0.70710678118654752440

static double gelu(double x)
{
    return 0.5 * x * erfc(-x * SQRT_HALF);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

double attn_rare_act(int32_t act, double x)
{
    switch (act) {
    case ATTN_ACT_RELU2:
        return x > 0 ? x * x : x <= 0 ? 0 : x;
    case ATTN_ACT_RELU6:
        return x <= 0 ? 0 : x > 6 ? 6 : x;
    case ATTN_ACT_LEAKY_RELU:
        return x < 0 ? 0.01 * x : x;
    case ATTN_ACT_SIGMOID:
        return sigmoid(x);
    case ATTN_ACT_MISH:
        return x * tanh(x > 30 ? x : log1p(exp(x)));
    case ATTN_ACT_GELU_10:
        return gelu(x) > 10 ? 10 : gelu(x);
    default:
        return 0.5 * (1 + erf((x - LAPLACE_MEAN) / LAPLACE_WIDTH));
    }
}

double attn_rare_act_slope(int32_t act, double x)
{
    const double pi = 3.14159265358979323846, s = sigmoid(x), z = (x - LAPLACE_MEAN) / LAPLACE_WIDTH;
    switch (act) {
    case ATTN_ACT_RELU2:
        return x > 0 ? 2 * x : 0;
    case ATTN_ACT_RELU6:
        return x > 0 && x < 6;
    case ATTN_ACT_LEAKY_RELU:
        return x < 0 ? 0.01 : 1;
    case ATTN_ACT_SIGMOID:
        return s * (1 - s);
    case ATTN_ACT_MISH: {
        const double t = tanh(x > 30 ? x : log1p(exp(x)));
        return t + x * (1 - t * t) * s;
    }
    case ATTN_ACT_GELU_10:
        return gelu(x) > 10 ? 0 : 0.5 * erfc(-x * SQRT_HALF) + x * exp(-0.5 * x * x) / sqrt(2 * pi);
    default:
        return exp(-z * z) / (sqrt(pi) * LAPLACE_WIDTH);
    }
}

void attn_activate(const attn_worker *worker, int32_t act, float *x, int64_t n)
{
    if (!attn_act_is_rare(act))
        worker->kernels->activate(act, x, n, x);
    else
        for (int64_t i = 0; i < n; i++)
            x[i] = (float)attn_rare_act(act, (double)x[i]);
}

void attn_activate_mul(const attn_worker *worker, int32_t act, float *gate, const float *up, int64_t n)
{
    if (attn_act_is_rare(act))
        attn_activate(worker, act, gate, n);
    worker->kernels->activate_mul(attn_act_is_rare(act) ? ATTN_ACT_NONE : act, gate, up, n, gate);
}
