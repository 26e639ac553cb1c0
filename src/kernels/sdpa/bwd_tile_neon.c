/* bwd_tile_neon.c - the backward tile for neon: a register tile of 12 rows by 2 vectors. */
#include "core/view.h"
#include "kernels/sdpa/bwd_fast.h"
#include "kernels/simd/simd_levels.h"

#if ATTN_HAVE_NEON
#define ISA neon
#define BWD_ROWS 12
#define BWD_VECTORS 2
#define BWD_STEPS "kernels/sdpa/bwd_steps_neon.inc"
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_neon.h"
#include "kernels/simd/slots_neon.h"
#include "kernels/sdpa/bwd_task.inc"
#include "kernels/sdpa/bwd_weights.inc"
#include "kernels/sdpa/bwd_f32.inc"
#include "kernels/sdpa/bwd_special.inc"
#include "kernels/sdpa/bwd_tile.inc"
#include "kernels/simd/target_end.h"
#else
typedef int bwd_tile_neon_is_empty;
#endif
