#include "simd_checks.h"
#include "attn/attn.h"

#if ATTN_HAVE_NEON
#define ISA neon
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_neon.h"
#include "simd_checks.inc"
#include "kernels/simd/target_end.h"
#define RUN run_simd_tests
#else
#define RUN NULL
#endif

int main(void)
{
    return run_level(ATTN_ISA_NEON, RUN);
}
