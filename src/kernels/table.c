#include "kernels/table.h"
#include "kernels/simd/simd_levels.h"

static const attn_kernels scalar_kernels = {ATTN_FWD_KERNEL_SCALAR};
#if ATTN_HAVE_AVX2
static const attn_kernels avx2_kernels = {ATTN_FWD_KERNEL_AVX2};
#endif
#if ATTN_HAVE_AVX512
static const attn_kernels avx512_kernels = {ATTN_FWD_KERNEL_AVX512};
#endif
#if ATTN_HAVE_NEON
static const attn_kernels neon_kernels = {ATTN_FWD_KERNEL_NEON};
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
#if ATTN_HAVE_NEON
    if (isa == ATTN_ISA_NEON)
        best = &neon_kernels;
#endif
    (void)isa;
    return best;
}
