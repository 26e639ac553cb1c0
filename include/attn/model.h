/* attn/model.h - trained models on a CPU: load, run, look inside, generate, embed (libattn_model).
 *
 *     load -> info, text -> session -> forward (logits, hidden states, attention rows, edits) -> generate -> embed
 *
 * A model is read-only after loading and may be shared by any number of threads. A session holds what one
 * conversation, or one batch of them, needs: the cache of keys and values, scratch memory and threads. One call at
 * a time per session; several sessions may run at once.
 *
 * The rules of attn.h hold here too: zero is the default everywhere, errors are values that name field and value, on
 * an error outputs are untouched (unless a function says otherwise), and the result for one sequence has the same
 * bits whatever else is in the batch and for any number of threads. A prompt in one pass and token by token agree to
 * rounding (attention over few rows takes another order of sums); every linear layer has equal bits in both.
 *
 *     attn_model *model;
 *     attn_session *session;
 *     if (attn_model_load("model.gguf", NULL, &model) != ATTN_OK) puts(attn_model_error(NULL));
 *     attn_session_create(model, NULL, &session);
 *     attn_forward_args args;
 *     ATTN_ARGS_INIT(&args);
 *     args.tokens = ids, args.n_tokens = n, args.logits = logits;   // [1, 1, vocab_size]: after the last token
 *     attn_model_forward(session, &args);
 */
#ifndef ATTN_MODEL_H
#define ATTN_MODEL_H

#include "attn/attn.h"
#include "attn/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_model attn_model;
typedef struct attn_session attn_session;

/* ---- Loading --------------------------------------------------------------------------------- */

/* Told how far a long call is: done of total (bytes when loading, tokens or texts otherwise). Called on the
 * caller's thread. Returning anything but 0 asks to stop: the call ends with ATTN_ERR_CANCELLED. */
typedef int (*attn_progress)(void *user, int64_t done, int64_t total);

enum { /* attn_model_options.weights: how matrices are held in memory */
    ATTN_WEIGHTS_AS_STORED = 0, /* block-quantised and 16-bit weights stay so; f32 stays f32 */
    ATTN_WEIGHTS_F32 = 1,
    ATTN_WEIGHTS_BF16 = 2,      /* rounded to nearest even */
    ATTN_WEIGHTS_I8 = 3         /* symmetric, one scale per 32 inputs of an output */
};

enum { /* attn_model_options.flags */
    ATTN_LOAD_NO_TOKENIZER = 1, /* text functions then return UNSUPPORTED */
    /* Linear layers take activations of 8 bits: faster, and no longer the numbers of the file. Weights in 4-bit blocks stay as
     * they are; those in 8-bit blocks too (Q6_K: rounded to blocks of 32); f32 and 16-bit ones become 8-bit with one scale per 32
     * inputs of an output. Activations are rounded for each token, with one scale per 32 inputs (largest / 127).
     * options.weights must be 0 or ATTN_WEIGHTS_I8. attn_inspect does not take such a model */
    ATTN_LOAD_ACT_I8 = 2,
    /* Where the CPU multiplies pairs of bf16 numbers (AVX512-BF16): f32 and 16-bit weights of linear layers are held as bf16, and
     * activations are rounded to bf16 before them, sums in f32. Elsewhere as ATTN_WEIGHTS_BF16, with f32 activations.
     * options.weights must be 0 or ATTN_WEIGHTS_BF16; not together with ATTN_LOAD_ACT_I8. attn_inspect does not take such a
     * model */
    ATTN_LOAD_ACT_BF16 = 4
};

typedef struct attn_model_options {
    size_t struct_size;
    int32_t n_threads;      /* for loading, and the default of sessions; 0: as attn_ctx_options */
    int32_t weights;        /* ATTN_WEIGHTS_* */
    uint32_t flags;         /* ATTN_LOAD_* */
    int32_t reserved;       /* 0 */
    attn_progress progress; /* NULL: none */
    void *progress_user;
} attn_model_options;

/** Loads a model: a GGUF file, a safetensors file (or the index of its shards), or a directory with config.json, model.safetensors (or its
 * sharded index) and tokenizer.json. Files are memory-mapped and may not change while the model lives.
 *
 * options may be NULL. On error *model is NULL and attn_model_error(NULL) says why, with the file and the field.
 * Returns OK; IO (cannot be opened or read); FORMAT (bytes or fields that break their format); UNSUPPORTED (a
 * family, option or tensor type that is not served, by name); INVALID_ARGUMENT; OUT_OF_MEMORY; CANCELLED. */
ATTN_API attn_status attn_model_load(const char *path, const attn_model_options *options, attn_model **model);

/** Frees a model. NULL is fine. All its sessions must have been destroyed. */
ATTN_API void attn_model_destroy(attn_model *model);

/** Why the last function of this header failed on the calling thread, "" when none did. Valid until the next
 * call on this thread. model is not read (NULL is fine). */
ATTN_API const char *attn_model_error(const attn_model *model);

enum { /* attn_model_info.kind */
    ATTN_MODEL_DECODER = 0,         /* causal: next-token logits, a cache */
    ATTN_MODEL_ENCODER = 1,         /* bidirectional: hidden states; logits where it has a masked-LM head */
    ATTN_MODEL_ENCODER_DECODER = 2  /* attn_model_forward_encoder first, then forward runs the decoder */
};

/* What was loaded. Texts live as long as the model. Sizes that do not exist in the family are 0. */
typedef struct attn_model_info {
    size_t struct_size;
    const char *family;      /* "llama", "gpt2", "bert", ... */
    const char *name;        /* the model's own name; the file's where it has none */
    const char *file_format; /* "gguf", "safetensors" */
    const char *weights;     /* dtype mix of the file by bytes, for people: "Q4_1 71%, Q8_0 28%, F32 1%" */
    int32_t kind;            /* ATTN_MODEL_* */
    int32_t has_logits;      /* 1: forward can give logits */
    int64_t n_layers;        /* of the decoder in an encoder-decoder */
    int64_t n_encoder_layers;
    int64_t d_model, d_ff;
    int64_t n_heads, n_kv_heads, head_dim, value_dim;
    int64_t vocab_size;
    int64_t context_length;  /* positions that the model was trained for */
    int64_t window;          /* keys that a windowed layer sees, the query's own included; 0: none */
    int64_t n_parameters;    /* a tied matrix counts once */
    int64_t weight_bytes;    /* held in memory */
    int64_t cache_bytes_per_token; /* of an f32 cache, all layers */
    double rope_base;        /* 0: no rotary positions */
    int64_t embed_tokens;    /* tokens of a text that are read for its vector, as the files say; 0: they do not say */
    const char *embed_prompt; /* what the files put before every text whose vector is made; "": nothing */
    const char *query_prompt; /* the same for the query of a search */
} attn_model_info;

/** Fills info, whose struct_size is set (ATTN_ARGS_INIT). Returns OK; INVALID_ARGUMENT. */
ATTN_API attn_status attn_model_get_info(const attn_model *model, attn_model_info *info);

/* One tensor of the model file. */
typedef struct attn_tensor_info {
    const char *name;      /* as in the file */
    const char *dtype;     /* "F32", "Q4_1", ... */
    int32_t n_dims;
    int32_t reserved;
    int64_t shape[4];      /* outermost first; of more than four axes the leading ones are one */
    int64_t n_bytes;       /* in the file */
} attn_tensor_info;

/** Number of tensors in the file. */
ATTN_API int64_t attn_model_tensor_count(const attn_model *model);

/** Describes tensor `index` (0 .. count - 1, the file's order). Returns OK; INVALID_ARGUMENT. */
ATTN_API attn_status attn_model_get_tensor(const attn_model *model, int64_t index, attn_tensor_info *info);

/* The tensors of a file alone, whether or not a model is known in them: a .safetensors file, the index of shards, a folder
 * with one of them, or a GGUF file. Every byte of its header is checked first. Immutable; any number of threads. */
typedef struct attn_tensor_file attn_tensor_file;

/** Opens a file of tensors. On error *file is NULL and attn_model_error(NULL) names file, tensor and field.
 * Returns OK; IO; FORMAT; INVALID_ARGUMENT; OUT_OF_MEMORY. */
ATTN_API attn_status attn_tensor_file_open(const char *path, attn_tensor_file **file);

/** Frees it with all names that it gave. NULL is fine. */
ATTN_API void attn_tensor_file_close(attn_tensor_file *file);

/** Number of tensors. */
ATTN_API int64_t attn_tensor_file_count(const attn_tensor_file *file);

/** Describes tensor `index` (0 .. count - 1, the file's order). Returns OK; INVALID_ARGUMENT. */
ATTN_API attn_status attn_tensor_file_get(const attn_tensor_file *file, int64_t index, attn_tensor_info *info);

/** Elements first .. first + n - 1 of tensor `index` as f32, blocks of GGUF de-quantised (first and n are then multiples of the
 * block). 64-bit numbers are rounded once. Returns OK; INVALID_ARGUMENT; UNSUPPORTED (a type that is known by size only). */
ATTN_API attn_status attn_tensor_file_read(const attn_tensor_file *file, int64_t index, int64_t first, int64_t n, float *out);

/** Text `index` of a safetensors file's __metadata__ and its key (of the first shard), in the file's order; NULL behind the
 * last, and for GGUF. */
ATTN_API const char *attn_tensor_file_metadata(const attn_tensor_file *file, int64_t index, const char **key);

/* What attn_model_convert wrote. */
typedef struct attn_model_converted {
    size_t struct_size;
    int64_t n_tensors, n_elements;
    uint64_t n_overflows;   /* finite numbers that became infinite in a 16-bit type */
    int32_t has_config;     /* 1: config.json was written */
    int32_t has_tokenizer;  /* 1: the tokenizer's files were */
    char note[256];         /* why one of them was not; "" otherwise */
} attn_model_converted;

/** Writes a model as a folder that Hugging Face's libraries load: model.safetensors with all floating-point numbers as
 * dtype (ATTN_F32, ATTN_BF16 or ATTN_F16, rounded to nearest even), config.json and the tokenizer's files.
 *
 * path: as attn_model_load. folder is made where it is missing; it may not be the model's own. Each file appears whole
 * or not at all. progress (NULL: none) counts elements. converted: NULL, or a struct whose struct_size is set.
 * Returns as attn_model_load; UNSUPPORTED too for a family, tensor or type without a counterpart there. */
ATTN_API attn_status attn_model_convert(const char *path, const char *folder, int32_t dtype, attn_progress progress,
                                        void *progress_user, attn_model_converted *converted);

enum { /* matrices for attn_model_weight_rows; y = W x, row = output */
    ATTN_WEIGHT_EMBEDDING = 0, /* [vocab_size, d_model]; layer is not read */
    ATTN_WEIGHT_LM_HEAD = 1,   /* [vocab_size, d_model]; the embedding where tied */
    ATTN_WEIGHT_Q = 2,         /* [n_heads * head_dim, d_model] */
    ATTN_WEIGHT_K = 3,
    ATTN_WEIGHT_V = 4,
    ATTN_WEIGHT_O = 5,         /* [d_model, n_heads * value_dim] */
    ATTN_WEIGHT_FINAL_NORM = 6 /* [1, d_model]: the scale of the last norm */
};

/** Copies rows first_row .. first_row + n_rows - 1 of a matrix as f32: out[n_rows, columns] contiguous.
 * Returns OK; INVALID_ARGUMENT (a row or layer out of range); UNSUPPORTED (the family has no such matrix). */
ATTN_API attn_status attn_model_weight_rows(const attn_model *model, int32_t weight, int64_t layer,
                                            int64_t first_row, int64_t n_rows, float *out);

/* ---- Text ------------------------------------------------------------------------------------ */

/** The model's tokenizer, owned by the model; NULL where its files hold none. The functions below are short ways to it
 * for what most callers need; attn/tokenizer.h has the rest. */
ATTN_API const attn_tokenizer *attn_model_tokenizer(const attn_model *model);

enum { /* flags of attn_model_tokenize and attn_model_detokenize */
    ATTN_TEXT_NO_SPECIAL = 1,    /* tokenize: do not add the model's own tokens (BOS, [CLS], ...) */
    ATTN_TEXT_SKIP_SPECIAL = 2,  /* detokenize: leave special tokens out */
    ATTN_TEXT_PLAIN = 4,         /* tokenize: text that spells a special token is text */
    ATTN_TEXT_REPLACE_INVALID = 8 /* tokenize: invalid UTF-8 becomes U+FFFD instead of an error */
};

/** Token ids of UTF-8 text. ids[capacity] receives at most capacity of them; *n_ids is how many there are
 * (call with capacity 0 to ask). Returns OK; INVALID_ARGUMENT; FORMAT (invalid UTF-8, with its byte
 * offset); UNSUPPORTED (no tokenizer); OUT_OF_MEMORY. */
ATTN_API attn_status attn_model_tokenize(const attn_model *model, const char *text, size_t n_bytes, uint32_t flags,
                                         int32_t *ids, int64_t capacity, int64_t *n_ids);

/** UTF-8 text of token ids, not terminated. text[capacity] receives at most capacity bytes; *n_bytes is how many
 * there are. Returns OK; INVALID_ARGUMENT (an id outside the vocabulary); UNSUPPORTED; OUT_OF_MEMORY. */
ATTN_API attn_status attn_model_detokenize(const attn_model *model, const int32_t *ids, int64_t n_ids,
                                           uint32_t flags, char *text, size_t capacity, size_t *n_bytes);

/** The vocabulary's own spelling of a token ("Ġbridge", "##ing"); NULL for an id outside it or no tokenizer. */
ATTN_API const char *attn_model_token(const attn_model *model, int32_t id);

/* A message of a conversation, UTF-8. */
typedef struct attn_chat_message {
    const char *role;    /* "system", "user", "assistant": what the template knows; terminated */
    const char *content; /* n_bytes, not terminated */
    size_t n_bytes;
} attn_chat_message;

enum { /* flags of attn_model_chat */
    ATTN_CHAT_NO_PROMPT = 1,      /* end behind the last message, not where the answer begins */
    ATTN_CHAT_REPLACE_INVALID = 2 /* invalid UTF-8 becomes U+FFFD instead of an error */
};

/** A conversation as one text, in the form of the model's own chat template (chat_template.jinja, tokenizer_config.json, or a GGUF
 * file's tokenizer.chat_template). Tokenize it with ATTN_TEXT_NO_SPECIAL: the template writes the beginning token itself.
 *
 * text[capacity] receives at most capacity bytes, not terminated; *n_bytes is how many there are. Returns OK; INVALID_ARGUMENT
 * (a NULL, or the template refuses the conversation: roles that do not alternate, no system message, ...); FORMAT (invalid UTF-8
 * in a message, a template that breaks its syntax); UNSUPPORTED (no chat template, or one that does what is not served, by
 * name); OUT_OF_MEMORY. */
ATTN_API attn_status attn_model_chat(const attn_model *model, const attn_chat_message *messages, int64_t n_messages,
                                     uint32_t flags, char *text, size_t capacity, size_t *n_bytes);

/** Special ids: the end-of-text token of generation, the beginning token, padding, unknown, [CLS], [SEP], [MASK];
 * -1 where the model has none. */
enum { /* attn_model_special */
    ATTN_TOKEN_EOS = 0,
    ATTN_TOKEN_BOS = 1,
    ATTN_TOKEN_PAD = 2,
    ATTN_TOKEN_UNK = 3,
    ATTN_TOKEN_MASK = 4,
    ATTN_TOKEN_DECODER_START = 5 /* what the decoder of an encoder-decoder begins with */
};
ATTN_API int32_t attn_model_special(const attn_model *model, int32_t which);

/* ---- Sessions -------------------------------------------------------------------------------- */

typedef struct attn_session_options {
    size_t struct_size;
    int64_t batch;     /* sequences side by side; 0: 1 */
    int64_t capacity;  /* tokens per sequence in the cache; 0: grows as needed up to the model's context_length */
    int32_t n_threads; /* 0: the model's */
    int32_t kv_dtype;  /* ATTN_F32 (0), ATTN_BF16, ATTN_F16, ATTN_I8 */
    int32_t max_isa;   /* as attn_ctx_options */
    int32_t reserved;
} attn_session_options;

/** Creates a session. options may be NULL. On error *session is NULL.
 * Returns OK; INVALID_ARGUMENT; UNSUPPORTED; OUT_OF_MEMORY. */
ATTN_API attn_status attn_session_create(const attn_model *model, const attn_session_options *options,
                                         attn_session **session);

/** Frees a session. NULL is fine. */
ATTN_API void attn_session_destroy(attn_session *session);

/** Tokens of sequence `entry` in the cache; -1 for an entry out of range. */
ATTN_API int64_t attn_session_length(const attn_session *session, int64_t entry);

/** Forgets all tokens of `entry` from position `length` on (entry -1: of every sequence). length 0 starts anew.
 * Returns OK; INVALID_ARGUMENT (length beyond what is there). */
ATTN_API attn_status attn_session_truncate(attn_session *session, int64_t entry, int64_t length);

/** The context with which the session computes: for attn_sdpa_* calls of a hook. */
ATTN_API attn_ctx *attn_session_ctx(attn_session *session);

/* ---- Looking in and editing ------------------------------------------------------------------ */

enum { /* attn_attention_row.kind */
    ATTN_ATTENTION_SELF = 0,
    ATTN_ATTENTION_CROSS = 1 /* decoder of an encoder-decoder: weights over the encoder's tokens */
};

/* One row of attention weights to copy out of a forward pass (through attn_sdpa_rows, never N x N). */
typedef struct attn_attention_row {
    int64_t layer, entry, head;
    int64_t query; /* index among this call's tokens of the entry, 0 .. n_tokens - 1; negative: from the end, -1 the last */
    int32_t kind;  /* ATTN_ATTENTION_* */
    int32_t reserved;
} attn_attention_row;

enum { /* attn_edit.kind */
    ATTN_EDIT_HEAD = 0,      /* the head's output becomes value[value_dim]; NULL: zero */
    ATTN_EDIT_KNOCKOUT = 1,  /* one reading's weight a becomes 0 and the rest is renormalised: y' = (y - a v)/(1 - a) */
    ATTN_EDIT_REMOVE = 2,    /* y' = y - a v */
    ATTN_EDIT_REPLACE = 3    /* y' = y - a v + a value */
};

/* A change of one head's output, or of one reading (query position reads key position), before W_O. Several edits of one
 * row are applied in order, each to the weights that the one before has left: two knockouts equal one of both keys. Where
 * knockouts leave less than 0.01 of a row it is computed anew without the keys: the division would lose digits. A reading that a mask
 * excludes has weight 0, so that its edit changes nothing. */
typedef struct attn_edit {
    int64_t layer;      /* -1: every layer */
    int64_t entry;      /* -1: every sequence */
    int64_t head;       /* -1: every head */
    int64_t query;      /* absolute position; -1: every token of the call */
    int64_t key;        /* absolute position (CROSS: among the encoder's real tokens); HEAD does not read it */
    const float *value; /* [value_dim] */
    int32_t kind;       /* ATTN_EDIT_* */
    int32_t attention;  /* ATTN_ATTENTION_SELF (0), or CROSS: of a decoder's attention over the encoder */
} attn_edit;

/* What a hook sees: one layer, one sequence, after attention and before W_O. Valid during the call only. */
typedef struct attn_layer_view {
    size_t struct_size;
    int64_t layer, entry;
    int32_t kind;                    /* ATTN_ATTENTION_* */
    int32_t reserved;
    int64_t first_position;          /* absolute position of the call's first token */
    attn_ctx *ctx;
    const attn_sdpa_args *attention; /* [1, heads, ...]: query, all keys and values, mask; for attn_sdpa_rows, _topk,
                                        _key_mass and _row_stats on ctx. query row i is token i of this call */
    attn_view head_out;              /* [1, n_heads, n_tokens, value_dim] f32: may be changed */
    attn_cview residual;             /* [1, 1, n_tokens, d_model] f32: the stream that entered the layer */
} attn_layer_view;

/* Returning anything but ATTN_OK ends the forward pass with that status. */
typedef attn_status (*attn_layer_hook)(void *user, const attn_layer_view *view);

/* ---- Forward --------------------------------------------------------------------------------- */

enum { /* attn_forward_args.logits_rows */
    ATTN_LOGITS_LAST = 0, /* logits: [batch, vocab_size], after each sequence's last token */
    ATTN_LOGITS_ALL = 1   /* logits: [batch, n_tokens, vocab_size] */
};

typedef struct attn_forward_args {
    size_t struct_size;
    const int32_t *tokens;          /* [batch, n_tokens] */
    int64_t n_tokens;               /* appended to each sequence of the session */
    const uint8_t *keep;            /* [batch, n_tokens], nonzero: a real token; NULL: all. Others are padding, wherever
                                       they stand: neither read, nor cached, nor counted as positions;
                                       their rows in the outputs are 0 */
    const int32_t *token_types;     /* [batch, n_tokens]; NULL: 0 (BERT) */
    int32_t logits_rows;            /* ATTN_LOGITS_* */
    int32_t n_edits;
    float *logits;                  /* NULL: not wanted (then the head is not computed) */
    float *last_hidden;             /* [batch, n_tokens, d_model] after the final norm; NULL: not wanted */
    float *hidden_states;           /* [n_layers + 1, batch, n_tokens, d_model]: embeddings, then each layer's output,
                                       the last after the final norm where the family has one; NULL: not wanted */
    float *pooled;                  /* [batch, d_model]: BERT's pooler; NULL: not wanted */
    const attn_attention_row *rows; /* [n_rows] */
    int64_t n_rows;
    float *row_weights;             /* [n_rows, row_stride]: weight of each key position 0 .. length - 1 after this call,
                                       zeros behind. Where keep is given: of each of the call's token slots, counted
                                       behind the cached tokens */
    int64_t row_stride;             /* >= cached length + n_tokens (CROSS: encoder tokens) */
    const attn_edit *edits;         /* [n_edits], applied in order */
    attn_layer_hook hook;           /* NULL: none */
    void *hook_user;
    attn_progress progress;         /* per layer; NULL: none */
    void *progress_user;
    float *final_residual;          /* [batch, n_tokens, d_model]: the stream behind the last layer, before the final norm;
                                       NULL: not wanted */
    const float *embeddings;        /* [batch, n_tokens, d_model]: what enters in place of the tokens' embeddings (scaled, where
                                       the family scales them; positions and types are still added); tokens is then not read.
                                       NULL: tokens. A torch_transformer model takes nothing else */
    const float *pixels;            /* [batch, channels, height, width]: the images of a vision model; n_tokens is then
                                       1 + patches, tokens and keep are NULL, and logits those of the class token */
} attn_forward_args;

/** Runs tokens through the model behind what the session already holds, and appends them to it.
 *
 * A decoder reads the cached tokens and the new ones, causally. An encoder keeps nothing: every call is on its own. Memory is linear in the number of tokens.
 * On an error (or a hook that stops the pass) the session's lengths are as before; outputs may be half-written.
 * Returns OK; INVALID_ARGUMENT (a token outside the vocabulary, more tokens than the context holds, ...);
 * UNSUPPORTED (logits of a model without a head); OUT_OF_MEMORY; CANCELLED; what a hook returned. */
ATTN_API attn_status attn_model_forward(attn_session *session, const attn_forward_args *args);

/** Runs the encoder of an encoder-decoder and keeps its result for forward, which then runs the decoder; starts
 * every sequence anew. Of args, logits and pooled must be NULL. Returns as attn_model_forward; UNSUPPORTED for
 * other kinds of model. */
ATTN_API attn_status attn_model_forward_encoder(attn_session *session, const attn_forward_args *args);

/* ---- Sampling -------------------------------------------------------------------------------- */

enum { /* attn_sampling.flags */
    ATTN_SAMPLING_TOP_P_GIVEN = 1,  /* take top_p as it is: 0 keeps one token */
    ATTN_SAMPLING_PENALTY_GIVEN = 2 /* take repetition_penalty as it is: 0 is then an error */
};

/* All zeros: greedy. Steps, each renormalised: repetition penalty, temperature, top-k, top-p, min-p. */
typedef struct attn_sampling {
    size_t struct_size;
    double temperature;        /* 0: the likeliest token, lowest id on ties; else logits / temperature */
    int64_t top_k;             /* 0: off; keeps the k likeliest, ties by lowest id */
    double top_p;              /* 0: off; keeps the smallest set whose mass reaches top_p, at least one token */
    double min_p;              /* 0: off; drops tokens below min_p times the likeliest's probability */
    double repetition_penalty; /* 0: off; each distinct token of the history once: a positive logit is divided, a
                                  negative one multiplied */
    uint64_t seed;             /* with the step number the only source of randomness (Philox 4x32-10) */
    uint32_t flags;
    uint32_t reserved;
} attn_sampling;

/** Final probabilities: probs[n] from logits[n] under the rules above. history may be NULL.
 * Returns OK; INVALID_ARGUMENT: an option out of range, or logits (named so in the error) that hold NaN, +inf or
 * nothing finite. -inf is never sampled. */
ATTN_API attn_status attn_sampling_distribution(const attn_sampling *sampling, const float *logits, int64_t n,
                                                const int32_t *history, int64_t n_history, double *probs);

/** Draws one token: the same for the same logits, options and step, whatever else runs. step counts from 0.
 * Errors as attn_sampling_distribution. */
ATTN_API attn_status attn_sampling_draw(const attn_sampling *sampling, const float *logits, int64_t n,
                                        const int32_t *history, int64_t n_history, uint64_t step, int32_t *token);

/* ---- Generation ------------------------------------------------------------------------------ */

enum { /* why generation of a sequence ended */
    ATTN_STOP_LENGTH = 0,   /* max_new tokens were generated */
    ATTN_STOP_EOS = 1,      /* the end token (or one of stop_tokens) came; it is not part of the output */
    ATTN_STOP_CONTEXT = 2,  /* the cache is full */
    ATTN_STOP_CALLBACK = 3, /* the callback said so */
    ATTN_STOP_TEXT = 4      /* a stop string came */
};

/* A generated token as a callback sees it. */
typedef struct attn_generated {
    int64_t entry, step; /* which sequence; 0 for its first new token */
    int32_t token;       /* -1 in a last call, where an end token came while text was held back: it brings that text, and
                            logits is NULL, logprob 0, step the number of tokens */
    int32_t reserved;
    double logprob;      /* natural log of its probability before sampling options */
    const char *text;    /* what can be shown now: whole UTF-8 characters, possibly none; not terminated. What may become a stop
                            text, or needs more tokens, comes later, at the latest with the last call. NULL: no tokenizer */
    size_t n_bytes;
    const float *logits; /* [vocab_size] from which it was chosen */
} attn_generated;

/* Returning anything but 0 ends that sequence (ATTN_STOP_CALLBACK); the token stays. */
typedef int (*attn_token_callback)(void *user, const attn_generated *generated);

enum { /* attn_generate_args.flags */
    ATTN_GENERATE_IGNORE_EOS = 1,
    ATTN_GENERATE_ENCODE = 2 /* encoder-decoder: its encoder reads the prompts, what the session held is forgotten, and the
                                decoder begins with the model's start token, and the one that its files force behind it
                                (forced_bos_token_id: the first new token); else the prompts are the decoder's */
};

typedef struct attn_generate_args {
    size_t struct_size;
    const int32_t *prompts;       /* the session's sequences' new tokens, one sequence after the other */
    const int64_t *prompt_lengths; /* [batch], >= 1 each */
    int64_t max_new;              /* per sequence; 0: until another reason to stop */
    attn_sampling sampling;       /* struct_size 0 here means all defaults: greedy */
    const uint64_t *seeds;        /* [batch] instead of sampling.seed; NULL: sampling.seed for all */
    const int32_t *stop_tokens;   /* besides the model's end tokens */
    int64_t n_stop_tokens;
    const char *const *stop_texts; /* UTF-8, terminated; the output ends before the first that appears */
    int64_t n_stop_texts;
    uint32_t flags;               /* ATTN_GENERATE_* */
    uint32_t reserved;
    attn_token_callback callback; /* NULL: none */
    void *callback_user;
    int32_t *tokens;              /* [batch, token_stride] receives new tokens; NULL: not wanted */
    int64_t token_stride;         /* >= max_new */
    int64_t *n_generated;         /* [batch]; NULL: not wanted */
    int32_t *stop_reasons;        /* [batch] ATTN_STOP_*; NULL: not wanted */
} attn_generate_args;

/** Feeds the prompts, then generates token by token. Each sequence gives the same tokens as alone. Tokens that the model's files
 * forbid (suppress_tokens, bad_words_ids of one token) never come: their logits are -inf.
 *
 * The last generated token is not in the cache when the call returns. A prompt that does not fit the session's
 * capacity is INVALID_ARGUMENT. Returns as attn_model_forward and attn_sampling_draw. */
ATTN_API attn_status attn_generate(attn_session *session, const attn_generate_args *args);

/* ---- Embeddings ------------------------------------------------------------------------------ */

enum { /* attn_embed_args.pooling */
    ATTN_POOL_DEFAULT = 0,  /* what the model's files say; mean where they say nothing. What they say and is not served (two of
                               these together, a layer behind them) is UNSUPPORTED, by name */
    ATTN_POOL_MEAN = 1,     /* mean over real tokens */
    ATTN_POOL_FIRST = 2,    /* the first token */
    ATTN_POOL_MAX = 3,      /* the largest of each number over the tokens */
    ATTN_POOL_LAST = 4,     /* the last token: decoders */
    ATTN_POOL_WEIGHTED = 5, /* mean with weights 1, 2, 3, ... */
    ATTN_POOL_SQRT = 6      /* sum divided by the square root of the number of tokens */
};

typedef struct attn_embed_args {
    size_t struct_size;
    const int32_t *tokens;   /* the sequences one after the other, special tokens included: of texts behind the model's
                                embed_prompt and cut at its embed_tokens (attn_model_info), where it has them */
    const int64_t *lengths;  /* [n_texts] */
    int64_t n_texts;         /* independent of the session's batch */
    int32_t pooling;         /* ATTN_POOL_* */
    int32_t no_normalize;    /* nonzero: leave the vectors' lengths as they are */
    float *embeddings;       /* [n_texts, d_model] */
    attn_progress progress;
    void *progress_user;
} attn_embed_args;

/** Embeds token sequences with an encoder, or with a decoder, whose tokens see those before them: packed without padding,
 * in order of length, so that short and long texts may be mixed freely; the vector of a text has the same bits whatever else is in the call.
 * Returns as attn_model_forward. */
ATTN_API attn_status attn_embed(attn_session *session, const attn_embed_args *args);

#ifdef __cplusplus
}
#endif
#endif /* ATTN_MODEL_H */
