/* gguf_tokenizer_spm.c - SentencePiece vocabularies of GGUF files as BPE with byte fallback. */
#include <stdlib.h>
#include <string.h>
#include "io/bytes.h"
#include "io/gguf_tokenizer_internal.h"
#include "io/spm_merges.h"

#define MARK "\xe2\x96\x81" /* U+2581 */

typedef struct scored_tokens {
    const build *b;
    const json_t *vocabulary;
} scored_tokens;

static bool scored_token(const void *user, size_t i, attn_spm_merge *whole)
{
    const build *b = ((const scored_tokens *)user)->b;
    whole->text = b->tokens[i].text;
    whole->length = b->tokens[i].length;
    whole->score = b->scores[i];
    return true;
}

static bool in_vocabulary(const void *user, const char *text, size_t length)
{
    return json_object_getn(((const scored_tokens *)user)->vocabulary, text, length) != NULL;
}

static attn_status build_merges(const build *b, const json_t *vocabulary, json_t *list)
{
    const scored_tokens scored = {b, vocabulary};
    const attn_spm_vocabulary v = {&scored, b->n_tokens, scored_token, in_vocabulary,
                                   {"tokenizer.ggml.tokens", "tokenizer.ggml.scores"}};
    attn_spm_merge *merges;
    size_t n;
    attn_status status = attn_spm_merges(&v, &merges, &n, b->error, b->error_size);
    for (size_t i = 0; status == ATTN_OK && i < n; i++) {
        const attn_spm_merge *m = &merges[i];
        if (json_array_append_new(list, json_pack("[s%, s%]", m->text, m->left, m->text + m->left, m->length - m->left)))
            status = NO_MEMORY(b);
    }
    free(merges);
    return status;
}

attn_status attn_gguf_spm_model(const build *b, json_t **out)
{
    int64_t id;
    attn_status status = ATTN_OK;
    json_t *vocabulary = json_object(), *merges = json_array();
    json_t *unknown = attn_gguf_tokenizer_token(b, "tokenizer.ggml.unknown_token_id", &id, &status);
    if (status == ATTN_OK) {
        *out = json_pack("{s:s, s:n, s:O*, s:n, s:n, s:b, s:b, s:b, s:O?, s:O?}", "type", "BPE", "dropout", "unk_token", unknown,
                         "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 1, "byte_fallback", 1,
                         "ignore_merges", 0, "vocab", vocabulary, "merges", merges);
        status = *out && vocabulary && merges ? ATTN_OK : NO_MEMORY(b);
    }
    if (status == ATTN_OK)
        status = attn_gguf_tokenizer_vocabulary(b, vocabulary);
    if (status == ATTN_OK)
        status = build_merges(b, vocabulary, merges);
    json_decref(unknown);
    json_decref(vocabulary);
    json_decref(merges);
    return status;
}

attn_status attn_gguf_spm_steps(const build *b, json_t **normalizer, json_t **split, json_t **decoder)
{
    bool prefix = true;
    if (attn_gguf_find(b->gguf, "tokenizer.ggml.add_space_prefix")) {
        attn_status status = attn_gguf_get_bool(b->gguf, "tokenizer.ggml.add_space_prefix", &prefix, b->error, b->error_size);
        if (status != ATTN_OK)
            return status;
    }
    json_t *blanks = json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", " ", "content", MARK);
    *normalizer = prefix ? json_pack("{s:s, s:[{s:s, s:s}, o]}", "type", "Sequence", "normalizers", "type", "Prepend", "prepend", MARK,
                                     blanks)
                         : blanks;
    *split = json_null();
    json_t *steps = json_pack("[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}]", "type", "Replace", "pattern", "String", MARK, "content", " ",
                              "type", "ByteFallback", "type", "Fuse");
    if (steps && prefix &&
        json_array_append_new(steps, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ", "start", 1, "stop", 0))) {
        json_decref(steps);
        steps = NULL;
    }
    *decoder = steps ? json_pack("{s:s, s:o}", "type", "Sequence", "decoders", steps) : NULL;
    return *normalizer && *decoder ? ATTN_OK : NO_MEMORY(b);
}
