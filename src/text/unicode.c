/* unicode.c - properties of code points, from utf8proc's tables. */
#include "text/unicode.h"

#include <stddef.h>
#include <utf8proc.h>

#include "text/unicode_exceptions.h"

/* The property of a code point: as the exceptions say, else as utf8proc does. */
static bool with_exceptions(const attn_exception *rows, size_t n, uint32_t point, bool has)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (rows[middle].last < point)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && rows[low].first <= point ? rows[low].has : has;
}
#define WITH_EXCEPTIONS(rows, point, has) with_exceptions(rows, sizeof(rows) / sizeof *(rows), point, has)

static utf8proc_category_t category_of(uint32_t point)
{
    return utf8proc_category((utf8proc_int32_t)point);
}

bool attn_is_space(uint32_t point)
{
    if (point < 0x80)
        return point == ' ' || (point >= 9 && point <= 13);
    return point == 0x85 || point == 0xa0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200a) ||
           point == 0x2028 || point == 0x2029 || point == 0x202f || point == 0x205f || point == 0x3000;
}

bool attn_is_numeric(uint32_t point)
{
    if (point < 0x80)
        return point >= '0' && point <= '9';
    utf8proc_category_t category = category_of(point);
    return WITH_EXCEPTIONS(numeric_exceptions, point,
                           category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
                               category == UTF8PROC_CATEGORY_NO);
}

bool attn_is_mark(uint32_t point)
{
    if (point < 0x300)
        return false;
    utf8proc_category_t category = category_of(point);
    return WITH_EXCEPTIONS(mark_exceptions, point,
                           category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                               category == UTF8PROC_CATEGORY_ME);
}

bool attn_is_nonspacing_mark(uint32_t point)
{
    return point >= 0x300 &&
           WITH_EXCEPTIONS(nonspacing_mark_exceptions, point, category_of(point) == UTF8PROC_CATEGORY_MN);
}

/* Other_Alphabetic beyond the letters, marks and letter numbers: the circled and squared Latin letters. */
static bool is_enclosed_letter(uint32_t point)
{
    return (point >= 0x24b6 && point <= 0x24e9) || (point >= 0x1f130 && point <= 0x1f149) ||
           (point >= 0x1f150 && point <= 0x1f169) || (point >= 0x1f170 && point <= 0x1f189);
}

static bool is_word_category(uint32_t point)
{
    switch (category_of(point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return point == 0x200c || point == 0x200d || is_enclosed_letter(point);
    }
}

bool attn_is_word(uint32_t point)
{
    if (point < 0x80)
        return (point >= 'a' && point <= 'z') || (point >= 'A' && point <= 'Z') || (point >= '0' && point <= '9') ||
               point == '_';
    return WITH_EXCEPTIONS(word_exceptions, point, is_word_category(point));
}

bool attn_is_punctuation(uint32_t point)
{
    if (point < 0x80)
        return (point >= 33 && point <= 47) || (point >= 58 && point <= 64) || (point >= 91 && point <= 96) ||
               (point >= 123 && point <= 126);
    utf8proc_category_t category = category_of(point);
    return WITH_EXCEPTIONS(punctuation_exceptions, point,
                           category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO);
}

bool attn_is_other(uint32_t point)
{
    if (point < 0x80)
        return point < 32 || point == 127;
    utf8proc_category_t category = category_of(point);
    return WITH_EXCEPTIONS(other_exceptions, point,
                           category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
                               category == UTF8PROC_CATEGORY_CS || category == UTF8PROC_CATEGORY_CO);
}

bool attn_is_chinese(uint32_t point)
{
    return (point >= 0x4e00 && point <= 0x9fff) || (point >= 0x3400 && point <= 0x4dbf) ||
           (point >= 0x20000 && point <= 0x2a6df) || (point >= 0x2a700 && point <= 0x2b73f) ||
           (point >= 0x2b740 && point <= 0x2b81f) || (point >= 0x2b920 && point <= 0x2ceaf) ||
           (point >= 0xf900 && point <= 0xfaff) || (point >= 0x2f800 && point <= 0x2fa1f);
}
