/* bwd_problem.h - one backward problem after the door: the forward's problem, what is wanted, and who owns which row.
 * ops/sdpa/sdpa_backward.c fills it; the plain and the fast backward pass read it. */
#ifndef ATTN_KERNELS_SDPA_BWD_PROBLEM_H
#define ATTN_KERNELS_SDPA_BWD_PROBLEM_H

#include "kernels/sdpa/problem.h"

typedef struct attn_bwd_problem {
    attn_problem forward;
    attn_sdpa_backward_args a; /* missing fields zero; a.forward is not read again */
    bool bias_sums[4];         /* d_bias has one element along this axis: all of the axis is summed into it */
    bool accumulate;           /* add to the gradient arrays */
} attn_bwd_problem;

/* Last segment that starts at or before position `at` of a packed axis. n > 0, cu[0] <= at. */
static inline int64_t attn_segment_at(const int64_t *cu, int64_t n, int64_t at)
{
    int64_t low = 0, high = n;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (cu[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The entry that query row q (of the whole query axis of batch entry b) belongs to, and its index i there. False for
 * padding: rows beyond q_len or beyond the last segment. */
static inline bool attn_entry_of_query(const attn_problem *p, int64_t b, int64_t q, attn_entry *e, int64_t *i)
{
    if (p->n_entries == 0)
        return false;
    *e = attn_problem_entry(p, p->packed ? attn_segment_at(p->a.mask.cu_seqlens_q, p->n_entries, q) : b);
    *i = q - e->q_begin;
    return *i < e->q_count;
}

/* The same for key row k of the whole key axis. */
static inline bool attn_entry_of_key(const attn_problem *p, int64_t b, int64_t k, attn_entry *e, int64_t *j)
{
    if (p->n_entries == 0)
        return false;
    *e = attn_problem_entry(p, p->packed ? attn_segment_at(p->a.mask.cu_seqlens_k, p->n_entries, k) : b);
    *j = k - e->k_begin;
    return *j < e->k_count;
}

#endif
