/* bwd_fast.h - the fast backward pass, in f32 or in products of bf16: what a call's plan holds, and the kernels of each ISA level.
 *
 * A task owns a block of keys of one kv head, for all query heads that share it. It goes through the query blocks that see
 * its keys and does five products per tile (rows x keys), where two separate passes would do seven:
 *
 *     S = Q K^T     dP = dO V^T     P = exp(S - lse)     dS = P (dP - D)
 *     dV += P^T dO  dK += dS^T Q    dQ += dS K
 *
 * dK and dV stay with the task. dQ of a query block receives from many tasks, in ascending order of their keys: each waits
 * for its turn (a ticket per query block). Tasks are handed out in that order, so the one waited for is always running. */
#ifndef ATTN_KERNELS_SDPA_BWD_FAST_H
#define ATTN_KERNELS_SDPA_BWD_FAST_H

#include <stdatomic.h>
#include "core/pool.h"
#include "kernels/ref/ref_backward.h"

struct attn_bwd_kernels;

typedef struct attn_bwd_plan {
    const attn_bwd_problem *g;
    const struct attn_bwd_kernels *kernels;
    int64_t query_block, key_block; /* rows and keys of a tile */
    int64_t dim_pad, value_pad;     /* head_dim and value_dim rounded up to whole panels of registers */
    int64_t dim_slots, value_slots; /* the same in slots of 4 bytes, each an f32 or two bf16 (kernels->pair) */
    int64_t query_row, d_out_row;   /* slots from one packed row to the next */
    int64_t score_row;              /* floats from one row of a tile's scores to the next */
    int64_t blocks_per_head;        /* tickets of one query head */
    int64_t key_blocks;             /* blocks of the longest entry's keys */
    bool rich;                      /* scores need more than scale: mask, bias, softcap, dropout ... */
    bool bias_in_tile;              /* d_bias is added tile by tile ... */
    bool bias_shared;               /* ... by several heads or batch entries, in their order */
    int64_t relative_columns;       /* of d_relative; 0: not wanted */
    int32_t workers;                /* of the work on pairs */
    int64_t own_heads;              /* the first kv heads, each done by one worker from packing to the end */
    int64_t heads_at_once;          /* of the others: whose rows are packed at a time; all where sequences are packed */
    int64_t first_row;              /* of those heads */
    /* in the workspace; rows in the order batch, query head, query; query, d_out and d_query hold those of the heads at work */
    float *query, *d_out;        /* packed to slots, padded with zeros; rows that take no part, and special ones, all zero */
    float *d_query;              /* sums, dim_pad apart */
    attn_ref_row *rows;
    uint8_t *special;            /* [rows] 1: NaN, infinity or a huge lse; done pair by pair in double */
    _Atomic uint32_t *tickets;   /* [batch * n_heads * blocks_per_head] key blocks that have added to a query block */
    _Atomic uint32_t *bias_turn; /* [key_blocks] tasks of each block number that are done with d_bias */
    _Atomic uint32_t *relative_turn; /* [tables] tasks that have added to each table of d_relative */
    char *scratch;               /* scratch_bytes per worker */
    size_t scratch_bytes;
} attn_bwd_plan;

typedef struct attn_bwd_kernels {
    int32_t rows, lanes; /* the register tile: rows x lanes */
    int32_t pair;        /* numbers that a multiply-add takes: 1 in f32, 2 in bf16 */
    size_t (*scratch_bytes)(const attn_bwd_plan *plan); /* that a worker needs */
    /* Packs rows q0 <= q < q1 of head h in batch entry b, fills rows and special, clears d_query. scratch: a worker's. */
    void (*pack)(const attn_bwd_plan *plan, int64_t b, int64_t h, int64_t q0, int64_t q1, char *scratch);
    /* One task: key block `block` of kv head `kv_head` in entry `entry`. */
    void (*key_block)(const attn_bwd_plan *plan, int64_t entry, int64_t kv_head, int64_t block, char *scratch);
    /* Stores rows q0 <= q < q1 of d_query. */
    void (*finish)(const attn_bwd_plan *plan, int64_t b, int64_t h, int64_t q0, int64_t q1);
} attn_bwd_kernels;

/* The kernels for a problem at an ISA level (ATTN_ISA_*), never NULL. Where the level multiplies bf16 and query, key, value, out
 * and d_out are bf16 and nothing is dropped, products are in bf16. */
const attn_bwd_kernels *attn_bwd_kernels_for(int32_t isa, const attn_bwd_problem *g);

/* First ticket of an entry's query blocks in a head. Blocks start anew in each packed segment: segment s begins at most s
 * blocks later than it would if there were no others. */
static inline int64_t attn_bwd_first_ticket(const attn_bwd_plan *plan, const attn_entry *e, int64_t h)
{
    const attn_problem *p = &plan->g->forward;
    int64_t before = p->packed ? e->index : 0;
    return (e->batch * p->n_heads + h) * plan->blocks_per_head + e->q_begin / plan->query_block + before;
}

/* Keys that any row i0 <= i < i1 of the entry may see: first <= j < last, or first == last. */
static inline void attn_bwd_rows_range(const attn_problem *p, const attn_entry *e, int64_t i0, int64_t i1, int64_t *first,
                                       int64_t *last)
{
    int64_t unused;
    attn_row_range(p, e, i0, first, &unused); /* both ends rise with i */
    attn_row_range(p, e, i1 - 1, &unused, last);
    if (*last < *first)
        *last = *first;
}

/* Turns of tasks that add to one place in a fixed order. */
static inline void attn_wait_for_turn(_Atomic uint32_t *ticket, uint32_t turn)
{
    for (int32_t round = 0; atomic_load_explicit(ticket, memory_order_acquire) != turn; round++)
        attn_pool_wait(round);
}
static inline void attn_end_turn(_Atomic uint32_t *ticket, uint32_t turn)
{
    atomic_store_explicit(ticket, turn + 1, memory_order_release);
}

extern const attn_bwd_kernels attn_bwd_kernels_scalar, attn_bwd_kernels_avx2, attn_bwd_kernels_avx512, attn_bwd_kernels_avx512bf16,
    attn_bwd_kernels_neon, attn_bwd_kernels_neonbf16;

#endif
