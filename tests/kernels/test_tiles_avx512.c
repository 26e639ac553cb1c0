/* The register tiles of avx512: see tile_checks.inc. */
#include "tile_checks.h"

#if ATTN_HAVE_AVX512
#define ISA test_avx512
#define LEVEL ATTN_ISA_AVX512
#define ATTN_TARGET ATTN_TARGET_AVX512
#include "tile_level_avx512.h"
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx512.h"
#include "tile_calls.inc"
#include "tile_checks.inc"
#include "kernels/simd/target_end.h"
#define RUN run_tile_tests
#else
#define RUN NULL
#endif

int main(void)
{
    return run_level(ATTN_ISA_AVX512, RUN);
}
