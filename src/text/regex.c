/* regex.c - split patterns over PCRE2.
 *
 * tokenizer.json files hold patterns in Oniguruma's Ruby syntax. PCRE2 reads them the same way but for a few things, which
 * translate_next() rewrites: \s means White_Space (PCRE2's adds U+180E), \h is a hexadecimal digit (PCRE2: a blank), \w, \b
 * and names like [:alpha:] hold other characters, \p{Han} is the script by itself (PCRE2 adds what scripts share), ^ and $
 * work at every line (MULTILINE), (?m) is PCRE2's (?s), \uHHHH is \x{HHHH}, and a class may hold classes.
 */
#include "text/regex.h"

#include <stdio.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

struct attn_regex {
    pcre2_code *code;
};

struct attn_regex_scratch {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* Unicode's White_Space, as the inside of a character class. */
#define SPACES "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
/* Everything else. */
#define NOT_SPACES                                                                                 \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"  \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"

/* \w, as the inside of a character class; PCRE2's has other numbers, and neither marks nor circled letters. */
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
/* \w outside of a class, where Oniguruma has these fractions and powers, too. */
#define WORD_ALONE "[" WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}]"
#define NO_WORD_ALONE "[^" WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}]"
/* All but the inside of \w, and the circled letters, which no category has to itself. */
#define NOT_WORD "\\p{C}\\p{Z}\\p{S}\\p{No}\\p{Pd}\\p{Ps}\\p{Pe}\\p{Pi}\\p{Pf}\\p{Po}"

static attn_status add_text(attn_strbuf *out, const char *text)
{
    return attn_strbuf_add(out, text, strlen(text));
}

/* Rewrites the escape \c; inside a character class where `in_class`. */
static attn_status translate_escape(attn_strbuf *out, char c, bool in_class)
{
    static const struct {
        char c;
        const char *in_class, *outside; /* NULL: as it is */
    } escapes[] = {{'s', SPACES, "[" SPACES "]"},
                   {'S', NOT_SPACES, "[^" SPACES "]"},
                   {'h', "0-9a-fA-F", "[0-9a-fA-F]"},
                   {'H', NULL, "[^0-9a-fA-F]"},
                   {'w', WORD, WORD_ALONE},
                   {'W', NOT_WORD, NO_WORD_ALONE},
                   {'b', NULL, "(?:(?<=" WORD_ALONE ")(?!" WORD_ALONE ")|(?<!" WORD_ALONE ")(?=" WORD_ALONE "))"},
                   {'B', NULL, "(?:(?<=" WORD_ALONE ")(?=" WORD_ALONE ")|(?<!" WORD_ALONE ")(?!" WORD_ALONE "))"}};
    const char same[2] = {'\\', c};
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        const char *text = in_class ? escapes[i].in_class : escapes[i].outside;
        if (escapes[i].c == c && text)
            return add_text(out, text);
    }
    return attn_strbuf_add(out, same, 2);
}

/* PCRE2 knows a script of this name. */
static bool is_script(const char *name, size_t len)
{
    char pattern[64];
    int error;
    PCRE2_SIZE at;
    if (len < 3 || len > 40)
        return false;
    const int n = snprintf(pattern, sizeof pattern, "\\p{sc:%.*s}", (int)len, name);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, (PCRE2_SIZE)n, PCRE2_UTF, &error, &at, NULL);
    pcre2_code_free(code);
    return code != NULL;
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* What is left of a pattern, and where in it we are. */
typedef struct reader {
    const char *pattern, *where;
    size_t len, at;
    int depth;     /* of classes: 0 outside of any */
    bool at_edge;  /* in a class: behind its '[', or behind the end of a class within it, where '-' is a plain character */
} reader;

static attn_status refuse_class(const reader *r)
{
    return attn_text_fail(ATTN_ERR_UNSUPPORTED, "%s: negated classes within classes and intersections are not served: \"%.*s\"",
                          r->where, (int)(r->len < 200 ? r->len : 200), r->pattern);
}

static char peek(const reader *r, size_t ahead)
{
    return r->len - r->at > ahead ? r->pattern[r->at + ahead] : '\0';
}

/* [:name:] inside a class, as Oniguruma understands it; *done where there was one. */
static attn_status translate_posix(reader *r, attn_strbuf *out, bool *done)
{
    static const struct {
        const char *name, *inside, *negated; /* NULL: as PCRE2 has it */
    } names[] = {{"alpha", "\\p{Alphabetic}", "\\P{Alphabetic}"},
                 {"digit", "\\p{Nd}", "\\P{Nd}"},
                 {"alnum", "\\p{Alphabetic}\\p{Nd}", "\\p{C}\\p{Z}\\p{S}\\p{P}\\p{No}"},
                 {"upper", "\\p{Uppercase}", "\\P{Uppercase}"},
                 {"lower", "\\p{Lowercase}", "\\P{Lowercase}"},
                 {"punct", "\\p{P}\\p{S}", "\\p{L}\\p{M}\\p{N}\\p{Z}\\p{C}"},
                 {"space", SPACES, NOT_SPACES},
                 {"word", WORD, NOT_WORD}};
    const char *from = r->pattern + r->at, *close;
    *done = false;
    if (peek(r, 0) != '[' || peek(r, 1) != ':' || (close = memmem(from + 2, r->len - r->at - 2, ":]", 2)) == NULL)
        return ATTN_OK;
    const bool negated = peek(r, 2) == '^';
    const char *name = from + 2 + negated;
    const size_t len = (size_t)(close - from) + 2;
    *done = true;
    r->at += len;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == (size_t)(close - name) && !memcmp(names[i].name, name, (size_t)(close - name)))
            return add_text(out, negated ? names[i].negated : names[i].inside);
    return attn_strbuf_add(out, from, len);
}

/* One character inside a class. PCRE2 has no classes within classes: what such a class holds is written into the one around
 * it, which is the same as long as neither is negated nor "&&" intersects them. A '-' at the edge of one makes no range. */
static attn_status translate_in_class(reader *r, attn_strbuf *out)
{
    const char c = peek(r, 0);
    const bool edge = r->at_edge;
    bool named;
    r->at_edge = false;
    ATTN_TEXT_TRY(translate_posix(r, out, &named));
    if (named)
        return ATTN_OK;
    r->at++;
    if (c == '[') {
        if (peek(r, 0) == '^' || peek(r, 0) == ']')
            return refuse_class(r);
        r->depth++;
        r->at_edge = true;
        return ATTN_OK;
    }
    if (c == ']' && --r->depth > 0) {
        r->at_edge = true;
        return ATTN_OK;
    }
    if (c == '&' && peek(r, 0) == '&')
        return refuse_class(r);
    if (c == '-' && (edge || peek(r, 0) == '[' || peek(r, 0) == ']'))
        return add_text(out, "\\-");
    if (c == '^' && edge)
        return add_text(out, "\\^");
    return attn_strbuf_add(out, &c, 1);
}

/* '[' outside of a class, and what belongs to it: '^', and a ']' that would be the first thing inside. */
static attn_status open_class(reader *r, attn_strbuf *out)
{
    ATTN_TEXT_TRY(add_text(out, "["));
    r->at++;
    r->depth = 1;
    r->at_edge = true;
    if (peek(r, 0) == '^') {
        ATTN_TEXT_TRY(add_text(out, "^"));
        r->at++;
    }
    if (peek(r, 0) != ']')
        return ATTN_OK;
    r->at++;
    r->at_edge = false;
    return add_text(out, "\\]");
}

/* \p{...} or \P{...}: a script's name means the script alone, which PCRE2 writes sc:name. */
static attn_status translate_property(reader *r, attn_strbuf *out)
{
    const char *from = r->pattern + r->at, *close = memchr(from, '}', r->len - r->at);
    const size_t skip = peek(r, 3) == '^' ? 4 : 3; /* "\p{" */
    if (peek(r, 2) != '{' || !close || close < from + skip || !is_script(from + skip, (size_t)(close - from) - skip)) {
        r->at += 2;
        return attn_strbuf_add(out, from, 2);
    }
    r->at += (size_t)(close - from) + 1;
    ATTN_TEXT_TRY(attn_strbuf_add(out, from, skip));
    ATTN_TEXT_TRY(add_text(out, "sc:"));
    return attn_strbuf_add(out, from + skip, (size_t)(close - from) + 1 - skip);
}

/* \uHHHH; false where the four digits are not there. */
static bool read_point(const reader *r, char point[16])
{
    for (size_t i = 2; i < 6; i++)
        if (!is_hex(peek(r, i)))
            return false;
    snprintf(point, 16, "\\x{%.4s}", r->pattern + r->at + 2);
    return true;
}

static attn_status translate_next(reader *r, attn_strbuf *out)
{
    const char c = peek(r, 0);
    if (c == '\\' && r->at + 1 < r->len) {
        const char escaped = peek(r, 1);
        char point[16];
        r->at_edge = false;
        if (escaped == 'p' || escaped == 'P')
            return translate_property(r, out);
        if (escaped == 'u' && read_point(r, point)) {
            r->at += 6;
            return add_text(out, point);
        }
        r->at += 2;
        return translate_escape(out, escaped, r->depth > 0);
    }
    if (r->depth)
        return translate_in_class(r, out);
    if (c == '[')
        return open_class(r, out);
    if (c == '(' && peek(r, 1) == '?' && peek(r, 2) == 'm' && (peek(r, 3) == ':' || peek(r, 3) == ')')) {
        r->at += 3;
        return add_text(out, "(?s");
    }
    r->at++;
    return attn_strbuf_add(out, &c, 1);
}

static attn_status translate(const char *pattern, size_t len, const char *where, attn_strbuf *out)
{
    reader r = {.pattern = pattern, .where = where, .len = len};
    while (r.at < len)
        ATTN_TEXT_TRY(translate_next(&r, out));
    return ATTN_OK;
}

static attn_status compile(const char *pattern, size_t len, const char *where, pcre2_code **code)
{
    int error;
    PCRE2_SIZE at;
    *code = pcre2_compile((PCRE2_SPTR)pattern, len, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                          &error, &at, NULL);
    if (!*code) {
        char why[128] = "";
        pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
        return attn_text_fail(ATTN_ERR_FORMAT, "%s is not a regular expression that can be used: %s (at byte %zu of \"%.*s\")",
                              where, why, (size_t)at, (int)(len < 200 ? len : 200), pattern);
    }
    pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE); /* where there is no JIT, matching interprets */
    return ATTN_OK;
}

attn_status attn_regex_create(const char *pattern, size_t len, const char *where, attn_regex **regex)
{
    *regex = NULL;
    attn_strbuf translated = {0};
    attn_regex *made = calloc(1, sizeof *made);
    attn_status status = made ? attn_strbuf_reserve(&translated, len + 1) : attn_text_no_memory();
    if (status == ATTN_OK)
        status = translate(pattern, len, where, &translated);
    if (status == ATTN_OK)
        status = compile(translated.data, translated.len, where, &made->code);
    attn_strbuf_free(&translated);
    if (status != ATTN_OK) {
        attn_regex_destroy(made);
        return status;
    }
    *regex = made;
    return ATTN_OK;
}

void attn_regex_destroy(attn_regex *regex)
{
    if (regex)
        pcre2_code_free(regex->code);
    free(regex);
}

attn_status attn_regex_scratch_create(attn_regex_scratch **scratch)
{
    attn_regex_scratch *made = calloc(1, sizeof *made);
    if (made) {
        made->match = pcre2_match_data_create(1, NULL);
        made->context = pcre2_match_context_create(NULL);
        made->stack = pcre2_jit_stack_create(32 * 1024, 64 * 1024 * 1024, NULL);
    }
    if (!made || !made->match || !made->context) {
        attn_regex_scratch_destroy(made);
        *scratch = NULL;
        return attn_text_no_memory();
    }
    if (made->stack)
        pcre2_jit_stack_assign(made->context, NULL, made->stack);
    *scratch = made;
    return ATTN_OK;
}

void attn_regex_scratch_destroy(attn_regex_scratch *scratch)
{
    if (!scratch)
        return;
    pcre2_match_data_free(scratch->match);
    pcre2_match_context_free(scratch->context);
    pcre2_jit_stack_free(scratch->stack);
    free(scratch);
}

attn_status attn_regex_find(const attn_regex *regex, attn_regex_scratch *scratch, const char *text, size_t len,
                            size_t at, bool not_empty_at, size_t *start, size_t *end)
{
    uint32_t options = PCRE2_NO_UTF_CHECK | (not_empty_at ? PCRE2_NOTEMPTY_ATSTART : 0);
    int found = pcre2_match(regex->code, (PCRE2_SPTR)text, len, at, options, scratch->match, scratch->context);
    if (found == PCRE2_ERROR_NOMATCH) {
        *start = SIZE_MAX;
        return ATTN_OK;
    }
    if (found < 0)
        return attn_text_fail(ATTN_ERR_UNSUPPORTED, "text: the split pattern exceeds its matching limits at byte %zu", at);
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(scratch->match);
    *start = ends[0];
    *end = ends[1];
    if (*start < at || *end < *start) /* \K in a lookaround */
        return attn_text_fail(ATTN_ERR_UNSUPPORTED, "text: the split pattern matches backwards at byte %zu", at);
    return ATTN_OK;
}
