/* nn_dot_avx512.c - 8-bit products in AVX-512 with VNNI: vpdpbusd adds four products of unsigned and signed bytes to each lane.
 * Signed weights become unsigned by adding 128 (flipping a bit); the sum starts at -128 times that of the activations. */
#include "kernels/nn/nn_dot.h"
#include "kernels/simd/simd_levels.h"

#if ATTN_HAVE_AVX512
#define ISA avx512
#define ATTN_TARGET ATTN_TARGET_AVX512
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx512.h"
#define DOT_WIDE 0
#include "kernels/nn/nn_dot_vector.inc"
#include "kernels/nn/nn_dot_vnni.h"

#define DOT_ROWS "kernels/nn/nn_dot_rows_avx512.inc"
#define DOT_MR 6 /* with two panels 12 sums, and 12 of groups before */
#define DOT_NP 2
#define DOT_ROW attn_dot_row_avx512
#define DOT_TABLE attn_dot_kernels_avx512
#define DOT_ISA_NAME "avx512"

static void dot_round_vectors(const v_f32 *x, float inverse, int8_t *whole)
{
    const __m512 f = _mm512_set1_ps(inverse);
    if (!(inverse > 0))
        return;
    for (int i = 0; i < 2; i++) {
        const __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(x[i], f));
        _mm_storeu_si128((__m128i *)(void *)(whole + 16 * i), _mm512_cvtsepi32_epi8(v));
    }
}

/* acc += sums of one group; scales are loaded once for all rows. plain: they are f32. */
ATTN_INLINE void dot_add_sums(const bool plain, int mr, int np, const attn_panels *w, int64_t panel, const attn_dot_rows *x, int64_t row, int64_t b,
                              __m512i sum[DOT_MR][DOT_NP], __m512 acc[DOT_MR][DOT_NP])
{
    const float *steps = x->scale + b * x->n_rows + row;
    __m512 scale[DOT_NP];
    ATTN_UNROLL
    for (int p = 0; p < np; p++) {
        const int64_t at = ((panel + p) * x->n_groups + b) * ATTN_PANEL;
        scale[p] = plain ? v_load((const float *)w->scales + at) : dot_scale(w, w->scales, at);
    }
    ATTN_UNROLL
    for (int m = 0; m < mr; m++) {
        const __m512 step = _mm512_set1_ps(steps[m]);
        ATTN_UNROLL
        for (int p = 0; p < np; p++)
            acc[m][p] = v_fma(v_from_i(sum[m][p]), v_mul(scale[p], step), acc[m][p]);
    }
}

/* acc += minima of one group times the rows' sums. */
ATTN_INLINE void dot_add_mins(int mr, int np, const attn_panels *w, int64_t panel, const attn_dot_rows *x, int64_t row, int64_t b,
                              __m512 acc[DOT_MR][DOT_NP])
{
    __m512 min[DOT_NP];
    ATTN_UNROLL
    for (int p = 0; p < np; p++)
        min[p] = dot_scale(w, w->mins, ((panel + p) * x->n_groups + b) * ATTN_PANEL);
    ATTN_UNROLL
    for (int m = 0; m < mr; m++) {
        const int64_t group = b * x->n_rows + row + m;
        const __m512 total = _mm512_set1_ps(x->scale[group] * (float)x->total[group]);
        ATTN_UNROLL
        for (int p = 0; p < np; p++)
            acc[m][p] = v_fma(min[p], total, acc[m][p]);
    }
}

/* acc += one group. */
ATTN_INLINE void dot_add_group(int mr, int np, const attn_panels *w, int64_t panel, const attn_dot_rows *x, int64_t row, int64_t b,
                               __m512i sum[DOT_MR][DOT_NP], __m512 acc[DOT_MR][DOT_NP])
{
    dot_add_sums(false, mr, np, w, panel, x, row, b, sum, acc);
    if (w->has_min)
        dot_add_mins(mr, np, w, panel, x, row, b, acc);
}

ATTN_INLINE void dot_store(int mr, int np, __m512 acc[DOT_MR][DOT_NP], const attn_panels_end *end, float *y, int64_t ldy)
{
    if (end->bias) {
        ATTN_UNROLL
        for (int p = 0; p < np; p++)
            ATTN_UNROLL
            for (int m = 0; m < mr; m++)
                acc[m][p] = v_add(acc[m][p], v_load(end->bias + p * ATTN_PANEL));
    }
    if (end->residual) {
        ATTN_UNROLL
        for (int m = 0; m < mr; m++)
            ATTN_UNROLL
            for (int p = 0; p < np; p++)
                acc[m][p] = v_add(acc[m][p], v_load(end->residual + m * end->ld_residual + p * ATTN_PANEL));
    }
    ATTN_UNROLL
    for (int m = 0; m < mr; m++)
        ATTN_UNROLL
        for (int p = 0; p < np; p++)
            _mm512_storeu_ps(y + m * ldy + p * ATTN_PANEL, acc[m][p]);
}

/* plain: scales are f32, and there are no minima. */
ATTN_INLINE void dot_tile_d8_of(const bool plain, int mr, int np, const attn_panels *w, int64_t panel, const attn_dot_rows *x, int64_t row,
                             const attn_panels_end *end, float *y, int64_t ldy)
{
    const int8_t *values = (const int8_t *)w->values + panel * x->n_in * ATTN_PANEL, *q = x->q + row * x->n_in;
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    __m512i bytes[DOT_NP], sum[DOT_MR][DOT_NP];
    __m512 acc[DOT_MR][DOT_NP] = {{{0}}};
    for (int64_t b = 0; b < x->n_groups; b++) {
        const int64_t k1 = (b + 1) * x->group < x->n_in ? (b + 1) * x->group : x->n_in;
        ATTN_UNROLL
        for (int m = 0; m < mr; m++)
            ATTN_UNROLL
            for (int p = 0; p < np; p++)
                sum[m][p] = _mm512_set1_epi32(x->start[b * x->n_rows + row + m]);
        for (int64_t k = b * x->group; k < k1; k += 4) {
            ATTN_UNROLL
            for (int p = 0; p < np; p++)
                bytes[p] = _mm512_xor_si512(_mm512_loadu_si512(values + (p * x->n_in + k) * ATTN_PANEL), flip);
            ATTN_UNROLL
            for (int m = 0; m < mr; m++) {
                const __m512i four = dot_four(q + m * x->n_in + k);
                ATTN_UNROLL
                for (int p = 0; p < np; p++)
                    sum[m][p] = dot_add_four(sum[m][p], bytes[p], four);
            }
        }
        if (plain)
            dot_add_sums(true, mr, np, w, panel, x, row, b, sum, acc);
        else
            dot_add_group(mr, np, w, panel, x, row, b, sum, acc);
    }
    dot_store(mr, np, acc, end, y, ldy);
}

ATTN_INLINE void dot_tile_d8(int mr, int np, const attn_panels *w, int64_t panel, const attn_dot_rows *x, int64_t row,
                             const attn_panels_end *end, float *y, int64_t ldy)
{
    if (mr == DOT_MR && !w->half_scales && !w->has_min)
        dot_tile_d8_of(true, mr, np, w, panel, x, row, end, y, ldy);
    else
        dot_tile_d8_of(false, mr, np, w, panel, x, row, end, y, ldy);
}

ATTN_INLINE void dot_tile_u4(int mr, int np, const attn_panels *w, int64_t panel, const attn_dot_rows *x, int64_t row,
                             const attn_panels_end *end, float *y, int64_t ldy)
{
    const uint32_t *words = (const uint32_t *)w->values + panel * x->n_in * ATTN_PANEL / 8;
    const int64_t apart = x->n_in * ATTN_PANEL / 8;
    const int8_t *q = x->q + row * x->n_in;
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i word[DOT_NP], sum[DOT_MR][DOT_NP];
    __m512 acc[DOT_MR][DOT_NP] = {{{0}}};
    for (int64_t b = 0; b < x->n_groups; b++, words += 4 * ATTN_PANEL, q += 32) {
        ATTN_UNROLL
        for (int m = 0; m < mr; m++)
            ATTN_UNROLL
            for (int p = 0; p < np; p++)
                sum[m][p] = _mm512_setzero_si512();
        for (int g = 0; g < 4; g++) {
            ATTN_UNROLL
            for (int p = 0; p < np; p++)
                word[p] = _mm512_loadu_si512(words + p * apart + g * ATTN_PANEL);
            ATTN_UNROLL
            for (int half = 0; half < 2; half++) { /* low nibbles, then high ones */
                ATTN_UNROLL
                for (int m = 0; m < mr; m++) {
                    const __m512i four = dot_four(q + m * x->n_in + 8 * g + 4 * half);
                    ATTN_UNROLL
                    for (int p = 0; p < np; p++) {
                        const __m512i bytes = half ? _mm512_srli_epi16(word[p], 4) : word[p];
                        sum[m][p] = dot_add_four(sum[m][p], _mm512_and_si512(bytes, nibble), four);
                    }
                }
            }
        }
        dot_add_group(mr, np, w, panel, x, row, b, sum, acc);
    }
    dot_store(mr, np, acc, end, y, ldy);
}

#include "kernels/nn/nn_dot.inc"
#include "kernels/simd/target_end.h"
#else
typedef int attn_nn_dot_avx512_is_empty; /* a source file needs a declaration */
#endif
