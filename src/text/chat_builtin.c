/* chat_builtin.c - filters, tests, methods and functions of chat templates, with Python's and Jinja's meaning. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "io/json.h"
#include "text/chat_run.h"

static json_t *arg(const chat_args *args, int32_t i, const char *name)
{
    return i < args->n ? args->value[i] : json_object_get(args->named, name);
}

static bool same(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* ---- Texts ---- */

enum letter_case { LOWER, UPPER, CAPITALIZE, TITLE };

/* ASCII alone. */
static json_t *recased(chat_run *r, const json_t *text, enum letter_case how)
{
    attn_strbuf out = {0};
    const char *p = json_string_value(text), *end = p + json_string_length(text);
    for (bool first = true; p < end && !r->failed; p++) {
        const bool upper = *p >= 'A' && *p <= 'Z', letter = upper || (*p >= 'a' && *p <= 'z');
        const bool up = how == UPPER || (how != LOWER && first);
        if ((unsigned char)*p >= 0x80)
            chat_fail(r, ATTN_ERR_UNSUPPORTED, "upper and lower case beyond ASCII");
        const char c = letter && up != upper ? (char)(*p ^ 32) : *p;
        if (attn_strbuf_add(&out, &c, 1) != ATTN_OK)
            chat_fail(r, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
        first = how == TITLE && !letter;
    }
    json_t *made = r->failed ? NULL : chat_string(r, out.data, out.len);
    attn_strbuf_free(&out);
    return made;
}

static const char *found(const char *at, const char *end, const json_t *part)
{
    const size_t n = json_string_length(part);
    for (; (size_t)(end - at) >= n; at++)
        if (!memcmp(at, json_string_value(part), n))
            return at;
    return NULL;
}

static json_t *replaced(chat_run *r, const json_t *text, const json_t *old, const json_t *with)
{
    attn_strbuf out = {0};
    const char *p = json_string_value(text), *end = p + json_string_length(text), *next;
    if (!json_is_string(old) || !json_is_string(with) || json_string_length(old) == 0)
        return chat_fail(r, ATTN_ERR_UNSUPPORTED, "replace() wants two texts, the first not empty");
    bool good = true;
    while (good && (next = found(p, end, old)) != NULL) {
        good = attn_strbuf_add(&out, p, (size_t)(next - p)) == ATTN_OK &&
               attn_strbuf_add(&out, json_string_value(with), json_string_length(with)) == ATTN_OK && out.len < (1u << 28);
        p = next + json_string_length(old);
    }
    good = good && attn_strbuf_add(&out, p, (size_t)(end - p)) == ATTN_OK;
    json_t *made = good ? chat_string(r, out.data, out.len) : chat_fail(r, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    attn_strbuf_free(&out);
    return made;
}

/* from_right: at most `most` splits, the last ones. */
static json_t *split(chat_run *r, const json_t *text, const json_t *by, const json_t *most_given, bool from_right)
{
    json_t *list = chat_own(r, json_array());
    const char *p = json_string_value(text), *end = p + json_string_length(text), *next;
    int64_t most = json_is_integer(most_given) && json_integer_value(most_given) >= 0 ? json_integer_value(most_given) : INT64_MAX, all = 0;
    if (by && (!json_is_string(by) || json_string_length(by) == 0))
        return json_is_null(by) ? chat_fail(r, ATTN_ERR_UNSUPPORTED, "split(none)")
                                : chat_fail(r, ATTN_ERR_FORMAT, "split() by an empty text");
    if (!by) { /* runs of white space */
        while (p < end && !r->failed) {
            while (p < end && strchr(" \t\n\r\f\v", *p))
                p++;
            for (next = p; next < end && !strchr(" \t\n\r\f\v", *next);)
                next++;
            if (next > p)
                json_array_append(list, chat_string(r, p, (size_t)(next - p)));
            p = next;
        }
        return r->failed ? NULL : list;
    }
    const size_t n = json_string_length(by);
    for (const char *q = p; from_right && (next = found(q, end, by)); q = next + n)
        all++;
    for (int64_t passed = 0; !r->failed && most > 0; passed++) {
        const char *from = p;
        int64_t skip = from_right && all > most && passed == 0 ? all - most : 0;
        while ((next = found(from, end, by)) != NULL && skip-- > 0)
            from = next + n;
        if (!next)
            break;
        json_array_append(list, chat_string(r, p, (size_t)(next - p)));
        p = next + n;
        most -= !from_right;
    }
    json_array_append(list, chat_string(r, p, (size_t)(end - p)));
    return r->failed ? NULL : list;
}

static bool begins_or_ends(const json_t *text, const json_t *part, bool begins)
{
    const size_t n = json_string_length(text), m = json_string_length(part);
    for (size_t i = 0; json_is_array(part) && i < json_array_size(part); i++)
        if (begins_or_ends(text, json_array_get(part, i), begins))
            return true;
    return json_is_string(part) && m <= n && !memcmp(json_string_value(text) + (begins ? 0 : n - m), json_string_value(part), m);
}

static json_t *text_method(chat_run *r, const char *name, json_t *text, const chat_args *args)
{
    json_t *first = arg(args, 0, "chars");
    if (!json_is_string(text))
        return NULL; /* it could not be made */
    if (same(name, "strip") || same(name, "lstrip") || same(name, "rstrip"))
        return chat_trim(r, text, json_is_string(first) ? first : NULL, name[0] != 'r', name[0] != 'l');
    if (same(name, "split") || same(name, "rsplit"))
        return split(r, text, arg(args, 0, "sep"), arg(args, 1, "maxsplit"), name[0] == 'r');
    if (same(name, "startswith") || same(name, "endswith"))
        return chat_bool(begins_or_ends(text, first, name[0] == 's'));
    if (same(name, "replace"))
        return replaced(r, text, first, arg(args, 1, "new"));
    if (same(name, "upper") || same(name, "lower"))
        return recased(r, text, name[0] == 'u' ? UPPER : LOWER);
    if (same(name, "capitalize") || same(name, "title"))
        return recased(r, text, name[0] == 'c' ? CAPITALIZE : TITLE);
    if (same(name, "splitlines"))
        return chat_trim(r, text, NULL, false, false) ? split(r, text, chat_string(r, "\n", 1), NULL, false) : NULL;
    if (same(name, "find") && json_is_string(first)) {
        const char *p = json_string_value(text), *at = found(p, p + json_string_length(text), first);
        return chat_own(r, json_integer(at ? chat_length(r, chat_string(r, p, (size_t)(at - p))) : -1));
    }
    return chat_fail(r, ATTN_ERR_UNSUPPORTED, "the method %s() of a text is not served", name);
}

/* ---- Dicts and lists ---- */

static json_t *pairs_of(chat_run *r, json_t *dict, char what)
{
    json_t *list = chat_own(r, json_array()), *value;
    const char *key;
    json_object_foreach(dict, key, value)
    {
        json_t *name = chat_string(r, key, strlen(key)), *pair = what == 'i' ? chat_own(r, json_array()) : NULL;
        if (r->failed)
            return NULL;
        if (pair) {
            json_array_append(pair, name);
            json_array_append(pair, value);
        }
        json_array_append(list, what == 'i' ? pair : what == 'k' ? name : value);
    }
    return list;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(json_string_value(json_array_get(*(json_t *const *)a, 0)), json_string_value(json_array_get(*(json_t *const *)b, 0)));
}

static json_t *sorted_pairs(chat_run *r, json_t *dict)
{
    json_t *list = pairs_of(r, dict, 'i'), *out = chat_own(r, json_array());
    const size_t n = json_array_size(list);
    json_t **order = malloc((n + 1) * sizeof *order);
    for (size_t i = 0; order && i < n; i++)
        order[i] = json_array_get(list, i);
    if (order && n)
        qsort(order, n, sizeof *order, compare_keys);
    for (size_t i = 0; order && i < n; i++)
        json_array_append(out, order[i]);
    free(order);
    return out;
}

json_t *chat_method(chat_run *r, const char *name, json_t *value, const chat_args *args)
{
    if (json_is_string(value))
        return text_method(r, name, value, args);
    if (json_is_object(value) && (same(name, "items") || same(name, "keys") || same(name, "values")))
        return pairs_of(r, value, name[0]);
    if (json_is_object(value) && same(name, "get")) {
        json_t *member = json_is_string(arg(args, 0, "key")) ? json_object_get(value, json_string_value(arg(args, 0, "key"))) : NULL;
        return member ? member : args->n > 1 ? args->value[1] : json_null();
    }
    return chat_fail(r, value ? ATTN_ERR_UNSUPPORTED : ATTN_ERR_FORMAT, value ? "the method %s() is not served" : ".%s() of a value that is not defined", name);
}

/* Elements whose attribute (or which themselves) pass a test. */
static json_t *selected(chat_run *r, json_t *value, const chat_args *args, bool attribute, bool keep)
{
    json_t *list = chat_list_of(r, value), *out = chat_own(r, json_array());
    const int32_t at = attribute ? 1 : 0;
    const char *test = json_string_value(arg(args, at, "test"));
    chat_args rest = {.n = 0};
    for (int32_t i = at + 1; i < args->n; i++)
        rest.value[rest.n++] = args->value[i];
    for (size_t i = 0; i < json_array_size(list) && chat_step(r); i++) {
        json_t *item = json_array_get(list, i), *seen = attribute ? chat_item(r, item, arg(args, 0, "attribute")) : item;
        const bool passes = test ? chat_true(chat_test(r, test, seen, &rest)) : chat_true(seen);
        if (passes == keep)
            json_array_append(out, item);
    }
    return r->failed ? NULL : out;
}

static json_t *mapped(chat_run *r, json_t *value, const chat_args *args)
{
    json_t *list = chat_list_of(r, value), *out = chat_own(r, json_array()), *attribute = json_object_get(args->named, "attribute");
    const char *filter = args->n ? json_string_value(args->value[0]) : NULL;
    chat_args rest = {.n = 0};
    for (int32_t i = 1; i < args->n; i++)
        rest.value[rest.n++] = args->value[i];
    if (!filter && !attribute)
        return chat_fail(r, ATTN_ERR_FORMAT, "map() without a filter or an attribute");
    for (size_t i = 0; i < json_array_size(list) && chat_step(r); i++) {
        json_t *item = json_array_get(list, i), *seen = attribute ? chat_item(r, item, attribute) : chat_filter(r, filter, item, &rest);
        json_array_append(out, seen ? seen : json_null());
    }
    return r->failed ? NULL : out;
}

static json_t *joined_texts(chat_run *r, json_t *value, json_t *between, json_t *attribute)
{
    attn_strbuf out = {0};
    json_t *list = chat_list_of(r, value);
    for (size_t i = 0; i < json_array_size(list) && !r->failed; i++) {
        if (i && between)
            chat_print(r, &out, between);
        json_t *item = json_array_get(list, i);
        chat_print(r, &out, attribute ? chat_item(r, item, attribute) : item);
    }
    json_t *made = r->failed ? NULL : chat_string(r, out.data, out.len);
    attn_strbuf_free(&out);
    return made;
}

/* json.dumps(value, ensure_ascii=False, indent=indent) */
static json_t *as_json(chat_run *r, const json_t *value, const json_t *indent)
{
    size_t n;
    const int64_t by = json_is_integer(indent) ? json_integer_value(indent) : 0;
    if (!value)
        return chat_fail(r, ATTN_ERR_FORMAT, "a value that is not defined has no JSON");
    if (!chat_weigh(r, value))
        return NULL;
    char *text = attn_json_text(value, JSON_ENCODE_ANY | (by > 0 && by < 32 ? JSON_INDENT((size_t)by) : 0), &n);
    json_t *made = text ? chat_string(r, text, n) : chat_fail(r, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    free(text);
    return made;
}

static json_t *end_of_list(chat_run *r, json_t *value, bool last)
{
    json_t *list = chat_list_of(r, value);
    const size_t n = json_array_size(list);
    return n ? json_array_get(list, last ? n - 1 : 0) : NULL;
}

static json_t *indented(chat_run *r, json_t *value, const chat_args *args)
{
    attn_strbuf out = {0};
    const json_t *text = chat_text_of(r, value), *width = arg(args, 0, "width");
    const bool first = chat_true(arg(args, 1, "first"));
    const int64_t n = json_is_integer(width) ? json_integer_value(width) : 4;
    const char *p = json_string_value(text), *end = p ? p + json_string_length(text) : NULL;
    for (bool start = first; p < end && !r->failed; p++) {
        for (int64_t i = 0; start && *p != '\n' && i < n && i < 100; i++)
            attn_strbuf_add(&out, " ", 1);
        attn_strbuf_add(&out, p, 1);
        start = *p == '\n';
    }
    json_t *made = r->failed ? NULL : chat_string(r, out.data, out.len);
    attn_strbuf_free(&out);
    return made;
}

json_t *chat_filter(chat_run *r, const char *name, json_t *value, const chat_args *args)
{
    if (same(name, "trim"))
        return chat_trim(r, chat_text_of(r, value), json_is_string(arg(args, 0, "chars")) ? arg(args, 0, "chars") : NULL, true, true);
    if (same(name, "length") || same(name, "count"))
        return chat_own(r, json_integer(chat_length(r, value)));
    if (same(name, "default") || same(name, "d"))
        return value && (chat_true(value) || !chat_true(arg(args, 1, "boolean"))) ? value : args->n ? args->value[0] : chat_string(r, "", 0);
    if (same(name, "tojson"))
        return as_json(r, value, arg(args, 0, "indent"));
    if (same(name, "join"))
        return joined_texts(r, value, arg(args, 0, "d"), arg(args, 1, "attribute"));
    if (same(name, "first") || same(name, "last"))
        return end_of_list(r, value, name[0] == 'l');
    if (same(name, "list"))
        return chat_slice(r, chat_list_of(r, value), NULL, NULL, NULL);
    if (same(name, "reverse"))
        return value ? chat_slice(r, value, NULL, NULL, chat_own(r, json_integer(-1))) : chat_list_of(r, NULL);
    if (same(name, "string"))
        return chat_text_of(r, value);
    if (same(name, "safe"))
        return value;
    if (same(name, "int")) {
        const char *text = json_string_value(value);
        return chat_own(r, json_integer(text ? strtoll(text, NULL, 10) : (json_int_t)json_number_value(value)));
    }
    if (same(name, "upper") || same(name, "lower") || same(name, "capitalize") || same(name, "title") || same(name, "replace"))
        return value ? text_method(r, name, chat_text_of(r, value), args) : chat_string(r, "", 0);
    if (same(name, "items"))
        return value ? pairs_of(r, value, 'i') : chat_list_of(r, NULL);
    if (same(name, "dictsort") && args->n == 0)
        return sorted_pairs(r, value);
    if (same(name, "selectattr") || same(name, "rejectattr"))
        return selected(r, value, args, true, name[0] == 's');
    if (same(name, "select") || same(name, "reject"))
        return selected(r, value, args, false, name[0] == 's');
    if (same(name, "map"))
        return mapped(r, value, args);
    if (same(name, "indent"))
        return indented(r, value, args);
    return chat_fail(r, ATTN_ERR_UNSUPPORTED, "the filter %s is not served", name);
}

/* ---- Tests ---- */

bool chat_test_takes_argument(const char *name)
{
    static const char *const names[] = {"divisibleby", "equalto", "eq", "ne", "in", "gt", "ge", "lt", "le", "sameas"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (same(name, names[i]))
            return true;
    return false;
}

static json_t *test_with(chat_run *r, const char *name, json_t *value, json_t *other)
{
    int order = 0;
    if (same(name, "equalto") || same(name, "eq") || same(name, "sameas") || same(name, "=="))
        return chat_bool(chat_equal(r, value, other));
    if (same(name, "ne") || same(name, "!="))
        return chat_bool(!chat_equal(r, value, other));
    if (same(name, "in"))
        return chat_contains(r, value, other);
    if (same(name, "divisibleby"))
        return chat_bool(!chat_true(chat_binary(r, '%', value, other)));
    if (!chat_order(r, value, other, &order))
        return NULL;
    return chat_bool(name[0] == 'g' ? (name[1] == 'e' ? order >= 0 : order > 0) : (name[1] == 'e' ? order <= 0 : order < 0));
}

json_t *chat_test(chat_run *r, const char *name, json_t *value, const chat_args *args)
{
    if (chat_test_takes_argument(name) || same(name, "==") || same(name, "!="))
        return test_with(r, name, value, args->n ? args->value[0] : NULL);
    if ((same(name, "odd") || same(name, "even")) && !json_is_integer(value))
        return chat_fail(r, ATTN_ERR_FORMAT, "what is tested as %s is no whole number", name);
    const struct {
        const char *name;
        bool holds;
    } tests[] = {{"defined", value != NULL},
                 {"undefined", value == NULL},
                 {"none", json_is_null(value)},
                 {"string", json_is_string(value)},
                 {"number", json_is_number(value) || json_is_boolean(value)},
                 {"integer", json_is_integer(value)},
                 {"float", json_is_real(value)},
                 {"boolean", json_is_boolean(value)},
                 {"true", json_is_true(value)},
                 {"false", json_is_false(value)},
                 {"mapping", json_is_object(value)},
                 {"iterable", !value || json_is_array(value) || json_is_object(value) || json_is_string(value)},
                 {"sequence", !value || json_is_array(value) || json_is_object(value) || json_is_string(value)},
                 {"odd", json_is_integer(value) && json_integer_value(value) % 2 != 0},
                 {"even", json_is_integer(value) && json_integer_value(value) % 2 == 0}};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (same(name, tests[i].name))
            return chat_bool(tests[i].holds);
    return chat_fail(r, ATTN_ERR_UNSUPPORTED, "the test %s is not served", name);
}

/* ---- Functions ---- */

static json_t *numbers_of_range(chat_run *r, const chat_args *args)
{
    int64_t of[3] = {0, 0, 1};
    json_t *list = chat_own(r, json_array());
    for (int32_t i = 0; i < args->n && i < 3; i++)
        of[i] = json_integer_value(args->value[i]);
    if (args->n == 1)
        of[1] = of[0], of[0] = 0;
    if (of[2] == 0 || of[0] < -(1 << 20) || of[0] > 1 << 20 || of[1] < -(1 << 20) || of[1] > 1 << 20)
        return chat_fail(r, ATTN_ERR_FORMAT, "range() from %lld to %lld", (long long)of[0], (long long)of[1]);
    for (int64_t i = of[0]; (of[2] > 0 ? i < of[1] : i > of[1]) && chat_step(r); i += of[2])
        json_array_append(list, chat_own(r, json_integer(i)));
    return list;
}

static json_t *now(chat_run *r, const char *format)
{
    char text[128];
    struct tm parts;
    const time_t seconds = time(NULL);
    const size_t n = format && localtime_r(&seconds, &parts) ? strftime(text, sizeof text, format, &parts) : 0;
    return chat_string(r, text, n);
}

bool chat_is_function(const char *name)
{
    static const char *const names[] = {"raise_exception", "namespace", "dict", "range", "strftime_now"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (same(name, names[i]))
            return true;
    return false;
}

json_t *chat_function(chat_run *r, const char *name, const chat_args *args)
{
    const char *text = json_string_value(args->n ? args->value[0] : NULL);
    if (same(name, "raise_exception"))
        return chat_fail(r, ATTN_ERR_INVALID_ARGUMENT, "the template refuses: %.200s", text ? text : "(no reason)");
    if (same(name, "namespace") || same(name, "dict")) {
        json_t *made = chat_own(r, json_object());
        if (made && args->n && json_is_object(args->value[0]))
            json_object_update(made, args->value[0]);
        if (made)
            json_object_update(made, args->named);
        return chat_weigh(r, made) ? made : NULL;
    }
    if (same(name, "range"))
        return numbers_of_range(r, args);
    if (same(name, "strftime_now"))
        return now(r, text);
    return chat_fail(r, ATTN_ERR_UNSUPPORTED, "the function %s() is not served", name);
}
