/* gemm_f64.c - the general product in f64, as written: c_mn = sum_k a_mk b_kn, ascending k. For checking, not for speed. */
#include "ops/nn/gemm.h"

typedef struct f64_plan {
    const attn_gemm_args *args;
} f64_plan;

#define COLUMNS 256

static void columns_of_row(const attn_gemm_args *g, int64_t m, int64_t first, int64_t count)
{
    double sum[COLUMNS];
    const double *a = g->a, *b = g->b, *bias = g->bias;
    double *c = (double *)g->c + m * g->ldc + first;
    for (int64_t n = 0; n < count; n++)
        sum[n] = g->accumulate ? c[n] : 0;
    for (int64_t k = 0; k < g->k; k++) {
        const double x = g->kind == ATTN_GEMM_TN ? a[k * g->lda + m] : a[m * g->lda + k];
        if (g->kind == ATTN_GEMM_NT) {
            for (int64_t n = 0; n < count; n++)
                sum[n] += x * b[(first + n) * g->ldb + k];
        } else {
            for (int64_t n = 0; n < count; n++)
                sum[n] += x * b[k * g->ldb + first + n];
        }
    }
    for (int64_t n = 0; n < count; n++)
        c[n] = sum[n] + (bias ? bias[first + n] : 0);
}

static void row_task(void *arg, int64_t m, int32_t worker)
{
    const attn_gemm_args *g = ((const f64_plan *)arg)->args;
    (void)worker;
    for (int64_t n = 0; n < g->n; n += COLUMNS)
        columns_of_row(g, m, n, g->n - n < COLUMNS ? g->n - n : COLUMNS);
}

void attn_gemm_f64(const attn_team *team, const attn_gemm_args *args)
{
    f64_plan plan = {args};
    const double operations = (double)args->m * (double)args->n * (double)args->k;
    attn_team_for(team, args->m, attn_team_workers(team, args->m, operations), row_task, &plan);
}
