/* description.h - what a model is, in one struct: filled in by a family's file, read by the code that runs all of them.
 *
 * A block computes, with h and y as residual streams (norms that a family does not have are the identity):
 *
 *     PRE       h = x + post1(attention(norm1(x)));   y = h + post2(mlp(norm2(h)))
 *     POST      h = norm1(x + attention(x));          y = norm2(h + mlp(h))
 *     PARALLEL  y = x + attention(norm1(x)) + mlp(norm2(x))
 *
 * A decoder of an encoder-decoder has h = h + cross(norm_cross(h)) (POST: norm_cross(h + cross(h))) in between.
 */
#ifndef ATTN_MODELS_DESCRIPTION_H
#define ATTN_MODELS_DESCRIPTION_H

#include <stdbool.h>
#include "attn/model.h"
#include "layers/block.h"
#include "models/model_source.h"

enum attn_norm_place { ATTN_NORM_PRE, ATTN_NORM_POST, ATTN_NORM_PARALLEL };
enum attn_position_kind {
    ATTN_POSITION_NONE,
    ATTN_POSITION_LEARNED,    /* a table, added to the embeddings */
    ATTN_POSITION_SINUSOIDAL, /* Vaswani et al. 2017 section 3.5: sin and cos interleaved */
    ATTN_POSITION_HALVES,     /* the same numbers, all sines before all cosines (Marian, Pegasus) */
    ATTN_POSITION_ROPE,
    ATTN_POSITION_RELATIVE    /* T5: buckets of distances, one table for the stack */
};

/* Behind ATTN_ROPE_PLAIN, ...: what attn_rope gets as tables, since it depends on a sequence's length. */
#define ATTN_ROPE_LONG 100    /* LongRoPE */
#define ATTN_ROPE_DYNAMIC 101 /* a base that grows beyond original_length */

typedef struct attn_rope_desc {
    int64_t rotary_dim;
    bool interleaved;
    double base;
    int32_t scaling; /* ATTN_ROPE_PLAIN, ... */
    double factor, low_freq_factor, high_freq_factor, beta_fast, beta_slow, attention_factor;
    int64_t original_length;
    double *divisors; /* LONG: [2][rotary_dim / 2] of the frequencies, up to original_length and beyond it. Owned */
    bool no_truncate; /* YaRN: correction dims are not rounded */
} attn_rope_desc;

#define ATTN_MAX_STOP_IDS 8

typedef struct attn_description {
    char family[32];
    int32_t kind; /* ATTN_MODEL_* */
    int64_t n_layers, n_encoder_layers;
    int64_t d_model, d_ff, n_heads, n_kv_heads, head_dim;
    int64_t vocab_size, context_length;
    int64_t n_types;        /* token types; 0: none */
    bool no_tokens;         /* there is no embedding: callers give rows, or images */
    int64_t patch_size, image_size, n_channels; /* of a vision model, whose logits are those of its first row */

    attn_norm_options norm;
    enum attn_norm_place place;
    bool post_norm_first; /* Gemma 1: what the names call the norm behind attention is norm2 */
    bool plain_norms;     /* norms have no parameters in the file */
    bool no_final_norm;

    enum attn_position_kind position;
    int64_t position_offset; /* LEARNED: position 0 is this row */
    int64_t position_rows;
    attn_rope_desc rope, local_rope; /* local_rope: of windowed layers, where has_local_rope */
    bool has_local_rope;
    int64_t relative_buckets, relative_max_distance;

    double scale;           /* of scores; 0: 1/sqrt(head_dim) */
    bool scale_given;
    bool scale_by_layer;    /* layer l divides its scores by l + 1, too (GPT-2's scale_attn_by_inverse_layer_idx) */
    double softcap, final_softcap;
    int64_t window;         /* keys that a windowed layer sees, its own included; 0: none */
    bool window_two_sided;  /* |i - j| <= window instead (ModernBERT) */
    uint8_t *windowed;      /* [n_layers] 1: this layer has the window; NULL: all have it. Owned */
    bool sinks;

    attn_mlp_options mlp;

    int64_t embedding_dim;  /* columns of the embedding, where a matrix leads from it to d_model and back; 0: d_model */
    double embedding_scale; /* 0: 1 */
    double logit_scale;     /* 0: 1 (T5 tied: d_model^-0.5) */
    bool tied;              /* the head is the embedding */
    bool has_logits;
    int32_t transform_act;  /* masked-LM head: dense, act, norm, then the head */

    int32_t stop_ids[ATTN_MAX_STOP_IDS];
    int32_t n_stop_ids;
    int32_t never_ids[ATTN_MAX_STOP_IDS]; /* tokens that are never generated */
    int32_t n_never_ids;
    int32_t bos_id, pad_id, decoder_start_id; /* -1: none */
    int32_t forced_bos_id; /* what follows the decoder's start, whatever its logits; -1: nothing */
} attn_description;

/* Columns of the embedding and of the head. */
static inline int64_t attn_embedding_dim(const attn_description *d)
{
    return d->embedding_dim ? d->embedding_dim : d->d_model;
}

/* One stack of blocks. */
typedef struct attn_stack_weights {
    int64_t n_layers;
    attn_layer_weights *layers;
    float *positions;       /* [position_rows, d_model] */
    attn_norm embedding_norm;
    attn_norm final_norm;
    float *relative; /* [buckets][n_heads] T5 */
} attn_stack_weights;

typedef struct attn_weights {
    attn_linear_memory memory; /* of all matrices */
    attn_linear embedding;  /* [vocab_size, d_model], where it is the head, too */
    attn_source_tensor table; /* else: its rows are read from the file as they are needed */
    float *types;           /* [n_types, d_model] */
    attn_linear project_in, project_out; /* where the description has embedding_dim */
    attn_linear patches;    /* [d_model, channels * patch * patch] */
    float *class_token;     /* [d_model] */
    attn_stack_weights stack, encoder; /* encoder: of an encoder-decoder */
    attn_linear transform;  /* masked-LM head */
    attn_norm transform_norm;
    attn_linear head;       /* empty where tied */
    float *head_bias;       /* [vocab_size], where tied */
    attn_linear pooler;
} attn_weights;

#endif
