/* pass.h - one forward pass: real tokens of all sequences packed one after the other, padding left out. */
#ifndef ATTN_MODELS_PASS_H
#define ATTN_MODELS_PASS_H

#include "models/model_internal.h"

typedef struct attn_pass {
    attn_session *s;
    const attn_forward_args *args;
    const attn_description *d;
    const attn_stack_weights *stack;
    const float *relative;
    bool encoder;        /* no cache; bidirectional, unless the model is a decoder, whose texts are embedded */
    bool has_cross;
    int64_t total;       /* real tokens */
    int64_t *first;      /* [batch + 1] where each sequence's tokens begin */
    int64_t *slots;      /* [total] b * n_tokens + i of each token */
    int64_t *positions;  /* [total] */
    int64_t uniform;     /* real tokens of every sequence, -1 where they differ */
    float *x, *y, *h;    /* [total, d_model] residual stream, the next one, input of a sublayer */
    float *q, *k, *v, *heads; /* [total, heads * head_dim] */
    float *mlp;          /* scratch of the feed-forward layer */
    float *rope_tables[2]; /* of the description's rope and local_rope, where kernels have no rule for them: cosines, then
                              sines, each [total][rotary_dim / 2]. Made when first needed */
} attn_pass;

/* Allocates and fills the pass for `args`; finish frees it. */
attn_status attn_pass_start(attn_pass *pass, attn_session *session, const attn_forward_args *args, bool encoder);
void attn_pass_finish(attn_pass *pass);

/* Attention of one layer: h -> heads, with cache, edits, hook and rows. */
attn_status attn_pass_attention(attn_pass *pass, int64_t layer, int32_t kind);

/* Rotary positions of x [total, heads * head_dim], in place; back: the gradient of that rotation. Reads s, d, total and
 * positions of the pass, and may fill rope_tables, which _drop_tables frees. */
attn_status attn_pass_rotate(attn_pass *pass, int64_t layer, int64_t heads, bool back, float *x);
void attn_pass_drop_tables(attn_pass *pass);

/* Runs all blocks on x. hidden, where not NULL, is called with the stream entering each layer. */
attn_status attn_pass_blocks(attn_pass *pass, void (*hidden)(attn_pass *pass, int64_t layer));

/* Logits [rows, vocab_size] of normed rows h [rows, d_model]. */
attn_status attn_pass_logits(attn_session *session, const float *h, int64_t rows, float *logits);

/* The whole of it, up to the final norm: the last hidden states, packed, in h. */
attn_status attn_pass_hidden(attn_pass *pass);

#endif
