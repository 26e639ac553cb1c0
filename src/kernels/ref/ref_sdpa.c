/* ref_sdpa.c - the plain reference. Ten minutes of reading, in this order:
 *
 *     which pairs count    attn_problem_entry (lengths, segments), attn_row_range (causal, window): sdpa/problem.h
 *                          attn_ref_score (boolean mask, a bias of -inf)
 *     scores               query_dot_key, attn_ref_finish_score: each term in the order of attn/attn.h
 *     a row                row_max_sum, attn_ref_forward_row: softmax with sink and dropout
 *
 * Every number is loaded element by element through its strides and becomes a double. */
#include "kernels/ref/ref_sdpa.h"
#include "core/view.h"

/* Position of a key row: element offset of [first, g, row, 0]. */
static int64_t kv_offset(const attn_problem *p, const attn_entry *e, const attn_cview *v, int64_t g, int64_t j)
{
    int64_t first, row;
    attn_kv_slot(p, e, j, &first, &row);
    return attn_offset(v->stride, first, g, row, 0);
}

static double kv_scale(const attn_problem *p, const attn_entry *e, const attn_cview *scale, int64_t g, int64_t j)
{
    return p->kv_dtype == ATTN_I8 ? attn_load_element(scale->data, ATTN_F32, kv_offset(p, e, scale, g, j)) : 1;
}

double attn_ref_value(const attn_problem *p, const attn_entry *e, int64_t g, int64_t j, int64_t d)
{
    const attn_cview *value = &p->a.value;
    double x = attn_load_element(value->data, value->dtype, kv_offset(p, e, value, g, j) + d * value->stride[3]);
    return x * kv_scale(p, e, &p->a.value_scale, g, j);
}

static double query_dot_key(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i, int64_t j)
{
    const attn_cview *query = &p->a.query, *key = &p->a.key;
    int64_t g = h / p->group;
    int64_t q = attn_offset(query->stride, e->batch, h, e->q_begin + i, 0), k = kv_offset(p, e, key, g, j);
    double dot = 0;
    for (int64_t d = 0; d < p->head_dim; d++)
        dot += attn_load_element(query->data, query->dtype, q + d * query->stride[3]) *
               attn_load_element(key->data, key->dtype, k + d * key->stride[3]);
    return dot * kv_scale(p, e, &p->a.key_scale, g, j);
}

double attn_ref_finish_score(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i, int64_t j, double dot)
{
    const attn_mask *m = &p->a.mask;
    double s = p->scale * dot;
    if (p->a.softcap > 0)
        s = p->a.softcap * tanh(s / p->a.softcap);
    int64_t distance = j - (i + e->bias_offset); /* j - r_i */
    if (m->alibi_slopes)
        s -= (double)m->alibi_slopes[h] * fabs((double)distance);
    if (m->relative) { /* clamp(j - r_i, -rel_left, rel_right) + rel_left */
        int64_t near = distance < -m->rel_left ? -m->rel_left : distance > m->rel_right ? m->rel_right : distance;
        s += (double)m->relative[h * m->relative_stride + near + m->rel_left];
    }
    return s;
}

bool attn_ref_score(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i, int64_t j, double *score)
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
    *score = attn_ref_finish_score(p, e, h, i, j, query_dot_key(p, e, h, i, j)) + bias;
    return true;
}

/* max over admitted scores and the sink (-inf when there is neither), then sum of exp(score - max). */
static void row_max_sum(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i, double *max, double *sum)
{
    int64_t lo, hi;
    double s;
    attn_row_range(p, e, i, &lo, &hi);
    *max = p->a.sinks ? (double)p->a.sinks[h] : -INFINITY;
    for (int64_t j = lo; j < hi; j++)
        if (attn_ref_score(p, e, h, i, j, &s) && !(s <= *max) && *max == *max)
            *max = s; /* a NaN score becomes the maximum and stays it */
    *sum = p->a.sinks ? exp((double)p->a.sinks[h] - *max) : 0;
    if (*max == -INFINITY) {
        *sum = 0;
        return;
    }
    for (int64_t j = lo; j < hi; j++)
        if (attn_ref_score(p, e, h, i, j, &s))
            *sum += exp(s - *max);
}

void attn_ref_row_lse_parts(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i, double *max, double *log_sum)
{
    double sum;
    row_max_sum(p, e, h, i, max, &sum);
    *log_sum = *max == -INFINITY ? 0 : log(sum);
}

double attn_ref_row_lse(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i)
{
    double max, log_sum;
    attn_ref_row_lse_parts(p, e, h, i, &max, &log_sum);
    return max + log_sum;
}

static void store_lse(const attn_problem *p, int64_t b, int64_t h, int64_t q, double lse)
{
    if (p->a.lse)
        attn_store_element(p->a.lse, p->lse_dtype, (b * p->n_heads + h) * p->seq_q + q, lse);
}

void attn_ref_empty_row(const attn_problem *p, int64_t b, int64_t h, int64_t q, double lse)
{
    const attn_view *out = &p->a.out;
    for (int64_t d = 0; d < p->value_dim; d++)
        attn_store_element(out->data, out->dtype, attn_offset(out->stride, b, h, q, d), 0);
    store_lse(p, b, h, q, lse);
}

void attn_ref_forward_row(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i, double *acc)
{
    const attn_view *out = &p->a.out;
    int64_t lo, hi, q = e->q_begin + i;
    double max, sum, s;
    row_max_sum(p, e, h, i, &max, &sum);
    attn_row_range(p, e, i, &lo, &hi);
    if (max == -INFINITY || sum == 0) {
        attn_ref_empty_row(p, e->batch, h, q, max);
        return;
    }
    for (int64_t d = 0; d < p->value_dim; d++)
        acc[d] = 0;
    for (int64_t j = lo; j < hi; j++) {
        if (!attn_ref_score(p, e, h, i, j, &s))
            continue;
        double weight = exp(s - max) / sum * attn_dropout_factor(p, e, h, i, j);
        for (int64_t d = 0; d < p->value_dim; d++)
            acc[d] += weight * attn_ref_value(p, e, h / p->group, j, d);
    }
    for (int64_t d = 0; d < p->value_dim; d++)
        attn_store_element(out->data, out->dtype, attn_offset(out->stride, e->batch, h, q, d), acc[d]);
    store_lse(p, e->batch, h, q, max + log(sum));
}
