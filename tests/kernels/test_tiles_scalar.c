/* The register tiles of scalar: see tile_checks.inc. */
#include "tile_checks.h"

#if 1 /* always there */
#define ISA test_scalar
#define LEVEL ATTN_ISA_SCALAR
#include "tile_level_scalar.h"
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_scalar.h"
#include "tile_calls.inc"
#include "tile_checks.inc"
#include "kernels/simd/target_end.h"
#define RUN run_tile_tests
#else
#define RUN NULL
#endif

int main(void)
{
    return run_level(ATTN_ISA_SCALAR, RUN);
}
