/* bytelevel.c - GPT-2's alphabet of bytes. */
#include "text/bytelevel.h"

const char attn_bytelevel_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* Visible characters of Latin-1 stand for themselves: ! to ~, inverted ! to not sign, registered to y diaeresis. */
static bool is_visible(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* The others, in order, are U+0100 + n: 0..32 (n 0..32), 127..160 (n 33..66), 173 (n 67). */
uint32_t attn_bytelevel_point(unsigned char byte)
{
    if (is_visible(byte))
        return byte;
    return 0x100u + (byte <= 0x20 ? byte : byte == 0xad ? 67u : byte - 0x7fu + 33u);
}

int attn_bytelevel_byte(uint32_t point)
{
    if (point < 0x100)
        return is_visible(point) ? (int)point : -1;
    uint32_t n = point - 0x100;
    return n <= 32 ? (int)n : n <= 66 ? (int)(n - 33 + 0x7f) : n == 67 ? 0xad : -1;
}

attn_status attn_bytelevel_bytes(const char *text, size_t len, attn_strbuf *out, bool *all)
{
    size_t before = out->len;
    ATTN_TEXT_TRY(attn_strbuf_reserve(out, len + 1));
    *all = true;
    for (size_t i = 0; i < len;) {
        size_t size = attn_utf8_size(text[i]);
        int byte = attn_bytelevel_byte(attn_utf8_get(text + i, size));
        if (byte < 0) {
            out->len = before;
            *all = false;
            return ATTN_OK;
        }
        out->data[out->len++] = (char)byte;
        i += size;
    }
    return ATTN_OK;
}
