/* nn_pair_gemm.c - the general product of bf16 pairs with vdpbf16ps: 24 accumulators of 32 registers, f32 operands
 * rounded while they are packed. */
#include "kernels/nn/nn_pair.h"
#include "kernels/simd/simd_levels.h"

#if ATTN_HAVE_AVX512BF16
#define ISA avx512bf16
#define ATTN_TARGET ATTN_TARGET_AVX512BF16
#define NN_PAIRS 1
#define NN_MR 12
#define NN_NV 2
#define NN_BLOCK_SLOTS 384
#define NN_BLOCK_COLUMNS 384
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx512.h"
#include "kernels/simd/pairs_avx512bf16.h"
#include "kernels/nn/nn_gemm.inc"

const attn_gemm_kernels *attn_pair_gemm(int32_t isa)
{
    return isa == ATTN_ISA_AVX512BF16 ? &nn_gemm_kernels : NULL;
}
#include "kernels/simd/target_end.h"
#else
const attn_gemm_kernels *attn_pair_gemm(int32_t isa)
{
#if ATTN_HAVE_NEONBF16
    if (isa == ATTN_ISA_NEONBF16)
        return attn_pair_gemm_neonbf16();
#endif
    (void)isa;
    return NULL;
}
#endif
