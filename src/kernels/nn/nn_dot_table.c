/* nn_dot_table.c - which 8-bit kernels a level of the instruction set gets. */
#include "kernels/nn/nn_dot.h"
#include "attn/attn.h"
#include "kernels/simd/simd_levels.h"

const attn_dot_kernels *attn_dot_kernels_for(int32_t isa)
{
#if ATTN_HAVE_AVX512
    if (isa == ATTN_ISA_AVX512 || isa == ATTN_ISA_AVX512BF16)
        return &attn_dot_kernels_avx512;
#endif
#if ATTN_HAVE_AVX2
    if (isa >= ATTN_ISA_AVX2 && isa <= ATTN_ISA_AVX512BF16)
        return &attn_dot_kernels_avx2;
#endif
#if ATTN_HAVE_NEONDOT
    if (isa >= ATTN_ISA_NEONDOT)
        return &attn_dot_kernels_neondot;
#endif
    (void)isa;
    return &attn_dot_kernels_scalar;
}
