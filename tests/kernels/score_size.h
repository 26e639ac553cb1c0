/* score_size.h - how large the parts of a score are: what its rounding error in f32 is measured by. */
#ifndef TESTS_SCORE_SIZE_H
#define TESTS_SCORE_SIZE_H

#include "core/view.h"
#include "kernels/ref/ref_sdpa.h"

/* scale * sum_d |q_d k_d| plus the size of everything that is added: what the rounding of a score is measured by. */
static inline double score_size(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i, int64_t j)
{
    const attn_sdpa_args *a = &p->a;
    const attn_mask *m = &a->mask;
    int64_t block, slot, g = h / p->group;
    attn_kv_slot(p, e, j, &block, &slot);
    double size = 0, cap = a->softcap;
    for (int64_t d = 0; d < p->head_dim; d++)
        size += fabs(attn_cview_at(&a->query, e->batch, h, e->q_begin + i, d) * attn_cview_at(&a->key, block, g, slot, d));
    if (a->key.dtype == ATTN_I8)
        size *= fabs(attn_cview_at(&a->key_scale, block, g, slot, 0));
    size *= fabs(p->scale);
    if (cap > 0)
        size += cap;
    double distance = (double)(i + e->bias_offset - j);
    if (m->alibi_slopes)
        size += fabs((double)m->alibi_slopes[h] * distance);
    if (m->relative)
        size += 4;
    if (m->bias.data) {
        double bias = fabs(attn_cview_at(&m->bias, e->batch, h, e->q_begin + i, e->k_begin + j));
        size += isfinite(bias) ? bias : 0;
    }
    return size;
}

/* Error of the lse that a forward pass in f32 stores (docs/operator.md): u = 2^-24; scores are off by (head_dim + 8) u times
 * the largest score_size, the sum of n weights by n + 16 more, and storing rounds once. */
static inline double lse_error(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i)
{
    int64_t lo, hi;
    double size = p->a.sinks ? fabs((double)p->a.sinks[h]) : 0;
    attn_row_range(p, e, i, &lo, &hi);
    for (int64_t j = lo; j < hi; j++) {
        double here = score_size(p, e, h, i, j);
        size = here > size ? here : size;
    }
    return ((double)(p->head_dim + 8) * size + (double)(hi - lo + 16)) * 0x1p-24;
}

#endif
