/* nn_avx2.c - the nn templates compiled for AVX2, FMA and F16C. */
#include "core/compiler.h"

#if ATTN_ARCH_X86_64
#include <immintrin.h>
#include <math.h>
#include "kernels/nn/nn_kernels.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

#define NN_FN(name) attn_nn_##name##_avx2
#define NN_TABLE attn_nn_kernels_avx2
#define NN_ISA_NAME "avx2"
#include "kernels/nn/nn_vec_avx2.h"
#include "kernels/nn/nn_matmul.inc"
#include "kernels/nn/nn_gemm.inc"
#include "kernels/nn/nn_elementwise.inc"
#include "kernels/nn/nn_gradients.inc"
#include "kernels/nn/nn_table.inc"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
typedef int attn_nn_avx2_is_empty; /* another architecture: dispatch skips this level */
#endif
