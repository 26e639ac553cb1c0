/* gguf_tokenizer.c - tokenizer.json and tokenizer_config.json from the values of a GGUF file. */
#include "io/gguf_tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "io/bytes.h"
#include "io/io_error.h"

static bool same_text(attn_gguf_string text, const char *want)
{
    return text.length == strlen(want) && !memcmp(text.text, want, text.length);
}

attn_status attn_gguf_tokenizer_no_memory(const build *b)
{
    return attn_io_no_memory(b->error, b->error_size, "a tokenizer");
}

/* Every token can be a JSON text. */
static attn_status check_tokens(const build *b)
{
    char shown[SHOWN];
    for (size_t i = 0; i < b->n_tokens; i++) {
        attn_gguf_string token = b->tokens[i];
        if (memchr(token.text, 0, token.length) || !attn_utf8_valid(token.text, token.length))
            return FAIL(b, ATTN_ERR_FORMAT,
                        "tokenizer.ggml.tokens: token %zu ('%s') is not UTF-8, or holds a 0", i,
                        attn_io_printable(token.text, token.length, shown, sizeof shown));
    }
    return ATTN_OK;
}

/* ---- Reading -------------------------------------------------------------------------------- */

/* tokenizer.ggml.pre, by the first of the names that it has for one split; files from before it was there have GPT-2's. */
static attn_status read_split(build *b)
{
    static const char *const same[][2] = {{"gpt2", "gpt-2"},         {"default", "gpt-2"},   {"phi-2", "gpt-2"},
                                          {"olmo", "gpt-2"},         {"mpt", "gpt-2"},       {"roberta-bpe", "gpt-2"},
                                          {"starcoder", "smollm"},   {"refact", "smollm"},   {"command-r", "smollm"},
                                          {"codeshell", "smollm"},   {"exaone", "smollm"},   {"llama3", "llama-bpe"},
                                          {"llama-v3", "llama-bpe"}};
    static const char first[] = "gpt-2";
    b->split = (attn_gguf_string){first, sizeof first - 1};
    if (!attn_gguf_find(b->gguf, "tokenizer.ggml.pre"))
        return ATTN_OK;
    ATTN_TRY(attn_gguf_get_string(b->gguf, "tokenizer.ggml.pre", &b->split, b->error, b->error_size));
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (same_text(b->split, same[i][0]))
            b->split = (attn_gguf_string){same[i][1], strlen(same[i][1])};
    return ATTN_OK;
}

static attn_status read_values(build *b)
{
    attn_gguf_string model;
    char shown[SHOWN];
    size_t n_types;
    attn_status status =
        attn_gguf_get_string(b->gguf, "tokenizer.ggml.model", &model, b->error, b->error_size);
    if (status == ATTN_OK)
        b->kind = same_text(model, "gpt2")    ? KIND_BYTE_LEVEL
                  : same_text(model, "llama") ? KIND_SENTENCEPIECE
                  : same_text(model, "bert")  ? KIND_WORDPIECE
                                              : KIND_OTHER;
    if (status == ATTN_OK && b->kind == KIND_OTHER)
        return FAIL(b, ATTN_ERR_UNSUPPORTED,
                    "tokenizer.ggml.model: '%s' cannot be written as tokenizer.json",
                    attn_io_printable(model.text, model.length, shown, sizeof shown));
    if (status == ATTN_OK && b->kind == KIND_BYTE_LEVEL)
        status = read_split(b);
    if (status == ATTN_OK)
        status = attn_gguf_get_string_array(b->gguf, "tokenizer.ggml.tokens", &b->tokens,
                                            &b->n_tokens, b->error, b->error_size);
    if (status == ATTN_OK && b->kind == KIND_SENTENCEPIECE)
        status = attn_gguf_get_f64_array(b->gguf, "tokenizer.ggml.scores", &b->scores, &b->n_scores,
                                         b->error, b->error_size);
    if (status == ATTN_OK && b->kind == KIND_SENTENCEPIECE && b->n_scores != b->n_tokens)
        return FAIL(b, ATTN_ERR_FORMAT, "tokenizer.ggml.scores: %zu scores for %zu tokens",
                    b->n_scores, b->n_tokens);
    if (status == ATTN_OK && b->kind == KIND_BYTE_LEVEL)
        status = attn_gguf_get_string_array(b->gguf, "tokenizer.ggml.merges", &b->merges,
                                            &b->n_merges, b->error, b->error_size);
    if (status == ATTN_OK)
        status = check_tokens(b);
    if (status != ATTN_OK || !attn_gguf_find(b->gguf, "tokenizer.ggml.token_type"))
        return status;
    status = attn_gguf_get_i64_array(b->gguf, "tokenizer.ggml.token_type", &b->types, &n_types,
                                     b->error, b->error_size);
    if (status == ATTN_OK && n_types != b->n_tokens)
        return FAIL(b, ATTN_ERR_FORMAT, "tokenizer.ggml.token_type: %zu types for %zu tokens",
                    n_types, b->n_tokens);
    return status;
}

/* ---- The model: vocabulary and merges ------------------------------------------------------- */

attn_status attn_gguf_tokenizer_vocabulary(const build *b, json_t *vocabulary)
{
    char shown[SHOWN];
    for (size_t i = 0; i < b->n_tokens; i++) {
        attn_gguf_string token = b->tokens[i];
        if (json_object_getn(vocabulary, token.text, token.length))
            return FAIL(b, ATTN_ERR_FORMAT,
                        "tokenizer.ggml.tokens: token %zu ('%s') is there twice", i,
                        attn_io_printable(token.text, token.length, shown, sizeof shown));
        if (json_object_setn_new(vocabulary, token.text, token.length, json_integer((json_int_t)i)))
            return NO_MEMORY(b);
    }
    return ATTN_OK;
}

static attn_status build_merges(const build *b, json_t *merges)
{
    char shown[SHOWN];
    for (size_t i = 0; i < b->n_merges; i++) {
        attn_gguf_string merge = b->merges[i];
        /* the first space behind the first byte parts the two (no byte-level token holds a space)
         */
        const char *space = merge.length ? memchr(merge.text + 1, ' ', merge.length - 1) : NULL;
        if (!space || !attn_utf8_valid(merge.text, merge.length))
            return FAIL(b, ATTN_ERR_FORMAT,
                        "tokenizer.ggml.merges: merge %zu ('%s') is not two tokens", i,
                        attn_io_printable(merge.text, merge.length, shown, sizeof shown));
        size_t left = (size_t)(space - merge.text);
        json_t *pair = json_pack("[s%, s%]", merge.text, left, space + 1, merge.length - left - 1);
        if (json_array_append_new(merges, pair)) /* a NULL pair fails too */
            return NO_MEMORY(b);
    }
    return ATTN_OK;
}

static attn_status build_model(const build *b, json_t **out)
{
    json_t *vocabulary = json_object(), *merges = json_array();
    *out = json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:O?, s:O?}", "type", "BPE",
                     "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                     "fuse_unk", 0, "byte_fallback", 0, "ignore_merges",
                     same_text(b->split, "llama-bpe"), "vocab", vocabulary, "merges", merges);
    attn_status status = *out && vocabulary && merges ? ATTN_OK : NO_MEMORY(b);
    if (status == ATTN_OK)
        status = attn_gguf_tokenizer_vocabulary(b, vocabulary);
    if (status == ATTN_OK)
        status = build_merges(b, merges);
    json_decref(vocabulary);
    json_decref(merges);
    return status;
}

/* ---- Splitting, added tokens, frame --------------------------------------------------------- */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORDS_AND    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
#define REST         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static json_t *byte_level(bool splits)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 1, "use_regex", splits);
}

/* A sequence of one step and a byte level that follows. Takes first. */
static json_t *sequence(json_t *first, bool splits)
{
    return json_pack("{s:s, s:[o, o]}", "type", "Sequence", "pretokenizers", first,
                     byte_level(splits));
}

static json_t *regex_split(const char *pattern)
{
    return json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex", pattern,
                     "behavior", "Isolated", "invert", 0);
}

static attn_status build_split(const build *b, json_t **out, json_t **normalizer)
{
    char shown[SHOWN];
    *normalizer = json_null();
    if (same_text(b->split, "gpt-2"))
        *out = byte_level(true);
    else if (same_text(b->split, "smollm"))
        *out = sequence(json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1), true);
    else if (same_text(b->split, "llama-bpe"))
        *out = sequence(regex_split(CONTRACTIONS WORDS_AND "{1,3}" REST), false);
    else if (same_text(b->split, "qwen2")) {
        *out = sequence(regex_split(CONTRACTIONS WORDS_AND REST), false);
        *normalizer = json_pack("{s:s}", "type", "NFC");
    } else
        return FAIL(b, ATTN_ERR_UNSUPPORTED,
                    "tokenizer.ggml.pre: '%s' cannot be written as tokenizer.json",
                    attn_io_printable(b->split.text, b->split.length, shown, sizeof shown));
    return *out && *normalizer ? ATTN_OK : NO_MEMORY(b);
}

static attn_status build_added(const build *b, json_t *added)
{
    for (size_t i = 0; b->types && i < b->n_tokens; i++) {
        const bool special = b->types[i] == TOKEN_CONTROL || (b->types[i] == TOKEN_UNKNOWN && b->kind != KIND_BYTE_LEVEL);
        if (!special && b->types[i] != TOKEN_USER_DEFINED)
            continue;
        json_t *token =
            json_pack("{s:I, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)i, "content",
                      b->tokens[i].text, b->tokens[i].length, "single_word", 0, "lstrip", 0,
                      "rstrip", 0, "normalized", 0, "special", special);
        if (!token || json_array_append_new(added, token))
            return NO_MEMORY(b);
    }
    return ATTN_OK;
}

json_t *attn_gguf_tokenizer_token(const build *b, const char *key, int64_t *id, attn_status *status)
{
    *id = -1;
    if (*status != ATTN_OK || !attn_gguf_find(b->gguf, key))
        return NULL;
    *status = attn_gguf_get_i64(b->gguf, key, id, b->error, b->error_size);
    if (*status != ATTN_OK)
        return NULL;
    if (*id < 0 || (uint64_t)*id >= b->n_tokens) {
        *status = FAIL(b, ATTN_ERR_FORMAT, "%s: %lld is outside the %zu tokens", key,
                       (long long)*id, b->n_tokens);
        return NULL;
    }
    json_t *text = json_stringn(b->tokens[*id].text, b->tokens[*id].length);
    if (!text)
        *status = NO_MEMORY(b);
    return text;
}

/* Byte level (of SentencePiece: nothing), and in front of a text the beginning token where the file asks for it. */
static attn_status build_post(const build *b, json_t **out)
{
    bool add = b->kind == KIND_SENTENCEPIECE;
    int64_t id;
    attn_status status = ATTN_OK;
    if (attn_gguf_find(b->gguf, "tokenizer.ggml.add_bos_token"))
        status = attn_gguf_get_bool(b->gguf, "tokenizer.ggml.add_bos_token", &add, b->error,
                                    b->error_size);
    json_t *token = add ? attn_gguf_tokenizer_token(b, "tokenizer.ggml.bos_token_id", &id, &status) : NULL;
    if (status != ATTN_OK)
        return status;
    if (!token) {
        *out = b->kind == KIND_SENTENCEPIECE ? json_null() : byte_level(true);
        return *out ? ATTN_OK : NO_MEMORY(b);
    }
    const char *text = json_string_value(token);
    *out = json_pack("{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}],"
                     " s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}, {s:{s:s, s:i}}, {s:{s:s, s:i}}],"
                     " s:{s:{s:s, s:[I], s:[s]}}}",
                     "type", "TemplateProcessing", "single", "SpecialToken", "id", text, "type_id",
                     0, "Sequence", "id", "A", "type_id", 0, "pair", "SpecialToken", "id", text,
                     "type_id", 0, "Sequence", "id", "A", "type_id", 0, "SpecialToken", "id", text,
                     "type_id", 1, "Sequence", "id", "B", "type_id", 1, "special_tokens", text,
                     "id", text, "ids", (json_int_t)id, "tokens", text);
    json_decref(token);
    return *out ? ATTN_OK : NO_MEMORY(b);
}

static attn_status build_tokenizer(const build *b, json_t **out)
{
    json_t *model = NULL, *split = NULL, *normalizer = NULL, *post = NULL, *decoder = NULL, *added = json_array();
    const bool bytes = b->kind == KIND_BYTE_LEVEL, words = b->kind == KIND_WORDPIECE;
    attn_status status = !added  ? NO_MEMORY(b)
                         : bytes ? build_split(b, &split, &normalizer)
                         : words ? attn_gguf_wordpiece_steps(b, &normalizer, &split, &post, &decoder)
                                 : attn_gguf_spm_steps(b, &normalizer, &split, &decoder);
    if (status == ATTN_OK)
        status = build_added(b, added);
    if (status == ATTN_OK && !words)
        status = build_post(b, &post);
    if (status == ATTN_OK && bytes && !(decoder = byte_level(true)))
        status = NO_MEMORY(b);
    if (status == ATTN_OK)
        status = bytes ? build_model(b, &model) : words ? attn_gguf_wordpiece_model(b, &model) : attn_gguf_spm_model(b, &model);
    if (status == ATTN_OK) {
        *out = json_pack("{s:s, s:n, s:n, s:O, s:O, s:O, s:O, s:O, s:O}", "version", "1.0",
                         "truncation", "padding", "added_tokens", added, "normalizer", normalizer,
                         "pre_tokenizer", split, "post_processor", post, "decoder", decoder,
                         "model", model);
        status = *out ? ATTN_OK : NO_MEMORY(b);
    }
    json_decref(model);
    json_decref(split);
    json_decref(normalizer);
    json_decref(post);
    json_decref(decoder);
    json_decref(added);
    return status;
}

/* ---- tokenizer_config.json ------------------------------------------------------------------ */

static attn_status build_config(const build *b, json_t **out)
{
    static const struct {
        const char *key, *name;
    } special[] = {{"tokenizer.ggml.bos_token_id", "bos_token"},
                   {"tokenizer.ggml.eos_token_id", "eos_token"},
                   {"tokenizer.ggml.unknown_token_id", "unk_token"},
                   {"tokenizer.ggml.padding_token_id", "pad_token"},
                   {"tokenizer.ggml.cls_token_id", "cls_token"},
                   {"tokenizer.ggml.seperator_token_id", "sep_token"}, /* the key's own spelling */
                   {"tokenizer.ggml.mask_token_id", "mask_token"}};
    attn_status status = ATTN_OK;
    *out = json_pack("{s:s, s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                     "clean_up_tokenization_spaces", 0);
    if (!*out)
        return NO_MEMORY(b);
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        int64_t id;
        json_t *token = attn_gguf_tokenizer_token(b, special[i].key, &id, &status);
        if (status != ATTN_OK)
            return status;
        if (token && json_object_set_new(*out, special[i].name, token))
            return NO_MEMORY(b);
    }
    if (attn_gguf_find(b->gguf, "tokenizer.chat_template")) {
        attn_gguf_string text;
        status = attn_gguf_get_string(b->gguf, "tokenizer.chat_template", &text, b->error,
                                      b->error_size);
        if (status != ATTN_OK)
            return status;
        if (!attn_utf8_valid(text.text, text.length))
            return FAIL(b, ATTN_ERR_FORMAT, "tokenizer.chat_template: is not UTF-8");
        if (json_object_set_new(*out, "chat_template", json_stringn(text.text, text.length)))
            return NO_MEMORY(b);
    }
    return ATTN_OK;
}

attn_status attn_gguf_tokenizer_json(const attn_gguf *gguf, json_t **tokenizer, json_t **config,
                                     char *error, size_t error_size)
{
    build b = {.gguf = gguf, .error = error, .error_size = error_size};
    json_t *made = NULL, *made_config = NULL;
    attn_status status = read_values(&b);
    if (status == ATTN_OK && b.kind == KIND_WORDPIECE)
        status = attn_gguf_wordpiece_spelling(&b);
    if (status == ATTN_OK)
        status = build_tokenizer(&b, &made);
    if (status == ATTN_OK)
        status = build_config(&b, &made_config);
    free(b.tokens);
    free(b.merges);
    free(b.types);
    free(b.scores);
    free(b.spelled);
    if (status != ATTN_OK) {
        json_decref(made);
        json_decref(made_config);
        return status;
    }
    *tokenizer = made;
    *config = made_config;
    return ATTN_OK;
}
