/* fwd_scalar.c - the forward dataflow for one lane, in plain C. */
#include "kernels/sdpa/admitted.h"
#include "kernels/sdpa/fwd_plan.h"
#include "kernels/simd/simd_levels.h"
#include "core/half.h"
#include "core/view.h"

#define ISA scalar
#define FWD_VECTORS 4
#define FWD_KEYS 4
#define FWD_DIMS 4
#define FWD_PANEL 4
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_scalar.h"
#include "kernels/sdpa/fwd_products_f32.inc"
#include "kernels/sdpa/fwd_tile.inc"
#include "kernels/sdpa/fwd_pack.inc"
#include "kernels/sdpa/fwd_pack_f32.inc"
#include "kernels/sdpa/fwd_rules.inc"
#include "kernels/sdpa/fwd_bias.inc"
#include "kernels/sdpa/fwd_strip.inc"
#include "kernels/simd/target_end.h"
