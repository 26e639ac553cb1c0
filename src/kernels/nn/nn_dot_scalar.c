/* nn_dot_scalar.c - 8-bit products in plain C. */
#include "kernels/nn/nn_dot.h"
#include "core/half.h"

#define ISA scalar
#include "kernels/simd/target_begin.h"

#define DOT_MR 4
#define DOT_NP 1
#define DOT_TABLE attn_dot_kernels_scalar
#define DOT_ISA_NAME "scalar"

static float dot_largest(const float *x, int64_t n)
{
    float largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = !(fabsf(x[i]) <= largest) ? fabsf(x[i]) : largest; /* a NaN stays */
    return largest;
}

static void dot_round(const float *x, float inverse, int8_t *whole)
{
    for (int i = 0; i < 32; i++)
        whole[i] = inverse > 0 ? (int8_t)lrintf(x[i] * inverse) : 0;
}

/* A block of 32 in its order, and its sum. */
static int32_t dot_put(const int8_t *whole, int8_t *q, int16_t *wide)
{
    int32_t sum = 0;
    for (int i = 0; i < 32; i++) {
        q[attn_dot_place(i)] = whole[i];
        wide[attn_dot_place(i)] = whole[i];
        sum += whole[i];
    }
    return sum;
}

static float dot_scale(const attn_panels *w, const void *scales, int64_t at)
{
    return w->half_scales ? attn_f16_to_f32(((const uint16_t *)scales)[at]) : ((const float *)scales)[at];
}

/* sums[lane] of one group: width numbers from input k on. */
static void dot_sums(const attn_panels *w, int64_t panel, int64_t k, int64_t width, int64_t n_in, const int8_t *q,
                     int32_t *sums)
{
    memset(sums, 0, ATTN_PANEL * sizeof *sums);
    for (int64_t p = 0; p < width; p++)
        for (int lane = 0; lane < ATTN_PANEL; lane++) {
            const int64_t at = k + p;
            int32_t value;
            if (w->format == ATTN_PANEL_U4) {
                const uint32_t *words = (const uint32_t *)w->values + panel * n_in * ATTN_PANEL / 8 + at / 32 * 4 * ATTN_PANEL;
                const int64_t in = at % 32; /* 8 g + 4 h + i: byte i of word g, low or high nibble */
                value = (int32_t)(words[in / 8 * ATTN_PANEL + lane] >> (8 * (in % 4) + in / 4 % 2 * 4) & 15);
            } else {
                value = ((const int8_t *)w->values)[(panel * n_in + at / 4 * 4) * ATTN_PANEL + lane * 4 + at % 4];
            }
            sums[lane] += value * q[at];
        }
}

static void dot_tile_any(int mr, int np, const attn_panels *w, int64_t panel, const attn_dot_rows *x, int64_t row,
                         const attn_panels_end *end, float *y, int64_t ldy)
{
    (void)np;
    for (int m = 0; m < mr; m++) {
        float *to = y + m * ldy;
        memset(to, 0, ATTN_PANEL * sizeof *to);
        for (int64_t b = 0; b < x->n_groups; b++) {
            int32_t sums[ATTN_PANEL];
            const int64_t k = b * x->group, width = x->n_in - k < x->group ? x->n_in - k : x->group;
            const float scale = x->scale[b * x->n_rows + row + m];
            const float total = scale * (float)x->total[b * x->n_rows + row + m];
            dot_sums(w, panel, k, width, x->n_in, x->q + (row + m) * x->n_in, sums);
            for (int lane = 0; lane < ATTN_PANEL; lane++) {
                const int64_t at = (panel * x->n_groups + b) * ATTN_PANEL + lane;
                to[lane] += (float)sums[lane] * (dot_scale(w, w->scales, at) * scale);
                if (w->has_min)
                    to[lane] += dot_scale(w, w->mins, at) * total;
            }
        }
    }
    attn_panels_add_end(mr, end, y, ldy);
}

#define dot_tile_d8 dot_tile_any
#define dot_tile_u4 dot_tile_any

#include "kernels/nn/nn_dot.inc"
#include "kernels/simd/target_end.h"
