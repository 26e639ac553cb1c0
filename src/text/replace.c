/* replace.c - replacing every match of a pattern, for the normaliser and the decoder of that name. */
#include "text/tokenizer_impl.h"

attn_status attn_step_match(const attn_step *step, attn_regex_scratch *scratch, const char *text, size_t len, size_t at,
                            bool not_empty_at, size_t *start, size_t *end)
{
    if (step->regex)
        return attn_regex_find(step->regex, scratch, text, len, at, not_empty_at, start, end);
    const char *found = step->pattern.len && at < len ? memmem(text + at, len - at, step->pattern.data, step->pattern.len) : NULL;
    *start = found ? (size_t)(found - text) : SIZE_MAX;
    *end = found ? *start + step->pattern.len : SIZE_MAX;
    return ATTN_OK;
}

attn_status attn_replace(const attn_step *step, attn_regex_scratch *scratch, const char *text, size_t len, attn_strbuf *out)
{
    attn_regex_scratch *own = NULL;
    if (step->regex && !scratch) {
        ATTN_TEXT_TRY(attn_regex_scratch_create(&own));
        scratch = own;
    }
    attn_status status = ATTN_OK;
    size_t done = 0, at = 0;
    bool not_empty = false; /* right behind a match nothing is not another one */
    while (at <= len && status == ATTN_OK) {
        size_t start, end;
        status = attn_step_match(step, scratch, text, len, at, not_empty, &start, &end);
        if (status != ATTN_OK || start == SIZE_MAX)
            break;
        status = attn_strbuf_add(out, text + done, start - done);
        if (status == ATTN_OK)
            status = attn_strbuf_add(out, step->content.data, step->content.len);
        done = end;
        not_empty = end > start;
        at = end > start ? end : end < len ? end + attn_utf8_size(text[end]) : len + 1;
    }
    if (status == ATTN_OK)
        status = attn_strbuf_add(out, text + done, len - done);
    attn_regex_scratch_destroy(own);
    return status;
}
