/* decode_avx512bf16.c - the decode dataflow of bf16 problems: AVX-512 with a dot product of bf16 pairs. Scores are products of the
 * numbers as they lie; weights stay f32, and values are widened. */
#include "kernels/sdpa/decode_plan.h"
#include "kernels/simd/simd_levels.h"
#include "core/half.h"

#if ATTN_HAVE_AVX512BF16
#define ISA avx512bf16
#define ATTN_TARGET ATTN_TARGET_AVX512BF16
#define V_LANES 16
#define DECODE_ACCS 16
#define DECODE_PAIRS
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx512.h"
#include "kernels/simd/pairs_avx512bf16.h"
#include "kernels/sdpa/decode_tile.inc"
#include "kernels/sdpa/decode_rules.inc"
#include "kernels/sdpa/decode_split.inc"
#include "kernels/sdpa/decode_rows.inc"
#include "kernels/simd/target_end.h"
#else
typedef int attn_decode_avx512bf16_is_empty; /* a source file needs a declaration */
#endif
