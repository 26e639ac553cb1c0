/* bwd_tile_avx2.c - the backward tile for avx2: a register tile of 6 rows by 2 vectors. */
#include "core/view.h"
#include "kernels/sdpa/bwd_fast.h"
#include "kernels/simd/simd_levels.h"

#if ATTN_HAVE_AVX2
#define ATTN_TARGET ATTN_TARGET_AVX2
#define ISA avx2
#define BWD_ROWS 6
#define BWD_VECTORS 2
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx2.h"
#include "kernels/sdpa/bwd_task.inc"
#include "kernels/sdpa/bwd_weights.inc"
#include "kernels/sdpa/bwd_f32.inc"
#include "kernels/sdpa/bwd_special.inc"
#include "kernels/sdpa/bwd_tile.inc"
#include "kernels/simd/target_end.h"
#else
typedef int bwd_tile_avx2_is_empty;
#endif
