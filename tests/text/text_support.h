/* text_support.h - where test material lies, and reading it. */
#ifndef TESTS_TEXT_SUPPORT_H
#define TESTS_TEXT_SUPPORT_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attn/tokenizer.h"

/* Path of a file of the shared material: $ATTN_SHARED, else ../shared beside the sources. */
static inline const char *shared_path(const char *name)
{
    static char path[4096];
    const char *root = getenv("ATTN_SHARED");
    if (root && *root)
        snprintf(path, sizeof path, "%s/%s", root, name);
    else
        snprintf(path, sizeof path, "%s/../shared/%s", ATTN_SOURCE_DIR, name);
    return path;
}

static inline json_t *load_json(const char *path)
{
    json_error_t error;
    json_t *json = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (!json)
        fprintf(stderr, "%s: %s\n", path, error.text);
    return json;
}

/* True when array[i] are the numbers of a JSON array; else prints what differs. */
static inline int same_ids(const char *what, const int32_t *got, int64_t n, const json_t *want)
{
    int same = n == (int64_t)json_array_size(want);
    for (int64_t i = 0; same && i < n; i++)
        same = got[i] == json_integer_value(json_array_get(want, (size_t)i));
    if (!same) {
        char *text = json_dumps(want, JSON_COMPACT);
        fprintf(stderr, "%s\n  want %s\n  got  [", what, text);
        for (int64_t i = 0; i < n; i++)
            fprintf(stderr, "%s%d", i ? "," : "", (int)got[i]);
        fprintf(stderr, "]\n");
        free(text);
    }
    return same;
}

/* The same for [[start, end], ...]. */
static inline int same_offsets(const char *what, const int64_t *got, int64_t n, const json_t *want)
{
    int same = n == (int64_t)json_array_size(want);
    for (int64_t i = 0; same && i < 2 * n; i++)
        same = got[i] == json_integer_value(json_array_get(json_array_get(want, (size_t)(i / 2)), (size_t)(i % 2)));
    if (!same) {
        char *text = json_dumps(want, JSON_COMPACT);
        fprintf(stderr, "%s\n  want %s\n  got  [", what, text);
        for (int64_t i = 0; i < n; i++)
            fprintf(stderr, "%s[%lld,%lld]", i ? "," : "", (long long)got[2 * i], (long long)got[2 * i + 1]);
        fprintf(stderr, "]\n");
        free(text);
    }
    return same;
}

/* The decoded text of ids, malloc'ed and ended by a zero byte; NULL on an error. */
static inline char *decoded_text(const attn_tokenizer *tokenizer, const int32_t *ids, int64_t n, uint32_t flags, size_t *size)
{
    if (attn_tokenizer_decode(tokenizer, ids, n, flags, NULL, 0, size) != ATTN_OK)
        return NULL;
    char *text = malloc(*size + 1);
    if (text && attn_tokenizer_decode(tokenizer, ids, n, flags, text, *size, size) == ATTN_OK) {
        text[*size] = '\0';
        return text;
    }
    free(text);
    return NULL;
}

/* What a stream emits for ids and at its end, malloc'ed; NULL on an error or when a piece is not whole UTF-8. */
static inline char *streamed_text(const attn_tokenizer *tokenizer, const int32_t *ids, int64_t n, uint32_t flags, size_t *size)
{
    attn_decode_stream *stream;
    if (attn_decode_stream_create(tokenizer, flags, &stream) != ATTN_OK)
        return NULL;
    char *text = malloc(1);
    *size = 0;
    for (int64_t i = 0; i <= n && text; i++) {
        const char *piece;
        size_t piece_size;
        attn_status status = i < n ? attn_decode_stream_push(stream, ids[i], &piece, &piece_size)
                                   : attn_decode_stream_finish(stream, &piece, &piece_size);
        char *grown = status == ATTN_OK ? realloc(text, *size + piece_size + 1) : NULL;
        if (!grown || (piece_size && ((unsigned char)piece[0] & 0xc0) == 0x80)) {
            free(grown ? grown : text);
            text = NULL;
            break;
        }
        text = grown;
        memcpy(text + *size, piece, piece_size);
        *size += piece_size;
    }
    if (text)
        text[*size] = '\0';
    attn_decode_stream_destroy(stream);
    return text;
}

#endif
