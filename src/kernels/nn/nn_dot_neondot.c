/* nn_dot_neondot.c - 8-bit products with sdot, which adds four products of signed bytes to each
 * lane: four inputs of a row, a lane of a register, times four outputs. Many rows take half a panel
 * at a time, 12 sums and 12 of groups before in 32 registers; up to three take a whole one, so that
 * weights are read once and as many sums run side by side. */
#include "kernels/nn/nn_dot.h"
#include "kernels/simd/simd_levels.h"

#if ATTN_HAVE_NEONDOT
#define ISA         neondot
#define ATTN_TARGET ATTN_TARGET_NEONDOT
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_neon.h"

#define DOT_MR       6
#define DOT_NP       1
#define DOT_TABLE    attn_dot_kernels_neondot
#define DOT_ISA_NAME "neondot"

#define DOT_FEW   3                  /* rows that take whole panels */
#define DOT_WHOLE (ATTN_PANEL / V_N) /* vectors of a panel */
#define DOT_LANES (4 * ATTN_PANEL)   /* bytes from four inputs of a panel to the next four */

/* The largest magnitude of n numbers; NaN where one is. */
static float dot_largest(const float *x, int64_t n)
{
    v_f32 largest = v_zero();
    int64_t i = 0;
    for (; i + V_N <= n; i += V_N)
        largest = vmaxq_f32(v_abs(v_load(x + i)), largest); /* a NaN stays */
    if (i < n)
        largest = vmaxq_f32(v_abs(v_load_n(x + i, n - i)), largest);
    return vmaxvq_f32(largest);
}

static void dot_round(const float *x, float inverse, int8_t *whole)
{
    int16x8_t half[4];
    if (!(inverse > 0))
        return;
    for (int i = 0; i < 4; i++) {
        const int32x4_t low = vcvtnq_s32_f32(vmulq_n_f32(v_load(x + 8 * i), inverse));
        const int32x4_t high = vcvtnq_s32_f32(vmulq_n_f32(v_load(x + 8 * i + 4), inverse));
        half[i] = vcombine_s16(vqmovn_s32(low), vqmovn_s32(high));
    }
    vst1q_s8(whole, vcombine_s8(vqmovn_s16(half[0]), vqmovn_s16(half[1])));
    vst1q_s8(whole + 16, vcombine_s8(vqmovn_s16(half[2]), vqmovn_s16(half[3])));
}

/* A block of 32 in the order of nn_dot.h, and its sum. */
static int32_t dot_put(const int8_t *whole, int8_t *q, int16_t *wide)
{
    static const uint8_t place[32] = {0, 8,  16, 24, 4, 12, 20, 28, 1, 9,  17, 25, 5, 13, 21, 29,
                                      2, 10, 18, 26, 6, 14, 22, 30, 3, 11, 19, 27, 7, 15, 23, 31};
    const int8x16x2_t from = {{vld1q_s8(whole), vld1q_s8(whole + 16)}};
    const int8x16_t low = vqtbl2q_s8(from, vld1q_u8(place)),
                    high = vqtbl2q_s8(from, vld1q_u8(place + 16));
    vst1q_s8(q, low), vst1q_s8(q + 16, high);
    vst1q_s16(wide, vmovl_s8(vget_low_s8(low))), vst1q_s16(wide + 8, vmovl_s8(vget_high_s8(low)));
    vst1q_s16(wide + 16, vmovl_s8(vget_low_s8(high))),
        vst1q_s16(wide + 24, vmovl_s8(vget_high_s8(high)));
    return vaddvq_s16(vaddq_s16(vpaddlq_s8(low), vpaddlq_s8(high)));
}

ATTN_INLINE v_f32 dot_scale(const attn_panels *w, const void *scales, int64_t at)
{
    return w->half_scales ? v_load_f16((const uint16_t *)scales + at)
                          : v_load((const float *)scales + at);
}

/* acc += one group of nv vectors of outputs from vector v0 of the panel on. */
ATTN_INLINE void dot_add_group(const int mr, const int nv, const attn_panels *w, int64_t panel,
                               int v0, const attn_dot_rows *x, int64_t row, int64_t b,
                               v_i32 sum[DOT_MR][DOT_WHOLE], v_f32 acc[DOT_MR][DOT_WHOLE])
{
    const int64_t at = (panel * x->n_groups + b) * ATTN_PANEL + v0 * V_N,
                  group = b * x->n_rows + row;
    ATTN_UNROLL
    for (int v = 0; v < nv; v++) {
        const v_f32 scale = dot_scale(w, w->scales, at + v * V_N);
        ATTN_UNROLL
        for (int m = 0; m < mr; m++)
            acc[m][v] =
                v_fma(v_from_i(sum[m][v]), vmulq_n_f32(scale, x->scale[group + m]), acc[m][v]);
    }
    if (!w->has_min)
        return;
    ATTN_UNROLL
    for (int v = 0; v < nv; v++) {
        const v_f32 min = dot_scale(w, w->mins, at + v * V_N);
        ATTN_UNROLL
        for (int m = 0; m < mr; m++)
            acc[m][v] =
                vfmaq_n_f32(acc[m][v], min, x->scale[group + m] * (float)x->total[group + m]);
    }
}

ATTN_INLINE void dot_start(const int mr, const int nv, v_f32 acc[DOT_MR][DOT_WHOLE])
{
    ATTN_UNROLL
    for (int m = 0; m < mr; m++)
        ATTN_UNROLL
        for (int v = 0; v < nv; v++)
            acc[m][v] = v_zero();
}

ATTN_INLINE void dot_clear(const int mr, const int nv, v_i32 sum[DOT_MR][DOT_WHOLE])
{
    ATTN_UNROLL
    for (int m = 0; m < mr; m++)
        ATTN_UNROLL
        for (int v = 0; v < nv; v++)
            sum[m][v] = v_i_set1(0);
}

/* Stores vectors from v0 of the panel on, with what `end` adds. */
ATTN_INLINE void dot_store(const int mr, const int nv, int v0, v_f32 acc[DOT_MR][DOT_WHOLE],
                           const attn_panels_end *end, float *y, int64_t ldy)
{
    ATTN_UNROLL
    for (int v = 0; v < nv; v++) {
        const int64_t n = (v0 + v) * V_N;
        const v_f32 bias = end->bias ? v_load(end->bias + n) : v_zero();
        ATTN_UNROLL
        for (int m = 0; m < mr; m++) {
            v_f32 sum = end->bias ? v_add(acc[m][v], bias) : acc[m][v];
            if (end->residual)
                sum = v_add(sum, v_load(end->residual + m * end->ld_residual + n));
            v_store(y + m * ldy + n, sum);
        }
    }
}

/* sum += eight inputs: bytes of the first four, then of the last. */
ATTN_INLINE void dot_eight(const int mr, const int nv, int8x16_t w[2][DOT_WHOLE], const int8_t *q,
                           int64_t ldq, v_i32 sum[DOT_MR][DOT_WHOLE])
{
    ATTN_UNROLL
    for (int m = 0; m < mr; m++) {
        const int8x8_t eight = vld1_s8(q + m * ldq);
        ATTN_UNROLL
        for (int v = 0; v < nv; v++)
            sum[m][v] = vdotq_lane_s32(sum[m][v], w[0][v], eight, 0);
        ATTN_UNROLL
        for (int v = 0; v < nv; v++)
            sum[m][v] = vdotq_lane_s32(sum[m][v], w[1][v], eight, 1);
    }
}

ATTN_INLINE void dot_part_d8(const int mr, const int nv, const attn_panels *w, int64_t panel,
                             int v0, const attn_dot_rows *x, int64_t row,
                             const attn_panels_end *end, float *y, int64_t ldy)
{
    const int8_t *values = (const int8_t *)w->values + panel * x->n_in * ATTN_PANEL + v0 * 16,
                 *q = x->q + row * x->n_in;
    v_i32 sum[DOT_MR][DOT_WHOLE];
    v_f32 acc[DOT_MR][DOT_WHOLE];
    dot_start(mr, nv, acc);
    for (int64_t b = 0; b < x->n_groups; b++) {
        const int64_t k1 = (b + 1) * x->group < x->n_in ? (b + 1) * x->group : x->n_in;
        dot_clear(mr, nv, sum);
        for (int64_t k = b * x->group; k < k1; k += 8, values += 2 * DOT_LANES, q += 8) {
            int8x16_t bytes[2][DOT_WHOLE];
            ATTN_UNROLL
            for (int v = 0; v < nv; v++)
                bytes[0][v] = vld1q_s8(values + 16 * v),
                bytes[1][v] = vld1q_s8(values + DOT_LANES + 16 * v);
            dot_eight(mr, nv, bytes, q, x->n_in, sum);
        }
        dot_add_group(mr, nv, w, panel, v0, x, row, b, sum, acc);
    }
    dot_store(mr, nv, v0, acc, end, y, ldy);
}

ATTN_INLINE void dot_part_u4(const int mr, const int nv, const attn_panels *w, int64_t panel,
                             int v0, const attn_dot_rows *x, int64_t row,
                             const attn_panels_end *end, float *y, int64_t ldy)
{
    const uint8_t *values = (const uint8_t *)w->values + panel * x->n_in * ATTN_PANEL / 2 + v0 * 16;
    const int8_t *q = x->q + row * x->n_in;
    v_i32 sum[DOT_MR][DOT_WHOLE];
    v_f32 acc[DOT_MR][DOT_WHOLE];
    dot_start(mr, nv, acc);
    for (int64_t b = 0; b < x->n_groups; b++) {
        dot_clear(mr, nv, sum);
        /* Unrolled, gcc 12 loads words of later rounds first, and no registers are left for sums. */
#pragma GCC unroll 1
        for (int g = 0; g < 4; g++, values += DOT_LANES, q += 8) {
            int8x16_t bytes[2][DOT_WHOLE];
            ATTN_UNROLL
            for (int v = 0; v < nv; v++) {
                const uint8x16_t word = vld1q_u8(values + 16 * v);
                bytes[0][v] = vreinterpretq_s8_u8(vandq_u8(word, vdupq_n_u8(15)));
                bytes[1][v] = vreinterpretq_s8_u8(vshrq_n_u8(word, 4));
            }
            dot_eight(mr, nv, bytes, q, x->n_in, sum);
        }
        dot_add_group(mr, nv, w, panel, v0, x, row, b, sum, acc);
    }
    dot_store(mr, nv, v0, acc, end, y, ldy);
}

/* mr rows of a panel, in halves where they are many. */
#define DOT_TILE(name, part)                                                                       \
    ATTN_INLINE void name(const int mr, int np, const attn_panels *w, int64_t panel,               \
                          const attn_dot_rows *x, int64_t row, const attn_panels_end *end,         \
                          float *y, int64_t ldy)                                                   \
    {                                                                                              \
        (void)np;                                                                                  \
        if (mr <= DOT_FEW) {                                                                       \
            part(mr, DOT_WHOLE, w, panel, 0, x, row, end, y, ldy);                                 \
            return;                                                                                \
        }                                                                                          \
        part(mr, DOT_WHOLE / 2, w, panel, 0, x, row, end, y, ldy);                                 \
        part(mr, DOT_WHOLE / 2, w, panel, DOT_WHOLE / 2, x, row, end, y, ldy);                     \
    }
DOT_TILE(dot_tile_d8, dot_part_d8)
DOT_TILE(dot_tile_u4, dot_part_u4)

#include "kernels/nn/nn_dot.inc"
#include "kernels/simd/target_end.h"
#else
typedef int attn_nn_dot_neondot_is_empty; /* a source file needs a declaration */
#endif
