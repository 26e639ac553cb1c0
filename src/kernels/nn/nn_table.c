/* nn_table.c - which nn kernels a level of the instruction set gets. */
#include "kernels/nn/nn_kernels.h"
#include "attn/attn.h"
#include "kernels/simd/simd_levels.h"

const attn_nn_kernels *attn_nn_kernels_for(int32_t isa)
{
#if ATTN_HAVE_AVX512
    if (isa == ATTN_ISA_AVX512 || isa == ATTN_ISA_AVX512BF16)
        return &attn_nn_kernels_avx512;
#endif
#if ATTN_HAVE_AVX2
    if (isa == ATTN_ISA_AVX2)
        return &attn_nn_kernels_avx2;
#endif
#if ATTN_HAVE_NEON
    if (isa >= ATTN_ISA_NEON)
        return &attn_nn_kernels_neon;
#endif
    (void)isa;
    return &attn_nn_kernels_scalar;
}
