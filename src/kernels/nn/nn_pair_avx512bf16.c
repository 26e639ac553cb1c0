/* nn_pair_avx512bf16.c - bf16 pairs with vdpbf16ps: 12 rows by two panels, 24 accumulators of 32 registers. */
#include "kernels/nn/nn_pair.h"
#include "kernels/simd/simd_levels.h"

#if ATTN_HAVE_AVX512BF16
#define ISA avx512bf16
#define ATTN_TARGET ATTN_TARGET_AVX512BF16
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx512.h"
#include "kernels/simd/pairs_avx512bf16.h"

#define PAIR_MR 12

static void round_row(const float *x, int64_t n, uint16_t *out)
{
    for (int64_t k = 0; k < n; k += 16) {
        const int64_t left = n - k;
        const unsigned lanes = left < 16 ? (1u << left) - 1 : 0xffffu;
        const unsigned even_lanes = left < 16 && left % 2 ? lanes << 1 | 1 : lanes; /* the zero behind an odd row */
        const __mmask16 mask = (__mmask16)lanes, even = (__mmask16)even_lanes;
        const __m256i rounded = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, x + k));
        _mm256_mask_storeu_epi16(out + k, even, rounded);
    }
}

/* Panels lie in uint16_t; the vocabulary takes slots of two. */
ATTN_INLINE v_pair weights_at(const uint16_t *w)
{
    return v_pair_load((const float *)(const void *)w);
}

ATTN_INLINE void pair_tile(int mr, int n_panels, int64_t n_in, const uint16_t *w, const uint16_t *x, int64_t ldx,
                           const attn_panels_end *end, float *y, int64_t ldy)
{
    v_f32 acc[PAIR_MR][2];
    for (int m = 0; m < mr; m++)
        acc[m][0] = acc[m][1] = v_zero();
    for (int64_t k = 0; k < n_in; k += 2) {
        const v_pair w0 = weights_at(w + k * ATTN_PANEL), w1 = n_panels > 1 ? weights_at(w + (n_in + k) * ATTN_PANEL) : w0;
        for (int m = 0; m < mr; m++) {
            const v_pair s = v_pair_set1(x + m * ldx + k);
            acc[m][0] = v_pair_dot(s, w0, acc[m][0]);
            if (n_panels > 1)
                acc[m][1] = v_pair_dot(s, w1, acc[m][1]);
        }
    }
    if (end->bias)
        for (int p = 0; p < n_panels; p++)
            for (int m = 0; m < mr; m++)
                acc[m][p] = v_add(acc[m][p], v_load(end->bias + p * ATTN_PANEL));
    if (end->residual)
        for (int m = 0; m < mr; m++)
            for (int p = 0; p < n_panels; p++)
                acc[m][p] = v_add(acc[m][p], v_load(end->residual + m * end->ld_residual + p * ATTN_PANEL));
    for (int m = 0; m < mr; m++)
        for (int p = 0; p < n_panels; p++)
            v_store(y + m * ldy + p * ATTN_PANEL, acc[m][p]);
}

static void panels(const attn_panels *w, int64_t panel, int64_t n_panels, const uint16_t *x, int64_t ldx, int64_t rows,
                   const attn_panels_end *all, float *y, int64_t ldy)
{
    const int64_t n_in = attn_pair_inputs(w->n_in);
    const uint16_t *values = (const uint16_t *)w->values + panel * n_in * ATTN_PANEL;
#define PAIR_CASE(mr)                                                                                                  \
    case mr:                                                                                                           \
        if (n_panels > 1)                                                                                              \
            pair_tile(mr, 2, n_in, values, x, ldx, &end, y, ldy);                                                       \
        else                                                                                                           \
            pair_tile(mr, 1, n_in, values, x, ldx, &end, y, ldy);                                                       \
        break;
    const int64_t tiles = (rows + PAIR_MR - 1) / PAIR_MR;
    for (int64_t tile = 0; rows > 0; tile++, rows -= PAIR_MR, x += PAIR_MR * ldx, y += PAIR_MR * ldy) {
        const attn_panels_end end = attn_panels_end_at(all, tile * PAIR_MR);
        attn_panels_ahead(w, panel + n_panels, n_panels, tile, tiles);
        switch (rows < PAIR_MR ? rows : PAIR_MR) {
            PAIR_CASE(1)
            PAIR_CASE(2)
            PAIR_CASE(3)
            PAIR_CASE(4)
            PAIR_CASE(5)
            PAIR_CASE(6)
            PAIR_CASE(7)
            PAIR_CASE(8)
            PAIR_CASE(9)
            PAIR_CASE(10)
            PAIR_CASE(11)
            PAIR_CASE(12)
        default:
            break;
        }
    }
#undef PAIR_CASE
}

const attn_pair_kernels attn_pair_kernels_avx512bf16 = {.isa = "avx512bf16", .round = round_row, .panels = panels};
#include "kernels/simd/target_end.h"
#else
typedef int attn_nn_pair_avx512bf16_is_empty; /* a source file needs a declaration */
#endif
