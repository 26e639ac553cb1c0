/* The register tiles of neon: see tile_checks.inc. */
#include "tile_checks.h"

#if ATTN_HAVE_NEON
#define ISA test_neon
#define LEVEL ATTN_ISA_NEON
#include "tile_level_neon.h"
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_neon.h"
#include "kernels/simd/slots_neon.h"
#include "tile_calls.inc"
#include "tile_checks.inc"
#include "kernels/simd/target_end.h"
#define RUN run_tile_tests
#else
#define RUN NULL
#endif

int main(void)
{
    return run_level(ATTN_ISA_NEON, RUN);
}
