/* json.c - strict JSON: the depth is checked before jansson, which recurses, sees the bytes. */
#include "io/json.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/io_error.h"

/* True when no container outside a string opens at a depth above ATTN_JSON_MAX_DEPTH; *at is where
 * one does. */
static bool depth_is_bounded(const char *bytes, size_t size, size_t *at)
{
    bool in_string = false;
    int depth = 0;
    for (size_t i = 0; i < size; i++) {
        char c = bytes[i];
        if (in_string) {
            if (c == '\\')
                i++; /* the next character, a quote perhaps, is part of the string */
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            *at = i;
            if (++depth > ATTN_JSON_MAX_DEPTH)
                return false;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return true;
}

static json_t *parse(const char *bytes, size_t size, size_t flags, char *error, size_t error_size)
{
    size_t at = 0;
    if (!depth_is_bounded(bytes, size, &at)) {
        attn_io_fail(error, error_size, ATTN_ERR_FORMAT, "JSON nests deeper than %d at byte %zu",
                     ATTN_JSON_MAX_DEPTH, at);
        return NULL;
    }
    json_error_t reason;
    json_t *root = json_loadb(bytes, size, JSON_REJECT_DUPLICATES | flags, &reason);
    if (!root) {
        char shown[JSON_ERROR_TEXT_LENGTH];
        attn_io_printable(reason.text, strlen(reason.text), shown, sizeof shown);
        attn_io_fail(error, error_size, ATTN_ERR_FORMAT, "JSON line %d column %d: %s", reason.line,
                     reason.column, shown);
    }
    return root;
}

json_t *attn_json_parse(const char *bytes, size_t size, char *error, size_t error_size)
{
    return parse(bytes, size, 0, error, error_size);
}

json_t *attn_json_parse_wide(const char *bytes, size_t size, char *error, size_t error_size)
{
    json_t *root = parse(bytes, size, 0, NULL, 0);
    return root ? root : parse(bytes, size, JSON_DECODE_INT_AS_REAL, error, error_size);
}

typedef struct text_buffer {
    char *text;
    size_t size, room;
    bool failed;
} text_buffer;

/* Keeps a failure, whatever jansson makes of the return value. */
static int append(const char *bytes, size_t size, void *user)
{
    text_buffer *buffer = user;
    if (buffer->failed || size >= SIZE_MAX / 4 - buffer->size) {
        buffer->failed = true;
        return -1;
    }
    if (buffer->size + size + 1 > buffer->room) {
        size_t room = 2 * (buffer->size + size + 1);
        char *larger = realloc(buffer->text, room);
        if (!larger) {
            buffer->failed = true;
            return -1;
        }
        buffer->text = larger;
        buffer->room = room;
    }
    memcpy(buffer->text + buffer->size, bytes, size);
    buffer->size += size;
    buffer->text[buffer->size] = '\0';
    return 0;
}

char *attn_json_text(const json_t *json, size_t flags, size_t *size)
{
    text_buffer buffer = {.text = NULL};
    if (json_dump_callback(json, append, &buffer, flags) || buffer.failed || !buffer.text) {
        free(buffer.text);
        return NULL;
    }
    *size = buffer.size;
    return buffer.text;
}
