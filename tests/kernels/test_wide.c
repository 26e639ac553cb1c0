/* Attention in double at every ISA level here (kernels/sdpa/wide.h) against the plain reference: forward, weights of rows,
 * gradients; and its exponential against libm's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include "core/cpu.h"
#include "kernels/sdpa/wide.h"
#include "kernels/score_size.h"
#include "ops/sdpa/validate.h"
#include "ops/sdpa/validate_backward.h"
#include "properties/gradient_problem.h"

static const int32_t levels[] = {ATTN_ISA_SCALAR, ATTN_ISA_AVX2, ATTN_ISA_AVX512, ATTN_ISA_NEON};
#define N_LEVELS 4

static attn_ctx *context_of(int32_t isa)
{
    attn_ctx_options options;
    attn_ctx *ctx;
    ATTN_ARGS_INIT(&options);
    options.max_isa = isa;
    options.n_threads = 2;
    if (!attn_cpu_has_isa(isa))
        return NULL;
    assert_int_equal(attn_ctx_create(&options, &ctx), ATTN_OK);
    return ctx;
}

/* Rounding of a row in double, u = 2^-53: as docs/operator.md, with what the reference itself rounds. */
static double row_bound(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i)
{
    int64_t lo, hi;
    double size = p->a.sinks ? fabs((double)p->a.sinks[h]) : 0;
    attn_row_range(p, e, i, &lo, &hi);
    for (int64_t j = lo; j < hi; j++)
        size = fmax(size, score_size(p, e, h, i, j));
    return 4 * ((double)(p->head_dim + 8) * size + 2 * (double)(hi - lo) + 24) * 0x1p-53;
}

static void forward_problem(uint64_t seed, int32_t isa)
{
    gradient_problem g;
    attn_problem p;
    attn_ctx *ctx = context_of(isa);
    if (!ctx)
        return;
    gradient_problem_make(&g, seed, seed % 4 ? 40 : 150, ATTN_F64, ATTN_F64);
    attn_sdpa_args *a = &g.made.args;
    assert_int_equal(attn_sdpa_validate(ctx, a, ATTN_NEED_ALL, &p), ATTN_OK);
    assert_int_equal(attn_sdpa_forward(ctx, a, NULL, 0), ATTN_OK);
    int64_t rows = p.batch * p.n_heads * p.seq_q;
    double *out = calloc((size_t)(rows * p.value_dim + 1), 8), *lse = calloc((size_t)rows + 1, 8), *sums = calloc((size_t)p.value_dim + 1, 8);
    attn_problem exact = p;
    exact.a.out = attn_view_of(out, ATTN_F64, p.batch, p.n_heads, p.seq_q, p.value_dim);
    exact.a.lse = lse;
    for (int64_t s = 0; s < p.n_entries; s++) {
        attn_entry e = attn_problem_entry(&p, s);
        for (int64_t n = 0; n < p.n_heads * e.q_count; n++) {
            int64_t h = n / e.q_count, i = n % e.q_count, row = (e.batch * p.n_heads + h) * p.seq_q + e.q_begin + i;
            double bound = row_bound(&p, &e, h, i), got_lse = ((const double *)a->lse)[row];
            attn_ref_forward_row(&exact, &e, h, i, sums);
            if (got_lse != lse[row] && !(fabs(got_lse - lse[row]) <= bound + 4 * fabs(lse[row]) * 0x1p-53))
                fail_msg("seed %d %s: lse[%d] is %.17g, reference %.17g", (int)seed, attn_ctx_isa(ctx), (int)row, got_lse, lse[row]);
            for (int64_t d = 0; d < p.value_dim; d++) {
                double got = attn_cview_at(&(attn_cview){a->out.data, ATTN_F64, 0, {0}, {a->out.stride[0], a->out.stride[1], a->out.stride[2], a->out.stride[3]}},
                                           e.batch, h, e.q_begin + i, d);
                double want = out[row * p.value_dim + d];
                if (!(fabs(got - want) <= 16 * bound)) /* values, and 1 / (1 - p), are below 16 together */
                    fail_msg("seed %d %s: out[%d, %d] is %.17g, reference %.17g", (int)seed, attn_ctx_isa(ctx), (int)row, (int)d, got, want);
            }
        }
    }
    free(out), free(lse), free(sums);
    gradient_problem_free(&g);
    attn_ctx_destroy(ctx);
}

static void forward_agrees_with_the_reference(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 80; seed++)
        for (int n = 0; n < N_LEVELS; n++)
            forward_problem(seed, levels[n]);
}

/* The gradients of queries, keys and values by the reference, from the row facts that the library used (lse, D). */
static void backward_problem(uint64_t seed, int32_t isa)
{
    gradient_problem g;
    attn_bwd_problem problem;
    attn_ctx *ctx = context_of(isa);
    if (!ctx)
        return;
    gradient_problem_make(&g, seed, seed % 4 ? 30 : 100, ATTN_F64, ATTN_F64);
    assert_int_equal(attn_sdpa_forward(ctx, &g.made.args, NULL, 0), ATTN_OK);
    assert_int_equal(attn_sdpa_backward(ctx, &g.args, NULL, 0), ATTN_OK);
    assert_int_equal(attn_sdpa_validate_backward(ctx, &g.args, true, &problem), ATTN_OK);
    const attn_problem *p = &problem.forward;
    int64_t heads = p->batch * p->n_heads;
    attn_ref_row *rows = calloc((size_t)(heads * p->seq_q + 1), sizeof *rows);
    double *acc = calloc((size_t)(p->head_dim + p->value_dim + 1), sizeof *acc);
    double *want[3];
    attn_view *views[3] = {&problem.a.d_query, &problem.a.d_key, &problem.a.d_value};
    for (int n = 0; n < 3; n++) {
        want[n] = calloc((size_t)g.count[n] + 1, sizeof *want[n]);
        views[n]->data = want[n];
    }
    for (int64_t n = 0; n < heads * p->seq_q; n++)
        rows[n] = attn_ref_backward_row(&problem, n / p->seq_q / p->n_heads, n / p->seq_q % p->n_heads, n % p->seq_q);
    for (int64_t n = 0; n < heads * p->seq_q; n++)
        attn_ref_backward_query(&problem, rows, n / p->seq_q / p->n_heads, n / p->seq_q % p->n_heads, n % p->seq_q, acc);
    for (int64_t n = 0; n < p->batch * p->n_kv_heads * p->seq_kv; n++)
        attn_ref_backward_key(&problem, rows, n / p->seq_kv / p->n_kv_heads, n / p->seq_kv % p->n_kv_heads, n % p->seq_kv, acc);
    for (int index = 0; index < 3; index++) {
        double largest = 1;
        for (int64_t k = 0; k < g.count[index]; k++)
            largest = fmax(largest, fabs(want[index][k]));
        for (int64_t k = 0; k < g.count[index]; k++) /* sums of up to 100 terms and 20 dims of some size, lse below 100 */
            if (!(fabs(gradient_at(&g, index, k) - want[index][k]) <= 4000 * 0x1p-53 * largest))
                fail_msg("seed %d %s: %s[%d] is %.17g, reference %.17g", (int)seed, attn_ctx_isa(ctx), gradient_name(index), (int)k,
                         gradient_at(&g, index, k), want[index][k]);
        free(want[index]);
    }
    free(rows), free(acc);
    gradient_problem_free(&g);
    attn_ctx_destroy(ctx);
}

static void gradients_agree_with_the_reference(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        for (int n = 0; n < N_LEVELS; n++)
            backward_problem(seed, levels[n]);
}

/* weight = exp(key - 0) with head_dim 1, query 1, scale 1: over the whole range, subnormal results too. */
static double *exp_seen;
static void keep_exp(void *user, const attn_wide_rows *rows, const attn_wide_block *block)
{
    (void)user, (void)rows;
    memcpy(exp_seen + block->first, block->weight, (size_t)block->n * sizeof *exp_seen);
}

static void the_exponential_is_within_an_ulp(void **state)
{
    (void)state;
    enum { COUNT = 400000 };
    double *key = malloc(COUNT * sizeof *key), query = 1, lse = 0, rest = 0;
    exp_seen = malloc(COUNT * sizeof *exp_seen);
    for (int n = 0; n < COUNT; n++)
        key[n] = -746 + 1456.0 * n / COUNT + 1e-9 * n;
    key[0] = 0, key[1] = -0.0, key[2] = -INFINITY, key[3] = NAN, key[4] = 1e-300, key[5] = -1000, key[6] = -1e308;
    for (int level = 0; level < N_LEVELS; level++) {
        attn_ctx *ctx = context_of(levels[level]);
        attn_sdpa_args a;
        attn_problem p;
        if (!ctx)
            continue;
        ATTN_ARGS_INIT(&a);
        a.query = attn_cview_of(&query, ATTN_F64, 1, 1, 1, 1);
        a.key = attn_cview_of(key, ATTN_F64, 1, 1, COUNT, 1);
        a.flags = ATTN_SCALE_GIVEN;
        a.scale = 1;
        assert_int_equal(attn_sdpa_validate(ctx, &a, ATTN_NEED_DATA, &p), ATTN_OK);
        double *scratch = malloc((size_t)attn_wide_scratch(&p) * sizeof *scratch);
        attn_wide_rows rows = {attn_problem_entry(&p, 0), 0, 0, 1, 0, 1};
        attn_wide_kernels_at(levels[level])->weights(&p, &rows, &lse, &rest, keep_exp, NULL, scratch);
        assert_true(exp_seen[0] == 1 && exp_seen[1] == 1 && exp_seen[2] == 0 && isnan(exp_seen[3]) && exp_seen[5] == 0 && exp_seen[6] == 0);
        for (int n = 4; n < COUNT; n++) {
            double want = exp(key[n]); /* glibc's: below 1 ulp itself */
            double ulp = fmax(nextafter(want, INFINITY) - want, 0x1p-1074);
            if (exp_seen[n] != want && !(fabs(exp_seen[n] - want) <= 2 * ulp))
                fail_msg("%s: exp(%.17g) is %.17g, not %.17g", attn_ctx_isa(ctx), key[n], exp_seen[n], want);
        }
        free(scratch);
        attn_ctx_destroy(ctx);
    }
    free(key), free(exp_seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_agrees_with_the_reference),
        cmocka_unit_test(gradients_agree_with_the_reference),
        cmocka_unit_test(the_exponential_is_within_an_ulp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
