/* json_fields.c - checked members of JSON objects. */
#include "text/json_fields.h"

#include <stdio.h>

attn_field attn_field_member(const attn_field *object, const char *key)
{
    attn_field field = {.value = json_object_get(object->value, key)};
    if (json_is_null(field.value))
        field.value = NULL;
    snprintf(field.path, sizeof field.path, "%.120s%s%.36s", object->path, object->path[0] ? "." : "", key);
    return field;
}

attn_field attn_field_at(const attn_field *array, size_t index)
{
    attn_field field = {.value = json_array_get(array->value, index)};
    snprintf(field.path, sizeof field.path, "%.120s[%zu]", array->path, index);
    return field;
}

static const char *describe(const json_t *value, char *out, size_t size)
{
    if (!value)
        return "missing";
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        snprintf(out, size, "\"%.80s\"", json_string_value(value));
        return out;
    case JSON_INTEGER:
        snprintf(out, size, "%lld", (long long)json_integer_value(value));
        return out;
    case JSON_REAL:
        snprintf(out, size, "%g", json_real_value(value));
        return out;
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    default:
        return "null";
    }
}

attn_status attn_field_expected(const attn_field *field, const char *what)
{
    char value[96];
    return attn_text_fail(ATTN_ERR_FORMAT, "%s is %s, expected %s", field->path,
                          describe(field->value, value, sizeof value), what);
}

attn_status attn_field_unsupported(const attn_field *field)
{
    char value[96];
    return attn_text_fail(ATTN_ERR_UNSUPPORTED, "%s is %s, which is not served", field->path,
                          describe(field->value, value, sizeof value));
}

attn_status attn_field_object(const attn_field *field)
{
    return json_is_object(field->value) ? ATTN_OK : attn_field_expected(field, "an object");
}

attn_status attn_field_array(const attn_field *field)
{
    return json_is_array(field->value) ? ATTN_OK : attn_field_expected(field, "an array");
}

attn_status attn_field_text(const attn_field *field, attn_text *text)
{
    if (!json_is_string(field->value))
        return attn_field_expected(field, "a text");
    *text = (attn_text){json_string_value(field->value), json_string_length(field->value)};
    return ATTN_OK;
}

attn_status attn_field_int(const attn_field *field, int64_t low, int64_t high, int64_t *value)
{
    char what[80];
    if (json_is_integer(field->value)) {
        *value = json_integer_value(field->value);
        if (*value >= low && *value <= high)
            return ATTN_OK;
    }
    snprintf(what, sizeof what, "an integer from %lld to %lld", (long long)low, (long long)high);
    return attn_field_expected(field, what);
}

attn_status attn_field_flag(const attn_field *object, const char *key, bool missing, bool *value)
{
    attn_field field = attn_field_member(object, key);
    *value = field.value ? json_is_true(field.value) : missing;
    return !field.value || json_is_boolean(field.value) ? ATTN_OK : attn_field_expected(&field, "true or false");
}

attn_status attn_field_text_of(const attn_field *object, const char *key, const char *missing, attn_text *text)
{
    attn_field field = attn_field_member(object, key);
    if (field.value || !missing)
        return attn_field_text(&field, text);
    *text = (attn_text){missing, strlen(missing)};
    return ATTN_OK;
}

bool attn_field_is(const attn_field *field, const char *text)
{
    return json_is_string(field->value) && !strcmp(json_string_value(field->value), text);
}
