/* text_out.c - a growing text: formats, JSON strings, base64. */
#include "viz/text_out.h"
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(attn_text_out *out, size_t more)
{
    if (out->failed || more > SIZE_MAX / 4 - out->bytes)
        out->failed = true;
    if (out->failed || out->bytes + more < out->capacity)
        return !out->failed;
    const size_t capacity = out->capacity + out->capacity / 2 + more + 4096;
    char *text = realloc(out->text, capacity);
    out->failed = !text;
    if (text) {
        out->text = text;
        out->capacity = capacity;
    }
    return !out->failed;
}

void attn_out_bytes(attn_text_out *out, const void *bytes, size_t n)
{
    if (!reserve(out, n + 1))
        return;
    memcpy(out->text + out->bytes, bytes, n);
    out->bytes += n;
    out->text[out->bytes] = '\0';
}

void attn_out_format(attn_text_out *out, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof line)
        out->failed = true;
    else
        attn_out_bytes(out, line, (size_t)n);
}

/* Length of the well-formed UTF-8 character at text; 0: none. */
static size_t character(const unsigned char *t, size_t n)
{
    const size_t length = t[0] < 0x80 ? 1 : t[0] >= 0xC2 && t[0] < 0xE0 ? 2 : (t[0] & 0xF0) == 0xE0 ? 3
                          : t[0] >= 0xF0 && t[0] < 0xF5 ? 4 : 0;
    if (length == 0 || length > n)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((t[i] & 0xC0) != 0x80)
            return 0;
    if ((t[0] == 0xE0 && t[1] < 0xA0) || (t[0] == 0xED && t[1] >= 0xA0) || (t[0] == 0xF0 && t[1] < 0x90) ||
        (t[0] == 0xF4 && t[1] >= 0x90))
        return 0;
    return length;
}

void attn_out_json_string(attn_text_out *out, const char *text, size_t n)
{
    const unsigned char *t = (const unsigned char *)text;
    attn_out_bytes(out, "\"", 1);
    for (size_t i = 0; i < n;) {
        const size_t length = character(t + i, n - i);
        const bool separator = length == 3 && t[i] == 0xE2 && t[i + 1] == 0x80 && (t[i + 2] == 0xA8 || t[i + 2] == 0xA9);
        if (length == 0)
            attn_out_bytes(out, "\xEF\xBF\xBD", 3);
        else if (separator)
            attn_out_format(out, "\\u%04x", 0x2000u + (t[i + 2] & 0x3Fu));
        else if (length == 1 && (t[i] < 0x20 || t[i] == 0x7F || strchr("\"\\<>&", t[i])))
            attn_out_format(out, "\\u%04x", (unsigned)t[i]);
        else
            attn_out_bytes(out, t + i, length);
        i += length ? length : 1;
    }
    attn_out_bytes(out, "\"", 1);
}

void attn_out_base64(attn_text_out *out, const void *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *b = bytes;
    if (!reserve(out, n / 3 * 4 + 8))
        return;
    for (size_t i = 0; i < n; i += 3) {
        const uint32_t three = (uint32_t)b[i] << 16 | (i + 1 < n ? (uint32_t)b[i + 1] << 8 : 0) | (i + 2 < n ? b[i + 2] : 0);
        for (int k = 0; k < 4; k++)
            out->text[out->bytes++] = i + (size_t)k > n ? '=' : digits[three >> (18 - 6 * k) & 63];
    }
    out->text[out->bytes] = '\0';
}
