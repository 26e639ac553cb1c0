/* worktext.c - text that remembers where its bytes came from. */
#include "text/worktext.h"

void attn_worktext_set(attn_worktext *text, size_t from, size_t to)
{
    text->data = text->original + from;
    text->len = to - from;
    text->origin = from;
    text->start = text->end = NULL;
}

void attn_worktext_free(attn_worktext *text)
{
    for (int i = 0; i < 2; i++) {
        free(text->storage[i].data);
        free(text->storage[i].start);
        free(text->storage[i].end);
    }
    memset(text, 0, sizeof *text);
}

static attn_status reserve(attn_origins *out, size_t need)
{
    if (need <= out->cap)
        return ATTN_OK;
    size_t data_cap = out->cap, start_cap = out->cap, end_cap = out->cap;
    ATTN_TEXT_TRY(attn_grow(&out->data, &data_cap, need, 1));
    ATTN_TEXT_TRY(attn_grow(&out->start, &start_cap, need, sizeof *out->start));
    ATTN_TEXT_TRY(attn_grow(&out->end, &end_cap, need, sizeof *out->end));
    out->cap = data_cap; /* all three grew from the same size to the same size */
    return ATTN_OK;
}

void attn_rewrite_begin(attn_rewriter *rewriter, attn_worktext *text)
{
    rewriter->text = text;
    rewriter->out = &text->storage[text->start ? 1 - text->current : 0];
    rewriter->at = 0;
    rewriter->len = 0;
}

attn_status attn_rewrite_put(attn_rewriter *rewriter, uint32_t point, int change)
{
    attn_worktext *text = rewriter->text;
    attn_origins *out = rewriter->out;
    ATTN_TEXT_TRY(reserve(out, rewriter->len + 4));
    uint32_t start = 0, end = 0;
    if (change > 0) {
        if (rewriter->at > 0)
            attn_worktext_range(text, rewriter->at - 1, &start, &end);
    } else if (rewriter->at < text->len) {
        attn_worktext_range(text, rewriter->at, &start, &end);
        for (int n = change; n <= 0 && rewriter->at < text->len; n++)
            rewriter->at += attn_utf8_size(text->data[rewriter->at]);
    }
    size_t size = attn_utf8_put(point, out->data + rewriter->len);
    for (size_t i = 0; i < size; i++) {
        out->start[rewriter->len + i] = start;
        out->end[rewriter->len + i] = end;
    }
    rewriter->len += size;
    return ATTN_OK;
}

attn_status attn_rewrite_copy(attn_rewriter *rewriter, size_t n)
{
    attn_worktext *text = rewriter->text;
    attn_origins *out = rewriter->out;
    ATTN_TEXT_TRY(reserve(out, rewriter->len + n));
    size_t at = rewriter->at, len = rewriter->len;
    if (!n)
        return ATTN_OK;
    memcpy(out->data + len, text->data + at, n);
    if (text->start) {
        memcpy(out->start + len, text->start + at, n * sizeof *out->start);
        memcpy(out->end + len, text->end + at, n * sizeof *out->end);
    } else {
        for (size_t i = 0; i < n;) {
            size_t size = attn_utf8_size(text->data[at + i]);
            uint32_t start = (uint32_t)(text->origin + at + i);
            for (size_t end = i + size; i < end; i++) {
                out->start[len + i] = start;
                out->end[len + i] = start + (uint32_t)size;
            }
        }
    }
    rewriter->at += n;
    rewriter->len += n;
    return ATTN_OK;
}

static attn_status write_as(attn_rewriter *rewriter, const char *bytes, size_t n, uint32_t start, uint32_t end)
{
    attn_origins *out = rewriter->out;
    ATTN_TEXT_TRY(reserve(out, rewriter->len + n));
    for (size_t i = 0; i < n; i++) {
        out->data[rewriter->len + i] = bytes[i];
        out->start[rewriter->len + i] = start;
        out->end[rewriter->len + i] = end;
    }
    rewriter->len += n;
    return ATTN_OK;
}

attn_status attn_rewrite_insert(attn_rewriter *rewriter, const char *bytes, size_t n)
{
    uint32_t start = 0, end = 0;
    if (rewriter->at > 0)
        attn_worktext_range(rewriter->text, rewriter->at - 1, &start, &end);
    return write_as(rewriter, bytes, n, start, end);
}

attn_status attn_rewrite_prepend(attn_rewriter *rewriter, const char *bytes, size_t n)
{
    uint32_t start = 0, end = 0;
    if (rewriter->at < rewriter->text->len)
        attn_worktext_range(rewriter->text, rewriter->at, &start, &end);
    return write_as(rewriter, bytes, n, start, end);
}

void attn_rewrite_end(attn_rewriter *rewriter)
{
    attn_worktext *text = rewriter->text;
    text->current = (int)(rewriter->out - text->storage);
    text->data = rewriter->out->data;
    text->start = rewriter->out->start;
    text->end = rewriter->out->end;
    text->len = rewriter->len;
}
