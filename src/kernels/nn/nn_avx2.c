/* nn_avx2.c - the nn templates for AVX2 and FMA: 12 accumulators of 16 registers. */
#include "kernels/nn/nn_kernels.h"
#include "kernels/simd/simd_levels.h"

#if ATTN_HAVE_AVX2
#define ISA          avx2
#define ATTN_TARGET  ATTN_TARGET_AVX2
#define NN_ISA_NAME  "avx2"
#define NN_MR        6
#define NN_NV        2
#define NN_BLOCK_SLOTS 256
#define NN_BLOCK_COLUMNS 256
#define NN_ROW_NV    8
#define NN_SCALED_NV 4
#define NN_FEW_NV    2
#define NN_AHEAD     0
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx2.h"
#include "kernels/nn/nn_matmul.inc"
#include "kernels/nn/nn_gemm.inc"
#include "kernels/nn/nn_elementwise.inc"
#include "kernels/nn/nn_gradients.inc"
#include "kernels/nn/nn_table.inc"
#include "kernels/simd/target_end.h"
#else
typedef int attn_nn_avx2_is_empty; /* a source file needs a declaration */
#endif
