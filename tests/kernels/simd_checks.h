/* simd_checks.h - ordinary headers of the test_simd_<isa>.c programs, and their main. */
#ifndef TESTS_SIMD_CHECKS_H
#define TESTS_SIMD_CHECKS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>
#include "core/cpu.h"
#include "core/half.h"
#include "kernels/simd/simd_levels.h"

static inline void test_no_such_level(void **state)
{
    (void)state;
    skip();
}

/* Runs the tests of a level, or says that it is not here. */
static inline int run_level(int32_t isa, int (*run)(void))
{
    const struct CMUnitTest none[] = {cmocka_unit_test(test_no_such_level)};
    if (run && attn_cpu_has_isa(isa))
        return run();
    print_message("%s: not on this machine\n", attn_isa_name(isa));
    return cmocka_run_group_tests(none, NULL, NULL);
}

#endif
