/* bwd_tile_avx512bf16.c - the backward tile of bf16 problems where AVX-512 has a dot product of bf16 pairs: 24 sums of 32
 * registers, as in f32. */
#include "core/view.h"
#include "kernels/sdpa/bwd_fast.h"
#include "kernels/simd/simd_levels.h"

#if ATTN_HAVE_AVX512BF16
#define ATTN_TARGET ATTN_TARGET_AVX512BF16
#define ISA avx512bf16
#define BWD_ROWS 12
#define BWD_VECTORS 2
#define BWD_PAIRS
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx512.h"
#include "kernels/simd/pairs_avx512bf16.h"
#include "kernels/sdpa/bwd_task.inc"
#include "kernels/sdpa/bwd_weights.inc"
#include "kernels/sdpa/bwd_bf16.inc"
#include "kernels/sdpa/bwd_special.inc"
#include "kernels/sdpa/bwd_tile.inc"
#include "kernels/simd/target_end.h"
#else
typedef int bwd_tile_avx512bf16_is_empty;
#endif
