/* regex.h - split patterns: Oniguruma's spelling (as in tokenizer.json), matched by PCRE2. */
#ifndef ATTN_TEXT_REGEX_H
#define ATTN_TEXT_REGEX_H

#include "text/strbuf.h"

typedef struct attn_regex attn_regex;
typedef struct attn_regex_scratch attn_regex_scratch; /* per thread: match data and the JIT's stack */

/* Compiles `pattern`; `where` names the field for the error text. Returns OK; FORMAT; OUT_OF_MEMORY. */
attn_status attn_regex_create(const char *pattern, size_t len, const char *where, attn_regex **regex);
void attn_regex_destroy(attn_regex *regex);

attn_status attn_regex_scratch_create(attn_regex_scratch **scratch);
void attn_regex_scratch_destroy(attn_regex_scratch *scratch);

/* The first match in text[0, len) that starts at or after `at`: [*start, *end), or *start = SIZE_MAX when there is
 * none. text must be well-formed UTF-8. An empty match at `at` itself is refused where `not_empty_at` says so.
 * Returns OK; UNSUPPORTED when the pattern exceeds its limits on this text. */
attn_status attn_regex_find(const attn_regex *regex, attn_regex_scratch *scratch, const char *text, size_t len,
                            size_t at, bool not_empty_at, size_t *start, size_t *end);

#endif
