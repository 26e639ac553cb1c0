/* A small part of cmocka's interface, for builds where the library is not available (the cross build). It has the
 * asserts, setup and teardown, skip and the report format that the tests here use; no mocks, no allocation checks. */
#ifndef ATTN_TESTS_CMOCKA_LITE_H
#define ATTN_TESTS_CMOCKA_LITE_H

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*CMUnitTestFunction)(void **state);
typedef int (*CMFixtureFunction)(void **state);

struct CMUnitTest {
    const char *name;
    CMUnitTestFunction test_func;
    CMFixtureFunction setup_func, teardown_func;
    void *initial_state;
};

#define cmocka_unit_test(f) {#f, f, NULL, NULL, NULL}
#define cmocka_unit_test_setup(f, setup) {#f, f, setup, NULL, NULL}
#define cmocka_unit_test_teardown(f, teardown) {#f, f, NULL, teardown, NULL}
#define cmocka_unit_test_setup_teardown(f, setup, teardown) {#f, f, setup, teardown, NULL}
#define cmocka_unit_test_prestate(f, state) {#f, f, NULL, NULL, state}
#define cmocka_unit_test_prestate_setup_teardown(f, setup, teardown, state)                                        \
    {#f, f, setup, teardown, state}

enum { LITE_FAILED = 1, LITE_SKIPPED = 2 };
static jmp_buf lite_return;

#if defined(__GNUC__)
#define LITE_UNUSED __attribute__((unused))
#define LITE_NORETURN __attribute__((noreturn))
#else
#define LITE_UNUSED
#define LITE_NORETURN
#endif

LITE_UNUSED LITE_NORETURN static void lite_fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "[  ERROR   ] --- %s\n[   LINE   ] --- %s:%d: error: Failure!\n", what, file, line);
    longjmp(lite_return, LITE_FAILED);
}

/* The checks are functions, so that each argument of an assert is evaluated once. */
LITE_UNUSED static void lite_check_integers(int want_equal, unsigned long long a, unsigned long long b, const char *file,
                                            int line)
{
    if ((a == b) == want_equal)
        return;
    char text[128];
    snprintf(text, sizeof text, "%#llx %s %#llx", a, want_equal ? "!=" : "==", b);
    lite_fail(file, line, text);
}

LITE_UNUSED static void lite_check_range(unsigned long long value, unsigned long long low, unsigned long long high,
                                         const char *file, int line)
{
    if (value >= low && value <= high)
        return;
    char text[128];
    snprintf(text, sizeof text, "%llu is not within the range %llu-%llu", value, low, high);
    lite_fail(file, line, text);
}

LITE_UNUSED static void lite_check_floats(int want_equal, double a, double b, double epsilon, const char *file, int line)
{
    if ((a - b <= epsilon && b - a <= epsilon) == want_equal)
        return;
    char text[128];
    snprintf(text, sizeof text, "%.17g %s %.17g", a, want_equal ? "!=" : "==", b);
    lite_fail(file, line, text);
}

LITE_UNUSED static void lite_check_strings(int want_equal, const char *a, const char *b, const char *file, int line)
{
    if ((strcmp(a, b) == 0) == want_equal)
        return;
    fprintf(stderr, "\"%s\" %s \"%s\"\n", a, want_equal ? "!=" : "==", b);
    lite_fail(file, line, "strings");
}

LITE_UNUSED static void lite_check_memory(int want_equal, const void *a, const void *b, size_t size,
                                          const char *file, int line)
{
    const unsigned char *x = a, *y = b;
    for (size_t i = 0; i < size; i++)
        if (x[i] != y[i]) {
            if (!want_equal)
                return;
            fprintf(stderr, "difference at offset %zu: 0x%02x != 0x%02x\n", i, x[i], y[i]);
            lite_fail(file, line, "memory differs");
        }
    if (!want_equal)
        lite_fail(file, line, "memory is equal");
}

#define LITE_U(x) ((unsigned long long)(x))
#define fail() lite_fail(__FILE__, __LINE__, "fail()")
#define fail_msg(...) (fprintf(stderr, "[  ERROR   ] --- " __VA_ARGS__), lite_fail(__FILE__, __LINE__, ""))
#define skip() longjmp(lite_return, LITE_SKIPPED)
#define print_message(...) printf(__VA_ARGS__)
#define print_error(...) fprintf(stderr, __VA_ARGS__)
#define assert_true(c) ((c) ? (void)0 : lite_fail(__FILE__, __LINE__, #c))
#define assert_false(c) ((c) ? lite_fail(__FILE__, __LINE__, "not: " #c) : (void)0)
#define assert_non_null(p) ((p) ? (void)0 : lite_fail(__FILE__, __LINE__, #p " is NULL"))
#define assert_null(p) ((p) ? lite_fail(__FILE__, __LINE__, #p " is not NULL") : (void)0)
#define assert_return_code(rc, error)                                                                              \
    ((rc) >= 0 ? (void)(error) : lite_fail(__FILE__, __LINE__, #rc " is negative"))
#define assert_int_equal(a, b) lite_check_integers(1, LITE_U(a), LITE_U(b), __FILE__, __LINE__)
#define assert_int_not_equal(a, b) lite_check_integers(0, LITE_U(a), LITE_U(b), __FILE__, __LINE__)
#define assert_ptr_equal(a, b) assert_int_equal((uintptr_t)(a), (uintptr_t)(b))
#define assert_ptr_not_equal(a, b) assert_int_not_equal((uintptr_t)(a), (uintptr_t)(b))
#define assert_in_range(v, low, high) lite_check_range(LITE_U(v), LITE_U(low), LITE_U(high), __FILE__, __LINE__)
#define assert_float_equal(a, b, eps)                                                                              \
    lite_check_floats(1, (double)(a), (double)(b), (double)(eps), __FILE__, __LINE__)
#define assert_float_not_equal(a, b, eps)                                                                          \
    lite_check_floats(0, (double)(a), (double)(b), (double)(eps), __FILE__, __LINE__)
#define assert_double_equal assert_float_equal
#define assert_double_not_equal assert_float_not_equal
#define assert_string_equal(a, b) lite_check_strings(1, a, b, __FILE__, __LINE__)
#define assert_string_not_equal(a, b) lite_check_strings(0, a, b, __FILE__, __LINE__)
#define assert_memory_equal(a, b, size) lite_check_memory(1, a, b, size, __FILE__, __LINE__)
#define assert_memory_not_equal(a, b, size) lite_check_memory(0, a, b, size, __FILE__, __LINE__)

/* Runs one function of a test; what a failed assert or skip() jumps back with, else 0. */
LITE_UNUSED static int lite_guard(CMFixtureFunction fixture, CMUnitTestFunction function, void **state)
{
    int jumped = setjmp(lite_return);
    if (jumped)
        return jumped;
    if (function)
        function(state);
    return fixture && fixture(state) != 0 ? LITE_FAILED : 0;
}

/* Runs one test between its setup and teardown: 0, LITE_FAILED or LITE_SKIPPED. */
LITE_UNUSED static int lite_run_test(const struct CMUnitTest *test, void *group_state)
{
    void *state = test->initial_state ? test->initial_state : group_state;
    int outcome = lite_guard(test->setup_func, NULL, &state);
    if (outcome == 0)
        outcome = lite_guard(NULL, test->test_func, &state);
    int teardown = lite_guard(test->teardown_func, NULL, &state);
    return outcome ? outcome : teardown;
}

LITE_UNUSED static int lite_run_group(const char *group, const struct CMUnitTest *tests, size_t n,
                                      CMFixtureFunction group_setup, CMFixtureFunction group_teardown)
{
    void *state = NULL;
    size_t passed = 0, skipped = 0, failed = 0;
    (void)group;
    printf("[==========] Running %zu test(s).\n", n);
    if (group_setup && group_setup(&state) != 0) {
        printf("[  FAILED  ] %s: group setup\n", group);
        return 1;
    }
    for (size_t t = 0; t < n; t++) {
        printf("[ RUN      ] %s\n", tests[t].name);
        fflush(stdout);
        int outcome = lite_run_test(&tests[t], state);
        passed += outcome == 0;
        failed += outcome == LITE_FAILED;
        skipped += outcome == LITE_SKIPPED;
        printf("%s %s\n", outcome == 0 ? "[       OK ]" : outcome == LITE_FAILED ? "[  FAILED  ]" : "[  SKIPPED ]",
               tests[t].name);
    }
    if (group_teardown && group_teardown(&state) != 0)
        failed++;
    printf("[==========] %zu test(s) run.\n[  PASSED  ] %zu test(s).\n", n, passed);
    if (skipped)
        printf("[  SKIPPED ] %zu test(s), listed above\n", skipped);
    if (failed)
        printf("[  FAILED  ] %zu test(s), listed above\n", failed);
    return (int)failed;
}

#define cmocka_run_group_tests(tests, setup, teardown)                                                             \
    lite_run_group(#tests, tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown)                                                  \
    lite_run_group(name, tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)

#endif
