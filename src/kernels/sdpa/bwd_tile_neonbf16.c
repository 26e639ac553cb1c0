/* bwd_tile_neonbf16.c - the backward tile of bf16 problems where Advanced SIMD has a dot product of bf16 pairs: 24 sums of 32
 * registers, as in f32. */
#include "core/view.h"
#include "kernels/sdpa/bwd_fast.h"
#include "kernels/simd/simd_levels.h"

#if ATTN_HAVE_NEONBF16
#define ATTN_TARGET ATTN_TARGET_NEONBF16
#define ISA neonbf16
#define BWD_ROWS 12
#define BWD_VECTORS 2
#define BWD_PAIRS
#define BWD_STEPS "kernels/sdpa/bwd_steps_neon.inc"
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_neon.h"
#include "kernels/simd/pairs_neonbf16.h"
#define SLOTS_OF_PAIRS
#include "kernels/simd/slots_neon.h"
#include "kernels/sdpa/bwd_task.inc"
#include "kernels/sdpa/bwd_weights.inc"
#include "kernels/sdpa/bwd_bf16.inc"
#include "kernels/sdpa/bwd_special.inc"
#include "kernels/sdpa/bwd_tile.inc"
#include "kernels/simd/target_end.h"
#else
typedef int bwd_tile_neonbf16_is_empty;
#endif
