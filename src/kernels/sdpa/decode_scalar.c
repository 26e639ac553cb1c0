/* decode_scalar.c - the decode dataflow: plain C, the fallback everywhere. */
#include "kernels/sdpa/decode_plan.h"
#include "kernels/simd/simd_levels.h"
#include "core/half.h"

#define ISA scalar
#define V_LANES 1
#define DECODE_ACCS 4
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_scalar.h"
#include "kernels/sdpa/decode_tile.inc"
#include "kernels/sdpa/decode_rules.inc"
#include "kernels/sdpa/decode_split.inc"
#include "kernels/sdpa/decode_rows.inc"
#include "kernels/simd/target_end.h"
