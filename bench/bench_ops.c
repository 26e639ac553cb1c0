/* bench_ops - the operator's fixed shapes S1-S13, forward, beside what this machine can do at most.
 *
 *   bench_ops [--json] [--shapes S1,S2] [--threads 1,2] [--seconds 0.8]
 *
 * Rates count admitted pairs only: 4 * pairs * head_dim operations (S7, S8: bytes of keys and values). The limit is the
 * f32 multiply-add peak (times threads), or the read bandwidth where few queries read a long cache; it is measured again
 * before each row. The error is the largest of 64 sampled rows against sums in double, relative to sum_j w_j |v_j|. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attn/attn.h"
#include "bench_clock.h"
#include "bench_peak.h"
#include "core/view.h"

enum { NONE, CAUSAL, WINDOW, LENGTHS, BIAS };
enum { F32 = 1, BF16 = 2, F16 = 4 };

typedef struct shape {
    const char *id;
    int64_t B, H, Hkv, Nq, Nk, d;
    int mask;
    int64_t W;
    int types;
    bool reads; /* judged by bytes */
} shape;

static const shape shapes[] = {
    {"S1", 1, 12, 12, 1024, 1024, 64, CAUSAL, 0, F32 | BF16, false},
    {"S2", 1, 32, 8, 2048, 2048, 128, CAUSAL, 0, F32 | BF16 | F16, false},
    {"S3", 1, 8, 8, 8192, 8192, 128, CAUSAL, 0, F32 | BF16, false},
    {"S4", 32, 12, 12, 128, 128, 32, LENGTHS, 0, F32, false},
    {"S5", 8, 12, 12, 512, 512, 64, NONE, 0, F32 | BF16, false},
    {"S6", 4, 16, 16, 577, 577, 64, NONE, 0, F32, false},
    {"S7", 1, 32, 8, 1, 8192, 128, NONE, 0, F32 | BF16 | F16, true},
    {"S8", 16, 32, 8, 1, 2048, 128, NONE, 0, F32 | BF16, true},
    {"S9", 1, 1, 1, 131072, 131072, 64, CAUSAL, 0, F32, false},
    {"S10", 1, 8, 8, 16384, 16384, 128, WINDOW, 1024, F32, false},
    {"S11", 4, 12, 12, 1024, 1024, 64, CAUSAL, 0, F32, false},
    {"S12", 1, 16, 16, 1024, 1024, 64, BIAS, 0, F32, false},
    {"S13", 1, 4, 4, 16, 16, 32, CAUSAL, 0, F32, false},
};

typedef struct bench {
    const shape *s;
    int32_t dtype;
    attn_ctx *ctx;
    attn_sdpa_args args;
    int64_t lengths[32];
    void *owned[6];
    int n_owned;
} bench;

static uint64_t noise_state = 88172645463325252u;

static attn_cview noise(bench *b, int32_t dtype, int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
    int64_t n = d0 * d1 * d2 * d3;
    void *data = bench_memory((size_t)n * attn_dtype_size(dtype));
    for (int64_t k = 0; k < n; k++) { /* the sum of two uniform numbers, variance 1 */
        noise_state ^= noise_state << 13, noise_state ^= noise_state >> 7, noise_state ^= noise_state << 17;
        double x = ((double)(noise_state >> 40) + (double)(noise_state & 0xffffff)) * 0x1p-24 - 1;
        attn_store_element(data, dtype, k, x * 2.449489742783178);
    }
    b->owned[b->n_owned++] = data;
    return attn_cview_of(data, dtype, d0, d1, d2, d3);
}

static void make(bench *b, const shape *s, int32_t dtype)
{
    memset(b, 0, sizeof *b);
    b->s = s;
    b->dtype = dtype;
    ATTN_ARGS_INIT(&b->args);
    b->args.query = noise(b, dtype, s->B, s->H, s->Nq, s->d);
    b->args.key = noise(b, dtype, s->B, s->Hkv, s->Nk, s->d);
    b->args.value = noise(b, dtype, s->B, s->Hkv, s->Nk, s->d);
    attn_cview out = noise(b, dtype, s->B, s->H, s->Nq, s->d);
    memcpy(&b->args.out, &out, sizeof out);
    attn_mask *m = &b->args.mask;
    if (s->mask == CAUSAL || s->mask == WINDOW)
        m->flags = ATTN_MASK_CAUSAL;
    if (s->mask == WINDOW) {
        m->flags |= ATTN_MASK_WINDOW;
        m->left = s->W - 1;
    }
    if (s->mask == LENGTHS) {
        for (int64_t k = 0; k < s->B; k++)
            b->lengths[k] = 16 + k * 37 % 113;
        m->kv_len = b->lengths;
    }
    if (s->mask == BIAS)
        m->bias = noise(b, ATTN_F32, 1, s->H, s->Nq, s->Nk);
}

static void keys_of(const bench *b, int64_t entry, int64_t i, int64_t *lo, int64_t *hi)
{
    const shape *s = b->s;
    *lo = s->mask == WINDOW && i >= s->W ? i - s->W + 1 : 0;
    *hi = s->mask == LENGTHS ? b->lengths[entry] : s->mask == CAUSAL || s->mask == WINDOW ? i + 1 : s->Nk;
}

static double pairs_of(const bench *b)
{
    double pairs = 0;
    for (int64_t e = 0; e < b->s->B; e++)
        for (int64_t i = 0; i < b->s->Nq; i++) {
            int64_t lo, hi;
            keys_of(b, e, i, &lo, &hi);
            pairs += (double)(hi - lo);
        }
    return pairs * (double)b->s->H;
}

static double error_of_row(const bench *b, int64_t e, int64_t h, int64_t i, double *w)
{
    const attn_sdpa_args *a = &b->args;
    int64_t lo, hi, g = h / (b->s->H / b->s->Hkv), d = b->s->d;
    double max = -INFINITY, total = 0, worst = 0;
    keys_of(b, e, i, &lo, &hi);
    for (int64_t j = lo; j < hi; j++) {
        double dot = 0;
        for (int64_t k = 0; k < d; k++)
            dot += attn_cview_at(&a->query, e, h, i, k) * attn_cview_at(&a->key, e, g, j, k);
        w[j] = dot / sqrt((double)d) + (b->s->mask == BIAS ? attn_cview_at(&a->mask.bias, 0, h, i, j) : 0);
        max = w[j] > max ? w[j] : max;
    }
    for (int64_t j = lo; j < hi; j++)
        total += w[j] = exp(w[j] - max);
    attn_cview out = attn_view_const(&a->out);
    for (int64_t k = 0; k < d; k++) {
        double want = 0, size = 0;
        for (int64_t j = lo; j < hi; j++) {
            double v = attn_cview_at(&a->value, e, g, j, k) * w[j] / total;
            want += v;
            size += fabs(v);
        }
        double off = fabs(attn_cview_at(&out, e, h, i, k) - want) / size;
        worst = off > worst ? off : worst;
    }
    return worst;
}

static double error_of(const bench *b)
{
    double *w = bench_memory((size_t)b->s->Nk * sizeof *w), worst = 0;
    for (int64_t n = 0; n < 64; n++) {
        int64_t i = b->s->Nq > 1 ? n * (b->s->Nq - 1) / 63 : 0;
        double off = error_of_row(b, n % b->s->B, n * 7 % b->s->H, i, w);
        worst = off > worst || off != off ? off : worst;
    }
    free(w);
    return worst;
}

static void forward(void *arg)
{
    bench *b = arg;
    if (attn_sdpa_forward(b->ctx, &b->args, NULL, 0) != ATTN_OK) {
        fprintf(stderr, "%s: %s\n", b->s->id, attn_ctx_error(b->ctx));
        exit(1);
    }
}

static void row(bench *b, int threads, double seconds, bool json)
{
    static const char *const names[] = {"f32", "f64", "bf16", "f16"};
    const shape *s = b->s;
    attn_ctx_options options;
    ATTN_ARGS_INIT(&options);
    options.n_threads = threads;
    if (attn_ctx_create(&options, &b->ctx) != ATTN_OK) {
        fprintf(stderr, "%s\n", attn_ctx_error(NULL));
        exit(1);
    }
    double limit = s->reads ? bench_read_bandwidth(threads) : threads * bench_peak_f32();
    bench_times t = bench_measure(forward, b, seconds, s->Nq > 100000 ? 1 : 3, 200);
    double amount = 4 * pairs_of(b) * (double)s->d;
    if (s->reads)
        amount = 2.0 * (double)(s->B * s->Hkv * s->Nk * s->d) * (double)attn_dtype_size(b->dtype);
    double rate = amount / t.median * 1e-9, error = error_of(b);
    attn_sdpa_plan plan;
    ATTN_ARGS_INIT(&plan);
    attn_sdpa_describe(b->ctx, &b->args, &plan);
    if (json)
        printf("{\"shape\": \"%s\", \"dtype\": \"%s\", \"threads\": %d, \"isa\": \"%s\", \"kernel\": \"%s\", \"median_s\": %.9g, "
               "\"best_s\": %.9g, \"worst_s\": %.9g, \"runs\": %d, \"rate\": %.3f, \"unit\": \"%s\", \"limit\": %.3f, "
               "\"error\": %.3g, \"workspace_bytes\": %zu}\n",
               s->id, names[b->dtype], threads, plan.isa, plan.kernel, t.median, t.best, t.worst, t.runs, rate,
               s->reads ? "GB/s" : "GFLOP/s", limit, error, plan.workspace_bytes);
    else
        printf("%-4s %-5s %7d %12.4f %12.4f %10.1f %-8s %6.1f %% of %7.1f  %9.2g  %s\n", s->id, names[b->dtype], threads,
               t.median * 1e3, t.best * 1e3, rate, s->reads ? "GB/s" : "GFLOP/s", 100 * rate / limit, limit, error,
               plan.kernel);
    fflush(stdout);
    attn_ctx_destroy(b->ctx);
}

static bool listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, word, n) && (at[n] == ',' || at[n] == 0))
            return true;
    return !list;
}

int main(int argc, char **argv)
{
    const char *only = NULL, *thread_list = NULL;
    bool json = false;
    double seconds = 0.8;
    for (int n = 1; n < argc; n++) {
        if (!strcmp(argv[n], "--json"))
            json = true;
        else if (!strcmp(argv[n], "--shapes") && n + 1 < argc)
            only = argv[++n];
        else if (!strcmp(argv[n], "--threads") && n + 1 < argc)
            thread_list = argv[++n];
        else if (!strcmp(argv[n], "--seconds") && n + 1 < argc)
            seconds = atof(argv[++n]);
        else {
            fprintf(stderr, "usage: bench_ops [--json] [--shapes S1,S2] [--threads 1,2] [--seconds 0.8]\n");
            return 2;
        }
    }
    int all = attn_ctx_threads(NULL), counts[2] = {1, all};
    if (json)
        printf("{\"version\": \"%s\", \"isa\": \"%s\", \"threads\": %d, \"peak_f32\": %.1f, \"peak_bf16\": %.1f, \"read_1\": %.1f, "
               "\"read_all\": %.1f}\n",
               attn_version(), attn_ctx_isa(NULL), all, bench_peak_f32(), bench_peak_bf16(), bench_read_bandwidth(1),
               bench_read_bandwidth(all));
    else
        printf("attn %s, %s, %d threads; one core: f32 %.1f GFLOP/s, bf16 %.1f; reads: %.1f GB/s with 1 thread, %.1f with all\n"
               "row  dtype threads    median ms      best ms       rate                                    error  kernel\n",
               attn_version(), attn_ctx_isa(NULL), all, bench_peak_f32(), bench_peak_bf16(), bench_read_bandwidth(1),
               bench_read_bandwidth(all));
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        static const int32_t types[] = {ATTN_F32, ATTN_BF16, ATTN_F16};
        for (int t = 0; t < 3; t++) {
            bench b;
            if (!listed(only, shapes[n].id) || !(shapes[n].types >> t & 1))
                continue;
            make(&b, &shapes[n], types[t]);
            for (int c = 0; c < (all > 1 ? 2 : 1); c++) {
                char text[16];
                snprintf(text, sizeof text, "%d", counts[c]);
                if (listed(thread_list, text))
                    row(&b, counts[c], seconds, json);
            }
            while (b.n_owned)
                free(b.owned[--b.n_owned]);
        }
    }
    return 0;
}
