/* train_net.h - what is trained: the parameters of an architecture, and its forward and backward pass over attn/layers.h.
 *
 * All parameters lie in one array, in the order of the forward pass; gradients and moments have the same layout. */
#ifndef ATTN_TRAIN_TRAIN_NET_H
#define ATTN_TRAIN_TRAIN_NET_H

#include <stdbool.h>
#include "attn/layers.h"
#include "attn/train.h"

enum attn_net_init { ATTN_INIT_ZERO, ATTN_INIT_ONE, ATTN_INIT_NORMAL, ATTN_INIT_UNIFORM };

typedef struct attn_net_param {
    char name[56];
    int64_t rows, columns; /* a vector: [1, columns] */
    int64_t offset;        /* in elements */
    bool decays;
    enum attn_net_init init;
    double spread;         /* NORMAL: deviation; UNIFORM: the largest */
} attn_net_param;

/* Offsets of a norm, a linear map, an attention layer, a block; -1: not there. */
typedef struct attn_net_pair {
    int64_t weight, bias;
} attn_net_pair;

typedef struct attn_net_attention {
    attn_net_pair q, k, v, o;
} attn_net_attention;

typedef struct attn_net_block {
    attn_net_pair norm1, norm_cross, norm2, gate, up, down;
    attn_net_attention self, cross;
} attn_net_block;

typedef struct attn_net {
    attn_trainer_options options; /* defaults filled in */
    attn_net_param *params;
    int64_t n_params, params_capacity, n_elements;
    attn_net_pair embedding, positions, types, embedding_norm, final_norm, encoder_norm, transform,
        transform_norm, head;     /* head: the bias alone (BERT) */
    attn_net_block *blocks, *encoder; /* [n_layers] each */
    int32_t norm_kind, place, act, dtype; /* dtype: ATTN_F32, or ATTN_F64 for checking gradients */
    double norm_eps;
    attn_rope_args rope;
} attn_net;

/* Checks options and lays parameters out. On an error net is empty. Returns OK; INVALID_ARGUMENT; OUT_OF_MEMORY. */
attn_status attn_net_create(attn_net *net, const attn_trainer_options *options);
void attn_net_destroy(attn_net *net);

/* Fresh f32 weights. */
void attn_net_initialise(const attn_net *net, float *weights);

/* ---- The pass ---- */

/* Memory of a pass, kept between calls. All zero: none yet; its owner frees bytes. */
typedef struct attn_net_memory {
    void *bytes;
    size_t size;
} attn_net_memory;

typedef struct attn_net_pass {
    attn_layers *layers;
    const void *weights; /* [n_elements] */
    void *gradients;     /* [n_elements], added to; NULL: the loss alone, no dropout */
    uint64_t seed;       /* of dropout */
    double scale;        /* of the gradient of the mean loss */
    double loss;         /* result: the mean */
    int64_t n_targets;   /* result */
    char fault[80];      /* result: the first state that is not finite; "": all are */
} attn_net_pass;

/* Forward, and backward where gradients are wanted. The batch has been checked. Returns OK; OUT_OF_MEMORY; what layers
 * refuse (then the message is theirs). */
attn_status attn_net_run(const attn_net *net, attn_net_memory *memory, attn_net_pass *pass,
                         const attn_train_batch *batch);

/* Bytes of activations that attn_net_run would take. layers serves the size queries only. */
attn_status attn_net_memory_bytes(const attn_net *net, attn_layers *layers, int64_t batch, int64_t length,
                                  int64_t source_length, size_t *bytes);

/* About what layers take as scratch for such a batch: a block's backward pass or the logits of the loss, whichever is more. */
int64_t attn_net_scratch_bytes(const attn_net *net, int64_t batch, int64_t length, int64_t source_length);

/* ENCDEC: the encoder's states of a batch; *states [batch * source_length, d_model] lies in memory, until the next pass. */
attn_status attn_net_encode(const attn_net *net, attn_net_memory *memory, attn_net_pass *pass,
                            const attn_train_batch *batch, const void **states);
/* ENCDEC, after attn_net_encode of the same batch (and the same or a greater length): hidden states
 * [batch * length, d_model] of the decoder's tokens, in memory. */
attn_status attn_net_decode(const attn_net *net, attn_net_memory *memory, attn_net_pass *pass,
                            const attn_train_batch *batch, const void **hidden);

/* Multiply-adds times two of forward and backward for one token, attention over `length` included. */
double attn_net_flops_per_token(const attn_net *net, int64_t length);

#endif
