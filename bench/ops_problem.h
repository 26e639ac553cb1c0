/* ops_problem.h - a row of bench_ops: its arrays, the pairs that its mask admits, and its error against sums in double. */
#ifndef OPS_PROBLEM_H
#define OPS_PROBLEM_H

#include <math.h>
#include <stdbool.h>
#include "attn/attn.h"
#include "bench_clock.h"
#include "core/view.h"

enum { NONE, CAUSAL, WINDOW, LENGTHS, BIAS };
enum { F32 = 1, BF16 = 2, F16 = 4, I8 = 8 };

typedef struct shape {
    const char *id;
    int64_t B, H, Hkv, Nq, Nk, d;
    int mask;
    int64_t W;             /* keys of a window, the query's own included */
    int types;             /* of keys and values; queries of an i8 cache are f32 */
    bool reads;            /* judged by bytes of keys and values */
    bool backward;
    const char *reference; /* a cliff's row: the shape that it is held against */
    double share;          /* of the reference's work that counts: heads / heads of the reference, or 1 */
} shape;

typedef struct problem {
    const shape *s;
    int32_t dtype;
    attn_ctx *ctx;
    attn_sdpa_args args;
    attn_sdpa_backward_args grad;
    int64_t lengths[64];
    void *owned[12];
    int n_owned;
} problem;

static uint64_t noise_state = 88172645463325252u;

static inline double noise(void) /* the sum of two uniform numbers, variance 1 */
{
    noise_state ^= noise_state << 13, noise_state ^= noise_state >> 7, noise_state ^= noise_state << 17;
    double x = ((double)(noise_state >> 40) + (double)(noise_state & 0xffffff)) * 0x1p-24 - 1;
    return x * 2.449489742783178;
}

static inline attn_cview noise_array(problem *b, int32_t dtype, int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
    int64_t n = d0 * d1 * d2 * d3;
    void *data = bench_memory((size_t)n * attn_dtype_size(dtype));
    for (int64_t k = 0; k < n; k++) {
        if (dtype == ATTN_I8)
            ((int8_t *)data)[k] = (int8_t)(noise() * 40);
        else
            attn_store_element(data, dtype, k, noise());
    }
    b->owned[b->n_owned++] = data;
    return attn_cview_of(data, dtype, d0, d1, d2, d3);
}

static inline attn_view writable(attn_cview x)
{
    attn_view v;
    memcpy(&v, &x, sizeof v);
    return v;
}

/* One scale for each token and kv head, 1/40 so that elements have about variance 1. */
static inline attn_cview scales(problem *b, const shape *s)
{
    attn_cview v = noise_array(b, ATTN_F32, s->B, s->Hkv, s->Nk, 1);
    for (int64_t k = 0; k < s->B * s->Hkv * s->Nk; k++)
        ((float *)b->owned[b->n_owned - 1])[k] = 0.02f + 0.001f * (float)(k % 11);
    return v;
}

static inline void problem_make(problem *b, const shape *s, int32_t dtype)
{
    int32_t query = dtype == ATTN_I8 ? ATTN_F32 : dtype;
    memset(b, 0, sizeof *b);
    b->s = s;
    b->dtype = dtype;
    ATTN_ARGS_INIT(&b->args);
    b->args.query = noise_array(b, query, s->B, s->H, s->Nq, s->d);
    b->args.key = noise_array(b, dtype, s->B, s->Hkv, s->Nk, s->d);
    b->args.value = noise_array(b, dtype, s->B, s->Hkv, s->Nk, s->d);
    b->args.out = writable(noise_array(b, query, s->B, s->H, s->Nq, s->d));
    if (dtype == ATTN_I8) {
        b->args.key_scale = scales(b, s);
        b->args.value_scale = scales(b, s);
    }
    attn_mask *m = &b->args.mask;
    if (s->mask == CAUSAL || s->mask == WINDOW) {
        m->flags = ATTN_MASK_CAUSAL | ATTN_MASK_OFFSET;
        m->query_offset = s->Nk - s->Nq;
    }
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
        m->bias = noise_array(b, ATTN_F32, 1, s->H, s->Nq, s->Nk);
    if (!s->backward)
        return;
    b->args.lse = (void *)(uintptr_t)noise_array(b, ATTN_F32, s->B, s->H, s->Nq, 1).data;
    ATTN_ARGS_INIT(&b->grad);
    b->grad.forward = &b->args;
    b->grad.d_out = noise_array(b, query, s->B, s->H, s->Nq, s->d);
    b->grad.d_query = writable(noise_array(b, query, s->B, s->H, s->Nq, s->d));
    b->grad.d_key = writable(noise_array(b, query, s->B, s->Hkv, s->Nk, s->d));
    b->grad.d_value = writable(noise_array(b, query, s->B, s->Hkv, s->Nk, s->d));
}

static inline void problem_free(problem *b)
{
    while (b->n_owned)
        free(b->owned[--b->n_owned]);
}

/* Keys lo <= j < hi of query i. */
static inline void keys_of(const problem *b, int64_t entry, int64_t i, int64_t *lo, int64_t *hi)
{
    const shape *s = b->s;
    int64_t last = i + s->Nk - s->Nq + 1;
    *lo = s->mask == WINDOW && last > s->W ? last - s->W : 0;
    *hi = s->mask == LENGTHS ? b->lengths[entry] : s->mask == CAUSAL || s->mask == WINDOW ? last : s->Nk;
}

static inline double pairs_of(const problem *b)
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

static inline double scaled(const attn_cview *v, const attn_cview *scale, int64_t b, int64_t h, int64_t j, int64_t d)
{
    return attn_cview_at(v, b, h, j, d) * (scale->data ? attn_cview_at(scale, b, h, j, 0) : 1);
}

/* Weights of one row in double; w[j - *lo]. */
static inline void weights_of(const problem *b, int64_t e, int64_t h, int64_t i, double *w, int64_t *lo, int64_t *hi)
{
    const attn_sdpa_args *a = &b->args;
    int64_t g = h / (b->s->H / b->s->Hkv), d = b->s->d;
    double max = -INFINITY, total = 0;
    keys_of(b, e, i, lo, hi);
    for (int64_t j = *lo; j < *hi; j++) {
        double dot = 0;
        for (int64_t k = 0; k < d; k++)
            dot += attn_cview_at(&a->query, e, h, i, k) * scaled(&a->key, &a->key_scale, e, g, j, k);
        w[j - *lo] = dot / sqrt((double)d) + (b->s->mask == BIAS ? attn_cview_at(&a->mask.bias, 0, h, i, j) : 0);
        max = fmax(max, w[j - *lo]);
    }
    for (int64_t j = *lo; j < *hi; j++)
        total += w[j - *lo] = exp(w[j - *lo] - max);
    for (int64_t j = *lo; j < *hi; j++)
        w[j - *lo] /= total;
}

/* Largest error of out in 64 rows, relative to sum_j w_j |v_j|. */
static inline double forward_error(const problem *b)
{
    const shape *s = b->s;
    double *w = bench_memory((size_t)s->Nk * sizeof *w), worst = 0;
    attn_cview out = attn_view_const(&b->args.out);
    for (int64_t n = 0; n < (s->Nk > 100000 ? 16 : 64); n++) {
        int64_t i = s->Nq > 1 ? n * (s->Nq - 1) / 63 : 0, e = n % s->B, h = n * 7 % s->H, lo, hi;
        weights_of(b, e, h, i, w, &lo, &hi);
        for (int64_t k = 0; k < s->d; k++) {
            double want = 0, size = 0;
            for (int64_t j = lo; j < hi; j++) {
                double v = w[j - lo] * scaled(&b->args.value, &b->args.value_scale, e, h / (s->H / s->Hkv), j, k);
                want += v;
                size += fabs(v);
            }
            double off = fabs(attn_cview_at(&out, e, h, i, k) - want) / size;
            worst = off > worst || off != off ? off : worst;
        }
    }
    free(w);
    return worst;
}

static inline double relative(const attn_view *got, int64_t n, int64_t d, const double *want)
{
    attn_cview g = attn_view_const(got);
    double off = 0, size = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < d; k++) {
            double x = attn_cview_at(&g, 0, 0, i, k) - want[i * d + k];
            off += x * x;
            size += want[i * d + k] * want[i * d + k];
        }
    return sqrt(off / size);
}

/* Largest relative error (Frobenius) of the three gradients of the first head, which shares its keys with no other. */
static inline double backward_error(const problem *b)
{
    const shape *s = b->s;
    const int64_t d = s->d;
    const attn_sdpa_args *a = &b->args;
    double *w = bench_memory((size_t)s->Nk * 8), *dq = bench_memory((size_t)(s->Nq * d) * 8);
    double *dk = bench_memory((size_t)(s->Nk * d) * 8), *dv = bench_memory((size_t)(s->Nk * d) * 8);
    for (int64_t i = 0; i < s->Nq; i++) {
        int64_t lo, hi;
        double mean = 0, *dp = bench_memory((size_t)s->Nk * 8);
        weights_of(b, 0, 0, i, w, &lo, &hi);
        for (int64_t j = lo; j < hi; j++) {
            for (int64_t k = 0; k < d; k++)
                dp[j] += attn_cview_at(&b->grad.d_out, 0, 0, i, k) * attn_cview_at(&a->value, 0, 0, j, k);
            mean += w[j - lo] * dp[j];
        }
        for (int64_t j = lo; j < hi; j++) {
            double ds = w[j - lo] * (dp[j] - mean) / sqrt((double)d);
            for (int64_t k = 0; k < d; k++) {
                dq[i * d + k] += ds * attn_cview_at(&a->key, 0, 0, j, k);
                dk[j * d + k] += ds * attn_cview_at(&a->query, 0, 0, i, k);
                dv[j * d + k] += w[j - lo] * attn_cview_at(&b->grad.d_out, 0, 0, i, k);
            }
        }
        free(dp);
    }
    double worst = fmax(relative(&b->grad.d_query, s->Nq, d, dq),
                        fmax(relative(&b->grad.d_key, s->Nk, d, dk), relative(&b->grad.d_value, s->Nk, d, dv)));
    free(w), free(dq), free(dk), free(dv);
    return worst;
}

#endif
