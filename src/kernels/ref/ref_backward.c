/* ref_backward.c - the plain reference of the backward pass (formulas: ref_backward.h). attn_ref_backward_row says what is known
 * of a row, attn_ref_backward_pair_of what a pair contributes; each gradient below them is a sum of that over its pairs. */
#include "kernels/ref/ref_backward.h"
#include "kernels/ref/ref_sdpa.h"
#include "core/view.h"

static int64_t row_index(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i)
{
    return (e->batch * p->n_heads + h) * p->seq_q + e->q_begin + i;
}

/* <x[b, h, n, :], y[b, g, m, :]> */
static double row_dot(const attn_cview *x, int64_t h, int64_t n, const attn_cview *y, int64_t g, int64_t m, int64_t b)
{
    int64_t x0 = attn_offset(x->stride, b, h, n, 0), y0 = attn_offset(y->stride, b, g, m, 0);
    double dot = 0;
    for (int64_t d = 0; d < x->shape[3]; d++)
        dot += attn_load_element(x->data, x->dtype, x0 + d * x->stride[3]) *
               attn_load_element(y->data, y->dtype, y0 + d * y->stride[3]);
    return dot;
}

/* Whether boolean mask and bias admit the pair, and the bias. */
static bool admits(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i, int64_t j, double *bias)
{
    const attn_mask *m = &p->a.mask;
    int64_t q = e->q_begin + i, k = e->k_begin + j;
    *bias = m->bias.data ? attn_cview_at(&m->bias, e->batch, h, q, k) : 0;
    return *bias != -INFINITY && !(m->allow.data && attn_cview_at(&m->allow, e->batch, h, q, k) == 0);
}

bool attn_ref_backward_pair(const attn_bwd_problem *g, const attn_ref_row *rows, const attn_entry *e, int64_t h, int64_t i,
                            int64_t j, attn_ref_pair *pair)
{
    const attn_problem *p = &g->forward;
    int64_t b = e->batch, q = e->q_begin + i, k = e->k_begin + j, kv_head = h / p->group;
    double bias;
    if (rows[row_index(p, e, h, i)].lse == -INFINITY || !admits(p, e, h, i, j, &bias))
        return false;
    return attn_ref_backward_pair_of(g, rows, e, h, i, j, row_dot(&p->a.query, h, q, &p->a.key, kv_head, k, b),
                                     row_dot(&g->a.d_out, h, q, &p->a.value, kv_head, k, b), pair);
}

bool attn_ref_backward_pair_of(const attn_bwd_problem *g, const attn_ref_row *rows, const attn_entry *e, int64_t h, int64_t i,
                               int64_t j, double dot, double d_out_dot, attn_ref_pair *pair)
{
    const attn_problem *p = &g->forward;
    const attn_ref_row *row = &rows[row_index(p, e, h, i)];
    double bias, slope = p->scale;
    if (row->lse == -INFINITY || !admits(p, e, h, i, j, &bias))
        return false;
    if (p->a.softcap > 0) {
        double t = tanh(p->scale * dot / p->a.softcap);
        slope *= 1 - t * t;
    }
    double weight = exp(attn_ref_finish_score(p, e, h, i, j, dot) + bias - row->lse - row->rest);
    double factor = attn_dropout_factor(p, e, h, i, j);
    double d_weight = factor * d_out_dot;
    pair->weight = weight * factor;
    pair->d_score = weight * (d_weight - row->delta);
    pair->d_dot = pair->d_score * slope;
    return true;
}

static bool row_sees_a_key(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i)
{
    int64_t lo, hi;
    double bias;
    attn_row_range(p, e, i, &lo, &hi);
    for (int64_t j = lo; j < hi; j++)
        if (admits(p, e, h, i, j, &bias))
            return true;
    return false;
}

attn_ref_row attn_ref_backward_row(const attn_bwd_problem *g, int64_t b, int64_t h, int64_t q)
{
    const attn_problem *p = &g->forward;
    attn_cview out = attn_view_const(&p->a.out);
    attn_ref_row row = {-INFINITY, 0, 0};
    attn_entry e;
    int64_t i;
    if (!attn_entry_of_query(p, b, q, &e, &i))
        return row;
    row.lse = attn_load_element(p->a.lse, p->lse_dtype, row_index(p, &e, h, i));
    if (row.lse == -INFINITY)
        return row;
    if (row_sees_a_key(p, &e, h, i))
        for (int64_t d = 0; d < p->value_dim; d++)
            row.delta += attn_cview_at(&g->a.d_out, b, h, q, d) * attn_cview_at(&out, b, h, q, d);
    if (g->a.d_lse)
        row.delta -= attn_load_element(g->a.d_lse, p->lse_dtype, row_index(p, &e, h, i));
    return row;
}

static void put(const attn_bwd_problem *g, void *data, int32_t dtype, int64_t offset, double x)
{
    attn_store_element(data, dtype, offset, g->accumulate ? attn_load_element(data, dtype, offset) + x : x);
}

/* row += factor * view[b, h, n, :] */
static void add_row(double *row, double factor, const attn_cview *view, int64_t b, int64_t h, int64_t n)
{
    int64_t start = attn_offset(view->stride, b, h, n, 0);
    for (int64_t d = 0; d < view->shape[3]; d++)
        row[d] += factor * attn_load_element(view->data, view->dtype, start + d * view->stride[3]);
}

static void put_row(const attn_bwd_problem *g, const attn_view *view, int64_t b, int64_t h, int64_t n, const double *row)
{
    if (!view->data)
        return;
    for (int64_t d = 0; d < view->shape[3]; d++)
        put(g, view->data, view->dtype, attn_offset(view->stride, b, h, n, d), row[d]);
}

void attn_ref_backward_query(const attn_bwd_problem *g, const attn_ref_row *rows, int64_t b, int64_t h, int64_t q, double *acc)
{
    const attn_problem *p = &g->forward;
    attn_entry e;
    int64_t i, lo, hi;
    attn_ref_pair pair;
    for (int64_t d = 0; d < p->head_dim; d++)
        acc[d] = 0;
    if (attn_entry_of_query(p, b, q, &e, &i)) {
        attn_row_range(p, &e, i, &lo, &hi);
        for (int64_t j = lo; j < hi; j++)
            if (attn_ref_backward_pair(g, rows, &e, h, i, j, &pair))
                add_row(acc, pair.d_dot, &p->a.key, b, h / p->group, e.k_begin + j);
    }
    put_row(g, &g->a.d_query, b, h, q, acc);
}

void attn_ref_backward_key(const attn_bwd_problem *g, const attn_ref_row *rows, int64_t b, int64_t kv_head, int64_t k,
                           double *acc)
{
    const attn_problem *p = &g->forward;
    double *d_key = acc, *d_value = acc + p->head_dim;
    attn_entry e;
    int64_t j, lo, hi;
    attn_ref_pair pair;
    for (int64_t d = 0; d < p->head_dim + p->value_dim; d++)
        acc[d] = 0;
    if (attn_entry_of_key(p, b, k, &e, &j)) {
        for (int64_t h = kv_head * p->group; h < (kv_head + 1) * p->group; h++)
            for (int64_t i = 0; i < e.q_count; i++) {
                attn_row_range(p, &e, i, &lo, &hi);
                if (j < lo || j >= hi || !attn_ref_backward_pair(g, rows, &e, h, i, j, &pair))
                    continue;
                add_row(d_key, pair.d_dot, &p->a.query, b, h, e.q_begin + i);
                add_row(d_value, pair.weight, &g->a.d_out, b, h, e.q_begin + i);
            }
    }
    put_row(g, &g->a.d_key, b, kv_head, k, d_key);
    put_row(g, &g->a.d_value, b, kv_head, k, d_value);
}

/* Indices first <= n < last of an axis that element `at` of d_bias sums over. */
static void bias_axis(const attn_bwd_problem *g, int axis, int64_t extent, int64_t at, int64_t *first, int64_t *last)
{
    *first = g->bias_sums[axis] ? 0 : at;
    *last = g->bias_sums[axis] ? extent : at + 1;
}

void attn_ref_backward_bias(const attn_bwd_problem *g, const attn_ref_row *rows, int64_t b, int64_t h, int64_t q, int64_t k)
{
    const attn_problem *p = &g->forward;
    const attn_view *d_bias = &g->a.d_bias;
    int64_t b0, b1, h0, h1, q0, q1, k0, k1, i, lo, hi;
    double acc[ATTN_REF_BIAS_BLOCK] = {0};
    attn_entry e;
    attn_ref_pair pair;
    bias_axis(g, 0, p->batch, b, &b0, &b1);
    bias_axis(g, 1, p->n_heads, h, &h0, &h1);
    bias_axis(g, 2, p->seq_q, q, &q0, &q1);
    bias_axis(g, 3, p->seq_kv, k, &k0, &k1);
    int64_t count = 1;
    if (!g->bias_sums[3]) {
        count = p->seq_kv - k < ATTN_REF_BIAS_BLOCK ? p->seq_kv - k : ATTN_REF_BIAS_BLOCK;
        k1 = k0 + count;
    }
    for (int64_t at_b = b0; at_b < b1; at_b++)
        for (int64_t at_h = h0; at_h < h1; at_h++)
            for (int64_t at_q = q0; at_q < q1; at_q++) {
                if (!attn_entry_of_query(p, at_b, at_q, &e, &i))
                    continue;
                attn_row_range(p, &e, i, &lo, &hi);
                lo = lo + e.k_begin < k0 ? k0 : lo + e.k_begin;
                hi = hi + e.k_begin > k1 ? k1 : hi + e.k_begin;
                for (int64_t at_k = lo; at_k < hi; at_k++)
                    if (attn_ref_backward_pair(g, rows, &e, at_h, i, at_k - e.k_begin, &pair))
                        acc[g->bias_sums[3] ? 0 : at_k - k0] += pair.d_score;
            }
    for (int64_t n = 0; n < count; n++)
        put(g, d_bias->data, d_bias->dtype, attn_offset(d_bias->stride, b, h, q, k + n), acc[n]);
}

void attn_ref_backward_relative(const attn_bwd_problem *g, const attn_ref_row *rows, int64_t table, int64_t column)
{
    const attn_problem *p = &g->forward;
    const attn_mask *m = &p->a.mask;
    bool shared = m->relative_stride == 0;
    int64_t h0 = shared ? 0 : table, h1 = shared ? p->n_heads : table + 1;
    double sum = 0;
    attn_ref_pair pair;
    for (int64_t s = 0; s < p->n_entries; s++) {
        attn_entry e = attn_problem_entry(p, s);
        for (int64_t h = h0; h < h1; h++)
            for (int64_t i = 0; i < e.q_count; i++) {
                int64_t lo, hi, at = i + e.bias_offset + column - m->rel_left; /* the key at this distance */
                attn_row_range(p, &e, i, &lo, &hi);
                if (column > 0 && at > lo) /* the first column also holds all keys before, the last all behind */
                    lo = at;
                if (column < m->rel_left + m->rel_right && at + 1 < hi)
                    hi = at + 1;
                for (int64_t j = lo; j < hi; j++)
                    if (attn_ref_backward_pair(g, rows, &e, h, i, j, &pair))
                        sum += pair.d_score;
            }
    }
    put(g, g->a.d_relative, ATTN_F32, table * m->relative_stride + column, sum);
}

void attn_ref_backward_sink(const attn_bwd_problem *g, const attn_ref_row *rows, int64_t h)
{
    const attn_problem *p = &g->forward;
    double sum = 0;
    for (int64_t s = 0; s < p->n_entries; s++) {
        attn_entry e = attn_problem_entry(p, s);
        for (int64_t i = 0; i < e.q_count; i++) {
            const attn_ref_row *row = &rows[row_index(p, &e, h, i)];
            if (row->lse != -INFINITY)
                sum -= exp((double)p->a.sinks[h] - row->lse - row->rest) * row->delta;
        }
    }
    put(g, g->a.d_sinks, ATTN_F32, h, sum);
}
