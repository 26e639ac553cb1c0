/* The register tiles of the backward pass in bf16 at neonbf16: see bf16_tile_checks.inc. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/cpu.h"
#include "core/half.h"
#include "core/view.h"
#include "kernels/sdpa/bwd_fast.h"
#include "kernels/simd/simd_levels.h"
#include "properties/random_problem.h"

#if ATTN_HAVE_NEONBF16
#define ISA test_neonbf16
#define ATTN_TARGET ATTN_TARGET_NEONBF16
#define BWD_ROWS 12
#define BWD_VECTORS 2
#define BWD_PAIRS
#define BWD_STEPS "kernels/sdpa/bwd_steps_neon.inc"
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_neon.h"
#include "kernels/simd/pairs_neonbf16.h"
#define SLOTS_OF_PAIRS
#include "kernels/simd/slots_neon.h"
#include "kernels/sdpa/bwd_task.inc"
#include "kernels/sdpa/bwd_weights.inc"
#include "kernels/sdpa/bwd_bf16.inc"
#include "kernels/sdpa/bwd_special.inc"
#include "kernels/sdpa/bwd_tile.inc"
#include "bf16_tile_checks.inc"
#include "kernels/simd/target_end.h"

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scores), cmocka_unit_test(sums)};
    if (!attn_cpu_has_isa(ATTN_ISA_NEONBF16))
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
    return 0;
}
#endif
