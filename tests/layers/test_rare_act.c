/* test_rare_act.c - slopes of the seldom activations are their difference quotients, and what they give far out. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "layers/rare_act.h"

static void test_slopes(void **state)
{
    (void)state;
    const double step = 1e-5;
    for (int32_t act = ATTN_ACT_RARE; act <= ATTN_ACT_LAPLACE; act++)
        for (double x = -11.03; x < 12; x += 0.37) {
            const double quotient = (attn_rare_act(act, x + step) - attn_rare_act(act, x - step)) / (2 * step);
            if (!(fabs(attn_rare_act_slope(act, x) - quotient) < 1e-7))
                fail_msg("activation %d at %g: slope %.12g, quotient %.12g", (int)act, x, attn_rare_act_slope(act, x), quotient);
        }
}

static void test_far_out(void **state)
{
    (void)state;
    static const struct {
        int32_t act;
        double low, high; /* at -1000 and at 1000 */
    } cases[] = {{ATTN_ACT_RELU2, 0, 1e6}, {ATTN_ACT_RELU6, 0, 6},   {ATTN_ACT_LEAKY_RELU, -10, 1000}, {ATTN_ACT_SIGMOID, 0, 1},
                 {ATTN_ACT_MISH, 0, 1000}, {ATTN_ACT_GELU_10, 0, 10}, {ATTN_ACT_LAPLACE, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(fabs(attn_rare_act(cases[i].act, -1000) - cases[i].low) < 1e-12);
        assert_true(fabs(attn_rare_act(cases[i].act, 1000) - cases[i].high) < 1e-9);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_slopes), cmocka_unit_test(test_far_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
