/* The goldens of conformance/tokenizers: ids with and without special tokens, offsets, decoded text, pairs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "text_support.h"

typedef struct tally {
    int lines, failed;
} tally;

static void encode(const attn_tokenizer *tokenizer, const json_t *line, uint32_t flags, attn_encoding *encoding)
{
    const json_t *text = json_object_get(line, "text"), *pair = json_object_get(line, "pair");
    attn_encode_options options;
    ATTN_ARGS_INIT(&options);
    options.flags = flags;
    if (attn_tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text), json_string_value(pair),
                              json_string_length(pair), &options, encoding) != ATTN_OK)
        fail_msg("%s", attn_tokenizer_error());
}

static int check_line(const attn_tokenizer *tokenizer, const json_t *line, attn_encoding *encoding)
{
    const char *text = json_string_value(json_object_get(line, "text"));
    const json_t *want;
    encode(tokenizer, line, 0, encoding);
    int64_t n = attn_encoding_length(encoding);
    int same = same_ids(text, attn_encoding_ids(encoding), n, json_object_get(line, "ids"));
    if ((want = json_object_get(line, "type_ids")))
        same &= same_ids(text, attn_encoding_type_ids(encoding), n, want);
    if ((want = json_object_get(line, "offsets")))
        same &= same_offsets(text, attn_encoding_char_offsets(encoding), n, want);
    if (!(want = json_object_get(line, "ids_plain")))
        return same;
    encode(tokenizer, line, ATTN_ENCODE_NO_SPECIAL, encoding);
    n = attn_encoding_length(encoding);
    same &= same_ids(text, attn_encoding_ids(encoding), n, want);
    const json_t *decoded = json_object_get(line, "decoded");
    size_t size;
    char *got = decoded_text(tokenizer, attn_encoding_ids(encoding), n, ATTN_DECODE_SKIP_SPECIAL, &size);
    char *streamed = streamed_text(tokenizer, attn_encoding_ids(encoding), n, ATTN_DECODE_SKIP_SPECIAL, &size);
    int same_text = got && streamed && size == json_string_length(decoded) &&
                    !memcmp(got, json_string_value(decoded), size) && !memcmp(streamed, got, size);
    if (!same_text)
        fprintf(stderr, "decoded: want \"%s\", got \"%s\"\n", json_string_value(decoded), got ? got : "an error");
    free(got);
    free(streamed);
    return same & same_text;
}

static void check_folder(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "conformance/tokenizers/%s/golden.jsonl", name);
    FILE *file = fopen(shared_path(path), "rb");
    if (!file) {
        fprintf(stderr, "SKIPPED: no goldens at %s (set ATTN_SHARED)\n", shared_path(path));
        skip();
    }
    attn_tokenizer *tokenizer;
    attn_encoding *encoding;
    snprintf(path, sizeof path, "conformance/tokenizers/%s/tokenizer.json", name);
    if (attn_tokenizer_load(shared_path(path), &tokenizer) != ATTN_OK)
        fail_msg("%s", attn_tokenizer_error());
    assert_int_equal(attn_encoding_create(&encoding), ATTN_OK);
    tally lines = {0, 0};
    json_error_t error;
    for (json_t *line; (line = json_loadf(file, JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK, &error)); json_decref(line)) {
        lines.lines++;
        lines.failed += !check_line(tokenizer, line, encoding);
    }
    fclose(file);
    attn_encoding_destroy(encoding);
    attn_tokenizer_destroy(tokenizer);
    printf("%s: %d lines, %d failed\n", name, lines.lines, lines.failed);
    assert_true(lines.lines >= 300);
    assert_int_equal(lines.failed, 0);
}

static void test_gpt2(void **state)
{
    (void)state;
    check_folder("bytelevel_gpt2");
}

static void test_llama3(void **state)
{
    (void)state;
    check_folder("bytelevel_llama3");
}

static void test_minilm(void **state)
{
    (void)state;
    check_folder("minilm_wordpiece");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_llama3),
        cmocka_unit_test(test_minilm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
