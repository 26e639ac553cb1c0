/* The keep array: a weight that it drops is 0 in out and in every gradient, and the others are multiplied by 1 / (1 - p), at
 * dropout_p 0 too. At every ISA level, for few rows (which the decode dataflow takes otherwise) and many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/cpu.h"
#include "properties/random_problem.h"

enum { HEADS = 2, KEYS = 70, DIM = 24 };

typedef struct kept {
    random_problem memory;
    attn_sdpa_args a;
    attn_sdpa_backward_args back;
    double *weights; /* [HEADS, queries, KEYS], before dropout */
    const uint8_t *keep;
} kept;

static void kept_make(kept *x, attn_ctx *ctx, int64_t queries, double p)
{
    rng r = {(uint64_t)queries};
    memset(x, 0, sizeof *x);
    ATTN_ARGS_INIT(&x->a);
    ATTN_ARGS_INIT(&x->back);
    size_t rows = HEADS * (size_t)queries;
    uint8_t *keep = problem_memory(&x->memory, rows * KEYS);
    for (size_t n = 0; n < rows * KEYS; n++)
        keep[n] = rng_chance(&r, 0.6);
    x->keep = keep;
    x->a.query = problem_floats(&x->memory, &r, 1, HEADS, queries, DIM, 1);
    x->a.key = problem_floats(&x->memory, &r, 1, 1, KEYS, DIM, 1);
    x->a.value = problem_floats(&x->memory, &r, 1, 1, KEYS, DIM, 1);
    x->a.out = attn_view_of(problem_memory(&x->memory, rows * DIM * 4), ATTN_F32, 1, HEADS, queries, DIM);
    x->a.lse = problem_memory(&x->memory, rows * 4);
    x->weights = problem_memory(&x->memory, rows * KEYS * 8);
    attn_view weights = attn_view_of(x->weights, ATTN_F64, 1, 1, (int64_t)rows, KEYS);
    assert_int_equal(attn_sdpa_forward(ctx, &x->a, NULL, 0), ATTN_OK);
    assert_int_equal(attn_sdpa_rows(ctx, &x->a, NULL, (int64_t)rows, &weights), ATTN_OK);
    x->a.keep = attn_cview_of(keep, ATTN_BOOL, 1, HEADS, queries, KEYS);
    x->a.dropout_p = p;
    x->back.forward = &x->a;
    x->back.d_out = problem_floats(&x->memory, &r, 1, HEADS, queries, DIM, 1);
    x->back.d_query = attn_view_of(problem_memory(&x->memory, rows * DIM * 4), ATTN_F32, 1, HEADS, queries, DIM);
    x->back.d_value = attn_view_of(problem_memory(&x->memory, KEYS * DIM * 4), ATTN_F32, 1, 1, KEYS, DIM);
}

/* Sums of at most 140 terms below 4 in f32: 140 * 4 * 2^-24 = 3e-5. */
static void close_to(const void *got, size_t at, double want, const char *what)
{
    double x = (double)((const float *)got)[at];
    if (!(fabs(x - want) <= 3e-5 * (1 + fabs(want))))
        fail_msg("%s[%d] is %.8g, not %.8g", what, (int)at, x, want);
}

static void check(const kept *x, int64_t queries, double p)
{
    const float *value = x->a.value.data, *key = x->a.key.data, *d_out = x->back.d_out.data;
    double grown = p < 1 ? 1 / (1 - p) : 0, d_value[KEYS * DIM] = {0};
    for (int64_t row = 0; row < HEADS * queries; row++) {
        double out[DIM] = {0}, d_query[DIM] = {0}, delta = 0;
        for (int64_t j = 0; j < KEYS; j++)
            for (int64_t d = 0; d < DIM; d++) {
                double w = x->keep[row * KEYS + j] ? x->weights[row * KEYS + j] * grown : 0;
                out[d] += w * (double)value[j * DIM + d];
                d_value[j * DIM + d] += w * (double)d_out[row * DIM + d];
            }
        for (int64_t d = 0; d < DIM; d++) {
            close_to(x->a.out.data, (size_t)(row * DIM + d), out[d], "out");
            delta += out[d] * (double)d_out[row * DIM + d];
        }
        for (int64_t j = 0; j < KEYS; j++) {
            double moved = 0;
            for (int64_t d = 0; d < DIM; d++)
                moved += (double)(d_out[row * DIM + d] * value[j * DIM + d]);
            moved = x->weights[row * KEYS + j] * ((x->keep[row * KEYS + j] ? grown : 0) * moved - delta) / sqrt(DIM);
            for (int64_t d = 0; d < DIM; d++)
                d_query[d] += moved * (double)key[j * DIM + d];
        }
        for (int64_t d = 0; d < DIM; d++)
            close_to(x->back.d_query.data, (size_t)(row * DIM + d), d_query[d], "d_query");
    }
    for (size_t n = 0; n < KEYS * DIM; n++)
        close_to(x->back.d_value.data, n, d_value[n], "d_value");
}

static void keep_counts_at_every_p(void **state)
{
    (void)state;
    static const int32_t levels[] = {ATTN_ISA_SCALAR, ATTN_ISA_AVX2, ATTN_ISA_AVX512, ATTN_ISA_NEON};
    static const double chances[] = {0, 0.25, 1};
    for (int n = 0; n < 12; n++)
        for (int64_t queries = 1; queries <= 41; queries += 40) {
            attn_ctx_options options;
            attn_ctx *ctx;
            kept x;
            ATTN_ARGS_INIT(&options);
            options.max_isa = levels[n / 3];
            if (!attn_cpu_has_isa(levels[n / 3]))
                continue;
            assert_int_equal(attn_ctx_create(&options, &ctx), ATTN_OK);
            kept_make(&x, ctx, queries, chances[n % 3]);
            assert_int_equal(attn_sdpa_forward(ctx, &x.a, NULL, 0), ATTN_OK);
            assert_int_equal(attn_sdpa_backward(ctx, &x.back, NULL, 0), ATTN_OK);
            check(&x, queries, chances[n % 3]);
            attn_ctx_destroy(ctx);
            random_problem_free(&x.memory);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(keep_counts_at_every_p)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
