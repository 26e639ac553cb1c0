/* block.h - the parts of a transformer block that are not attention: norms and feed-forward layers, over rows of tokens.
 * Shapes: x [rows, d_model] contiguous. Threads share rows and outputs; bits do not depend on how. */
#ifndef ATTN_LAYERS_BLOCK_H
#define ATTN_LAYERS_BLOCK_H

#include <stdbool.h>
#include "ops/nn/linear.h"

/* ---- weights ---- */

/* A norm's parameters; weight NULL: the family has no such norm. */
typedef struct attn_norm {
    float *weight, *bias;
} attn_norm;

typedef struct attn_attention_weights {
    attn_linear q, k, v, o;
    attn_norm q_norm, k_norm; /* over head_dim (or over all heads where their weights are that long) */
    int64_t q_norm_dim, k_norm_dim;
    float *sinks;             /* [n_heads] */
} attn_attention_weights;

typedef struct attn_layer_weights {
    attn_norm norm1, post1, norm2, post2, norm_cross;
    attn_attention_weights self, cross;
    attn_linear gate, up, down;
    attn_linear router;
    attn_linear *expert_gate, *expert_up, *expert_down; /* [n_experts] */
    bool has_cross;
} attn_layer_weights;

/* ---- computing ---- */

typedef struct attn_norm_options {
    enum attn_norm_kind kind;
    float offset; /* RMS: the scale is offset + weight (Gemma: 1) */
    double eps;
} attn_norm_options;

/* y = norm(x), rows of n numbers, ldx and ldy apart; y may be x. A norm without weight copies. */
void attn_norm_rows(const attn_worker *worker, const attn_norm_options *options, const attn_norm *norm, int64_t rows,
                    int64_t n, const float *x, int64_t ldx, float *y, int64_t ldy);

/* y = act(linear x), rows one behind the other; act also one of rare_act.h. */
void attn_linear_act_rows(const attn_worker *worker, const attn_linear *linear, int32_t act, int64_t rows, const float *x, float *y);

/* y += x over rows * n numbers. */
void attn_add_rows(const attn_worker *worker, int64_t rows, int64_t n, const float *x, float *y);

typedef struct attn_mlp_options {
    bool gated;                           /* down(act(gate x) * up x); else down(act(up x)) */
    int32_t act;                          /* ATTN_ACT_*, or one of rare_act.h */
    int64_t n_experts, experts_per_token; /* 0: no mixture */
    double swiglu_limit, swiglu_alpha;    /* gpt-oss: (up + 1) * gate sigmoid(alpha gate), both clamped at the limit */
} attn_mlp_options;

/* Floats of scratch that attn_mlp_forward needs. */
int64_t attn_mlp_scratch(const attn_mlp_options *options, int64_t rows, int64_t d_model, int64_t d_ff);

/* y = mlp(x) + residual (NULL: none). y, x and residual do not overlap. */
void attn_mlp_forward(const attn_worker *worker, const attn_mlp_options *options, const attn_layer_weights *w,
                      int64_t rows, int64_t d_model, int64_t d_ff, const float *x, const float *residual, float *y,
                      float *scratch);

/* The experts of one token, likeliest first (ties by lowest index), with their softmax weights among themselves:
 * chosen and weights [experts_per_token]. */
void attn_choose_experts(const float *logits, const attn_mlp_options *options, int64_t *chosen, float *weights);

#endif
