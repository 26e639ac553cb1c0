/* inspect_screen.h - every reading of a text by its estimate, a block of rows at a time: what is kept of them are the largest,
 * an even sample for the rank correlation, and what was chosen beforehand. */
#ifndef ATTN_INSPECT_INSPECT_SCREEN_H
#define ATTN_INSPECT_INSPECT_SCREEN_H

#include "inspect/inspect_backward.h"

#define ATTN_SCREEN_PARTS 8 /* of a block, each with a heap of its own: threads share nothing, and results are the same for any number */

typedef struct attn_screen {
    attn_inspect_run *run;
    attn_reading *heaps;       /* [ATTN_SCREEN_PARTS][n_exact], the smallest on top; when it has ended the first is what all hold,
                                  largest first */
    int64_t counts[ATTN_SCREEN_PARTS];
    int64_t pairs[3], first[3]; /* readings of a head of each map; the number of its first reading among those of all maps */
    int64_t step, room;        /* every step-th reading enters the rank correlation */
    float *weights, *sizes;    /* [room] of those */
    bool *first_key;
    int64_t most_rows, most_stride; /* of a block: rows, floats of a row */
    float *rows, *along;       /* weights [most_rows][stride]; <g, v> [directions][most_rows][stride] */
} attn_screen;

attn_status attn_screen_start(attn_screen *s, attn_inspect_run *run);
/* The readings of a layer of map m, after its backward pass in all directions. */
attn_status attn_screen_layer(attn_screen *s, int32_t m, int64_t layer, const attn_backward *b);
/* Without a gradient: the last position's by their direct effect. */
void attn_screen_directs(attn_screen *s);
/* Fills the estimated correlation. */
void attn_screen_end(attn_screen *s);
void attn_screen_free(attn_screen *s);

#endif
