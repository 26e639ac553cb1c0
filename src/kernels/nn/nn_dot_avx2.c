/* nn_dot_avx2.c - 8-bit products in AVX2. Signed weights are widened to 16 bits and go through vpmaddwd: the same number of
 * multiplications a cycle as vpmaddubsw with its second vpmaddwd, without its saturation. Nibbles go through vpmaddubsw, and
 * the sums of a block of 32 stay in 16 bits: 8 * 2 * 15 * 127 = 30,480. */
#include "kernels/nn/nn_dot.h"
#include "kernels/simd/simd_levels.h"

#if ATTN_HAVE_AVX2
#define ISA avx2
#define ATTN_TARGET ATTN_TARGET_AVX2
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx2.h"
#define DOT_WIDE 1
#include "kernels/nn/nn_dot_vector.inc"

/* One row after the other: gcc 12 would begin with the products of all rows, and then keep the sums in memory. */
ATTN_INLINE void dot_step(__m256i w0, __m256i w1, __m256i x, __m256i *low, __m256i *high)
{
    __m256i product;
    __asm__("vpmaddwd %4, %2, %3\n\t"
            "vpaddd %3, %0, %0\n\t"
            "vpmaddwd %5, %2, %2\n\t"
            "vpaddd %2, %1, %1"
            : "+x"(*low), "+x"(*high), "+x"(x), "=&x"(product)
            : "x"(w0), "x"(w1));
}
#define DOT_IN_TURN(a, b) __asm__ volatile("" : "+x"(a), "+x"(b))

#define DOT_MR 6
#define DOT_NP 1
#define DOT_TABLE attn_dot_kernels_avx2
#define DOT_ISA_NAME "avx2"

static void dot_round_vectors(const v_f32 *x, float inverse, int8_t *whole)
{
    const __m256 f = _mm256_set1_ps(inverse);
    __m256i v[4];
    if (!(inverse > 0))
        return;
    for (int i = 0; i < 4; i++)
        v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(x[i], f));
    /* packs work in 128-bit halves: the permutation brings fours back in order */
    const __m256i p = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((__m256i *)(void *)whole, _mm256_permutevar8x32_epi32(p, order));
}

/* Scales and minima of a group for V_N outputs. */
typedef struct dot_scales {
    v_f32 scale, min;
    bool has_min;
} dot_scales;

ATTN_INLINE dot_scales dot_scales_at(const attn_panels *w, int64_t at)
{
    return (dot_scales){dot_scale(w, w->scales, at), w->has_min ? dot_scale(w, w->mins, at) : v_zero(), w->has_min != 0};
}

/* acc += scale * sum + min * total for V_N outputs; sum in whole numbers. at: group * n_rows + row. */
ATTN_INLINE v_f32 dot_add(dot_scales s, const attn_dot_rows *x, int64_t at, v_i32 sum, v_f32 acc)
{
    const float step = x->scale[at];
    acc = v_fma(v_from_i(sum), v_mul(s.scale, v_set1(step)), acc);
    if (s.has_min)
        acc = v_fma(s.min, v_set1(step * (float)x->total[at]), acc);
    return acc;
}

/* The sums lie in the order 0 1 4 5 2 3 6 7 until the end, as horizontal additions leave them. */
ATTN_INLINE __m256 dot_reorder(__m256 x)
{
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xd8));
}

ATTN_INLINE void dot_half_d8(int mr, const attn_panels *w, int64_t panel, int half, const attn_dot_rows *x, int64_t row,
                             float *y, int64_t ldy)
{
    const int8_t *values = (const int8_t *)w->values + panel * x->n_in * ATTN_PANEL + half * 32;
    const int16_t *q = x->wide + row * x->n_in;
    const int64_t n_in = x->n_in;
    __m256 acc[DOT_MR];
    ATTN_UNROLL
    for (int m = 0; m < mr; m++)
        acc[m] = _mm256_setzero_ps();
    for (int64_t b = 0; b < x->n_groups; b++) {
        __m256i low[DOT_MR], high[DOT_MR]; /* outputs 0-3 and 4-7, two pairs of inputs each */
        ATTN_UNROLL
        for (int m = 0; m < mr; m++)
            low[m] = high[m] = _mm256_setzero_si256();
        for (int64_t left = n_in - b * x->group < x->group ? n_in - b * x->group : x->group; left > 0; left -= 4) {
            const __m128i *from = (const __m128i *)(const void *)values;
            const __m256i w0 = _mm256_cvtepi8_epi16(_mm_loadu_si128(from));
            const __m256i w1 = _mm256_cvtepi8_epi16(_mm_loadu_si128(from + 1));
            ATTN_UNROLL
            for (int m = 0; m < mr; m++) {
                int64_t four;
                memcpy(&four, q + m * n_in, sizeof four);
                dot_step(w0, w1, _mm256_set1_epi64x(four), &low[m], &high[m]);
            }
            values += 4 * ATTN_PANEL;
            q += 4;
        }
        dot_scales scales = dot_scales_at(w, (panel * x->n_groups + b) * ATTN_PANEL + half * 8);
        scales.scale = dot_reorder(scales.scale), scales.min = dot_reorder(scales.min);
        ATTN_UNROLL
        for (int m = 0; m < mr; m++)
            acc[m] = dot_add(scales, x, b * x->n_rows + row + m, _mm256_hadd_epi32(low[m], high[m]), acc[m]);
    }
    ATTN_UNROLL
    for (int m = 0; m < mr; m++)
        _mm256_storeu_ps(y + m * ldy + half * 8, dot_reorder(acc[m]));
}

ATTN_INLINE void dot_tile_d8(int mr, int np, const attn_panels *w, int64_t panel, const attn_dot_rows *x, int64_t row,
                             const attn_panels_end *end, float *y, int64_t ldy)
{
    (void)np;
    dot_half_d8(mr, w, panel, 0, x, row, y, ldy);
    dot_half_d8(mr, w, panel, 1, x, row, y, ldy);
    attn_panels_add_end(mr, end, y, ldy);
}

ATTN_INLINE void dot_half_u4(int mr, const attn_panels *w, int64_t panel, int half, const attn_dot_rows *x, int64_t row,
                             float *y, int64_t ldy)
{
    const uint32_t *words = (const uint32_t *)w->values + panel * x->n_in * ATTN_PANEL / 8 + half * 8;
    const int8_t *q = x->q + row * x->n_in;
    const __m256i nibble = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256 acc[DOT_MR];
    for (int m = 0; m < mr; m++)
        acc[m] = _mm256_setzero_ps();
    for (int64_t b = 0; b < x->n_groups; b++, words += 4 * ATTN_PANEL) {
        const dot_scales scales = dot_scales_at(w, (panel * x->n_groups + b) * ATTN_PANEL + half * 8);
        __m256i n[8];
        for (int g = 0; g < 4; g++) {
            const __m256i word = _mm256_loadu_si256((const __m256i *)(const void *)(words + g * ATTN_PANEL));
            n[2 * g] = _mm256_and_si256(word, nibble);
            n[2 * g + 1] = _mm256_and_si256(_mm256_srli_epi16(word, 4), nibble);
        }
        for (int m = 0; m < mr; m++) {
            __m256i sum = _mm256_setzero_si256();
            for (int p = 0; p < 8; p++) {
                int32_t four;
                memcpy(&four, q + m * x->n_in + b * 32 + 4 * p, sizeof four);
                sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(n[p], _mm256_set1_epi32(four)));
            }
            DOT_IN_TURN(sum, sum);
            acc[m] = dot_add(scales, x, b * x->n_rows + row + m, _mm256_madd_epi16(sum, ones), acc[m]);
        }
    }
    for (int m = 0; m < mr; m++)
        _mm256_storeu_ps(y + m * ldy + half * 8, acc[m]);
}

ATTN_INLINE void dot_tile_u4(int mr, int np, const attn_panels *w, int64_t panel, const attn_dot_rows *x, int64_t row,
                             const attn_panels_end *end, float *y, int64_t ldy)
{
    (void)np;
    dot_half_u4(mr, w, panel, 0, x, row, y, ldy);
    dot_half_u4(mr, w, panel, 1, x, row, y, ldy);
    attn_panels_add_end(mr, end, y, ldy);
}

#include "kernels/nn/nn_dot.inc"
#include "kernels/simd/target_end.h"
#else
typedef int attn_nn_dot_avx2_is_empty; /* a source file needs a declaration */
#endif
