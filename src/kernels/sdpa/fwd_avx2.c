/* fwd_avx2.c - the forward dataflow for AVX2 and FMA: 12 accumulators of 16 registers. */
#include "kernels/sdpa/admitted.h"
#include "kernels/sdpa/fwd_plan.h"
#include "kernels/simd/simd_levels.h"
#include "core/half.h"
#include "core/view.h"

#if ATTN_HAVE_AVX2
#define ISA avx2
#define ATTN_TARGET ATTN_TARGET_AVX2
#define FWD_VECTORS 3
#define FWD_KEYS 4
#define FWD_DIMS 4
#define FWD_PANEL 8
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx2.h"
#include "kernels/sdpa/fwd_products_f32.inc"
#include "kernels/sdpa/fwd_tile.inc"
#include "kernels/sdpa/fwd_pack.inc"
#include "kernels/sdpa/fwd_pack_f32.inc"
#include "kernels/sdpa/fwd_rules.inc"
#include "kernels/sdpa/fwd_bias.inc"
#include "kernels/sdpa/fwd_strip.inc"
#include "kernels/simd/target_end.h"
#else
typedef int attn_fwd_avx2_is_empty; /* a source file needs a declaration */
#endif
