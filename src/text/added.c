/* added.c - added tokens: cut out of the text before anything else looks at it. */
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

attn_status attn_splits_add(attn_splits *splits, size_t start, size_t end, int32_t added)
{
    ATTN_TEXT_TRY(attn_grow(&splits->data, &splits->cap, splits->len + 1, sizeof *splits->data));
    splits->data[splits->len++] = (attn_split){(uint32_t)start, (uint32_t)end, added};
    return ATTN_OK;
}

attn_status attn_added_add(attn_tokenizer *tokenizer, const attn_added_token *token)
{
    attn_added *added = &tokenizer->added;
    size_t len;
    attn_vocab_text(&tokenizer->vocab, token->entry, &len);
    if (!len)
        return ATTN_OK;
    ATTN_TEXT_TRY(attn_grow(&added->tokens, &added->cap, added->len + 1, sizeof *added->tokens));
    added->tokens[added->len++] = *token;
    attn_token_entry *entry = &tokenizer->vocab.entries[token->entry];
    entry->flags |= (uint32_t)ATTN_TOKEN_ADDED | (token->special ? (uint32_t)ATTN_TOKEN_SPECIAL : 0);
    return ATTN_OK;
}

static uint32_t point_before(const char *text, size_t at)
{
    size_t start = at - 1;
    while (start > 0 && attn_utf8_continues(text[start]))
        start--;
    return attn_utf8_get(text + start, at - start);
}

static bool stands_alone(const char *text, size_t len, size_t start, size_t end)
{
    return (start == 0 || !attn_is_word(point_before(text, start))) &&
           (end == len || !attn_is_word(attn_utf8_get(text + end, attn_utf8_size(text[end]))));
}

static size_t blanks_before(const char *text, size_t start, size_t least)
{
    while (start > least && attn_is_space(point_before(text, start))) {
        start--;
        while (start > least && attn_utf8_continues(text[start]))
            start--;
    }
    return start;
}

static size_t blanks_behind(const char *text, size_t len, size_t end)
{
    while (end < len && attn_is_space(attn_utf8_get(text + end, attn_utf8_size(text[end]))))
        end += attn_utf8_size(text[end]);
    return end;
}

attn_status attn_added_cut(const attn_tokenizer *tokenizer, const attn_trie *trie, const char *text, size_t len,
                           bool specials_as_text, attn_splits *out)
{
    size_t done = 0; /* everything before is in out */
    for (size_t at = 0; at < len;) {
        size_t matched;
        int32_t index;
        if (!trie->first[(unsigned char)text[at]] ||
            (index = attn_trie_longest(trie, text + at, len - at, &matched)) < 0) {
            at++;
            continue;
        }
        const attn_added_token *token = &tokenizer->added.tokens[index];
        size_t start = at, end = at + matched;
        at = end; /* a match that is turned down is not looked into again */
        if ((specials_as_text && token->special) || (token->single_word && !stands_alone(text, len, start, end)))
            continue;
        if (token->lstrip)
            start = start > done ? blanks_before(text, start, done) : done;
        if (token->rstrip)
            end = blanks_behind(text, len, end);
        if (start >= end) /* blanks that the token before has taken */
            continue;
        if (start > done)
            ATTN_TEXT_TRY(attn_splits_add(out, done, start, -1));
        ATTN_TEXT_TRY(attn_splits_add(out, start, end, index));
        done = end;
    }
    return done < len ? attn_splits_add(out, done, len, -1) : ATTN_OK;
}
