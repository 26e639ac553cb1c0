/* decode_neonbf16.c - the decode dataflow of bf16 problems: Advanced SIMD with a dot product of bf16 pairs. Scores are products of the
 * numbers as they lie; weights stay f32, and values are widened. */
#include "kernels/sdpa/decode_plan.h"
#include "kernels/simd/simd_levels.h"
#include "core/half.h"

#if ATTN_HAVE_NEONBF16
#define ISA neonbf16
#define ATTN_TARGET ATTN_TARGET_NEONBF16
#define V_LANES 4
#define DECODE_ACCS 16
#define DECODE_PAIRS
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_neon.h"
#include "kernels/simd/pairs_neonbf16.h"
#include "kernels/sdpa/decode_tile.inc"
#include "kernels/sdpa/decode_rules.inc"
#include "kernels/sdpa/decode_split.inc"
#include "kernels/sdpa/decode_rows.inc"
#include "kernels/simd/target_end.h"
#else
typedef int attn_decode_neonbf16_is_empty; /* a source file needs a declaration */
#endif
