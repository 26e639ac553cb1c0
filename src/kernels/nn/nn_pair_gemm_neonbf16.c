/* nn_pair_gemm_neonbf16.c - the general product of bf16 pairs with bfdot: 24 accumulators of 32 registers, f32 operands rounded while
 * they are packed. */
#include "kernels/nn/nn_pair.h"
#include "kernels/simd/simd_levels.h"

#if ATTN_HAVE_NEONBF16
#define ISA neonbf16
#define ATTN_TARGET ATTN_TARGET_NEONBF16
#define NN_PAIRS 1
#define NN_MR 6
#define NN_NV 4
#define NN_BLOCK_SLOTS 256
#define NN_BLOCK_COLUMNS 256
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_neon.h"
#include "kernels/simd/pairs_neonbf16.h"
#include "kernels/nn/nn_gemm.inc"

const attn_gemm_kernels *attn_pair_gemm_neonbf16(void)
{
    return &nn_gemm_kernels;
}
#include "kernels/simd/target_end.h"
#else
typedef int attn_nn_pair_gemm_neonbf16_is_empty; /* a source file needs a declaration */
#endif
