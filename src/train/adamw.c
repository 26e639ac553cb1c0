/* adamw.c - Loshchilov and Hutter 2017, algorithm 2, in parts of fixed size that threads share. */
#include "train/adamw.h"

#include <math.h>
#include <string.h>
#include "ops/nn/nn_parallel.h"
#include "train/train_error.h"

enum { PART = 16384 };

/* ---- Norm ---- */

typedef struct norm_job {
    const float *gradient;
    int64_t n;
    double *sums;
} norm_job;

static void norm_part(void *arg, int64_t part)
{
    const norm_job *job = arg;
    const int64_t first = part * PART, n = job->n - first < PART ? job->n - first : PART;
    const float *g = job->gradient + first;
    double lanes[8] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) /* with a constant inner loop the sums stay in registers */
        for (int64_t k = 0; k < 8; k++)
            lanes[k] += (double)g[i + k] * (double)g[i + k];
    for (; i < n; i++)
        lanes[i % 8] += (double)g[i] * (double)g[i];
    for (int k = 0; k < 8; k++)
        sum += lanes[k];
    job->sums[part] = sum;
}

double attn_gradient_norm(int32_t n_threads, const float *gradient, int64_t n)
{
    enum { ROUND = 256 }; /* parts at a time, so that no memory is needed */
    double sums[ROUND], total = 0;
    for (int64_t first = 0; first < n; first += (int64_t)ROUND * PART) {
        const int64_t count = n - first < (int64_t)ROUND * PART ? n - first : (int64_t)ROUND * PART;
        const int64_t parts = (count + PART - 1) / PART;
        norm_job job = {gradient + first, count, sums};
        attn_nn_for(n_threads, parts, norm_part, &job);
        for (int64_t i = 0; i < parts; i++)
            total += sums[i];
    }
    return sqrt(total);
}

/* ---- Step ---- */

typedef struct step_job {
    float *w, *m, *v;
    const float *g;
    float *spent; /* g, to be set to 0 while it is at hand; NULL: it stays */
    int64_t n;
    float beta1, beta2, rate, root, epsilon, decay, scale;
} step_job;

static void step_part(void *arg, int64_t part)
{
    const step_job *job = arg;
    const int64_t first = part * PART, n = job->n - first < PART ? job->n - first : PART;
    float *restrict w = job->w + first, *restrict m = job->m + first, *restrict v = job->v + first;
    const float *restrict g = job->g + first;
    const float b1 = job->beta1, b2 = job->beta2;
    for (int64_t i = 0; i < n; i++) {
        const float d = g[i] * job->scale;
        m[i] = b1 * m[i] + (1 - b1) * d;
        v[i] = b2 * v[i] + (1 - b2) * d * d;
        w[i] -= job->rate * m[i] / (sqrtf(v[i]) * job->root + job->epsilon) + job->decay * w[i];
    }
    if (job->spent)
        memset(job->spent + first, 0, (size_t)n * sizeof *job->spent);
}

static step_job step_job_of(const attn_adamw *a)
{
    const double t = (double)a->step;
    step_job job = {.beta1 = (float)a->beta1, .beta2 = (float)a->beta2, .epsilon = (float)a->epsilon};
    job.rate = (float)(a->learning_rate / (1 - pow(a->beta1, t)));
    job.root = (float)(1 / sqrt(1 - pow(a->beta2, t)));
    job.scale = (float)a->gradient_scale;
    return job;
}

void attn_adamw_step(const attn_adamw *a, const attn_net *net, float *weights, float *gradient, float *m, float *v)
{
    step_job job = step_job_of(a);
    for (int64_t p = 0; p < net->n_params; p++) {
        const attn_net_param *param = &net->params[p];
        job.w = weights + param->offset;
        job.m = m + param->offset;
        job.v = v + param->offset;
        job.g = job.spent = gradient + param->offset;
        job.n = param->rows * param->columns;
        job.decay = param->decays ? (float)(a->learning_rate * a->weight_decay) : 0;
        attn_nn_for(a->n_threads, (job.n + PART - 1) / PART, step_part, &job);
    }
}

/* ---- Alone ---- */

static void step_f64(const attn_train_adamw_args *a)
{
    double *w = a->weights, *m = a->m, *v = a->v;
    const double *g = a->gradient, t = (double)a->step;
    const double rate = a->learning_rate / (1 - pow(a->beta1, t)), root = 1 / sqrt(1 - pow(a->beta2, t));
    for (int64_t i = 0; i < a->n; i++) {
        m[i] = a->beta1 * m[i] + (1 - a->beta1) * g[i];
        v[i] = a->beta2 * v[i] + (1 - a->beta2) * g[i] * g[i];
        w[i] -= rate * m[i] / (sqrt(v[i]) * root + a->epsilon) + a->learning_rate * a->weight_decay * w[i];
    }
}

attn_status attn_train_adamw(const attn_train_adamw_args *args)
{
    attn_train_adamw_args a;
    attn_train_clear_error();
    ATTN_TRAIN_TRY(attn_train_args(&a, sizeof a, args, "attn_train_adamw_args"));
    ATTN_TRAIN_REQUIRE(a.dtype == ATTN_F32 || a.dtype == ATTN_F64, "dtype is %d; f32 and f64 are served", a.dtype);
    ATTN_TRAIN_REQUIRE(a.n >= 0, "n is %lld", (long long)a.n);
    ATTN_TRAIN_REQUIRE(a.n == 0 || (a.weights && a.gradient && a.m && a.v), "%s is NULL",
                       !a.weights ? "weights" : !a.gradient ? "gradient" : !a.m ? "m" : "v");
    ATTN_TRAIN_REQUIRE(a.learning_rate >= 0 && a.learning_rate <= 1e6, "learning_rate is %g", a.learning_rate);
    ATTN_TRAIN_REQUIRE(a.beta1 >= 0 && a.beta1 < 1, "beta1 is %g; it must lie in 0 .. 1", a.beta1);
    ATTN_TRAIN_REQUIRE(a.beta2 >= 0 && a.beta2 < 1, "beta2 is %g; it must lie in 0 .. 1", a.beta2);
    ATTN_TRAIN_REQUIRE(a.epsilon >= 0 && a.epsilon <= 1, "epsilon is %g; it must lie in 0 .. 1", a.epsilon);
    ATTN_TRAIN_REQUIRE(a.weight_decay >= 0 && a.weight_decay <= 1000, "weight_decay is %g", a.weight_decay);
    ATTN_TRAIN_REQUIRE(a.step >= 1, "step is %lld; the first is 1", (long long)a.step);
    if (a.dtype == ATTN_F64) {
        step_f64(&a);
        return ATTN_OK;
    }
    step_job job = step_job_of(&(attn_adamw){.learning_rate = a.learning_rate, .beta1 = a.beta1, .beta2 = a.beta2,
                                             .epsilon = a.epsilon, .gradient_scale = 1, .step = a.step});
    job.w = a.weights, job.g = a.gradient, job.m = a.m, job.v = a.v, job.n = a.n;
    job.decay = (float)(a.learning_rate * a.weight_decay);
    for (int64_t part = 0; part < (a.n + PART - 1) / PART; part++)
        step_part(&job, part);
    return ATTN_OK;
}
