/* The register tiles of avx2: see tile_checks.inc. */
#include "tile_checks.h"

#if ATTN_HAVE_AVX2
#define ISA test_avx2
#define LEVEL ATTN_ISA_AVX2
#define ATTN_TARGET ATTN_TARGET_AVX2
#include "tile_level_avx2.h"
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx2.h"
#include "tile_calls.inc"
#include "tile_checks.inc"
#include "kernels/simd/target_end.h"
#define RUN run_tile_tests
#else
#define RUN NULL
#endif

int main(void)
{
    return run_level(ATTN_ISA_AVX2, RUN);
}
