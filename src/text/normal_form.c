/* normal_form.c - Unicode normal forms that know where their characters came from. Tables: utf8proc. */
#include <utf8proc.h>

#include "text/normalize.h"

/* The text as code points; each with its combining class and what it stands for (see attn_rewriter). */
typedef struct marked_char {
    uint32_t point;
    int32_t change;
    uint8_t class;
} marked_char;

typedef struct marked_text {
    marked_char *data;
    size_t len, cap;
} marked_text;

static uint8_t class_of(uint32_t point)
{
    return point < 0x300 ? 0 : (uint8_t)utf8proc_get_property((utf8proc_int32_t)point)->combining_class;
}

static attn_status decompose(const attn_worktext *text, size_t from, size_t to, bool compatible, marked_text *out)
{
    utf8proc_int32_t parts[32]; /* the longest compatibility decomposition has 18 */
    utf8proc_option_t options = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    out->len = 0;
    for (size_t at = from; at < to;) {
        size_t size = attn_utf8_size(text->data[at]);
        uint32_t point = attn_utf8_get(text->data + at, size);
        utf8proc_ssize_t n = 1;
        parts[0] = (utf8proc_int32_t)point;
        int boundary = 0;
        if (point >= 0x80)
            n = utf8proc_decompose_char((utf8proc_int32_t)point, parts, 32, options, &boundary);
        if (n < 0 || n > 32)
            return attn_text_fail(ATTN_ERR_UNSUPPORTED, "text: U+%04X cannot be decomposed", (unsigned)point);
        ATTN_TEXT_TRY(attn_grow(&out->data, &out->cap, out->len + (size_t)n, sizeof *out->data));
        for (utf8proc_ssize_t i = 0; i < n; i++)
            out->data[out->len++] = (marked_char){(uint32_t)parts[i], i > 0, class_of((uint32_t)parts[i])};
        at += size;
    }
    return ATTN_OK;
}

/* Sorts a run of combining marks by class, stable; linear in its length for any text. */
static attn_status sort_run(marked_char *run, size_t n)
{
    if (n <= 16) {
        for (size_t i = 1; i < n; i++) {
            marked_char moved = run[i];
            size_t at = i;
            for (; at > 0 && run[at - 1].class > moved.class; at--)
                run[at] = run[at - 1];
            run[at] = moved;
        }
        return ATTN_OK;
    }
    size_t starts[257] = {0};
    marked_char *sorted = malloc(n * sizeof *sorted);
    if (!sorted)
        return attn_text_no_memory();
    for (size_t i = 0; i < n; i++)
        starts[run[i].class + 1]++;
    for (size_t c = 1; c < 257; c++)
        starts[c] += starts[c - 1];
    for (size_t i = 0; i < n; i++)
        sorted[starts[run[i].class]++] = run[i];
    memcpy(run, sorted, n * sizeof *run);
    free(sorted);
    return ATTN_OK;
}

static attn_status sort_marks(marked_text *text)
{
    for (size_t i = 0; i < text->len;) {
        size_t end = i;
        while (end < text->len && text->data[end].class)
            end++;
        if (end > i + 1)
            ATTN_TEXT_TRY(sort_run(text->data + i, end - i));
        i = end > i ? end : i + 1;
    }
    return ATTN_OK;
}

/* The composition of two characters, 0 when they have none. */
static uint32_t compose_pair(uint32_t first, uint32_t second)
{
    if (second < 0x300)
        return 0;
    utf8proc_int32_t pair[2] = {(utf8proc_int32_t)first, (utf8proc_int32_t)second};
    return utf8proc_normalize_utf32(pair, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE) == 1 ? (uint32_t)pair[0] : 0;
}

/* Canonical composition in place: a mark joins the last starter unless a mark of the same or a higher class stands
 * between. */
static void recompose(marked_text *text)
{
    size_t len = 0, starter = SIZE_MAX;
    int last_class = -1; /* of the marks kept since the starter; -1: none */
    for (size_t i = 0; i < text->len; i++) {
        marked_char c = text->data[i];
        if (starter != SIZE_MAX && last_class < (int)c.class) {
            uint32_t joined = compose_pair(text->data[starter].point, c.point);
            if (joined) {
                text->data[starter].point = joined;
                text->data[starter].change += c.change - 1;
                continue;
            }
        }
        if (!c.class) {
            starter = len;
            last_class = -1;
        } else if (starter != SIZE_MAX) {
            last_class = c.class;
        }
        text->data[len++] = c;
    }
    text->len = len;
}

/* One run of the text, from a character that nothing before can join. */
static attn_status normalize_run(attn_rewriter *rewriter, size_t to, bool compose, bool compatible, marked_text *marked)
{
    ATTN_TEXT_TRY(decompose(rewriter->text, rewriter->at, to, compatible, marked));
    ATTN_TEXT_TRY(sort_marks(marked));
    if (compose)
        recompose(marked);
    for (size_t i = 0; i < marked->len; i++)
        ATTN_TEXT_TRY(attn_rewrite_put(rewriter, marked->data[i].point, marked->data[i].change));
    return ATTN_OK;
}

/* ASCII is copied, but for the last character before others, which marks may join. */
static attn_status normalize_text(attn_worktext *text, bool compose, bool compatible, marked_text *marked)
{
    attn_rewriter rewriter;
    attn_rewrite_begin(&rewriter, text);
    while (rewriter.at < text->len) {
        size_t ascii = rewriter.at;
        while (ascii < text->len && (unsigned char)text->data[ascii] < 0x80)
            ascii++;
        size_t end = ascii;
        while (end < text->len && (unsigned char)text->data[end] >= 0x80)
            end++;
        if (end > ascii && ascii > rewriter.at)
            ascii--;
        ATTN_TEXT_TRY(attn_rewrite_copy(&rewriter, ascii - rewriter.at));
        ATTN_TEXT_TRY(normalize_run(&rewriter, end, compose, compatible, marked));
    }
    attn_rewrite_end(&rewriter);
    return ATTN_OK;
}

attn_status attn_normalize_form(attn_scratch *scratch, bool compose, bool compatible)
{
    attn_worktext *text = &scratch->text;
    if (attn_utf8_is_ascii(text->data, text->len))
        return ATTN_OK;
    marked_text marked = {0};
    attn_status status = normalize_text(text, compose, compatible, &marked);
    free(marked.data);
    return status;
}
