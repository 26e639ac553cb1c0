/* nn_pair_neonbf16.c - bf16 pairs with bfdot: 6 rows by one panel, 24 accumulators of 32 registers. */
#include "kernels/nn/nn_pair.h"
#include "kernels/simd/simd_levels.h"

#if ATTN_HAVE_NEONBF16
#define ISA         neonbf16
#define ATTN_TARGET ATTN_TARGET_NEONBF16
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_neon.h"
#include "kernels/simd/pairs_neonbf16.h"

#define PAIR_MR 6
#define PAIR_NV (ATTN_PANEL / V_N)

static void round_row(const float *x, int64_t n, uint16_t *out)
{
    int64_t k = 0;
    for (; k + 2 * V_N <= n; k += 2 * V_N)
        vst1q_u16(out + k, v_pair_narrow_row(v_load(x + k), v_load(x + k + V_N)));
    for (; k < n; k++)
        out[k] = (uint16_t)v_pair_bf16(x[k]);
    if (n % 2)
        out[n] = 0;
}

ATTN_INLINE void pair_tile(const int mr, int64_t n_in, const uint16_t *w, const uint16_t *x,
                           int64_t ldx, const attn_panels_end *end, float *y, int64_t ldy)
{
    v_f32 acc[PAIR_MR][PAIR_NV];
    ATTN_UNROLL
    for (int m = 0; m < mr; m++)
        ATTN_UNROLL
        for (int v = 0; v < PAIR_NV; v++)
            acc[m][v] = v_zero();
    for (int64_t k = 0; k < n_in; k += 2, w += 2 * ATTN_PANEL) {
        v_pair weights[PAIR_NV];
        ATTN_UNROLL
        for (int v = 0; v < PAIR_NV; v++)
            weights[v] = vld1q_u16(w + 2 * V_N * v);
        ATTN_UNROLL
        for (int m = 0; m < mr; m++) {
            const v_pair_one one = v_pair_one_at(x + m * ldx + k);
            ATTN_UNROLL
            for (int v = 0; v < PAIR_NV; v++)
                acc[m][v] = v_pair_dot_one(one, weights[v], acc[m][v]);
        }
    }
    ATTN_UNROLL
    for (int m = 0; m < mr; m++)
        ATTN_UNROLL
        for (int v = 0; v < PAIR_NV; v++) {
            v_f32 sum = acc[m][v];
            if (end->bias)
                sum = v_add(sum, v_load(end->bias + v * V_N));
            if (end->residual)
                sum = v_add(sum, v_load(end->residual + m * end->ld_residual + v * V_N));
            v_store(y + m * ldy + v * V_N, sum);
        }
}

static void one_panel(const uint16_t *w, int64_t n_in, const uint16_t *x, int64_t ldx, int64_t rows,
                      const attn_panels_end *all, float *y, int64_t ldy)
{
#define PAIR_CASE(mr)                                                                              \
    case mr:                                                                                       \
        pair_tile(mr, n_in, w, x + m * ldx, ldx, &end, y + m * ldy, ldy);                          \
        break;
    for (int64_t m = 0; m < rows; m += PAIR_MR) {
        const attn_panels_end end = attn_panels_end_at(all, m);
        switch (rows - m < PAIR_MR ? rows - m : PAIR_MR) {
            PAIR_CASE(1)
            PAIR_CASE(2)
            PAIR_CASE(3)
            PAIR_CASE(4)
            PAIR_CASE(5)
            PAIR_CASE(6)
        default:
            break;
        }
    }
#undef PAIR_CASE
}

static void panels(const attn_panels *w, int64_t panel, int64_t n_panels, const uint16_t *x,
                   int64_t ldx, int64_t rows, const attn_panels_end *end, float *y, int64_t ldy)
{
    const int64_t n_in = attn_pair_inputs(w->n_in);
    for (int64_t p = 0; p < n_panels; p++) {
        const attn_panels_end one = attn_panels_end_of_panel(end, p);
        one_panel((const uint16_t *)w->values + (panel + p) * n_in * ATTN_PANEL, n_in, x, ldx, rows,
                  &one, y + p * ATTN_PANEL, ldy);
    }
}

const attn_pair_kernels attn_pair_kernels_neonbf16 = {
    .isa = "neonbf16", .round = round_row, .panels = panels};
#include "kernels/simd/target_end.h"
#else
typedef int attn_nn_pair_neonbf16_is_empty; /* a source file needs a declaration */
#endif
