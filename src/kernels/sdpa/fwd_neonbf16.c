/* fwd_neonbf16.c - the forward dataflow of bf16 problems where Advanced SIMD has a dot product of bf16 pairs: 24 accumulators of 32
 * registers. */
#include "kernels/sdpa/admitted.h"
#include "kernels/sdpa/fwd_plan.h"
#include "kernels/simd/simd_levels.h"
#include "core/half.h"
#include "core/view.h"

#if ATTN_HAVE_NEONBF16
#define ISA neonbf16
#define ATTN_TARGET ATTN_TARGET_NEONBF16
#define FWD_VECTORS 3
#define FWD_KEYS 8
#define FWD_DIMS 8
#define FWD_PANEL 8
#define FWD_STEPS "kernels/sdpa/fwd_steps_neon.inc"
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_neon.h"
#include "kernels/simd/pairs_neonbf16.h"
#define SLOTS_OF_PAIRS
#include "kernels/simd/slots_neon.h"
#include "kernels/sdpa/fwd_products_bf16.inc"
#include "kernels/sdpa/fwd_tile.inc"
#include "kernels/sdpa/fwd_pack.inc"
#include "kernels/sdpa/fwd_pack_bf16.inc"
#include "kernels/sdpa/fwd_rules.inc"
#include "kernels/sdpa/fwd_bias.inc"
#include "kernels/sdpa/fwd_strip.inc"
#include "kernels/simd/target_end.h"
#else
typedef int attn_fwd_neonbf16_is_empty; /* a source file needs a declaration */
#endif
