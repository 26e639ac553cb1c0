/* inspect_backward.h - sublayers of a block backwards, from what entered them in the clean pass. */
#ifndef ATTN_INSPECT_INSPECT_BACKWARD_H
#define ATTN_INSPECT_INSPECT_BACKWARD_H

#include "inspect/inspect_run.h"

/* n: positions of the longest text. */
typedef struct attn_backward {
    float *dx;                                /* [n, d_model] gradient of the stream */
    float *other, *d_other, *middle, *normed, *d_normed; /* [n, d_model] */
    float *d_encoder;                         /* [n, d_model] of what the encoder gives to cross attention */
    float *row, *gradient;                    /* [d_model, or the columns of the embedding] */
    float *gate, *up, *d_wide;                /* [n, d_ff]; of a mixture one row */
    float *queries, *heads;                   /* [n, n_heads * head_dim] of a layer, rotated; what its heads gave */
    float *d_heads, *d_q, *d_k, *d_v, *q;     /* [n, n_heads * head_dim] */
    float *all_dx, *all_d_heads;              /* [n_directions] of dx and d_heads, which point into them */
    float *lse, *scratch, *memory;
    int64_t *positions;
} attn_backward;

/* An embedding's gradient is taken along so many random directions, a number's once. */
#define ATTN_INSPECT_DIRECTIONS 8
int64_t attn_backward_directions(const attn_inspect_run *run);
/* Makes dx and d_heads those of a direction. */
void attn_backward_turn(const attn_inspect_run *run, attn_backward *b, int64_t direction);

/* Bytes that start takes. */
int64_t attn_backward_bytes(const attn_inspect_run *run);
attn_status attn_backward_start(const attn_inspect_run *run, attn_backward *b);
void attn_backward_finish(attn_backward *b);

/* The operator's call of a layer over b's queries and the site's keys and values. */
attn_sdpa_args attn_backward_call(const attn_inspect_run *run, const attn_inspect_site *site, int64_t layer,
                                  const attn_backward *b);
/* b->queries, b->heads and b->lse of a layer, computed again. What follows reads them. */
attn_status attn_backward_again(const attn_inspect_run *run, const attn_inspect_site *site, int64_t layer, attn_backward *b);
/* Each takes b->dx, the gradient of what leaves a sublayer, and leaves there the gradient of what entered it. Those of
 * attention leave b->d_heads, the gradient of the heads' outputs. */
attn_status attn_backward_mlp(const attn_inspect_run *run, const attn_layer_weights *w, attn_backward *b, int64_t n,
                              const float *x);
attn_status attn_backward_attention(const attn_inspect_run *run, const attn_inspect_site *site, int64_t layer,
                                    attn_backward *b);
attn_status attn_backward_parallel(const attn_inspect_run *run, const attn_inspect_site *site, int64_t layer,
                                   attn_backward *b);
/* The stream behind a sublayer of attention. */
void attn_backward_behind(const attn_inspect_run *run, const attn_inspect_site *site, int64_t layer, attn_backward *b,
                          float *x);

/* dx += the gradient of y = norm(x) for rows of n numbers, dy with respect to y. Without weight: the identity. */
void attn_inspect_norm_back(const attn_norm_options *o, const attn_norm *norm, int64_t rows, int64_t n, const float *x,
                        const float *dy, float *dx);
/* The slope of an activation at x. */
double attn_activation_slope(int32_t act, double x);
/* y = x W^T + residual (NULL: none), with its bias. */
void attn_inspect_linear(const attn_inspect_run *run, const attn_linear *l, int64_t rows, const float *x,
                       const float *residual, float *y);
/* dx (+)= dy W: the gradient of y = x W^T with respect to x. */
attn_status attn_inspect_linear_back(const attn_inspect_run *run, const attn_linear *linear, int64_t rows, const float *dy,
                                 bool add, float *dx);

#endif
