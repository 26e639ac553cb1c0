/* bench_linear [THREADS [FORMAT [N_IN N_OUT]]] [--cpu-time]: linear layers over packed weights (768 in, 3,072 out),
 * GFLOP/s of the best run of half a second for 1 to 96 rows, warm, and with one row GB/s over 160 MB of weights. FORMAT:
 * f32, bf16, f16, i8, i8m or u4, with 8-bit activations d8 and d4, with activations of bf16 p16. */
#include "bench_clock.h"
#include "bench_peak.h"
#include "ops/nn/linear.h"

enum { MOST_IN = 1 << 16, MOST_ROWS = 96, MANY = 160000000 };
static int64_t n_in = 768, n_out = 3072;

typedef struct bench_case {
    attn_linear *layers;
    int64_t n, rows;
    attn_worker worker;
    float *x, *y;
} bench_case;

static void random_row(void *arg, int64_t row, float *out)
{
    (void)arg;
    for (int64_t k = 0; k < n_in; k++)
        out[k] = (float)((row * 131 + k * 7919) % 1000) * 1e-3f - 0.5f;
}

static void run(void *arg)
{
    const bench_case *c = arg;
    for (int64_t i = 0; i < c->n; i++) {
        const attn_linear_job job = {.linear = &c->layers[i], .x = c->x, .ldx = n_in, .y = c->y, .ldy = n_out};
        attn_linear_run(&c->worker, &job, 1, c->rows);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        attn_linear_format format;
        int32_t act_i8;
    } formats[] = {{"f32", {ATTN_PANEL_F32, 0, 0, 0}, 0}, {"bf16", {ATTN_PANEL_BF16, 0, 0, 0}, 0}, {"f16", {ATTN_PANEL_F16, 0, 0, 0}, 0},
                   {"i8", {ATTN_PANEL_I8, 32, 1, 0}, 0},  {"i8m", {ATTN_PANEL_I8, 32, 1, 1}, 0},   {"u4", {ATTN_PANEL_U4, 32, 1, 1}, 0},
                   {"d8", {ATTN_PANEL_D8, 32, 0, 0}, 1},  {"d4", {ATTN_PANEL_U4, 32, 1, 1}, 1},   {"p16", {ATTN_PANEL_P16, 0, 0, 0}, 0}};
    static const int64_t rows[] = {1, 2, 3, 4, 5, 6, 8, 12, 32, 96};
    if (argc > 1 && !strcmp(argv[argc - 1], "--cpu-time")) { /* with one thread: processor time, for machines with other work */
        bench_clock = CLOCK_PROCESS_CPUTIME_ID;
        argc--;
    }
    if (argc > 4)
        n_in = atoll(argv[3]), n_out = atoll(argv[4]);
    if (n_in < 1 || n_in > MOST_IN || n_out < 1)
        return 2;
    bench_case c = {.n = 1};
    c.worker = (attn_worker){.kernels = attn_nn_kernels_for(attn_cpu_best_isa()), .dot = attn_dot_kernels_for(attn_cpu_best_isa()),
                             .pair = attn_pair_kernels_for(attn_cpu_best_isa()), .n_threads = argc > 1 ? atoi(argv[1]) : 1,
                             .scratch = bench_memory(attn_linear_scratch(MOST_ROWS, n_in))};
    c.worker.tiles = bench_memory(attn_linear_tiles(c.worker.n_threads));
    c.x = bench_memory((size_t)n_in * MOST_ROWS * sizeof *c.x);
    c.y = bench_memory((size_t)n_out * MOST_ROWS * sizeof *c.y);
    for (int64_t k = 0; k < n_in * MOST_ROWS; k++)
        c.x[k] = (float)(k % 37) / 37 - 0.5f;
    printf("%s, %d thread(s), peak %.1f GFLOP/s a core\nrows  ", c.worker.kernels->isa, c.worker.n_threads, bench_peak_f32());
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        printf("%7lld", (long long)rows[r]);
    printf("   1 row from memory\n");
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        if (argc > 2 && strcmp(argv[2], formats[f].name))
            continue;
        static float scratch[MOST_IN];
        attn_linear first;
        if (attn_linear_create(&first, formats[f].format, n_in, n_out) != ATTN_OK)
            return 1;
        const int64_t many = MANY / (int64_t)first.bytes + 1;
        c.layers = bench_memory((size_t)many * sizeof *c.layers);
        c.layers[0] = first;
        attn_linear_pack_rows(&first, 0, attn_panel_count(&first.w), random_row, NULL, scratch);
        for (int64_t i = 1; i < many; i++) {
            if (attn_linear_create(&c.layers[i], formats[f].format, n_in, n_out) != ATTN_OK)
                return 1;
            memcpy(c.layers[i].w.values, first.w.values, first.bytes);
        }
        for (int64_t i = 0; i < many; i++)
            c.layers[i].act_i8 = formats[f].act_i8;
        printf("%-6s", formats[f].name);
        c.n = 1;
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            c.rows = rows[r];
            printf("%7.1f", 2e-9 * (double)(n_in * n_out * c.rows) / bench_measure(run, &c, 0.5, 5, 200).best);
            fflush(stdout);
        }
        c.n = many, c.rows = 1;
        printf("   %.1f GB/s\n", 1e-9 * (double)first.bytes * (double)many / bench_measure(run, &c, 1, 5, 200).best);
        for (int64_t i = 0; i < many; i++)
            attn_linear_destroy(&c.layers[i]);
        free(c.layers);
    }
    free(c.x), free(c.y), free(c.worker.scratch), free(c.worker.tiles);
    return 0;
}
