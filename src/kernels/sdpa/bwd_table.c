/* bwd_table.c - which backward kernels an ISA level uses. */
#include "kernels/sdpa/bwd_fast.h"
#include "kernels/sdpa/fwd_plan.h"
#include "kernels/simd/simd_levels.h"

/* What forward multiplies in bf16, where the gradient of its output is bf16 too. */
static bool suits_bf16(const attn_bwd_problem *g)
{
    return g->a.d_out.dtype == ATTN_BF16 && attn_fwd_suits_bf16(&g->forward);
}

const attn_bwd_kernels *attn_bwd_kernels_for(int32_t isa, const attn_bwd_problem *g)
{
#if ATTN_HAVE_AVX512BF16
    if (isa == ATTN_ISA_AVX512BF16 && suits_bf16(g))
        return &attn_bwd_kernels_avx512bf16;
#endif
#if ATTN_HAVE_NEONBF16
    if (isa == ATTN_ISA_NEONBF16 && suits_bf16(g))
        return &attn_bwd_kernels_neonbf16;
#endif
    (void)suits_bf16, (void)g;
    switch (isa) {
#if ATTN_HAVE_AVX512
    case ATTN_ISA_AVX512:
    case ATTN_ISA_AVX512BF16:
        return &attn_bwd_kernels_avx512;
#endif
#if ATTN_HAVE_AVX2
    case ATTN_ISA_AVX2:
        return &attn_bwd_kernels_avx2;
#endif
#if ATTN_HAVE_NEON
    case ATTN_ISA_NEON:
    case ATTN_ISA_NEONDOT:
    case ATTN_ISA_NEONBF16:
        return &attn_bwd_kernels_neon;
#endif
    default:
        return &attn_bwd_kernels_scalar;
    }
}
