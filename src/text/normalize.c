/* normalize.c - normalisers over the work text. Each is one pass (or several), left out where it would change nothing. */
#include "text/normalize.h"

#include <utf8proc.h>

#include "text/bytelevel.h"
#include "text/unicode.h"

/* One character for another, or for none. */
enum { DROP = 0x110000 };
typedef uint32_t (*char_map)(const attn_step *step, uint32_t point);

/* Applies map to every character. The text is left alone when the map leaves every character alone. */
static attn_status map_text(const attn_step *step, attn_worktext *text, char_map map)
{
    size_t at = 0;
    while (at < text->len) {
        size_t size = attn_utf8_size(text->data[at]);
        uint32_t point = attn_utf8_get(text->data + at, size);
        if (map(step, point) != point)
            break;
        at += size;
    }
    if (at == text->len)
        return ATTN_OK;
    attn_rewriter rewriter;
    attn_rewrite_begin(&rewriter, text);
    ATTN_TEXT_TRY(attn_rewrite_copy(&rewriter, at));
    while (rewriter.at < text->len) {
        const char *from = text->data + rewriter.at;
        size_t size = attn_utf8_size(*from);
        uint32_t point = attn_utf8_get(from, size), mapped = map(step, point);
        size_t same = 0; /* bytes of a run of characters that stay */
        while (mapped == point && rewriter.at + same < text->len) {
            same += size;
            if (rewriter.at + same == text->len)
                break;
            size = attn_utf8_size(from[same]);
            point = attn_utf8_get(from + same, size);
            mapped = map(step, point);
        }
        if (same)
            ATTN_TEXT_TRY(attn_rewrite_copy(&rewriter, same));
        else if (mapped == DROP)
            rewriter.at += size;
        else
            ATTN_TEXT_TRY(attn_rewrite_put(&rewriter, mapped, 0));
    }
    attn_rewrite_end(&rewriter);
    return ATTN_OK;
}

/* BERT's cleaning: control characters, NUL and U+FFFD go, every blank becomes a space. */
static uint32_t clean_char(const attn_step *step, uint32_t point)
{
    (void)step;
    if (point == '\t' || point == '\n' || point == '\r')
        return ' ';
    if (point == 0 || point == 0xfffd || attn_is_other(point))
        return DROP;
    return attn_is_space(point) ? ' ' : point;
}

static uint32_t drop_nonspacing_mark(const attn_step *step, uint32_t point)
{
    (void)step;
    return attn_is_nonspacing_mark(point) ? DROP : point;
}

static uint32_t drop_mark(const attn_step *step, uint32_t point)
{
    (void)step;
    return attn_is_mark(point) ? DROP : point;
}

/* The characters that SentencePiece's nmt rules drop or take for blanks. */
static uint32_t nmt_char(const attn_step *step, uint32_t point)
{
    (void)step;
    if ((point >= 0x01 && point <= 0x08) || point == 0x0b || (point >= 0x0e && point <= 0x1f) || point == 0x7f ||
        point == 0x8f || point == 0x9f)
        return DROP;
    if (point == 0x09 || point == 0x0a || point == 0x0c || point == 0x0d || point == 0x1680 ||
        (point >= 0x200b && point <= 0x200f) || point == 0x2028 || point == 0x2029 || point == 0x2581 ||
        point == 0xfeff || point == 0xfffd)
        return ' ';
    return point;
}

/* Puts blanks around the characters of BERT's CJK blocks. */
static attn_status space_chinese(attn_worktext *text)
{
    bool any = false;
    for (size_t at = 0; at < text->len && !any; at += attn_utf8_size(text->data[at]))
        any = attn_is_chinese(attn_utf8_get(text->data + at, attn_utf8_size(text->data[at])));
    if (!any)
        return ATTN_OK;
    attn_rewriter rewriter;
    attn_rewrite_begin(&rewriter, text);
    while (rewriter.at < text->len) {
        const char *from = text->data + rewriter.at;
        uint32_t point = attn_utf8_get(from, attn_utf8_size(*from));
        if (attn_is_chinese(point)) {
            ATTN_TEXT_TRY(attn_rewrite_put(&rewriter, ' ', 0));
            ATTN_TEXT_TRY(attn_rewrite_put(&rewriter, point, 1));
            ATTN_TEXT_TRY(attn_rewrite_put(&rewriter, ' ', 1));
        } else {
            ATTN_TEXT_TRY(attn_rewrite_put(&rewriter, point, 0));
        }
    }
    attn_rewrite_end(&rewriter);
    return ATTN_OK;
}

/* Copies the run of ASCII at the rewriter's place and makes its letters small. */
static attn_status lowercase_ascii(attn_rewriter *rewriter)
{
    const attn_worktext *text = rewriter->text;
    size_t end = rewriter->at, start = rewriter->len;
    while (end < text->len && (unsigned char)text->data[end] < 0x80)
        end++;
    ATTN_TEXT_TRY(attn_rewrite_copy(rewriter, end - rewriter->at));
    for (char *c = rewriter->out->data + start; c < rewriter->out->data + rewriter->len; c++)
        *c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
    return ATTN_OK;
}

static attn_status lowercase(attn_worktext *text)
{
    attn_rewriter rewriter;
    attn_rewrite_begin(&rewriter, text);
    while (rewriter.at < text->len) {
        const char *from = text->data + rewriter.at;
        if ((unsigned char)*from < 0x80) {
            ATTN_TEXT_TRY(lowercase_ascii(&rewriter));
            continue;
        }
        uint32_t point = attn_utf8_get(from, attn_utf8_size(*from));
        if (point == 0x130) { /* the one character whose small form is two: i and a dot above */
            ATTN_TEXT_TRY(attn_rewrite_put(&rewriter, 'i', 0));
            ATTN_TEXT_TRY(attn_rewrite_put(&rewriter, 0x307, 1));
            continue;
        }
        point = (uint32_t)utf8proc_tolower((utf8proc_int32_t)point);
        ATTN_TEXT_TRY(attn_rewrite_put(&rewriter, point, 0));
    }
    attn_rewrite_end(&rewriter);
    return ATTN_OK;
}

/* Cleaning, and lowercasing where asked, of text that is all ASCII, in one pass. */
static attn_status bert_ascii(const attn_step *step, attn_worktext *text)
{
    bool same = true;
    for (size_t i = 0; i < text->len && same; i++) {
        unsigned char c = (unsigned char)text->data[i];
        same = (!step->clean_text || (c >= 32 && c != 127)) && (!step->lowercase || c < 'A' || c > 'Z');
    }
    if (same)
        return ATTN_OK;
    attn_rewriter rewriter;
    attn_rewrite_begin(&rewriter, text);
    ATTN_TEXT_TRY(attn_rewrite_copy(&rewriter, text->len));
    attn_origins *out = rewriter.out;
    size_t len = 0;
    for (size_t i = 0; i < text->len; i++) {
        char c = out->data[i];
        if (step->clean_text && ((unsigned char)c < 32 || c == 127)) {
            if (c != '\t' && c != '\n' && c != '\r')
                continue;
            c = ' ';
        }
        out->data[len] = step->lowercase && c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
        out->start[len] = out->start[i];
        out->end[len] = out->end[i];
        len++;
    }
    rewriter.len = len;
    attn_rewrite_end(&rewriter);
    return ATTN_OK;
}

static attn_status bert(const attn_step *step, attn_scratch *scratch)
{
    attn_worktext *text = &scratch->text;
    if (attn_utf8_is_ascii(text->data, text->len))
        return bert_ascii(step, text);
    if (step->clean_text)
        ATTN_TEXT_TRY(map_text(step, text, clean_char));
    if (step->chinese)
        ATTN_TEXT_TRY(space_chinese(text));
    if (step->strip_accents) {
        ATTN_TEXT_TRY(attn_normalize_form(scratch, false, false));
        ATTN_TEXT_TRY(map_text(step, text, drop_nonspacing_mark));
    }
    return step->lowercase ? lowercase(text) : ATTN_OK;
}

static attn_status strip(const attn_step *step, attn_worktext *text)
{
    size_t from = 0, to = text->len;
    while (step->left && from < to && attn_is_space(attn_utf8_get(text->data + from, attn_utf8_size(text->data[from]))))
        from += attn_utf8_size(text->data[from]);
    while (step->right && to > from) {
        size_t at = to - 1;
        while (attn_utf8_continues(text->data[at]))
            at--;
        if (!attn_is_space(attn_utf8_get(text->data + at, to - at)))
            break;
        to = at;
    }
    if (from == 0 && to == text->len)
        return ATTN_OK;
    attn_rewriter rewriter;
    attn_rewrite_begin(&rewriter, text);
    rewriter.at = from;
    ATTN_TEXT_TRY(attn_rewrite_copy(&rewriter, to - from));
    attn_rewrite_end(&rewriter);
    return ATTN_OK;
}

/* What is put in front stands for the first character. Nothing is put in front of nothing. */
static attn_status prepend(const attn_step *step, attn_worktext *text)
{
    if (!text->len || !step->content.len)
        return ATTN_OK;
    attn_rewriter rewriter;
    attn_rewrite_begin(&rewriter, text);
    ATTN_TEXT_TRY(attn_rewrite_prepend(&rewriter, step->content.data, step->content.len));
    ATTN_TEXT_TRY(attn_rewrite_copy(&rewriter, text->len));
    attn_rewrite_end(&rewriter);
    return ATTN_OK;
}

static attn_status replace_all(const attn_step *step, attn_scratch *scratch)
{
    attn_worktext *text = &scratch->text;
    attn_rewriter rewriter;
    bool not_empty = false; /* right behind a match nothing is not another one */
    attn_rewrite_begin(&rewriter, text);
    for (size_t at = 0; at <= text->len;) {
        size_t start, end;
        ATTN_TEXT_TRY(attn_step_match(step, scratch->regex, text->data, text->len, at, not_empty, &start, &end));
        if (start == SIZE_MAX)
            break;
        not_empty = end > start;
        ATTN_TEXT_TRY(attn_rewrite_copy(&rewriter, start - rewriter.at));
        rewriter.at = end;
        ATTN_TEXT_TRY(attn_rewrite_insert(&rewriter, step->content.data, step->content.len));
        at = end > start ? end : end < text->len ? end + attn_utf8_size(text->data[end]) : text->len + 1;
    }
    ATTN_TEXT_TRY(attn_rewrite_copy(&rewriter, text->len - rewriter.at));
    attn_rewrite_end(&rewriter);
    return ATTN_OK;
}

static attn_status spell_bytes(attn_worktext *text)
{
    attn_rewriter rewriter;
    attn_rewrite_begin(&rewriter, text);
    while (rewriter.at < text->len) {
        const char *from = text->data + rewriter.at;
        size_t size = attn_utf8_size(*from);
        for (size_t b = 0; b < size; b++)
            ATTN_TEXT_TRY(attn_rewrite_put(&rewriter, attn_bytelevel_point((unsigned char)from[b]), b > 0));
    }
    attn_rewrite_end(&rewriter);
    return ATTN_OK;
}

static attn_status normalize(const attn_step *step, attn_scratch *scratch)
{
    attn_worktext *text = &scratch->text;
    switch (step->kind) {
    case ATTN_STEP_BERT:
        return bert(step, scratch);
    case ATTN_STEP_LOWERCASE:
        return lowercase(text);
    case ATTN_STEP_NFC:
        return attn_normalize_form(scratch, true, false);
    case ATTN_STEP_NFD:
        return attn_normalize_form(scratch, false, false);
    case ATTN_STEP_NFKC:
        return attn_normalize_form(scratch, true, true);
    case ATTN_STEP_NFKD:
        return attn_normalize_form(scratch, false, true);
    case ATTN_STEP_STRIP:
        return strip(step, text);
    case ATTN_STEP_STRIP_ACCENTS:
        return map_text(step, text, drop_mark);
    case ATTN_STEP_NMT:
        return map_text(step, text, nmt_char);
    case ATTN_STEP_PREPEND:
        return prepend(step, text);
    case ATTN_STEP_REPLACE:
        return replace_all(step, scratch);
    case ATTN_STEP_BYTE_LEVEL:
        return spell_bytes(text);
    case ATTN_STEP_PRECOMPILED:
        return attn_precompiled(step, scratch);
    default:
        return ATTN_OK;
    }
}

attn_status attn_normalize(const attn_step *step, attn_scratch *scratch)
{
    ATTN_TEXT_TRY(normalize(step, scratch));
    if (scratch->text.len > INT32_MAX)
        return attn_text_fail(ATTN_ERR_UNSUPPORTED, "text has more than %d bytes after normalisation", INT32_MAX);
    return ATTN_OK;
}
