/* unicode.h - the properties of code points that tokenizers ask for, as Rust's and BERT's code define them. */
#ifndef ATTN_TEXT_UNICODE_H
#define ATTN_TEXT_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

/* White_Space. */
bool attn_is_space(uint32_t point);
/* General category N. */
bool attn_is_numeric(uint32_t point);
/* \w of Unicode's regular expressions: Alphabetic, marks, decimal digits, connectors, join controls. */
bool attn_is_word(uint32_t point);
/* ASCII punctuation and general category P. */
bool attn_is_punctuation(uint32_t point);
/* General categories Cc, Cf, Cs and Co: other, but for the unassigned. */
bool attn_is_other(uint32_t point);
/* General category Mn. */
bool attn_is_nonspacing_mark(uint32_t point);
/* General category M. */
bool attn_is_mark(uint32_t point);
/* BERT's CJK blocks. */
bool attn_is_chinese(uint32_t point);

#endif
