/* fuzz_tokenizer.c - a tokenizer.json, a zero byte, and a text to encode and decode with it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "attn/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

static void decode(const attn_tokenizer *tokenizer, const int32_t *ids, int64_t n, uint32_t flags)
{
    size_t size = 0, piece_size, at = 0;
    if (attn_tokenizer_decode(tokenizer, ids, n, flags, NULL, 0, &size) != ATTN_OK)
        return;
    char *text = malloc(size + 1);
    attn_decode_stream *stream;
    check(text && attn_tokenizer_decode(tokenizer, ids, n, flags, text, size, &size) == ATTN_OK);
    check(attn_decode_stream_create(tokenizer, flags, &stream) == ATTN_OK);
    for (int64_t i = 0; i <= n; i++) { /* the pieces of a stream are the whole */
        const char *piece;
        attn_status status = i < n ? attn_decode_stream_push(stream, ids[i], &piece, &piece_size)
                                   : attn_decode_stream_finish(stream, &piece, &piece_size);
        check(status == ATTN_OK && piece_size <= size - at && !memcmp(text + at, piece, piece_size));
        at += piece_size;
    }
    check(at == size);
    attn_decode_stream_destroy(stream);
    free(text);
}

static void encode(const attn_tokenizer *tokenizer, const char *text, size_t size, uint32_t flags, int64_t max_length)
{
    attn_encoding *encoding;
    attn_encode_options options;
    ATTN_ARGS_INIT(&options);
    options.flags = flags;
    options.max_length = max_length;
    check(attn_encoding_create(&encoding) == ATTN_OK);
    size_t half = size / 2;
    attn_status status = max_length ? attn_tokenizer_encode(tokenizer, text, half, text + half, size - half, &options, encoding)
                                    : attn_tokenizer_encode(tokenizer, text, size, NULL, 0, &options, encoding);
    int64_t n = attn_encoding_length(encoding);
    const int64_t *chars = attn_encoding_char_offsets(encoding), *bytes = attn_encoding_byte_offsets(encoding);
    check(status == ATTN_OK || n == 0);
    check(!max_length || n <= max_length);
    for (int64_t i = 0; i < n; i++) {
        size_t token_size;
        check(attn_encoding_token(encoding, i, &token_size) != NULL);
        check(bytes[2 * i] >= 0 && bytes[2 * i + 1] <= 3 * (int64_t)size); /* a bad byte may become three */
        check(chars[2 * i] <= bytes[2 * i] && chars[2 * i + 1] <= bytes[2 * i + 1]);
    }
    if (n) {
        decode(tokenizer, attn_encoding_ids(encoding), n, 0);
        decode(tokenizer, attn_encoding_ids(encoding), n, ATTN_DECODE_SKIP_SPECIAL);
    }
    attn_encoding_destroy(encoding);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t json_size = zero ? (size_t)(zero - data) : size;
    const char *text = zero ? (const char *)zero + 1 : "a b";
    size_t text_size = zero ? size - json_size - 1 : 3;
    attn_tokenizer *tokenizer;
    if (!json_size || attn_tokenizer_from_json(data, json_size, &tokenizer) != ATTN_OK)
        return 0;
    encode(tokenizer, text, text_size, ATTN_ENCODE_REPLACE_INVALID, 0);
    encode(tokenizer, text, text_size, ATTN_ENCODE_REPLACE_INVALID, 4);
    encode(tokenizer, text, text_size, ATTN_ENCODE_SPECIALS_AS_TEXT | ATTN_ENCODE_NO_SPECIAL, 0);
    attn_tokenizer_destroy(tokenizer);
    return 0;
}
