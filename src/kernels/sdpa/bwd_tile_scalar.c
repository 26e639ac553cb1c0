/* bwd_tile_scalar.c - the backward tile for scalar: a register tile of 6 rows by 2 vectors. */
#include "core/view.h"
#include "kernels/sdpa/bwd_fast.h"
#include "kernels/simd/simd_levels.h"

#define ISA scalar
#define BWD_ROWS 6
#define BWD_VECTORS 2
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_scalar.h"
#include "kernels/sdpa/bwd_task.inc"
#include "kernels/sdpa/bwd_weights.inc"
#include "kernels/sdpa/bwd_f32.inc"
#include "kernels/sdpa/bwd_special.inc"
#include "kernels/sdpa/bwd_tile.inc"
#include "kernels/simd/target_end.h"
