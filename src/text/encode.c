/* encode.c - text to tokens: the stages in order, and the memory they work in. */
#include <stdio.h>

#include "core/args.h"
#include "text/tokenizer_impl.h"

/* ---- Scratch memory ---- */

static void scratch_destroy(attn_scratch *scratch)
{
    if (!scratch)
        return;
    attn_regex_scratch_destroy(scratch->regex);
    attn_worktext_free(&scratch->text);
    free(scratch->splits.data);
    free(scratch->more_splits.data);
    free(scratch->segments.data);
    free(scratch->symbols.data);
    attn_bpe_scratch_free(&scratch->bpe);
    free(scratch->lattice);
    free(scratch->cache);
    for (int i = 0; i < 2; i++) {
        attn_strbuf_free(&scratch->replaced[i]);
        free(scratch->pieces[i].data);
    }
    attn_strbuf_free(&scratch->extra);
    free(scratch);
}

attn_status attn_scratch_create(attn_scratch **made)
{
    attn_scratch *scratch = calloc(1, sizeof *scratch);
    if (scratch)
        scratch->cache = calloc((size_t)1 << ATTN_CACHE_BITS, sizeof *scratch->cache);
    if (!scratch || !scratch->cache || attn_regex_scratch_create(&scratch->regex) != ATTN_OK) {
        scratch_destroy(scratch);
        return attn_text_no_memory();
    }
    *made = scratch;
    return ATTN_OK;
}

/* One that no other call uses. The tokenizer is const for callers; its pool is not part of what they see. */
static attn_status scratch_take(const attn_tokenizer *tokenizer, attn_scratch **taken)
{
    attn_tokenizer *owner = (attn_tokenizer *)(uintptr_t)tokenizer;
    pthread_mutex_lock(&owner->lock);
    attn_scratch *scratch = owner->pool;
    if (scratch)
        owner->pool = scratch->next;
    pthread_mutex_unlock(&owner->lock);
    if (scratch) {
        *taken = scratch;
        return ATTN_OK;
    }
    return attn_scratch_create(taken);
}

static void scratch_give_back(const attn_tokenizer *tokenizer, attn_scratch *scratch)
{
    attn_tokenizer *owner = (attn_tokenizer *)(uintptr_t)tokenizer;
    pthread_mutex_lock(&owner->lock);
    scratch->next = owner->pool;
    owner->pool = scratch;
    pthread_mutex_unlock(&owner->lock);
}

void attn_scratch_free_all(attn_scratch *scratch)
{
    while (scratch) {
        attn_scratch *next = scratch->next;
        scratch_destroy(scratch);
        scratch = next;
    }
}

/* ---- One text ---- */

/* The text itself, or its copy without ill-formed bytes. */
static attn_status checked_text(const char *text, size_t len, const char *name, uint32_t flags, attn_strbuf *replaced,
                                attn_worktext *work)
{
    if (len > INT32_MAX)
        return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "%s has %zu bytes, more than %d", name, len, INT32_MAX);
    size_t valid = attn_utf8_valid_prefix(text, len);
    work->original = text;
    work->original_len = len;
    if (valid == len)
        return ATTN_OK;
    if (!(flags & ATTN_ENCODE_REPLACE_INVALID))
        return attn_text_fail(ATTN_ERR_FORMAT, "%s is not UTF-8: byte %zu is 0x%02x", name, valid,
                              (unsigned)(unsigned char)text[valid]);
    replaced->len = 0;
    ATTN_TEXT_TRY(attn_utf8_add_lossy(replaced, text, len));
    if (replaced->len > INT32_MAX)
        return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "%s has more than %d bytes with replacements", name, INT32_MAX);
    work->original = replaced->data;
    work->original_len = replaced->len;
    return ATTN_OK;
}

/* An added token found at [split->start, split->end) of the work text. */
static attn_status add_added(const attn_tokenizer *tokenizer, attn_scratch *scratch, const attn_split *split,
                             attn_pieces *out)
{
    const attn_worktext *text = &scratch->text;
    uint32_t start = 0, end = 0, unused;
    if (split->start < split->end) {
        attn_worktext_range(text, split->start, &start, &unused);
        attn_worktext_range(text, split->end - 1, &unused, &end);
    }
    attn_piece piece = {.entry = tokenizer->added.tokens[split->added].entry,
                        .start = start,
                        .end = end,
                        .text = (int64_t)scratch->extra.len,
                        .text_len = split->end - split->start};
    ATTN_TEXT_TRY(attn_strbuf_add(&scratch->extra, text->data + split->start, piece.text_len));
    ATTN_TEXT_TRY(attn_grow(&out->data, &out->cap, out->len + 1, sizeof *out->data));
    out->data[out->len++] = piece;
    return ATTN_OK;
}

static attn_status encode_segment(const attn_tokenizer *tokenizer, attn_scratch *scratch, uint32_t flags,
                                  attn_pieces *out)
{
    bool as_text = flags & ATTN_ENCODE_SPECIALS_AS_TEXT;
    for (size_t i = 0; i < tokenizer->normalizers.len; i++)
        ATTN_TEXT_TRY(attn_normalize(&tokenizer->normalizers.data[i], scratch));
    scratch->splits.len = 0;
    if (tokenizer->added.normalized.n_nodes)
        ATTN_TEXT_TRY(attn_added_cut(tokenizer, &tokenizer->added.normalized, scratch->text.data, scratch->text.len,
                                     as_text, &scratch->splits));
    else if (scratch->text.len)
        ATTN_TEXT_TRY(attn_splits_add(&scratch->splits, 0, scratch->text.len, -1));
    bool raw = tokenizer->model == ATTN_MODEL_BPE && tokenizer->bpe.raw &&
               attn_bpe_has_bytes(&tokenizer->bpe, scratch->text.data, scratch->text.len);
    scratch->raw = raw;
    for (size_t i = 0; i < tokenizer->splitters.len; i++)
        ATTN_TEXT_TRY(attn_presplit(&tokenizer->splitters.data[i], scratch, raw));
    if (scratch->text.len > UINT32_MAX)
        return attn_text_fail(ATTN_ERR_UNSUPPORTED, "text has more than %u bytes when prepared for the model", UINT32_MAX);
    for (size_t i = 0; i < scratch->splits.len; i++) {
        const attn_split *split = &scratch->splits.data[i];
        if (split->added >= 0)
            ATTN_TEXT_TRY(add_added(tokenizer, scratch, split, out));
        else if (split->start < split->end)
            ATTN_TEXT_TRY(attn_tokenizer_model_encode(tokenizer, scratch, split->start, split->end, out));
    }
    return ATTN_OK;
}

static attn_status encode_text(const attn_tokenizer *tokenizer, attn_scratch *scratch, uint32_t flags, attn_pieces *out)
{
    attn_worktext *text = &scratch->text;
    out->len = 0;
    scratch->segments.len = 0;
    if (tokenizer->added.raw.n_nodes)
        ATTN_TEXT_TRY(attn_added_cut(tokenizer, &tokenizer->added.raw, text->original, text->original_len,
                                     flags & ATTN_ENCODE_SPECIALS_AS_TEXT, &scratch->segments));
    else if (text->original_len)
        ATTN_TEXT_TRY(attn_splits_add(&scratch->segments, 0, text->original_len, -1));
    for (size_t i = 0; i < scratch->segments.len; i++) {
        const attn_split *segment = &scratch->segments.data[i];
        if (segment->added >= 0) {
            attn_worktext_set(text, 0, text->original_len);
            ATTN_TEXT_TRY(add_added(tokenizer, scratch, segment, out));
        } else {
            attn_worktext_set(text, segment->start, segment->end);
            ATTN_TEXT_TRY(encode_segment(tokenizer, scratch, flags, out));
        }
    }
    return ATTN_OK;
}

/* ---- The call ---- */

static attn_status read_options(const attn_encode_options *given, attn_encode_options *options)
{
    memset(options, 0, sizeof *options);
    if (given) {
        char text[ATTN_ARGS_TEXT_BYTES];
        const attn_status status = attn_args_read(options, sizeof *options, given, "options", text);
        if (status != ATTN_OK)
            return attn_text_fail(status, "%s", text);
    }
    const uint32_t known = ATTN_ENCODE_NO_SPECIAL | ATTN_ENCODE_SPECIALS_AS_TEXT | ATTN_ENCODE_REPLACE_INVALID |
                           ATTN_ENCODE_TRUNCATE_LEFT;
    if (options->flags & ~known)
        return attn_text_fail(ATTN_ERR_UNSUPPORTED, "options.flags is 0x%x, known are 0x%x", (unsigned)options->flags,
                              (unsigned)known);
    if (options->max_length < 0)
        return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "options.max_length is %lld", (long long)options->max_length);
    return ATTN_OK;
}

static attn_status encode_all(const attn_tokenizer *tokenizer, attn_scratch *scratch, const attn_text texts[2],
                              const attn_encode_options *options, attn_encoding *encoding)
{
    static const char *const names[2] = {"text", "pair"};
    int n_texts = texts[1].data ? 2 : 1;
    scratch->extra.len = 0;
    for (int i = 0; i < n_texts; i++) {
        ATTN_TEXT_TRY(checked_text(texts[i].data, texts[i].size, names[i], options->flags, &scratch->replaced[i],
                                   &scratch->text));
        encoding->texts[i].len = 0;
        ATTN_TEXT_TRY(attn_strbuf_add(&encoding->texts[i], scratch->text.original, scratch->text.original_len));
        ATTN_TEXT_TRY(encode_text(tokenizer, scratch, options->flags, &scratch->pieces[i]));
    }
    return attn_post_process(tokenizer, scratch, n_texts, options, encoding);
}

attn_status attn_tokenizer_encode(const attn_tokenizer *tokenizer, const char *text, size_t text_bytes,
                                  const char *pair, size_t pair_bytes, const attn_encode_options *options,
                                  attn_encoding *encoding)
{
    attn_text_clear_error();
    if (encoding)
        encoding->len = 0;
    if (!tokenizer || !encoding || (!text && text_bytes))
        return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "%s is NULL",
                              !tokenizer ? "tokenizer" : !encoding ? "encoding" : "text");
    encoding->has_chars = false;
    encoding->tokenizer = tokenizer;
    attn_encode_options wanted;
    ATTN_TEXT_TRY(read_options(options, &wanted));
    attn_scratch *scratch = NULL;
    ATTN_TEXT_TRY(scratch_take(tokenizer, &scratch));
    const attn_text texts[2] = {{text ? text : "", text_bytes}, {pair, pair_bytes}};
    attn_status status = encode_all(tokenizer, scratch, texts, &wanted, encoding);
    if (status != ATTN_OK)
        encoding->len = 0;
    scratch_give_back(tokenizer, scratch);
    return status;
}
