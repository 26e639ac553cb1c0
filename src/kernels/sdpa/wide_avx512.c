/* wide_avx512.c - attention in double for AVX-512. */
#include "kernels/sdpa/wide.h"
#include "kernels/ref/ref_sdpa.h"
#include "kernels/simd/simd_levels.h"
#include "core/view.h"

#if ATTN_HAVE_AVX512
#define ISA avx512
#define ATTN_TARGET ATTN_TARGET_AVX512
#define WIDE_ROWS 8
#include "kernels/simd/target_begin.h"
#include "kernels/simd/wide_avx512.h"
#include "kernels/sdpa/wide_tile.inc"
#include "kernels/sdpa/wide_forward.inc"
#include "kernels/sdpa/wide_backward.inc"
#include "kernels/simd/target_end.h"
#else
typedef int attn_wide_avx512_is_empty; /* a source file needs a declaration */
#endif
