/* decode_plan.h - the dataflow for few query rows over many keys (decoding): keys and values are read once, straight from
 * where they lie, converted in registers.
 *
 * A stack is a set of query rows that read the same keys of one kv head: all rows of an entry (row r is query r / group of
 * head g * group + r % group), or the rows of all entries where their keys are one array (a shared prefix). A task is a
 * block of rows of a stack against one split: ATTN_DECODE_SPLIT keys anchored at key 0, cut into chunks. For each chunk:
 *     scores [keys][rows], rows in tiles of at most 4: dot products over vectors of dimensions, summed across lanes
 *     rules, running maximum, weights in place, sum in V_N interleaved parts
 *     out [rows][value_dim] += weights * values, one accumulator per output, a key of each place of the chunk in turns
 * Splits are merged in ascending order. A row's bits depend on its own keys only: not on the tile, stack, thread or
 * storage (Dao et al. 2023, Flash-Decoding; Juravsky et al. 2024, Hydragen). */
#ifndef ATTN_KERNELS_SDPA_DECODE_PLAN_H
#define ATTN_KERNELS_SDPA_DECODE_PLAN_H

#include "kernels/sdpa/problem.h"

#define ATTN_DECODE_CHUNK 256 /* keys between two updates of the maximum; K and V of a chunk fit L2 at f32, d 128 */
#define ATTN_DECODE_SPLIT 1024
#define ATTN_DECODE_BLOCK 64  /* rows of a task */
#define ATTN_DECODE_TILE 4    /* most rows of a tile */
#define ATTN_DECODE_ROWS 16   /* most stacked rows (queries times heads of a group) of an entry */
#define ATTN_DECODE_PAD 32    /* keys that a tile may run beyond the chunk: V_N at least */
/* A chunk is read in places, in turns a key of each: memory gives more to several streams than to one. 8-bit keys are read from one,
 * and asked for ahead: their conversion takes longer than the reads, and one stream ahead hides these. So are rows that do not
 * follow each other (heads beside one another in a token): processors do not foresee them. */
#define ATTN_DECODE_PLACES 4
#define ATTN_DECODE_AHEAD 32      /* 8-bit rows */
#define ATTN_DECODE_AHEAD_APART 8 /* rows that lie apart */
/* With AVX-512 keys are read in one place, and each line is asked for twice: a chunk ahead, in turns a line of each of eight
 * streams, and some rows ahead. Such requests are dropped when too many are under way (Zen 4 takes 200 GB/s of them), so that one is
 * not enough; both go to the second cache, since those to the first keep loads waiting. */
#define ATTN_DECODE_STREAMS 8
#define ATTN_DECODE_NEAR 32   /* rows */
#define ATTN_DECODE_STEP 16   /* keys by which holes are noted */

typedef struct attn_decode_row {
    attn_entry entry;
    int64_t head, query;
    int64_t low, high; /* keys that its range admits; both 0: none */
} attn_decode_row;

/* Where pairs were excluded in the tile at hand; such a weight is never multiplied with a value. */
typedef struct attn_decode_holes {
    bool any;
    bool step[ATTN_DECODE_CHUNK / ATTN_DECODE_STEP];
    bool pair[(ATTN_DECODE_CHUNK + ATTN_DECODE_PAD) * ATTN_DECODE_TILE];
} attn_decode_holes;

/* Where to ask for lines while a chunk is at work whose rows follow each other, or do so in pages of whole streams. */
typedef struct attn_decode_asks {
    int64_t near_key, near_value; /* bytes from a row to the one that is asked for; in pages, near_key is the tile's at hand */
    bool paged;                   /* near ones are found in the arrays of rows */
    bool far;                     /* the next chunk is ours, too; where its streams begin: */
    const char *far_key[ATTN_DECODE_STREAMS], *far_value[ATTN_DECODE_STREAMS]; /* without pages the first alone, and */
    int64_t key_stream, value_stream;                                          /* bytes from one to the next */
    uint64_t line;                /* lines of the next chunk's keys (or values) that have been asked for */
} attn_decode_asks;

/* One task and its scratch. Rows are padded to whole tiles by repeating the last one. */
typedef struct attn_decode_task {
    const attn_problem *problem;
    attn_entry keys; /* the entry by which keys are addressed */
    int64_t g, n_rows, first, end; /* keys first .. end - 1, first a multiple of ATTN_DECODE_SPLIT */
    int64_t query_stride, out_stride; /* floats between rows */
    attn_decode_row *row;
    float *query, *out, *max, *sum; /* [rows][..], [rows]; max in natural units */
    float *score;                   /* [chunk + pad][tile] */
    float *key_scale, *value_scale; /* [chunk + pad], i8 */
    float *scale;                   /* [chunk + pad][tile]: one of them, spread over the rows of a tile */
    const char **key, **value;      /* [chunk + near]: rows of the chunk's keys, and what is asked for beyond */
    uint16_t *order;                /* [chunk]: n_keys keys of the chunk, as they are read */
    int64_t ahead;                  /* rows are asked for so many rows before they are read; 0: not at all */
    attn_decode_asks *asks;         /* NULL: by `ahead` alone */
    bool goes_on;                   /* the keys behind end are this thread's next ones */
    bool alone;                     /* the unit is one block: behind its keys come those of the next kv head */
    int64_t places, n_keys, ordered_from, ordered_to; /* what order holds */
    attn_decode_holes *holes;
} attn_decode_task;

/* What is quicker this way than packed into strips, by measurement: any entry of up to `rows` rows, with more than `keys`
 * keys any of up to ATTN_DECODE_ROWS. */
typedef struct attn_decode_bound {
    int64_t rows, keys;
} attn_decode_bound;

/* What a level has for this dataflow. */
typedef struct attn_decode_kernel {
    /* Fills out, max and sum of all rows from the task's keys (sum not normalised, the sink left out). */
    void (*split)(attn_decode_task *task);
    /* n numbers that follow each other become a row of the task's query, zeros behind them up to `padded`. They may lie in
     * the place of the row itself, at its end. */
    void (*read_row)(const void *row, int32_t dtype, int64_t n, float *to, int64_t padded);
    /* n numbers of a row of out, padded to whole vectors, times `factor`, rounded to dtype; `to` may be the row. -0 becomes
     * 0: it would tell which keys were skipped. */
    void (*write_row)(const float *row, float factor, int32_t dtype, int64_t n, void *to);
    attn_decode_bound bound[3]; /* keys and values in f32; in 16 bits; in 8 */
} attn_decode_kernel;

extern const attn_decode_kernel attn_decode_kernel_scalar, attn_decode_kernel_avx2, attn_decode_kernel_avx512;
extern const attn_decode_kernel attn_decode_kernel_neon;
/* Queries, keys and values in bf16. */
extern const attn_decode_kernel attn_decode_kernel_avx512bf16, attn_decode_kernel_neonbf16;

#endif
