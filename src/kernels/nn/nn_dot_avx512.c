/* nn_dot_avx512.c - 8-bit products in AVX-512 with VNNI: vpdpbusd adds four products of unsigned and signed bytes to each lane.
 * Signed weights become unsigned by adding 128 (flipping a bit); the sum starts at -128 times that of the activations. */
#include "kernels/nn/nn_dot.h"
#include "kernels/simd/simd_levels.h"

#if ATTN_HAVE_AVX512
#define ISA avx512
#define ATTN_TARGET ATTN_TARGET_AVX512
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx512.h"
#include "kernels/nn/nn_dot_vector.inc"

#define DOT_MR 8
#define DOT_TABLE attn_dot_kernels_avx512
#define DOT_ISA_NAME "avx512"

static void dot_round(const float *x, float inverse, int8_t *whole)
{
    const __m512 f = _mm512_set1_ps(inverse);
    if (!(inverse > 0))
        return;
    for (int i = 0; i < 2; i++) {
        const __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16 * i), f));
        _mm_storeu_si128((__m128i *)(void *)(whole + 16 * i), _mm512_cvtsepi32_epi8(v));
    }
}

ATTN_INLINE __m512i dot_four(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm512_set1_epi32(four);
}

ATTN_INLINE void dot_tile_d8(int mr, const attn_panels *w, int64_t panel, const attn_dot_rows *x, int64_t row, float *y,
                             int64_t ldy)
{
    const int8_t *values = (const int8_t *)w->values + panel * x->n_in * ATTN_PANEL, *q = x->q + row * x->n_in;
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    __m512 acc[DOT_MR];
    for (int m = 0; m < mr; m++)
        acc[m] = _mm512_setzero_ps();
    for (int64_t b = 0; b < x->n_groups; b++) {
        const int64_t k1 = (b + 1) * x->group < x->n_in ? (b + 1) * x->group : x->n_in;
        __m512i sum[DOT_MR];
        for (int m = 0; m < mr; m++)
            sum[m] = _mm512_set1_epi32(-128 * x->total[(row + m) * x->n_groups + b]);
        for (int64_t k = b * x->group; k < k1; k += 4) {
            const __m512i v = _mm512_xor_si512(_mm512_loadu_si512(values + k * ATTN_PANEL), flip);
            for (int m = 0; m < mr; m++)
                sum[m] = _mm512_dpbusd_epi32(sum[m], v, dot_four(q + m * x->n_in + k));
        }
        for (int m = 0; m < mr; m++)
            acc[m] = dot_add(w, x, (panel * x->n_groups + b) * ATTN_PANEL, row + m, b, sum[m], acc[m]);
    }
    for (int m = 0; m < mr; m++)
        _mm512_storeu_ps(y + m * ldy, acc[m]);
}

ATTN_INLINE void dot_tile_u4(int mr, const attn_panels *w, int64_t panel, const attn_dot_rows *x, int64_t row, float *y,
                             int64_t ldy)
{
    const uint32_t *words = (const uint32_t *)w->values + panel * x->n_in * ATTN_PANEL / 8;
    const int8_t *q = x->q + row * x->n_in;
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512 acc[DOT_MR];
    for (int m = 0; m < mr; m++)
        acc[m] = _mm512_setzero_ps();
    for (int64_t b = 0; b < x->n_groups; b++, words += 4 * ATTN_PANEL) {
        __m512i sum[DOT_MR];
        for (int m = 0; m < mr; m++)
            sum[m] = _mm512_setzero_si512();
        for (int g = 0; g < 4; g++) {
            const __m512i word = _mm512_loadu_si512(words + g * ATTN_PANEL);
            const __m512i low = _mm512_and_si512(word, nibble);
            const __m512i high = _mm512_and_si512(_mm512_srli_epi16(word, 4), nibble);
            for (int m = 0; m < mr; m++)
                sum[m] = _mm512_dpbusd_epi32(sum[m], low, dot_four(q + m * x->n_in + b * 32 + 8 * g));
            for (int m = 0; m < mr; m++)
                sum[m] = _mm512_dpbusd_epi32(sum[m], high, dot_four(q + m * x->n_in + b * 32 + 8 * g + 4));
        }
        for (int m = 0; m < mr; m++)
            acc[m] = dot_add(w, x, (panel * x->n_groups + b) * ATTN_PANEL, row + m, b, sum[m], acc[m]);
    }
    for (int m = 0; m < mr; m++)
        _mm512_storeu_ps(y + m * ldy, acc[m]);
}

#include "kernels/nn/nn_dot.inc"
#include "kernels/simd/target_end.h"
#else
typedef int attn_nn_dot_avx512_is_empty; /* a source file needs a declaration */
#endif
