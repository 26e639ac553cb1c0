/* The cases of tests/data/cases/tokenizer: every file tk-*.json, run as its "op" says. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "text_support.h"

#define FOLDER ATTN_SOURCE_DIR "/tests/data/cases/tokenizer"

static int n_passed, n_failed;

static void count(int passed, const char *id, size_t item, const char *what)
{
    n_passed += passed;
    n_failed += !passed;
    if (!passed)
        fprintf(stderr, "FAILED: %s item %zu: %s\n", id, item, what);
}

static int32_t *ids_of(const json_t *array, int64_t *n)
{
    *n = (int64_t)json_array_size(array);
    int32_t *ids = calloc((size_t)*n + 1, sizeof *ids);
    for (int64_t i = 0; i < *n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(array, (size_t)i));
    return ids;
}

static int same_text(const char *got, size_t size, const json_t *want)
{
    return got && size == json_string_length(want) && !memcmp(got, json_string_value(want), size);
}

static int same_tokens(const attn_encoding *encoding, const json_t *want)
{
    int same = attn_encoding_length(encoding) == (int64_t)json_array_size(want);
    for (int64_t i = 0; same && i < attn_encoding_length(encoding); i++) {
        size_t size;
        const char *token = attn_encoding_token(encoding, i, &size);
        same = same_text(token, size, json_array_get(want, (size_t)i));
    }
    return same;
}

static attn_encode_options options_of(const json_t *test)
{
    attn_encode_options options;
    ATTN_ARGS_INIT(&options);
    const json_t *special = json_object_get(test, "add_special_tokens");
    if (special && !json_is_true(special))
        options.flags |= ATTN_ENCODE_NO_SPECIAL;
    if (json_is_true(json_object_get(test, "specials_as_text")))
        options.flags |= ATTN_ENCODE_SPECIALS_AS_TEXT;
    options.max_length = json_integer_value(json_object_get(test, "max_length"));
    return options;
}

static void run_encode(const attn_tokenizer *tokenizer, const char *id, const json_t *test, const json_t *item, size_t i)
{
    attn_encode_options options = options_of(test);
    const json_t *text = json_object_get(item, "text"), *pair = json_object_get(item, "pair"), *want;
    attn_encoding *encoding;
    assert_int_equal(attn_encoding_create(&encoding), ATTN_OK);
    attn_status status = attn_tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text),
                                               json_string_value(pair), json_string_length(pair), &options, encoding);
    count(status == ATTN_OK, id, i, attn_tokenizer_error());
    int64_t n = attn_encoding_length(encoding);
    const int32_t *ids = attn_encoding_ids(encoding);
    count(same_ids(id, ids, n, json_object_get(item, "ids")), id, i, "ids");
    if ((want = json_object_get(item, "type_ids")))
        count(same_ids(id, attn_encoding_type_ids(encoding), n, want), id, i, "type_ids");
    if ((want = json_object_get(item, "byte_offsets")))
        count(same_offsets(id, attn_encoding_byte_offsets(encoding), n, want), id, i, "byte_offsets");
    if ((want = json_object_get(item, "tokens")))
        count(same_tokens(encoding, want), id, i, "tokens");
    if ((want = json_object_get(item, "decoded"))) {
        size_t size;
        char *decoded = decoded_text(tokenizer, ids, n, ATTN_DECODE_SKIP_SPECIAL, &size);
        count(same_text(decoded, size, want), id, i, decoded ? decoded : attn_tokenizer_error());
        free(decoded);
        char *streamed = streamed_text(tokenizer, ids, n, ATTN_DECODE_SKIP_SPECIAL, &size);
        count(same_text(streamed, size, want), id, i, "streamed text");
        free(streamed);
    }
    attn_encoding_destroy(encoding);
}

static void run_decode(const attn_tokenizer *tokenizer, const char *id, const json_t *test, const json_t *item, size_t i)
{
    int64_t n;
    int32_t *ids = ids_of(json_object_get(item, "ids"), &n);
    const json_t *skip = json_object_get(test, "skip_special_tokens");
    size_t size;
    char *text = decoded_text(tokenizer, ids, n, json_is_true(skip) ? ATTN_DECODE_SKIP_SPECIAL : 0, &size);
    count(same_text(text, size, json_object_get(item, "text")), id, i, text ? text : attn_tokenizer_error());
    free(text);
    free(ids);
}

static void run_encode_bytes(const attn_tokenizer *tokenizer, const char *id, const json_t *item, size_t i)
{
    const json_t *hex = json_object_get(item, "bytes_hex");
    char bytes[256];
    size_t n = json_string_length(hex) / 2;
    assert_true(n < sizeof bytes);
    for (size_t b = 0; b < n; b++) {
        char digits[3] = {json_string_value(hex)[2 * b], json_string_value(hex)[2 * b + 1], 0};
        bytes[b] = (char)strtol(digits, NULL, 16);
    }
    attn_encode_options options;
    ATTN_ARGS_INIT(&options);
    options.flags = ATTN_ENCODE_NO_SPECIAL;
    attn_encoding *encoding;
    assert_int_equal(attn_encoding_create(&encoding), ATTN_OK);
    attn_status status = attn_tokenizer_encode(tokenizer, bytes, n, NULL, 0, &options, encoding);
    count(status == ATTN_ERR_FORMAT && strstr(attn_tokenizer_error(), "not UTF-8"), id, i, "error without the flag");
    count(attn_encoding_length(encoding) == 0, id, i, "empty after an error");
    options.flags |= ATTN_ENCODE_REPLACE_INVALID;
    status = attn_tokenizer_encode(tokenizer, bytes, n, NULL, 0, &options, encoding);
    count(status == ATTN_OK, id, i, attn_tokenizer_error());
    count(same_ids(id, attn_encoding_ids(encoding), attn_encoding_length(encoding), json_object_get(item, "replaced_ids")),
          id, i, "replaced_ids");
    attn_encoding_destroy(encoding);
}

static void run_stream(const attn_tokenizer *tokenizer, const char *id, const json_t *item, size_t i)
{
    int64_t n;
    int32_t *ids = ids_of(json_object_get(item, "ids"), &n);
    attn_decode_stream *stream;
    const char *piece;
    char text[1024];
    size_t size, len = 0;
    assert_int_equal(attn_decode_stream_create(tokenizer, 0, &stream), ATTN_OK);
    for (int64_t k = 0; k < n; k++) {
        assert_int_equal(attn_decode_stream_push(stream, ids[k], &piece, &size), ATTN_OK);
        assert_true(len + size < sizeof text);
        memcpy(text + len, piece, size);
        len += size;
    }
    count(same_text(text, len, json_object_get(item, "pieces_concat")), id, i, "pieces_concat");
    assert_int_equal(attn_decode_stream_finish(stream, &piece, &size), ATTN_OK);
    const json_t *flush = json_object_get(item, "flush");
    count(flush ? same_text(piece, size, flush) : size == 0, id, i, "flush");
    attn_decode_stream_destroy(stream);
    free(ids);
}

static void run_file(const char *name)
{
    char path[4096];
    attn_tokenizer *tokenizer;
    snprintf(path, sizeof path, FOLDER "/%s", name);
    json_t *test = load_json(path);
    assert_non_null(test);
    const char *op = json_string_value(json_object_get(test, "op"));
    snprintf(path, sizeof path, FOLDER "/%s", json_string_value(json_object_get(test, "tokenizer")));
    attn_status status = attn_tokenizer_load(path, &tokenizer);
    if (!strcmp(op, "load")) {
        count(status == ATTN_ERR_FORMAT && !tokenizer && *attn_tokenizer_error(), name, 0, "refused");
        json_decref(test);
        return;
    }
    if (status != ATTN_OK)
        fail_msg("%s", attn_tokenizer_error());
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(test, "items"), i, item)
    {
        if (!strcmp(op, "encode"))
            run_encode(tokenizer, name, test, item, i);
        else if (!strcmp(op, "decode"))
            run_decode(tokenizer, name, test, item, i);
        else if (!strcmp(op, "encode_bytes"))
            run_encode_bytes(tokenizer, name, item, i);
        else if (!strcmp(op, "stream"))
            run_stream(tokenizer, name, item, i);
        else
            fail_msg("%s: unknown op %s", name, op);
    }
    attn_tokenizer_destroy(tokenizer);
    json_decref(test);
}

static void test_cases(void **state)
{
    (void)state;
    DIR *folder = opendir(FOLDER);
    assert_non_null(folder);
    int n_files = 0;
    for (struct dirent *entry; (entry = readdir(folder));)
        if (!strncmp(entry->d_name, "tk-", 3)) {
            run_file(entry->d_name);
            n_files++;
        }
    closedir(folder);
    printf("%d checks of %d cases passed, %d failed\n", n_passed, n_files, n_failed);
    assert_int_equal(n_failed, 0);
    assert_true(n_files >= 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
