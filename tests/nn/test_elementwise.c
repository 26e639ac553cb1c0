/* Norms and activations at every ISA level against their formulas in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "core/cpu.h"
#include "attn/attn.h"
#include "kernels/nn/nn_kernels.h"

static const int32_t levels[] = {ATTN_ISA_SCALAR, ATTN_ISA_AVX2, ATTN_ISA_AVX512, ATTN_ISA_NEON};

static double formula(int32_t act, double x)
{
    switch (act) {
    case ATTN_ACT_RELU:
        return x > 0 ? x : 0;
    case ATTN_ACT_SILU:
        return x / (1 + exp(-x));
    case ATTN_ACT_GELU_ERF:
        return 0.5 * x * erfc(-x / sqrt(2));
    case ATTN_ACT_GELU_TANH: {
        double u = sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x);
        return x / (1 + exp(-2 * u));
    }
    case ATTN_ACT_GELU_QUICK:
        return x / (1 + exp(-1.702 * x));
    case ATTN_ACT_TANH:
        return tanh(x);
    default:
        return x;
    }
}

static void test_activations(void **state)
{
    (void)state;
    enum { N = 4099 };
    static float x[N], y[N], up[N], gate[N], again[N];
    for (int i = 0; i < N; i++) {
        x[i] = i < 3 ? (float)(i - 1) * 1e30f : -12.0f + 24.0f * (float)i / N;
        up[i] = 1.5f - (float)i / N;
    }
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        if (!attn_cpu_has_isa(levels[l]))
            continue;
        const attn_nn_kernels *k = attn_nn_kernels_for(levels[l]);
        for (int32_t act = ATTN_ACT_NONE; act <= ATTN_ACT_TANH; act++) {
            k->activate(act, x, N, y);
            memcpy(gate, x, sizeof gate);
            k->activate_mul(act, gate, up, N, gate);
            k->activate_grad(act, x, up, up, N, 0, NULL, NULL, again); /* the value beside the gradient: the same bits */
            assert_memory_equal(again, gate, sizeof gate);
            for (int i = 0; i < N; i++) {
                double want = formula(act, (double)x[i]);
                /* the argument of exp is rounded: its relative error is the absolute one of up to |u| eps, which is at
                 * most 90 * 6e-8 before the result is below 1e-37; the polynomials add 2.4e-7 */
                double u = fabs((double)x[i]) * (act == ATTN_ACT_GELU_TANH ? 1.6 + 0.0714 * x[i] * x[i] : 1.702);
                double bound = 1e-36 + fabs(want) * (1e-6 + (u < 90 ? u : 90) * 2e-7);
                if (act == ATTN_ACT_GELU_ERF)
                    bound += fabs(want) * (x[i] < 0 ? (double)x[i] * x[i] * 1.2e-7 : 0);
                if (act == ATTN_ACT_TANH)
                    bound += 1.2e-7;
                if (!(fabs((double)y[i] - want) <= bound))
                    fail_msg("%s act %d: f(%.9g) is %.9g, not %.9g", k->isa, act, (double)x[i], (double)y[i], want);
                assert_true(gate[i] == y[i] * up[i]);
            }
            float nan_in[3] = {NAN, 1.0f, NAN};
            k->activate(act, nan_in, 3, nan_in);
            assert_true(isnan(nan_in[0]) && !isnan(nan_in[1]) && isnan(nan_in[2]));
        }
    }
}

static void test_norms(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 7, 8, 16, 33, 64, 576, 771};
    static float x[800], w[800], b[800], y[800];
    for (int i = 0; i < 800; i++) {
        x[i] = sinf((float)i * 1.7f) * 3.0f + 1.0f;
        w[i] = cosf((float)i) + 0.5f;
        b[i] = sinf((float)i * 0.3f);
    }
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        if (!attn_cpu_has_isa(levels[l]))
            continue;
        const attn_nn_kernels *k = attn_nn_kernels_for(levels[l]);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const int64_t n = sizes[s];
            double sum = 0, squares = 0, var = 0;
            for (int64_t i = 0; i < n; i++)
                sum += (double)x[i], squares += (double)x[i] * (double)x[i];
            const double mean = sum / (double)n;
            for (int64_t i = 0; i < n; i++)
                var += ((double)x[i] - mean) * ((double)x[i] - mean);
            for (int eps_index = 0; eps_index < 2; eps_index++) {
                const double eps = eps_index ? 1e-12 : 1e-5;
                const double rms = sqrt(squares / (double)n + eps), dev = sqrt(var / (double)n + eps);
                y[n] = 42;
                k->rms_norm(x, w, 1.0f, eps, n, y);
                for (int64_t i = 0; i < n; i++) /* the rounded mean square: n eps / 2 in the worst case */
                    assert_true(fabs((double)y[i] - (double)x[i] / rms * ((double)w[i] + 1)) <
                                1e-6 * (2 + (double)n / 16));
                k->layer_norm(x, w, b, eps, n, y);
                if (n > 1)
                    for (int64_t i = 0; i < n; i++)
                        assert_true(fabs((double)y[i] - (((double)x[i] - mean) / dev * (double)w[i] + (double)b[i])) <
                                    1e-6 * (2 + (double)n / 16));
                assert_true(y[n] == 42);
            }
        }
        float constant[5] = {3, 3, 3, 3, 3}, zero[5] = {0};
        k->layer_norm(constant, w, b, 1e-5, 5, y); /* a constant row gives the bias */
        for (int i = 0; i < 5; i++)
            assert_true(y[i] == b[i]);
        k->rms_norm(zero, w, 0.0f, 1e-6, 5, y);
        for (int i = 0; i < 5; i++)
            assert_true(y[i] == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_activations), cmocka_unit_test(test_norms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
