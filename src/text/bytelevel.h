/* bytelevel.h - GPT-2's alphabet: one visible character per byte, so that byte-level vocabularies are text. */
#ifndef ATTN_TEXT_BYTELEVEL_H
#define ATTN_TEXT_BYTELEVEL_H

#include "text/utf8.h"

/* The code point that stands for a byte: itself where it is visible in Latin-1, else U+0100 and up, in order. */
uint32_t attn_bytelevel_point(unsigned char byte);

/* The byte that a code point stands for, -1 when it is none of the 256. */
int attn_bytelevel_byte(uint32_t point);

/* Appends the bytes that a spelling of the alphabet stands for and sets *all; a spelling with any other character appends
 * nothing and clears it. */
attn_status attn_bytelevel_bytes(const char *text, size_t len, attn_strbuf *out, bool *all);

/* GPT-2's split into pieces, as a pattern. */
extern const char attn_bytelevel_pattern[];

#endif
