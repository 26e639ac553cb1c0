/* fwd_avx512.c - the forward dataflow for AVX-512: 24 accumulators of 32 registers. */
#include "kernels/sdpa/admitted.h"
#include "kernels/sdpa/fwd_plan.h"
#include "kernels/simd/simd_levels.h"
#include "core/half.h"
#include "core/view.h"

#if ATTN_HAVE_AVX512
#define ISA avx512
#define ATTN_TARGET ATTN_TARGET_AVX512
#define FWD_VECTORS 3
#define FWD_KEYS 8
#define FWD_DIMS 8
#define FWD_PANEL 16
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx512.h"
#include "kernels/sdpa/fwd_products_f32.inc"
#include "kernels/sdpa/fwd_tile.inc"
#include "kernels/sdpa/fwd_pack.inc"
#include "kernels/sdpa/fwd_pack_f32.inc"
#include "kernels/sdpa/fwd_rules.inc"
#include "kernels/sdpa/fwd_bias.inc"
#include "kernels/sdpa/fwd_strip.inc"
#include "kernels/simd/target_end.h"
#else
typedef int attn_fwd_avx512_is_empty; /* a source file needs a declaration */
#endif
