/* text_visible.c - how wide text is in a terminal, and how to show any bytes in one line of it. */
#include "attn/viz.h"

#include <stdbool.h>
#include <stdio.h>
#include <utf8proc.h>

/* One code point of the input, or one byte that is not UTF-8. */
typedef struct glyph {
    utf8proc_int32_t code; /* -1: not UTF-8 */
    size_t bytes;
} glyph;

static glyph next_glyph(const char *text, size_t bytes)
{
    glyph g = {-1, 1};
    utf8proc_ssize_t n =
        utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes, &g.code);
    if (n <= 0) {
        g.code = -1;
        return g;
    }
    g.bytes = (size_t)n;
    return g;
}

static bool is_control(utf8proc_int32_t c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0);
}

/* Characters that change the order or the direction of what follows them. */
static bool is_bidi_control(utf8proc_int32_t c)
{
    return c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) ||
           (c >= 0x2066 && c <= 0x2069);
}

/* Line and paragraph separators, and invisible characters of the format category that are not
 * joiners. */
static bool is_hidden(utf8proc_int32_t c)
{
    if (c == 0x2028 || c == 0x2029)
        return true;
    if (c == 0x200C || c == 0x200D)
        return false;
    return utf8proc_category(c) == UTF8PROC_CATEGORY_CF && utf8proc_charwidth(c) == 0;
}

static bool is_right_to_left(utf8proc_int32_t c)
{
    int class = utf8proc_get_property(c)->bidi_class;
    return class == UTF8PROC_BIDI_CLASS_R || class == UTF8PROC_BIDI_CLASS_AL;
}

static bool is_mark(utf8proc_int32_t c)
{
    utf8proc_category_t category = utf8proc_category(c);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME;
}

static int64_t code_columns(utf8proc_int32_t c)
{
    if (is_control(c))
        return 0;
    return utf8proc_charwidth(c);
}

int64_t attn_text_columns(const char *text, size_t bytes)
{
    int64_t columns = 0;
    for (size_t at = 0; at < bytes;) {
        glyph g = next_glyph(text + at, bytes - at);
        columns += g.code < 0 ? 1 : code_columns(g.code);
        at += g.bytes;
    }
    return columns;
}

/* One piece of the rendering: the bytes that stand for one glyph, and their columns. */
typedef struct piece {
    char text[16];
    size_t bytes;
    int64_t columns;
} piece;

static void piece_code(piece *p, utf8proc_int32_t code)
{
    p->bytes += (size_t)utf8proc_encode_char(code, (utf8proc_uint8_t *)p->text + p->bytes);
    p->columns += utf8proc_charwidth(code);
}

static void piece_escape(piece *p, const char *format, unsigned value)
{
    int n = snprintf(p->text, sizeof p->text, format, value);
    p->bytes = (size_t)n;
    p->columns = n;
}

/* lonely: no visible character stands before this one that a mark or a joiner could belong to. */
static piece render(glyph g, unsigned char first_byte, bool lonely)
{
    piece p = {{0}, 0, 0};
    if (g.code < 0)
        piece_escape(&p, "\\x%02X", first_byte);
    else if (g.code == '\n')
        piece_code(&p, 0x23CE);
    else if (g.code == '\t')
        piece_code(&p, 0x21E5);
    else if (g.code < 0x20)
        piece_code(&p, 0x2400 + g.code);
    else if (g.code == 0x7F)
        piece_code(&p, 0x2421);
    else if (is_control(g.code))
        piece_escape(&p, "\\x%02X", (unsigned)g.code);
    else if (is_bidi_control(g.code) || is_hidden(g.code))
        piece_escape(&p, "\\u%04X", (unsigned)g.code);
    else if (lonely && is_mark(g.code)) {
        piece_code(&p, 0x25CC);
        piece_code(&p, g.code);
        p.columns = 1;
    } else if (lonely && utf8proc_charwidth(g.code) == 0)
        piece_escape(&p, "\\u%04X", (unsigned)g.code);
    else
        piece_code(&p, g.code);
    return p;
}

/* Where the rendering goes; bytes counts what is needed, whether or not it fits. */
typedef struct sink {
    char *out;
    size_t capacity, bytes, written;
    bool full;
} sink;

static void sink_put(sink *s, const char *text, size_t bytes)
{
    s->full = s->full || s->bytes + bytes >= s->capacity;
    if (!s->full) {
        memcpy(s->out + s->bytes, text, bytes);
        s->written = s->bytes + bytes;
    }
    s->bytes += bytes;
}

/* Bytes of the input that fit into `room` columns, and whether right-to-left letters are among all
 * of it. */
static size_t measure(const char *text, size_t bytes, int64_t room, int64_t *columns,
                      bool *right_to_left)
{
    size_t fit = 0;
    bool lonely = true;
    *columns = 0;
    *right_to_left = false;
    for (size_t at = 0; at < bytes;) {
        glyph g = next_glyph(text + at, bytes - at);
        piece p = render(g, (unsigned char)text[at], lonely);
        lonely = g.code < 0 || is_control(g.code) || (lonely && p.columns == 0);
        *right_to_left = *right_to_left || (g.code >= 0 && is_right_to_left(g.code));
        *columns += p.columns;
        at += g.bytes;
        if (room >= 0 && *columns <= room)
            fit = at;
    }
    return room < 0 ? bytes : fit;
}

size_t attn_text_visible(const char *text, size_t bytes, int64_t max_columns, char *out,
                         size_t capacity, int64_t *columns)
{
    sink s = {out, capacity, 0, 0, false};
    int64_t all, taken = 0;
    bool right_to_left, lonely = true;
    size_t end = measure(text, bytes, max_columns, &all, &right_to_left);
    bool clipped = max_columns >= 0 && all > max_columns;
    if (clipped && max_columns > 0)
        end = measure(text, bytes, max_columns - 1, &all, &right_to_left);

    if (right_to_left && end > 0)
        sink_put(&s, "\xE2\x81\xA8", 3); /* U+2068, first strong isolate */
    for (size_t at = 0; at < end;) {
        glyph g = next_glyph(text + at, bytes - at);
        piece p = render(g, (unsigned char)text[at], lonely);
        lonely = g.code < 0 || is_control(g.code) || (lonely && p.columns == 0);
        sink_put(&s, p.text, p.bytes);
        taken += p.columns;
        at += g.bytes;
    }
    if (right_to_left && end > 0)
        sink_put(&s, "\xE2\x81\xA9", 3); /* U+2069, pop isolate */
    if (clipped && max_columns > 0) {
        sink_put(&s, "\xE2\x80\xA6", 3); /* U+2026 */
        taken += 1;
    }
    if (capacity > 0)
        out[s.written] = '\0';
    if (columns)
        *columns = taken;
    return s.bytes;
}
