/* decode_path.h - runs the decode dataflow (kernels/sdpa/decode_plan.h) for the entries of a problem that have few rows. */
#ifndef ATTN_OPS_SDPA_DECODE_PATH_H
#define ATTN_OPS_SDPA_DECODE_PATH_H

#include "core/context.h"
#include "kernels/sdpa/decode_plan.h"

/* Dtypes, strides and options that the dataflow serves: not f64, not dropout, dense last axis of key and value. */
bool attn_decode_serves(const attn_problem *p);

/* Which entries of a problem go this way: see attn_decode_bound. */
attn_decode_bound attn_decode_bound_of(const attn_ctx *ctx, const attn_problem *p);

/* True when an entry with this many queries and keys goes this way: any with fewer queries or more keys then does, too. By its own
 * rows and keys alone, so that a sequence takes the same way whatever else is in the batch. */
static inline bool attn_decode_takes(const attn_problem *p, const attn_decode_bound *bound, int64_t q_count, int64_t k_count)
{
    return q_count * p->group <= (k_count > bound->keys ? ATTN_DECODE_ROWS : bound->rows);
}

/* attn_decode_serves, and some entry may be taken. */
bool attn_decode_suits(const attn_ctx *ctx, const attn_problem *p);

/* Bytes of 64-byte aligned scratch, by extents and context alone. */
size_t attn_decode_scratch(const attn_ctx *ctx, const attn_problem *p);

/* The part of a plan that this dataflow decides, where it takes every entry. */
void attn_decode_describe(const attn_ctx *ctx, const attn_problem *p, attn_sdpa_plan *plan);

/* Writes out and lse of the taken entries' rows (those below q_len). Where p->shared_keys is set, the rows of all entries
 * are stacked, so that the keys are read once. */
void attn_decode_run(attn_ctx *ctx, const attn_problem *p, void *scratch);

#endif
