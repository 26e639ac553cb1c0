/* Products of 8-bit activations: every level and format against written loops, to the bit, for any rows and threads; close to
 * the f32 product; what is not finite stays visible. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "core/cpu.h"
#include "core/half.h"
#include "ops/nn/linear.h"
#include "ops/nn/linear_panels.h"

#define MAX_ROWS 101

static const int32_t levels[] = {ATTN_ISA_SCALAR, ATTN_ISA_AVX2, ATTN_ISA_AVX512, ATTN_ISA_NEONDOT};
static uint64_t rng_state = 88172645463325252u;

static float uniform(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (float)(rng_state >> 40) * 0x1p-23f - 1.0f;
}

static void uniform_row(void *arg, int64_t row, float *out)
{
    const int64_t n_in = *(const int64_t *)arg;
    (void)row;
    for (int64_t k = 0; k < n_in; k++)
        out[k] = uniform();
}

static float multiply_add(int32_t isa, float a, float b, float c)
{
    if (isa != ATTN_ISA_SCALAR)
        return fmaf(a, b, c);
    volatile float product = a * b;
    return product + c;
}

/* One row by one output, as nn_dot.h says. */
static float product(int32_t isa, const attn_linear *linear, int64_t n, const float *input)
{
    const attn_panels *w = &linear->w;
    float x[512];
    for (int64_t k = 0; k < w->n_in; k++)
        x[k] = input[k] * (linear->balance ? linear->balance[k] : 1.0f);
    const int64_t panel = n / ATTN_PANEL, lane = n % ATTN_PANEL;
    float y = 0;
    for (int64_t b = 0; b * w->scale_block < w->n_in; b++) {
        const int64_t k0 = b * w->scale_block, k1 = k0 + w->scale_block < w->n_in ? k0 + w->scale_block : w->n_in;
        const int64_t at = (panel * attn_panel_scales(w) + b) * ATTN_PANEL + lane;
        float largest = 0;
        int32_t sum = 0, total = 0;
        for (int64_t k = k0; k < k1; k++)
            largest = fmaxf(largest, fabsf(x[k]));
        for (int64_t k = k0; k < k1; k++) {
            const int32_t q = (int32_t)lrintf(x[k] * (127.0f / largest));
            const int32_t v = w->format == ATTN_PANEL_U4
                                  ? (int32_t)(attn_panel_u4_words(w, panel, k / 32, lane)[k % 4 * ATTN_PANEL] >> (k % 32 / 4 * 4) & 15)
                                  : ((const int8_t *)w->values)[attn_panel_i8_at(w, panel, lane, k)];
            sum += q * v;
            total += q;
        }
        const float scale = largest / 127.0f;
        y = multiply_add(isa, (float)sum, attn_panel_get_scale(w, w->scales, at) * scale, y);
        if (w->has_min)
            y = multiply_add(isa, attn_panel_get_scale(w, w->mins, at), scale * (float)total, y);
    }
    return y;
}

typedef struct problem {
    attn_linear linear;
    float *x, *y;
    void *scratch;
    int64_t ldy;
} problem;

static void run(const problem *p, int32_t isa, int32_t threads, int64_t rows)
{
    const attn_worker worker = {.kernels = attn_nn_kernels_for(isa), .dot = attn_dot_kernels_for(isa),
                                .pair = attn_pair_kernels_for(isa), .n_threads = threads, .scratch = p->scratch};
    const attn_linear_job job = {.linear = &p->linear, .x = p->x, .ldx = p->linear.w.n_in, .y = p->y, .ldy = p->ldy};
    attn_linear_run(&worker, &job, 1, rows);
}

static problem start(attn_linear_format format, int64_t n_in, int64_t n_out)
{
    problem p;
    float *scratch = malloc((size_t)n_in * sizeof *scratch);
    assert_int_equal(attn_linear_create(&p.linear, format, n_in, n_out), ATTN_OK);
    p.linear.act_i8 = 1;
    attn_linear_pack_rows(&p.linear, 0, attn_panel_count(&p.linear.w), uniform_row, &n_in, scratch);
    free(scratch);
    p.ldy = n_out + 3;
    p.x = malloc((size_t)(MAX_ROWS * n_in) * sizeof *p.x);
    p.y = malloc((size_t)(MAX_ROWS * p.ldy) * sizeof *p.y);
    p.scratch = aligned_alloc(64, (attn_linear_scratch(MAX_ROWS, n_in) + 63) / 64 * 64);
    for (int64_t i = 0; i < MAX_ROWS * n_in; i++)
        p.x[i] = uniform();
    return p;
}

static void finish(problem *p)
{
    attn_linear_destroy(&p->linear);
    free(p->x), free(p->y), free(p->scratch);
}

static void check(const problem *p, int32_t isa, const char *what)
{
    const int64_t n_in = p->linear.w.n_in, n_out = p->linear.w.n_out, counts[] = {1, 2, 5, 8, 13, MAX_ROWS};
    float *want = malloc((size_t)(MAX_ROWS * n_out) * sizeof *want), *row = malloc((size_t)n_in * sizeof *row);
    double dot = 0, got_squares = 0, exact_squares = 0;
    for (int64_t n = 0; n < n_out; n++) {
        attn_linear_row(&p->linear, n, row);
        for (int64_t m = 0; m < MAX_ROWS; m++) {
            double exact = 0;
            const double got = (double)(want[m * n_out + n] = product(isa, &p->linear, n, p->x + m * n_in));
            for (int64_t k = 0; k < n_in; k++)
                exact += (double)row[k] * (double)p->x[m * n_in + k];
            dot += got * exact, got_squares += got * got, exact_squares += exact * exact;
        }
    }
    if (!(dot / sqrt(got_squares * exact_squares) > 0.9999))
        fail_msg("%s: cosine to the f32 product is %.6f", what, dot / sqrt(got_squares * exact_squares));
    for (size_t r = 0; r < sizeof counts / sizeof *counts; r++)
        for (int32_t threads = 1; threads <= 3; threads += 2) {
            for (int64_t i = 0; i < MAX_ROWS * p->ldy; i++)
                p->y[i] = 12345.0f;
            run(p, isa, threads, counts[r]);
            for (int64_t m = 0; m < counts[r]; m++) {
                for (int64_t n = 0; n < n_out; n++)
                    if (memcmp(&p->y[m * p->ldy + n], &want[m * n_out + n], sizeof *want))
                        fail_msg("%s %s: rows %lld, threads %d, y[%lld][%lld] is %.9g, not %.9g", what, attn_isa_name(isa),
                                 (long long)counts[r], threads, (long long)m, (long long)n, (double)p->y[m * p->ldy + n],
                                 (double)want[m * n_out + n]);
                for (int64_t n = n_out; n < p->ldy; n++)
                    assert_true(p->y[m * p->ldy + n] == 12345.0f);
            }
        }
    free(want), free(row);
}

static void test_levels(void **state)
{
    (void)state;
    const struct {
        attn_linear_format format;
        const char *what;
    } kinds[] = {{{ATTN_PANEL_D8, 0, 0, 0}, "8 bits, a scale for each output"},
                 {{ATTN_PANEL_D8, 32, 1, 0}, "8 bits in blocks"},
                 {{ATTN_PANEL_D8, 32, 0, 1}, "8 bits in blocks, with minima"},
                 {{ATTN_PANEL_D8, 64, 0, 0}, "8 bits in blocks of 64"},
                 {{ATTN_PANEL_U4, 32, 1, 1}, "4 bits in blocks, f16 scales"},
                 {{ATTN_PANEL_U4, 32, 0, 1}, "4 bits in blocks"}};
    const int64_t shapes[][2] = {{32, 16}, {64, 40}, {288, 200}, {96, 150}, {384, 72}, {13, 7}, {300, 33}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            if (kinds[k].format.scale_block && shapes[s][0] % kinds[k].format.scale_block)
                continue;
            problem p = start(kinds[k].format, shapes[s][0], shapes[s][1]);
            for (size_t l = 0; l < sizeof levels / sizeof *levels; l++)
                if (attn_cpu_has_isa(levels[l]))
                    check(&p, levels[l], kinds[k].what);
            finish(&p);
        }
}

/* bf16 pairs at every level that has kernels for them, against sums in double. */
static void test_pairs(void **state)
{
    (void)state;
    const int32_t isas[] = {ATTN_ISA_SCALAR, ATTN_ISA_AVX512BF16, ATTN_ISA_NEONBF16};
    const int64_t shapes[][2] = {{32, 16}, {64, 40}, {13, 7}, {301, 75}}, counts[] = {1, 2, 11, 12, 13, MAX_ROWS};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const int64_t n_in = shapes[s][0], n_out = shapes[s][1];
        problem p = start((attn_linear_format){.format = ATTN_PANEL_P16}, n_in, n_out);
        float *row = malloc((size_t)n_in * sizeof *row), *first = malloc((size_t)(MAX_ROWS * p.ldy) * sizeof *first);
        for (size_t l = 0; l < sizeof isas / sizeof *isas; l++) {
            if (!attn_cpu_has_isa(isas[l]))
                continue;
            run(&p, isas[l], 1, MAX_ROWS);
            memcpy(first, p.y, (size_t)(MAX_ROWS * p.ldy) * sizeof *first);
            for (int64_t n = 0; n < n_out; n++) {
                attn_linear_row(&p.linear, n, row);
                for (int64_t m = 0; m < MAX_ROWS; m++) {
                    double sum = 0, size = 0;
                    for (int64_t k = 0; k < n_in; k++) {
                        const double term = (double)attn_bf16_to_f32(attn_f32_to_bf16(p.x[m * n_in + k])) * (double)row[k];
                        sum += term, size += fabs(term);
                    }
                    if (!(fabs((double)first[m * p.ldy + n] - sum) <= (double)n_in * 0x1p-23 * size))
                        fail_msg("pairs %s: y[%lld][%lld] is %.9g, not %.9g", attn_isa_name(isas[l]), (long long)m, (long long)n,
                                 (double)first[m * p.ldy + n], sum);
                }
            }
            for (size_t r = 0; r < sizeof counts / sizeof *counts; r++) {
                run(&p, isas[l], 3, counts[r]);
                for (int64_t m = 0; m < counts[r]; m++)
                    assert_memory_equal(p.y + m * p.ldy, first + m * p.ldy, (size_t)n_out * sizeof *first);
            }
        }
        free(row), free(first);
        finish(&p);
    }
}

/* Columns of W of very different norms, and inputs that are large where they are small: neither may rule the blocks of 32. */
static void lopsided_row(void *arg, int64_t row, float *out)
{
    const int64_t n_in = *(const int64_t *)arg;
    for (int64_t k = 0; k < n_in; k++)
        out[k] = sinf((float)(row * 131 + k * 17)) * exp2f((float)(k * 5 % 9) - 4.0f);
}

static double error_of(problem *p, int32_t isa)
{
    const int64_t n_in = p->linear.w.n_in, n_out = p->linear.w.n_out;
    float *row = malloc((size_t)n_in * sizeof *row);
    double error = 0, size = 0;
    run(p, isa, 1, MAX_ROWS);
    for (int64_t n = 0; n < n_out; n++) {
        lopsided_row((void *)(uintptr_t)&n_in, n, row);
        for (int64_t m = 0; m < MAX_ROWS; m++) {
            double exact = 0;
            for (int64_t k = 0; k < n_in; k++)
                exact += (double)row[k] * (double)p->x[m * n_in + k];
            error += ((double)p->y[m * p->ldy + n] - exact) * ((double)p->y[m * p->ldy + n] - exact);
            size += exact * exact;
        }
    }
    free(row);
    return sqrt(error / size);
}

static void test_balance(void **state)
{
    (void)state;
    const int64_t n_in = 320, n_out = 40;
    float scratch[320], got[320];
    problem p = start((attn_linear_format){ATTN_PANEL_D8, 32, 0, 0}, n_in, n_out);
    for (int64_t i = 0; i < MAX_ROWS * n_in; i++)
        p.x[i] *= exp2f(4.0f - (float)(i % n_in * 5 % 9));
    attn_linear_pack_rows(&p.linear, 0, attn_panel_count(&p.linear.w), lopsided_row, (void *)(uintptr_t)&n_in, scratch);
    const double plain = error_of(&p, attn_cpu_best_isa());
    assert_int_equal(attn_linear_balance(&p.linear, lopsided_row, (void *)(uintptr_t)&n_in, scratch), ATTN_OK);
    attn_linear_pack_rows(&p.linear, 0, attn_panel_count(&p.linear.w), lopsided_row, (void *)(uintptr_t)&n_in, scratch);
    const double balanced = error_of(&p, attn_cpu_best_isa());
    if (!(balanced < 0.05 && balanced < plain / 10))
        fail_msg("relative error %.5f, without balance %.5f", balanced, plain);
    for (int64_t k = 0; k < n_in; k++) {
        int exponent;
        assert_true(frexpf(p.linear.balance[k], &exponent) == 0.5f && exponent <= 1);
    }
    lopsided_row((void *)(uintptr_t)&n_in, 3, scratch);
    attn_linear_row(&p.linear, 3, got);
    for (int64_t k = 0; k < n_in; k++) /* a step of the block's scale, brought back */
        assert_true(fabsf(got[k] - scratch[k]) <= 16.0f / 127.0f * p.linear.balance[k]);
    for (int64_t i = 0; i < MAX_ROWS * n_in; i++)
        p.x[i] = uniform();
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++)
        if (attn_cpu_has_isa(levels[l]))
            check(&p, levels[l], "balanced");
    finish(&p);
}

static void test_not_finite(void **state)
{
    (void)state;
    const int32_t kinds[][2] = {{45, 0}, {64, 32}, {128, 64}}; /* inputs, and those of a scale */
    for (size_t i = 0; i < sizeof levels / sizeof *levels * 3; i++) {
        const int32_t isa = levels[i / 3], n_in = kinds[i % 3][0];
        if (!attn_cpu_has_isa(isa))
            continue;
        problem p = start((attn_linear_format){ATTN_PANEL_D8, kinds[i % 3][1], 0, 0}, n_in, 20);
        p.x[n_in + n_in - 1] = NAN;
        p.x[2 * n_in + 3] = -INFINITY;
        memset(p.x + 3 * n_in, 0, (size_t)n_in * sizeof *p.x);
        for (int k = 0; k < n_in; k++)
            p.x[4 * n_in + k] = 1e-44f;
        run(&p, isa, 1, 5);
        for (int n = 0; n < 20; n++) {
            assert_true(isfinite(p.y[n]));
            assert_true(isnan(p.y[p.ldy + n]) && !isfinite(p.y[2 * p.ldy + n]));
            assert_true(p.y[3 * p.ldy + n] == 0 && fabsf(p.y[4 * p.ldy + n]) < 1e-40f);
        }
        finish(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_levels), cmocka_unit_test(test_pairs), cmocka_unit_test(test_balance),
                                       cmocka_unit_test(test_not_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
