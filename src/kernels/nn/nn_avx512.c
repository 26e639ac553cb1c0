/* nn_avx512.c - the nn templates for AVX-512: 24 accumulators of 32 registers. */
#include "kernels/nn/nn_kernels.h"
#include "kernels/simd/simd_levels.h"

#if ATTN_HAVE_AVX512
#define ISA          avx512
#define ATTN_TARGET  ATTN_TARGET_AVX512
#define NN_ISA_NAME  "avx512"
#define NN_MR        12
#define NN_NV        2
#define NN_BLOCK_SLOTS 384
#define NN_BLOCK_COLUMNS 384
#define NN_ROW_NV    4
#define NN_SCALED_NV 4
#define NN_FEW_NV    4
#define NN_AHEAD     256
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx512.h"
#include "kernels/nn/nn_matmul.inc"
#include "kernels/nn/nn_gemm.inc"
#include "kernels/nn/nn_elementwise.inc"
#include "kernels/nn/nn_gradients.inc"
#include "kernels/nn/nn_table.inc"
#include "kernels/simd/target_end.h"
#else
typedef int attn_nn_avx512_is_empty; /* a source file needs a declaration */
#endif
