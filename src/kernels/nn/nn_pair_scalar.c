/* nn_pair_scalar.c - bf16 pairs in plain C, for sessions whose level has no such instruction. */
#include <string.h>
#include "core/half.h"
#include "kernels/nn/nn_pair.h"
#include "attn/attn.h"
#include "kernels/simd/simd_levels.h"

static void round_row(const float *x, int64_t n, uint16_t *out)
{
    for (int64_t k = 0; k < n; k++)
        out[k] = attn_f32_to_bf16(x[k]);
    if (n % 2)
        out[n] = 0;
}

static void panels(const attn_panels *w, int64_t panel, int64_t n_panels, const uint16_t *x, int64_t ldx, int64_t rows,
                   const attn_panels_end *end, float *y, int64_t ldy)
{
    const int64_t n_in = attn_pair_inputs(w->n_in);
    for (int64_t p = 0; p < n_panels; p++) {
        const uint16_t *values = (const uint16_t *)w->values + (panel + p) * n_in * ATTN_PANEL;
        for (int64_t m = 0; m < rows; m++) {
            float sums[ATTN_PANEL] = {0};
            for (int64_t k = 0; k < n_in; k++) {
                const float s = attn_bf16_to_f32(x[m * ldx + k]);
                for (int64_t lane = 0; lane < ATTN_PANEL; lane++)
                    sums[lane] += s * attn_bf16_to_f32(values[(k / 2 * ATTN_PANEL + lane) * 2 + k % 2]);
            }
            memcpy(y + m * ldy + p * ATTN_PANEL, sums, sizeof sums);
        }
        const attn_panels_end one = attn_panels_end_of_panel(end, p);
        attn_panels_add_end((int)rows, &one, y + p * ATTN_PANEL, ldy);
    }
}

const attn_pair_kernels attn_pair_kernels_scalar = {.isa = "scalar", .round = round_row, .panels = panels};

const attn_pair_kernels *attn_pair_kernels_for(int32_t isa)
{
#if ATTN_HAVE_AVX512BF16
    if (isa == ATTN_ISA_AVX512BF16)
        return &attn_pair_kernels_avx512bf16;
#endif
#if ATTN_HAVE_NEONBF16
    if (isa == ATTN_ISA_NEONBF16)
        return &attn_pair_kernels_neonbf16;
#endif
    (void)isa;
    return &attn_pair_kernels_scalar;
}
