/* decode.c - ids back to text. Decoders are stages in a row; each takes one token at a time and hands text on as soon as
 * nothing that may follow can change it, so that decoding as a stream and decoding at once are the same code.
 *
 * "fuse" and the byte-level stage turn all tokens into one. From there on, what a stage receives is the next part of that
 * one token; a stage that cannot work in parts gathers it until the end.
 */
#include "text/bytelevel.h"
#include "text/tokenizer_impl.h"

typedef struct stage {
    const attn_step *step; /* NULL: join tokens with blanks */
    bool fused;            /* receives parts of one token */
    int64_t index;         /* tokens so far */
    int64_t cut;           /* STRIP_TOKEN on parts: characters cut at the beginning; -1: done with that */
    attn_strbuf held;      /* not handed on yet */
} stage;

struct attn_decode_stream {
    const attn_tokenizer *tokenizer;
    uint32_t flags;
    stage *stages;
    size_t n_stages;
    attn_strbuf out;
};

static attn_status process(attn_decode_stream *stream, size_t k, const char *text, size_t len);

/* Text for stage k: a token, or a part where the stage's input is fused. */
static attn_status give(attn_decode_stream *stream, size_t k, const char *text, size_t len)
{
    if (k == stream->n_stages)
        return attn_strbuf_add(&stream->out, text, len);
    stage *s = &stream->stages[k];
    if (s->fused && (!s->step || s->step->kind != ATTN_STEP_STRIP_TOKEN))
        return attn_strbuf_add(&s->held, text, len);
    return process(stream, k, text ? text : "", len); /* an empty buffer has no memory */
}

/* ---- Stages ---- */

/* Hands on the part of the held bytes that is settled: characters, and U+FFFD for what cannot become one. */
static attn_status settle_bytes(attn_decode_stream *stream, size_t k, bool at_end)
{
    stage *s = &stream->stages[k];
    size_t at = 0;
    attn_status status = ATTN_OK;
    while (at < s->held.len && status == ATTN_OK) {
        size_t valid = attn_utf8_valid_prefix(s->held.data + at, s->held.len - at);
        if (valid)
            status = give(stream, k + 1, s->held.data + at, valid);
        at += valid;
        if (status != ATTN_OK || at == s->held.len)
            break;
        bool truncated;
        size_t bad = attn_utf8_bad_part(s->held.data + at, s->held.len - at, &truncated);
        if (truncated && !at_end)
            break;
        status = give(stream, k + 1, "\xef\xbf\xbd", 3);
        at += bad;
    }
    if (at)
        memmove(s->held.data, s->held.data + at, s->held.len - at);
    s->held.len -= at;
    return status;
}

static attn_status byte_level(attn_decode_stream *stream, size_t k, const char *text, size_t len)
{
    stage *s = &stream->stages[k];
    bool all;
    ATTN_TEXT_TRY(attn_bytelevel_bytes(text, len, &s->held, &all));
    if (!all)
        ATTN_TEXT_TRY(attn_strbuf_add(&s->held, text, len));
    return settle_bytes(stream, k, false);
}

/* The value of "<0xHH>", -1 when the token is not one. */
static int fallback_byte(const char *text, size_t len)
{
    if (len != 6 || memcmp(text, "<0x", 3) || text[5] != '>')
        return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* A run of byte tokens is text when all of it is UTF-8, else one U+FFFD per byte: known only when the run ends. */
static attn_status end_byte_run(attn_decode_stream *stream, size_t k)
{
    attn_strbuf *held = &stream->stages[k].held;
    size_t len = held->len;
    if (!len)
        return ATTN_OK;
    held->len = 0;
    if (attn_utf8_valid_prefix(held->data, len) == len)
        return give(stream, k + 1, held->data, len);
    for (size_t i = 0; i < len; i++)
        ATTN_TEXT_TRY(give(stream, k + 1, "\xef\xbf\xbd", 3));
    return ATTN_OK;
}

static attn_status byte_fallback(attn_decode_stream *stream, size_t k, const char *text, size_t len)
{
    int byte = fallback_byte(text, len);
    if (byte >= 0) {
        char c = (char)byte;
        return attn_strbuf_add(&stream->stages[k].held, &c, 1);
    }
    ATTN_TEXT_TRY(end_byte_run(stream, k));
    return give(stream, k + 1, text, len);
}

/* Appends text with every `from` replaced by `to`. */
static attn_status add_replaced(attn_strbuf *out, const char *text, size_t len, const char *from, size_t from_len,
                                const char *to, size_t to_len)
{
    const char *end = text + len, *found;
    while (from_len && (size_t)(end - text) >= from_len &&
           (found = memmem(text, (size_t)(end - text), from, from_len)) != NULL) {
        ATTN_TEXT_TRY(attn_strbuf_add(out, text, (size_t)(found - text)));
        ATTN_TEXT_TRY(attn_strbuf_add(out, to, to_len));
        text = found + from_len;
    }
    return attn_strbuf_add(out, text, (size_t)(end - text));
}

/* BERT's clean-up of English: one replacement after another, as Hugging Face's WordPiece decoder does it per token. */
static attn_status clean_up(attn_strbuf *text)
{
    static const char *const rules[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},     {" ,", ","},
                                           {" ' ", "'"},    {" n't", "n't"},       {" 'm", "'m"},   {" do not", " don't"},
                                           {" 's", "'s"},   {" 've", "'ve"},       {" 're", "'re"}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const char *from = rules[i][0], *to = rules[i][1];
        if (!text->len || !memmem(text->data, text->len, from, strlen(from)))
            continue;
        attn_strbuf cleaned = {0};
        attn_status status = add_replaced(&cleaned, text->data, text->len, from, strlen(from), to, strlen(to));
        attn_strbuf_free(text);
        *text = cleaned;
        ATTN_TEXT_TRY(status);
    }
    return ATTN_OK;
}

static attn_status wordpiece(attn_decode_stream *stream, size_t k, const char *text, size_t len)
{
    stage *s = &stream->stages[k];
    const attn_strbuf *prefix = &s->step->content;
    attn_strbuf token = {0};
    attn_status status = ATTN_OK;
    if (s->index > 0 && len >= prefix->len && (!prefix->len || !memcmp(text, prefix->data, prefix->len))) {
        text += prefix->len;
        len -= prefix->len;
    } else if (s->index > 0) {
        status = attn_strbuf_add(&token, " ", 1);
    }
    if (status == ATTN_OK)
        status = attn_strbuf_add(&token, text, len);
    if (status == ATTN_OK && s->step->cleanup)
        status = clean_up(&token);
    if (status == ATTN_OK)
        status = give(stream, k + 1, token.data, token.len);
    attn_strbuf_free(&token);
    return status;
}

static attn_status metaspace(attn_decode_stream *stream, size_t k, const char *text, size_t len)
{
    stage *s = &stream->stages[k];
    char mark[4];
    size_t size = attn_utf8_put(s->step->point, mark);
    bool drop = s->index == 0 && s->step->prepend != ATTN_PREPEND_NEVER;
    attn_strbuf token = {0};
    attn_status status = add_replaced(&token, text, len, mark, size, drop ? "" : " ", drop ? 0 : 1);
    if (status == ATTN_OK)
        status = give(stream, k + 1, token.data, token.len);
    attn_strbuf_free(&token);
    return status;
}

static attn_status replace(attn_decode_stream *stream, size_t k, const char *text, size_t len)
{
    const attn_step *step = stream->stages[k].step;
    attn_strbuf token = {0};
    attn_status status = attn_replace(step, NULL, text, len, &token);
    if (status == ATTN_OK)
        status = give(stream, k + 1, token.data, token.len);
    attn_strbuf_free(&token);
    return status;
}

/* How many bytes of `mark` stand at the beginning of text, at most `most` times. */
static size_t leading_marks(const char *text, size_t len, const char *mark, size_t size, int64_t most, int64_t *count)
{
    size_t at = 0;
    for (*count = 0; *count < most && len - at >= size && !memcmp(text + at, mark, size); ++*count)
        at += size;
    return at;
}

static attn_status strip_token(attn_decode_stream *stream, size_t k, const char *text, size_t len)
{
    stage *s = &stream->stages[k];
    char mark[4];
    size_t size = attn_utf8_put(s->step->point, mark);
    int64_t count;
    if (!s->fused) {
        size_t cut = leading_marks(text, len, mark, size, s->step->start, &count);
        size_t end = len;
        for (int64_t n = 0; n < s->step->stop && end >= cut + size && !memcmp(text + end - size, mark, size); n++)
            end -= size;
        return give(stream, k + 1, text + cut, end - cut);
    }
    if (s->cut >= 0) {
        size_t cut = leading_marks(text, len, mark, size, s->step->start - s->cut, &count);
        s->cut += count;
        text += cut;
        len -= cut;
        if (len || s->cut == s->step->start)
            s->cut = -1;
    }
    if (!s->step->stop)
        return give(stream, k + 1, text, len);
    /* Marks at the end may be the last ones: hold back up to `stop` of them. */
    if (!len)
        return ATTN_OK;
    ATTN_TEXT_TRY(attn_strbuf_add(&s->held, text, len));
    size_t keep = s->held.len;
    for (int64_t n = 0; n < s->step->stop && keep >= size && !memcmp(s->held.data + keep - size, mark, size); n++)
        keep -= size;
    ATTN_TEXT_TRY(give(stream, k + 1, s->held.data, keep));
    if (keep)
        memmove(s->held.data, s->held.data + keep, s->held.len - keep);
    s->held.len -= keep;
    return ATTN_OK;
}

/* The suffix marks the end of a word: a blank follows, but not behind the last token. */
static attn_status bpe_suffix(attn_decode_stream *stream, size_t k, bool last)
{
    stage *s = &stream->stages[k];
    const attn_strbuf *suffix = &s->step->content;
    attn_strbuf token = {0};
    attn_status status = add_replaced(&token, s->held.data, s->held.len, suffix->data, suffix->len, last ? "" : " ", !last);
    s->held.len = 0;
    if (status == ATTN_OK)
        status = give(stream, k + 1, token.data, token.len);
    attn_strbuf_free(&token);
    return status;
}

static attn_status process_step(attn_decode_stream *stream, size_t k, const char *text, size_t len)
{
    stage *s = &stream->stages[k];
    switch (s->step->kind) {
    case ATTN_STEP_BYTE_LEVEL:
        return byte_level(stream, k, text, len);
    case ATTN_STEP_BYTE_FALLBACK:
        return byte_fallback(stream, k, text, len);
    case ATTN_STEP_WORDPIECE:
        return wordpiece(stream, k, text, len);
    case ATTN_STEP_METASPACE:
        return metaspace(stream, k, text, len);
    case ATTN_STEP_REPLACE:
        return replace(stream, k, text, len);
    case ATTN_STEP_STRIP_TOKEN:
        return strip_token(stream, k, text, len);
    case ATTN_STEP_BPE_SUFFIX:
        if (s->index > 0)
            ATTN_TEXT_TRY(bpe_suffix(stream, k, false));
        return attn_strbuf_add(&s->held, text, len);
    default: /* FUSE: the next stage takes it as a part */
        return give(stream, k + 1, text, len);
    }
}

static attn_status process(attn_decode_stream *stream, size_t k, const char *text, size_t len)
{
    stage *s = &stream->stages[k];
    if (!s->step) {
        if (s->index > 0)
            ATTN_TEXT_TRY(give(stream, k + 1, " ", 1));
        ATTN_TEXT_TRY(give(stream, k + 1, text, len));
    } else {
        ATTN_TEXT_TRY(process_step(stream, k, text, len));
    }
    s->index++;
    return ATTN_OK;
}

static attn_status finish_stage(attn_decode_stream *stream, size_t k)
{
    stage *s = &stream->stages[k];
    enum attn_step_kind kind = s->step ? s->step->kind : ATTN_STEP_FUSE;
    if (s->fused && kind != ATTN_STEP_STRIP_TOKEN) { /* the one token is complete */
        attn_strbuf whole = s->held;
        memset(&s->held, 0, sizeof s->held);
        attn_status status = process(stream, k, whole.data ? whole.data : "", whole.len);
        attn_strbuf_free(&whole);
        ATTN_TEXT_TRY(status);
    }
    if (kind == ATTN_STEP_BYTE_LEVEL)
        ATTN_TEXT_TRY(settle_bytes(stream, k, true));
    else if (kind == ATTN_STEP_BYTE_FALLBACK)
        ATTN_TEXT_TRY(end_byte_run(stream, k));
    else if (kind == ATTN_STEP_BPE_SUFFIX && s->index > 0)
        ATTN_TEXT_TRY(bpe_suffix(stream, k, true));
    s->held.len = 0;
    s->index = 0;
    s->cut = 0;
    return ATTN_OK;
}

/* ---- Streams ---- */

attn_status attn_decode_stream_create(const attn_tokenizer *tokenizer, uint32_t flags, attn_decode_stream **stream)
{
    attn_text_clear_error();
    if (!tokenizer || !stream)
        return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "%s is NULL", !tokenizer ? "tokenizer" : "stream");
    *stream = NULL;
    if (flags & ~(uint32_t)ATTN_DECODE_SKIP_SPECIAL)
        return attn_text_fail(ATTN_ERR_UNSUPPORTED, "flags is 0x%x, known is 0x%x", (unsigned)flags,
                              (unsigned)ATTN_DECODE_SKIP_SPECIAL);
    attn_decode_stream *made = calloc(1, sizeof *made);
    size_t n = tokenizer->has_decoder ? tokenizer->decoders.len : 1;
    if (made)
        made->stages = calloc(n ? n : 1, sizeof *made->stages);
    if (!made || !made->stages) {
        free(made);
        return attn_text_no_memory();
    }
    made->tokenizer = tokenizer;
    made->flags = flags;
    made->n_stages = n;
    bool fused = false;
    for (size_t k = 0; k < n && tokenizer->has_decoder; k++) {
        made->stages[k].step = &tokenizer->decoders.data[k];
        made->stages[k].fused = fused;
        enum attn_step_kind kind = tokenizer->decoders.data[k].kind;
        fused |= kind == ATTN_STEP_FUSE || kind == ATTN_STEP_BYTE_LEVEL;
    }
    *stream = made;
    return ATTN_OK;
}

void attn_decode_stream_destroy(attn_decode_stream *stream)
{
    if (!stream)
        return;
    for (size_t k = 0; k < stream->n_stages; k++)
        attn_strbuf_free(&stream->stages[k].held);
    free(stream->stages);
    attn_strbuf_free(&stream->out);
    free(stream);
}

/* Adds what can be shown after one more id to stream->out. */
static attn_status push(attn_decode_stream *stream, int32_t id)
{
    const attn_vocab *vocab = &stream->tokenizer->vocab;
    if (id < 0)
        return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "id is %d", (int)id);
    int32_t entry = attn_vocab_entry_of(vocab, id);
    const uint32_t kind = entry < 0 ? 0 : vocab->entries[entry].flags & (ATTN_TOKEN_SPECIAL | ATTN_TOKEN_RESPELLED);
    if (entry < 0 || (stream->flags & ATTN_DECODE_SKIP_SPECIAL && kind == ATTN_TOKEN_SPECIAL))
        return ATTN_OK;
    return give(stream, 0, vocab->text.data + vocab->entries[entry].shown_at, vocab->entries[entry].shown_len);
}

static attn_status finish(attn_decode_stream *stream)
{
    attn_status status = ATTN_OK;
    for (size_t k = 0; k < stream->n_stages && status == ATTN_OK; k++)
        status = finish_stage(stream, k);
    return status;
}

attn_status attn_decode_stream_push(attn_decode_stream *stream, int32_t id, const char **text, size_t *n_bytes)
{
    attn_text_clear_error();
    if (!stream || !text || !n_bytes)
        return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "%s is NULL", !stream ? "stream" : !text ? "text" : "n_bytes");
    stream->out.len = 0;
    ATTN_TEXT_TRY(push(stream, id));
    *text = stream->out.data ? stream->out.data : "";
    *n_bytes = stream->out.len;
    return ATTN_OK;
}

attn_status attn_decode_stream_finish(attn_decode_stream *stream, const char **text, size_t *n_bytes)
{
    attn_text_clear_error();
    if (!stream || !text || !n_bytes)
        return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "%s is NULL", !stream ? "stream" : !text ? "text" : "n_bytes");
    stream->out.len = 0;
    ATTN_TEXT_TRY(finish(stream));
    *text = stream->out.data ? stream->out.data : "";
    *n_bytes = stream->out.len;
    return ATTN_OK;
}

attn_status attn_tokenizer_decode(const attn_tokenizer *tokenizer, const int32_t *ids, int64_t n_ids, uint32_t flags,
                                  char *text, size_t capacity, size_t *n_bytes)
{
    attn_text_clear_error();
    if (!n_bytes || (!ids && n_ids > 0) || (!text && capacity))
        return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "%s is NULL", !n_bytes ? "n_bytes" : !ids ? "ids" : "text");
    if (n_ids < 0)
        return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "n_ids is %lld", (long long)n_ids);
    attn_decode_stream *stream;
    ATTN_TEXT_TRY(attn_decode_stream_create(tokenizer, flags, &stream));
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < n_ids && status == ATTN_OK; i++)
        if (ids[i] < 0)
            status = attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "ids[%lld] is %d", (long long)i, (int)ids[i]);
        else
            status = push(stream, ids[i]);
    if (status == ATTN_OK)
        status = finish(stream);
    if (status == ATTN_OK) {
        *n_bytes = stream->out.len;
        size_t copied = stream->out.len < capacity ? stream->out.len : capacity;
        if (copied)
            memcpy(text, stream->out.data, copied);
    }
    attn_decode_stream_destroy(stream);
    return status;
}
