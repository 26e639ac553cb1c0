/* The register tiles of the backward pass in bf16 against sums in double: the products over pairs of dimensions, of rows and of
 * keys, and rows joined to pairs, for random sizes and ranges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/cpu.h"
#include "core/half.h"
#include "core/view.h"
#include "kernels/sdpa/bwd_fast.h"
#include "kernels/simd/simd_levels.h"
#include "properties/random_problem.h"

#if ATTN_HAVE_AVX512BF16
#define ISA test_avx512bf16
#define ATTN_TARGET ATTN_TARGET_AVX512BF16
#define BWD_ROWS 12
#define BWD_VECTORS 2
#define BWD_PAIRS
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx512.h"
#include "kernels/simd/pairs_avx512bf16.h"
#include "kernels/sdpa/bwd_task.inc"
#include "kernels/sdpa/bwd_weights.inc"
#include "kernels/sdpa/bwd_bf16.inc"
#include "kernels/sdpa/bwd_special.inc"
#include "kernels/sdpa/bwd_tile.inc"

enum { MOST = 96, MOST_WIDTH = 128, N_PROBLEMS = 60 };

/* A matrix of bf16 numbers, width apart; arrays of slots hold them two by two. */
typedef struct matrix {
    uint16_t x[MOST * MOST_WIDTH];
    int64_t width;
} matrix;

static void fill(rng *r, matrix *m, int64_t rows, int64_t width)
{
    m->width = width;
    for (int64_t n = 0; n < MOST * MOST_WIDTH; n++)
        m->x[n] = n < rows * width ? attn_f32_to_bf16((float)rng_normal(r)) : 0;
}

static double number(const matrix *m, int64_t row, int64_t d)
{
    return (double)attn_bf16_to_f32(m->x[row * m->width + d]);
}

static void near(const char *what, int64_t n, float got, double want, double size, int64_t terms)
{
    if (fabs((double)got - want) > (double)(terms + 2) * 0x1p-24 * size)
        fail_msg("%s[%d] is %.9g, not %.9g", what, (int)n, (double)got, want);
}

/* Pairs of rows of m as slots [row / 2][width]. */
static void pairs_of_rows(const matrix *m, int64_t rows, float *pairs)
{
    join_rows((const float *)(const void *)m->x, m->width / 2, rows, m->width / 2, pairs, m->width);
    const uint16_t *x = (const uint16_t *)(const void *)pairs;
    for (int64_t n = 0; n < (rows + 1) / 2 * 2; n++)
        for (int64_t d = 0; d < m->width; d++)
            assert_int_equal(x[(n / 2 * m->width + d) * 2 + n % 2], n < rows ? m->x[n * m->width + d] : 0);
}

static void scores(void **state)
{
    static matrix row, key;
    static float panels[MOST * MOST_WIDTH], out[MOST * MOST];
    rng r = {11};
    (void)state;
    for (int problem = 0; problem < N_PROBLEMS; problem++) {
        int64_t rows = rng_range(&r, 1, MOST), keys = 32 * rng_range(&r, 1, 3), width = 32 * rng_range(&r, 1, 4);
        int32_t lo[MOST], hi[MOST];
        fill(&r, &row, rows, width), fill(&r, &key, keys, width);
        for (int64_t i = 0; i < rows; i++)
            lo[i] = (int32_t)least(i / 3, keys), hi[i] = (int32_t)least(i + 5, keys);
        pack_panels((const float *)(const void *)key.x, width / 2, keys, width / 2, panels);
        score_product((const float *)(const void *)row.x, width / 2, rows, panels, width / 2, keys, lo, hi, out, keys);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = lo[i]; j < hi[i]; j++) {
                double want = 0, size = 0;
                for (int64_t d = 0; d < width; d++)
                    want += number(&row, i, d) * number(&key, j, d), size += fabs(number(&row, i, d) * number(&key, j, d));
                near("score", i * keys + j, out[i * keys + j], want, size, width);
            }
    }
}

/* d_key += scores^T rows over pairs of rows, d_query += scores keys over pairs of keys; scores outside of ranges are 0. */
static void sums(void **state)
{
    static matrix score, row, key;
    static float pairs[2][MOST * MOST_WIDTH], d_key[MOST * MOST_WIDTH], d_query[MOST * MOST_WIDTH];
    rng r = {12};
    (void)state;
    for (int problem = 0; problem < N_PROBLEMS; problem++) {
        int64_t rows = rng_range(&r, 1, MOST), keys = 32 * rng_range(&r, 1, 3), width = 32 * rng_range(&r, 1, 4);
        int32_t pair_lo[MOST], pair_hi[MOST], slot_lo[MOST], slot_hi[MOST];
        fill(&r, &score, rows, keys), fill(&r, &row, rows, width), fill(&r, &key, keys, width);
        for (int64_t i = 0; i < rows; i++) {
            int32_t lo = (int32_t)least(i / 3, keys), hi = (int32_t)least(i + 5, keys);
            slot_lo[i] = lo / 2, slot_hi[i] = (hi + 1) / 2;
            if (i % 2 == 0)
                pair_lo[i / 2] = lo;
            pair_hi[i / 2] = hi;
            for (int64_t j = 0; j < keys; j++)
                score.x[i * keys + j] = j >= lo && j < hi ? score.x[i * keys + j] : 0;
        }
        for (int64_t n = 0; n < MOST * MOST_WIDTH; n++)
            d_key[n] = d_query[n] = 1;
        pairs_of_rows(&score, rows, pairs[0]), pairs_of_rows(&row, rows, pairs[1]);
        key_product(pairs[0], keys, (rows + 1) / 2, pairs[1], width, width, keys, pair_lo, pair_hi, d_key);
        pairs_of_rows(&key, keys, pairs[1]);
        query_product((const float *)(const void *)score.x, keys / 2, rows, pairs[1], width, width, slot_lo, slot_hi, d_query);
        for (int64_t n = 0; n < keys * width; n++) {
            double want = 1, size = 1;
            for (int64_t i = 0; i < rows; i++)
                want += number(&score, i, n / width) * number(&row, i, n % width),
                    size += fabs(number(&score, i, n / width) * number(&row, i, n % width));
            near("d_key", n, d_key[n], want, size, rows);
        }
        for (int64_t n = 0; n < rows * width; n++) {
            double want = 1, size = 1;
            for (int64_t j = 0; j < keys; j++)
                want += number(&score, n / width, j) * number(&key, j, n % width),
                    size += fabs(number(&score, n / width, j) * number(&key, j, n % width));
            near("d_query", n, d_query[n], want, size, keys);
        }
    }
}
#include "kernels/simd/target_end.h"

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scores), cmocka_unit_test(sums)};
    if (!attn_cpu_has_isa(ATTN_ISA_AVX512BF16))
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
    return 0;
}
#endif
