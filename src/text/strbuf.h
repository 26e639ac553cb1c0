/* strbuf.h - growing arrays: bytes, and anything else through attn_grow. */
#ifndef ATTN_TEXT_STRBUF_H
#define ATTN_TEXT_STRBUF_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "text/text_error.h"

typedef struct attn_strbuf {
    char *data;
    size_t len, cap;
} attn_strbuf;

/* Makes room for `need` elements of `size` bytes in *array, whose capacity is *cap; at least doubles. */
static inline attn_status attn_grow(void *array, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return ATTN_OK;
    size_t want = *cap < SIZE_MAX / 2 / size && 2 * *cap > need ? 2 * *cap : need;
    if (want < 16)
        want = 16;
    if (want > SIZE_MAX / size)
        return attn_text_no_memory();
    void *grown;
    memcpy(&grown, array, sizeof grown);
    grown = realloc(grown, want * size);
    if (!grown)
        return attn_text_no_memory();
    memcpy(array, &grown, sizeof grown);
    *cap = want;
    return ATTN_OK;
}

/* Room for `extra` more bytes. */
static inline attn_status attn_strbuf_reserve(attn_strbuf *buffer, size_t extra)
{
    if (extra > SIZE_MAX - buffer->len)
        return attn_text_no_memory();
    return attn_grow(&buffer->data, &buffer->cap, buffer->len + extra, 1);
}

static inline attn_status attn_strbuf_add(attn_strbuf *buffer, const char *bytes, size_t n)
{
    ATTN_TEXT_TRY(attn_strbuf_reserve(buffer, n));
    if (n)
        memcpy(buffer->data + buffer->len, bytes, n);
    buffer->len += n;
    return ATTN_OK;
}

static inline void attn_strbuf_free(attn_strbuf *buffer)
{
    free(buffer->data);
    memset(buffer, 0, sizeof *buffer);
}

#endif
