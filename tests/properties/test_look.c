/* Looking in: rows, top-k, key mass and row statistics against the reference scores and against each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include "kernels/ref/ref_sdpa.h"
#include "ops/sdpa/validate.h"
#include "kernels/score_size.h"
#include "core/view.h"
#include "properties/random_problem.h"

#define N_PROBLEMS 400

static attn_ctx *ctx;

static int make_ctx(void **state)
{
    (void)state;
    return attn_ctx_create(NULL, &ctx) != ATTN_OK;
}
static int drop_ctx(void **state)
{
    (void)state;
    attn_ctx_destroy(ctx);
    return 0;
}

/* All weights of a problem by the reference, [batch, heads, seq_q, seq_kv] doubles; error[row]: how far the lse of a forward
 * pass may be off. */
static double *reference_weights(const attn_sdpa_args *args, double *error)
{
    attn_problem p;
    assert_int_equal(attn_sdpa_validate(ctx, args, ATTN_NEED_ALL, &p), ATTN_OK);
    double *w = calloc((size_t)(p.batch * p.n_heads * p.seq_q * p.seq_kv), sizeof *w);
    for (int64_t s = 0; s < p.n_entries; s++) {
        attn_entry e = attn_problem_entry(&p, s);
        for (int64_t h = 0; h < p.n_heads; h++)
            for (int64_t i = 0; i < e.q_count; i++) {
                int64_t lo, hi;
                double lse = attn_ref_row_lse(&p, &e, h, i), score;
                attn_row_range(&p, &e, i, &lo, &hi);
                error[(e.batch * p.n_heads + h) * p.seq_q + e.q_begin + i] = lse_error(&p, &e, h, i);
                for (int64_t j = lo; j < hi; j++)
                    if (attn_ref_score(&p, &e, h, i, j, &score))
                        w[((e.batch * p.n_heads + h) * p.seq_q + e.q_begin + i) * p.seq_kv + e.k_begin + j] = exp(score - lse);
            }
    }
    return w;
}

/* Weights come from an f32 lse of size L: relative error L * 2^-24, and up to 2^-23 more from rounding the result; and the
 * error that the forward pass left in the lse. */
static double weight_bound(double lse, double lse_off)
{
    return (fabs(lse) + 4) * 0x1p-23 + lse_off;
}

static void one_problem(uint64_t seed)
{
    rng r = {seed};
    random_problem made;
    random_problem_make(&made, &r, 24);
    attn_sdpa_args *a = &made.args;
    assert_int_equal(attn_sdpa_forward(ctx, a, NULL, 0), ATTN_OK);
    int64_t B = a->query.shape[0], H = a->query.shape[1], nq = a->query.shape[2], nk = a->key.shape[2], n_rows = B * H * nq;
    double *error = calloc((size_t)n_rows, sizeof *error), *want = reference_weights(a, error);
    int64_t k = rng_range(&r, 1, 6);
    const float *lse = a->lse;
    double *w = calloc((size_t)(n_rows * nk), sizeof *w);
    float *top = calloc((size_t)(n_rows * k), sizeof *top);
    int64_t *key = calloc((size_t)(n_rows * k), sizeof *key);
    attn_row_stat *stat = calloc((size_t)n_rows, sizeof *stat);
    double *mass = calloc((size_t)(B * H * nk), sizeof *mass), *sum = calloc((size_t)(B * H * nk), sizeof *sum);
    attn_view rows_view = attn_view_of(w, ATTN_F64, 1, 1, n_rows, nk), mass_view = attn_view_of(mass, ATTN_F64, B, H, nk, 1);
    if (rng_chance(&r, 0.5))
        a->lse = NULL; /* computed inside */
    assert_int_equal(attn_sdpa_rows(ctx, a, NULL, n_rows, &rows_view), ATTN_OK);
    assert_int_equal(attn_sdpa_topk(ctx, a, NULL, n_rows, k, key, top), ATTN_OK);
    assert_int_equal(attn_sdpa_row_stats(ctx, a, NULL, n_rows, stat), ATTN_OK);
    assert_int_equal(attn_sdpa_key_mass(ctx, a, &mass_view), ATTN_OK);
    for (int64_t row = 0; row < n_rows; row++) {
        const double *x = w + row * nk, *y = want + row * nk;
        double entropy = 0, total = 0;
        for (int64_t j = 0; j < nk; j++) {
            if (x[j] != y[j] && !(fabs(x[j] - y[j]) <= weight_bound(lse[row], error[row]) * y[j])) {
                fprintf(stderr, "seed %llu row %lld key %lld: %.9g, reference %.9g\n", (unsigned long long)seed, (long long)row,
                        (long long)j, x[j], y[j]);
                fail();
            }
            total += x[j];
            entropy -= x[j] > 0 ? x[j] * log(x[j]) : 0;
            sum[row / nq * nk + j] += x[j];
        }
        assert_true(fabs(stat[row].key_weight - total) <= 1e-12 * (double)nk);
        assert_true(fabs(stat[row].entropy - entropy) <= 1e-12 * (double)nk);
        for (int64_t n = 0; n < k; n++) { /* the n-th choice: not below any key that is not chosen before it */
            int64_t at = key[row * k + n];
            if (at < 0) {
                assert_true(top[row * k + n] == 0);
                continue;
            }
            assert_true(top[row * k + n] == (float)x[at]);
            for (int64_t j = 0; j < nk; j++) {
                bool before = false;
                for (int64_t m = 0; m < n; m++)
                    before |= key[row * k + m] == j;
                if (!before && j != at)
                    assert_true((float)x[j] < (float)x[at] || ((float)x[j] == (float)x[at] && (j > at || x[j] == 0)));
            }
        }
        if (stat[row].max_key >= 0)
            assert_true(stat[row].max_weight == x[stat[row].max_key] && (float)stat[row].max_weight == top[row * k]);
    }
    for (int64_t n = 0; n < B * H * nk; n++)
        assert_true(fabs(mass[n] - sum[n]) <= 1e-12 * (double)nq);
    free(want), free(error), free(w), free(top), free(key), free(stat), free(mass), free(sum);
    random_problem_free(&made);
}

static void against_reference(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= N_PROBLEMS; seed++)
        one_problem(seed);
}

static void mass_parts_do_not_depend_on_threads(void **state)
{
    (void)state;
    int64_t n = 1500, d = 8;
    rng r = {7};
    random_problem made;
    memset(&made, 0, sizeof made);
    ATTN_ARGS_INIT(&made.args);
    made.args.query = problem_floats(&made, &r, 1, 2, n, d, 1);
    made.args.key = problem_floats(&made, &r, 1, 1, n, d, 1);
    made.args.mask.flags = ATTN_MASK_CAUSAL;
    double *mass[4], total = 0;
    for (int t = 0; t < 4; t++) {
        attn_ctx_options options;
        attn_ctx *other;
        ATTN_ARGS_INIT(&options);
        options.n_threads = t == 3 ? 8 : t + 1;
        assert_int_equal(attn_ctx_create(&options, &other), ATTN_OK);
        mass[t] = problem_memory(&made, (size_t)(2 * n) * sizeof(double));
        attn_view view = attn_view_of(mass[t], ATTN_F64, 1, 2, n, 1);
        assert_int_equal(attn_sdpa_key_mass(other, &made.args, &view), ATTN_OK);
        attn_ctx_destroy(other);
        assert_memory_equal(mass[0], mass[t], (size_t)(2 * n) * sizeof(double));
    }
    for (int64_t j = 0; j < 2 * n; j++)
        total += mass[0][j];
    assert_true(fabs(total - 2 * (double)n) < 1e-9 * (double)n); /* each row's weights sum to 1 */
    random_problem_free(&made);
}

/* 100,000 keys in bf16 and f32: weights of rows times values are the forward pass, top-k and statistics are those of the
 * weights, and key mass sums to the number of rows. */
static void agree_at_100_000_keys(int32_t dtype)
{
    enum { KEYS = 100000, QUERIES = 3, DIM = 16, K = 5 };
    rng r = {11};
    random_problem made;
    memset(&made, 0, sizeof made);
    attn_sdpa_args *a = &made.args;
    ATTN_ARGS_INIT(a);
    attn_cview *views[3] = {&a->query, &a->key, &a->value};
    for (int n = 0; n < 3; n++) {
        int64_t rows = n == 0 ? QUERIES : KEYS;
        *views[n] = problem_floats(&made, &r, 1, n == 0 ? 2 : 1, rows, DIM, n == 2 ? 1 : 2);
        if (dtype == ATTN_BF16) {
            const float *x = views[n]->data;
            uint16_t *y = problem_memory(&made, (size_t)(2 * rows * DIM) * 2);
            for (int64_t k = 0; k < views[n]->stride[0]; k++)
                attn_store_element(y, ATTN_BF16, k, (double)x[k]);
            views[n]->data = y;
            views[n]->dtype = ATTN_BF16;
        }
    }
    float *out = problem_memory(&made, 2 * QUERIES * DIM * 4), top[2 * QUERIES * K];
    int64_t keys[2 * QUERIES * K];
    attn_row_stat stat[2 * QUERIES];
    double *w = problem_memory(&made, 2 * QUERIES * KEYS * 8), *mass = problem_memory(&made, 2 * KEYS * 8), total = 0;
    a->out = attn_view_of(out, ATTN_F32, 1, 2, QUERIES, DIM);
    a->lse = problem_memory(&made, 2 * QUERIES * 4);
    a->mask.flags = ATTN_MASK_CAUSAL | ATTN_MASK_OFFSET;
    a->mask.query_offset = KEYS - QUERIES;
    attn_view weights = attn_view_of(w, ATTN_F64, 1, 1, 2 * QUERIES, KEYS), mass_view = attn_view_of(mass, ATTN_F64, 1, 2, KEYS, 1);
    assert_int_equal(attn_sdpa_forward(ctx, a, NULL, 0), ATTN_OK);
    assert_int_equal(attn_sdpa_rows(ctx, a, NULL, 2 * QUERIES, &weights), ATTN_OK);
    assert_int_equal(attn_sdpa_topk(ctx, a, NULL, 2 * QUERIES, K, keys, top), ATTN_OK);
    assert_int_equal(attn_sdpa_row_stats(ctx, a, NULL, 2 * QUERIES, stat), ATTN_OK);
    assert_int_equal(attn_sdpa_key_mass(ctx, a, &mass_view), ATTN_OK);
    for (int64_t row = 0; row < 2 * QUERIES; row++) {
        const double *x = w + row * KEYS;
        double sum = 0, mean[DIM] = {0}, size = 0;
        for (int64_t j = 0; j < KEYS; j++) {
            sum += x[j];
            for (int64_t d = 0; d < DIM; d++) {
                mean[d] += x[j] * attn_cview_at(&a->value, 0, 0, j, d);
                size += x[j] * fabs(attn_cview_at(&a->value, 0, 0, j, d)) / DIM;
            }
        }
        assert_true(fabs(sum - 1) <= 1e-5); /* lse is f32, of size 20: 20 * 2^-24 and its own error */
        for (int64_t d = 0; d < DIM; d++)
            assert_true(fabs(mean[d] - (double)out[row * DIM + d]) <= 2e-5 * size);
        assert_true(fabs(stat[row].key_weight - sum) <= 1e-10);
        for (int64_t n = 0; n < K; n++) { /* alone, a row's scores are summed in another order */
            assert_true(fabs((double)top[row * K + n] - x[keys[row * K + n]]) <= 1e-7 * x[keys[row * K + n]]);
            assert_true(n == 0 || top[row * K + n] <= top[row * K + n - 1]);
        }
        assert_true(keys[row * K] == stat[row].max_key);
        for (int64_t j = 0; j < KEYS; j++)
            assert_true((float)x[j] <= top[row * K + K - 1] || j == keys[row * K] || j == keys[row * K + 1] ||
                        j == keys[row * K + 2] || j == keys[row * K + 3]);
        attn_row chosen = {0, row / QUERIES, row % QUERIES};
        double *alone = problem_memory(&made, KEYS * 8);
        attn_view one = attn_view_of(alone, ATTN_F64, 1, 1, 1, KEYS);
        assert_int_equal(attn_sdpa_rows(ctx, a, &chosen, 1, &one), ATTN_OK);
        for (int64_t j = 0; j < KEYS; j++)
            assert_true(fabs(alone[j] - x[j]) <= 1e-12 * x[j]);
    }
    for (int64_t j = 0; j < 2 * KEYS; j++)
        total += mass[j];
    assert_true(fabs(total - 2 * QUERIES) <= 1e-4);
    random_problem_free(&made);
}
static void f32_at_100_000_keys(void **state)
{
    (void)state;
    agree_at_100_000_keys(ATTN_F32);
}
static void bf16_at_100_000_keys(void **state)
{
    (void)state;
    agree_at_100_000_keys(ATTN_BF16);
}

static void nan_goes_last_in_topk(void **state)
{
    (void)state;
    float query[1] = {1}, key[4] = {1, NAN, 3, 2}, lse = 3.5f, weights[4];
    int64_t indices[4];
    attn_sdpa_args a;
    ATTN_ARGS_INIT(&a);
    a.query = attn_cview_of(query, ATTN_F32, 1, 1, 1, 1);
    a.key = attn_cview_of(key, ATTN_F32, 1, 1, 4, 1);
    a.lse = &lse;
    assert_int_equal(attn_sdpa_topk(ctx, &a, NULL, 1, 4, indices, weights), ATTN_OK);
    assert_int_equal(indices[0], 2);
    assert_int_equal(indices[1], 3);
    assert_int_equal(indices[2], 0);
    assert_int_equal(indices[3], 1);
    assert_true(isnan(weights[3]));
}

static void bad_arguments_name_the_field(void **state)
{
    (void)state;
    float query[4] = {0}, key[4] = {0}, weights[4];
    double mass[4];
    int64_t indices[4];
    attn_row_stat stat;
    attn_sdpa_args a;
    ATTN_ARGS_INIT(&a);
    a.query = attn_cview_of(query, ATTN_F32, 1, 1, 1, 4);
    a.key = attn_cview_of(key, ATTN_F32, 1, 1, 1, 4);
    attn_row row = {0, 1, 0};
    attn_view view = attn_view_of(weights, ATTN_F32, 1, 1, 1, 1), mass_view = attn_view_of(mass, ATTN_F64, 1, 1, 2, 1);
    assert_int_equal(attn_sdpa_rows(ctx, &a, &row, 1, &view), ATTN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_ctx_error(ctx), "rows[0].head is 1"));
    assert_int_equal(attn_sdpa_rows(ctx, &a, NULL, 2, &view), ATTN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_ctx_error(ctx), "n_rows is 2"));
    row.head = 0;
    assert_int_equal(attn_sdpa_topk(ctx, &a, &row, 1, -1, indices, weights), ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(attn_sdpa_topk(ctx, &a, &row, 1, 2, NULL, weights), ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(attn_sdpa_row_stats(ctx, &a, &row, 1, NULL), ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(attn_sdpa_row_stats(ctx, &a, &row, -1, &stat), ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(attn_sdpa_key_mass(ctx, &a, &mass_view), ATTN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_ctx_error(ctx), "mass.shape"));
    assert_int_equal(attn_sdpa_rows(NULL, &a, &row, 1, &view), ATTN_ERR_INVALID_ARGUMENT);
}

/* Scores so large that an lse, which holds their rounding, would spoil the weights: rows whose biases are all the lowest finite
 * number weigh every key alike; scores of 5e4 and a little; given an lse and not. */
static void huge_scores_keep_their_weights(void **state)
{
    (void)state;
    enum { N = 40, D = 4 };
    for (int n = 0; n < 8; n++) {
        int32_t dtype = n & 1 ? ATTN_F64 : ATTN_F32;
        bool lowest = n & 2, given = n & 4;
        double q[N * D], k[N * D], v[N * D], out[N * D], lse[N], w[N * N];
        float bias[N], spread[N];
        attn_sdpa_args a;
        ATTN_ARGS_INIT(&a);
        for (int d = 0; d < N * D; d++) {
            attn_store_element(q, dtype, d, 0);
            attn_store_element(k, dtype, d, 1);
            attn_store_element(v, dtype, d, d % 7);
        }
        for (int j = 0; j < N; j++) {
            spread[j] = (float)(j % 5) / 2;
            bias[j] = lowest ? -3.4028235e38f : 5e4f + spread[j];
        }
        a.query = attn_cview_of(q, dtype, 1, 1, N, D);
        a.key = attn_cview_of(k, dtype, 1, 1, N, D);
        a.value = attn_cview_of(v, dtype, 1, 1, N, D);
        a.out = attn_view_of(out, dtype, 1, 1, N, D);
        a.lse = lse;
        a.mask.bias = attn_cview_of(bias, ATTN_F32, 1, 1, 1, N);
        assert_int_equal(attn_sdpa_forward(ctx, &a, NULL, 0), ATTN_OK);
        if (!given)
            a.lse = NULL;
        attn_view rows = attn_view_of(w, ATTN_F64, 1, 1, N, N);
        assert_int_equal(attn_sdpa_rows(ctx, &a, NULL, N, &rows), ATTN_OK);
        double sum = 0;
        for (int j = 0; j < N; j++)
            sum += lowest ? 1 : exp((double)spread[j]);
        for (int j = 0; j < N * N; j++) /* a double holds 5e4 + spread to 2^-38, not more */
            assert_true(fabs(w[j] - (lowest ? 1 : exp((double)spread[j % N])) / sum) <= 1e-10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_reference),     cmocka_unit_test(mass_parts_do_not_depend_on_threads),
        cmocka_unit_test(f32_at_100_000_keys),   cmocka_unit_test(bf16_at_100_000_keys),
        cmocka_unit_test(nan_goes_last_in_topk), cmocka_unit_test(bad_arguments_name_the_field),
        cmocka_unit_test(huge_scores_keep_their_weights),
    };
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
