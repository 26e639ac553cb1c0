/* attn/train.h - training small language models on a CPU (libattn_model).
 *
 *     learn a vocabulary -> encode texts into a file of ids -> trainer -> accumulate, update -> save, export
 *
 * What comes out is a folder that attn_model_load, `attn run` and Hugging Face Transformers read. The rules of attn.h
 * hold: zero is the documented default, errors are values that name field and value, and the numbers have the same
 * bits for any number of threads, so that a run that was stopped and resumed equals one that was never stopped.
 *
 *     attn_train_learn(&learn, "out/tokenizer.json");           // a vocabulary of the texts
 *     attn_train_encode(&encode);                               // texts -> out/tokens.bin
 *     attn_train_data_open("out/tokens.bin", &data);
 *     attn_trainer_create(&options, &trainer);
 *     for (int64_t step = 0; step < steps; step++) {
 *         attn_train_data_batch(data, seed, step, batch, context, tokens, targets);
 *         attn_trainer_accumulate(trainer, &batch_args, &loss);
 *         attn_trainer_update(trainer, attn_train_learning_rate(&schedule, step), &result);
 *     }
 *     attn_trainer_export(trainer, "out", ATTN_F32);
 */
#ifndef ATTN_TRAIN_H
#define ATTN_TRAIN_H

#include "attn/attn.h"
#include "attn/model.h"
#include "attn/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Why the last function of this header failed on the calling thread, naming field and value; "" when none did. Valid
 * until the next call of this header on this thread. */
ATTN_API const char *attn_train_error(void);

/* ---- A vocabulary from text ------------------------------------------------------------------ */

enum { /* attn_train_learn_args.flags */
    ATTN_LEARN_CHARS = 1 /* single characters instead of byte-level BPE */
};

typedef struct attn_train_learn_args {
    size_t struct_size;
    const attn_text *texts;       /* [n_texts] UTF-8 */
    int64_t n_texts;
    int64_t vocab_size;           /* ids in all, at least 256 and the special tokens; not read with CHARS */
    const char *const *specials;  /* [n_specials] special tokens, ids 0, 1, ...; none: "<|endoftext|>" alone */
    int64_t n_specials;
    uint32_t flags;               /* ATTN_LEARN_* */
    uint32_t reserved;
    attn_progress progress;       /* merges */
    void *progress_user;
} attn_train_learn_args;

/** Learns a vocabulary and writes it as a tokenizer.json (whole or not at all), and where path ends in that name a
 * tokenizer_config.json beside it, which makes Transformers' AutoTokenizer read the file as it is.
 *
 * Byte-level BPE (Sennrich et al. 2016; GPT-2's split pattern and byte alphabet): after the special tokens come the 256
 * bytes in the order of their spelling, then merges, the most frequent pair first, ties by lower ids. Fewer than
 * vocab_size are learnt when no pair comes twice. CHARS: the special tokens, "<unk>", then every code point of the texts in
 * ascending order. The same texts give the same file. Each merge touches only the words that contain the pair.
 * Returns OK; INVALID_ARGUMENT; FORMAT (ill-formed UTF-8, with text and byte); IO; OUT_OF_MEMORY; CANCELLED. */
ATTN_API attn_status attn_train_learn(const attn_train_learn_args *args, const char *path);

/* ---- Data: a memory-mapped file of ids --------------------------------------------------------- */

typedef struct attn_train_encode_args {
    size_t struct_size;
    const attn_tokenizer *tokenizer;
    const attn_text *texts;            /* [n_texts] for training; "<|endoftext|>" goes in front of each where it exists */
    int64_t n_texts;
    const attn_text *validation;       /* [n_validation]; none: the last validation_share of the training ids */
    int64_t n_validation;
    double validation_share;           /* 0..0.5; read where n_validation is 0 */
    const char *path;                  /* the file to write, whole or not at all */
    attn_progress progress;            /* bytes of text */
    void *progress_user;
} attn_train_encode_args;

/** Encodes texts into one file of ids. Returns OK; INVALID_ARGUMENT; FORMAT (a text is not UTF-8); IO; OUT_OF_MEMORY;
 * CANCELLED. */
ATTN_API attn_status attn_train_encode(const attn_train_encode_args *args);

typedef struct attn_train_data attn_train_data;

typedef struct attn_train_data_info {
    size_t struct_size;
    int64_t vocab_size;
    int64_t n_train, n_validation;           /* ids */
    double validation_bytes_per_token;       /* of text; bits per byte = loss / ln 2 / this */
} attn_train_data_info;

/** Maps a file of ids. On error *data is NULL. Returns OK; IO; FORMAT (not such a file, or cut short); OUT_OF_MEMORY. */
ATTN_API attn_status attn_train_data_open(const char *path, attn_train_data **data);
/** Frees it. NULL is fine. */
ATTN_API void attn_train_data_close(attn_train_data *data);
ATTN_API attn_status attn_train_data_get_info(const attn_train_data *data, attn_train_data_info *info);

/** The batch of number `index` (0, 1, ...): `batch` pieces of `length` training ids and the ids that follow them.
 *
 * The ids are cut into pieces of `length` from a start that changes each epoch; each epoch visits every piece once in an
 * order that depends on seed and epoch alone (a Feistel permutation), so any batch can be had at any time and nothing
 * has to be remembered to resume. tokens, targets: [batch, length]; targets may be NULL.
 * Returns OK; INVALID_ARGUMENT (fewer than length + 1 training ids, ...). */
ATTN_API attn_status attn_train_data_batch(const attn_train_data *data, uint64_t seed, int64_t index, int64_t batch,
                                           int64_t length, int32_t *tokens, int32_t *targets);

/** The same from the validation ids, one piece after the other from the start; index counts batches and the last one is
 * filled up from the beginning. *n_batches (may be NULL) is how many there are. */
ATTN_API attn_status attn_train_data_validation(const attn_train_data *data, int64_t index, int64_t batch,
                                                int64_t length, int32_t *tokens, int32_t *targets, int64_t *n_batches);

/** Which of n items is visited at place `number` (0, 1, ... through all epochs): each epoch visits every item once, in an
 * order that depends on seed and epoch alone. -1 for n < 1 or a negative number. */
ATTN_API int64_t attn_train_order(uint64_t seed, int64_t number, int64_t n);

/** Makes pieces that teach to copy: a piece is chosen with probability `share` and becomes random ids below vocab_size, from 4 to
 * length / 2 of them, said over and over, so that nothing but looking back to where an id was said before tells the next one
 * (heads that do so are called induction heads: Olsson et al. 2022). Its targets are -1 until the first of them comes again.
 * The choice depends on seed, index and place alone. tokens, targets: [batch, length] of attn_train_data_batch, changed in
 * place; pieces of fewer than 8 ids stay. Returns OK; INVALID_ARGUMENT. */
ATTN_API attn_status attn_train_repeat(int32_t *tokens, int32_t *targets, int64_t batch, int64_t length, int64_t vocab_size,
                                       double share, uint64_t seed, int64_t index);

/** BERT's corruption (Devlin et al. 2018, section 3.1): each id is chosen with `probability` (0: 0.15); of the chosen 80 %
 * become mask_id, 10 % a random id, 10 % stay. targets: the id where chosen, -1 elsewhere. The choice depends on seed,
 * index and place alone. tokens [n] is changed in place. Returns OK; INVALID_ARGUMENT. */
ATTN_API attn_status attn_train_mask_tokens(int32_t *tokens, int32_t *targets, int64_t n, int64_t vocab_size,
                                            int32_t mask_id, double probability, uint64_t seed, int64_t index);

/* ---- The trainer ----------------------------------------------------------------------------- */

enum { /* attn_trainer_options.arch; values are in checkpoints */
    ATTN_TRAIN_GPT2 = 0,   /* LayerNorm in front, learned positions, GELU (tanh), biases, tied head */
    ATTN_TRAIN_LLAMA = 1,  /* RMSNorm in front, RoPE, SwiGLU, grouped heads, no biases, tied head */
    ATTN_TRAIN_BERT = 2,   /* bidirectional, LayerNorm behind, learned positions, GELU, masked-LM head */
    ATTN_TRAIN_ENCDEC = 3  /* Vaswani et al. 2017: encoder and decoder, sinusoidal positions, ReLU, shared embedding */
};

enum { /* attn_trainer_options.flags */
    ATTN_TRAIN_PRE_NORM = 1, /* ENCDEC: norms in front (and one behind each stack) instead of behind, as in 2017 */
    ATTN_TRAIN_RECOMPUTE = 2 /* keep only each block's input; run its forward again in the backward pass */
};

typedef struct attn_trainer_options {
    size_t struct_size;
    int32_t arch;            /* ATTN_TRAIN_* */
    int32_t dtype;           /* ATTN_F32 (0); ATTN_BF16: products of linear layers and of their gradients round both
                                operands to bf16, and at ATTN_ISA_AVX512BF16, _NEONBF16 those of attention without
                                dropout; sums, states, gradients and weights stay f32 */
    uint32_t flags;          /* ATTN_TRAIN_PRE_NORM, ... */
    int32_t n_threads;       /* 0: as attn_ctx_options; does not change the numbers */
    int64_t vocab_size;      /* >= 2 */
    int64_t context;         /* longest sequence; >= 1 */
    int64_t n_layers;        /* ENCDEC: of each stack */
    int64_t n_heads, n_kv_heads; /* n_kv_heads 0: n_heads; other values for LLAMA only */
    int64_t d_model;         /* a multiple of n_heads; LLAMA: of 2 n_heads */
    int64_t d_ff;            /* 0: 4 d_model; LLAMA: 8/3 d_model rounded up to a multiple of 32 */
    double dropout;          /* 0..0.9: embeddings, attention weights, both sublayers */
    double beta1, beta2;     /* AdamW; 0: 0.9 and 0.99 */
    double epsilon;          /* 0: 1e-8 */
    double weight_decay;     /* of matrices only, times the learning rate; norms and biases have none */
    double clip;             /* the gradient's largest norm; 0: none */
    uint64_t seed;           /* initial weights and dropout */
    int32_t pad_id, bos_id, eos_id, mask_id; /* for config.json, and ENCDEC's decoder start (bos); 0 is an id: -1: none */
    double norm_eps;         /* 0: 1e-5; LLAMA 1e-6, BERT 1e-12 */
    double rope_base;        /* LLAMA; 0: 10,000 */
} attn_trainer_options;

typedef struct attn_trainer attn_trainer;

/** A model with fresh weights (Radford et al. 2019: normal, 0.02, projections into the residual stream divided by
 * sqrt(2 layers); ENCDEC: Glorot uniform, embeddings normal with 1/sqrt(d_model)) and an optimiser at step 0.
 * options are copied. On error *trainer is NULL. Returns OK; INVALID_ARGUMENT; UNSUPPORTED; OUT_OF_MEMORY. */
ATTN_API attn_status attn_trainer_create(const attn_trainer_options *options, attn_trainer **trainer);

/** A trainer at step 0 that starts from a trained model: folder holds config.json and model.safetensors as Transformers or
 * attn_model_convert (also from GGUF) write them, of model_type gpt2 or llama with the head tied to the embedding. Sizes, ids,
 * norm_eps and rope_base come from config.json; of options dtype, flags, n_threads, dropout, the fields of AdamW, clip and
 * seed are read. Returns OK; INVALID_ARGUMENT; UNSUPPORTED (another architecture, activation, scaling, biases of LLAMA, a head
 * of its own), FORMAT (a field or tensor is missing or has another shape); IO; OUT_OF_MEMORY. */
ATTN_API attn_status attn_trainer_import(const char *folder, const attn_trainer_options *options, attn_trainer **trainer);

/** A trainer as attn_trainer_save left it. n_threads as in the options. Returns OK; IO; FORMAT; OUT_OF_MEMORY. */
ATTN_API attn_status attn_trainer_load(const char *path, int32_t n_threads, attn_trainer **trainer);

/** Frees it. NULL is fine. */
ATTN_API void attn_trainer_destroy(attn_trainer *trainer);

/* Sequences to learn from. */
typedef struct attn_train_batch {
    size_t struct_size;
    int64_t batch, length;         /* length <= context */
    const int32_t *tokens;         /* [batch, length]; ENCDEC: the decoder's input */
    const int32_t *targets;        /* [batch, length]; -1: this place has no loss */
    const int32_t *source;         /* ENCDEC: [batch, source_length], the encoder's input; else NULL */
    int64_t source_length;         /* <= context */
    const int64_t *source_lengths; /* [batch]: real tokens of each source; NULL: all */
} attn_train_batch;

/** Forward and backward: adds the gradient of the mean loss over this batch's targets to the gradient. *loss (may be
 * NULL) is that mean, in nats. Calls before one update share it equally. Memory is kept for the next call of the same
 * or a smaller size. A loss or gradient that is not finite is no error here: see attn_trainer_update.
 * Returns OK; INVALID_ARGUMENT (an id out of range, no target, ...); OUT_OF_MEMORY. */
ATTN_API attn_status attn_trainer_accumulate(attn_trainer *trainer, const attn_train_batch *batch, double *loss);

typedef struct attn_train_update {
    size_t struct_size;
    int64_t step;          /* updates made, this one included */
    double gradient_norm;  /* before clipping */
    double loss;           /* mean of the accumulated losses */
} attn_train_update;

/** One AdamW step (Loshchilov and Hutter 2017) with the accumulated gradient divided by the number of calls, which is then
 * forgotten. result: NULL, or a struct whose struct_size is set.
 *
 * Where the loss or the gradient is not finite nothing changes, the gradient is forgotten, and the call returns FORMAT;
 * attn_train_error() names the step and the first tensor, in the order of the forward pass, that is not finite; for a gradient the
 * first in the order of the backward pass.
 * Returns OK; INVALID_ARGUMENT (nothing accumulated); FORMAT. */
ATTN_API attn_status attn_trainer_update(attn_trainer *trainer, double learning_rate, attn_train_update *result);

/** The loss of a batch without dropout and without a gradient. *n_targets (may be NULL): places with a target. */
ATTN_API attn_status attn_trainer_evaluate(attn_trainer *trainer, const attn_train_batch *batch, double *loss,
                                           int64_t *n_targets);

/** Whether the next update could go on from here: loss and gradient of one batch, which leave nothing behind. Called before
 * attn_trainer_save, it keeps diverged weights out of a checkpoint. Call it between updates.
 * Returns OK; FORMAT (not finite: the message names the step to come and the first tensor); INVALID_ARGUMENT (a gradient was
 * accumulated since the last update); OUT_OF_MEMORY. */
ATTN_API attn_status attn_trainer_check(attn_trainer *trainer, const attn_train_batch *batch);

/** The largest norm of the gradient from the next update on (0: no limit), as attn_trainer_options.clip.
 * Returns OK; INVALID_ARGUMENT (negative or not finite). */
ATTN_API attn_status attn_trainer_set_clip(attn_trainer *trainer, double clip);

/** Writes the whole state (weights, both moments, step, options) as one safetensors file, synced and renamed: it is there
 * whole or not at all. user_data: text that attn_trainer_user_data gives back after loading; NULL: none.
 * Call it between updates: an accumulated gradient is not saved. Returns OK; IO; OUT_OF_MEMORY. */
ATTN_API attn_status attn_trainer_save(const attn_trainer *trainer, const char *path, const char *user_data);

/** What was given to attn_trainer_save; "" where there is none. Lives as long as the trainer. */
ATTN_API const char *attn_trainer_user_data(const attn_trainer *trainer);

/** Writes config.json and model.safetensors as Transformers reads them (GPT2LMHeadModel, LlamaForCausalLM,
 * BertForMaskedLM; ENCDEC, which has no class there: our own names). dtype: ATTN_F32, ATTN_BF16 or ATTN_F16. The folder
 * must exist. Returns OK; IO; INVALID_ARGUMENT; OUT_OF_MEMORY. */
ATTN_API attn_status attn_trainer_export(const attn_trainer *trainer, const char *folder, int32_t dtype);

/** ENCDEC: the likeliest id after each place: out[batch, max_length] filled greedily from bos_id until eos_id or
 * max_length; lengths[batch] without the end. source as in attn_train_batch.
 * Returns OK; INVALID_ARGUMENT; UNSUPPORTED (another architecture); OUT_OF_MEMORY. */
ATTN_API attn_status attn_trainer_translate(attn_trainer *trainer, const attn_train_batch *source, int64_t max_length,
                                            int32_t *out, int64_t *lengths);

typedef struct attn_trainer_info {
    size_t struct_size;
    attn_trainer_options options;  /* defaults filled in */
    int64_t step;
    int64_t n_parameters;
    int64_t n_tensors;
    int64_t state_bytes;           /* weights, gradient, moments */
    int64_t activation_bytes;      /* for the batch asked about */
    double flops_per_token;        /* multiply-adds counted as two; forward and backward, attention included */
    int64_t scratch_bytes;         /* about what layers take beside them while they run */
} attn_trainer_info;

/** What a trainer is, and what a step of `batch` sequences of `length` would need. */
ATTN_API attn_status attn_trainer_get_info(const attn_trainer *trainer, int64_t batch, int64_t length,
                                           attn_trainer_info *info);

/** Operations a second (a multiply-add is two) of a product of large matrices here, f32 numbers multiplied as a trainer of this
 * dtype does: what flops_per_token times tokens a second can be held against. Takes 0.3 s; 0: out of memory. */
ATTN_API double attn_train_product_rate(int32_t dtype, int32_t n_threads);

/** The same for options alone: nothing is allocated. */
ATTN_API attn_status attn_train_plan(const attn_trainer_options *options, int64_t batch, int64_t length,
                                     attn_trainer_info *info);

/* AdamW by itself, for parameters that are not a trainer's. */
typedef struct attn_train_adamw_args {
    size_t struct_size;
    int32_t dtype;          /* of all arrays: ATTN_F32 (0) or ATTN_F64 */
    int32_t reserved;
    int64_t n;
    void *weights;          /* [n], changed */
    const void *gradient;   /* [n] */
    void *m, *v;            /* [n] the moments, changed; zeros before the first step */
    double learning_rate, beta1, beta2, epsilon, weight_decay; /* as they are: no defaults */
    int64_t step;           /* this step's number, from 1 */
} attn_train_adamw_args;

/** One step (Loshchilov and Hutter 2017, algorithm 2): m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2,
 * w -= learning_rate * (m / (1 - b1^step) / (sqrt(v / (1 - b2^step)) + epsilon) + weight_decay * w).
 * Arrays must not overlap. Returns OK; INVALID_ARGUMENT (an option out of range, or a NULL array with n > 0). */
ATTN_API attn_status attn_train_adamw(const attn_train_adamw_args *args);

/* One parameter. */
typedef struct attn_train_tensor {
    const char *name;   /* as exported */
    int64_t rows, columns;
    float *values;      /* [rows, columns], may be changed */
    const float *gradient;
    int32_t decays;     /* 1: weight decay applies */
    int32_t reserved;
} attn_train_tensor;

/** Parameter `index` (0 .. n_tensors - 1). Returns OK; INVALID_ARGUMENT. */
ATTN_API attn_status attn_trainer_get_tensor(attn_trainer *trainer, int64_t index, attn_train_tensor *tensor);

/* ---- Schedule -------------------------------------------------------------------------------- */

typedef struct attn_train_schedule {
    double peak, last;            /* learning rates; last: at the end of the decay */
    int64_t warmup, steps;        /* steps of linear warm-up; steps in all */
    int32_t inverse_square_root;  /* 1: 2017's peak * min(s / warmup, sqrt(warmup / s)) instead of the cosine */
    int32_t reserved;
} attn_train_schedule;

/** The learning rate of step 0, 1, ...: peak * (step + 1) / (warmup + 1) during warm-up, then half a cosine from peak to last
 * (Loshchilov and Hutter 2016), last after `steps`. */
ATTN_API double attn_train_learning_rate(const attn_train_schedule *schedule, int64_t step);

/* ---- A picture of the loss --------------------------------------------------------------------- */

typedef struct attn_train_point {
    int64_t step;
    double loss, validation; /* NaN: not measured here */
} attn_train_point;

/** Draws loss and validation loss over steps as an SVG and a PNG (640 x 400); either path may be NULL. Files appear whole or
 * not at all. Points ascend in step. Returns OK; INVALID_ARGUMENT (no point, or a step that does not ascend); IO;
 * OUT_OF_MEMORY. */
ATTN_API attn_status attn_train_draw_curve(const attn_train_point *points, int64_t n, const char *title,
                                           const char *svg_path, const char *png_path);

typedef struct attn_train_curve {
    const attn_train_point *points; /* [n] */
    int64_t n;
    const char *title;
} attn_train_curve;

/** Draws up to 8 runs side by side on the same axes, losses on a log scale (four decades at most), as one SVG.
 * Returns as attn_train_draw_curve. */
ATTN_API attn_status attn_train_draw_curves(const attn_train_curve *curves, int64_t n_curves, const char *svg_path);

#ifdef __cplusplus
}
#endif
#endif /* ATTN_TRAIN_H */
