/* nn_dot_row_avx512.c - one row of 8-bit activations, as in decoding, in AVX-512 with VNNI. The sums are those of nn_dot_avx512.c, in the
 * same order, so the bits are the same; but one row is bound by reading its weights, and memory gives more to reads of several places
 * far from one another. So DOT_SIDE panels, each a part of the task behind the one before, are read side by side. */
#include "kernels/nn/nn_dot.h"
#include "kernels/simd/simd_levels.h"

#if ATTN_HAVE_AVX512
#define ISA avx512
#define ATTN_TARGET ATTN_TARGET_AVX512
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx512.h"
#include "kernels/nn/nn_dot_vnni.h"

#define DOT_SIDE    4 /* at most */
#define DOT_SIDE_D8 4
#define DOT_SIDE_U4 2 /* with scales and minima six places; with four panels twelve, and 5 GB/s less on Zen 4 */

/* The row, and panels `panel`, panel + apart, ...; y: outputs of `panel`. */
typedef struct dot_row {
    const attn_panels *w;
    const attn_dot_rows *x;
    int64_t row, panel, apart;
    float *y;
} dot_row;

/* 32 inputs of n panels, `step` bytes apart; sums start at 0 where weights are not negative, else at the row's `start`. */
ATTN_INLINE void dot_row_d8(const int n, const int8_t *values, int64_t step, const int8_t *q, __m512i *sum)
{
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    ATTN_UNROLL
    for (int g = 0; g < 8; g++) {
        const __m512i four = dot_four(q + 4 * g);
        ATTN_UNROLL
        for (int p = 0; p < n; p++) {
            const int8_t *line = values + p * step + 64 * g;
            sum[p] = dot_add_four(sum[p], _mm512_xor_si512(_mm512_loadu_si512(line), flip), four);
        }
    }
}

ATTN_INLINE void dot_row_u4(const int n, const int8_t *values, int64_t step, const int8_t *q, __m512i *sum)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    ATTN_UNROLL
    for (int g = 0; g < 4; g++) {
        const __m512i low = dot_four(q + 8 * g), high = dot_four(q + 8 * g + 4);
        ATTN_UNROLL
        for (int p = 0; p < n; p++) {
            const int8_t *line = values + p * step + 64 * g;
            const __m512i word = _mm512_loadu_si512(line);
            sum[p] = dot_add_four(sum[p], _mm512_and_si512(word, nibble), low);
            sum[p] = dot_add_four(sum[p], _mm512_and_si512(_mm512_srli_epi16(word, 4), nibble), high);
        }
    }
}

/* One format, and one kind of scales: with these known the loop has no branch. */
ATTN_INLINE void dot_row_panels(const int n, const int format, const int half, const int has_min, const dot_row *r)
{
    const attn_panels *w = r->w;
    const attn_dot_rows *x = r->x;
    const int64_t bytes = attn_panel_bytes(format, x->n_in), step = r->apart * bytes, scale_step = r->apart * x->n_groups * ATTN_PANEL;
    const int8_t *values = (const int8_t *)w->values + r->panel * bytes, *q = x->q + r->row * x->n_in;
    __m512 acc[DOT_SIDE];
    ATTN_UNROLL
    for (int p = 0; p < n; p++)
        acc[p] = v_zero();
    for (int64_t b = 0; b < x->n_groups; b++) {
        const int64_t group = b * x->n_rows + r->row, at = (r->panel * x->n_groups + b) * ATTN_PANEL;
        const int64_t end = (b + 1) * x->group < x->n_in ? (b + 1) * x->group : x->n_in;
        const __m512 unit = v_set1(x->scale[group]), total = v_set1(x->scale[group] * (float)x->total[group]);
        __m512i sum[DOT_SIDE];
        ATTN_UNROLL
        for (int p = 0; p < n; p++)
            sum[p] = _mm512_set1_epi32(format == ATTN_PANEL_D8 ? x->start[group] : 0);
        for (int64_t k = b * x->group; k < end; k += 32, values += attn_panel_bytes(format, 32), q += 32) {
            if (format == ATTN_PANEL_D8)
                dot_row_d8(n, values, step, q, sum);
            else
                dot_row_u4(n, values, step, q, sum);
        }
        ATTN_UNROLL
        for (int p = 0; p < n; p++) {
            const int64_t i = at + p * scale_step;
            const __m512 scale = half ? v_load_f16((const uint16_t *)w->scales + i) : v_load((const float *)w->scales + i);
            acc[p] = v_fma(v_from_i(sum[p]), v_mul(scale, unit), acc[p]);
            if (has_min)
                acc[p] = v_fma(half ? v_load_f16((const uint16_t *)w->mins + i) : v_load((const float *)w->mins + i), total, acc[p]);
        }
    }
    ATTN_UNROLL
    for (int p = 0; p < n; p++)
        v_store(r->y + p * r->apart * ATTN_PANEL, acc[p]);
}

#define DOT_ROW_KINDS(name, n, format)                                                                                 \
    static ATTN_NOINLINE void name(const dot_row *r)                                                                   \
    {                                                                                                                  \
        switch (r->w->half_scales * 2 + r->w->has_min) {                                                               \
        case 0:                                                                                                        \
            dot_row_panels(n, format, 0, 0, r);                                                                        \
            break;                                                                                                     \
        case 1:                                                                                                        \
            dot_row_panels(n, format, 0, 1, r);                                                                        \
            break;                                                                                                     \
        case 2:                                                                                                        \
            dot_row_panels(n, format, 1, 0, r);                                                                        \
            break;                                                                                                     \
        default:                                                                                                       \
            dot_row_panels(n, format, 1, 1, r);                                                                        \
            break;                                                                                                     \
        }                                                                                                              \
    }
DOT_ROW_KINDS(dot_row_d8_side, DOT_SIDE_D8, ATTN_PANEL_D8)
DOT_ROW_KINDS(dot_row_d8_one, 1, ATTN_PANEL_D8)
DOT_ROW_KINDS(dot_row_u4_side, DOT_SIDE_U4, ATTN_PANEL_U4)
DOT_ROW_KINDS(dot_row_u4_one, 1, ATTN_PANEL_U4)

void attn_dot_row_avx512(const attn_panels *w, int64_t panel, int64_t n_panels, const attn_dot_rows *x, int64_t row, float *y)
{
    const bool bytes = w->format == ATTN_PANEL_D8;
    const int64_t side = bytes ? DOT_SIDE_D8 : DOT_SIDE_U4, apart = n_panels / side;
    for (int64_t p = 0; p < apart; p++) {
        const dot_row r = {w, x, row, panel + p, apart, y + p * ATTN_PANEL};
        (bytes ? dot_row_d8_side : dot_row_u4_side)(&r);
    }
    for (int64_t p = apart * side; p < n_panels; p++) {
        const dot_row r = {w, x, row, panel + p, 0, y + p * ATTN_PANEL};
        (bytes ? dot_row_d8_one : dot_row_u4_one)(&r);
    }
}

#include "kernels/simd/target_end.h"
#else
typedef int attn_nn_dot_row_avx512_is_empty; /* a source file needs a declaration */
#endif
