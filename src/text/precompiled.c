/* precompiled.c - SentencePiece's precompiled character maps: a double-array trie of sources, and their replacements as
 * zero-ended texts behind it. Layout: uint32 bytes of the trie, the trie's uint32 units, the texts (all little endian). */
#include <utf8proc.h>

#include "text/normalize.h"

static uint32_t read_u32(const char *bytes)
{
    const unsigned char *b = (const unsigned char *)bytes;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

attn_status attn_precompiled_check(const attn_strbuf *map)
{
    if (map->len < 4)
        return ATTN_ERR_FORMAT;
    uint32_t trie = read_u32(map->data);
    bool fits = trie % 4 == 0 && trie >= 4 && trie <= map->len - 4;
    /* The last text must end, so that no text runs past the map. */
    return fits && (map->len == 4 + (size_t)trie || map->data[map->len - 1] == '\0') ? ATTN_OK : ATTN_ERR_FORMAT;
}

/* The replacement of the shortest source that `key` begins with (Hugging Face's library takes the first that its search
 * gives), NULL when there is none. Units are those of darts-clone. */
static const char *find_replacement(const attn_strbuf *map, const char *key, size_t len)
{
    uint32_t n_units = read_u32(map->data) / 4;
    const char *units = map->data + 4, *texts = units + 4 * (size_t)n_units;
    size_t texts_len = map->len - 4 - 4 * (size_t)n_units;
    uint32_t unit = read_u32(units);
    uint32_t position = unit >> 10 << ((unit & 0x200) >> 6);
    for (size_t i = 0; i < len && key[i]; i++) {
        uint32_t byte = (unsigned char)key[i];
        position ^= byte;
        if (position >= n_units)
            return NULL;
        unit = read_u32(units + 4 * (size_t)position);
        if ((unit & 0x800000ffu) != byte)
            return NULL;
        position ^= unit >> 10 << ((unit & 0x200) >> 6);
        if (unit & 0x100) {
            if (position >= n_units)
                return NULL;
            uint32_t value = read_u32(units + 4 * (size_t)position) & 0x7fffffffu;
            return value < texts_len ? texts + value : NULL;
        }
    }
    return NULL;
}

/* The character that was written last stands for the one at the rewriter's place. */
static void move_last(attn_rewriter *rewriter)
{
    attn_origins *out = rewriter->out;
    size_t at = rewriter->len;
    uint32_t start, end;
    attn_worktext_range(rewriter->text, rewriter->at, &start, &end);
    do {
        at--;
        out->start[at] = start;
        out->end[at] = end;
    } while (at > 0 && attn_utf8_continues(out->data[at]));
}

/* Writes a replacement for n characters at the rewriter's place, the way Hugging Face counts what stands for what: what is
 * removed goes to the account of the character before, which, where it was one too many, then stands for that. *extra: the last
 * one is. */
static attn_status put_replacement(attn_rewriter *rewriter, const char *text, size_t n_old, bool *extra)
{
    size_t len = strlen(text), n_new = attn_utf8_valid_prefix(text, len) == len ? attn_utf8_count(text, len) : 0;
    if (len && !n_new)
        return attn_text_fail(ATTN_ERR_FORMAT, "normalizer.precompiled_charsmap: a replacement is not UTF-8");
    size_t written = 0;
    for (size_t at = 0; at < len; written++) {
        size_t size = attn_utf8_size(text[at]);
        int change = written >= n_old ? 1 : 0;
        if (written + 1 == n_new && n_old > n_new)
            change = -(int)(n_old - n_new);
        ATTN_TEXT_TRY(attn_rewrite_put(rewriter, attn_utf8_get(text + at, size), change));
        at += size;
    }
    if (n_new == 0 && *extra && rewriter->len)
        move_last(rewriter);
    for (size_t i = n_new; n_new == 0 && i < n_old; i++) /* replaced by nothing */
        rewriter->at += attn_utf8_size(rewriter->text->data[rewriter->at]);
    *extra = n_new > n_old;
    return ATTN_OK;
}

/* End of the grapheme that begins at `at`. */
static size_t grapheme_end(const attn_worktext *text, size_t at)
{
    utf8proc_int32_t state = 0;
    size_t end = at + attn_utf8_size(text->data[at]);
    uint32_t before = attn_utf8_get(text->data + at, end - at);
    while (end < text->len) {
        size_t size = attn_utf8_size(text->data[end]);
        uint32_t point = attn_utf8_get(text->data + end, size);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)point, &state))
            break;
        before = point;
        end += size;
    }
    return end;
}

attn_status attn_precompiled(const attn_step *step, attn_scratch *scratch)
{
    attn_worktext *text = &scratch->text;
    attn_rewriter rewriter;
    bool extra = false;
    attn_rewrite_begin(&rewriter, text);
    while (rewriter.at < text->len) {
        size_t end = grapheme_end(text, rewriter.at), len = end - rewriter.at;
        const char *found = len < 6 ? find_replacement(&step->content, text->data + rewriter.at, len) : NULL;
        if (found) {
            ATTN_TEXT_TRY(put_replacement(&rewriter, found, attn_utf8_count(text->data + rewriter.at, len), &extra));
            continue;
        }
        while (rewriter.at < end) {
            size_t size = attn_utf8_size(text->data[rewriter.at]);
            found = find_replacement(&step->content, text->data + rewriter.at, size);
            if (found)
                ATTN_TEXT_TRY(put_replacement(&rewriter, found, 1, &extra));
            else
                ATTN_TEXT_TRY(attn_rewrite_copy(&rewriter, size));
            extra &= found != NULL;
        }
    }
    attn_rewrite_end(&rewriter);
    return ATTN_OK;
}
