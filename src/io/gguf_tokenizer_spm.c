/* gguf_tokenizer_spm.c - SentencePiece vocabularies of GGUF files as BPE with byte fallback: pieces with scores become merges.
 * Hugging Face's converter takes the same: all ways to cut a piece into two pieces of the vocabulary, the best whole first. */
#include <stdlib.h>
#include <string.h>
#include "io/bytes.h"
#include "io/gguf_tokenizer_internal.h"

#define MARK "\xe2\x96\x81" /* U+2581 */

enum { LONGEST_PIECE = 512 }; /* bytes; the cuts of a piece are tried one by one */

typedef struct merge {
    double score;
    size_t whole, left; /* token; bytes of the left part */
} merge;

typedef struct merge_list {
    merge *data;
    size_t n, room;
} merge_list;

/* Higher scores first; then lower ids, and the longer left part. */
static int by_score(const void *a, const void *b)
{
    const merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->whole != y->whole)
        return x->whole < y->whole ? -1 : 1;
    return x->left > y->left ? -1 : x->left < y->left;
}

static bool add_merge(merge_list *list, merge m)
{
    if (list->n == list->room) {
        const size_t room = list->room ? 2 * list->room : 1024;
        merge *larger = realloc(list->data, room * sizeof *larger);
        if (!larger)
            return false;
        list->data = larger;
        list->room = room;
    }
    list->data[list->n++] = m;
    return true;
}

static attn_status collect(const build *b, const json_t *vocabulary, merge_list *list)
{
    for (size_t i = 0; i < b->n_tokens; i++) {
        const attn_gguf_string t = b->tokens[i];
        if (b->scores[i] != b->scores[i])
            return FAIL(b, ATTN_ERR_FORMAT, "tokenizer.ggml.scores: score %zu is not a number", i);
        if (t.length > LONGEST_PIECE)
            return FAIL(b, ATTN_ERR_UNSUPPORTED, "tokenizer.ggml.tokens: token %zu has %zu bytes, more than %d", i,
                        t.length, (int)LONGEST_PIECE);
        for (size_t cut = 1; cut < t.length; cut++)
            if (((unsigned char)t.text[cut] & 0xC0) != 0x80 && json_object_getn(vocabulary, t.text, cut) &&
                json_object_getn(vocabulary, t.text + cut, t.length - cut) &&
                !add_merge(list, (merge){b->scores[i], i, cut}))
                return NO_MEMORY(b);
    }
    return ATTN_OK;
}

static attn_status build_merges(const build *b, const json_t *vocabulary, json_t *merges)
{
    merge_list list = {NULL, 0, 0};
    attn_status status = collect(b, vocabulary, &list);
    if (status == ATTN_OK && list.n)
        qsort(list.data, list.n, sizeof *list.data, by_score);
    for (size_t i = 0; status == ATTN_OK && i < list.n; i++) {
        const attn_gguf_string t = b->tokens[list.data[i].whole];
        const size_t left = list.data[i].left;
        if (json_array_append_new(merges, json_pack("[s%, s%]", t.text, left, t.text + left, t.length - left)))
            status = NO_MEMORY(b);
    }
    free(list.data);
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
