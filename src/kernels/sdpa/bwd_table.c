/* bwd_table.c - which backward kernels an ISA level uses. */
#include "kernels/sdpa/bwd_fast.h"
#include "kernels/simd/simd_levels.h"

const attn_bwd_kernels *attn_bwd_kernels_at(int32_t isa)
{
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
        return &attn_bwd_kernels_neon;
#endif
    default:
        return &attn_bwd_kernels_scalar;
    }
}

int64_t attn_bwd_scratch_floats(const attn_bwd_plan *plan)
{
    int64_t keys = plan->key_block, rows = plan->query_block;
    int64_t key_side = keys * (3 * plan->dim_pad + 16) + keys * 3 * plan->value_pad;
    int64_t tile = 2 * rows * plan->score_row + 4 * plan->score_row;
    int64_t ranges = 2 * rows + 2 * rows; /* two int32 and two float per row */
    return key_side + tile + ranges + plan->dim_pad + 2 * plan->value_pad + keys + 64 + plan->relative_columns + 48;
}
