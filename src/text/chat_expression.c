/* chat_expression.c - expressions of chat templates, read and evaluated in one pass. From weak to strong: if-else, or, and, not,
 * comparisons and in, + and -, ~, * / // %, signs, then items, calls, filters and tests. */
#include <stdio.h>
#include <string.h>
#include "text/chat_run.h"
#include "text/utf8.h"

#define MOST_NAME 64

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void skip_blanks(chat_run *r)
{
    while (r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at)
        r->at++;
}

bool chat_at_end(chat_run *r)
{
    skip_blanks(r);
    return r->at >= r->end;
}

bool chat_peek(chat_run *r, const char *sign)
{
    const size_t n = strlen(sign);
    skip_blanks(r);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, sign, n))
        return false;
    return !is_letter(*sign) || r->at + n == r->end || !(is_letter(r->at[n]) || is_digit(r->at[n]));
}

bool chat_sign(chat_run *r, const char *sign)
{
    if (r->failed || !chat_peek(r, sign))
        return false;
    r->at += strlen(sign);
    return true;
}

static void expect(chat_run *r, const char *sign)
{
    if (!chat_sign(r, sign))
        chat_fail(r, ATTN_ERR_FORMAT, "'%s' is missing", sign);
}

bool chat_name(chat_run *r, const char **name, size_t *n)
{
    skip_blanks(r);
    if (r->failed || r->at >= r->end || !is_letter(*r->at))
        return false;
    *name = r->at;
    while (r->at < r->end && (is_letter(*r->at) || is_digit(*r->at)))
        r->at++;
    *n = (size_t)(r->at - *name);
    return true;
}

/* A name as a terminated text; "" and a failure where there is none. */
static const char *need_name(chat_run *r, char out[MOST_NAME])
{
    const char *name;
    size_t n = 0;
    out[0] = '\0';
    if (!chat_name(r, &name, &n) || n >= MOST_NAME)
        chat_fail(r, ATTN_ERR_FORMAT, "a name is missing");
    else
        snprintf(out, MOST_NAME, "%.*s", (int)n, name);
    return out;
}

/* ---- Literals ---- */

static void add_code_point(chat_run *r, attn_strbuf *out, uint32_t code)
{
    char c[4];
    const size_t n = attn_utf8_put(code, c);
    if (code >= 0xD800 && code < 0xE000)
        chat_fail(r, ATTN_ERR_FORMAT, "a surrogate in a text");
    else if (attn_strbuf_add(out, c, n) != ATTN_OK)
        chat_fail(r, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
}

/* Behind a backslash. */
static void read_escape(chat_run *r, attn_strbuf *out)
{
    static const char from[] = "ntrbfv0\\'\"", to[] = "\n\t\r\b\f\v\0\\'\"";
    const char c = *r->at++;
    const char *found = c ? strchr(from, c) : NULL;
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : 0;
    uint32_t code = 0;
    if (found) {
        add_code_point(r, out, (unsigned char)to[found - from]);
        return;
    }
    if (c == '\n')
        return;
    if (!digits) {
        attn_strbuf_add(out, "\\", 1);
        r->at--;
        return; /* Python keeps both */
    }
    for (int i = 0; i < digits; i++, r->at++) {
        const char *hex = "0123456789abcdef", *at = r->at < r->end && *r->at ? strchr(hex, *r->at | (is_digit(*r->at) ? 0 : 32)) : NULL;
        if (!at) {
            chat_fail(r, ATTN_ERR_FORMAT, "\\%c without %d digits", c, digits);
            return;
        }
        code = code * 16 + (uint32_t)(at - hex);
    }
    add_code_point(r, out, code);
}

static json_t *read_text(chat_run *r)
{
    attn_strbuf out = {0};
    for (bool more = true; more && !r->failed;) { /* "a" "b" is one text */
        const char quote = *r->at++;
        while (!r->failed && r->at < r->end && *r->at != quote) {
            if (*r->at == '\\' && r->at + 1 < r->end) {
                r->at++;
                read_escape(r, &out);
            } else if (attn_strbuf_add(&out, r->at++, 1) != ATTN_OK) {
                chat_fail(r, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
            }
        }
        if (!r->failed && r->at >= r->end)
            chat_fail(r, ATTN_ERR_FORMAT, "a text has no end");
        r->at += !r->failed;
        skip_blanks(r);
        more = !r->failed && r->at < r->end && (*r->at == '"' || *r->at == '\'');
    }
    json_t *made = r->failed ? NULL : chat_string(r, out.data, out.len);
    attn_strbuf_free(&out);
    return made;
}

static json_t *read_number(chat_run *r)
{
    char text[40];
    size_t n = 0;
    bool real = false;
    while (r->at < r->end && n + 1 < sizeof text && (is_digit(*r->at) || (*r->at == '.' && r->at + 1 < r->end && is_digit(r->at[1])))) {
        real = real || *r->at == '.';
        text[n++] = *r->at++;
    }
    text[n] = '\0';
    if (n > 18 && !real)
        return chat_fail(r, ATTN_ERR_FORMAT, "%s is too large", text);
    return chat_own(r, real ? json_real(strtod(text, NULL)) : json_integer(strtoll(text, NULL, 10)));
}

/* Elements up to `close`; what stands before it was taken. */
static json_t *read_list(chat_run *r, const char *close)
{
    json_t *list = chat_own(r, json_array());
    while (!r->failed && !chat_sign(r, close)) {
        json_t *item = chat_expression(r);
        if (!r->failed && json_array_append(list, item ? item : json_null()))
            chat_fail(r, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
        if (!chat_peek(r, close))
            expect(r, ",");
    }
    return !r->failed && chat_weigh(r, list) ? list : NULL;
}

static json_t *read_dict(chat_run *r)
{
    json_t *dict = chat_own(r, json_object());
    while (!r->failed && !chat_sign(r, "}")) {
        json_t *key = chat_expression(r);
        expect(r, ":");
        json_t *value = chat_expression(r);
        if (!r->failed && !r->skip && !json_is_string(key))
            chat_fail(r, ATTN_ERR_UNSUPPORTED, "a key of a dict that is no text");
        if (!r->failed && !r->skip && json_object_set(dict, json_string_value(key), value ? value : json_null()))
            chat_fail(r, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
        if (!chat_peek(r, "}"))
            expect(r, ",");
    }
    return !r->failed && chat_weigh(r, dict) ? dict : NULL;
}

static json_t *read_bracket(chat_run *r)
{
    json_t *first = chat_expression(r);
    if (chat_sign(r, ")"))
        return first;
    expect(r, ",");
    json_t *list = chat_own(r, json_array()), *rest = read_list(r, ")");
    if (r->failed)
        return NULL;
    json_array_append(list, first ? first : json_null());
    json_array_extend(list, rest);
    return chat_weigh(r, list) ? list : NULL;
}

/* ---- Calls ---- */

/* Arguments up to ')'; '(' was taken. */
static void read_args(chat_run *r, chat_args *args)
{
    memset(args, 0, sizeof *args);
    args->named = chat_own(r, json_object());
    while (!r->failed && !chat_sign(r, ")")) {
        const char *before, *name;
        size_t n = 0;
        char key[MOST_NAME] = "";
        skip_blanks(r);
        before = r->at;
        if (chat_name(r, &name, &n) && n < MOST_NAME && chat_peek(r, "=") && !chat_peek(r, "==")) {
            snprintf(key, sizeof key, "%.*s", (int)n, name);
            chat_sign(r, "=");
        } else {
            r->at = before;
        }
        json_t *value = chat_expression(r);
        if (!r->failed && key[0] && json_object_set(args->named, key, value ? value : json_null()))
            chat_fail(r, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
        if (!key[0] && args->n == CHAT_MAX_ARGS)
            chat_fail(r, ATTN_ERR_UNSUPPORTED, "more than %d arguments", CHAT_MAX_ARGS);
        else if (!key[0])
            args->value[args->n++] = value;
        if (!chat_peek(r, ")"))
            expect(r, ",");
    }
}

static json_t *read_name(chat_run *r)
{
    static const struct {
        const char *word;
        int value;
    } constants[] = {{"true", 1}, {"True", 1}, {"false", 0}, {"False", 0}, {"none", -1}, {"None", -1}};
    const char *name;
    size_t n;
    chat_args args;
    char text[MOST_NAME];
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (chat_sign(r, constants[i].word))
            return constants[i].value < 0 ? json_null() : chat_bool(constants[i].value > 0);
    if (!chat_name(r, &name, &n) || n >= MOST_NAME)
        return chat_fail(r, ATTN_ERR_FORMAT, "a value is missing");
    if (!chat_sign(r, "("))
        return r->skip ? NULL : chat_look_up(r, name, n);
    read_args(r, &args);
    json_t *value = NULL;
    if (r->skip || r->failed || chat_call_macro(r, name, n, &args, &value))
        return value;
    snprintf(text, sizeof text, "%.*s", (int)n, name);
    return chat_function(r, text, &args);
}

static json_t *read_primary(chat_run *r)
{
    skip_blanks(r);
    const char c = r->at < r->end ? *r->at : '\0';
    if (c == '"' || c == '\'')
        return read_text(r);
    if (is_digit(c))
        return read_number(r);
    if (chat_sign(r, "("))
        return read_bracket(r);
    if (chat_sign(r, "["))
        return read_list(r, "]");
    if (chat_sign(r, "{"))
        return read_dict(r);
    return read_name(r);
}

/* ---- What stands behind a value ---- */

static json_t *read_index(chat_run *r, json_t *value)
{
    json_t *part[3] = {NULL, NULL, NULL};
    int n = 0;
    bool slice = false;
    while (!r->failed && !chat_peek(r, "]")) {
        if (chat_sign(r, ":")) {
            slice = true;
            if (++n > 2)
                return chat_fail(r, ATTN_ERR_FORMAT, "a slice has more than two ':'");
        } else {
            part[n] = chat_expression(r);
        }
    }
    expect(r, "]");
    if (r->skip || r->failed)
        return NULL;
    return slice ? chat_slice(r, value, part[0], part[1], part[2]) : chat_item(r, value, part[0]);
}

static json_t *read_attribute(chat_run *r, json_t *value)
{
    char name[MOST_NAME];
    chat_args args;
    need_name(r, name);
    json_t *member = json_is_object(value) ? json_object_get(value, name) : NULL;
    if (chat_sign(r, "(")) {
        read_args(r, &args);
        return r->skip || r->failed ? NULL : chat_method(r, name, value, &args);
    }
    if (!r->skip && !r->failed && !value)
        return chat_fail(r, ATTN_ERR_FORMAT, ".%s of a value that is not defined", name);
    return member;
}

static json_t *read_filter(chat_run *r, json_t *value)
{
    char name[MOST_NAME];
    chat_args args = {.n = 0};
    need_name(r, name);
    if (chat_sign(r, "("))
        read_args(r, &args);
    return r->skip || r->failed ? NULL : chat_filter(r, name, value, &args);
}

static json_t *read_signed(chat_run *r, bool filters);

static json_t *read_test(chat_run *r, json_t *value)
{
    char name[MOST_NAME];
    chat_args args = {.n = 0};
    const bool negated = chat_sign(r, "not");
    need_name(r, name);
    if (chat_sign(r, "("))
        read_args(r, &args);
    else if (chat_test_takes_argument(name))
        args.value[args.n++] = read_signed(r, false);
    if (r->skip || r->failed)
        return NULL;
    json_t *result = chat_test(r, name, value, &args);
    return r->failed ? NULL : chat_bool(chat_true(result) != negated);
}

static json_t *read_signed(chat_run *r, bool filters)
{
    json_t *value;
    if (!chat_step(r) || ++r->depth > 100) {
        chat_fail(r, ATTN_ERR_FORMAT, "an expression nests too deep");
        return NULL;
    }
    if (chat_sign(r, "-")) {
        value = read_signed(r, false);
        value = r->skip || r->failed ? NULL : chat_binary(r, '-', chat_own(r, json_integer(0)), value);
    } else if (chat_sign(r, "+")) {
        value = read_signed(r, false);
    } else {
        value = read_primary(r);
    }
    while (!r->failed && chat_step(r)) {
        if (chat_sign(r, "["))
            value = read_index(r, value);
        else if (chat_sign(r, "."))
            value = read_attribute(r, value);
        else if (filters && chat_sign(r, "|"))
            value = read_filter(r, value);
        else if (filters && chat_sign(r, "is"))
            value = read_test(r, value);
        else
            break;
    }
    r->depth--;
    return r->failed ? NULL : value;
}

/* ---- Operators ---- */

static json_t *joined(chat_run *r, char op, json_t *a, json_t *b)
{
    return r->skip || r->failed ? NULL : chat_binary(r, op, a, b);
}

static json_t *read_product(chat_run *r)
{
    json_t *value = read_signed(r, true);
    while (!r->failed) {
        const char op = chat_sign(r, "//") ? 'f' : chat_sign(r, "*") ? '*' : chat_sign(r, "/") ? '/' : chat_sign(r, "%") ? '%' : '\0';
        if (!op)
            break;
        value = joined(r, op, value, read_signed(r, true));
    }
    return value;
}

static json_t *read_joined(chat_run *r)
{
    json_t *value = read_product(r);
    while (chat_sign(r, "~"))
        value = joined(r, '~', value, read_product(r));
    return value;
}

static json_t *read_sum(chat_run *r)
{
    json_t *value = read_joined(r);
    while (!r->failed) {
        const char op = chat_sign(r, "+") ? '+' : chat_sign(r, "-") ? '-' : '\0';
        if (!op)
            break;
        value = joined(r, op, value, read_joined(r));
    }
    return value;
}

static json_t *compared(chat_run *r, const char *op, json_t *a, json_t *b)
{
    int order = 0;
    if (r->skip || r->failed)
        return NULL;
    if (op[0] == '=' || op[0] == '!')
        return chat_bool(chat_equal(r, a, b) == (op[0] == '='));
    if (op[0] == 'i')
        return chat_contains(r, a, b);
    if (!chat_order(r, a, b, &order))
        return NULL;
    return chat_bool(op[0] == '<' ? (op[1] ? order <= 0 : order < 0) : (op[1] ? order >= 0 : order > 0));
}

static json_t *read_comparison(chat_run *r)
{
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">", "in"};
    json_t *value = read_sum(r), *result = NULL;
    bool decided = false; /* a < b < c is a < b and b < c: the rest may not be evaluated */
    for (bool any = false; !r->failed; any = true) {
        const char *op = NULL, *before = r->at;
        const bool negated = chat_sign(r, "not");
        for (size_t i = negated ? 6 : 0; !op && i < 7; i++)
            op = chat_sign(r, signs[i]) ? signs[i] : NULL;
        if (!op) {
            r->at = before;
            return any ? result : value;
        }
        r->skip += decided;
        json_t *right = read_sum(r), *here = compared(r, op, value, right);
        here = r->skip || r->failed ? NULL : chat_bool(chat_true(here) != negated);
        r->skip -= decided;
        result = decided ? result : here;
        decided = !r->skip && !chat_true(result);
        value = right;
    }
    return NULL;
}

static json_t *read_not(chat_run *r)
{
    bool negated = false, any = false;
    while (chat_sign(r, "not"))
        negated = !negated, any = true;
    json_t *value = read_comparison(r);
    return any && !r->skip && !r->failed ? chat_bool(chat_true(value) == negated ? false : true) : value;
}

static json_t *read_and(chat_run *r)
{
    json_t *value = read_not(r);
    while (chat_sign(r, "and")) {
        const bool decided = !chat_true(value);
        r->skip += decided;
        json_t *right = read_not(r);
        r->skip -= decided;
        value = decided ? value : right;
    }
    return value;
}

json_t *chat_condition_free(chat_run *r)
{
    json_t *value = read_and(r);
    while (chat_sign(r, "or")) {
        const bool decided = chat_true(value);
        r->skip += decided;
        json_t *right = read_and(r);
        r->skip -= decided;
        value = decided ? value : right;
    }
    return value;
}

/* Is there the word `if` between here and the end? */
static bool if_follows(chat_run *r)
{
    r->steps += (r->end - r->at) / 64;
    for (const char *p = r->at; p + 2 < r->end; p++)
        if (p[0] == 'i' && p[1] == 'f' && !is_letter(p[2]) && (p == r->at || !is_letter(p[-1])))
            return true;
    return false;
}

/* `a if c else b`: a is read over, then c evaluated, then the one that counts. */
static json_t *read_conditional(chat_run *r)
{
    const char *start = r->at;
    r->skip++;
    chat_condition_free(r);
    r->skip--;
    if (!chat_sign(r, "if")) {
        r->at = start;
        return chat_condition_free(r);
    }
    const bool holds = chat_true(chat_condition_free(r));
    const char *after = r->at;
    json_t *value = NULL;
    if (holds && !r->failed) {
        r->at = start;
        value = chat_condition_free(r);
        r->at = after;
    }
    r->skip += holds;
    if (chat_sign(r, "else")) {
        json_t *other = chat_expression(r);
        value = holds ? value : other;
    }
    r->skip -= holds;
    if (chat_peek(r, "if"))
        return chat_fail(r, ATTN_ERR_UNSUPPORTED, "one condition behind another");
    return value;
}

json_t *chat_expression(chat_run *r)
{
    if (r->failed)
        return NULL;
    skip_blanks(r);
    json_t *value = if_follows(r) ? read_conditional(r) : chat_condition_free(r);
    return r->failed ? NULL : value;
}

json_t *chat_expression_list(chat_run *r)
{
    json_t *value = chat_expression(r), *list = NULL;
    while (chat_sign(r, ",")) {
        if (!list && (list = chat_own(r, json_array())))
            json_array_append(list, value ? value : json_null());
        json_t *next = chat_at_end(r) ? NULL : chat_expression(r);
        json_array_append(list, next ? next : json_null());
    }
    return list && !chat_weigh(r, list) ? NULL : list ? list : value;
}
