/* gradient_problem.h - a random problem (random_problem.h) with everything that its backward pass reads and writes, in any
 * dtype. Values are multiples of 1/64 below 4, exact in every dtype, so that all dtypes see the same numbers. */
#ifndef TESTS_GRADIENT_PROBLEM_H
#define TESTS_GRADIENT_PROBLEM_H

#include "core/view.h"
#include "properties/random_problem.h"

enum { GRAD_QUERY, GRAD_KEY, GRAD_VALUE, GRAD_BIAS, GRAD_RELATIVE, GRAD_SINKS, N_GRADS };

typedef struct gradient_problem {
    random_problem made;
    attn_sdpa_backward_args args; /* args.forward == &made.args */
    int64_t count[N_GRADS];       /* elements of each gradient; 0: not there */
} gradient_problem;

static inline double grid_value(rng *r, double amp)
{
    double x = rint(64 * amp * rng_normal(r)) / 64;
    return x > 4 ? 4 : x < -4 ? -4 : x;
}

static inline int64_t view_count(const attn_cview *v)
{
    return v->shape[0] * v->shape[1] * v->shape[2] * v->shape[3];
}

/* A contiguous array of the same shape in dtype, with values on the grid; -inf of the old array stays. */
static inline attn_cview regenerated(gradient_problem *g, rng *r, const attn_cview *old, int32_t dtype, double amp)
{
    int64_t n = view_count(old);
    void *data = problem_memory(&g->made, (size_t)n * 8);
    for (int64_t k = 0; k < n; k++)
        attn_store_element(data, dtype, k,
                           old->dtype == ATTN_F32 && ((const float *)old->data)[k] == -INFINITY ? -INFINITY : grid_value(r, amp));
    return attn_cview_of(data, dtype, old->shape[0], old->shape[1], old->shape[2], old->shape[3]);
}

static inline attn_view gradient_like(gradient_problem *g, int index, const attn_cview *v, int32_t dtype)
{
    g->count[index] = view_count(v);
    return attn_view_of(problem_memory(&g->made, (size_t)view_count(v) * 8), dtype, v->shape[0], v->shape[1], v->shape[2],
                        v->shape[3]);
}

static inline const float *grid_table(gradient_problem *g, rng *r, int64_t n)
{
    float *x = problem_memory(&g->made, (size_t)n * 4);
    for (int64_t k = 0; k < n; k++)
        x[k] = (float)grid_value(r, 1);
    return x;
}

static inline void add_dropout(gradient_problem *g, rng *r)
{
    attn_sdpa_args *a = &g->made.args;
    a->dropout_p = 0.25;
    a->dropout_seed = rng_next(r);
    if (rng_chance(r, 0.5)) {
        int64_t b = rng_chance(r, 0.5) ? a->query.shape[0] : 1, n = b * a->query.shape[1] * a->query.shape[2] * a->key.shape[2];
        uint8_t *keep = problem_memory(&g->made, (size_t)n);
        for (int64_t k = 0; k < n; k++)
            keep[k] = rng_chance(r, 0.75);
        a->dropout_p = rng_chance(r, 0.5) ? 0.25 : 0;
        a->keep = attn_cview_of(keep, ATTN_BOOL, b, a->query.shape[1], a->query.shape[2], a->key.shape[2]);
    }
}

/* The same seed gives the same values for every dtype. gradient_dtype: of d_query, d_key, d_value. */
static inline void gradient_problem_make(gradient_problem *g, uint64_t seed, int64_t max_seq, int32_t dtype,
                                         int32_t gradient_dtype)
{
    rng r = {seed};
    memset(g, 0, sizeof *g);
    random_problem_make(&g->made, &r, max_seq);
    attn_sdpa_args *a = &g->made.args;
    attn_mask *m = &a->mask;
    int64_t heads = a->query.shape[1], columns = m->rel_left + m->rel_right + 1;
    int32_t wide = dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    a->query = regenerated(g, &r, &a->query, dtype, 1);
    a->key = regenerated(g, &r, &a->key, dtype, 1);
    a->value = regenerated(g, &r, &a->value, dtype, 1);
    attn_cview out = attn_view_const(&a->out);
    a->out = attn_view_of(problem_memory(&g->made, (size_t)view_count(&out) * 8), dtype, out.shape[0], out.shape[1],
                          out.shape[2], out.shape[3]);
    int64_t rows = out.shape[0] * out.shape[1] * out.shape[2];
    a->lse = problem_memory(&g->made, (size_t)rows * 8);
    if (m->bias.data)
        m->bias = regenerated(g, &r, &m->bias, wide, 1);
    if (m->relative)
        m->relative = grid_table(g, &r, heads * columns);
    if (a->sinks)
        a->sinks = grid_table(g, &r, heads);
    if (rng_chance(&r, 0.3))
        add_dropout(g, &r);
    ATTN_ARGS_INIT(&g->args);
    g->args.forward = a;
    g->args.d_out = regenerated(g, &r, &out, dtype, 1);
    if (rng_chance(&r, 0.5)) {
        attn_cview lse = attn_cview_of(a->lse, ATTN_F64, 1, 1, 1, rows);
        g->args.d_lse = regenerated(g, &r, &lse, wide, 1).data;
    }
    g->args.d_query = gradient_like(g, GRAD_QUERY, &a->query, gradient_dtype);
    g->args.d_key = gradient_like(g, GRAD_KEY, &a->key, gradient_dtype);
    g->args.d_value = gradient_like(g, GRAD_VALUE, &a->value, gradient_dtype);
    if (m->bias.data)
        g->args.d_bias = gradient_like(g, GRAD_BIAS, &m->bias, wide);
    if (m->relative) {
        g->count[GRAD_RELATIVE] = (m->relative_stride ? heads : 1) * columns;
        g->args.d_relative = problem_memory(&g->made, (size_t)g->count[GRAD_RELATIVE] * 4);
    }
    if (a->sinks) {
        g->count[GRAD_SINKS] = heads;
        g->args.d_sinks = problem_memory(&g->made, (size_t)heads * 4);
    }
}

static inline void gradient_problem_free(gradient_problem *g)
{
    random_problem_free(&g->made);
}

/* Memory and dtype of gradient `index`, and of what it is the gradient of. */
static inline void *gradient_data(const gradient_problem *g, int index, int32_t *dtype)
{
    const attn_sdpa_backward_args *a = &g->args;
    const attn_view *views[4] = {&a->d_query, &a->d_key, &a->d_value, &a->d_bias};
    *dtype = index < GRAD_RELATIVE ? views[index]->dtype : ATTN_F32;
    return index < GRAD_RELATIVE ? views[index]->data : index == GRAD_RELATIVE ? (void *)a->d_relative : (void *)a->d_sinks;
}

static inline double gradient_at(const gradient_problem *g, int index, int64_t k)
{
    int32_t dtype;
    void *data = gradient_data(g, index, &dtype);
    return attn_load_element(data, dtype, k);
}

static inline size_t gradient_bytes(const gradient_problem *g, int index)
{
    int32_t dtype;
    gradient_data(g, index, &dtype);
    return (size_t)g->count[index] * attn_dtype_size(dtype);
}

static inline void *input_data(const gradient_problem *g, int index, int32_t *dtype)
{
    const attn_sdpa_args *a = &g->made.args;
    const attn_cview *views[4] = {&a->query, &a->key, &a->value, &a->mask.bias};
    *dtype = index < GRAD_RELATIVE ? views[index]->dtype : ATTN_F32;
    return (void *)(uintptr_t)(index < GRAD_RELATIVE    ? views[index]->data
                               : index == GRAD_RELATIVE ? (const void *)a->mask.relative
                                                        : (const void *)a->sinks);
}

static inline const char *gradient_name(int index)
{
    static const char *const names[N_GRADS] = {"d_query", "d_key", "d_value", "d_bias", "d_relative", "d_sinks"};
    return names[index];
}

#endif
