/* wide_table.c - which kernels in double an ISA level uses, and how much memory they need. */
#include "kernels/sdpa/wide.h"
#include "kernels/simd/simd_levels.h"

const attn_wide_kernels *attn_wide_kernels_at(int32_t isa)
{
    switch (isa) {
#if ATTN_HAVE_AVX512
    case ATTN_ISA_AVX512:
    case ATTN_ISA_AVX512BF16:
        return &attn_wide_kernels_avx512;
#endif
#if ATTN_HAVE_AVX2
    case ATTN_ISA_AVX2:
        return &attn_wide_kernels_avx2;
#endif
#if ATTN_HAVE_NEON
    case ATTN_ISA_NEON:
    case ATTN_ISA_NEONDOT:
    case ATTN_ISA_NEONBF16:
        return &attn_wide_kernels_neon;
#endif
    default:
        return &attn_wide_kernels_scalar;
    }
}

int64_t attn_wide_scratch(const attn_problem *p)
{
    int64_t rows = ATTN_WIDE_ROWS, keys = ATTN_WIDE_KEYS, dims = p->head_dim + p->value_dim + 2 * 16; /* 16: widest panel */
    return (2 * rows + 3 * keys) * dims + 2 * rows * keys + rows * keys / (int64_t)sizeof(double) + 8 * rows + keys + 8;
}
