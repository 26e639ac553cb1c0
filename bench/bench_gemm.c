/* bench_gemm [THREADS [FILTER]] [--bf16] [--cpu-time]: GFLOP/s of the general product at the shapes of training
 * (baby GPT, nano, GPT-2 124M), median of 3 to 400 runs in half a second, and the share of this machine's
 * multiply-add peak (one core times THREADS), measured just after. */
#include <string.h>
#include "bench_clock.h"
#include "bench_peak.h"
#include "core/pages.h"
#include "kernels/nn/nn_pair.h"
#include "ops/nn/gemm.h"
#include "ops/nn/nn_parallel.h"

typedef struct shape {
    const char *what;
    int32_t kind;
    int64_t m, n, k;
} shape;

static const shape shapes[] = {
    {"baby qkv", ATTN_GEMM_NT, 3072, 1152, 384},    {"baby up", ATTN_GEMM_NT, 3072, 1536, 384},
    {"baby down", ATTN_GEMM_NT, 3072, 384, 1536},   {"baby d_x of up", ATTN_GEMM_NN, 3072, 384, 1536},
    {"baby d_W of up", ATTN_GEMM_TN, 1536, 384, 3072}, {"nano up", ATTN_GEMM_NT, 768, 512, 128},
    {"nano d_W of up", ATTN_GEMM_TN, 512, 128, 768}, {"nano out", ATTN_GEMM_NT, 768, 128, 128},
    {"nano d_x of up", ATTN_GEMM_NN, 768, 128, 512}, {"nano d_x of down", ATTN_GEMM_NN, 768, 512, 128},
    {"nano logits", ATTN_GEMM_NT, 768, 65, 128},    {"124M up", ATTN_GEMM_NT, 256, 3072, 768},
    {"124M d_W of up", ATTN_GEMM_TN, 3072, 768, 256}, {"124M logits", ATTN_GEMM_NT, 160, 50257, 768},
};

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* From where training has its arrays. */
static float *numbers(int64_t n)
{
    float *x = attn_pages_allocate((size_t)n * sizeof *x);
    if (!x)
        exit(1);
    memset(x, 0, (size_t)n * sizeof *x);
    return x;
}

/* The best level, or the one that ATTN_ISA names. */
static int32_t bench_isa(void)
{
    const char *name = getenv("ATTN_ISA");
    return name ? attn_isa_from_name(name) : attn_cpu_best_isa();
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[argc - 1], "--cpu-time")) { /* with one thread: processor time, for machines with other work */
        bench_clock = CLOCK_PROCESS_CPUTIME_ID;
        argc--;
    }
    const bool bf16 = argc > 1 && !strcmp(argv[argc - 1], "--bf16"); /* the share is still that of f32's peak */
    argc -= bf16;
    int32_t threads = argc > 1 ? atoi(argv[1]) : 1;
    const int32_t isa = bench_isa();
    attn_team team = {.kernels = attn_nn_kernels_for(isa), .pairs = attn_pair_gemm(isa),
                      .products = bf16 ? ATTN_BF16 : ATTN_F32, .parallel_for = attn_nn_parallel_for,
                      .parallel_for_user = &threads, .n_threads = threads};
    team.scratch = bench_memory(ATTN_TEAM_SCRATCH * (size_t)threads);
    printf("%s, %d thread(s)\n", team.kernels->isa, threads);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const shape *p = &shapes[s];
        if (argc > 2 && !strstr(p->what, argv[2]))
            continue;
        const int64_t lda = p->kind == ATTN_GEMM_TN ? p->m : p->k, ldb = p->kind == ATTN_GEMM_NT ? p->k : p->n;
        float *a = numbers(p->m * p->k), *b = numbers(p->n * p->k), *c = numbers(p->m * p->n);
        for (int64_t i = 0; i < p->m * p->k; i++)
            a[i] = (float)(i % 17) * 0.1f;
        for (int64_t i = 0; i < p->n * p->k; i++)
            b[i] = (float)(i % 13) * 0.1f;
        const attn_gemm_args g = {.kind = p->kind, .m = p->m, .n = p->n, .k = p->k, .a = a, .lda = lda, .b = b, .ldb = ldb,
                                  .c = c, .ldc = p->n, .accumulate = p->kind == ATTN_GEMM_TN};
        double seconds[400];
        int runs = 0;
        const double start = bench_now();
        for (; runs < 400 && (runs < 3 || bench_now() - start < 0.5); runs++) {
            const double from = bench_now();
            attn_gemm(&team, &g);
            seconds[runs] = bench_now() - from;
        }
        qsort(seconds, (size_t)runs, sizeof *seconds, ascending);
        const double rate = 2e-9 * (double)p->m * (double)p->n * (double)p->k / seconds[runs / 2];
        const double peak = bench_peak_f32() * threads;
        printf("%-16s %s %6lld x %6lld x %5lld %8.1f GFLOP/s  %4.0f %% of %.0f\n", p->what,
               p->kind == ATTN_GEMM_NN ? "NN" : p->kind == ATTN_GEMM_NT ? "NT" : "TN", (long long)p->m, (long long)p->n,
               (long long)p->k, rate, 100 * rate / peak, peak);
        free(a), free(b), free(c);
    }
    free(team.scratch);
    return 0;
}
