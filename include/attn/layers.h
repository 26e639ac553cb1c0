/* attn/layers.h - every step from a soft lookup to a trained transformer, forward and backward (libattn_model).
 *
 *     context -> linear -> activation -> norm -> dropout, residual -> embedding, positions -> attention (lookup, one
 *     head, many heads) -> feed-forward -> block -> loss -> recurrent networks
 *
 * Each layer is two stateless calls over the caller's arrays: X_forward(layers, args) and X_backward(layers, args,
 * gradients), where args are those of the forward call. A layer that would have to compute much again keeps it in
 * args.saved, X_saved_bytes() bytes of the caller's memory; with saved NULL the forward call keeps nothing.
 *
 * Rules for all functions
 *  - Arrays of tokens are rows: x[r * ldx + i], r < rows, i < width. A leading stride (ldx, ...) counts elements; 0 means
 *    the width. With sequences, row b * seq + s is token s of batch entry b.
 *  - dtype is ATTN_F32 or ATTN_F64 and holds for every `void *` array of numbers in the struct. f64 is for checking.
 *  - Weights of a linear map are [out, in] row-major without gaps, y = x W^T + b, as in PyTorch and safetensors. A weight
 *    or bias that is NULL is left out (each struct says what that means).
 *  - Backward ADDS to every gradient of a weight, and WRITES the gradient of an input (d_x, ...), unless flags hold
 *    ATTN_GRAD_ACCUMULATE: then it adds there too. A gradient pointer that is NULL is not computed.
 *  - Inputs must not overlap outputs, except where a function says so.
 *  - Zero is the documented default. Errors are values; attn_layers_error() names the field and the value. On a wrong
 *    argument nothing is written; after OUT_OF_MEMORY the arrays to be written hold unspecified numbers.
 *  - Same bits for any number of threads. A row of a linear map, norm, activation or feed-forward layer has the same bits
 *    whatever other rows are computed with it. Attention over few rows takes sums in another order than over many: there
 *    one position at a time agrees with all at once to rounding.
 *  - Scratch memory is the context's, grown when needed and kept. One call at a time per context.
 *  - Every function returns OK, INVALID_ARGUMENT, UNSUPPORTED or OUT_OF_MEMORY.
 */
#ifndef ATTN_LAYERS_H
#define ATTN_LAYERS_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Context --------------------------------------------------------------------------------- */

/* The threads, kernels, scratch memory and error text of layers. */
typedef struct attn_layers attn_layers;

/** Creates a context. options may be NULL; its allocator also serves the scratch memory of layers. On error *layers is
 * NULL and attn_layers_error(NULL) says why. Errors as attn_ctx_create. */
ATTN_API attn_status attn_layers_create(const attn_ctx_options *options, attn_layers **layers);

/** Frees a context. NULL is fine. */
ATTN_API void attn_layers_destroy(attn_layers *layers);

/** The last error on this context, naming field and value, "" when there was none; NULL: why the last
 * attn_layers_create of this thread failed. */
ATTN_API const char *attn_layers_error(const attn_layers *layers);

/** The operator's context inside, for direct calls of attn.h between calls of layers. Owned by layers. */
ATTN_API attn_ctx *attn_layers_ctx(attn_layers *layers);

/* ---- Linear ---------------------------------------------------------------------------------- */

typedef struct attn_linear_args {
    size_t struct_size;
    int32_t dtype, reserved;
    int64_t rows, n_in, n_out;
    const void *x;        /* [rows, n_in] */
    int64_t ldx;
    const void *weight;   /* [n_out, n_in] */
    const void *bias;     /* [n_out]; NULL: none */
    const void *residual; /* [rows, n_out], added to y; NULL: none. May be y. Its gradient is d_y itself */
    int64_t ld_residual;
    void *y;              /* [rows, n_out] */
    int64_t ldy;
} attn_linear_args;

typedef struct attn_linear_gradients {
    size_t struct_size;
    uint64_t flags;       /* ATTN_GRAD_ACCUMULATE: for d_x */
    const void *d_y;      /* [rows, n_out] */
    int64_t ld_dy;
    void *d_x;            /* [rows, n_in] */
    int64_t ld_dx;
    void *weight, *bias;
} attn_linear_gradients;

/** y = x W^T + b (+ residual). One accumulator per output, inputs in ascending order: the bits of a row depend on nothing
 * but that row and the weights. */
ATTN_API attn_status attn_linear_forward(attn_layers *layers, const attn_linear_args *args);

/** d_x = d_y W, d_W += d_y^T x, d_b += sum of the rows of d_y. */
ATTN_API attn_status attn_linear_backward(attn_layers *layers, const attn_linear_args *args,
                                          const attn_linear_gradients *gradients);

/* ---- Activation ------------------------------------------------------------------------------ */

enum { /* activations; values are ABI */
    ATTN_ACT_NONE = 0,
    ATTN_ACT_RELU = 1,
    ATTN_ACT_SILU = 2,       /* x / (1 + exp(-x)), also called swish */
    ATTN_ACT_GELU_ERF = 3,   /* x (1 + erf(x / sqrt 2)) / 2 (BERT) */
    ATTN_ACT_GELU_TANH = 4,  /* x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 (GPT-2) */
    ATTN_ACT_GELU_QUICK = 5, /* x / (1 + exp(-1.702 x)) */
    ATTN_ACT_TANH = 6
};

typedef struct attn_activation_args {
    size_t struct_size;
    int32_t dtype, act; /* ATTN_ACT_* */
    int64_t n;
    const void *x;      /* [n] */
    const void *up;     /* [n]: y = act(x) * up (the gated form, SwiGLU with ATTN_ACT_SILU); NULL: y = act(x) */
    void *y;            /* [n], may be x */
} attn_activation_args;

typedef struct attn_activation_gradients {
    size_t struct_size;
    uint64_t flags;
    const void *d_y;    /* [n] */
    void *d_x, *d_up;   /* [n]; either may be d_y */
} attn_activation_gradients;

/** y = act(x), or act(x) * up. */
ATTN_API attn_status attn_activation_forward(attn_layers *layers, const attn_activation_args *args);

/** d_x = d_y act'(x) (* up), d_up = d_y act(x). args.x and args.up must still hold the inputs. */
ATTN_API attn_status attn_activation_backward(attn_layers *layers, const attn_activation_args *args,
                                              const attn_activation_gradients *gradients);

/* ---- Norm ------------------------------------------------------------------------------------ */

enum attn_norm_kind { /* values are ABI */
    ATTN_NORM_RMS = 0,  /* x / sqrt(mean(x^2) + eps) * (offset + weight)                  (Zhang and Sennrich 2019) */
    ATTN_NORM_LAYER = 1 /* (x - mean) / sqrt(var + eps) * weight + bias, var over n              (Ba et al. 2016) */
};

typedef struct attn_norm_args {
    size_t struct_size;
    int32_t dtype, kind; /* enum attn_norm_kind */
    int64_t rows, n;
    double eps;          /* >= 0, taken as it is: 1e-5 is usual */
    double offset;       /* RMS: Gemma has 1; LAYER: 0 */
    const void *x;       /* [rows, n] */
    int64_t ldx;
    const void *weight;  /* [n]; NULL: every weight is 1 and offset is not used */
    const void *bias;    /* [n]; NULL: 0 */
    void *y;             /* [rows, n], may be x where no gradient is wanted */
    int64_t ldy;
} attn_norm_args;

typedef struct attn_norm_gradients {
    size_t struct_size;
    uint64_t flags;
    const void *d_y;     /* [rows, n] */
    int64_t ld_dy;
    void *d_x;           /* [rows, n], may be d_y */
    int64_t ld_dx;
    void *weight, *bias; /* [n] */
} attn_norm_gradients;

/** Normalises each row. Sums are f64. */
ATTN_API attn_status attn_norm_forward(attn_layers *layers, const attn_norm_args *args);

/** Gradients; mean and variance are computed again from args.x. */
ATTN_API attn_status attn_norm_backward(attn_layers *layers, const attn_norm_args *args,
                                        const attn_norm_gradients *gradients);

/* ---- Dropout and residual ---------------------------------------------------------------------- */

typedef struct attn_residual_args {
    size_t struct_size;
    int32_t dtype, reserved;
    int64_t n;
    const void *x;        /* [n] */
    const void *residual; /* [n]; NULL: 0. May be y */
    void *y;              /* [n], may be x */
    double dropout_p;     /* 0..1; 0: none. Element i is kept when word i % 4 of Philox4x32-10 (Salmon et al. 2011) with key
                             dropout_seed and counter i / 4 is at or above p * 2^32, and is then multiplied by 1/(1-p) */
    uint64_t dropout_seed;
} attn_residual_args;

/** y = residual + dropout(x). */
ATTN_API attn_status attn_residual_forward(attn_layers *layers, const attn_residual_args *args);

/** d_x = d_y with the same elements dropped; the gradient of residual is d_y itself. args.x, residual and y are not read.
 * d_x may be d_y. flags: ATTN_GRAD_ACCUMULATE. */
ATTN_API attn_status attn_residual_backward(attn_layers *layers, const attn_residual_args *args, const void *d_y,
                                            void *d_x, uint64_t flags);

/* ---- Embedding and positions ------------------------------------------------------------------- */

typedef struct attn_embedding_args {
    size_t struct_size;
    int32_t dtype;
    int32_t sinusoidal;           /* 1: adds sin(p / 10000^(2i/d)) at 2i and cos of it at 2i + 1 (Vaswani et al. 2017) */
    int64_t rows, d_model;
    int64_t seq;                  /* row r stands at position_offset + r % seq; 0: rows */
    int64_t position_offset;
    const int64_t *positions;     /* [rows] instead; NULL: as above */
    const int32_t *ids;           /* [rows], 0 .. vocab - 1 */
    int64_t vocab;
    const void *table;            /* [vocab, d_model] */
    double scale;                 /* multiplies the row of the table; 0: 1. The 2017 model: sqrt(d_model) */
    const void *position_table;   /* learned positions [n_positions, d_model]; NULL: none */
    int64_t n_positions;
    const int32_t *type_ids;      /* [rows]; NULL: 0 where there is a type table */
    const void *type_table;       /* [n_types, d_model] (BERT's segments); NULL: none */
    int64_t n_types;
    void *y;                      /* [rows, d_model] */
    int64_t ldy;
} attn_embedding_args;

typedef struct attn_embedding_gradients {
    size_t struct_size;
    uint64_t flags;               /* 0 */
    const void *d_y;              /* [rows, d_model] */
    int64_t ld_dy;
    void *table, *position_table, *type_table;
} attn_embedding_gradients;

/** The slopes of ALiBi (Press et al. 2021), for attn_mask.alibi_slopes: 2^(-8 i / n), i = 1 .. n, where n_heads is a power of
 * two n; else those of the largest power of two below, then the first, third, ... of twice that. slopes [n_heads].
 * Returns OK; INVALID_ARGUMENT (attn_layers_error(NULL) says why). Any thread. */
ATTN_API attn_status attn_alibi_slopes(int64_t n_heads, double *slopes);

/** y[r] = scale * table[ids[r]] + position(r) + type_table[type_ids[r]]. Rotary positions act inside attention. */
ATTN_API attn_status attn_embedding_forward(attn_layers *layers, const attn_embedding_args *args);

/** Adds each row's gradient to the rows it read, in ascending order of r for any number of threads. */
ATTN_API attn_status attn_embedding_backward(attn_layers *layers, const attn_embedding_args *args,
                                             const attn_embedding_gradients *gradients);

/* ---- Attention: lookup, one head, many heads ---------------------------------------------------- *
 *
 *     Q = query W_Q^T + b_Q    K = key W_K^T + b_K    V = value W_V^T + b_V     then split in heads, RoPE on Q and K
 *     head_h = softmax(scale Q_h K_h^T + mask) V_h                              attn_sdpa_forward
 *     out = [head_0 ... head_{H-1}] W_O^T + b_O
 *
 *  - Soft lookup: all weights NULL, one head, head_dim and value_dim the widths of the rows: out_i = sum_j w_ij x_j.
 *  - One head: n_heads 1, W_Q and W_K [d_k, d_model], W_V [d_v, d_model], W_O NULL (out is d_v wide) or [d_model, d_v].
 *  - Many heads: W_Q [n_heads * head_dim, d_query], W_K [n_kv_heads * head_dim, d_key], W_V [n_kv_heads * value_dim,
 *    d_value], W_O [d_out, n_heads * value_dim]; head h is rows h * head_dim ... of W_Q. A weight that is NULL is the
 *    identity: the widths must then agree.
 *  - Self attention: key and value NULL. Cross attention: key the encoder's states, value NULL (= key).
 */
enum { /* attn_mha_args.flags, beside ATTN_SCALE_GIVEN = 1 */
    ATTN_MHA_ADD_ZERO = 2 /* one more key and value of zeros at the end, visible to every query (PyTorch's add_zero_attn) */
};

typedef struct attn_mha_weights {
    const void *w_query, *w_key, *w_value, *w_out; /* self attention is fastest where w_query, w_key and w_value lie as one
                                                      [3 d, d] matrix, and their biases and gradients likewise */
    const void *b_query, *b_key, *b_value, *b_out;
    const void *bias_k, *bias_v; /* [n_kv_heads * head_dim], [n_kv_heads * value_dim]: one learned key and value at the
                                    end (before that of ADD_ZERO), visible to every query; both or neither */
    const float *sinks;          /* [n_heads], as attn_sdpa_args.sinks */
} attn_mha_weights;              /* frozen */

typedef struct attn_mha_weight_gradients { /* the same names; NULL: not computed; frozen */
    void *w_query, *w_key, *w_value, *w_out;
    void *b_query, *b_key, *b_value, *b_out;
    void *bias_k, *bias_v;
    float *sinks;
} attn_mha_weight_gradients;

typedef struct attn_mha_args {
    size_t struct_size;
    int32_t dtype, reserved;
    int64_t batch, seq_q, seq_kv;      /* seq_kv 0 with key NULL: seq_q */
    int64_t d_query, d_key, d_value;   /* widths of the rows; d_key 0: d_query, d_value 0: d_key */
    int64_t n_heads, n_kv_heads;       /* n_kv_heads 0: n_heads */
    int64_t head_dim, value_dim;       /* value_dim 0: head_dim */
    int64_t d_out;                     /* width of out; 0: d_query with w_out, n_heads * value_dim without */
    const void *query;                 /* [batch * seq_q, d_query] */
    int64_t ld_query;
    const void *key;                   /* [batch * seq_kv, d_key]; NULL: query */
    int64_t ld_key;
    const void *value;                 /* [batch * seq_kv, d_value]; NULL: key */
    int64_t ld_value;
    attn_mha_weights weights;
    attn_mask mask;                    /* as in attn.h, over the seq_kv given keys (not over those of bias_k and ADD_ZERO).
                                          Causal or windowed with seq_q != seq_kv needs ATTN_MASK_OFFSET */
    double scale, softcap;             /* as attn_sdpa_args */
    uint64_t flags;                    /* ATTN_SCALE_GIVEN, ATTN_MHA_ADD_ZERO */
    const attn_rope_args *rope;        /* rotary positions of queries and keys: everything but x and out is read, and
                                          struct_size must be set; key j stands at position_offset + j, query i at the
                                          mask's query_offset behind that. positions: only with seq_q == seq_kv.
                                          NULL: none */
    double dropout_p;                  /* on the weights, as attn_sdpa_args */
    uint64_t dropout_seed;
    void *out;                         /* [batch * seq_q, d_out] */
    int64_t ld_out;
    const attn_row *weight_rows;       /* rows whose weights are wanted: [n_weight_rows]; NULL with row_weights given: every
                                          row, in the order batch, head, query */
    int64_t n_weight_rows;
    void *row_weights;                 /* [n_weight_rows, keys], keys = seq_kv + those of bias_k and ADD_ZERO; before dropout;
                                          NULL: not wanted */
    void *mean_weights;                /* [batch, seq_q, keys]: mean over the heads; NULL: not wanted */
    void *saved;                       /* for backward: attn_mha_saved_bytes() bytes, 64-byte aligned; NULL: no backward */
} attn_mha_args;

typedef struct attn_mha_gradients {
    size_t struct_size;
    uint64_t flags;                    /* ATTN_GRAD_ACCUMULATE: for d_query, d_key, d_value */
    const void *d_out;                 /* [batch * seq_q, d_out] */
    int64_t ld_dout;
    void *d_query;                     /* with key NULL: the whole gradient of the rows, through query, key and value */
    int64_t ld_dquery;
    void *d_key;                       /* with value NULL: through key and value */
    int64_t ld_dkey;
    void *d_value;
    int64_t ld_dvalue;
    attn_mha_weight_gradients weights;
    float *d_relative;                 /* of mask.relative; NULL: not wanted */
    attn_view d_bias;                  /* of mask.bias, written, as attn_sdpa_backward_args.d_bias; d_relative is added to */
} attn_mha_gradients;

/** Bytes of args->saved (projected queries, keys and values, heads, lse). Data pointers are not read. */
ATTN_API attn_status attn_mha_saved_bytes(attn_layers *layers, const attn_mha_args *args, size_t *bytes);

/** Attention with its projections (Vaswani et al. 2017, section 3.2). Memory is linear in the lengths unless all weights
 * are asked for (masks given as arrays are copied where bias_k or ADD_ZERO append to the keys). A query that sees no key has
 * heads of 0, so out = b_out. */
ATTN_API attn_status attn_mha_forward(attn_layers *layers, const attn_mha_args *args);

/** Gradients of everything; args are the forward call's, with its saved. */
ATTN_API attn_status attn_mha_backward(attn_layers *layers, const attn_mha_args *args, const attn_mha_gradients *gradients);

/* ---- Feed-forward ---------------------------------------------------------------------------- */

typedef struct attn_ffn_weights { /* frozen */
    const void *w_gate, *b_gate;  /* [d_ff, d_model]; NULL: not gated */
    const void *w_up, *b_up;      /* [d_ff, d_model] */
    const void *w_down, *b_down;  /* [d_out, d_ff] */
} attn_ffn_weights;

typedef struct attn_ffn_weight_gradients { /* frozen */
    void *w_gate, *b_gate, *w_up, *b_up, *w_down, *b_down;
} attn_ffn_weight_gradients;

typedef struct attn_ffn_args {
    size_t struct_size;
    int32_t dtype, act;      /* ATTN_ACT_*; SwiGLU: w_gate given, ATTN_ACT_SILU */
    int64_t rows, d_model, d_ff;
    const void *x;           /* [rows, d_model] */
    int64_t ldx;
    attn_ffn_weights weights;
    double dropout_p;        /* after the activation; element r * d_ff + i, as attn_residual_args */
    uint64_t dropout_seed;
    void *y;                 /* [rows, d_model] */
    int64_t ldy;
    void *saved;             /* attn_ffn_saved_bytes() bytes, 64-byte aligned; NULL: no backward */
} attn_ffn_args;

typedef struct attn_ffn_gradients {
    size_t struct_size;
    uint64_t flags;
    const void *d_y;         /* [rows, d_model] */
    int64_t ld_dy;
    void *d_x;               /* [rows, d_model] */
    int64_t ld_dx;
    attn_ffn_weight_gradients weights;
} attn_ffn_gradients;

ATTN_API attn_status attn_ffn_saved_bytes(attn_layers *layers, const attn_ffn_args *args, size_t *bytes);

/** y = W_down dropout(act(W_up x + b_up)) + b_down; gated: act(W_gate x + b_gate) * (W_up x + b_up) inside (Shazeer 2020).
 * No position is read from another's row. */
ATTN_API attn_status attn_ffn_forward(attn_layers *layers, const attn_ffn_args *args);
ATTN_API attn_status attn_ffn_backward(attn_layers *layers, const attn_ffn_args *args, const attn_ffn_gradients *gradients);

/* ---- Block ----------------------------------------------------------------------------------- *
 *
 *     pre-norm  (GPT-2):       x += drop(attention(norm1(x)))   [x += drop(cross(norm_cross(x), memory))]   x += drop(ffn(norm2(x)))
 *     post-norm (2017, BERT):  x = norm1(x + drop(attention(x)))   [x = norm_cross(x + drop(cross(x, memory)))]   x = norm2(x + drop(ffn(x)))
 */
enum { /* attn_block_args.place */
    ATTN_BLOCK_PRE_NORM = 0,
    ATTN_BLOCK_POST_NORM = 1
};

typedef struct attn_block_weights { /* frozen */
    const void *norm1_weight, *norm1_bias, *norm_cross_weight, *norm_cross_bias, *norm2_weight, *norm2_bias;
    attn_mha_weights attention, cross;
    attn_ffn_weights ffn;
} attn_block_weights;

typedef struct attn_block_weight_gradients { /* frozen */
    void *norm1_weight, *norm1_bias, *norm_cross_weight, *norm_cross_bias, *norm2_weight, *norm2_bias;
    attn_mha_weight_gradients attention, cross;
    attn_ffn_weight_gradients ffn;
} attn_block_weight_gradients;

typedef struct attn_block_args {
    size_t struct_size;
    int32_t dtype, place;       /* ATTN_BLOCK_* */
    int32_t norm_kind, act;     /* enum attn_norm_kind, ATTN_ACT_* */
    double eps, norm_offset;    /* eps 0: 1e-5 */
    int64_t batch, seq, d_model, d_ff;
    int64_t n_heads, n_kv_heads, head_dim, value_dim; /* head_dim 0: d_model / n_heads; the rest as attn_mha_args */
    const void *x;              /* [batch * seq, d_model] */
    attn_mask mask;             /* of self attention */
    const attn_rope_args *rope; /* as attn_mha_args */
    double scale, softcap;
    uint64_t flags;             /* ATTN_SCALE_GIVEN */
    const void *memory;         /* [batch * seq_memory, d_memory]: the encoder's states; NULL: no cross attention */
    int64_t seq_memory, d_memory; /* d_memory 0: d_model */
    attn_mask memory_mask;      /* of cross attention, over seq x seq_memory */
    attn_block_weights weights;
    double dropout_p;           /* on the output of each part */
    double attention_dropout_p; /* on attention weights */
    double ffn_dropout_p;       /* after the activation */
    uint64_t dropout_seed;      /* another one for each block and step; the parts derive theirs from it */
    void *y;                    /* [batch * seq, d_model] */
    void *saved;                /* attn_block_saved_bytes() bytes, 64-byte aligned; NULL: no backward */
} attn_block_args;

typedef struct attn_block_gradients {
    size_t struct_size;
    uint64_t flags;
    const void *d_y;            /* [batch * seq, d_model] */
    void *d_x;                  /* [batch * seq, d_model], may be d_y */
    void *d_memory;             /* [batch * seq_memory, d_memory] */
    attn_block_weight_gradients weights;
} attn_block_gradients;

ATTN_API attn_status attn_block_saved_bytes(attn_layers *layers, const attn_block_args *args, size_t *bytes);

/** One transformer block: an encoder's, a decoder's (mask causal), or with memory that of an encoder-decoder. Arrays of a
 * block have no gaps between rows. To recompute activations instead of keeping them: forward with saved NULL, keep x, and
 * call forward again with one shared saved just before backward; dropout repeats its pattern. */
ATTN_API attn_status attn_block_forward(attn_layers *layers, const attn_block_args *args);
ATTN_API attn_status attn_block_backward(attn_layers *layers, const attn_block_args *args,
                                         const attn_block_gradients *gradients);

/* ---- Loss ------------------------------------------------------------------------------------ */

typedef struct attn_cross_entropy_args {
    size_t struct_size;
    int32_t dtype, reserved;
    int64_t rows, d_model, vocab;
    const void *x;           /* [rows, d_model] hidden states; with weight NULL the logits themselves, d_model = vocab */
    int64_t ldx;
    const void *weight;      /* output projection [vocab, d_model]; a tied embedding's table is just given here */
    const void *bias;        /* [vocab]; NULL: none */
    const int32_t *targets;  /* [rows], 0 .. vocab - 1 or ignore_index */
    int32_t ignore_index;    /* rows with this target count for nothing (PyTorch: -100) */
    int32_t reserved2;
    double label_smoothing;  /* 0..1: the target distribution is (1 - s) one-hot + s / vocab */
    double gradient_scale;   /* multiplies gradients; 0: 1 / (number of counted rows), the gradient of the mean. To accumulate
                                over parts of a batch give 1 / (counted rows of all of them) */
    double *loss;            /* one number: the SUM of the counted rows' losses, in nats; NULL: not wanted */
    int64_t *n_counted;      /* one number: rows that count; NULL: not wanted */
    int64_t *n_correct;      /* one number: counted rows whose largest logit (lowest index on ties) is the target */
    double *row_loss;        /* [rows], 0 where ignored; NULL: not wanted */
} attn_cross_entropy_args;

typedef struct attn_cross_entropy_gradients {
    size_t struct_size;
    uint64_t flags;
    void *d_x;               /* [rows, d_model] (d_logits when weight is NULL; may then be x); ignored rows are 0 */
    int64_t ld_dx;
    void *weight, *bias;     /* added to; for a tied embedding the embedding's own gradient array */
} attn_cross_entropy_gradients;

/** Softmax cross-entropy of the output projection: logits = x W^T + b, loss_r = lse(logits) - logits[target]. Logits exist
 * for a chunk of rows at a time (32 MiB, at least 64 rows), never for all rows. gradients NULL: the loss alone; else loss
 * and gradients in one call, because the logits are there only once. NaN or infinity in a row reaches that row's loss. */
ATTN_API attn_status attn_cross_entropy(attn_layers *layers, const attn_cross_entropy_args *args,
                                        const attn_cross_entropy_gradients *gradients);

/* ---- Recurrent networks ------------------------------------------------------------------------ *
 *
 *     Elman (1990):  h_t = act(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh)
 *     LSTM  (Hochreiter and Schmidhuber 1997, with forget gate; rows of the weights in the order i, f, g, o as in PyTorch):
 *            c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g)       h_t = sigmoid(o) tanh(c_t)
 */
enum { /* attn_rnn_args.kind */
    ATTN_RNN_ELMAN = 0, /* tanh */
    ATTN_RNN_ELMAN_RELU = 1,
    ATTN_RNN_LSTM = 2
};

typedef struct attn_rnn_weights { /* G = 1 (Elman) or 4 (LSTM); frozen */
    const void *w_input;          /* [G * d_hidden, d_in] */
    const void *w_hidden;         /* [G * d_hidden, d_hidden] */
    const void *b_input, *b_hidden; /* [G * d_hidden]; NULL: none */
} attn_rnn_weights;

typedef struct attn_rnn_weight_gradients { /* frozen */
    void *w_input, *w_hidden, *b_input, *b_hidden;
} attn_rnn_weight_gradients;

typedef struct attn_rnn_args {
    size_t struct_size;
    int32_t dtype, kind;
    int64_t batch, seq, d_in, d_hidden;
    const void *x;                     /* [batch * seq, d_in] */
    attn_rnn_weights weights;
    const void *hidden0, *cell0;       /* [batch, d_hidden]: state before the first token; NULL: 0 */
    void *out;                         /* [batch * seq, d_hidden]: h_t */
    void *hidden_last, *cell_last;     /* [batch, d_hidden]: state after the last token; NULL: not wanted */
    void *saved;                       /* attn_rnn_saved_bytes() bytes, 64-byte aligned; NULL: no backward */
} attn_rnn_args;

typedef struct attn_rnn_gradients {
    size_t struct_size;
    uint64_t flags;
    const void *d_out;                 /* [batch * seq, d_hidden]; NULL: 0 */
    const void *d_hidden_last, *d_cell_last; /* NULL: 0 */
    void *d_x;                         /* [batch * seq, d_in] */
    void *d_hidden0, *d_cell0;
    attn_rnn_weight_gradients weights;
} attn_rnn_gradients;

ATTN_API attn_status attn_rnn_saved_bytes(attn_layers *layers, const attn_rnn_args *args, size_t *bytes);

/** Runs a recurrent network over its sequence; a sequence in pieces, each starting from the last one's state, has the same
 * bits as in one call. */
ATTN_API attn_status attn_rnn_forward(attn_layers *layers, const attn_rnn_args *args);

/** Backpropagation through time. args.out must still hold the forward result. */
ATTN_API attn_status attn_rnn_backward(attn_layers *layers, const attn_rnn_args *args, const attn_rnn_gradients *gradients);

/* The decoder of a recurrent encoder-decoder: at each step its last state asks the encoder's states, and what it reads goes
 * into the next state (Bahdanau et al. 2015). The encoder is attn_rnn_forward: its out are the states here.
 *
 *     e_tj = v . tanh(W_a h_{t-1} + U_a s_j)       additive, or
 *     e_tj = (W_a h_{t-1}) . s_j                   dot product (w_align_key and v_align NULL; d_align = d_state; Luong et al. 2015)
 *     a_t = softmax(e_t)     c_t = sum_j a_tj s_j     h_t = RNN([x_t; c_t], h_{t-1})
 */
typedef struct attn_decoder_rnn_weights { /* frozen */
    const void *w_align_query;            /* W_a [d_align, d_hidden]; NULL with the dot product: identity */
    const void *w_align_key;              /* U_a [d_align, d_state] */
    const void *v_align;                  /* v [d_align] */
    attn_rnn_weights rnn;                 /* w_input is [G * d_hidden, d_in + d_state] */
} attn_decoder_rnn_weights;

typedef struct attn_decoder_rnn_weight_gradients { /* frozen */
    void *w_align_query, *w_align_key, *v_align;
    attn_rnn_weight_gradients rnn;
} attn_decoder_rnn_weight_gradients;

typedef struct attn_decoder_rnn_args {
    size_t struct_size;
    int32_t dtype, kind;               /* ATTN_RNN_* */
    int64_t batch, seq, seq_states;
    int64_t d_in, d_hidden, d_state, d_align;
    const void *x;                     /* [batch * seq, d_in]: the target tokens so far (teacher forcing) */
    const void *states;                /* [batch * seq_states, d_state] */
    const int64_t *states_len;         /* [batch]: states that exist; NULL: all */
    attn_decoder_rnn_weights weights;
    const void *hidden0, *cell0;       /* [batch, d_hidden]; NULL: 0 */
    void *out;                         /* [batch * seq, d_hidden]: h_t */
    void *context;                     /* [batch * seq, d_state]: c_t; NULL: not wanted */
    void *align;                       /* [batch * seq, seq_states]: a_tj; NULL: not wanted */
    void *hidden_last, *cell_last;     /* [batch, d_hidden]; NULL: not wanted */
    void *saved;                       /* attn_decoder_rnn_saved_bytes() bytes, 64-byte aligned; NULL: no backward */
} attn_decoder_rnn_args;

typedef struct attn_decoder_rnn_gradients {
    size_t struct_size;
    uint64_t flags;
    const void *d_out;                 /* [batch * seq, d_hidden]; NULL: 0 */
    const void *d_context;             /* [batch * seq, d_state]; NULL: 0 */
    const void *d_hidden_last, *d_cell_last; /* NULL: 0 */
    void *d_x, *d_states, *d_hidden0, *d_cell0;
    attn_decoder_rnn_weight_gradients weights;
} attn_decoder_rnn_gradients;

ATTN_API attn_status attn_decoder_rnn_saved_bytes(attn_layers *layers, const attn_decoder_rnn_args *args, size_t *bytes);
ATTN_API attn_status attn_decoder_rnn_forward(attn_layers *layers, const attn_decoder_rnn_args *args);
ATTN_API attn_status attn_decoder_rnn_backward(attn_layers *layers, const attn_decoder_rnn_args *args,
                                               const attn_decoder_rnn_gradients *gradients);

#ifdef __cplusplus
}
#endif
#endif /* ATTN_LAYERS_H */
