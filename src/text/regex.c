/* regex.c - split patterns over PCRE2.
 *
 * tokenizer.json files hold patterns in Oniguruma's Ruby syntax. PCRE2 reads them the same way but for a few escapes,
 * which translate() rewrites: \s means White_Space (PCRE2's adds U+180E), \h is a hexadecimal digit (PCRE2: a blank),
 * ^ and $ work at every line (MULTILINE), (?m) is PCRE2's (?s).
 */
#include "text/regex.h"

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

static attn_status add_text(attn_strbuf *out, const char *text)
{
    return attn_strbuf_add(out, text, strlen(text));
}

/* Rewrites the escape \c; inside a character class where `in_class`. */
static attn_status translate_escape(attn_strbuf *out, char c, bool in_class)
{
    char same[2] = {'\\', c};
    switch (c) {
    case 's':
        return add_text(out, in_class ? SPACES : "[" SPACES "]");
    case 'S':
        return add_text(out, in_class ? NOT_SPACES : "[^" SPACES "]");
    case 'h':
        return add_text(out, in_class ? "0-9a-fA-F" : "[0-9a-fA-F]");
    case 'H':
        if (!in_class)
            return add_text(out, "[^0-9a-fA-F]");
        break;
    default:
        break;
    }
    return attn_strbuf_add(out, same, 2);
}

/* Inside a class at pattern[i], an unescaped '[' or "&&": a class within a class, or an intersection, which PCRE2 would
 * take for plain characters. [:name:] is the same in both and is copied; *skip is its length. */
static attn_status check_class(const char *pattern, size_t len, size_t i, const char *where, size_t *skip)
{
    const char *close;
    *skip = 0;
    if (pattern[i] == '[' && i + 1 < len && pattern[i + 1] == ':' &&
        (close = memmem(pattern + i + 2, len - i - 2, ":]", 2)) != NULL) {
        *skip = (size_t)(close + 2 - (pattern + i));
        return ATTN_OK;
    }
    if (pattern[i] == '[' || (pattern[i] == '&' && i + 1 < len && pattern[i + 1] == '&'))
        return attn_text_fail(ATTN_ERR_UNSUPPORTED, "%s: classes within classes and intersections are not served: \"%.*s\"",
                              where, (int)(len < 200 ? len : 200), pattern);
    return ATTN_OK;
}

static attn_status translate(const char *pattern, size_t len, const char *where, attn_strbuf *out)
{
    bool in_class = false;
    size_t class_start = 0, skip;
    for (size_t i = 0; i < len; i++) {
        char c = pattern[i];
        if (c == '\\' && i + 1 < len) {
            ATTN_TEXT_TRY(translate_escape(out, pattern[++i], in_class));
            continue;
        }
        if (in_class && (c == '[' || c == '&')) {
            ATTN_TEXT_TRY(check_class(pattern, len, i, where, &skip));
            if (skip) {
                ATTN_TEXT_TRY(attn_strbuf_add(out, pattern + i, skip));
                i += skip - 1;
                continue;
            }
        } else if (in_class && c == ']' && i > class_start) {
            in_class = false;
        } else if (!in_class && c == '[') {
            in_class = true;
            class_start = i + 1 < len && pattern[i + 1] == '^' ? i + 2 : i + 1;
        } else if (!in_class && c == '(' && i + 3 < len && !memcmp(pattern + i, "(?m", 3) &&
                   (pattern[i + 3] == ':' || pattern[i + 3] == ')')) {
            ATTN_TEXT_TRY(add_text(out, "(?s"));
            i += 2;
            continue;
        }
        ATTN_TEXT_TRY(attn_strbuf_add(out, &c, 1));
    }
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
