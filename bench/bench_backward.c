/* bench_backward.c - times attn_sdpa_backward. Usage: bench_backward [THREADS [FILTER]]. GFLOP/s count useful work only:
 * 5 products of 2 * pairs * dim, pairs being those that the mask admits. The peak is measured between the rows. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "attn/attn.h"
#include "core/compiler.h"
#include "core/half.h"

#if ATTN_ARCH_X86_64
#include <immintrin.h>
#endif

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#if ATTN_ARCH_X86_64
/* 12 chains of fused multiply-adds on registers: AVX2's most, in GFLOP/s. */
__attribute__((target("avx2,fma"))) static double peak_once(void)
{
    __m256 sum[12], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
    for (int n = 0; n < 12; n++)
        sum[n] = _mm256_set1_ps((float)n);
    const long rounds = 200000;
    double start = seconds();
    for (long r = 0; r < rounds; r++) {
#pragma GCC unroll 12
        for (int n = 0; n < 12; n++)
            sum[n] = _mm256_fmadd_ps(sum[n], x, y);
    }
    double took = seconds() - start;
    volatile float sink = 0;
    for (int n = 0; n < 12; n++)
        sink += _mm256_cvtss_f32(sum[n]);
    (void)sink;
    return (double)rounds * 12 * 16 / took * 1e-9;
}
#else
static double peak_once(void)
{
    return NAN;
}
#endif

typedef struct shape {
    const char *name;
    int64_t batch, heads, kv_heads, n, dim;
    int32_t dtype;
    bool causal;
    int64_t window; /* keys before; 0: open */
    bool bias;
} shape;

static const shape shapes[] = {
    {"S11 f32", 4, 12, 12, 1024, 64, ATTN_F32, true, 0, false},
    {"S11 bf16", 4, 12, 12, 1024, 64, ATTN_BF16, true, 0, false},
    {"S11 f16", 4, 12, 12, 1024, 64, ATTN_F16, true, 0, false},
    {"S11, 1 head", 1, 1, 1, 1024, 64, ATTN_F32, true, 0, false},
    {"full d64", 1, 12, 12, 1024, 64, ATTN_F32, false, 0, false},
    {"causal d128", 1, 8, 2, 2048, 128, ATTN_F32, true, 0, false},
    {"causal d128, 1", 1, 1, 1, 768, 128, ATTN_F32, true, 0, false},
    {"full d128", 1, 4, 4, 2048, 128, ATTN_F32, false, 0, false},
    {"window 512", 1, 4, 4, 4096, 64, ATTN_F32, true, 511, false},
    {"8192, 1 head", 1, 1, 1, 8192, 64, ATTN_F32, true, 0, false},
    {"d 32", 4, 12, 12, 512, 32, ATTN_F32, false, 0, false},
    {"d 80", 1, 12, 12, 1024, 80, ATTN_F32, true, 0, false},
    {"d 256", 1, 4, 4, 1024, 256, ATTN_F32, true, 0, false},
    {"bias, 1 head", 1, 1, 1, 1024, 64, ATTN_F32, false, 0, true},
    {"tiny", 1, 1, 1, 16, 64, ATTN_F32, false, 0, false},
};

static void *random_array(int64_t count, int32_t dtype)
{
    static uint64_t state = 1;
    uint16_t *narrow = malloc((size_t)count * 4 + 64);
    float *wide = (float *)(void *)narrow;
    for (int64_t k = 0; k < count; k++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        float x = (float)(state >> 40) * 0x1p-23f - 1;
        if (dtype == ATTN_F32)
            wide[k] = x;
        else
            narrow[k] = dtype == ATTN_BF16 ? attn_f32_to_bf16(x) : attn_f32_to_f16(x);
    }
    return narrow;
}

static double admitted_pairs(const shape *s)
{
    double pairs = 0;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t last = s->causal ? i : s->n - 1, first = s->window && i > s->window ? i - s->window : 0;
        pairs += (double)(last - first + 1);
    }
    return pairs;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void time_shape(attn_ctx *ctx, const shape *s)
{
    int64_t rows = s->batch * s->heads * s->n * s->dim, keys = s->batch * s->kv_heads * s->n * s->dim;
    attn_sdpa_args forward;
    attn_sdpa_backward_args args;
    ATTN_ARGS_INIT(&forward);
    ATTN_ARGS_INIT(&args);
    void *memory[10] = {random_array(rows, s->dtype), random_array(keys, s->dtype), random_array(keys, s->dtype),
                        random_array(rows, s->dtype), random_array(rows / s->dim, ATTN_F32), random_array(rows, s->dtype),
                        random_array(rows, s->dtype), random_array(keys, s->dtype), random_array(keys, s->dtype), NULL};
    forward.query = attn_cview_of(memory[0], s->dtype, s->batch, s->heads, s->n, s->dim);
    forward.key = attn_cview_of(memory[1], s->dtype, s->batch, s->kv_heads, s->n, s->dim);
    forward.value = attn_cview_of(memory[2], s->dtype, s->batch, s->kv_heads, s->n, s->dim);
    forward.out = attn_view_of(memory[3], s->dtype, s->batch, s->heads, s->n, s->dim);
    forward.lse = memory[4];
    forward.mask.flags = (s->causal ? ATTN_MASK_CAUSAL : 0u) | (s->window ? ATTN_MASK_WINDOW : 0u);
    forward.mask.left = s->window;
    forward.mask.right = -1;
    if (s->bias) {
        memory[9] = random_array(s->heads * s->n * s->n, ATTN_F32);
        forward.mask.bias = attn_cview_of(memory[9], ATTN_F32, 1, s->heads, s->n, s->n);
    }
    args.forward = &forward;
    args.d_out = attn_cview_of(memory[5], s->dtype, s->batch, s->heads, s->n, s->dim);
    args.d_query = attn_view_of(memory[6], s->dtype, s->batch, s->heads, s->n, s->dim);
    args.d_key = attn_view_of(memory[7], s->dtype, s->batch, s->kv_heads, s->n, s->dim);
    args.d_value = attn_view_of(memory[8], s->dtype, s->batch, s->kv_heads, s->n, s->dim);
    float *lse = forward.lse;
    for (int64_t r = 0; r < rows / s->dim; r++)
        lse[r] = 4 + lse[r]; /* speed does not depend on it being the true one */
    double took[300], flops = 10 * admitted_pairs(s) * (double)(s->batch * s->heads * s->dim), peak = 0;
    int runs = 0;
    for (double start = seconds(); runs < 300 && (runs < 3 || seconds() - start < 1.5); runs++) {
        double at_start = seconds();
        if (attn_sdpa_backward(ctx, &args, NULL, 0) != ATTN_OK) {
            printf("%s: %s\n", s->name, attn_ctx_error(ctx));
            exit(1);
        }
        took[runs] = seconds() - at_start;
        double measured = peak_once();
        peak = measured > peak ? measured : peak;
    }
    qsort(took, (size_t)runs, sizeof *took, by_value);
    size_t bytes = 0;
    attn_sdpa_backward_workspace(ctx, &args, &bytes);
    double best = flops / took[0] * 1e-9, median = flops / took[runs / 2] * 1e-9;
    printf("%-14s %9.3f ms  median %7.1f GFLOP/s  best %7.1f  peak of one core %6.1f  best/peak %5.1f %%  %6.1f MiB\n", s->name,
           took[runs / 2] * 1e3, median, best, peak, 100 * best / peak, (double)bytes / 1048576);
    for (int n = 0; n < 10; n++)
        free(memory[n]);
}

int main(int argc, char **argv)
{
    attn_ctx_options options;
    attn_ctx *ctx;
    ATTN_ARGS_INIT(&options);
    options.n_threads = argc > 1 ? atoi(argv[1]) : 1;
    if (attn_ctx_create(&options, &ctx) != ATTN_OK) {
        printf("%s\n", attn_ctx_error(NULL));
        return 1;
    }
    printf("backward, %s, %d thread(s)\n", attn_ctx_isa(ctx), (int)options.n_threads);
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
        if (argc < 3 || strstr(shapes[n].name, argv[2]))
            time_shape(ctx, &shapes[n]);
    attn_ctx_destroy(ctx);
    return 0;
}
