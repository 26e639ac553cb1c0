/* utf8.h - UTF-8: checking, decoding, encoding, replacing what is ill-formed. */
#ifndef ATTN_TEXT_UTF8_H
#define ATTN_TEXT_UTF8_H

#include <stdint.h>

#include "text/strbuf.h"

/* Length of the valid prefix of text: `len` when all of it is well-formed (no surrogates, no overlong forms). */
size_t attn_utf8_valid_prefix(const char *text, size_t len);

/* Length in bytes (1 to 3) of the maximal ill-formed part that starts at text, which must be ill-formed there: what one
 * U+FFFD stands for (Unicode 15, section 3.9, "substitution of maximal subparts"). *truncated: the part reaches the end
 * and could become a character with more bytes. */
size_t attn_utf8_bad_part(const char *text, size_t len, bool *truncated);

/* Appends text with every ill-formed part replaced by U+FFFD. */
attn_status attn_utf8_add_lossy(attn_strbuf *out, const char *text, size_t len);

/* True when no byte is above 127. */
bool attn_utf8_is_ascii(const char *text, size_t len);

/* Number of code points of well-formed text. */
size_t attn_utf8_count(const char *text, size_t len);

static inline bool attn_utf8_continues(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

/* Bytes of the character that starts with this byte, in well-formed text. */
static inline size_t attn_utf8_size(char first)
{
    unsigned char c = (unsigned char)first;
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* The code point at text, which is well-formed. */
static inline uint32_t attn_utf8_get(const char *text, size_t size)
{
    const unsigned char *c = (const unsigned char *)text;
    switch (size) {
    case 1:
        return c[0];
    case 2:
        return (c[0] & 0x1fu) << 6 | (c[1] & 0x3fu);
    case 3:
        return (c[0] & 0x0fu) << 12 | (c[1] & 0x3fu) << 6 | (c[2] & 0x3fu);
    default:
        return (c[0] & 0x07u) << 18 | (c[1] & 0x3fu) << 12 | (c[2] & 0x3fu) << 6 | (c[3] & 0x3fu);
    }
}

/* Writes a code point as UTF-8; returns its size. */
static inline size_t attn_utf8_put(uint32_t point, char out[4])
{
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    if (point < 0x800) {
        out[0] = (char)(0xc0 | point >> 6);
        out[1] = (char)(0x80 | (point & 0x3f));
        return 2;
    }
    if (point < 0x10000) {
        out[0] = (char)(0xe0 | point >> 12);
        out[1] = (char)(0x80 | (point >> 6 & 0x3f));
        out[2] = (char)(0x80 | (point & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | point >> 18);
    out[1] = (char)(0x80 | (point >> 12 & 0x3f));
    out[2] = (char)(0x80 | (point >> 6 & 0x3f));
    out[3] = (char)(0x80 | (point & 0x3f));
    return 4;
}

#endif
