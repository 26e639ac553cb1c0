/* wide.h - attention in double, in tiles: f64 problems, f32 backward passes that are too small to be worth less, and the
 * functions that look in. Means the same as kernels/ref, and is what runs instead of it.
 *
 * A block of rows (up to ATTN_WIDE_ROWS of one kv head) meets blocks of ATTN_WIDE_KEYS keys, anchored at key 0 of the entry:
 *     scores [rows][keys] = Q K^T    keys packed as panels [keys / panel][dim][panel], so that a panel is a pair of vectors
 *     rules, running maximum, weights in place, sum
 *     out [rows][value_dim] += weights V
 * Each sum is one accumulator in ascending order, so the bits of a row do not depend on its block. */
#ifndef ATTN_KERNELS_SDPA_WIDE_H
#define ATTN_KERNELS_SDPA_WIDE_H

#include "kernels/ref/ref_backward.h"

#define ATTN_WIDE_ROWS 32
#define ATTN_WIDE_KEYS 64

/* Rows of one kv head: row r of the stack is query r / stack of head `head` + r % stack; begin <= r < begin + count. */
typedef struct attn_wide_rows {
    attn_entry entry;
    int64_t kv_head, head, stack;
    int64_t begin, count;
} attn_wide_rows;

/* The weights of a block of rows for keys first <= j < first + n of the entry. Row r of the block may see keys low[r] <= j -
 * first < high[r]; of those, excluded[r * ATTN_WIDE_KEYS + j - first] says which a mask takes out (their weight is 0). */
typedef struct attn_wide_block {
    int64_t first, n;
    const double *weight; /* [rows][ATTN_WIDE_KEYS] */
    const uint8_t *excluded;
    const int32_t *low, *high;
} attn_wide_block;

typedef void (*attn_wide_visit)(void *user, const attn_wide_rows *rows, const attn_wide_block *block);

typedef struct attn_wide_kernels {
    int32_t tile_rows, panel; /* register tile: rows x keys */
    /* out and lse of the rows. */
    void (*forward)(const attn_problem *p, const attn_wide_rows *rows, double *scratch);
    /* The log-sum-exp of the rows, sinks included, in two parts: the largest score and what is above it (attn_ref_row). */
    void (*row_lse)(const attn_problem *p, const attn_wide_rows *rows, double *lse, double *rest, double *scratch);
    /* Calls visit with weights exp(score - lse - rest) for one block of keys after another, ascending. */
    void (*weights)(const attn_problem *p, const attn_wide_rows *rows, const double *lse, const double *rest, attn_wide_visit visit,
                    void *user, double *scratch);
    /* lse and delta (ref_backward.h) of the rows from their own scores: lse is the caller's where that is not the row's own. */
    void (*backward_rows)(const attn_bwd_problem *g, const attn_wide_rows *rows, attn_ref_row *all, double *scratch);
    /* d_query of the rows, from the array of all rows (attn_ref_row). */
    void (*backward_query)(const attn_bwd_problem *g, const attn_wide_rows *rows, const attn_ref_row *all, double *scratch);
    /* d_key and d_value of up to ATTN_WIDE_KEYS keys from key `first` (a multiple) of an entry. */
    void (*backward_keys)(const attn_bwd_problem *g, const attn_entry *e, int64_t kv_head, int64_t first,
                          const attn_ref_row *all, double *scratch);
} attn_wide_kernels;

/* The kernels of an ISA level (ATTN_ISA_*), never NULL. */
const attn_wide_kernels *attn_wide_kernels_at(int32_t isa);

/* Whether a given lse is that of the row itself, computed in its dtype (32 units: what a forward pass may be off by), and not that
 * of rows merged from several key sets. Where it is, and so large that its rounding shows in weights, the row's own is better. */
static inline bool attn_lse_is_own(const attn_problem *p, double own, double given)
{
    return fabs(own - given) <= 32 * (p->lse_dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24) * fabs(given);
}

/* Doubles of scratch that any of them needs. */
int64_t attn_wide_scratch(const attn_problem *p);

extern const attn_wide_kernels attn_wide_kernels_scalar, attn_wide_kernels_avx2, attn_wide_kernels_avx512, attn_wide_kernels_neon;

#endif
