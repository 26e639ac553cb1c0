/* problem.h - one attention problem after the door: every rule resolved to plain numbers. ops/sdpa/validate.c fills it, the
 * reference and the fast dataflows read it. Pair (i, j) below is counted inside an entry (batch entry or segment). */
#ifndef ATTN_KERNELS_SDPA_PROBLEM_H
#define ATTN_KERNELS_SDPA_PROBLEM_H

#include <stdbool.h>
#include <math.h>
#include "attn/attn.h"
#include "core/compiler.h"
#include "core/philox.h"

typedef struct attn_problem {
    attn_sdpa_args a; /* the caller's arguments, missing fields zero, broadcast masks given stride 0 */
    int64_t batch, n_heads, n_kv_heads, group; /* group = n_heads / n_kv_heads */
    int64_t seq_q, seq_kv, head_dim, value_dim;
    double scale;      /* 1/sqrt(head_dim) filled in */
    int64_t n_entries; /* batch, or n_segments when packed */
    int64_t left, right; /* window with causal folded in: right = min(right, 0); -1: open */
    bool packed, has_right; /* has_right: j <= p_i + right holds (right may be 0) */
    bool shared_keys; /* all entries read the same keys and values (stride 0): their rows may be stacked */
    int32_t kv_dtype, lse_dtype;
} attn_problem;

/* One batch entry or packed segment: which queries and keys are its own. */
typedef struct attn_entry {
    int64_t index;            /* batch entry or segment; the dropout counter's first word */
    int64_t batch;            /* index on the batch axis: 0 when packed */
    int64_t q_begin, q_count; /* its queries on the query axis, q_len applied */
    int64_t k_begin, k_count; /* its keys on the key axis, kv_len applied */
    int64_t q_offset;         /* p_i = i + q_offset */
    int64_t bias_offset;      /* r_i = i + bias_offset */
} attn_entry;

static inline attn_entry attn_problem_entry(const attn_problem *p, int64_t index)
{
    const attn_mask *m = &p->a.mask;
    attn_entry e;
    e.index = index;
    e.batch = p->packed ? 0 : index;
    e.q_begin = p->packed ? m->cu_seqlens_q[index] : 0;
    e.k_begin = p->packed ? m->cu_seqlens_k[index] : 0;
    e.q_count = p->packed ? m->cu_seqlens_q[index + 1] - e.q_begin : p->seq_q;
    e.k_count = p->packed ? m->cu_seqlens_k[index + 1] - e.k_begin : p->seq_kv;
    if (m->q_len)
        e.q_count = m->q_len[index];
    if (m->kv_len)
        e.k_count = m->kv_len[index];
    e.q_offset = 0;
    if (m->flags & ATTN_MASK_OFFSET)
        e.q_offset = m->query_offsets ? m->query_offsets[index] : m->query_offset;
    e.bias_offset = m->bias_offsets ? m->bias_offsets[index] : m->bias_offset;
    return e;
}

/* Keys lo <= j < hi of row i that causal, window and kv_len admit (allow and bias may take out more). */
static inline void attn_row_range(const attn_problem *p, const attn_entry *e, int64_t i, int64_t *lo, int64_t *hi)
{
    int64_t position = i + e->q_offset;
    *lo = 0;
    *hi = e->k_count;
    if (p->left >= 0 && position - p->left > 0)
        *lo = position - p->left;
    if (p->has_right && position + p->right + 1 < *hi)
        *hi = position + p->right + 1;
    if (*hi < *lo)
        *hi = *lo;
}

/* Row of the key (or value) array that holds logical key j of an entry: fills the indices of axes 0 and 2. */
static inline void attn_kv_slot(const attn_problem *p, const attn_entry *e, int64_t j, int64_t *first, int64_t *row)
{
    const attn_kv_layout *layout = &p->a.layout;
    *first = e->batch;
    *row = e->k_begin + j;
    if (layout->block_table) {
        int64_t size = p->a.key.shape[2];
        *first = layout->block_table[e->batch * layout->block_table_stride + j / size];
        *row = j % size;
    } else if (layout->ring) {
        *row = j % p->a.key.shape[2];
    }
}

/* Whether weights are dropped at all: a keep array counts at dropout_p 0 too. */
static inline bool attn_drops(const attn_problem *p)
{
    return p->a.dropout_p > 0 || p->a.keep.data != NULL;
}

/* Factor of the weight of pair (i, j) under dropout: 0 or 1/(1-p). Philox with key = seed and counter = (entry, head, i,
 * j): four keys j share one draw; kept when the 32-bit word is at or above p * 2^32. */
static inline double attn_dropout_factor(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i, int64_t j)
{
    const attn_sdpa_args *a = &p->a;
    bool kept;
    if (!attn_drops(p))
        return 1;
    if (a->keep.data) {
        const attn_cview *k = &a->keep;
        kept = ((const uint8_t *)k->data)[e->batch * k->stride[0] + h * k->stride[1] +
                                          (e->q_begin + i) * k->stride[2] + (e->k_begin + j) * k->stride[3]] != 0;
    } else {
        uint32_t counter[4] = {(uint32_t)(j / 4), (uint32_t)i, (uint32_t)h, (uint32_t)e->index}, word[4];
        attn_philox(counter, a->dropout_seed, word);
        kept = (double)word[j % 4] >= a->dropout_p * 0x1p32;
    }
    return kept && a->dropout_p < 1 ? 1 / (1 - a->dropout_p) : 0;
}

#endif
