/* The vocabulary of bf16 pairs (kernels/simd/pairs_avx512bf16.h, pairs_neonbf16.h) against plain C, where the CPU has it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "attn/attn.h"
#include "core/cpu.h"
#include "core/half.h"
#include "kernels/simd/simd_levels.h"
#include "properties/random_problem.h"

#if ATTN_HAVE_AVX512BF16 || ATTN_HAVE_NEONBF16
#define ISA test_pairs
#if ATTN_HAVE_AVX512BF16
#define LEVEL ATTN_ISA_AVX512BF16
#define ATTN_TARGET ATTN_TARGET_AVX512BF16
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx512.h"
#include "kernels/simd/pairs_avx512bf16.h"

/* The second product is added first; each sum is rounded to nearest. Products of bf16 are exact in f32. */
static float dot_of(float c, double first, double second)
{
    return (float)first + ((float)second + c);
}
#else
#define LEVEL ATTN_ISA_NEONBF16
#define ATTN_TARGET ATTN_TARGET_NEONBF16
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_neon.h"
#include "kernels/simd/pairs_neonbf16.h"

/* a + b in f32, rounded to odd: the number whose last bit is 1 where the sum lies between two. */
static float add_to_odd(float a, float b)
{
    const float near = a + b;
    const float from_b = near - a, rest = (a - (near - from_b)) + (b - from_b); /* what `near` lacks, exactly (Knuth) */
    uint32_t bits;
    memcpy(&bits, &near, sizeof bits);
    if (rest == 0 || bits % 2 == 1)
        return near;
    return nextafterf(near, rest > 0 ? INFINITY : -INFINITY);
}

/* Both sums are rounded to odd, the products' first. */
static float dot_of(float c, double first, double second)
{
    return add_to_odd(c, add_to_odd((float)first, (float)second));
}
#endif

enum { SLOTS = V_N, NUMBERS = 2 * V_N };

/* Normal numbers of many sizes, far from where products or sums leave the normal range. */
static uint16_t any_bf16(rng *r)
{
    return attn_f32_to_bf16((float)(rng_normal(r) * pow(2, (double)rng_range(r, -30, 30))));
}

static void dots_add_in_their_order(void **state)
{
    (void)state;
    rng r = {3};
    for (int n = 0; n < 300; n++) {
        uint16_t a[NUMBERS], b[NUMBERS];
        float c[SLOTS], got[SLOTS], slots[2][SLOTS];
        for (int k = 0; k < NUMBERS; k++)
            a[k] = any_bf16(&r), b[k] = any_bf16(&r);
        for (int k = 0; k < SLOTS; k++)
            c[k] = (float)rng_normal(&r);
        memcpy(slots[0], a, sizeof a);
        memcpy(slots[1], b, sizeof b);
        v_store(got, v_pair_dot(v_pair_load(slots[0]), v_pair_load(slots[1]), v_load(c)));
        for (int k = 0; k < SLOTS; k++) {
            double second = (double)attn_bf16_to_f32(a[2 * k + 1]) * (double)attn_bf16_to_f32(b[2 * k + 1]);
            double first = (double)attn_bf16_to_f32(a[2 * k]) * (double)attn_bf16_to_f32(b[2 * k]);
            float want = dot_of(c[k], first, second);
            if (memcmp(&want, &got[k], sizeof want))
                fail_msg("slot %d: %.9g, not %.9g", k, (double)got[k], (double)want);
        }
        v_store(got, v_pair_dot(v_pair_set1(a), v_pair_load(slots[1]), v_zero()));
        memcpy(slots[0], a, 4);
        for (int k = 1; k < SLOTS; k++)
            memcpy(&slots[0][k], a, 4);
        v_store(c, v_pair_dot(v_pair_load(slots[0]), v_pair_load(slots[1]), v_zero()));
        assert_memory_equal(got, c, sizeof c);
        v_store(got, v_pair_dot_one(v_pair_one_at(a), v_pair_load(slots[1]), v_zero()));
        assert_memory_equal(got, c, sizeof c);
    }
}

#if ATTN_HAVE_NEONBF16
static void dots_take_any_slot(void **state)
{
    (void)state;
    rng r = {7};
    uint16_t a[NUMBERS], b[NUMBERS];
    float slots[SLOTS], x[SLOTS], got[SLOTS], want[SLOTS];
    for (int k = 0; k < NUMBERS; k++)
        a[k] = any_bf16(&r), b[k] = any_bf16(&r);
    memcpy(slots, a, sizeof a);
    memcpy(x, b, sizeof b);
    for (int lane = 0; lane < SLOTS; lane++) {
        v_store(want, v_pair_dot(v_pair_set1(a + 2 * lane), v_pair_load(x), v_set1(0.5f)));
        v_store(got, v_pair_dot_lane(v_pair_load(slots), lane, v_pair_load(x), v_set1(0.5f)));
        assert_memory_equal(got, want, sizeof want);
        if (lane + 1 >= SLOTS)
            continue;
        v_store(got, v_pair_dot_one(v_pair_two_at(a + 2 * lane), v_pair_load(x), v_set1(0.5f)));
        assert_memory_equal(got, want, sizeof want);
        if (lane == 0)
            continue;
        v_store(got, v_pair_dot_second(v_pair_two_at(a + 2 * lane - 2), v_pair_load(x), v_set1(0.5f)));
        assert_memory_equal(got, want, sizeof want);
    }
}
#endif

static void narrowing_rounds_and_interleaves(void **state)
{
    (void)state;
    rng r = {4};
    for (int n = 0; n < 300; n++) {
        float first[SLOTS], second[SLOTS], slots[SLOTS];
        uint16_t want[NUMBERS];
        for (int k = 0; k < SLOTS; k++) {
            first[k] = n == 0 ? (k % 2 ? 0.0f : 1.0f) : (float)rng_unit(&r);
            second[k] = n == 1 ? NAN : (float)rng_unit(&r);
            want[2 * k] = attn_f32_to_bf16(first[k]);
            want[2 * k + 1] = attn_f32_to_bf16(second[k]);
            assert_int_equal(v_pair_bf16(first[k]), want[2 * k]);
        }
        v_pair_store(slots, v_pair_narrow(v_load(first), v_load(second)));
        assert_memory_equal(slots, want, sizeof want);
    }
}

static void loads_read_n_numbers(void **state)
{
    (void)state;
    rng r = {5};
    uint16_t a[NUMBERS], b[NUMBERS];
    for (int k = 0; k < NUMBERS; k++)
        a[k] = any_bf16(&r), b[k] = any_bf16(&r);
    for (int64_t n = -1; n <= NUMBERS + 1; n++) {
        float slots[SLOTS];
        uint16_t row[NUMBERS] = {0}, joined[NUMBERS] = {0};
        for (int k = 0; k < NUMBERS && k < n; k++)
            row[k] = a[k];
        for (int k = 0; k < SLOTS && k < n; k++)
            joined[2 * k] = a[k], joined[2 * k + 1] = b[k];
        v_pair_store(slots, v_pair_load_n(a, n));
        assert_memory_equal(slots, row, sizeof row);
        v_pair_store(slots, v_pair_join_n(a, b, n));
        assert_memory_equal(slots, joined, sizeof joined);
    }
}

static void marks_and_infinities_are_found(void **state)
{
    (void)state;
    rng r = {6};
    for (int n = 0; n < 300; n++) {
        uint16_t a[NUMBERS], mark[NUMBERS], want[NUMBERS];
        static const uint16_t bad[] = {0x7f80, 0xff80, 0x7fc0, 0xffff, 0x7f81, 0x7f7f}; /* the last is finite */
        float slots[2][SLOTS], got[SLOTS];
        for (int k = 0; k < NUMBERS; k++) {
            a[k] = any_bf16(&r);
            mark[k] = rng_chance(&r, 0.3) ? 0xbf80 : any_bf16(&r);
            want[k] = mark[k] == 0xbf80 ? 0 : a[k];
        }
        memcpy(slots[0], a, sizeof a);
        memcpy(slots[1], mark, sizeof mark);
        v_pair_store(got, v_pair_without(v_pair_load(slots[0]), v_pair_load(slots[1]), 0xbf80));
        assert_memory_equal(got, want, sizeof want);
        v_pair largest = v_pair_largest(v_pair_zero(), v_pair_load(slots[0]));
        assert_true(v_pair_finite(largest));
        a[rng_range(&r, 0, NUMBERS - 1)] = bad[n % 6];
        memcpy(slots[0], a, sizeof a);
        assert_int_equal(v_pair_finite(v_pair_largest(largest, v_pair_load(slots[0]))), n % 6 == 5);
    }
}
#include "kernels/simd/target_end.h"

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dots_add_in_their_order),
        cmocka_unit_test(narrowing_rounds_and_interleaves),
        cmocka_unit_test(loads_read_n_numbers),
        cmocka_unit_test(marks_and_infinities_are_found),
#if ATTN_HAVE_NEONBF16
        cmocka_unit_test(dots_take_any_slot),
#endif
    };
    if (!attn_cpu_has_isa(LEVEL)) {
        print_message("%s: not on this machine\n", attn_isa_name(LEVEL));
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
    return 0;
}
#endif
