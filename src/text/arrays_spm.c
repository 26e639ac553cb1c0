/* arrays_spm.c - SentencePiece vocabularies of GGUF files ("llama"): pieces with scores become merges. */
#include <string.h>
#include "io/spm_merges.h"
#include "text/tokenizer_arrays.h"

typedef struct scored_vocab {
    const attn_vocab *vocab;
    const float *scores;
} scored_vocab;

static bool scored_token(const void *user, size_t i, attn_spm_merge *whole)
{
    const scored_vocab *v = user;
    whole->text = attn_vocab_text(v->vocab, (int32_t)i, &whole->length);
    whole->score = (double)v->scores[i];
    return attn_vocab_find_model(v->vocab, whole->text, whole->length) == (int32_t)i;
}

static bool in_model(const void *user, const char *text, size_t length)
{
    return attn_vocab_find_model(((const scored_vocab *)user)->vocab, text, length) >= 0;
}

static attn_status add_merges(attn_tokenizer *tokenizer, const attn_tokenizer_arrays *arrays)
{
    const scored_vocab scored = {&tokenizer->vocab, arrays->scores};
    const attn_spm_vocabulary vocabulary = {&scored, tokenizer->vocab.n_entries, scored_token, in_model,
                                            {"arrays.tokens", "arrays.scores"}};
    char error[ATTN_TEXT_ERROR_BYTES];
    attn_spm_merge *merges;
    size_t n;
    attn_status status = attn_spm_merges(&vocabulary, &merges, &n, error, sizeof error);
    if (status != ATTN_OK)
        return status == ATTN_ERR_OUT_OF_MEMORY ? attn_text_no_memory() : attn_text_fail(status, "%s", error);
    for (size_t i = 0; i < n && status == ATTN_OK; i++) {
        const attn_spm_merge *m = &merges[i];
        status = attn_bpe_add_merge(&tokenizer->bpe, &tokenizer->vocab, m->text, m->left, m->text + m->left, m->length - m->left,
                                    i, "arrays.scores");
    }
    free(merges);
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
