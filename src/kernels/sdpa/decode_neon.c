/* decode_neon.c - the decode dataflow: Advanced SIMD. */
#include "kernels/sdpa/decode_plan.h"
#include "kernels/simd/simd_levels.h"
#include "core/half.h"

#if ATTN_HAVE_NEON
#define ISA neon
#define V_LANES 4
#define DECODE_ACCS 16
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_neon.h"
#include "kernels/sdpa/decode_tile.inc"
#include "kernels/sdpa/decode_rules.inc"
#include "kernels/sdpa/decode_split.inc"
#include "kernels/sdpa/decode_rows.inc"
#include "kernels/simd/target_end.h"
#else
typedef int attn_decode_neon_is_empty; /* a source file needs a declaration */
#endif
