#include "ops/sdpa/look_row.h"
#include "kernels/ref/ref_sdpa.h"
#include "core/view.h"

/* Scratch: scores or weights [seq_kv], the query [head_dim], then the excluded flags. */
int64_t attn_look_scratch(const attn_problem *p)
{
    return p->seq_kv + p->head_dim + p->seq_kv / (int64_t)sizeof(double) + 2;
}

/* The entry that owns query row `query` of batch entry b; false for padding. */
static bool find_entry(const attn_problem *p, int64_t b, int64_t query, attn_entry *e)
{
    int64_t low = b, high = b;
    if (p->packed) { /* last segment whose start is not after the query */
        if (p->n_entries == 0)
            return false;
        low = 0;
        high = p->n_entries - 1;
        while (low < high) {
            int64_t middle = (low + high + 1) / 2;
            if (p->a.mask.cu_seqlens_q[middle] <= query)
                low = middle;
            else
                high = middle - 1;
        }
    }
    *e = attn_problem_entry(p, low);
    return query >= e->q_begin && query < e->q_begin + e->q_count;
}

static double dot_f32(const double *query, const float *key, int64_t n)
{
    double sum[4] = {0, 0, 0, 0};
    int64_t d = 0;
    for (; d + 4 <= n; d += 4)
        for (int64_t lane = 0; lane < 4; lane++)
            sum[lane] += query[d + lane] * (double)key[d + lane];
    for (; d < n; d++)
        sum[0] += query[d] * (double)key[d];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static double dot_key(const attn_problem *p, const attn_entry *e, const double *query, int64_t g, int64_t j)
{
    const attn_cview *key = &p->a.key;
    int64_t first, slot;
    attn_kv_slot(p, e, j, &first, &slot);
    int64_t at = attn_offset(key->stride, first, g, slot, 0);
    if (key->dtype == ATTN_F32 && key->stride[3] == 1)
        return dot_f32(query, (const float *)key->data + at, p->head_dim);
    double sum = 0;
    for (int64_t d = 0; d < p->head_dim; d++)
        sum += query[d] * attn_load_element(key->data, key->dtype, at + d * key->stride[3]);
    if (key->dtype == ATTN_I8)
        sum *= attn_cview_at(&p->a.key_scale, first, g, slot, 0);
    return sum;
}

/* Score of an admitted pair, or false: the rules of kernels/ref with the query read once. */
static bool pair_score(const attn_problem *p, const attn_entry *e, const double *query, int64_t h, int64_t i, int64_t j,
                       double *score)
{
    const attn_mask *m = &p->a.mask;
    double bias = 0;
    if (m->allow.data && attn_cview_at(&m->allow, e->batch, h, e->q_begin + i, e->k_begin + j) == 0)
        return false;
    if (m->bias.data) {
        bias = attn_cview_at(&m->bias, e->batch, h, e->q_begin + i, e->k_begin + j);
        if (bias == -INFINITY)
            return false;
    }
    *score = attn_ref_finish_score(p, e, h, i, j, dot_key(p, e, query, h / p->group, j)) + bias;
    return true;
}

static double lse_of(const attn_problem *p, int64_t h, const double *score, const unsigned char *excluded, int64_t n)
{
    double max = p->a.sinks ? (double)p->a.sinks[h] : -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++)
        if (!excluded[j] && !(score[j] <= max) && max == max)
            max = score[j];
    if (max == -INFINITY)
        return max;
    if (p->a.sinks)
        sum = exp((double)p->a.sinks[h] - max);
    for (int64_t j = 0; j < n; j++)
        if (!excluded[j])
            sum += exp(score[j] - max);
    return max + log(sum);
}

attn_looked attn_look_row(const attn_problem *p, const attn_row *row, double *scratch)
{
    attn_looked looked = {0, 0, 0, scratch, NULL};
    const attn_cview *view = &p->a.query;
    attn_entry e;
    if (!find_entry(p, row->batch, row->query, &e))
        return looked;
    double *weight = scratch, *query = scratch + p->seq_kv;
    unsigned char *excluded = (unsigned char *)(query + p->head_dim);
    int64_t i = row->query - e.q_begin, lo, hi, h = row->head;
    attn_row_range(p, &e, i, &lo, &hi);
    for (int64_t d = 0; d < p->head_dim; d++)
        query[d] = attn_cview_at(view, e.batch, h, row->query, d);
    for (int64_t j = lo; j < hi; j++)
        excluded[j - lo] = !pair_score(p, &e, query, h, i, j, &weight[j - lo]);
    double lse = p->a.lse ? attn_load_element(p->a.lse, p->lse_dtype, (row->batch * p->n_heads + h) * p->seq_q + row->query)
                          : lse_of(p, h, weight, excluded, hi - lo);
    for (int64_t j = 0; j < hi - lo; j++)
        weight[j] = excluded[j] || lse == -INFINITY ? 0 : exp(weight[j] - lse);
    looked.first = e.k_begin + lo;
    looked.count = hi - lo;
    looked.position = i + e.q_offset - lo;
    looked.excluded = excluded;
    return looked;
}
