/* lab_net.h - small networks that experiments train: an embedding, recurrent or attention layers, read-outs, Adam. */
#ifndef ATTN_LAB_LAB_NET_H
#define ATTN_LAB_LAB_NET_H

#include "lab/lab.h"

enum { /* lab_net_options.kind */
    LAB_NET_ELMAN,  /* h_t is read out */
    LAB_NET_LSTM,
    LAB_NET_MHA,    /* one attention layer with W_Q, W_K, W_V, W_O, added to its input */
    LAB_NET_BLOCKS  /* transformer blocks with LayerNorm and a GELU feed-forward part of 4 d_model */
};

typedef struct lab_net_options {
    int32_t kind, place;      /* LAB_NET_*; ATTN_BLOCK_* */
    bool causal;              /* MHA and BLOCKS */
    bool positions;           /* learned positions are added to the embedding */
    int64_t vocab, n_types;   /* n_types 0: no second table; else every token has a type id, too */
    int64_t classes, readouts; /* readouts 0: 1; each is a matrix [classes, d_model] */
    int64_t batch, seq, d_model;
    int64_t n_layers, n_heads, head_dim;
    double scale;             /* of scores; 0: 1/sqrt(head_dim) */
} lab_net_options;

typedef struct lab_batch {
    const int32_t *ids, *types; /* [batch, seq] */
    const int32_t *targets;     /* [readouts, batch, seq]; -1: no loss here */
} lab_batch;

typedef struct lab_net lab_net;

/** A network with fresh weights (uniform in 1/sqrt(inputs), embeddings N(0, 1)), in the experiment's memory. NULL: l->failed. */
lab_net *lab_net_new(lab *l, const lab_net_options *options);
int64_t lab_net_parameters(const lab_net *net); /* of its layers, without embeddings and read-outs */

/** One Adam step (Kingma and Ba 2015; 0.9, 0.999). Returns the mean loss of the batch before it, in nats. */
double lab_net_train(lab_net *net, const lab_batch *batch, double learning_rate);

/** The mean loss, and the share of targets that are the likeliest class (NULL: not wanted). */
double lab_net_loss(lab_net *net, const lab_batch *batch, double *accuracy);

/** From now on sequences of `seq` tokens, at most those that the network was made for. */
void lab_net_set_length(lab_net *net, int64_t seq);

/** Logits [batch, seq, classes] of the first read-out. */
bool lab_net_logits(lab_net *net, const int32_t *ids, float *logits);

/** Frobenius norm of d (output of the last position) / d (embedding of the first), a mean over the batch's sequences. */
double lab_net_reach(lab_net *net, const lab_batch *batch);

/** The norm of the last training step's gradient of W_Q and W_K (MHA). */
double lab_net_query_key_gradient(const lab_net *net);

#endif
