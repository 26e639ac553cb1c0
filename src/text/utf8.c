/* utf8.c - UTF-8: checking and replacing what is ill-formed. */
#include "text/utf8.h"

/* Bytes of the well-formed character at text, 0 when ill-formed. The second byte's range follows Unicode's table 3-7. */
static size_t valid_size(const unsigned char *c, size_t len)
{
    if (c[0] < 0x80)
        return 1;
    size_t size = c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : c[0] < 0xf5 ? 4 : 0;
    if (!size || len < 2)
        return 0;
    unsigned low = c[0] == 0xe0 ? 0xa0 : c[0] == 0xf0 ? 0x90 : 0x80;
    unsigned high = c[0] == 0xed ? 0x9f : c[0] == 0xf4 ? 0x8f : 0xbf;
    if (len < size || c[1] < low || c[1] > high)
        return 0;
    for (size_t i = 2; i < size; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    return size;
}

/* Advances over bytes below 128, eight at a time. */
static size_t skip_ascii(const char *text, size_t at, size_t len)
{
    while (at + 8 <= len) {
        uint64_t word;
        memcpy(&word, text + at, 8);
        if (word & UINT64_C(0x8080808080808080))
            break;
        at += 8;
    }
    while (at < len && (unsigned char)text[at] < 0x80)
        at++;
    return at;
}

size_t attn_utf8_valid_prefix(const char *text, size_t len)
{
    size_t at = 0;
    while ((at = skip_ascii(text, at, len)) < len) {
        size_t size = valid_size((const unsigned char *)text + at, len - at);
        if (!size)
            return at;
        at += size;
    }
    return len;
}

bool attn_utf8_is_ascii(const char *text, size_t len)
{
    return skip_ascii(text, 0, len) == len;
}

size_t attn_utf8_bad_part(const char *text, size_t len, bool *truncated)
{
    const unsigned char *c = (const unsigned char *)text;
    *truncated = false;
    size_t size = c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : c[0] < 0xf5 ? 4 : 0;
    if (!size)
        return 1;
    unsigned low = c[0] == 0xe0 ? 0xa0 : c[0] == 0xf0 ? 0x90 : 0x80;
    unsigned high = c[0] == 0xed ? 0x9f : c[0] == 0xf4 ? 0x8f : 0xbf;
    size_t part = 1;
    if (part < len && c[1] >= low && c[1] <= high)
        for (part = 2; part < len && part < size && (c[part] & 0xc0) == 0x80;)
            part++;
    *truncated = part == len && part < size;
    return part;
}

attn_status attn_utf8_add_lossy(attn_strbuf *out, const char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t valid = attn_utf8_valid_prefix(text + at, len - at);
        ATTN_TEXT_TRY(attn_strbuf_add(out, text + at, valid));
        at += valid;
        if (at < len) {
            bool truncated;
            at += attn_utf8_bad_part(text + at, len - at, &truncated);
            ATTN_TEXT_TRY(attn_strbuf_add(out, "\xef\xbf\xbd", 3));
        }
    }
    return ATTN_OK;
}

size_t attn_utf8_count(const char *text, size_t len)
{
    size_t count = 0;
    for (size_t i = 0; i < len; i++)
        count += !attn_utf8_continues(text[i]);
    return count;
}
