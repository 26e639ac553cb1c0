/* fwd_plan.h - the forward dataflow "queries in lanes": what a task is, what it needs, who runs it.
 *
 * A task is a strip: up to strip_rows stacked rows of one kv head of one entry. Row r of the stack is query r / group of
 * head g * group + r % group, so that keys and values are read once for all heads of a group. A strip is cut into tiles of
 * vectors * lanes rows. For each key block, anchored at key 0 of the entry, and each tile:
 *     S^T = K Q^T    scores [keys][rows]: queries packed [head_dim][rows], keys broadcast from their own rows
 *     rules, running maximum and sum, weights P^T in place
 *     O^T += V^T P^T [value_dim][rows]: values broadcast from panels [value_dim / panel][keys][panel]
 * Where the CPU multiplies bf16, bf16 problems have pairs of dimensions (scores) and of keys (outputs) in one slot, keys
 * paired from key 0; weights are rounded to bf16 once, and the sum that divides is of the rounded ones.
 * Every lane is a row and works alone; one accumulator per score in ascending dimension, one per output in ascending key:
 * the bits of a row do not depend on the strip, tile or thread that it is in. */
#ifndef ATTN_KERNELS_SDPA_FWD_PLAN_H
#define ATTN_KERNELS_SDPA_FWD_PLAN_H

#include "kernels/sdpa/problem.h"

/* Measured in docs/performance.md. */
#define ATTN_FWD_STRIP_LEAST 96
#define ATTN_FWD_STRIP_MOST 384
#define ATTN_FWD_KEY_BLOCK 128
#define ATTN_FWD_SMALL 16384 /* elements of query, key, value and out */
#define ATTN_FWD_ROW_FLOATS 8 /* per row of a strip: maximum, two sums, and the range of keys as two int64 */

typedef struct attn_fwd_plan attn_fwd_plan;

/* Rows row_begin .. row_begin + row_count - 1 of the stack of kv head g of an entry. */
typedef struct attn_fwd_task {
    attn_entry entry;
    int64_t g, row_begin, row_count;
} attn_fwd_task;

/* scratch: plan->scratch_bytes. next: the task that this worker will likely do then, whose rows are fetched into the
 * cache ahead; NULL: none. */
typedef void (*attn_fwd_strip_fn)(const attn_fwd_plan *plan, const attn_fwd_task *task, const attn_fwd_task *next,
                                  void *scratch);

typedef struct attn_fwd_kernel {
    attn_fwd_strip_fn strip;
    int32_t lanes, vectors; /* a tile has lanes * vectors rows */
    int32_t keys, dims;     /* register tiles: keys x rows of scores, dims x rows of outputs */
    int32_t panel;          /* value dimensions side by side in a panel; a multiple of dims */
    int32_t pair;           /* 1: products in f32; 2: in bf16, two dimensions or keys in each 4-byte slot */
    int32_t strip_floats;   /* packed queries and outputs of a strip: a part of the second-level cache */
} attn_fwd_kernel;

/* Which slots of a block each vector of a tile's rows multiplies with values: both ends rise with the vector, and all vectors
 * have those from from[last] to to[0] in common. */
#define ATTN_FWD_MOST_VECTORS 4
typedef struct attn_fwd_span {
    int64_t from[ATTN_FWD_MOST_VECTORS], to[ATTN_FWD_MOST_VECTORS];
} attn_fwd_span;

struct attn_fwd_plan {
    const attn_problem *problem;
    const attn_fwd_kernel *kernel;
    int64_t tile_rows, strip_rows, key_block;
    bool copy_keys;       /* keys need converting, gathering, or another row stride */
    bool small;           /* all arrays fit into the first caches and are likely there: no line is asked for ahead */
    bool rules;           /* scores need more than a positive scale: the rules pass runs */
    int64_t key_stride;   /* of copied keys, in elements */
    int64_t query_slots;  /* of a packed query, 4 bytes each */
    int64_t value_padded; /* value_dim rounded up to whole panels */
    int64_t value_pitch;  /* floats from one panel of values to the next: not a power of two, for the cache's sets */
    /* offsets into a worker's scratch, in floats */
    int64_t query_at, out_at, score_at, value_at, key_at, row_at;
    size_t scratch_bytes;
};

/* Dtypes that the dataflow serves: all but f64. */
bool attn_fwd_suits(const attn_problem *p);
/* Whether a kernel of products in bf16 takes it: query, key, value and out are bf16, and no weight is
 * dropped. */
bool attn_fwd_suits_bf16(const attn_problem *p);
/* By shape alone. */
void attn_fwd_plan_make(const attn_problem *p, const attn_fwd_kernel *kernel, attn_fwd_plan *plan);

void attn_fwd_strip_scalar(const attn_fwd_plan *, const attn_fwd_task *, const attn_fwd_task *, void *);
void attn_fwd_strip_avx2(const attn_fwd_plan *, const attn_fwd_task *, const attn_fwd_task *, void *);
void attn_fwd_strip_avx512(const attn_fwd_plan *, const attn_fwd_task *, const attn_fwd_task *, void *);
void attn_fwd_strip_avx512bf16(const attn_fwd_plan *, const attn_fwd_task *, const attn_fwd_task *, void *);
void attn_fwd_strip_neon(const attn_fwd_plan *, const attn_fwd_task *, const attn_fwd_task *, void *);
void attn_fwd_strip_neonbf16(const attn_fwd_plan *, const attn_fwd_task *, const attn_fwd_task *, void *);

/* {strip, lanes, vectors, keys, dims, panel, pair, strip_floats}; the stubs define the same numbers but the last. CPUs with AVX-512 have
 * at least 1 MB of second-level cache, of which a strip takes 384 KB; elsewhere 192 KB of 512. */
#define ATTN_FWD_KERNEL_SCALAR {attn_fwd_strip_scalar, 1, 4, 4, 4, 4, 1, 49152}
#define ATTN_FWD_KERNEL_AVX2 {attn_fwd_strip_avx2, 8, 3, 4, 4, 8, 1, 49152}
#define ATTN_FWD_KERNEL_AVX512 {attn_fwd_strip_avx512, 16, 3, 8, 8, 16, 1, 98304}
#define ATTN_FWD_KERNEL_AVX512BF16 {attn_fwd_strip_avx512bf16, 16, 3, 8, 8, 16, 2, 98304}
#define ATTN_FWD_KERNEL_NEON {attn_fwd_strip_neon, 4, 3, 8, 8, 8, 1, 49152}
#define ATTN_FWD_KERNEL_NEONBF16 {attn_fwd_strip_neonbf16, 4, 3, 8, 8, 8, 2, 49152}

#endif
