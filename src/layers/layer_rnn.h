/* layer_rnn.h - steps of recurrent cells over a batch, for the plain network and the decoder that attends. */
#ifndef ATTN_LAYERS_LAYER_RNN_H
#define ATTN_LAYERS_LAYER_RNN_H

#include "layers/layer_parts.h"

/* A recurrence over batch * seq rows; arrays hold row b * seq + t. */
typedef struct rnn_steps {
    int32_t dtype, kind;
    int64_t batch, seq, d_hidden, n_gates; /* n_gates: G * d_hidden */
    const void *w_hidden, *b_hidden;
    const void *hidden0, *cell0;           /* [batch, d_hidden] or NULL */
    void *hidden;                          /* [batch * seq, d_hidden] */
    void *gates;                           /* [batch * seq, n_gates]: the input's share before a step */
    void *cells;                           /* [batch * seq, d_hidden]; LSTM */
    float *packed;                         /* w_hidden for the steps at hand; f32 */
    void *zero;                            /* [d_hidden] zeros */
} rnn_steps;

attn_status attn_rnn_kind_check(attn_layers *layers, int32_t kind);
int64_t attn_rnn_gates(int32_t kind, int64_t d_hidden);
/* Packs w_hidden for forward (1) or backward (0) steps. */
attn_status attn_rnn_pack(attn_layers *layers, rnn_steps *s, int32_t forward);
/* gates += W_hh h_{t-1} + b_hh, then the cell. */
void attn_rnn_step(attn_layers *layers, const rnn_steps *s, int64_t t);
/* d_hidden [batch, d_hidden]: gradient of h_t on entry; on return that of h_{t-1} through W_hh. d_gates: rows of this step. */
void attn_rnn_step_back(attn_layers *layers, const rnn_steps *s, int64_t t, void *d_hidden, void *d_cell, void *d_gates);
/* h_{t-1} of every row: [batch * seq, d_hidden] in scratch. */
attn_status attn_rnn_hidden_before(attn_layers *layers, const rnn_steps *s, void **before);
/* Row t of every batch entry in or out of [batch, n]: y (+)= x. */
void attn_rnn_take(const attn_layers *layers, int32_t dtype, int64_t batch, int64_t n, const void *x, int64_t ldx, void *y,
                   int64_t ldy, bool add);

#endif
