/* worktext.h - text on its way from the caller's bytes to pieces: normalisers and pre-tokenizers rewrite it, and every
 * byte remembers which bytes of the original it came from. */
#ifndef ATTN_TEXT_WORKTEXT_H
#define ATTN_TEXT_WORKTEXT_H

#include "text/utf8.h"

typedef struct attn_origins {
    char *data;
    uint32_t *start, *end; /* one of each per byte */
    size_t cap;
} attn_origins;

typedef struct attn_worktext {
    const char *original; /* the whole text of the call, well-formed UTF-8 */
    size_t original_len;
    const char *data;     /* the present form of the part in work */
    size_t len;
    size_t origin;        /* start and end NULL: byte i is byte origin + i of the original */
    const uint32_t *start, *end; /* else: byte i stands for original bytes [start[i], end[i]) */
    attn_origins storage[2];
    int current; /* which storage data lies in, where it does */
} attn_worktext;

/* Starts work on original[from, to). */
void attn_worktext_set(attn_worktext *text, size_t from, size_t to);
void attn_worktext_free(attn_worktext *text);

/* Original range of the character that byte `at` belongs to. */
static inline void attn_worktext_range(const attn_worktext *text, size_t at, uint32_t *start, uint32_t *end)
{
    if (text->start) {
        *start = text->start[at];
        *end = text->end[at];
        return;
    }
    while (at > 0 && attn_utf8_continues(text->data[at]))
        at--;
    *start = (uint32_t)(text->origin + at);
    *end = *start + (uint32_t)attn_utf8_size(text->data[at]);
}

/* One pass over the text that writes its next form. The pass reads from `at`; characters are written with a count
 * of what they stand for, in the convention of Hugging Face's NormalizedString:
 *   change <= 0   replaces the character at `at` and swallows -change more; its origin is that character's
 *   change  > 0   is new; its origin is that of the byte before `at` */
typedef struct attn_rewriter {
    attn_worktext *text;
    attn_origins *out;
    size_t at;
    size_t len;
} attn_rewriter;

void attn_rewrite_begin(attn_rewriter *rewriter, attn_worktext *text);
attn_status attn_rewrite_put(attn_rewriter *rewriter, uint32_t point, int change);
/* Copies n bytes (whole characters) as they are. */
attn_status attn_rewrite_copy(attn_rewriter *rewriter, size_t n);
/* Writes bytes that are new: their origin is that of the byte before `at`. */
attn_status attn_rewrite_insert(attn_rewriter *rewriter, const char *bytes, size_t n);
/* Writes bytes in front of the character at `at`: their origin is that character's. */
attn_status attn_rewrite_prepend(attn_rewriter *rewriter, const char *bytes, size_t n);
/* The written form becomes the text. */
void attn_rewrite_end(attn_rewriter *rewriter);

#endif
