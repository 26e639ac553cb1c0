/* fwd_neon.c - the forward dataflow for Advanced SIMD: 24 accumulators of 32 registers. */
#include "kernels/sdpa/admitted.h"
#include "kernels/sdpa/fwd_plan.h"
#include "kernels/simd/simd_levels.h"
#include "core/half.h"
#include "core/view.h"

#if ATTN_HAVE_NEON
#define ISA neon
#define FWD_VECTORS 3
#define FWD_KEYS 8
#define FWD_DIMS 8
#define FWD_PANEL 8
#define FWD_STEPS "kernels/sdpa/fwd_steps_neon.inc"
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_neon.h"
#include "kernels/simd/slots_neon.h"
#include "kernels/sdpa/fwd_products_f32.inc"
#include "kernels/sdpa/fwd_tile.inc"
#include "kernels/sdpa/fwd_pack.inc"
#include "kernels/sdpa/fwd_pack_f32.inc"
#include "kernels/sdpa/fwd_rules.inc"
#include "kernels/sdpa/fwd_bias.inc"
#include "kernels/sdpa/fwd_strip.inc"
#include "kernels/simd/target_end.h"
#else
typedef int attn_fwd_neon_is_empty; /* a source file needs a declaration */
#endif
