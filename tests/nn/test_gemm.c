/* The general product: every kind against one written loop, to the bit, for any shape, tiles, threads and level;
 * packed beforehand or not; f64. Products of bf16 numbers: against f64 within a derived bound, the same bits for any
 * threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "core/cpu.h"
#include "core/half.h"
#include "kernels/nn/nn_pair.h"
#include "ops/nn/gemm.h"
#include "ops/nn/nn_parallel.h"

static uint64_t rng_state = 88172645463325252u;

static double uniform(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (double)(rng_state >> 40) * 0x1p-23 - 1.0;
}

static const int32_t levels[] = {ATTN_ISA_SCALAR, ATTN_ISA_AVX2, ATTN_ISA_AVX512, ATTN_ISA_NEON};

typedef struct world {
    int32_t kind, accumulate, with_bias;
    int64_t m, n, k, lda, ldb, ldc;
    float *a, *b, *c, *bias, *want;
} world;

/* Exactly as many numbers as the last row reaches, so that a sanitizer sees any byte beyond. */
static float *random_rows(int64_t rows, int64_t width, int64_t ld)
{
    const int64_t n = rows ? (rows - 1) * ld + width : 0;
    float *x = malloc((size_t)(n ? n : 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)uniform();
    return x;
}

static world make_world(int32_t kind, int64_t m, int64_t n, int64_t k)
{
    world w = {.kind = kind, .m = m, .n = n, .k = k};
    w.accumulate = uniform() > 0;
    w.with_bias = uniform() > 0;
    const int64_t gap = uniform() > 0 ? 3 : 0;
    w.lda = (kind == ATTN_GEMM_TN ? m : k) + gap;
    w.ldb = (kind == ATTN_GEMM_NT ? k : n) + gap;
    w.ldc = n + gap;
    w.a = kind == ATTN_GEMM_TN ? random_rows(k, m, w.lda) : random_rows(m, k, w.lda);
    w.b = kind == ATTN_GEMM_NT ? random_rows(n, k, w.ldb) : random_rows(k, n, w.ldb);
    w.c = random_rows(m, n, w.ldc);
    w.bias = random_rows(1, n, n);
    w.want = malloc((size_t)(m * n + 1) * sizeof *w.want);
    return w;
}

static void free_world(world *w)
{
    free(w->a), free(w->b), free(w->c), free(w->bias), free(w->want);
}

static float at_a(const world *w, int64_t m, int64_t k)
{
    return w->kind == ATTN_GEMM_TN ? w->a[k * w->lda + m] : w->a[m * w->lda + k];
}

static float at_b(const world *w, int64_t k, int64_t n)
{
    return w->kind == ATTN_GEMM_NT ? w->b[n * w->ldb + k] : w->b[k * w->ldb + n];
}

static void written_loop(const world *w, int32_t isa)
{
    for (int64_t m = 0; m < w->m; m++)
        for (int64_t n = 0; n < w->n; n++) {
            float sum = w->accumulate ? w->c[m * w->ldc + n] : 0.0f;
            for (int64_t k = 0; k < w->k; k++) {
                volatile float product = at_a(w, m, k) * at_b(w, k, n);
                sum = isa == ATTN_ISA_SCALAR ? sum + product : fmaf(at_a(w, m, k), at_b(w, k, n), sum);
            }
            w->want[m * w->n + n] = sum + (w->with_bias ? w->bias[n] : 0.0f);
        }
}

static attn_team make_team(int32_t isa, int32_t *n_threads)
{
    attn_team team = {.kernels = attn_nn_kernels_for(isa), .parallel_for = attn_nn_parallel_for,
                      .parallel_for_user = n_threads, .n_threads = *n_threads};
    team.scratch = aligned_alloc(64, (size_t)*n_threads * ATTN_TEAM_SCRATCH);
    return team;
}

static int64_t numbers_of_c(const world *w)
{
    return w->m ? (w->m - 1) * w->ldc + w->n : 0;
}

/* c of the product at a level; packed: B beforehand. products: ATTN_F32, or ATTN_BF16 for operands that are rounded. */
static float *run_product(const world *w, int32_t isa, int32_t products, int32_t threads, int packed)
{
    attn_team team = make_team(isa, &threads);
    team.products = products;
    team.pairs = attn_pair_gemm(isa);
    float *c = malloc((size_t)(numbers_of_c(w) + 1) * sizeof *c), *panels = NULL;
    memcpy(c, w->c, (size_t)numbers_of_c(w) * sizeof *c);
    if (packed) {
        panels = malloc((size_t)attn_gemm_packed_floats(&team, w->n, w->k) * sizeof *panels);
        attn_gemm_pack(&team, w->kind, w->n, w->k, w->b, w->ldb, panels);
    }
    const attn_gemm_args g = {.dtype = ATTN_F32, .kind = w->kind, .m = w->m, .n = w->n, .k = w->k, .a = w->a,
                              .lda = w->lda, .b = packed ? NULL : w->b, .ldb = w->ldb, .packed = panels, .c = c,
                              .ldc = w->ldc, .bias = w->with_bias ? w->bias : NULL, .accumulate = w->accumulate};
    attn_gemm(&team, &g);
    free(panels), free(team.scratch);
    return c;
}

static void check_run(const world *w, int32_t isa, int32_t threads, int packed)
{
    const int64_t n_c = numbers_of_c(w);
    float *c = run_product(w, isa, ATTN_F32, threads, packed);
    for (int64_t m = 0; m < w->m; m++)
        for (int64_t n = 0; n < w->ldc && m * w->ldc + n < n_c; n++) {
            const float want = n < w->n ? w->want[m * w->n + n] : w->c[m * w->ldc + n];
            if (memcmp(&c[m * w->ldc + n], &want, sizeof want))
                fail_msg("%s kind %d, %lld x %lld x %lld, threads %d, packed %d: c[%lld][%lld] is %.9g, not %.9g",
                         attn_isa_name(isa), w->kind, (long long)w->m, (long long)w->n, (long long)w->k, threads, packed,
                         (long long)m, (long long)n, (double)c[m * w->ldc + n], (double)want);
        }
    free(c);
}

static void check_shape(int64_t m, int64_t n, int64_t k)
{
    for (int32_t kind = 0; kind < 3; kind++) {
        world w = make_world(kind, m, n, k);
        for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
            if (!attn_cpu_has_isa(levels[l]))
                continue;
            written_loop(&w, levels[l]);
            for (int32_t threads = 1; threads <= 3; threads++)
                check_run(&w, levels[l], threads, threads == 2);
        }
        free_world(&w);
    }
}

static void test_shapes(void **state)
{
    (void)state;
    const int64_t shapes[][3] = {{1, 1, 1},     {1, 16, 8},   {6, 16, 256},  {7, 17, 257},   {13, 33, 5}, {96, 32, 300},
                                 {97, 48, 64},  {200, 40, 31}, {2, 720, 9},  {3, 1500, 7},   {5, 9, 1025}, {12, 20, 2100},
                                 {300, 100, 1}, {11, 31, 512}, {0, 5, 4},    {5, 0, 4},      {1, 64, 576}, {400, 130, 40}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        check_shape(shapes[s][0], shapes[s][1], shapes[s][2]);
}

static void test_empty_sum(void **state)
{
    (void)state;
    int32_t threads = 1;
    attn_team team = make_team(ATTN_ISA_SCALAR, &threads);
    const float bias[3] = {1, 2, 3};
    float c[6] = {9, 9, 9, 9, 9, 9};
    attn_gemm_args g = {.kind = ATTN_GEMM_NT, .m = 2, .n = 3, .c = c, .ldc = 3, .bias = bias};
    attn_gemm(&team, &g);
    for (int i = 0; i < 6; i++)
        assert_true(c[i] == bias[i % 3]);
    g.accumulate = 1;
    attn_gemm(&team, &g);
    for (int i = 0; i < 6; i++)
        assert_true(c[i] == 2 * bias[i % 3]);
    free(team.scratch);
}

static void test_f64(void **state)
{
    (void)state;
    const int64_t shapes[][3] = {{1, 1, 1}, {7, 300, 20}, {40, 9, 130}, {5, 3, 0}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int32_t kind = 0; kind < 3; kind++)
            for (int32_t threads = 1; threads <= 3; threads++) {
                world w = make_world(kind, shapes[s][0], shapes[s][1], shapes[s][2]);
                attn_team team = make_team(ATTN_ISA_SCALAR, &threads);
                const int64_t n_a = w.kind == ATTN_GEMM_TN ? w.k : w.m, n_b = w.kind == ATTN_GEMM_NT ? w.n : w.k;
                const int64_t wa = w.kind == ATTN_GEMM_TN ? w.m : w.k, wb = w.kind == ATTN_GEMM_NT ? w.k : w.n;
                double *a = calloc((size_t)(n_a * w.lda + 1), 8), *b = calloc((size_t)(n_b * w.ldb + 1), 8);
                double *c = calloc((size_t)(w.m * w.ldc + 1), 8), *bias = calloc((size_t)(w.n + 1), 8);
                for (int64_t r = 0; r < n_a; r++)
                    for (int64_t i = 0; i < wa; i++)
                        a[r * w.lda + i] = (double)w.a[r * w.lda + i];
                for (int64_t r = 0; r < n_b; r++)
                    for (int64_t i = 0; i < wb; i++)
                        b[r * w.ldb + i] = (double)w.b[r * w.ldb + i];
                for (int64_t n = 0; n < w.n; n++)
                    bias[n] = (double)w.bias[n];
                for (int64_t m = 0; m < w.m; m++)
                    for (int64_t n = 0; n < w.n; n++)
                        c[m * w.ldc + n] = (double)w.c[m * w.ldc + n];
                const attn_gemm_args g = {.dtype = ATTN_F64, .kind = kind, .m = w.m, .n = w.n, .k = w.k, .a = a,
                                          .lda = w.lda, .b = b, .ldb = w.ldb, .c = c, .ldc = w.ldc,
                                          .bias = w.with_bias ? bias : NULL, .accumulate = w.accumulate};
                attn_gemm(&team, &g);
                for (int64_t m = 0; m < w.m; m++)
                    for (int64_t n = 0; n < w.n; n++) {
                        double sum = w.accumulate ? (double)w.c[m * w.ldc + n] : 0;
                        for (int64_t k = 0; k < w.k; k++)
                            sum += (double)at_a(&w, m, k) * (double)at_b(&w, k, n);
                        sum += w.with_bias ? (double)w.bias[n] : 0;
                        assert_true(c[m * w.ldc + n] == sum);
                    }
                free(a), free(b), free(c), free(bias), free(team.scratch);
                free_world(&w);
            }
}

/* ---- products of bf16 numbers ---- */

static double rounded(float x)
{
    return (double)attn_bf16_to_f32(attn_f32_to_bf16(x));
}

static const int32_t bf16_levels[] = {ATTN_ISA_SCALAR, ATTN_ISA_AVX2, ATTN_ISA_AVX512, ATTN_ISA_AVX512BF16,
                                      ATTN_ISA_NEON,   ATTN_ISA_NEONBF16};

/* A product of two bf16 numbers has 16 bits, so it is exact in f32; what is rounded are the k additions, that of the
 * bias, and in scalar code nothing more: (k + 1) 2^-24 sum|terms|, above and below the line. */
static void check_bf16(const world *w, int32_t isa, const float *c)
{
    for (int64_t m = 0; m < w->m; m++)
        for (int64_t n = 0; n < w->n; n++) {
            const double first = w->accumulate ? (double)w->c[m * w->ldc + n] : 0;
            const double last = w->with_bias ? (double)w->bias[n] : 0;
            double sum = first + last, size = fabs(first) + fabs(last);
            for (int64_t k = 0; k < w->k; k++) {
                const double term = rounded(at_a(w, m, k)) * rounded(at_b(w, k, n));
                sum += term, size += fabs(term);
            }
            const double steps = (double)(w->k + 1) * 0x1p-24, bound = steps / (1 - steps) * size;
            if (!(fabs((double)c[m * w->ldc + n] - sum) <= bound))
                fail_msg("%s kind %d, %lld x %lld x %lld: c[%lld][%lld] is %.9g, not %.9g within %.3g",
                         attn_isa_name(isa), w->kind, (long long)w->m, (long long)w->n, (long long)w->k, (long long)m,
                         (long long)n, (double)c[m * w->ldc + n], sum, bound);
        }
}

static void test_bf16(void **state)
{
    (void)state;
    const int64_t shapes[][3] = {{1, 1, 1},     {1, 16, 8},   {7, 17, 257}, {13, 33, 5},
                                 {97, 48, 64},  {200, 40, 31}, {3, 1500, 7}, {5, 9, 1025},
                                 {12, 20, 2100}, {300, 100, 1}, {11, 31, 512}, {400, 130, 40}};
    for (size_t s = 0; s < 3 * sizeof shapes / sizeof *shapes; s++) {
        world w = make_world((int32_t)(s % 3), shapes[s / 3][0], shapes[s / 3][1], shapes[s / 3][2]);
        const size_t n_c = (size_t)numbers_of_c(&w) * sizeof *w.c;
        for (size_t l = 0; l < sizeof bf16_levels / sizeof *bf16_levels; l++) {
            if (!attn_cpu_has_isa(bf16_levels[l]))
                continue;
            float *alone = run_product(&w, bf16_levels[l], ATTN_BF16, 1, 0);
            check_bf16(&w, bf16_levels[l], alone);
            for (int32_t threads = 1; threads <= 3; threads++) {
                float *c = run_product(&w, bf16_levels[l], ATTN_BF16, threads, threads != 3);
                assert_memory_equal(c, alone, n_c);
                free(c);
            }
            free(alone);
        }
        free_world(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_empty_sum),
                                       cmocka_unit_test(test_f64), cmocka_unit_test(test_bf16)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
