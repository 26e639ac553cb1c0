#include "kernels/table.h"
#include "kernels/simd/simd_levels.h"

#define NO_KERNEL {0}

static const attn_kernels scalar_kernels = {ATTN_FWD_KERNEL_SCALAR, NO_KERNEL};
#if ATTN_HAVE_AVX2
static const attn_kernels avx2_kernels = {ATTN_FWD_KERNEL_AVX2, NO_KERNEL};
#endif
#if ATTN_HAVE_AVX512
static const attn_kernels avx512_kernels = {ATTN_FWD_KERNEL_AVX512, NO_KERNEL};
#endif
#if ATTN_HAVE_AVX512BF16
static const attn_kernels avx512bf16_kernels = {ATTN_FWD_KERNEL_AVX512, ATTN_FWD_KERNEL_AVX512BF16};
#endif
#if ATTN_HAVE_NEON
static const attn_kernels neon_kernels = {ATTN_FWD_KERNEL_NEON, NO_KERNEL};
#endif
#if ATTN_HAVE_NEONBF16
static const attn_kernels neonbf16_kernels = {ATTN_FWD_KERNEL_NEON, ATTN_FWD_KERNEL_NEONBF16};
#endif

const attn_kernels *attn_kernels_for(int32_t isa)
{
    const attn_kernels *best = &scalar_kernels;
#if ATTN_HAVE_AVX2
    if (isa >= ATTN_ISA_AVX2 && isa <= ATTN_ISA_AVX512BF16)
        best = &avx2_kernels;
#endif
#if ATTN_HAVE_AVX512
    if (isa >= ATTN_ISA_AVX512 && isa <= ATTN_ISA_AVX512BF16)
        best = &avx512_kernels;
#endif
#if ATTN_HAVE_AVX512BF16
    if (isa == ATTN_ISA_AVX512BF16)
        best = &avx512bf16_kernels;
#endif
#if ATTN_HAVE_NEON
    if (isa >= ATTN_ISA_NEON)
        best = &neon_kernels;
#endif
#if ATTN_HAVE_NEONBF16
    if (isa == ATTN_ISA_NEONBF16)
        best = &neonbf16_kernels;
#endif
    (void)isa;
    return best;
}

const attn_fwd_kernel *attn_fwd_kernel_for(int32_t isa, const attn_problem *p)
{
    const attn_kernels *kernels = attn_kernels_for(isa);
    return kernels->forward_bf16.strip && attn_fwd_suits_bf16(p) ? &kernels->forward_bf16 : &kernels->forward;
}
