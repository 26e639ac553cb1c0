/* wide_scalar.c - attention in double in plain C. */
#include "kernels/sdpa/wide.h"
#include "kernels/ref/ref_sdpa.h"
#include "kernels/simd/simd_levels.h"
#include "core/view.h"

#define ISA scalar
#define WIDE_ROWS 4
#include "kernels/simd/target_begin.h"
#include "kernels/simd/wide_scalar.h"
#include "kernels/sdpa/wide_tile.inc"
#include "kernels/sdpa/wide_forward.inc"
#include "kernels/sdpa/wide_backward.inc"
#include "kernels/simd/target_end.h"
