#include "simd_checks.h"
#include "attn/attn.h"

#if ATTN_HAVE_AVX2
#define ISA avx2
#define ATTN_TARGET ATTN_TARGET_AVX2
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx2.h"
#include "simd_checks.inc"
#include "kernels/simd/target_end.h"
#define RUN run_simd_tests
#else
#define RUN NULL
#endif

int main(void)
{
    return run_level(ATTN_ISA_AVX2, RUN);
}
