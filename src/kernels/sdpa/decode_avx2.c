/* decode_avx2.c - the decode dataflow: AVX2 and FMA. */
#include "kernels/sdpa/decode_plan.h"
#include "kernels/simd/simd_levels.h"
#include "core/half.h"

#if ATTN_HAVE_AVX2
#define ISA avx2
#define ATTN_TARGET ATTN_TARGET_AVX2
#define V_LANES 8
#define DECODE_ACCS 8
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx2.h"
#include "kernels/sdpa/decode_tile.inc"
#include "kernels/sdpa/decode_rules.inc"
#include "kernels/sdpa/decode_split.inc"
#include "kernels/sdpa/decode_rows.inc"
#include "kernels/simd/target_end.h"
#else
typedef int attn_decode_avx2_is_empty; /* a source file needs a declaration */
#endif
