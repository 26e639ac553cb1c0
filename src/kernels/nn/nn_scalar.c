/* nn_scalar.c - the nn templates in plain C: the written meaning, and what runs where nothing better does. */
#include <math.h>
#include "core/compiler.h"
#include "kernels/nn/nn_kernels.h"

#define NN_FN(name) attn_nn_##name##_scalar
#define NN_TABLE attn_nn_kernels_scalar
#define NN_ISA_NAME "scalar"
#include "kernels/nn/nn_vec_scalar.h"
#include "kernels/nn/nn_matmul.inc"
#include "kernels/nn/nn_gemm.inc"
#include "kernels/nn/nn_elementwise.inc"
#include "kernels/nn/nn_gradients.inc"
#include "kernels/nn/nn_table.inc"
