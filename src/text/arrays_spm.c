/* arrays_spm.c - SentencePiece vocabularies of GGUF files ("llama"): pieces with scores become merges.
 *
 * SentencePiece joins, again and again, the two neighbours whose joined piece has the highest score. The same comes out of
 * BPE whose merges are all ways to cut a piece into two pieces of the vocabulary, ordered by the whole's score. */
#include <string.h>
#include "text/tokenizer_arrays.h"

enum { LONGEST_PIECE = 512 }; /* bytes; the cuts of a piece are tried one by one */

typedef struct spm_merge {
    float score;
    int32_t whole;
    uint32_t left; /* bytes of the left part */
} spm_merge;

typedef struct spm_merges {
    spm_merge *data;
    size_t len, cap;
} spm_merges;

/* Higher scores first; then lower ids, and the longer left part. */
static int by_score(const void *a, const void *b)
{
    const spm_merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->whole != y->whole)
        return x->whole < y->whole ? -1 : 1;
    return x->left > y->left ? -1 : x->left < y->left;
}

static attn_status collect(const attn_vocab *vocab, const float *scores, spm_merges *out)
{
    for (size_t e = 0; e < vocab->n_entries; e++) {
        size_t len;
        const char *text = attn_vocab_text(vocab, (int32_t)e, &len);
        if (attn_vocab_find_model(vocab, text, len) != (int32_t)e)
            continue;
        if (scores[e] != scores[e])
            return attn_text_fail(ATTN_ERR_FORMAT, "arrays.scores[%zu] is not a number", e);
        if (len > LONGEST_PIECE)
            return attn_text_fail(ATTN_ERR_UNSUPPORTED, "arrays.tokens[%zu] has %zu bytes, more than %d", e, len,
                                  LONGEST_PIECE);
        for (size_t cut = 1; cut < len; cut++) {
            if (attn_utf8_continues(text[cut]) || attn_vocab_find_model(vocab, text, cut) < 0 ||
                attn_vocab_find_model(vocab, text + cut, len - cut) < 0)
                continue;
            ATTN_TEXT_TRY(attn_grow(&out->data, &out->cap, out->len + 1, sizeof *out->data));
            out->data[out->len++] = (spm_merge){scores[e], (int32_t)e, (uint32_t)cut};
        }
    }
    return ATTN_OK;
}

static attn_status add_merges(attn_tokenizer *tokenizer, const attn_tokenizer_arrays *arrays)
{
    spm_merges merges = {0};
    attn_status status = collect(&tokenizer->vocab, arrays->scores, &merges);
    if (status == ATTN_OK && merges.len)
        qsort(merges.data, merges.len, sizeof *merges.data, by_score);
    for (size_t i = 0; i < merges.len && status == ATTN_OK; i++) {
        size_t len;
        const char *text = attn_vocab_text(&tokenizer->vocab, merges.data[i].whole, &len);
        status = attn_bpe_add_merge(&tokenizer->bpe, &tokenizer->vocab, text, merges.data[i].left,
                                    text + merges.data[i].left, len - merges.data[i].left, i, "arrays.scores");
    }
    free(merges.data);
    return status;
}

#define MARK "\xe2\x96\x81" /* U+2581, in the place of blanks */

static attn_status add_replace(attn_steps *steps, const char *pattern, const char *content)
{
    attn_step *step = attn_steps_add(steps, ATTN_STEP_REPLACE);
    if (!step)
        return ATTN_ERR_OUT_OF_MEMORY;
    ATTN_TEXT_TRY(attn_strbuf_add(&step->pattern, pattern, strlen(pattern)));
    return attn_strbuf_add(&step->content, content, strlen(content));
}

/* A blank goes in front of a text, and of what follows a special token, whatever it begins with. */
static attn_status add_normalizers(attn_tokenizer *tokenizer, bool prefix)
{
    attn_step *step = prefix ? attn_steps_add(&tokenizer->normalizers, ATTN_STEP_PREPEND) : NULL;
    if (prefix && !step)
        return ATTN_ERR_OUT_OF_MEMORY;
    if (step)
        ATTN_TEXT_TRY(attn_strbuf_add(&step->content, MARK, strlen(MARK)));
    return add_replace(&tokenizer->normalizers, " ", MARK);
}

static attn_status add_decoders(attn_tokenizer *tokenizer, bool prefix)
{
    attn_step *step;
    ATTN_TEXT_TRY(add_replace(&tokenizer->decoders, MARK, " "));
    tokenizer->has_decoder = true;
    if (!attn_steps_add(&tokenizer->decoders, ATTN_STEP_BYTE_FALLBACK) ||
        !attn_steps_add(&tokenizer->decoders, ATTN_STEP_FUSE))
        return ATTN_ERR_OUT_OF_MEMORY;
    if (!prefix)
        return ATTN_OK;
    if (!(step = attn_steps_add(&tokenizer->decoders, ATTN_STEP_STRIP_TOKEN)))
        return ATTN_ERR_OUT_OF_MEMORY;
    step->point = ' ';
    step->start = 1;
    return ATTN_OK;
}

attn_status attn_arrays_spm(attn_tokenizer *tokenizer, const attn_tokenizer_arrays *arrays)
{
    if (!arrays->scores)
        return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "arrays.scores is NULL");
    tokenizer->model = ATTN_MODEL_BPE;
    tokenizer->bpe.byte_fallback = tokenizer->bpe.fuse_unk = true;
    tokenizer->bpe.unk_entry = arrays->unk_id >= 0 ? arrays->unk_id : ATTN_UNK_NONE;
    ATTN_TEXT_TRY(add_merges(tokenizer, arrays));
    ATTN_TEXT_TRY(add_normalizers(tokenizer, arrays->add_space_prefix != 0));
    return add_decoders(tokenizer, arrays->add_space_prefix != 0);
}
