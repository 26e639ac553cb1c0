/* wide_neon.c - attention in double for Advanced SIMD. */
#include "kernels/sdpa/wide.h"
#include "kernels/ref/ref_sdpa.h"
#include "kernels/simd/simd_levels.h"
#include "core/view.h"

#if ATTN_HAVE_NEON
#define ISA neon
#define WIDE_ROWS 8
#include "kernels/simd/target_begin.h"
#include "kernels/simd/wide_neon.h"
#include "kernels/sdpa/wide_tile.inc"
#include "kernels/sdpa/wide_forward.inc"
#include "kernels/sdpa/wide_backward.inc"
#include "kernels/simd/target_end.h"
#else
typedef int attn_wide_neon_is_empty; /* a source file needs a declaration */
#endif
