/* tests/data/tokenizer_vectors: random texts through many small tokenizers, as Hugging Face's library encodes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "text_support.h"

static int check_tokens(const attn_encoding *encoding, const json_t *want)
{
    for (int64_t i = 0; i < attn_encoding_length(encoding); i++) {
        size_t size;
        const char *token = attn_encoding_token(encoding, i, &size);
        const json_t *text = json_array_get(want, (size_t)i);
        if (size != json_string_length(text) || memcmp(token, json_string_value(text), size)) {
            fprintf(stderr, "token %d: want \"%s\", got \"%.*s\"\n", (int)i, json_string_value(text), (int)size, token);
            return 0;
        }
    }
    return 1;
}

static int check_decoded(const attn_tokenizer *tokenizer, const attn_encoding *encoding, const json_t *want)
{
    size_t size, streamed_size;
    const int32_t *ids = attn_encoding_ids(encoding);
    int64_t n = attn_encoding_length(encoding);
    char *whole = decoded_text(tokenizer, ids, n, ATTN_DECODE_SKIP_SPECIAL, &size);
    char *streamed = streamed_text(tokenizer, ids, n, ATTN_DECODE_SKIP_SPECIAL, &streamed_size);
    int same = whole && streamed && size == json_string_length(want) && !memcmp(whole, json_string_value(want), size) &&
               size == streamed_size && !memcmp(whole, streamed, size);
    if (!same)
        fprintf(stderr, "decoded: want \"%s\", got \"%s\", in pieces \"%s\"\n", json_string_value(want), whole, streamed);
    free(whole);
    free(streamed);
    return same;
}

static int check_item(const attn_tokenizer *tokenizer, const json_t *item, attn_encoding *encoding)
{
    const json_t *text = json_object_get(item, "text"), *pair = json_object_get(item, "pair");
    const json_t *decoded = json_object_get(item, "decoded");
    const char *what = json_string_value(text);
    attn_encode_options options;
    ATTN_ARGS_INIT(&options);
    options.flags = (json_is_true(json_object_get(item, "special")) ? 0 : (uint32_t)ATTN_ENCODE_NO_SPECIAL) |
                    (json_is_true(json_object_get(item, "as_text")) ? (uint32_t)ATTN_ENCODE_SPECIALS_AS_TEXT : 0);
    options.max_length = json_integer_value(json_object_get(item, "max_length"));
    if (attn_tokenizer_encode(tokenizer, what, json_string_length(text), json_string_value(pair), json_string_length(pair),
                              &options, encoding) != ATTN_OK) {
        fprintf(stderr, "%s: %s\n", what, attn_tokenizer_error());
        return 0;
    }
    int64_t n = attn_encoding_length(encoding);
    return same_ids(what, attn_encoding_ids(encoding), n, json_object_get(item, "ids")) &&
           same_ids(what, attn_encoding_type_ids(encoding), n, json_object_get(item, "type_ids")) &&
           same_offsets(what, attn_encoding_char_offsets(encoding), n, json_object_get(item, "offsets")) &&
           check_tokens(encoding, json_object_get(item, "tokens")) &&
           (!decoded || check_decoded(tokenizer, encoding, decoded));
}

static void test_vectors(void **state)
{
    (void)state;
    json_t *cases = load_json(ATTN_SOURCE_DIR "/tests/data/tokenizer_vectors/tokenizer_vectors.json");
    assert_non_null(cases);
    attn_encoding *encoding;
    assert_int_equal(attn_encoding_create(&encoding), ATTN_OK);
    int n_items = 0, n_failed = 0;
    for (size_t c = 0; c < json_array_size(cases); c++) {
        const json_t *test = json_array_get(cases, c), *items = json_object_get(test, "items");
        char *text = json_dumps(json_object_get(test, "tokenizer"), JSON_COMPACT);
        attn_tokenizer *tokenizer;
        if (attn_tokenizer_from_json(text, strlen(text), &tokenizer) != ATTN_OK)
            fail_msg("tokenizer %zu: %s", c, attn_tokenizer_error());
        for (size_t i = 0; i < json_array_size(items); i++, n_items++)
            if (!check_item(tokenizer, json_array_get(items, i), encoding)) {
                fprintf(stderr, "FAILED: tokenizer %zu item %zu\n", c, i);
                n_failed++;
            }
        attn_tokenizer_destroy(tokenizer);
        free(text);
    }
    attn_encoding_destroy(encoding);
    json_decref(cases);
    printf("%d texts, %d failed\n", n_items, n_failed);
    assert_true(n_items >= 200);
    assert_int_equal(n_failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
