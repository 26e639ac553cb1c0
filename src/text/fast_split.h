/* fast_split.h - the split patterns that everybody uses, by hand. */
#ifndef ATTN_TEXT_FAST_SPLIT_H
#define ATTN_TEXT_FAST_SPLIT_H

#include <stddef.h>

enum attn_fast_split {
    ATTN_FAST_NONE, /* some other pattern */
    ATTN_FAST_GPT2, /* attn_bytelevel_pattern */
    ATTN_FAST_LLAMA3,
    ATTN_FAST_QWEN2 /* as Llama 3, digits one by one */
};

/* Patterns as tokenizer.json files spell them. */
extern const char attn_llama3_pattern[];
extern const char attn_qwen2_pattern[];

/* Which of them a pattern is. */
enum attn_fast_split attn_fast_split_of(const char *pattern, size_t len);

/* Length of the match at text[at], where at < len: what the pattern finds there. 0 when a character that matters is not
 * ASCII: then the pattern itself must be asked. (These patterns match at every place.) */
size_t attn_fast_split(enum attn_fast_split kind, const char *text, size_t len, size_t at);

#endif
