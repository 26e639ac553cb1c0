/* nn_scalar.c - the nn templates in plain C: the written meaning, and what runs where nothing
 * better does. */
#include "kernels/nn/nn_kernels.h"
#include "kernels/simd/simd_levels.h"

#define ISA          scalar
#define NN_ISA_NAME  "scalar"
#define NN_MR        2
#define NN_NV        16
#define NN_BLOCK_SLOTS 256
#define NN_BLOCK_COLUMNS 256
#define NN_ROW_NV    16
#define NN_SCALED_NV 16
#define NN_FEW_NV    16
#define NN_AHEAD     0
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_scalar.h"
#include "kernels/nn/nn_matmul.inc"
#include "kernels/nn/nn_gemm.inc"
#include "kernels/nn/nn_elementwise.inc"
#include "kernels/nn/nn_gradients.inc"
#include "kernels/nn/nn_table.inc"
#include "kernels/simd/target_end.h"
