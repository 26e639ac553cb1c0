/* nn_table.c - which nn kernels a level of the instruction set gets. */
#include "kernels/nn/nn_kernels.h"
#include "attn/attn.h"
#include "core/compiler.h"

const attn_nn_kernels *attn_nn_kernels_for(int32_t isa)
{
#if ATTN_ARCH_X86_64
    if (isa == ATTN_ISA_AVX512 || isa == ATTN_ISA_AVX512BF16)
        return &attn_nn_kernels_avx512;
    if (isa == ATTN_ISA_AVX2)
        return &attn_nn_kernels_avx2;
#endif
    (void)isa;
    return &attn_nn_kernels_scalar;
}
