/* Linear layers: every format against one written loop, to the bit, for any rows, tiles and threads; GGUF blocks
 * against io/dequant. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "core/cpu.h"
#include "core/half.h"
#include "io/dequant.h"
#include "models/linear_blocks.h"

static uint64_t rng_state = 88172645463325252u;

static uint32_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (uint32_t)(rng_state >> 32);
}

static float uniform(void)
{
    return (float)(rng() >> 8) * 0x1p-23f - 1.0f;
}

static const int32_t levels[] = {ATTN_ISA_SCALAR, ATTN_ISA_AVX2, ATTN_ISA_AVX512, ATTN_ISA_NEON};

static float multiply_add(int32_t isa, float a, float b, float c)
{
    if (isa != ATTN_ISA_SCALAR)
        return fmaf(a, b, c);
    volatile float product = a * b;
    return product + c;
}

typedef struct matrix {
    const float *data;
    int64_t n_in;
} matrix;

static void matrix_row(void *arg, int64_t row, float *out)
{
    const matrix *m = arg;
    memcpy(out, m->data + row * m->n_in, (size_t)m->n_in * sizeof *out);
}

#define MOST_THREADS 3
static ATTN_ALIGN(64) float tiles[MOST_THREADS * ATTN_MATMUL_SCRATCH];

static void run(int32_t isa, int32_t threads, const attn_linear *linear, const float *x, int64_t rows, float *y,
                int64_t ldy)
{
    attn_linear_job job = {.linear = linear, .x = x, .ldx = linear->w.n_in, .y = y, .ldy = ldy};
    const attn_worker worker = {.kernels = attn_nn_kernels_for(isa), .n_threads = threads, .tiles = tiles};
    attn_linear_run(&worker, &job, 1, rows);
}

/* One accumulator per output, inputs in ascending order. */
static void check_linear(const attn_linear *linear, const char *what)
{
    const int64_t n_in = linear->w.n_in, n_out = linear->w.n_out, max_rows = 101, ldy = n_out + 3;
    float *x = malloc((size_t)(max_rows * n_in) * sizeof *x), *w = malloc((size_t)(n_out * n_in) * sizeof *w);
    float *y = malloc((size_t)(max_rows * ldy) * sizeof *y), *want = malloc((size_t)(max_rows * n_out) * sizeof *want);
    for (int64_t i = 0; i < max_rows * n_in; i++)
        x[i] = uniform();
    for (int64_t n = 0; n < n_out; n++)
        attn_linear_row(linear, n, w + n * n_in);
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        if (!attn_cpu_has_isa(levels[l]))
            continue;
        for (int64_t m = 0; m < max_rows; m++)
            for (int64_t n = 0; n < n_out; n++) {
                float sum = 0;
                for (int64_t k = 0; k < n_in; k++)
                    sum = multiply_add(levels[l], x[m * n_in + k], w[n * n_in + k], sum);
                want[m * n_out + n] = sum;
            }
        const int64_t rows[] = {1, 2, 3, 4, 5, 6, 7, 9, 13, 32, 33, 64, 96, 101};
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (int32_t threads = 1; threads <= 3; threads += 2) {
                for (int64_t i = 0; i < max_rows * ldy; i++)
                    y[i] = 12345.0f;
                run(levels[l], threads, linear, x, rows[r], y, ldy);
                for (int64_t m = 0; m < rows[r]; m++) {
                    for (int64_t n = 0; n < n_out; n++)
                        if (memcmp(&y[m * ldy + n], &want[m * n_out + n], sizeof *y))
                            fail_msg("%s %s: rows %lld, threads %d, y[%lld][%lld] is %.9g, not %.9g", what,
                                     attn_isa_name(levels[l]), (long long)rows[r], threads, (long long)m,
                                     (long long)n, (double)y[m * ldy + n], (double)want[m * n_out + n]);
                    for (int64_t n = n_out; n < ldy; n++)
                        assert_true(y[m * ldy + n] == 12345.0f);
                }
            }
    }
    free(x), free(w), free(y), free(want);
}

static void test_formats(void **state)
{
    (void)state;
    const attn_linear_format formats[] = {{ATTN_PANEL_F32, 0, 0, 0}, {ATTN_PANEL_BF16, 0, 0, 0},
                                          {ATTN_PANEL_F16, 0, 0, 0}, {ATTN_PANEL_I8, 32, 0, 0},
                                          {ATTN_PANEL_I8, 16, 1, 1}, {ATTN_PANEL_U4, 32, 1, 1},
                                          {ATTN_PANEL_U4, 32, 0, 1}};
    const int64_t shapes[][2] = {{32, 16}, {64, 40}, {288, 200}, {576, 33}, {13, 7}, {300, 129}, {832, 70}};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            const int64_t n_in = shapes[s][0], n_out = shapes[s][1];
            attn_linear linear;
            if (formats[f].format == ATTN_PANEL_U4 && n_in % 32) {
                assert_int_equal(attn_linear_create(&linear, formats[f], n_in, n_out), ATTN_ERR_INVALID_ARGUMENT);
                continue;
            }
            assert_int_equal(attn_linear_create(&linear, formats[f], n_in, n_out), ATTN_OK);
            float *data = malloc((size_t)(n_in * n_out) * sizeof *data), *scratch = malloc((size_t)n_in * sizeof *data);
            for (int64_t i = 0; i < n_in * n_out; i++)
                data[i] = uniform();
            matrix m = {data, n_in};
            attn_linear_pack_rows(&linear, 0, attn_panel_count(&linear.w), matrix_row, &m, scratch);
            for (int64_t n = 0; n < n_out; n++) { /* packing rounds by at most half a step */
                const float steps[] = {0, 0x1p-9f, 0x1p-12f, 0.5f / 127, 0.51f / 127, 1.01f / 15, 1.0f / 15};
                attn_linear_row(&linear, n, scratch);
                for (int64_t k = 0; k < n_in; k++)
                    assert_true(fabsf(scratch[k] - data[n * n_in + k]) <= steps[f] * 1.0001f);
            }
            check_linear(&linear, "pack_rows");
            attn_linear_destroy(&linear);
            free(data), free(scratch);
        }
}

static void test_gguf_blocks(void **state)
{
    (void)state;
    const uint32_t types[] = {ATTN_GGML_Q4_0, ATTN_GGML_Q4_1, ATTN_GGML_Q5_0, ATTN_GGML_Q5_1,
                              ATTN_GGML_Q8_0, ATTN_GGML_Q4_K, ATTN_GGML_Q5_K, ATTN_GGML_Q6_K};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const int64_t n_in = 512, n_out = 37;
        const attn_ggml_type_info *info = attn_ggml_type(types[t]);
        const int64_t blocks = n_in / info->block_elements, row_bytes = blocks * info->block_bytes;
        uint8_t *data = malloc((size_t)(n_out * row_bytes));
        for (int64_t i = 0; i < n_out * row_bytes; i++)
            data[i] = (uint8_t)rng();
        for (int64_t b = 0; b < n_out * blocks; b++) { /* f16 scales of sensible size wherever they stand */
            uint8_t *block = data + b * info->block_bytes;
            uint8_t *d = types[t] == ATTN_GGML_Q6_K ? block + 208 : block;
            for (int i = 0; i < (types[t] == ATTN_GGML_Q6_K ? 1 : 2); i++) {
                if (i == 1 && (types[t] == ATTN_GGML_Q8_0 || types[t] == ATTN_GGML_Q5_0 || types[t] == ATTN_GGML_Q4_0))
                    break;
                uint16_t h = attn_f32_to_f16(uniform() * 0.1f);
                d[2 * i] = (uint8_t)h;
                d[2 * i + 1] = (uint8_t)(h >> 8);
            }
        }
        float *want = malloc((size_t)(n_out * n_in) * sizeof *want), *row = malloc((size_t)n_in * sizeof *row);
        char error[256];
        assert_int_equal(attn_dequant(types[t], data, (size_t)(n_out * row_bytes), 0, n_out * n_in, want, error,
                                      sizeof error), ATTN_OK);
        attn_linear linear;
        assert_int_equal(attn_linear_create(&linear, attn_linear_format_of(types[t], n_in), n_in, n_out), ATTN_OK);
        assert_true(attn_linear_pack_blocks(&linear, 0, attn_panel_count(&linear.w), types[t], data, row_bytes));
        for (int64_t n = 0; n < n_out; n++) {
            attn_linear_row(&linear, n, row);
            for (int64_t k = 0; k < n_in; k++)
                if (row[k] != want[n * n_in + k])
                    fail_msg("%s: w[%lld][%lld] is %.9g, not %.9g", info->name, (long long)n, (long long)k,
                             (double)row[k], (double)want[n * n_in + k]);
        }
        check_linear(&linear, info->name);
        attn_linear_destroy(&linear);
        free(data), free(want), free(row);
    }
}

static void test_epilogue(void **state)
{
    (void)state;
    const int64_t n_in = 24, n_out = 50, rows = 9;
    float w[24 * 50], x[9 * 24], y[9 * 50], plain[9 * 50], residual[9 * 50], scratch[24];
    attn_linear linear;
    assert_int_equal(attn_linear_create(&linear, (attn_linear_format){0}, n_in, n_out), ATTN_OK);
    for (int i = 0; i < 24 * 50; i++)
        w[i] = uniform();
    for (int i = 0; i < 9 * 24; i++)
        x[i] = uniform();
    for (int i = 0; i < 9 * 50; i++)
        residual[i] = uniform();
    matrix m = {w, n_in};
    attn_linear_pack_rows(&linear, 0, attn_panel_count(&linear.w), matrix_row, &m, scratch);
    run(attn_cpu_best_isa(), 1, &linear, x, rows, plain, n_out);
    linear.bias = malloc((size_t)n_out * sizeof(float));
    for (int64_t n = 0; n < n_out; n++)
        linear.bias[n] = uniform();
    attn_linear_job job = {&linear, x, n_in, y, n_out, residual, n_out, ATTN_ACT_RELU};
    const attn_worker worker = {.kernels = attn_nn_kernels_for(attn_cpu_best_isa()), .n_threads = 2, .tiles = tiles};
    attn_linear_run(&worker, &job, 1, rows);
    for (int64_t i = 0; i < rows * n_out; i++) {
        float z = plain[i] + linear.bias[i % n_out];
        assert_true(y[i] == (z > 0 ? z : 0) + residual[i]);
    }
    attn_linear_destroy(&linear);
}

/* Pieces are aligned and apart from one another, also behind one that is larger than a chunk. */
static void test_shared_memory(void **state)
{
    (void)state;
    const int64_t shapes[][2] = {{40, 17}, {1024, 9000}, {1, 1}, {96, 160}}; /* the second: 37 MB */
    attn_linear_memory memory = {.expected = 1000};
    attn_linear linears[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(attn_linear_create_in(&memory, &linears[i], (attn_linear_format){0}, shapes[i][0], shapes[i][1]), ATTN_OK);
        assert_int_equal((uintptr_t)linears[i].w.values % 64, 0);
        memset(linears[i].w.values, i + 1, linears[i].bytes);
    }
    for (int i = 0; i < 4; i++) {
        const uint8_t *bytes = linears[i].w.values;
        for (size_t k = 0; k < linears[i].bytes; k++)
            if (bytes[k] != i + 1)
                fail_msg("matrix %d: byte %zu belongs to another one", i, k);
    }
    for (int i = 0; i < 4; i++)
        attn_linear_destroy(&linears[i]);
    attn_linear_memory_free(&memory);
    assert_null(memory.chunks);
}

/* Many rows on a thread with little stack, as musl and some runtimes give: the tiles' memory is the worker's. */
typedef struct small_stack {
    int32_t isa;
    const attn_linear *linear;
    const float *x;
    float *y;
} small_stack;

static void *run_there(void *arg)
{
    const small_stack *s = arg;
    run(s->isa, 1, s->linear, s->x, 96, s->y, s->linear->w.n_out);
    return NULL;
}

static void test_small_stack(void **state)
{
    (void)state;
    enum { N_IN = 800, N_OUT = 70, ROWS = 96 };
    const long least = sysconf(_SC_THREAD_STACK_MIN), stack = least > 64 << 10 ? least : 64 << 10;
    static float w[N_OUT * N_IN], x[ROWS * N_IN], here[ROWS * N_OUT], there[ROWS * N_OUT], scratch[N_IN];
    const int32_t formats[] = {ATTN_PANEL_F32, ATTN_PANEL_BF16};
    for (int i = 0; i < N_OUT * N_IN; i++)
        w[i] = uniform();
    for (int i = 0; i < ROWS * N_IN; i++)
        x[i] = uniform();
    matrix m = {w, N_IN};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        attn_linear linear;
        assert_int_equal(attn_linear_create(&linear, (attn_linear_format){.format = formats[f]}, N_IN, N_OUT), ATTN_OK);
        attn_linear_pack_rows(&linear, 0, attn_panel_count(&linear.w), matrix_row, &m, scratch);
        for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
            small_stack s = {levels[l], &linear, x, there};
            pthread_attr_t attributes;
            pthread_t thread;
            if (!attn_cpu_has_isa(levels[l]))
                continue;
            memset(there, 0, sizeof there);
            run(levels[l], 1, &linear, x, ROWS, here, N_OUT);
            assert_int_equal(pthread_attr_init(&attributes), 0);
            assert_int_equal(pthread_attr_setstacksize(&attributes, (size_t)stack), 0);
            assert_int_equal(pthread_create(&thread, &attributes, run_there, &s), 0);
            assert_int_equal(pthread_join(thread, NULL), 0);
            pthread_attr_destroy(&attributes);
            assert_memory_equal(here, there, sizeof here);
        }
        attn_linear_destroy(&linear);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_formats), cmocka_unit_test(test_gguf_blocks),
                                       cmocka_unit_test(test_epilogue), cmocka_unit_test(test_shared_memory),
                                       cmocka_unit_test(test_small_stack)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
