/* collect.h - rows of weights out of a forward pass, one block at a time, kept as their largest. */
#ifndef ATTN_INSPECT_COLLECT_H
#define ATTN_INSPECT_COLLECT_H

#include "attn/inspect.h"
#include "models/model_internal.h"

/* One map that is being filled while layers pass by. */
typedef struct attn_collector {
    attn_inspect_map *map;
    int64_t at;              /* row and column kept whole; -1: none */
    int64_t only_layer, only_head; /* of a focus; -1: all */
    int64_t n_weights, capacity;
    int64_t next_row;        /* rows stored so far */
    int32_t n_threads;
    int64_t most_rows;       /* of a block */
    float *block;            /* [most_rows, n_keys] */
    int64_t *order;          /* [most_rows, most_kept] the largest of each row of the block */
} attn_collector;

#define ATTN_COLLECT_ROWS 128 /* of a block at most: four blocks of rows of the operator's */

/* Rows of a block of weights over so many keys: 16 MB, but for very long texts. */
int64_t attn_collect_rows(int64_t n_keys);
/* Arrays of a map whose sizes are filled in, all rows of which may take `most_weights`; n_layers and n_heads count what
 * is stored. */
attn_status attn_collect_start(attn_collector *c, attn_inspect_map *map, int64_t at, int64_t most_weights,
                               int64_t most_pairs, int32_t n_threads);
/* Takes the rows of one layer from a hook's view. */
attn_status attn_collect_layer(attn_collector *c, const attn_layer_view *view);
/* Keys of the `most` largest of n weights, none below `least` nor 0, in ascending order into keys [n]; how many. */
int64_t attn_inspect_largest(const float *w, int64_t n, int64_t most, float least, int64_t *keys);
void attn_collect_finish(attn_collector *c);
void attn_inspect_map_free(attn_inspect_map *map);

#endif
