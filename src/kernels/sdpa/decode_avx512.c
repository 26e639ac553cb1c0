/* decode_avx512.c - the decode dataflow: AVX-512. */
#include "kernels/sdpa/decode_plan.h"
#include "kernels/simd/simd_levels.h"
#include "core/half.h"

#if ATTN_HAVE_AVX512
#define ISA avx512
#define ATTN_TARGET ATTN_TARGET_AVX512
#define V_LANES 16
#define DECODE_ACCS 16
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx512.h"
#include "kernels/sdpa/decode_tile.inc"
#include "kernels/sdpa/decode_rules.inc"
#include "kernels/sdpa/decode_split.inc"
#include "kernels/sdpa/decode_rows.inc"
#include "kernels/simd/target_end.h"
#else
typedef int attn_decode_avx512_is_empty; /* a source file needs a declaration */
#endif
