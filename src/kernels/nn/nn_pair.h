/* nn_pair.h - products of bf16 activations with bf16 weights in pairs of inputs (--act-bf16), sums in f32: vdpbf16ps or bfdot where the CPU has
 * one. Only for those who ask; elsewhere bf16 weights meet f32 activations (nn_kernels.h).
 *
 * One accumulator per output over ascending pairs, so the bits depend neither on the number of rows nor on threads. The
 * instruction takes subnormal numbers as 0. */
#ifndef ATTN_KERNELS_NN_NN_PAIR_H
#define ATTN_KERNELS_NN_NN_PAIR_H

#include <stdint.h>
#include "core/compiler.h"
#include "kernels/nn/nn_kernels.h"

typedef struct attn_pair_kernels {
    const char *isa;
    /* n numbers as bf16, to nearest even, and a zero behind where n is odd. */
    void (*round)(const float *x, int64_t n, uint16_t *out);
    /* y[rows][16 outputs of n_panels panels from `panel` on] with what `end` adds, n_panels 1 or 2; x: rows of bf16, ldx apart. w is a
     * P16 matrix. */
    void (*panels)(const attn_panels *w, int64_t panel, int64_t n_panels, const uint16_t *x, int64_t ldx, int64_t rows,
                   const attn_panels_end *end, float *y, int64_t ldy);
} attn_pair_kernels;

/* The kernels of an ISA level; plain C where it does not multiply bf16. */
const attn_pair_kernels *attn_pair_kernels_for(int32_t isa);

extern const attn_pair_kernels attn_pair_kernels_scalar;
extern const attn_pair_kernels attn_pair_kernels_avx512bf16;
extern const attn_pair_kernels attn_pair_kernels_neonbf16;

/* The general product of operands that are rounded to bf16 while they are packed; NULL where a level does not multiply bf16. */
const attn_gemm_kernels *attn_pair_gemm(int32_t isa);
const attn_gemm_kernels *attn_pair_gemm_neonbf16(void);

/* Inputs with the zero that makes them even. */
static inline int64_t attn_pair_inputs(int64_t n_in)
{
    return (n_in + 1) / 2 * 2;
}

#endif
