/* fwd_avx512bf16.c - the forward dataflow of bf16 problems where AVX-512 has a dot product of bf16 pairs: 24 accumulators of
 * 32 registers; vdpbf16ps needs 12 or more. */
#include "kernels/sdpa/admitted.h"
#include "kernels/sdpa/fwd_plan.h"
#include "kernels/simd/simd_levels.h"
#include "core/half.h"
#include "core/view.h"

#if ATTN_HAVE_AVX512BF16
#define ISA avx512bf16
#define ATTN_TARGET ATTN_TARGET_AVX512BF16
#define FWD_VECTORS 3
#define FWD_KEYS 8
#define FWD_DIMS 8
#define FWD_PANEL 16
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx512.h"
#include "kernels/simd/pairs_avx512bf16.h"
#include "kernels/sdpa/fwd_products_bf16.inc"
#include "kernels/sdpa/fwd_tile.inc"
#include "kernels/sdpa/fwd_pack.inc"
#include "kernels/sdpa/fwd_pack_bf16.inc"
#include "kernels/sdpa/fwd_rules.inc"
#include "kernels/sdpa/fwd_bias.inc"
#include "kernels/sdpa/fwd_strip.inc"
#include "kernels/simd/target_end.h"
#else
typedef int attn_fwd_avx512bf16_is_empty; /* a source file needs a declaration */
#endif
