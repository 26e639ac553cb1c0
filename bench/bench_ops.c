/* bench_ops - the operator's fixed shapes beside what this machine can do at most.
 *
 *   bench_ops [--json] [--shapes S1,cliffs] [--dtypes f32,i8] [--threads 1,2] [--seconds 0.8] [--isa avx2] [--list]
 *            [--rows-only] [--cpu-time]
 *
 * Shapes: S1 to S13 by default; "cliffs" (odd sizes, each held against the next multiple of 16), "million" (one head, 1,000,000 tokens,
 * causal, d 64: a quarter of an hour), "million-end" (its last 8,192 rows alone), or any id that --list prints. Or one of your own:
 * --shape BATCH,HEADS,KV_HEADS,QUERIES,KEYS,DIM,none|causal
 *
 * Rates count admitted pairs only: 4 * pairs * head_dim operations, 10 for a backward pass; S7 and S8: bytes of keys and values.
 * The limit is the multiply-add peak of one core times the threads (bf16: of the bf16 dot product where the CPU has one), or
 * the read rate of the same arrays; it is measured between the runs of the row. "share" compares the best run with the best
 * limit of the same seconds. Error: 64 rows against sums in double, relative to sum_j w_j |v_j|; backward: one head, relative.
 * Memory: growth of the resident size in the first call. --cpu-time: rows with one thread are timed by processor time instead of
 * the clock on the wall, for machines with other work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bench_peak.h"
#include "ops_problem.h"

#define D_CLIFF(n, next) {"d " #n, 1, 8, 8, 1024, 1024, n, CAUSAL, 0, F32 | BF16, false, false, "d " #next, 1}
#define N_CLIFF(n, next) {"N " #n, 1, 16, 16, n, n, 64, NONE, 0, F32 | BF16, false, false, "N " #next, 1}
#define G_CLIFF(n) {"Hkv " #n, 1, 4 * n, n, 512, 512, 64, CAUSAL, 0, F32 | BF16, false, false, "Hkv 16", n / 16.0}
#define Q_CLIFF(n) {"block " #n, 1, 32, 8, n, 8192, 128, CAUSAL, 0, F32 | BF16, false, false, "block 16", 1}

static const shape shapes[] = {
    {"S1", 1, 12, 12, 1024, 1024, 64, CAUSAL, 0, F32 | BF16, false, false, NULL, 0},
    {"S2", 1, 32, 8, 2048, 2048, 128, CAUSAL, 0, F32 | BF16 | F16, false, false, NULL, 0},
    {"S3", 1, 8, 8, 8192, 8192, 128, CAUSAL, 0, F32 | BF16, false, false, NULL, 0},
    {"S4", 32, 12, 12, 128, 128, 32, LENGTHS, 0, F32, false, false, NULL, 0},
    {"S5", 8, 12, 12, 512, 512, 64, NONE, 0, F32 | BF16, false, false, NULL, 0},
    {"S6", 4, 16, 16, 577, 577, 64, NONE, 0, F32, false, false, NULL, 0},
    {"S7", 1, 32, 8, 1, 8192, 128, NONE, 0, F32 | BF16 | F16 | I8, true, false, NULL, 0},
    {"S8", 16, 32, 8, 1, 2048, 128, NONE, 0, F32 | BF16 | F16 | I8, true, false, NULL, 0},
    {"S9", 1, 1, 1, 131072, 131072, 64, CAUSAL, 0, F32, false, false, NULL, 0},
    {"S10", 1, 8, 8, 16384, 16384, 128, WINDOW, 1024, F32, false, false, NULL, 0},
    {"S11", 4, 12, 12, 1024, 1024, 64, CAUSAL, 0, F32 | BF16, false, true, NULL, 0},
    {"S12", 1, 16, 16, 1024, 1024, 64, BIAS, 0, F32, false, false, NULL, 0},
    {"S13", 1, 4, 4, 16, 16, 32, CAUSAL, 0, F32, false, false, NULL, 0},
    {"million", 1, 1, 1, 1000000, 1000000, 64, CAUSAL, 0, F32, false, false, NULL, 0},
    {"million-end", 1, 1, 1, 8192, 1000000, 64, CAUSAL, 0, F32, false, false, NULL, 0},
    D_CLIFF(72, 80), D_CLIFF(80, 96), D_CLIFF(96, 112), D_CLIFF(112, 128), D_CLIFF(160, 176), D_CLIFF(256, 272),
    D_CLIFF(128, 144), D_CLIFF(176, 192), D_CLIFF(272, 288), D_CLIFF(144, 160), D_CLIFF(192, 208), D_CLIFF(208, 224), D_CLIFF(288, 304),
    N_CLIFF(1, 16), N_CLIFF(7, 16), N_CLIFF(33, 48), N_CLIFF(577, 592), N_CLIFF(1000, 1008), N_CLIFF(1025, 1040),
    N_CLIFF(16, 32), N_CLIFF(48, 64), N_CLIFF(592, 608), N_CLIFF(1008, 1024), N_CLIFF(1040, 1056),
    G_CLIFF(1), G_CLIFF(3), G_CLIFF(5), G_CLIFF(16),
    Q_CLIFF(2), Q_CLIFF(3), Q_CLIFF(4), Q_CLIFF(5), Q_CLIFF(6), Q_CLIFF(7), Q_CLIFF(8), Q_CLIFF(9), Q_CLIFF(10), Q_CLIFF(11),
    Q_CLIFF(12), Q_CLIFF(13), Q_CLIFF(14), Q_CLIFF(15), Q_CLIFF(16),
};
/* The rows of "cliffs" (issue: "any odd shape"); other shapes of the table are only references. */
static const char *const cliffs =
    "d 72,d 80,d 96,d 112,d 160,d 256,N 1,N 7,N 33,N 577,N 1000,N 1025,Hkv 1,Hkv 3,Hkv 5,block 2,block 3,block 4,block 5,"
    "block 6,block 7,block 8,block 9,block 10,block 11,block 12,block 13,block 14,block 15";
static const char *const usual = "S1,S2,S3,S4,S5,S6,S7,S8,S9,S10,S11,S12,S13";
static const char *const type_names[] = {"f32", "bf16", "f16", "i8"};
static const int32_t type_codes[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_I8};

typedef struct settings {
    const char *shapes, *dtypes, *threads;
    double seconds;
    bool json, rows_only, cpu_time; /* rows_only: without the line about the machine */
    int32_t isa;
} settings;

typedef struct found {
    double median, best, worst, limit; /* seconds a call; GFLOP/s or GB/s of all threads */
    int runs;
} found;

static bool listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, word, n) && (at[n] == ',' || at[n] == 0))
            return true;
    return !list;
}

static void call(const problem *b, bool backward)
{
    attn_status status = backward ? attn_sdpa_backward(b->ctx, &b->grad, NULL, 0) : attn_sdpa_forward(b->ctx, &b->args, NULL, 0);
    if (status != ATTN_OK) {
        fprintf(stderr, "%s: %s\n", b->s->id, attn_ctx_error(b->ctx));
        exit(1);
    }
}

static double limit_once(const problem *b, int32_t isa)
{
    const shape *s = b->s;
    size_t bytes = (size_t)(s->B * s->Hkv * s->Nk * s->d) * attn_dtype_size(b->dtype);
    double one = 0;
    if (s->reads) {
        double key = bench_read_rate(b->ctx, b->args.key.data, bytes), value = bench_read_rate(b->ctx, b->args.value.data, bytes);
        return 2 / (1 / key + 1 / value);
    }
    if (b->dtype == ATTN_BF16 && (isa == ATTN_ISA_AVX512BF16 || isa == ATTN_ISA_NEONBF16))
        one = bench_peak_bf16_of(1);
    return attn_ctx_threads(b->ctx) * (one > 0 ? one : bench_peak_at(isa, 1));
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs and limits in turns. Calls shorter than a millisecond are timed in loops of about one. */
static found measure(const problem *b, bool backward, const settings *how, int32_t isa)
{
    enum { MOST = 300 };
    double taken[MOST], start = bench_now(), one;
    found f = {0, 0, 0, 0, 0};
    call(b, backward);
    one = bench_now() - start;
    if (one < 0.01) { /* once more, warm */
        start = bench_now();
        call(b, backward);
        one = bench_now() - start;
    }
    if (one > 10) { /* too long to repeat: the first run counts, between two limits */
        taken[f.runs++] = one;
        f.limit = limit_once(b, isa);
    }
    int inner = one < 1e-3 ? (int)(1e-3 / (one + 1e-9)) : 1;
    for (double from = bench_now(); one <= 10 && f.runs < MOST && (f.runs < 3 || bench_now() - from < how->seconds); f.runs++) {
        double limit = limit_once(b, isa);
        f.limit = limit > f.limit ? limit : f.limit;
        start = bench_now();
        for (int i = 0; i < inner; i++)
            call(b, backward);
        taken[f.runs] = (bench_now() - start) / inner;
    }
    for (int n = 0; n < 3; n++) {
        double limit = limit_once(b, isa);
        f.limit = limit > f.limit ? limit : f.limit;
    }
    qsort(taken, (size_t)f.runs, sizeof *taken, ascending);
    f.median = f.runs % 2 ? taken[f.runs / 2] : 0.5 * (taken[f.runs / 2 - 1] + taken[f.runs / 2]);
    f.best = taken[0], f.worst = taken[f.runs - 1];
    return f;
}

/* Seconds of row and reference, in turns; for cliffs. 0: the table has no such reference. */
static double reference_best(const shape *s, int32_t dtype, int32_t threads, const settings *how, double *best)
{
    problem pair[2];
    double least[2] = {1e9, 1e9};
    const shape *reference = NULL;
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
        if (!strcmp(shapes[n].id, s->reference))
            reference = &shapes[n];
    if (!reference)
        return 0;
    problem_make(&pair[1], reference, dtype);
    problem_make(&pair[0], s, dtype);
    pair[0].ctx = pair[1].ctx = bench_context(threads, how->isa);
    call(&pair[0], false), call(&pair[1], false);
    double start = bench_now();
    for (int turn = 0; turn < 300 && (turn < 5 || bench_now() - start < how->seconds); turn++)
        for (int n = 0; n < 2; n++) {
            double from = bench_now(), took;
            int calls = 0;
            do {
                call(&pair[n], false);
                calls++;
            } while (bench_now() - from < 2e-4);
            took = (bench_now() - from) / calls;
            least[n] = took < least[n] ? took : least[n];
        }
    attn_ctx_destroy(pair[0].ctx);
    problem_free(&pair[0]), problem_free(&pair[1]);
    *best = least[0];
    return least[1];
}

static void print_row(const problem *b, bool backward, int32_t threads, const settings *how)
{
    const shape *s = b->s;
    attn_sdpa_plan plan;
    ATTN_ARGS_INIT(&plan);
    attn_sdpa_describe(b->ctx, &b->args, &plan);
    int32_t isa = how->isa ? how->isa : attn_isa_from_name(plan.isa);
    bench_reset_peak();
    double before = bench_memory_mb("VmRSS:");
    if (s->Nq <= 131072)
        call(b, backward);
    double grown = bench_memory_mb("VmHWM:") - before;
    found f = measure(b, backward, how, isa);
    double flops = (backward ? 10 : 4) * pairs_of(b) * (double)s->d;
    double amount = s->reads ? 2.0 * (double)(s->B * s->Hkv * s->Nk * s->d) * (double)attn_dtype_size(b->dtype) : flops;
    double error = backward ? backward_error(b) : forward_error(b), rate = amount / f.best * 1e-9, same = 0, best = 0;
    if (s->reference)
        same = reference_best(s, b->dtype, threads, how, &best);
    if (how->json) {
        printf("{\"kind\": \"row\", \"shape\": \"%s\", \"pass\": \"%s\", \"dtype\": \"%s\", \"threads\": %d, \"isa\": \"%s\", "
               "\"kernel\": \"%s\", \"median_s\": %.9g, \"best_s\": %.9g, \"worst_s\": %.9g, \"runs\": %d, \"rate\": %.4g, "
               "\"unit\": \"%s\", \"limit\": %.4g, \"share\": %.4f, \"gflops\": %.4g, \"peak\": %.4g, \"error\": %.3g, "
               "\"memory_mb\": %.1f, \"clock\": \"%s\"",
               s->id, backward ? "backward" : "forward", attn_dtype_name(b->dtype),
               threads, plan.isa, backward ? "" : plan.kernel, f.median, f.best, f.worst, f.runs, rate, s->reads ? "GB/s" : "GFLOP/s",
               f.limit, rate / f.limit, flops / f.best * 1e-9, threads * bench_peak_at(isa, 3), error, grown,
               bench_clock == CLOCK_MONOTONIC ? "wall" : "processor");
        if (same > 0)
            printf(", \"reference\": \"%s\", \"ratio\": %.4f", s->reference, best / same / s->share);
        printf("}\n");
    } else {
        printf("%-11s %-4s%-5s %2d %11.4f %11.4f %8.1f %-8s %6.1f %% of %6.1f %9.2g", s->id,
               attn_dtype_name(b->dtype), backward ? " back" : "",
               threads, f.median * 1e3, f.best * 1e3, rate, s->reads ? "GB/s" : "GFLOP/s", 100 * rate / f.limit, f.limit, error);
        if (same > 0)
            printf("  %.2f of %s", best / same / s->share, s->reference);
        printf("\n");
    }
    fflush(stdout);
}

static void print_host(const settings *how)
{
    int all = attn_ctx_threads(NULL);
    double avx2 = attn_cpu_has_isa(ATTN_ISA_AVX2) ? bench_peak_at(ATTN_ISA_AVX2, PASSES) : 0;
    if (how->json)
        printf("{\"kind\": \"host\", \"version\": \"%s\", \"isa\": \"%s\", \"threads\": %d, \"compiler\": \"%s\", \"peak_f32\": %.1f, "
               "\"peak_bf16\": %.1f, \"peak_avx2\": %.1f, \"peak_u8s8\": %.1f, \"read_1\": %.1f, \"read_all\": %.1f}\n",
               attn_version(), attn_ctx_isa(NULL), all, __VERSION__, bench_peak_f32(), bench_peak_bf16(), avx2,
               bench_peak_u8s8(), bench_read_bandwidth(1), bench_read_bandwidth(all));
    else
        printf("attn %s, %s, %d threads; one core: f32 %.1f GFLOP/s, bf16 dot product %.1f, AVX2 %.1f; reads: %.1f GB/s with 1 thread, "
               "%.1f with all\nrow         type   threads  median ms     best ms   rate (best)   share of the limit      error\n",
               attn_version(), attn_ctx_isa(NULL), all, bench_peak_f32(), bench_peak_bf16(), avx2, bench_read_bandwidth(1),
               bench_read_bandwidth(all));
    fflush(stdout);
}

static void run_shape(const shape *s, const settings *how)
{
    int all = attn_ctx_threads(NULL), counts[2] = {1, all};
    for (int t = 0; t < 4; t++) {
        problem b;
        if (!(s->types >> t & 1) || !listed(how->dtypes, type_names[t]))
            continue;
        problem_make(&b, s, type_codes[t]);
        for (int c = 0; c < (all > 1 ? 2 : 1); c++) {
            char text[16];
            snprintf(text, sizeof text, "%d", counts[c]);
            if (!listed(how->threads, text))
                continue;
            b.ctx = bench_context(counts[c], how->isa);
            bench_clock = how->cpu_time && counts[c] == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
            print_row(&b, false, counts[c], how);
            if (s->backward)
                print_row(&b, true, counts[c], how);
            attn_ctx_destroy(b.ctx);
        }
        problem_free(&b);
    }
}

static void run_own(const char *text, const settings *how)
{
    long long n[6];
    char mask[16] = "";
    if (sscanf(text, "%lld,%lld,%lld,%lld,%lld,%lld,%15s", &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], mask) != 7) {
        fprintf(stderr, "--shape is \"%s\", not BATCH,HEADS,KV_HEADS,QUERIES,KEYS,DIM,none|causal\n", text);
        exit(2);
    }
    shape own = {text, n[0], n[1], n[2], n[3], n[4], n[5], !strcmp(mask, "causal") ? CAUSAL : NONE, 0, F32 | BF16 | F16 | I8,
                 false, false, NULL, 0};
    run_shape(&own, how);
}

static void print_list(void)
{
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
        for (int t = 0; t < 4; t++)
            if (shapes[n].types >> t & 1)
                printf("%s\t%s\t%s\n", shapes[n].id, type_names[t],
                       listed(usual, shapes[n].id) ? "usual" : listed(cliffs, shapes[n].id) ? "cliffs" : "other");
}

int main(int argc, char **argv)
{
    const char *own = NULL;
    settings how = {usual, NULL, NULL, 0.8, false, false, false, 0};
    for (int n = 1; n < argc; n++) {
        const char *value = n + 1 < argc ? argv[n + 1] : NULL;
        if (!strcmp(argv[n], "--json"))
            how.json = true;
        else if (!strcmp(argv[n], "--rows-only"))
            how.rows_only = true;
        else if (!strcmp(argv[n], "--cpu-time"))
            how.cpu_time = true;
        else if (!strcmp(argv[n], "--list")) {
            print_list();
            return 0;
        } else if (!strcmp(argv[n], "--shapes") && value)
            how.shapes = argv[++n];
        else if (!strcmp(argv[n], "--shape") && value)
            own = argv[++n];
        else if (!strcmp(argv[n], "--dtypes") && value)
            how.dtypes = argv[++n];
        else if (!strcmp(argv[n], "--threads") && value)
            how.threads = argv[++n];
        else if (!strcmp(argv[n], "--seconds") && value)
            how.seconds = atof(argv[++n]);
        else if (!strcmp(argv[n], "--isa") && value && attn_isa_from_name(value) > 0)
            how.isa = attn_isa_from_name(argv[++n]);
        else {
            fprintf(stderr, "usage: bench_ops [--json] [--shapes S1,cliffs] [--dtypes f32,bf16] [--threads 1,2] [--seconds 0.8]"
                            " [--isa avx2] [--list] [--rows-only] [--cpu-time]\n");
            return 2;
        }
    }
    if (!how.rows_only)
        print_host(&how);
    if (own) {
        run_own(own, &how);
        return 0;
    }
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
        if (listed(how.shapes, shapes[n].id) || (listed(how.shapes, "cliffs") && listed(cliffs, shapes[n].id)))
            run_shape(&shapes[n], &how);
    return 0;
}
