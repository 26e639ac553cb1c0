/* model_internal.h - the objects behind attn/model.h. */
#ifndef ATTN_MODELS_MODEL_INTERNAL_H
#define ATTN_MODELS_MODEL_INTERNAL_H

#include "attn/tokenizer.h"
#include "core/compiler.h"
#include "models/description.h"
#include "models/family.h"
#include "models/kv_cache.h"
#include "models/embed_card.h"
#include "models/model_source.h"

struct attn_model {
    attn_model_source source;
    attn_description d;
    attn_weights w;
    attn_tokenizer *tokenizer; /* NULL: none */
    int32_t n_threads;         /* as given: 0 is the default */
    bool short_acts;           /* linear layers may take activations of 8 bits or of bf16 */
    char name[128];
    char mix[160];             /* dtypes of the file */
    attn_embed_card card;      /* what attn_embed and its callers go by */
    int64_t n_parameters, weight_bytes;
};

struct attn_session {
    const attn_model *model;
    attn_ctx *ctx;
    attn_worker worker;
    int32_t n_threads;
    int64_t batch, max_capacity;
    int64_t *lengths;     /* [batch] tokens in the cache */
    attn_kv_cache cache;
    /* of an encoder-decoder: keys and values of cross attention, and how many each sequence has */
    float **cross_key, **cross_value; /* [n_layers] -> [batch, n_kv_heads, cross_capacity, head_dim] */
    int64_t cross_capacity, cross_tokens, *cross_lengths;
    int64_t *cross_slots; /* [batch, cross_capacity] which token of the encoder each key belongs to */
    float *relative, *relative_encoder; /* tables of attn_mask.relative */
    float *scratch;
    int64_t scratch_floats;
};

/* Records the text of attn_model_error for this thread and returns status. */
attn_status attn_model_fail(attn_status status, const char *format, ...) ATTN_PRINTF(2, 3);
/* The buffer itself (of ATTN_MODEL_ERROR_BYTES), for those who write into one. */
#define ATTN_MODEL_ERROR_BYTES 512
char *attn_model_error_buffer(void);

/* Tensor `index` as attn/model.h describes it; INVALID_ARGUMENT where there is none. */
attn_status attn_source_tensor_info(const attn_model_source *source, int64_t index, attn_tensor_info *info);

/* Copies a versioned struct: missing fields read as zero, unknown bytes must be zero. */
attn_status attn_model_args(void *ours, size_t size, const void *theirs, const char *name);

#define ATTN_MODEL_REQUIRE(condition, ...)                                                                             \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return attn_model_fail(ATTN_ERR_INVALID_ARGUMENT, __VA_ARGS__);                                            \
    } while (0)

/* The embedding of a token: attn_embedding_dim floats. */
void attn_model_embedding(const attn_model *model, int64_t token, float *out);

/* Makes room for `tokens` per sequence in the cache, keeping what is there. */
attn_status attn_session_reserve(attn_session *session, int64_t tokens);

/* The tokenizer of an opened source; *tokenizer is NULL where the files hold none. */
void attn_model_free_tokenizer(attn_tokenizer *tokenizer);
attn_status attn_model_load_tokenizer(const attn_model_source *source, attn_tokenizer **tokenizer, char *error,
                                      size_t error_size);

#endif
