/* gguf_tokenizer_words.c - WordPiece vocabularies of GGUF files as BERT's tokenizer.json. */
#include <stdlib.h>
#include <string.h>
#include "io/gguf_tokenizer_internal.h"

#define MARK "\xe2\x96\x81" /* U+2581 */

static bool is_special(const build *b, size_t i)
{
    const attn_gguf_string t = b->tokens[i];
    return (b->types && b->types[i] != 1) || (t.length > 2 && t.text[0] == '[' && t.text[t.length - 1] == ']');
}

attn_status attn_gguf_wordpiece_spelling(build *b)
{
    size_t room = 1;
    for (size_t i = 0; i < b->n_tokens; i++)
        room += b->tokens[i].length + 2;
    char *at = b->spelled = malloc(room);
    if (!at)
        return NO_MEMORY(b);
    for (size_t i = 0; i < b->n_tokens; i++) {
        attn_gguf_string t = b->tokens[i];
        const bool begins = t.length > 3 && !memcmp(t.text, MARK, 3);
        const size_t hashes = begins || is_special(b, i) ? 0 : 2, skip = begins ? 3 : 0;
        memcpy(at, "##", hashes);
        memcpy(at + hashes, t.text + skip, t.length - skip);
        b->tokens[i] = (attn_gguf_string){at, hashes + t.length - skip};
        at += b->tokens[i].length;
    }
    return ATTN_OK;
}

attn_status attn_gguf_wordpiece_model(const build *b, json_t **out)
{
    int64_t id;
    attn_status status = ATTN_OK;
    json_t *vocabulary = json_object();
    json_t *unknown = attn_gguf_tokenizer_token(b, "tokenizer.ggml.unknown_token_id", &id, &status);
    if (status == ATTN_OK && !unknown)
        status = FAIL(b, ATTN_ERR_FORMAT, "tokenizer.ggml.unknown_token_id: missing");
    if (status == ATTN_OK) {
        *out = json_pack("{s:s, s:O, s:s, s:i, s:O?}", "type", "WordPiece", "unk_token", unknown, "continuing_subword_prefix",
                         "##", "max_input_chars_per_word", 100, "vocab", vocabulary);
        status = *out && vocabulary ? attn_gguf_tokenizer_vocabulary(b, vocabulary) : NO_MEMORY(b);
    }
    json_decref(unknown);
    json_decref(vocabulary);
    return status;
}

static json_t *special(const char *text, int type)
{
    return json_pack("{s:{s:s, s:i}}", "SpecialToken", "id", text, "type_id", type);
}

static json_t *sequence(const char *name, int type)
{
    return json_pack("{s:{s:s, s:i}}", "Sequence", "id", name, "type_id", type);
}

/* [CLS] A [SEP], and [CLS] A [SEP] B [SEP]. */
static json_t *frame(const char *cls, int64_t cls_id, const char *sep, int64_t sep_id)
{
    return json_pack("{s:s, s:[o, o, o], s:[o, o, o, o, o], s:{s:{s:s, s:[I], s:[s]}, s:{s:s, s:[I], s:[s]}}}", "type",
                     "TemplateProcessing", "single", special(cls, 0), sequence("A", 0), special(sep, 0), "pair", special(cls, 0),
                     sequence("A", 0), special(sep, 0), sequence("B", 1), special(sep, 1), "special_tokens", cls, "id", cls, "ids",
                     (json_int_t)cls_id, "tokens", cls, sep, "id", sep, "ids", (json_int_t)sep_id, "tokens", sep);
}

attn_status attn_gguf_wordpiece_steps(const build *b, json_t **normalizer, json_t **split, json_t **post, json_t **decoder)
{
    int64_t cls_id, sep_id;
    attn_status status = ATTN_OK;
    const bool own = attn_gguf_find(b->gguf, "tokenizer.ggml.cls_token_id") != NULL; /* else the beginning token is it */
    json_t *cls = attn_gguf_tokenizer_token(b, own ? "tokenizer.ggml.cls_token_id" : "tokenizer.ggml.bos_token_id", &cls_id, &status);
    json_t *sep = attn_gguf_tokenizer_token(b, "tokenizer.ggml.seperator_token_id", &sep_id, &status);
    if (status == ATTN_OK) {
        *normalizer = json_pack("{s:s, s:b, s:b, s:n, s:b}", "type", "BertNormalizer", "clean_text", 1, "handle_chinese_chars", 1,
                                "strip_accents", "lowercase", 1);
        *split = json_pack("{s:s}", "type", "BertPreTokenizer");
        *decoder = json_pack("{s:s, s:s, s:b}", "type", "WordPiece", "prefix", "##", "cleanup", 1);
        *post = cls && sep ? frame(json_string_value(cls), cls_id, json_string_value(sep), sep_id) : json_null();
        status = *normalizer && *split && *decoder && *post ? ATTN_OK : NO_MEMORY(b);
    }
    json_decref(cls);
    json_decref(sep);
    return status;
}
