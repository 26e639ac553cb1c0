#include "simd_checks.h"
#include "attn/attn.h"

#define ISA scalar
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_scalar.h"
#include "simd_checks.inc"
#include "kernels/simd/target_end.h"

int main(void)
{
    return run_level(ATTN_ISA_SCALAR, run_simd_tests);
}
