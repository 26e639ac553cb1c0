/* bench_decode.c - decode steps over a KV cache against the read bandwidth of the same memory, measured in between.
 *
 *     bench_decode [--threads N] [--rows N] [--shape B,H,Hkv,Nk,d] [--runs N] [--paged N] [--type f32|bf16|f16|i8]
 *
 * Without --shape: S7 (1,32,8,8192,128) and S8 (16,32,8,2048,128) for every cache dtype, with 1 and all threads. For each:
 * median and best milliseconds of a call; bytes of keys and values over the best, and the share of the best read of the
 * same memory, interleaved with the calls. */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "core/context.h"
#include "core/view.h"

typedef struct shape {
    int64_t batch, heads, kv_heads, keys, dim;
} shape;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Read bandwidth: every byte of the caches, in as many parts as 64 per thread, eight sums of 64-bit words. */
typedef struct reading {
    const uint64_t *words;
    size_t n, part;
    uint64_t found[4096];
} reading;

static void read_task(void *arg, int64_t task, int32_t worker)
{
    reading *r = arg;
    size_t at = (size_t)task * r->part, end = at + r->part < r->n ? at + r->part : r->n;
    uint64_t s[16] = {0};
    (void)worker;
    for (; at + 16 <= end; at += 16) {
        __builtin_prefetch(r->words + at + 128);
        __builtin_prefetch(r->words + at + 136);
        for (int k = 0; k < 16; k++)
            s[k] ^= r->words[at + (size_t)k];
    }
    for (int k = 0; k < 16; k++)
        r->found[task] ^= s[k];
}

static double read_seconds(attn_ctx *ctx, const void *data, size_t bytes)
{
    static reading r;
    r.words = data;
    r.n = bytes / 8;
    r.part = 16384;
    while (r.n / r.part > 4000)
        r.part *= 2;
    double start = now();
    attn_ctx_for(ctx, (int64_t)((r.n + r.part - 1) / r.part), attn_ctx_threads(ctx), read_task, &r);
    return now() - start;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void *filled(size_t n, int32_t dtype)
{
    char *x = aligned_alloc(4096, (n * attn_dtype_size(dtype) + 4095) / 4096 * 4096);
    uint64_t state = 88172645463325252u;
    for (size_t k = 0; k < n; k++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        if (dtype == ATTN_F32)
            ((float *)(void *)x)[k] = (float)(int32_t)state * 0x1p-31f;
        else if (dtype == ATTN_I8)
            x[k] = (char)(state >> 40);
        else
            attn_store_element(x, dtype, (int64_t)k, (double)(state >> 11) * 0x1p-53 * 2 - 1);
    }
    return x;
}

static void measure(const shape *s, int32_t dtype, int64_t rows, int32_t threads, int runs, int64_t paged)
{
    attn_ctx_options options;
    attn_ctx *ctx;
    ATTN_ARGS_INIT(&options);
    options.n_threads = threads;
    if (attn_ctx_create(&options, &ctx) != ATTN_OK)
        exit(1);
    size_t n = (size_t)(s->batch * s->kv_heads * s->keys * s->dim), bytes = n * attn_dtype_size(dtype);
    char *key = filled(n, dtype), *value = filled(n, dtype);
    int32_t query_type = dtype == ATTN_BF16 || dtype == ATTN_F16 ? dtype : ATTN_F32;
    size_t n_query = (size_t)(s->batch * s->heads * rows * s->dim), n_scales = (size_t)(s->batch * s->kv_heads * s->keys);
    attn_sdpa_args a;
    ATTN_ARGS_INIT(&a);
    a.query = attn_cview_of(filled(n_query, query_type), query_type, s->batch, s->heads, rows, s->dim);
    a.key = attn_cview_of(key, dtype, s->batch, s->kv_heads, s->keys, s->dim);
    a.value = attn_cview_of(value, dtype, s->batch, s->kv_heads, s->keys, s->dim);
    a.key_scale = attn_cview_of(filled(n_scales, ATTN_F32), ATTN_F32, s->batch, s->kv_heads, s->keys, 1);
    a.value_scale = attn_cview_of(filled(n_scales, ATTN_F32), ATTN_F32, s->batch, s->kv_heads, s->keys, 1);
    a.out = attn_view_of(filled(n_query, query_type), query_type, s->batch, s->heads, rows, s->dim);
    int32_t *table = NULL;
    if (paged) {
        int64_t blocks = s->keys / paged;
        table = malloc((size_t)(blocks * s->batch) * sizeof *table);
        for (int64_t k = 0; k < blocks * s->batch; k++) /* far apart: a stride that visits every block */
            table[k] = (int32_t)(k * 97 % (blocks * s->batch));
        attn_cview *views[] = {&a.key, &a.value, &a.key_scale, &a.value_scale};
        for (int v = 0; v < 4; v++)
            *views[v] = attn_cview_of(views[v]->data, views[v]->dtype, blocks * s->batch, s->kv_heads, paged, views[v]->shape[3]);
        a.layout.block_table = table;
        a.layout.block_table_stride = blocks;
        a.layout.seq_kv = s->keys;
    }
    double best_read = 1e9, sum_read = 0, sum = 0, *times = malloc((size_t)runs * sizeof *times);
    for (int r = 0; r < runs; r++) {
        double read = read_seconds(ctx, key, bytes) + read_seconds(ctx, value, bytes), start = now();
        if (attn_sdpa_forward(ctx, &a, NULL, 0) != ATTN_OK) {
            printf("%s\n", attn_ctx_error(ctx));
            exit(1);
        }
        times[r] = now() - start;
        sum_read += read;
        sum += times[r];
        best_read = read < best_read ? read : best_read;
    }
    qsort(times, (size_t)runs, sizeof *times, by_value);
    double median = times[runs / 2], gb = 2e-9 * (double)bytes;
    double flops = 4e-9 * (double)(s->batch * s->heads * rows * s->keys * s->dim);
    printf("%s B%lld H%lld Hkv%lld Nq%lld Nk%lld d%lld %4s t%d%s: %8.3f ms (best %8.3f), %6.2f GB/s of %6.2f read = %3.0f %% (over all runs %3.0f %%), %6.1f GFLOP/s\n",
           attn_ctx_isa(ctx), (long long)s->batch, (long long)s->heads, (long long)s->kv_heads, (long long)rows, (long long)s->keys,
           (long long)s->dim, attn_dtype_name(dtype), threads, paged ? " paged" : "", median * 1e3, times[0] * 1e3, gb / times[0],
           gb / best_read, 100 * best_read / times[0], 100 * sum_read / sum, flops / times[0]);
    fflush(stdout);
    void *owned[] = {key, value, times, table, (void *)(uintptr_t)a.query.data, a.out.data, (void *)(uintptr_t)a.key_scale.data,
                     (void *)(uintptr_t)a.value_scale.data};
    for (int k = 0; k < 8; k++)
        free(owned[k]);
    attn_ctx_destroy(ctx);
}

int main(int argc, char **argv)
{
    shape shapes[2] = {{1, 32, 8, 8192, 128}, {16, 32, 8, 2048, 128}};
    int n_shapes = 2, runs = 15;
    int64_t rows = 1, paged = 0;
    int32_t only = 0;
    const char *type_name = "";
    for (int k = 1; k + 1 < argc; k += 2) {
        if (!strcmp(argv[k], "--threads"))
            only = atoi(argv[k + 1]);
        else if (!strcmp(argv[k], "--type"))
            type_name = argv[k + 1];
        else if (!strcmp(argv[k], "--rows"))
            rows = atoll(argv[k + 1]);
        else if (!strcmp(argv[k], "--runs"))
            runs = atoi(argv[k + 1]);
        else if (!strcmp(argv[k], "--paged"))
            paged = atoll(argv[k + 1]);
        else if (!strcmp(argv[k], "--shape")) {
            long long x[5];
            if (sscanf(argv[k + 1], "%lld,%lld,%lld,%lld,%lld", &x[0], &x[1], &x[2], &x[3], &x[4]) != 5)
                return 2;
            shapes[0] = (shape){x[0], x[1], x[2], x[3], x[4]};
            n_shapes = 1;
        }
    }
    static const int32_t types[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_I8};
    for (int s = 0; s < n_shapes; s++)
        for (int type = 0; type < 4; type++)
            for (int32_t threads = only ? only : 1; threads <= (only ? only : 2) && (!*type_name || !strcmp(type_name, attn_dtype_name(types[type]))); threads++)
                measure(&shapes[s], types[type], rows, threads, runs, paged);
    return 0;
}
