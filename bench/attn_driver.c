/* attn_driver - one shape, timed, for a harness that runs several libraries on the same files.
 *
 *   attn_driver --dir IN --out OUT --mask none|causal|window|lengths|bias --W n --dtype f32|bf16|f16 --threads T
 *               --mode fwd|fwdbwd --max-runs n --B n --H n --Hkv n --Nq n --Nk n --d n
 *
 * Reads IN/q.bin, k.bin, v.bin ([B, H, N, d] contiguous, in the dtype), lengths.bin (int32 [B]), bias.bin (f32 [1, H, Nq, Nk]),
 * do.bin (f32); writes OUT/o.bin (f32 [B, H, Nq, d]; dq, dk, dv in fwdbwd mode) and prints one line of JSON:
 * {"fwd_s": .., "runs": .., "rss_delta_mb": .., "bwd_s": .., "note": ".."}. A window of W keys holds keys i - W + 1 .. i.
 * The output that is timed is in the dtype, in fwdbwd mode in f32. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attn/attn.h"
#include "bench_clock.h"
#include "core/half.h"

typedef struct driver {
    const char *dir, *out, *mask, *dtype, *mode;
    int64_t B, H, Hkv, Nq, Nk, d, W, threads, max_runs;
    attn_ctx *ctx;
    attn_sdpa_args args;
    attn_sdpa_backward_args grad;
} driver;

static void die(const char *what, const char *detail)
{
    printf("{\"error\": \"%s %s\"}\n", what, detail);
    exit(0); /* the harness reads the line */
}

static void parse(driver *r, int argc, char **argv)
{
    struct {
        const char *name;
        const char **text;
        int64_t *number;
    } known[] = {{"--dir", &r->dir, NULL},   {"--out", &r->out, NULL},   {"--mask", &r->mask, NULL}, {"--dtype", &r->dtype, NULL},
                 {"--mode", &r->mode, NULL}, {"--B", NULL, &r->B},       {"--H", NULL, &r->H},       {"--Hkv", NULL, &r->Hkv},
                 {"--Nq", NULL, &r->Nq},     {"--Nk", NULL, &r->Nk},     {"--d", NULL, &r->d},       {"--W", NULL, &r->W},
                 {"--threads", NULL, &r->threads}, {"--max-runs", NULL, &r->max_runs}};
    r->mask = "none", r->dtype = "f32", r->mode = "fwd", r->threads = 1;
    for (int n = 1; n + 1 < argc; n += 2)
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            if (!strcmp(argv[n], known[k].name)) {
                if (known[k].text)
                    *known[k].text = argv[n + 1];
                else
                    *known[k].number = atoll(argv[n + 1]);
            }
    if (!r->dir)
        die("usage:", "--dir IN --out OUT --mask M --dtype T --B n --H n --Hkv n --Nq n --Nk n --d n");
    if (!r->out)
        r->out = r->dir;
}

static void *read_file(const driver *r, const char *name, size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.bin", r->dir, name);
    FILE *file = fopen(path, "rb");
    void *memory = bench_memory(bytes);
    if (!file || fread(memory, 1, bytes, file) != bytes)
        die("cannot read", path);
    fclose(file);
    return memory;
}

static void write_file(const driver *r, const char *name, const void *data, size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.bin", r->out, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file))
        die("cannot write", path);
}

/* n numbers as floats in the same memory, from the last on. */
static void widen(void *data, int32_t type, size_t n)
{
    for (size_t k = n; type != ATTN_F32 && k > 0; k--) {
        uint16_t half;
        memcpy(&half, (char *)data + (k - 1) * sizeof half, sizeof half);
        float x = type == ATTN_BF16 ? attn_bf16_to_f32(half) : attn_f16_to_f32(half);
        memcpy((char *)data + (k - 1) * sizeof x, &x, sizeof x);
    }
}

static int32_t dtype_of(const char *name)
{
    return !strcmp(name, "bf16") ? ATTN_BF16 : !strcmp(name, "f16") ? ATTN_F16 : ATTN_F32;
}

static void set_mask(driver *r)
{
    attn_mask *m = &r->args.mask;
    if (!strcmp(r->mask, "causal") || !strcmp(r->mask, "window")) {
        m->flags = ATTN_MASK_CAUSAL | ATTN_MASK_OFFSET;
        m->query_offset = r->Nk - r->Nq;
    }
    if (!strcmp(r->mask, "window")) {
        m->flags |= ATTN_MASK_WINDOW;
        m->left = r->W - 1;
    }
    if (!strcmp(r->mask, "bias"))
        m->bias = attn_cview_of(read_file(r, "bias", (size_t)(r->H * r->Nq * r->Nk) * 4), ATTN_F32, 1, r->H, r->Nq, r->Nk);
    if (!strcmp(r->mask, "lengths")) {
        int32_t *lengths = read_file(r, "lengths", (size_t)r->B * 4);
        int64_t *wide = bench_memory((size_t)r->B * 8);
        for (int64_t b = 0; b < r->B; b++)
            wide[b] = lengths[b];
        m->kv_len = wide;
    }
}

static void forward(void *arg)
{
    driver *r = arg;
    if (attn_sdpa_forward(r->ctx, &r->args, NULL, 0) != ATTN_OK)
        die("attn_sdpa_forward:", attn_ctx_error(r->ctx));
}

static void backward(void *arg)
{
    driver *r = arg;
    if (attn_sdpa_backward(r->ctx, &r->grad, NULL, 0) != ATTN_OK)
        die("attn_sdpa_backward:", attn_ctx_error(r->ctx));
}

/* Median seconds. The first run is returned alone where it is very long, or the harness asks for one run only. */
static double measure(const driver *r, void (*run)(void *), void *arg, int *runs)
{
    double start = bench_now();
    run(arg);
    double first = bench_now() - start;
    *runs = 1;
    if ((r->max_runs == 1 && first > 5) || first > 40)
        return first;
    return bench_median(run, arg, 0.8, first > 6 ? 3 : 5, 200, runs);
}

int main(int argc, char **argv)
{
    driver r;
    memset(&r, 0, sizeof r);
    parse(&r, argc, argv);
    int32_t type = dtype_of(r.dtype);
    size_t size = type == ATTN_F32 ? 4 : 2, n_q = (size_t)(r.B * r.H * r.Nq * r.d), n_k = (size_t)(r.B * r.Hkv * r.Nk * r.d);
    attn_ctx_options options;
    ATTN_ARGS_INIT(&options);
    options.n_threads = (int32_t)r.threads;
    if (attn_ctx_create(&options, &r.ctx) != ATTN_OK)
        die("attn_ctx_create:", attn_ctx_error(NULL));
    ATTN_ARGS_INIT(&r.args);
    r.args.query = attn_cview_of(read_file(&r, "q", n_q * size), type, r.B, r.H, r.Nq, r.d);
    r.args.key = attn_cview_of(read_file(&r, "k", n_k * size), type, r.B, r.Hkv, r.Nk, r.d);
    r.args.value = attn_cview_of(read_file(&r, "v", n_k * size), type, r.B, r.Hkv, r.Nk, r.d);
    bool trains = !strcmp(r.mode, "fwdbwd");
    int32_t out_type = trains ? ATTN_F32 : type;
    void *out = bench_memory(n_q * 4);
    r.args.out = attn_view_of(out, out_type, r.B, r.H, r.Nq, r.d);
    set_mask(&r);
    if (trains)
        r.args.lse = bench_memory((size_t)(r.B * r.H * r.Nq) * 4);
    int runs, bwd_runs;
    bench_reset_peak();
    double before = bench_memory_mb("VmRSS:");
    forward(&r);
    double grown = bench_memory_mb("VmHWM:") - before, fwd_s = measure(&r, forward, &r, &runs), bwd_s = 0;
    widen(out, out_type, n_q);
    write_file(&r, "o", out, n_q * 4);
    if (trains) {
        ATTN_ARGS_INIT(&r.grad);
        float *dq = bench_memory(n_q * 4), *dk = bench_memory(n_k * 4), *dv = bench_memory(n_k * 4);
        r.grad.forward = &r.args;
        r.grad.d_out = attn_cview_of(read_file(&r, "do", n_q * 4), ATTN_F32, r.B, r.H, r.Nq, r.d);
        r.grad.d_query = attn_view_of(dq, ATTN_F32, r.B, r.H, r.Nq, r.d);
        r.grad.d_key = attn_view_of(dk, ATTN_F32, r.B, r.Hkv, r.Nk, r.d);
        r.grad.d_value = attn_view_of(dv, ATTN_F32, r.B, r.Hkv, r.Nk, r.d);
        bwd_s = measure(&r, backward, &r, &bwd_runs);
        write_file(&r, "dq", dq, n_q * 4);
        write_file(&r, "dk", dk, n_k * 4);
        write_file(&r, "dv", dv, n_k * 4);
    }
    attn_sdpa_plan plan;
    ATTN_ARGS_INIT(&plan);
    attn_sdpa_describe(r.ctx, &r.args, &plan);
    printf("{\"fwd_s\": %.9g, \"runs\": %d, \"rss_delta_mb\": %.1f", fwd_s, runs, grown);
    if (trains)
        printf(", \"bwd_s\": %.9g", bwd_s);
    printf(", \"note\": \"attn %s, %s, %s\"}\n", attn_version(), plan.isa, plan.kernel);
    attn_ctx_destroy(r.ctx);
    return 0;
}
