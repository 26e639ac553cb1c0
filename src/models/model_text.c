/* model_text.c - the tokenizer of a model: tokenizer.json beside the weights, or the arrays inside a GGUF file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core/context.h"
#include "io/io_error.h"
#include "models/model_internal.h"

/* ---- GGUF ---- */

typedef struct gguf_arrays {
    attn_gguf_string *tokens, *merges;
    int64_t *types;
    double *scores;
    attn_text *token_texts, *merge_texts;
    int32_t *token_types;
    float *token_scores;
    char pre[64];
    size_t n_tokens, n_merges, n_types, n_scores;
} gguf_arrays;

static void free_arrays(gguf_arrays *a)
{
    free(a->tokens);
    free(a->merges);
    free(a->types);
    free(a->scores);
    free(a->token_texts);
    free(a->merge_texts);
    free(a->token_types);
    free(a->token_scores);
}

static attn_text *as_texts(const attn_gguf_string *strings, size_t n)
{
    attn_text *texts = malloc((n ? n : 1) * sizeof *texts);
    for (size_t i = 0; texts && i < n; i++)
        texts[i] = (attn_text){strings[i].text, strings[i].length};
    return texts;
}

static attn_status read_arrays(const attn_gguf *g, gguf_arrays *a, char *error, size_t size)
{
    ATTN_TRY(attn_gguf_get_string_array(g, "tokenizer.ggml.tokens", &a->tokens, &a->n_tokens, error, size));
    if (attn_gguf_find(g, "tokenizer.ggml.merges"))
        ATTN_TRY(attn_gguf_get_string_array(g, "tokenizer.ggml.merges", &a->merges, &a->n_merges, error, size));
    if (attn_gguf_find(g, "tokenizer.ggml.token_type"))
        ATTN_TRY(attn_gguf_get_i64_array(g, "tokenizer.ggml.token_type", &a->types, &a->n_types, error, size));
    if (attn_gguf_find(g, "tokenizer.ggml.scores"))
        ATTN_TRY(attn_gguf_get_f64_array(g, "tokenizer.ggml.scores", &a->scores, &a->n_scores, error, size));
    if ((a->types && a->n_types != a->n_tokens) || (a->scores && a->n_scores != a->n_tokens))
        return attn_io_fail(error, size, ATTN_ERR_FORMAT,
                            "tokenizer.ggml: %zu tokens, but %zu token_type and %zu scores", a->n_tokens, a->n_types,
                            a->n_scores);
    a->token_texts = as_texts(a->tokens, a->n_tokens);
    a->merge_texts = as_texts(a->merges, a->n_merges);
    a->token_types = a->types ? malloc((a->n_tokens + 1) * sizeof *a->token_types) : NULL;
    a->token_scores = a->scores ? malloc((a->n_tokens + 1) * sizeof *a->token_scores) : NULL;
    if (!a->token_texts || !a->merge_texts || (a->types && !a->token_types) || (a->scores && !a->token_scores))
        return attn_io_no_memory(error, size, "tokenizer.ggml");
    for (size_t i = 0; i < a->n_types; i++)
        a->token_types[i] = a->types[i] >= 0 && a->types[i] <= 6 ? (int32_t)a->types[i] : 0;
    for (size_t i = 0; i < a->n_scores; i++)
        a->token_scores[i] = (float)a->scores[i];
    return ATTN_OK;
}

static int32_t read_id(const attn_gguf *g, const char *key)
{
    int64_t id;
    char name[64];
    snprintf(name, sizeof name, "tokenizer.ggml.%s_token_id", key);
    if (!attn_gguf_find(g, name) || attn_gguf_get_i64(g, name, &id, NULL, 0) != ATTN_OK || id < 0 || id > INT32_MAX)
        return -1;
    return (int32_t)id;
}

static int32_t read_flag(const attn_gguf *g, const char *key, int32_t fallback)
{
    bool value;
    return attn_gguf_find(g, key) && attn_gguf_get_bool(g, key, &value, NULL, 0) == ATTN_OK ? value : fallback;
}

static attn_status model_of(const attn_gguf *g, int32_t *model, char *error, size_t size)
{
    static const char *const names[] = {"gpt2", "llama", "bert"};
    attn_gguf_string text;
    char name[40];
    ATTN_TRY(attn_gguf_get_string(g, "tokenizer.ggml.model", &text, error, size));
    attn_io_printable(text.text, text.length, name, sizeof name);
    for (int32_t i = 0; i < 3; i++)
        if (!strcmp(name, names[i])) {
            *model = i;
            return ATTN_OK;
        }
    return attn_io_fail(error, size, ATTN_ERR_UNSUPPORTED, "tokenizer.ggml.model \"%s\" is not served", name);
}

static attn_status from_gguf(const attn_gguf *g, gguf_arrays *a, attn_tokenizer **tokenizer, char *error, size_t size)
{
    attn_tokenizer_arrays in;
    attn_gguf_string pre;
    ATTN_ARGS_INIT(&in);
    ATTN_TRY(model_of(g, &in.model, error, size));
    ATTN_TRY(read_arrays(g, a, error, size));
    if (attn_gguf_find(g, "tokenizer.ggml.pre") &&
        attn_gguf_get_string(g, "tokenizer.ggml.pre", &pre, NULL, 0) == ATTN_OK)
        attn_io_printable(pre.text, pre.length, a->pre, sizeof a->pre);
    in.pre = a->pre;
    in.tokens = a->token_texts;
    in.n_tokens = (int64_t)a->n_tokens;
    in.merges = a->merge_texts;
    in.n_merges = (int64_t)a->n_merges;
    in.scores = a->token_scores;
    in.token_types = a->token_types;
    in.bos_id = read_id(g, in.model == ATTN_TOKENIZER_WORDPIECE ? "cls" : "bos");
    in.eos_id = read_id(g, "eos");
    in.unk_id = read_id(g, "unknown");
    in.pad_id = read_id(g, "padding");
    in.sep_id = read_id(g, "seperator"); /* the key's own spelling */
    in.cls_id = read_id(g, "cls");
    in.mask_id = read_id(g, "mask");
    in.add_bos = read_flag(g, "tokenizer.ggml.add_bos_token", in.model == ATTN_TOKENIZER_SPM) && in.bos_id >= 0;
    in.add_eos = read_flag(g, "tokenizer.ggml.add_eos_token", 0) && in.eos_id >= 0;
    in.add_space_prefix = read_flag(g, "tokenizer.ggml.add_space_prefix", in.model == ATTN_TOKENIZER_SPM);
    in.lowercase = in.model == ATTN_TOKENIZER_WORDPIECE;
    attn_status status = attn_tokenizer_from_arrays(&in, tokenizer);
    return status == ATTN_OK ? ATTN_OK : attn_io_fail(error, size, status, "tokenizer: %s", attn_tokenizer_error());
}

attn_status attn_model_load_tokenizer(const attn_model_source *source, attn_tokenizer **tokenizer, char *error,
                                      size_t error_size)
{
    *tokenizer = NULL;
    if (source->gguf) {
        gguf_arrays a = {0};
        if (!attn_gguf_find(source->gguf, "tokenizer.ggml.tokens"))
            return ATTN_OK;
        attn_status status = from_gguf(source->gguf, &a, tokenizer, error, error_size);
        free_arrays(&a);
        return status;
    }
    char *path = malloc(strlen(source->folder) + sizeof "/tokenizer.json");
    if (!path)
        return attn_io_no_memory(error, error_size, "tokenizer.json");
    sprintf(path, "%s/tokenizer.json", source->folder);
    attn_status status = ATTN_OK;
    if (access(path, F_OK) == 0)
        status = attn_tokenizer_load(path, tokenizer);
    if (status != ATTN_OK)
        attn_io_fail(error, error_size, status, "%s: %s", path, attn_tokenizer_error());
    free(path);
    return status;
}

/* ---- public ---- */

const attn_tokenizer *attn_model_tokenizer(const attn_model *model)
{
    return model ? model->tokenizer : NULL;
}

static attn_status need_tokenizer(const attn_model *model)
{
    ATTN_MODEL_REQUIRE(model, "model is NULL");
    if (!model->tokenizer)
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "the model has no tokenizer (no tokenizer.json beside it)");
    return ATTN_OK;
}

attn_status attn_model_tokenize(const attn_model *model, const char *text, size_t n_bytes, uint32_t flags, int32_t *ids,
                                int64_t capacity, int64_t *n_ids)
{
    ATTN_TRY(need_tokenizer(model));
    ATTN_MODEL_REQUIRE((text || !n_bytes) && n_ids && (ids || capacity <= 0), "text, ids or n_ids is NULL");
    const uint32_t known = ATTN_TEXT_NO_SPECIAL | ATTN_TEXT_PLAIN | ATTN_TEXT_REPLACE_INVALID;
    if (flags & ~known)
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "flags is 0x%x", flags);
    attn_encode_options options;
    ATTN_ARGS_INIT(&options);
    options.flags = (flags & ATTN_TEXT_NO_SPECIAL ? (uint32_t)ATTN_ENCODE_NO_SPECIAL : 0) |
                    (flags & ATTN_TEXT_PLAIN ? (uint32_t)ATTN_ENCODE_SPECIALS_AS_TEXT : 0) |
                    (flags & ATTN_TEXT_REPLACE_INVALID ? (uint32_t)ATTN_ENCODE_REPLACE_INVALID : 0);
    attn_encoding *encoding;
    attn_status status = attn_encoding_create(&encoding);
    if (status == ATTN_OK) {
        status = attn_tokenizer_encode(model->tokenizer, text ? text : "", n_bytes, NULL, 0, &options, encoding);
        if (status == ATTN_OK) {
            *n_ids = attn_encoding_length(encoding);
            const int64_t n = *n_ids < capacity ? *n_ids : capacity;
            if (n > 0)
                memcpy(ids, attn_encoding_ids(encoding), (size_t)n * sizeof *ids);
        }
        attn_encoding_destroy(encoding);
    }
    return status == ATTN_OK ? ATTN_OK : attn_model_fail(status, "%s", attn_tokenizer_error());
}

attn_status attn_model_detokenize(const attn_model *model, const int32_t *ids, int64_t n_ids, uint32_t flags,
                                  char *text, size_t capacity, size_t *n_bytes)
{
    ATTN_TRY(need_tokenizer(model));
    if (flags & ~(uint32_t)ATTN_TEXT_SKIP_SPECIAL)
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "flags is 0x%x", flags);
    attn_status status = attn_tokenizer_decode(model->tokenizer, ids, n_ids,
                                               flags & ATTN_TEXT_SKIP_SPECIAL ? ATTN_DECODE_SKIP_SPECIAL : 0, text,
                                               capacity, n_bytes);
    return status == ATTN_OK ? ATTN_OK : attn_model_fail(status, "ids: %s", attn_tokenizer_error());
}

const char *attn_model_token(const attn_model *model, int32_t id)
{
    return model && model->tokenizer ? attn_tokenizer_token(model->tokenizer, id, NULL) : NULL;
}

int32_t attn_model_special(const attn_model *model, int32_t which)
{
    static const int32_t roles[] = {ATTN_SPECIAL_EOS, ATTN_SPECIAL_BOS, ATTN_SPECIAL_PAD, ATTN_SPECIAL_UNK,
                                    ATTN_SPECIAL_MASK};
    if (!model || which < 0 || which > ATTN_TOKEN_DECODER_START)
        return -1;
    if (which == ATTN_TOKEN_DECODER_START)
        return model->d.kind == ATTN_MODEL_ENCODER_DECODER ? model->d.decoder_start_id : -1;
    if (which == ATTN_TOKEN_EOS && model->d.n_stop_ids)
        return model->d.stop_ids[0];
    if (which == ATTN_TOKEN_BOS && model->d.bos_id >= 0)
        return model->d.bos_id;
    if (which == ATTN_TOKEN_PAD && model->d.pad_id >= 0)
        return model->d.pad_id;
    return model->tokenizer ? attn_tokenizer_special(model->tokenizer, roles[which]) : -1;
}

void attn_model_free_tokenizer(attn_tokenizer *tokenizer)
{
    attn_tokenizer_destroy(tokenizer);
}
