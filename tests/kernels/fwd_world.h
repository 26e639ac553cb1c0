/* fwd_world.h - random forward problems with every option of attn_sdpa_args, any dtypes and strides, each array right at a
 * guard page and gaps filled with NaN; and the comparison with the reference, with its error bound. */
#ifndef TESTS_FWD_WORLD_H
#define TESTS_FWD_WORLD_H

#include <sys/mman.h>
#include <unistd.h>
#include <stdio.h>
#include "core/cpu.h"
#include "core/view.h"
#include "kernels/table.h"
#include "ops/sdpa/validate.h"
#include "kernels/score_size.h"
#include "properties/random_problem.h"

typedef struct world {
    attn_sdpa_args args;
    struct {
        void *map;
        size_t bytes;
    } owned[40];
    int n_owned;
    rng r;
} world;

/* Memory filled with 0xff (NaN in every float type), its end or its begin right at a page that may not be touched. */
static void *world_memory(world *w, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (bytes + page - 1) / page * page;
    char *map = mmap(NULL, body + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || w->n_owned == 40)
        abort();
    mprotect(map, page, PROT_NONE);
    mprotect(map + page + body, page, PROT_NONE);
    memset(map + page, 0xff, body);
    w->owned[w->n_owned].map = map;
    w->owned[w->n_owned++].bytes = body + 2 * page;
    return rng_chance(&w->r, 0.7) ? map + page + body - bytes : map + page;
}

static void world_free(world *w)
{
    while (w->n_owned) {
        w->n_owned--;
        munmap(w->owned[w->n_owned].map, w->owned[w->n_owned].bytes);
    }
}

/* An array of the shape: contiguous, or (odd) with permuted axes, gaps and reversed axes. Elements are not set. */
static attn_cview world_view(world *w, int32_t dtype, const int64_t shape[4], bool odd)
{
    attn_cview v = attn_cview_of(NULL, dtype, shape[0], shape[1], shape[2], shape[3]);
    int order[4] = {3, 2, 1, 0}; /* fastest first */
    int64_t step = 1, begin = 0;
    if (odd && rng_chance(&w->r, 0.4))
        for (int n = 3; n > 0; n--) {
            int other = (int)rng_range(&w->r, 0, n), swap = order[n];
            order[n] = order[other];
            order[other] = swap;
        }
    for (int n = 0; n < 4; n++) {
        int axis = order[n];
        if (odd && rng_chance(&w->r, 0.2))
            step *= rng_range(&w->r, 1, 3);
        bool reversed = odd && rng_chance(&w->r, 0.15);
        v.stride[axis] = reversed ? -step : step;
        if (reversed && shape[axis] > 0)
            begin += (shape[axis] - 1) * step;
        step *= shape[axis] > 0 ? shape[axis] : 1;
        if (odd && rng_chance(&w->r, 0.3))
            step += rng_range(&w->r, 0, 9);
    }
    int64_t last = 0;
    for (int n = 0; n < 4; n++)
        last += (shape[n] > 0 ? shape[n] - 1 : 0) * (v.stride[n] < 0 ? -v.stride[n] : v.stride[n]);
    char *memory = world_memory(w, (size_t)(last + 1) * attn_dtype_size(dtype));
    v.data = memory + begin * (int64_t)attn_dtype_size(dtype);
    return v;
}

static void *world_data(const attn_cview *v)
{
    return (void *)(uintptr_t)v->data;
}

/* amp * normal, or one value in zero_chance. */
static attn_cview world_floats(world *w, int32_t dtype, int64_t a, int64_t b, int64_t c, int64_t d, double amp, bool odd)
{
    int64_t shape[4] = {a, b, c, d};
    attn_cview v = world_view(w, dtype, shape, odd);
    if (odd && a > 1 && rng_chance(&w->r, 0.1))
        v.stride[0] = 0; /* all batch entries are the same */
    for (int64_t n = 0; n < a * b * c * d; n++) {
        double x = dtype == ATTN_I8 ? (double)rng_range(&w->r, -127, 127) : amp * rng_normal(&w->r);
        int64_t at = attn_offset(v.stride, n / (b * c * d), n / (c * d) % b, n / d % c, n % d);
        if (dtype == ATTN_I8)
            ((int8_t *)world_data(&v))[at] = (int8_t)x;
        else
            attn_store_element(world_data(&v), dtype, at, x);
    }
    return v;
}

static inline attn_cview world_bools(world *w, int64_t a, int64_t b, int64_t c, int64_t d, double chance, bool odd)
{
    int64_t shape[4] = {a, b, c, d};
    attn_cview v = world_view(w, ATTN_BOOL, shape, odd);
    for (int64_t n = 0; n < a * b * c * d; n++)
        ((uint8_t *)world_data(&v))[attn_offset(v.stride, n / (b * c * d), n / (c * d) % b, n / d % c, n % d)] =
            (uint8_t)(rng_chance(&w->r, chance) ? rng_range(&w->r, 1, 255) : 0);
    return v;
}

static inline int64_t *world_ints(world *w, int64_t n)
{
    int64_t *x = world_memory(w, (size_t)(n > 0 ? n : 1) * 8);
    memset(x, 0, (size_t)(n > 0 ? n : 1) * 8);
    return x;
}

static inline void world_mask(world *w, int64_t batch, int64_t heads, int64_t nq, int64_t nk, bool packed, bool odd)
{
    rng *r = &w->r;
    attn_sdpa_args *a = &w->args;
    attn_mask *m = &a->mask;
    int64_t entries = packed ? rng_range(r, 1, 4) : batch;
    if (rng_chance(r, 0.5))
        m->flags |= ATTN_MASK_CAUSAL;
    if (rng_chance(r, 0.3)) {
        m->flags |= ATTN_MASK_WINDOW;
        m->left = rng_chance(r, 0.2) ? -1 : rng_range(r, 0, nk / 2);
        m->right = rng_chance(r, 0.3) ? -1 : rng_range(r, 0, nk / 3);
    }
    if (packed) {
        int64_t *cq = world_ints(w, entries + 1), *ck = world_ints(w, entries + 1);
        for (int64_t s = 1; s <= entries; s++) {
            cq[s] = rng_range(r, cq[s - 1], nq);
            ck[s] = rng_range(r, ck[s - 1], nk);
        }
        m->cu_seqlens_q = cq;
        m->cu_seqlens_k = ck;
        m->n_segments = entries;
    }
    if (m->flags) {
        int64_t *offsets = world_ints(w, entries);
        m->flags |= ATTN_MASK_OFFSET;
        for (int64_t s = 0; s < entries; s++)
            offsets[s] = rng_range(r, -4, nk);
        if (rng_chance(r, 0.5))
            m->query_offsets = offsets;
        else
            m->query_offset = offsets[0];
    }
    if (!packed && rng_chance(r, 0.3)) {
        int64_t *kl = world_ints(w, entries), *ql = world_ints(w, entries);
        for (int64_t s = 0; s < entries; s++) {
            kl[s] = rng_range(r, 0, nk);
            ql[s] = rng_range(r, 0, nq);
        }
        m->kv_len = kl;
        m->q_len = rng_chance(r, 0.6) ? ql : NULL;
    }
#define MAYBE_ONE(n, p) (rng_chance(r, p) ? 1 : (n))
    if (rng_chance(r, 0.25)) {
        int32_t dtype = rng_chance(r, 0.5) ? a->query.dtype : ATTN_F32;
        m->bias = world_floats(w, dtype, MAYBE_ONE(batch, 0.5), MAYBE_ONE(heads, 0.5), MAYBE_ONE(nq, 0.3), MAYBE_ONE(nk, 0.2),
                               2, odd);
        for (int64_t n = rng_range(r, 0, 3) * nk; n > 0; n--)
            attn_store_element(world_data(&m->bias), dtype,
                               attn_offset(m->bias.stride, rng_range(r, 0, m->bias.shape[0] - 1),
                                           rng_range(r, 0, m->bias.shape[1] - 1), rng_range(r, 0, m->bias.shape[2] - 1),
                                           rng_range(r, 0, m->bias.shape[3] - 1)),
                               -INFINITY);
    }
    if (rng_chance(r, 0.25))
        m->allow = world_bools(w, MAYBE_ONE(batch, 0.5), MAYBE_ONE(heads, 0.5), MAYBE_ONE(nq, 0.3), MAYBE_ONE(nk, 0.2),
                               rng_unit(r), odd);
    if (rng_chance(r, 0.2)) {
        m->alibi_slopes = world_floats(w, ATTN_F32, 1, 1, 1, heads, 0.3, false).data;
        m->bias_offset = rng_range(r, -2, 40);
    }
    if (rng_chance(r, 0.2)) {
        m->rel_left = rng_range(r, 0, 50);
        m->rel_right = rng_range(r, 0, 50);
        m->relative_stride = rng_chance(r, 0.7) ? m->rel_left + m->rel_right + 1 + rng_range(r, 0, 2) : 0;
        m->relative = world_floats(w, ATTN_F32, 1, 1, heads, m->rel_left + m->rel_right + 3, 1, false).data;
    }
}

/* Paged, or a ring: where they may be. The ring keeps all keys or the window excludes the lost ones. */
static inline void world_layout(world *w, int64_t batch, int64_t kv, int64_t nk, int64_t d, int64_t dv, int32_t dtype)
{
    rng *r = &w->r;
    attn_sdpa_args *a = &w->args;
    int64_t slots = nk, first = batch;
    if (rng_chance(r, 0.7)) {
        slots = rng_range(r, 1, 20);
        int64_t per = (nk + slots - 1) / slots + rng_range(r, 0, 1);
        int32_t *table = world_memory(w, (size_t)(batch * per > 0 ? batch * per : 1) * 4);
        first = batch * per + rng_range(r, 1, 3);
        for (int64_t n = 0; n < batch * per; n++)
            table[n] = (int32_t)rng_range(r, 0, first - 1);
        a->layout.block_table = table;
        a->layout.block_table_stride = per;
    } else {
        slots = nk + rng_range(r, 0, 3);
        slots = slots > 0 ? slots : 1;
        a->layout.ring = 1;
    }
    a->layout.seq_kv = nk;
    a->key = world_floats(w, dtype, first, kv, slots, d, 1, false);
    a->value = world_floats(w, dtype, first, kv, slots, dv, 1, false);
}

/* nq queries and nk keys; options by chance. */
static inline void world_make(world *w, uint64_t seed, int64_t max_q, int64_t max_k, int64_t max_dim)
{
    memset(w, 0, sizeof *w);
    w->r.state = seed;
    rng *r = &w->r;
    attn_sdpa_args *a = &w->args;
    ATTN_ARGS_INIT(a);
    static const int32_t types[] = {ATTN_F32, ATTN_F32, ATTN_BF16, ATTN_F16};
    bool odd = rng_chance(r, 0.4), packed = rng_chance(r, 0.2);
    int32_t dtype = types[rng_range(r, 0, 3)], kv_dtype = rng_chance(r, 0.7) ? dtype : types[rng_range(r, 0, 3)];
    if (rng_chance(r, 0.15))
        kv_dtype = ATTN_I8;
    int64_t batch = packed ? 1 : rng_range(r, 1, 3), kv = rng_range(r, 1, 2), heads = kv * rng_range(r, 1, 3);
    int64_t nq = rng_range(r, 1, max_q), nk = rng_range(r, 1, max_k), d = rng_range(r, 1, max_dim), dv = rng_range(r, 1, max_dim);
    double amp = kv_dtype == ATTN_I8 ? 1 : rng_chance(r, 0.2) ? 4 : 1;
    a->query = world_floats(w, dtype, batch, heads, nq, d, amp, odd);
    if (!packed && rng_chance(r, 0.2)) {
        world_layout(w, batch, kv, nk, d, dv, kv_dtype);
    } else {
        a->key = world_floats(w, kv_dtype, batch, kv, nk, d, amp, odd);
        a->value = world_floats(w, kv_dtype, batch, kv, nk, dv, amp, odd);
    }
    if (kv_dtype == ATTN_I8) {
        a->key_scale = world_floats(w, ATTN_F32, a->key.shape[0], kv, a->key.shape[2], 1, 0.02, odd);
        a->value_scale = world_floats(w, ATTN_F32, a->key.shape[0], kv, a->key.shape[2], 1, 0.02, odd);
    }
    int32_t out_dtype = rng_chance(r, 0.5) ? ATTN_F32 : dtype;
    int64_t shape[4] = {batch, heads, nq, dv};
    attn_cview out = world_view(w, out_dtype, shape, odd);
    memcpy(&a->out, &out, sizeof out);
    a->lse = rng_chance(r, 0.8) ? world_memory(w, (size_t)(batch * heads * nq) * 4) : NULL;
    world_mask(w, batch, heads, nq, nk, packed, odd);
    if (rng_chance(r, 0.2))
        a->softcap = 1 + 10 * rng_unit(r);
    if (rng_chance(r, 0.2))
        a->sinks = world_floats(w, ATTN_F32, 1, 1, 1, heads, 2, false).data;
    if (rng_chance(r, 0.2)) {
        a->flags |= ATTN_SCALE_GIVEN;
        a->scale = rng_chance(r, 0.2) ? 0 : rng_normal(r) * 0.3;
    }
    if (rng_chance(r, 0.15)) {
        a->dropout_p = rng_chance(r, 0.1) ? 1 : rng_unit(r);
        a->dropout_seed = rng_next(r);
        if (rng_chance(r, 0.4)) {
            a->dropout_p = rng_chance(r, 0.3) ? 0 : a->dropout_p;
            a->keep = world_bools(w, MAYBE_ONE(batch, 0.5), MAYBE_ONE(heads, 0.5), MAYBE_ONE(nq, 0.3), MAYBE_ONE(nk, 0.2), 0.6, odd);
        }
    }
    bool poisoned = kv_dtype != ATTN_I8 && rng_chance(r, 0.25);
    for (int64_t n = poisoned ? rng_range(r, 1, 4) : 0; n > 0; n--) { /* NaN or infinity in a key or a value */
        const attn_cview *v = rng_chance(r, 0.5) ? &a->key : &a->value;
        double bad = rng_chance(r, 0.5) ? NAN : rng_chance(r, 0.5) ? INFINITY : -INFINITY;
        attn_store_element(world_data(v), kv_dtype,
                           attn_offset(v->stride, rng_range(r, 0, v->shape[0] - 1), rng_range(r, 0, v->shape[1] - 1),
                                       rng_range(r, 0, v->shape[2] - 1), rng_range(r, 0, v->shape[3] - 1)),
                           bad);
    }
}

static inline double rounding_of(int32_t dtype)
{
    return dtype == ATTN_BF16 ? 0x1p-8 : dtype == ATTN_F16 ? 0x1p-11 : 0x1p-24;
}

/* One row against the reference in double, u = 2^-24.
 * Scores: a sum of head_dim products and up to 8 further operations (rules, shift, scaling of the exponent), each rounded:
 *     |ds| <= (head_dim + 8) u * size, size = largest score_size of the row.
 * Weights: relative error |ds| twice (numerator, denominator) + 2 ulp of exp + the sum of n keys and one factor per block:
 *     |dw|/w <= 2 |ds| + (n + 16) u.  Outputs add n more roundings: |do| <= (2 |ds| + (2 n + 24) u) sum_j w_j |v_j|, then
 * one rounding to the output's dtype (2^-25 absolute for f16 subnormals). lse: |ds| + (n + 16) u + u |lse|.
 * Weights of less than 2^-126 of the largest may be dropped: that is below n 2^-126 max|v|.
 * Products in bf16 (weight_rounding 2^-8): each weight is rounded once more, above and below the line: 2 * 2^-8 / (1 - 2^-8)
 * of sum_j w_j |v_j|; factors below 2^-126 count as 0.
 * Returns NULL, or what is wrong. */
static inline const char *row_wrong(const attn_problem *p, const attn_problem *exact, const attn_entry *e, int64_t h, int64_t i,
                             double weight_rounding, double *sums)
{
    static char text[200];
    int64_t lo, hi, q = e->q_begin + i;
    double size = p->a.sinks ? fabs((double)p->a.sinks[h]) : 0, score, u = 0x1p-24, lse = attn_ref_row_lse(p, e, h, i);
    for (int64_t d = 0; d < p->value_dim; d++)
        sums[p->value_dim + d] = 0;
    attn_row_range(p, e, i, &lo, &hi);
    double n = 0, largest = 0;
    for (int64_t j = lo; j < hi; j++) {
        if (!attn_ref_score(p, e, h, i, j, &score))
            continue;
        double here = score_size(p, e, h, i, j), w = exp(score - lse) * attn_dropout_factor(p, e, h, i, j);
        size = here > size && isfinite(here) ? here : size;
        n++;
        for (int64_t d = 0; d < p->value_dim; d++) {
            double v = fabs(attn_ref_value(p, e, h / p->group, j, d));
            sums[p->value_dim + d] += w * v;
            largest = v > largest ? v : largest;
        }
    }
    attn_ref_forward_row(exact, e, h, i, sums);
    double ds = (double)(p->head_dim + 8) * u * size;
    for (int64_t d = 0; d < p->value_dim; d++) {
        double want = attn_load_element(exact->a.out.data, ATTN_F64, attn_offset(exact->a.out.stride, e->batch, h, q, d));
        double got = attn_load_element(p->a.out.data, p->a.out.dtype, attn_offset(p->a.out.stride, e->batch, h, q, d));
        double weights = 2 * ds + (2 * n + 24) * u + 2 * weight_rounding / (1 - weight_rounding);
        double bound = weights * sums[p->value_dim + d] + n * largest * 0x1p-126;
        bound += (fabs(want) + bound) * rounding_of(p->a.out.dtype) + (p->a.out.dtype == ATTN_F16 ? 0x1p-25 : 0x1p-149);
        if (got == want || (want != want && got != got))
            continue;
        if (!(fabs(got - want) <= bound)) {
            snprintf(text, sizeof text, "out[%lld, %lld, %lld, %lld] is %.9g, reference %.9g, bound %.3g", (long long)e->batch,
                     (long long)h, (long long)q, (long long)d, got, want, bound);
            return text;
        }
    }
    if (!p->a.lse)
        return NULL;
    double got = (double)((const float *)p->a.lse)[(e->batch * p->n_heads + h) * p->seq_q + q];
    double want = ((const double *)exact->a.lse)[(e->batch * p->n_heads + h) * p->seq_q + q];
    if (got == want || (want != want && got != got) || fabs(got - want) <= ds + (n + 16) * u + 2 * u * fabs(want))
        return NULL;
    snprintf(text, sizeof text, "lse[%lld, %lld, %lld] is %.9g, reference %.9g", (long long)e->batch, (long long)h, (long long)q,
             got, want);
    return text;
}

/* Compares out and lse, as a forward call at a level left them, with the reference; padding rows must be 0 and -inf. */
static inline const char *world_wrong(const attn_problem *p, const char *isa)
{
    const double weight_rounding = attn_fwd_kernel_for(attn_isa_from_name(isa), p)->pair == 2 ? 0x1p-8 : 0;
    int64_t count = p->batch * p->n_heads * p->seq_q;
    attn_problem exact = *p;
    double *out = calloc((size_t)(count * p->value_dim + 1), sizeof *out), *lse = calloc((size_t)count + 1, sizeof *lse);
    double *sums = calloc((size_t)(2 * p->value_dim + 1), sizeof *sums);
    unsigned char *seen = calloc((size_t)count + 1, 1);
    const char *wrong = NULL;
    exact.a.out = attn_view_of(out, ATTN_F64, p->batch, p->n_heads, p->seq_q, p->value_dim);
    exact.a.lse = lse;
    exact.lse_dtype = ATTN_F64;
    for (int64_t s = 0; s < p->n_entries && !wrong; s++) {
        attn_entry e = attn_problem_entry(p, s);
        for (int64_t h = 0; h < p->n_heads && !wrong; h++)
            for (int64_t i = 0; i < e.q_count && !wrong; i++) {
                wrong = row_wrong(p, &exact, &e, h, i, weight_rounding, sums);
                seen[(e.batch * p->n_heads + h) * p->seq_q + e.q_begin + i] = 1;
            }
    }
    for (int64_t n = 0; n < count && !wrong; n++) {
        if (seen[n])
            continue;
        if (p->a.lse && ((const float *)p->a.lse)[n] != -INFINITY)
            wrong = "lse of a padding row is not -inf";
        for (int64_t d = 0; d < p->value_dim; d++)
            if (attn_load_element(p->a.out.data, p->a.out.dtype,
                                  attn_offset(p->a.out.stride, n / p->seq_q / p->n_heads, n / p->seq_q % p->n_heads,
                                              n % p->seq_q, d)) != 0)
                wrong = "out of a padding row is not 0";
    }
    free(out);
    free(lse);
    free(sums);
    free(seen);
    return wrong;
}

static inline void world_print(const attn_problem *p, uint64_t seed, const char *isa, const char *wrong)
{
    const attn_sdpa_args *a = &p->a;
    const attn_mask *m = &a->mask;
    printf("seed %llu on %s: %s\n  batch %lld heads %lld/%lld q %lld k %lld d %lld/%lld dtypes %d %d %d scale %g cap %g\n"
           "  flags %u left %lld right %lld kv_len %d q_len %d packed %d allow %d bias %d alibi %d rel %d sinks %d drop %g "
           "keep %d paged %d ring %d\n",
           (unsigned long long)seed, isa, wrong, (long long)p->batch, (long long)p->n_heads, (long long)p->n_kv_heads,
           (long long)p->seq_q, (long long)p->seq_kv, (long long)p->head_dim, (long long)p->value_dim, a->query.dtype,
           a->key.dtype, a->out.dtype, p->scale, a->softcap, m->flags, (long long)m->left, (long long)m->right,
           m->kv_len != NULL, m->q_len != NULL, p->packed, m->allow.data != NULL, m->bias.data != NULL,
           m->alibi_slopes != NULL, m->relative != NULL, a->sinks != NULL, a->dropout_p, a->keep.data != NULL,
           a->layout.block_table != NULL, (int)a->layout.ring);
}

#endif
