/* chat_value.c - values of chat templates: truth, equality, printing, arithmetic, items and slices as Python has them. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "text/chat_run.h"
#include "text/utf8.h"

#define MOST_BYTES ((size_t)1 << 26) /* that one rendering may make */

json_t *chat_own(chat_run *r, json_t *value)
{
    r->bytes += 64;
    if (!value || json_array_append_new(r->pool, value))
        return chat_fail(r, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    if (r->bytes > MOST_BYTES)
        return chat_fail(r, ATTN_ERR_FORMAT, "the template makes more than %zu bytes", MOST_BYTES);
    return value;
}

json_t *chat_string(chat_run *r, const char *text, size_t n)
{
    r->bytes += n;
    return chat_own(r, json_stringn(text ? text : "", n));
}

json_t *chat_bool(bool value)
{
    return json_boolean(value); /* jansson's are not counted */
}

bool chat_true(const json_t *value)
{
    switch (value ? json_typeof(value) : JSON_NULL) {
    case JSON_TRUE:
        return true;
    case JSON_INTEGER:
        return json_integer_value(value) != 0;
    case JSON_REAL:
        return json_real_value(value) != 0;
    case JSON_STRING:
        return json_string_length(value) != 0;
    case JSON_ARRAY:
        return json_array_size(value) != 0;
    case JSON_OBJECT:
        return json_object_size(value) != 0;
    default:
        return false;
    }
}

static bool is_number(const json_t *value)
{
    return json_is_number(value) || json_is_boolean(value);
}

static double number_of(const json_t *value)
{
    return json_is_boolean(value) ? (json_is_true(value) ? 1 : 0) : json_number_value(value);
}

/* Takes the members of value, and of its members, off what is left; false where nothing is, or it nests deeper than depth. */
static bool weigh(const json_t *value, int64_t *left, int depth)
{
    const char *key;
    json_t *member;
    if (--*left < 0 || depth == 0)
        return false;
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!weigh(json_array_get(value, i), left, depth - 1))
            return false;
    json_object_foreach((json_t *)(uintptr_t)value, key, member)
        if (!weigh(member, left, depth - 1))
            return false;
    return true;
}

bool chat_weigh(chat_run *r, const json_t *value)
{
    int64_t left = 1 << 16;
    if (!weigh(value, &left, 200))
        chat_fail(r, ATTN_ERR_FORMAT, "a list or dict nests too deep or has more than %d members", 1 << 16);
    return !r->failed;
}

bool chat_equal(chat_run *r, const json_t *a, const json_t *b)
{
    if (!chat_weigh(r, a))
        return false;
    if (is_number(a) && is_number(b))
        return json_is_integer(a) && json_is_integer(b) ? json_integer_value(a) == json_integer_value(b)
                                                        : number_of(a) == number_of(b);
    return a && b ? json_equal(a, b) != 0 : a == b;
}

void chat_print(chat_run *r, attn_strbuf *out, const json_t *value)
{
    char text[40];
    int n = 0;
    switch (value ? json_typeof(value) : JSON_STRING) {
    case JSON_STRING:
        r->bytes += json_string_length(value);
        if (value && attn_strbuf_add(out, json_string_value(value), json_string_length(value)) != ATTN_OK)
            chat_fail(r, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
        if (r->bytes > MOST_BYTES)
            chat_fail(r, ATTN_ERR_FORMAT, "the template makes more than %zu bytes", MOST_BYTES);
        return;
    case JSON_TRUE:
    case JSON_FALSE:
        n = snprintf(text, sizeof text, "%s", json_is_true(value) ? "True" : "False");
        break;
    case JSON_NULL:
        n = snprintf(text, sizeof text, "None");
        break;
    case JSON_INTEGER:
        n = snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        break;
    case JSON_REAL: /* the shortest that reads back, as Python writes it */
        for (int digits = 1; digits <= 17; digits++) {
            n = snprintf(text, sizeof text, "%.*g", digits, json_real_value(value));
            if (strtod(text, NULL) == json_real_value(value))
                break;
        }
        if (!strpbrk(text, ".en"))
            n += snprintf(text + n, sizeof text - (size_t)n, ".0");
        break;
    default:
        chat_fail(r, ATTN_ERR_UNSUPPORTED, "a list or dict is printed (as JSON: | tojson)");
        return;
    }
    if (attn_strbuf_add(out, text, (size_t)n) != ATTN_OK)
        chat_fail(r, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
}

json_t *chat_text_of(chat_run *r, json_t *value)
{
    attn_strbuf text = {0};
    if (json_is_string(value))
        return value;
    chat_print(r, &text, value);
    json_t *made = r->failed ? NULL : chat_string(r, text.data, text.len);
    attn_strbuf_free(&text);
    return made;
}

json_t *chat_list_of(chat_run *r, json_t *value)
{
    const char *key;
    json_t *member, *list;
    if (json_is_array(value))
        return value;
    if (!(list = chat_own(r, json_array())) || !value)
        return list;
    if (json_is_object(value)) {
        json_object_foreach(value, key, member)
            json_array_append(list, chat_string(r, key, strlen(key)));
    } else if (json_is_string(value)) {
        const char *p = json_string_value(value), *end = p + json_string_length(value);
        for (size_t n; p < end && !r->failed; p += n) {
            n = attn_utf8_size(*p);
            json_array_append(list, chat_string(r, p, n));
        }
    } else {
        return chat_fail(r, ATTN_ERR_FORMAT, "what a loop goes over is no list");
    }
    return list;
}

int64_t chat_length(chat_run *r, const json_t *value)
{
    int64_t n = 0;
    if (json_is_array(value))
        return (int64_t)json_array_size(value);
    if (json_is_object(value))
        return (int64_t)json_object_size(value);
    if (value && !json_is_string(value))
        chat_fail(r, ATTN_ERR_FORMAT, "a number or none has no length");
    const char *p = json_string_value(value), *end = p ? p + json_string_length(value) : NULL;
    for (; p < end; p += attn_utf8_size(*p))
        n++;
    return n;
}

/* Where `part` begins in text from `from` on; SIZE_MAX: nowhere. */
static size_t find_text(const char *text, size_t n, const char *part, size_t n_part, size_t from)
{
    for (size_t i = from; n_part <= n && i <= n - n_part; i++)
        if (!memcmp(text + i, part, n_part))
            return i;
    return SIZE_MAX;
}

json_t *chat_contains(chat_run *r, json_t *item, json_t *container)
{
    if (json_is_string(container) && json_is_string(item))
        return chat_bool(find_text(json_string_value(container), json_string_length(container), json_string_value(item),
                                   json_string_length(item), 0) != SIZE_MAX);
    if (json_is_object(container))
        return chat_bool(json_is_string(item) && json_object_get(container, json_string_value(item)));
    if (container && !json_is_array(container))
        return chat_fail(r, ATTN_ERR_FORMAT, "'in' has no list, dict or text on its right");
    for (size_t i = 0; i < json_array_size(container); i++)
        if (chat_equal(r, item, json_array_get(container, i)))
            return chat_bool(true);
    return chat_bool(false);
}

static json_t *repeat(chat_run *r, const json_t *text, int64_t times)
{
    attn_strbuf out = {0};
    for (int64_t i = 0; i < times && !r->failed && chat_step(r); i++)
        chat_print(r, &out, text);
    json_t *made = r->failed ? NULL : chat_string(r, out.data, out.len);
    attn_strbuf_free(&out);
    return made;
}

static json_t *joined_lists(chat_run *r, const json_t *a, const json_t *b)
{
    json_t *list = chat_own(r, json_array());
    r->bytes += 8 * (json_array_size(a) + json_array_size(b));
    if (list && (json_array_extend(list, (json_t *)(uintptr_t)a) || json_array_extend(list, (json_t *)(uintptr_t)b)))
        return chat_fail(r, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    return list;
}

static json_t *concatenated(chat_run *r, const json_t *a, const json_t *b)
{
    attn_strbuf out = {0};
    chat_print(r, &out, a);
    chat_print(r, &out, b);
    json_t *made = r->failed ? NULL : chat_string(r, out.data, out.len);
    attn_strbuf_free(&out);
    return made;
}

/* Python's: the quotient is rounded down, the remainder has the divisor's sign. */
static json_t *whole_numbers(chat_run *r, char op, int64_t a, int64_t b)
{
    int64_t result = 0;
    if (op == '+' ? __builtin_add_overflow(a, b, &result)
        : op == '-' ? __builtin_sub_overflow(a, b, &result)
        : op == '*' ? __builtin_mul_overflow(a, b, &result)
                    : b == 0 || (b == -1 && a == INT64_MIN))
        return chat_fail(r, ATTN_ERR_FORMAT, "%lld %c %lld has no value", (long long)a, op, (long long)b);
    if (op == 'f')
        result = a / b - (a % b != 0 && (a < 0) != (b < 0));
    else if (op == '%')
        result = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    return chat_own(r, json_integer(result));
}

json_t *chat_binary(chat_run *r, char op, json_t *a, json_t *b)
{
    if (op == '~')
        return concatenated(r, a, b);
    if (op == '+' && json_is_string(a) && json_is_string(b))
        return concatenated(r, a, b);
    if (op == '+' && json_is_array(a) && json_is_array(b))
        return joined_lists(r, a, b);
    if (op == '*' && json_is_string(a) && json_is_integer(b))
        return repeat(r, a, json_integer_value(b));
    if (op == '*' && json_is_integer(a) && json_is_string(b))
        return repeat(r, b, json_integer_value(a));
    if (!is_number(a) || !is_number(b))
        return chat_fail(r, ATTN_ERR_FORMAT, "'%s' stands between values that it does not join", op == 'f' ? "//" : (char[]){op, 0});
    if (!json_is_real(a) && !json_is_real(b) && op != '/')
        return whole_numbers(r, op, (int64_t)number_of(a), (int64_t)number_of(b));
    const double x = number_of(a), y = number_of(b);
    if (y == 0 && (op == '/' || op == 'f' || op == '%'))
        return chat_fail(r, ATTN_ERR_FORMAT, "a division by zero");
    const double result = op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : op == '/' ? x / y
                          : op == 'f' ? floor(x / y) : x - y * floor(x / y);
    return chat_own(r, json_real(result)); /* NULL where it is not finite */
}

json_t *chat_order(chat_run *r, const json_t *a, const json_t *b, int *order)
{
    if (is_number(a) && is_number(b)) {
        const double x = number_of(a), y = number_of(b);
        *order = (x > y) - (x < y);
    } else if (json_is_string(a) && json_is_string(b)) {
        *order = strcmp(json_string_value(a), json_string_value(b));
    } else {
        return chat_fail(r, ATTN_ERR_FORMAT, "values of two kinds have no order");
    }
    return chat_bool(true);
}

json_t *chat_item(chat_run *r, json_t *value, json_t *key)
{
    if (!value)
        return chat_fail(r, ATTN_ERR_FORMAT, "a value that is not defined has no items");
    if (json_is_object(value))
        return json_is_string(key) ? json_object_get(value, json_string_value(key)) : NULL;
    if (!json_is_integer(key) || (!json_is_array(value) && !json_is_string(value)))
        return NULL;
    json_t *list = chat_list_of(r, value);
    int64_t i = json_integer_value(key), n = (int64_t)json_array_size(list);
    i = i < 0 ? i + n : i;
    return i >= 0 && i < n ? json_array_get(list, (size_t)i) : NULL;
}

static int64_t bound_of(const json_t *given, int64_t n, int64_t low, int64_t high, int64_t fallback)
{
    if (!json_is_integer(given))
        return fallback;
    int64_t i = json_integer_value(given);
    i = i < 0 ? (i < -n ? low : i + n) : i;
    return i < low ? low : i > high ? high : i;
}

json_t *chat_slice(chat_run *r, json_t *value, json_t *first, json_t *last, json_t *step)
{
    if (!json_is_array(value) && !json_is_string(value))
        return chat_fail(r, ATTN_ERR_FORMAT, "a slice of what is no list and no text");
    json_t *list = chat_list_of(r, value), *out = chat_own(r, json_array());
    const int64_t n = (int64_t)json_array_size(list), by = json_is_integer(step) ? json_integer_value(step) : 1;
    if (by == 0 || by == INT64_MIN)
        return chat_fail(r, ATTN_ERR_FORMAT, "the step of a slice is %lld", (long long)by);
    const bool back = by < 0;
    int64_t at = bound_of(first, n, back ? -1 : 0, back ? n - 1 : n, back ? n - 1 : 0);
    const int64_t end = bound_of(last, n, back ? -1 : 0, back ? n - 1 : n, back ? -1 : n);
    while (!r->failed && (back ? at > end : at < end)) {
        json_array_append(out, json_array_get(list, (size_t)at));
        if (by > n || by < -n)
            break;
        at += by;
    }
    if (r->failed || json_is_array(value))
        return r->failed ? NULL : out;
    attn_strbuf text = {0};
    for (size_t i = 0; i < json_array_size(out); i++)
        chat_print(r, &text, json_array_get(out, i));
    json_t *made = r->failed ? NULL : chat_string(r, text.data, text.len);
    attn_strbuf_free(&text);
    return made;
}

/* Is the character at p (n bytes) one that Python's strip() removes, or one of the given? */
static bool is_stripped(const char *p, size_t n, const json_t *characters)
{
    if (characters)
        return find_text(json_string_value(characters), json_string_length(characters), p, n, 0) != SIZE_MAX;
    if (n == 1)
        return *p == ' ' || (*p >= 9 && *p <= 13) || (*p >= 28 && *p <= 31);
    static const char *const spaces[] = {"\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\xA8",
                                         "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        if (strlen(spaces[i]) == n && !memcmp(p, spaces[i], n))
            return true;
    return n == 3 && !memcmp(p, "\xE2\x80", 2) && (unsigned char)p[2] >= 0x80 && (unsigned char)p[2] <= 0x8A;
}

json_t *chat_trim(chat_run *r, const json_t *text, const json_t *characters, bool left, bool right)
{
    const char *p = json_string_value(text), *end = p ? p + json_string_length(text) : NULL;
    while (left && p < end && is_stripped(p, attn_utf8_size(*p), characters))
        p += attn_utf8_size(*p);
    while (right && p < end) {
        const char *last = end - 1;
        while (last > p && ((unsigned char)*last & 0xC0) == 0x80)
            last--;
        if (!is_stripped(last, (size_t)(end - last), characters))
            break;
        end = last;
    }
    return chat_string(r, p, (size_t)(end - p));
}
