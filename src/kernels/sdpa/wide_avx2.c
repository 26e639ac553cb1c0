/* wide_avx2.c - attention in double for AVX2 and FMA. */
#include "kernels/sdpa/wide.h"
#include "kernels/ref/ref_sdpa.h"
#include "kernels/simd/simd_levels.h"
#include "core/view.h"

#if ATTN_HAVE_AVX2
#define ISA avx2
#define ATTN_TARGET ATTN_TARGET_AVX2
#define WIDE_ROWS 4
#include "kernels/simd/target_begin.h"
#include "kernels/simd/wide_avx2.h"
#include "kernels/sdpa/wide_tile.inc"
#include "kernels/sdpa/wide_forward.inc"
#include "kernels/sdpa/wide_backward.inc"
#include "kernels/simd/target_end.h"
#else
typedef int attn_wide_avx2_is_empty; /* a source file needs a declaration */
#endif
