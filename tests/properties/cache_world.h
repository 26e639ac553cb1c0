/* cache_world.h - random sequences fed through a KV cache in chunks, with what attention over plain arrays gives for
 * them in double. One world, three storages: contiguous, paged (shuffled blocks) and ring; unused slots hold NaN. */
#ifndef TESTS_CACHE_WORLD_H
#define TESTS_CACHE_WORLD_H

#include <float.h>
#include "core/cpu.h"
#include "core/view.h"
#include "kernels/ref/ref_sdpa.h"
#include "kernels/table.h"
#include "ops/sdpa/validate.h"
#include "properties/random_problem.h"

enum { STORE_PLAIN, STORE_PAGED, STORE_RING, N_STORES };

typedef struct cache_world {
    int64_t batch, heads, kv_heads, dim, value_dim, tokens, prefix; /* tokens: most of one sequence */
    int32_t query_type, cache_type, new_type, out_type;
    double *query, *key, *value, *prefix_key, *prefix_value; /* [batch, heads, tokens, dim]; exact in their types */
    attn_mask mask;                                          /* without allow and bias, made anew for each call */
    bool with_allow, with_bias;
    double scale, softcap;
    float *sinks;
    int64_t most_new;
    random_problem memory; /* owns everything */
} cache_world;

static inline double round_to(int32_t dtype, double x)
{
    double cell = 0;
    attn_store_element(&cell, dtype, 0, x);
    return attn_load_element(&cell, dtype, 0);
}

static inline double *world_numbers(cache_world *w, rng *r, int64_t n, int32_t dtype, double amp)
{
    double *x = problem_memory(&w->memory, (size_t)n * sizeof *x);
    for (int64_t k = 0; k < n; k++)
        x[k] = round_to(dtype, amp * rng_normal(r));
    return x;
}

static inline void world_rules(cache_world *w, rng *r, bool windowed)
{
    attn_mask *m = &w->mask;
    if (rng_chance(r, 0.6))
        m->flags |= ATTN_MASK_CAUSAL;
    if (windowed) {
        m->flags |= ATTN_MASK_WINDOW;
        m->left = rng_range(r, 0, 9);
        m->right = rng_range(r, -1, 4);
    }
    if (rng_chance(r, 0.3)) {
        float *slopes = problem_memory(&w->memory, (size_t)w->heads * 4);
        for (int64_t h = 0; h < w->heads; h++)
            slopes[h] = (float)rng_unit(r);
        m->alibi_slopes = slopes;
    }
    if (rng_chance(r, 0.3)) {
        m->rel_left = rng_range(r, 0, 5);
        m->rel_right = rng_range(r, 0, 5);
        m->relative_stride = m->rel_left + m->rel_right + 1;
        m->relative = problem_floats(&w->memory, r, 1, 1, w->heads, m->relative_stride, 1).data;
    }
    w->with_allow = rng_chance(r, 0.3);
    w->with_bias = rng_chance(r, 0.3);
    w->softcap = rng_chance(r, 0.3) ? 1 + 3 * rng_unit(r) : 0;
    if (rng_chance(r, 0.3))
        w->sinks = (float *)(uintptr_t)problem_floats(&w->memory, r, 1, 1, 1, w->heads, 2).data;
    w->scale = rng_chance(r, 0.3) ? 0.1 + rng_unit(r) : 0;
}

/* windowed: the rules hold a window with a closed left side, so that a ring can store it. */
static inline void world_make(cache_world *w, rng *r, int64_t max_tokens, bool windowed)
{
    static const int32_t query_types[] = {ATTN_F32, ATTN_F64, ATTN_BF16, ATTN_F16};
    static const int32_t cache_types[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_I8};
    memset(w, 0, sizeof *w);
    w->query_type = query_types[rng_range(r, 0, 3)];
    w->cache_type = w->query_type == ATTN_F64 ? ATTN_F64 : cache_types[rng_range(r, 0, 3)];
    w->new_type = w->cache_type == ATTN_I8 || rng_chance(r, 0.5) ? query_types[rng_range(r, 0, 3)] : w->cache_type;
    w->out_type = rng_chance(r, 0.5) || w->query_type == ATTN_F64 ? w->query_type : ATTN_F32;
    w->batch = rng_range(r, 1, 3);
    w->kv_heads = rng_range(r, 1, 3);
    w->heads = w->kv_heads * rng_range(r, 1, 5);
    w->dim = rng_range(r, 1, 40);
    w->value_dim = rng_chance(r, 0.5) ? w->dim : rng_range(r, 1, 40);
    w->tokens = rng_range(r, 2, max_tokens);
    w->most_new = rng_chance(r, 0.5) ? 3 : w->tokens;
    w->prefix = w->cache_type != ATTN_I8 && rng_chance(r, 0.3) ? rng_range(r, 0, max_tokens / 2) : -1;
    int32_t stored = w->cache_type == ATTN_I8 ? w->new_type : w->cache_type;
    w->query = world_numbers(w, r, w->batch * w->heads * w->tokens * w->dim, w->query_type, 1);
    w->key = world_numbers(w, r, w->batch * w->kv_heads * w->tokens * w->dim, w->new_type, 1);
    w->value = world_numbers(w, r, w->batch * w->kv_heads * w->tokens * w->value_dim, w->new_type, 1);
    if (w->prefix >= 0) {
        w->prefix_key = world_numbers(w, r, w->kv_heads * w->prefix * w->dim, stored, 1);
        w->prefix_value = world_numbers(w, r, w->kv_heads * w->prefix * w->value_dim, stored, 1);
    }
    world_rules(w, r, windowed);
}

/* What the cache gives back for a row of `n` numbers: rounded to its dtype, or absmax/127 quantised and multiplied out. */
static inline void stored_row(const cache_world *w, const double *x, int64_t n, double *back)
{
    float most = 0;
    for (int64_t d = 0; d < n; d++)
        most = fabsf((float)x[d]) > most ? fabsf((float)x[d]) : most;
    float scale = (float)((double)most / 127.0);
    for (int64_t d = 0; d < n; d++)
        back[d] = w->cache_type != ATTN_I8 ? round_to(w->cache_type, x[d])
                                           : scale == 0 ? 0 : nearbyint((double)((float)x[d] / scale)) * (double)scale;
}

/* ---- A cache in one of the storages -------------------------------------------------------------- */

typedef struct world_cache {
    int store;
    int64_t block_size;
    int32_t *table;
    int64_t table_stride;
    attn_view key, value, key_scale, value_scale;
    int64_t length[8]; /* tokens per sequence */
} world_cache;

static inline attn_view poisoned(cache_world *w, int32_t dtype, int64_t a, int64_t b, int64_t c, int64_t d)
{
    size_t bytes = (size_t)(a * b * c * d) * attn_dtype_size(dtype);
    void *memory = problem_memory(&w->memory, bytes);
    memset(memory, 0xff, bytes); /* NaN in every float type */
    return attn_view_of(memory, dtype, a, b, c, d);
}

static inline world_cache world_cache_make(cache_world *w, rng *r, int store)
{
    world_cache c = {.store = store};
    int64_t n = w->batch, rows = w->tokens + rng_range(r, 0, 3);
    if (store == STORE_PAGED) {
        c.block_size = rng_range(r, 1, 9);
        c.table_stride = (w->tokens + c.block_size - 1) / c.block_size + rng_range(r, 0, 2);
        n = w->batch * c.table_stride + rng_range(r, 0, 3);
        rows = c.block_size;
        c.table = problem_memory(&w->memory, (size_t)(w->batch * c.table_stride) * sizeof(int32_t));
        int32_t *order = problem_memory(&w->memory, (size_t)n * sizeof *order);
        for (int64_t k = 0; k < n; k++) {
            int64_t at = rng_range(r, 0, k);
            order[k] = order[at];
            order[at] = (int32_t)k;
        }
        for (int64_t k = 0; k < w->batch * c.table_stride; k++)
            c.table[k] = order[k];
    } else if (store == STORE_RING) {
        rows = w->mask.left + w->most_new + rng_range(r, 0, 2);
    }
    c.key = poisoned(w, w->cache_type, n, w->kv_heads, rows, w->dim);
    c.value = poisoned(w, w->cache_type, n, w->kv_heads, rows, w->value_dim);
    c.key_scale = poisoned(w, ATTN_F32, n, w->kv_heads, rows, 1);
    c.value_scale = poisoned(w, ATTN_F32, n, w->kv_heads, rows, 1);
    return c;
}

/* ---- One call ------------------------------------------------------------------------------------- */

typedef struct world_call {
    attn_decode_args args;
    int64_t n_new, new_len[8], cache_len[8];
    attn_view out;
    void *lse;
} world_call;

/* Rows start[b] .. start[b] + count[b] - 1 of each sequence, in dtype; rows beyond are NaN. */
static inline attn_cview chunk_of(cache_world *w, const double *all, int32_t dtype, int64_t heads, int64_t dim, int64_t n_new,
                                  const int64_t *start, const int64_t *count)
{
    attn_view v = poisoned(w, dtype, w->batch, heads, n_new, dim);
    for (int64_t b = 0; b < w->batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < count[b]; i++)
                for (int64_t d = 0; d < dim; d++)
                    attn_store_element(v.data, dtype, attn_offset(v.stride, b, h, i, d),
                                       all[((b * heads + h) * w->tokens + start[b] + i) * dim + d]);
    return attn_view_const(&v);
}

static inline attn_cview prefix_of(cache_world *w, const double *all, int64_t dim)
{
    attn_view v = poisoned(w, w->cache_type, 1, w->kv_heads, w->prefix, dim);
    for (int64_t k = 0; k < w->kv_heads * w->prefix * dim; k++)
        attn_store_element(v.data, w->cache_type, k, all[k]);
    return attn_view_const(&v);
}

/* The call that feeds n_new[b] tokens per sequence; allow and bias are drawn from r. */
static inline world_call world_call_make(cache_world *w, rng *r, const int64_t *length, int64_t n_new, const int64_t *count)
{
    world_call c = {.n_new = n_new};
    attn_decode_args *a = &c.args;
    int64_t positions = (w->prefix > 0 ? w->prefix : 0) + w->tokens;
    ATTN_ARGS_INIT(a);
    memcpy(c.new_len, count, sizeof c.new_len);
    memcpy(c.cache_len, length, sizeof c.cache_len);
    a->query = chunk_of(w, w->query, w->query_type, w->heads, w->dim, n_new, length, count);
    a->new_key = chunk_of(w, w->key, w->new_type, w->kv_heads, w->dim, n_new, length, count);
    a->new_value = chunk_of(w, w->value, w->new_type, w->kv_heads, w->value_dim, n_new, length, count);
    if (w->prefix >= 0) {
        a->prefix_key = prefix_of(w, w->prefix_key, w->dim);
        a->prefix_value = prefix_of(w, w->prefix_value, w->value_dim);
    }
    c.out = a->out = poisoned(w, w->out_type, w->batch, w->heads, n_new, w->value_dim);
    c.lse = a->lse = poisoned(w, w->query_type == ATTN_F64 ? ATTN_F64 : ATTN_F32, w->batch, w->heads, n_new, 1).data;
    a->mask = w->mask;
    a->scale = w->scale;
    a->softcap = w->softcap;
    a->sinks = w->sinks;
    if (w->with_allow) {
        int64_t b = rng_chance(r, 0.5) ? w->batch : 1, h = rng_chance(r, 0.5) ? w->heads : 1, n = b * h * n_new * positions;
        uint8_t *x = problem_memory(&w->memory, (size_t)n);
        for (int64_t k = 0; k < n; k++)
            x[k] = rng_chance(r, 0.7);
        a->mask.allow = attn_cview_of(x, ATTN_BOOL, b, h, n_new, positions);
    }
    if (w->with_bias) {
        a->mask.bias = problem_floats(&w->memory, r, rng_chance(r, 0.5) ? w->batch : 1, rng_chance(r, 0.5) ? w->heads : 1,
                                      rng_chance(r, 0.7) ? n_new : 1, positions, 2);
        float *x = (float *)(uintptr_t)a->mask.bias.data;
        for (int64_t k = 0; k < a->mask.bias.stride[0] * a->mask.bias.shape[0]; k++)
            if (rng_chance(r, 0.1))
                x[k] = -INFINITY;
    }
    return c;
}

/* Points the call at a cache. */
static inline void world_call_use(world_call *call, world_cache *c)
{
    attn_decode_args *a = &call->args;
    a->cache_key = c->key;
    a->cache_value = c->value;
    a->cache_key_scale = c->key_scale;
    a->cache_value_scale = c->value_scale;
    memset(&a->layout, 0, sizeof a->layout);
    a->layout.ring = c->store == STORE_RING;
    a->layout.block_table = c->table;
    a->layout.block_table_stride = c->table_stride;
    a->cache_len = call->cache_len;
    a->new_len = call->new_len;
}

/* ---- What the call should give --------------------------------------------------------------------- */

typedef struct world_answer {
    double *out, *lse, *bound_out, *bound_lse; /* [heads, count, value_dim], [heads, count]; how far f32 sums may be off */
} world_answer;

static inline void append_columns(const cache_world *w, double *to, int64_t positions, const double *prefix, const double *own,
                                  int64_t held, int64_t dim)
{
    int64_t p = w->prefix > 0 ? w->prefix : 0;
    for (int64_t g = 0; g < w->kv_heads; g++)
        for (int64_t j = 0; j < positions; j++) {
            double *row = to + (g * positions + j) * dim;
            if (j < p)
                memcpy(row, prefix + (g * p + j) * dim, (size_t)dim * sizeof *row);
            else if (j - p < held)
                stored_row(w, own + (g * w->tokens + j - p) * dim, dim, row);
        }
}

/* Error of a row computed in precision eps (u = eps/2 per operation). A score's dot product is off by at most
 * (dim + 8) u sum|q k| scale and the terms added to it by 8 u of their size; a weight by that plus 8 u (exp, 2 ulp, and
 * rescales: one per chunk); sums of n weights by n u. The output, a weighted mean of values, moves by twice the relative
 * error of the weights times max|v|, and its own rounding to the output's dtype comes on top. Where products are in bf16
 * (attn_sdpa_forward), each weight is rounded once more. */
static inline void row_bounds(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i, double eps, double *out, double *lse)
{
    const double *q = (const double *)p->a.query.data + h * p->a.query.stride[1] + i * p->a.query.stride[2];
    int64_t g = h / p->group, lo, hi;
    double dot = 0, value = 0, term = 0;
    attn_row_range(p, e, i, &lo, &hi);
    for (int64_t j = lo; j < hi; j++) {
        const double *k = (const double *)p->a.key.data + g * p->a.key.stride[1] + j * p->a.key.stride[2], *v;
        double size = 0, score;
        for (int64_t d = 0; d < p->head_dim; d++)
            size += fabs(q[d] * k[d]);
        dot = fmax(dot, size * fabs(p->scale));
        v = (const double *)p->a.value.data + g * p->a.value.stride[1] + j * p->a.value.stride[2];
        for (int64_t d = 0; d < p->value_dim; d++)
            value = fmax(value, fabs(v[d]));
        if (attn_ref_score(p, e, h, i, j, &score))
            term = fmax(term, fabs(score) + size * fabs(p->scale));
        if (p->a.mask.alibi_slopes)
            term = fmax(term, fabs(score) + fabs((double)p->a.mask.alibi_slopes[h] * (double)(j - i - e->bias_offset)));
    }
    double weight = eps * ((double)(p->head_dim + 8) * dot + 8 * term + (double)(hi - lo) + 16);
    *out = 2 * weight * value;
    *lse = weight + eps * (term + 8);
}

/* 2 * 2^-8 / (1 - 2^-8) of a mean of |values|. */
static inline double world_bf16_rounding(const attn_problem *p)
{
    double largest = 0;
    for (int64_t g = 0; g < p->n_kv_heads; g++)
        for (int64_t j = 0; j < p->seq_kv; j++)
            for (int64_t d = 0; d < p->value_dim; d++)
                largest = fmax(largest, fabs(attn_cview_at(&p->a.value, 0, g, j, d)));
    return 0x1p-7 / (1 - 0x1p-8) * largest;
}

/* Answers for sequence b of a call, every key and value in double. */
static inline world_answer world_expect(cache_world *w, attn_ctx *ctx, const world_call *call, int64_t b)
{
    int64_t p = w->prefix > 0 ? w->prefix : 0, n = call->new_len[b], held = call->cache_len[b] + n, positions = p + held;
    attn_sdpa_args a;
    attn_problem problem;
    world_answer answer;
    ATTN_ARGS_INIT(&a);
    double *q = problem_memory(&w->memory, (size_t)(w->heads * n * w->dim) * 8);
    for (int64_t h = 0; h < w->heads; h++)
        memcpy(q + h * n * w->dim, w->query + ((b * w->heads + h) * w->tokens + call->cache_len[b]) * w->dim, (size_t)(n * w->dim) * 8);
    double *k = problem_memory(&w->memory, (size_t)(w->kv_heads * positions * w->dim) * 8);
    double *v = problem_memory(&w->memory, (size_t)(w->kv_heads * positions * w->value_dim) * 8);
    append_columns(w, k, positions, w->prefix_key, w->key + b * w->kv_heads * w->tokens * w->dim, held, w->dim);
    append_columns(w, v, positions, w->prefix_value, w->value + b * w->kv_heads * w->tokens * w->value_dim, held, w->value_dim);
    answer.out = problem_memory(&w->memory, (size_t)(w->heads * n * w->value_dim) * 8);
    answer.lse = problem_memory(&w->memory, (size_t)(w->heads * n) * 8);
    answer.bound_out = problem_memory(&w->memory, (size_t)(w->heads * n) * 8);
    answer.bound_lse = problem_memory(&w->memory, (size_t)(w->heads * n) * 8);
    a.query = attn_cview_of(q, ATTN_F64, 1, w->heads, n, w->dim);
    a.key = attn_cview_of(k, ATTN_F64, 1, w->kv_heads, positions, w->dim);
    a.value = attn_cview_of(v, ATTN_F64, 1, w->kv_heads, positions, w->value_dim);
    a.out = attn_view_of(answer.out, ATTN_F64, 1, w->heads, n, w->value_dim);
    a.lse = answer.lse;
    a.mask = call->args.mask;
    a.mask.flags |= ATTN_MASK_OFFSET;
    a.mask.query_offset = a.mask.bias_offset = p + call->cache_len[b];
    attn_cview *views[2] = {&a.mask.allow, &a.mask.bias};
    for (int m = 0; m < 2; m++) {
        attn_cview *view = views[m];
        if (!view->data)
            continue;
        if (view->shape[0] > 1)
            view->data = (const char *)view->data + b * view->stride[0] * (int64_t)attn_dtype_size(view->dtype);
        view->shape[0] = 1;
        view->shape[2] = view->shape[2] > 1 ? n : view->shape[2];
        view->shape[3] = positions;
    }
    a.scale = w->scale;
    a.softcap = w->softcap;
    a.sinks = w->sinks;
    if (n == 0 || attn_sdpa_validate(ctx, &a, ATTN_NEED_ALL, &problem) != ATTN_OK)
        return answer;
    bool in_bf16 = attn_kernels_for(attn_isa_from_name(attn_ctx_isa(ctx)))->forward_bf16.strip && call->args.query.dtype == ATTN_BF16 &&
                   call->args.cache_key.dtype == ATTN_BF16 && call->args.out.dtype == ATTN_BF16;
    double *scratch = problem_memory(&w->memory, (size_t)w->value_dim * 8);
    attn_entry e = attn_problem_entry(&problem, 0);
    for (int64_t h = 0; h < w->heads; h++)
        for (int64_t i = 0; i < n; i++) {
            attn_ref_forward_row(&problem, &e, h, i, scratch);
            row_bounds(&problem, &e, h, i, w->query_type == ATTN_F64 ? DBL_EPSILON : FLT_EPSILON, &answer.bound_out[h * n + i],
                       &answer.bound_lse[h * n + i]);
            if (in_bf16)
                answer.bound_out[h * n + i] += world_bf16_rounding(&problem);
        }
    return answer;
}

#endif
