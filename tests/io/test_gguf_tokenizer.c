/* test_gguf_tokenizer.c - tokenizer.json and tokenizer_config.json from small GGUF files: structure
 * and errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "io/gguf_builder.h"
#include "io/gguf_tokenizer.h"

typedef struct vocabulary {
    const char *model, *split;
    const char *tokens[4], *merges[2];
    int32_t types[4];
    uint32_t n_types, bos;
    bool add_bos;
    float scores[4]; /* of other models than gpt2 */
    uint32_t n_scores, unknown, separator;
} vocabulary;

static const vocabulary good = {
    "gpt2", "smollm", {"<s>", "a", "b", "ab"}, {"a b", "ab a"}, {3, 1, 4, 1}, 4, 0, true, {0}, 0, 0, 0};
static const vocabulary pieces = {
    "llama", "", {"<unk>", "\xe2\x96\x81", "a", "\xe2\x96\x81" "a"}, {"", ""}, {2, 1, 1, 1}, 4, 0, false, {0, -1, -2, -3}, 4, 0, 0};
static const vocabulary word_pieces = {
    "bert", "", {"[CLS]", "[SEP]", "\xe2\x96\x81" "a", "a"}, {"", ""}, {3, 3, 1, 1}, 4, 0, false, {0}, 0, 0, 1};

static void put_strings(builder *b, const char *key, const char *const *texts, uint64_t n)
{
    put_key(b, key, ATTN_GGUF_ARRAY);
    put_u32(b, ATTN_GGUF_STRING);
    put_u64(b, n);
    for (uint64_t i = 0; i < n; i++)
        put_string(b, texts[i]);
}

static attn_status convert(const vocabulary *v, json_t **tokenizer, json_t **config, char *error,
                           size_t error_size)
{
    builder b = {.size = 0};
    attn_mapped_file *file;
    attn_gguf *gguf;
    const bool bytes = !strcmp(v->model, "gpt2");
    put_header(&b, 3, 0, bytes ? 8 : 11);
    put_key(&b, "tokenizer.ggml.model", ATTN_GGUF_STRING);
    put_string(&b, v->model);
    put_key(&b, v->split ? "tokenizer.ggml.pre" : "tokenizer.ggml.none", ATTN_GGUF_STRING);
    put_string(&b, v->split ? v->split : "");
    put_strings(&b, "tokenizer.ggml.tokens", v->tokens, 4);
    put_strings(&b, "tokenizer.ggml.merges", v->merges, 2);
    put_key(&b, "tokenizer.ggml.token_type", ATTN_GGUF_ARRAY);
    put_u32(&b, ATTN_GGUF_I32);
    put_u64(&b, v->n_types);
    for (uint32_t i = 0; i < v->n_types; i++)
        put_u32(&b, (uint32_t)v->types[i]);
    put_key(&b, "tokenizer.ggml.bos_token_id", ATTN_GGUF_U32);
    put_u32(&b, v->bos);
    put_key(&b, "tokenizer.ggml.add_bos_token", ATTN_GGUF_BOOL);
    put_u8(&b, v->add_bos);
    put_key(&b, "tokenizer.chat_template", ATTN_GGUF_STRING);
    put_string(&b, "{{x}}");
    if (!bytes) {
        put_key(&b, "tokenizer.ggml.scores", ATTN_GGUF_ARRAY);
        put_u32(&b, ATTN_GGUF_F32);
        put_u64(&b, v->n_scores);
        put_bytes(&b, v->scores, v->n_scores * sizeof *v->scores);
        put_key(&b, "tokenizer.ggml.unknown_token_id", ATTN_GGUF_U32);
        put_u32(&b, v->unknown);
        put_key(&b, "tokenizer.ggml.seperator_token_id", ATTN_GGUF_U32);
        put_u32(&b, v->separator);
    }
    assert_int_equal(attn_mapped_file_copy(b.data, b.size, "v.gguf", &file, error, error_size),
                     ATTN_OK);
    assert_int_equal(attn_gguf_parse(file, &gguf, error, error_size), ATTN_OK);
    *tokenizer = *config = NULL;
    attn_status status = attn_gguf_tokenizer_json(gguf, tokenizer, config, error, error_size);
    attn_gguf_close(gguf);
    return status;
}

/* The text that a path of keys leads to ("a.b"). */
static const char *text_at(const json_t *json, const char *first, const char *second)
{
    return json_string_value(json_object_get(json_object_get(json, first), second));
}

static void test_good(void **state)
{
    (void)state;
    json_t *tokenizer, *config;
    char error[256] = "";
    if (convert(&good, &tokenizer, &config, error, sizeof error) != ATTN_OK)
        fail_msg("%s", error);
    const json_t *model = json_object_get(tokenizer, "model");
    const json_t *words = json_object_get(model, "vocab"),
                 *merges = json_object_get(model, "merges");
    assert_string_equal(text_at(tokenizer, "model", "type"), "BPE");
    assert_int_equal(json_object_size(words), 4);
    assert_int_equal(json_integer_value(json_object_get(words, "ab")), 3);
    assert_int_equal(json_array_size(merges), 2);
    assert_string_equal(json_string_value(json_array_get(json_array_get(merges, 1), 0)), "ab");
    assert_string_equal(json_string_value(json_array_get(json_array_get(merges, 1), 1)), "a");
    const json_t *added = json_object_get(tokenizer, "added_tokens");
    assert_int_equal(json_array_size(added), 2);
    assert_true(json_is_true(json_object_get(json_array_get(added, 0), "special")));
    assert_true(json_is_false(json_object_get(json_array_get(added, 1), "special")));
    assert_int_equal(json_integer_value(json_object_get(json_array_get(added, 1), "id")), 2);
    assert_string_equal(text_at(tokenizer, "post_processor", "type"), "TemplateProcessing");
    assert_string_equal(text_at(tokenizer, "pre_tokenizer", "type"), "Sequence");
    assert_string_equal(text_at(tokenizer, "decoder", "type"), "ByteLevel");
    assert_string_equal(json_string_value(json_object_get(config, "bos_token")), "<s>");
    assert_string_equal(json_string_value(json_object_get(config, "chat_template")), "{{x}}");
    assert_null(json_object_get(config, "pad_token"));
    json_decref(tokenizer);
    json_decref(config);
}

static void test_splits(void **state)
{
    /* of each split another name, too; files from before the field have GPT-2's */
    static const char *const splits[] = {"gpt-2", "smollm", "llama-bpe", "qwen2", NULL, "starcoder", "llama3"};
    (void)state;
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        json_t *tokenizer, *config;
        char error[256] = "";
        vocabulary v = good;
        v.split = splits[i];
        v.add_bos = false;
        if (convert(&v, &tokenizer, &config, error, sizeof error) != ATTN_OK)
            fail_msg("%s", error);
        assert_string_equal(text_at(tokenizer, "pre_tokenizer", "type"),
                            i % 4 ? "Sequence" : "ByteLevel");
        assert_string_equal(text_at(tokenizer, "post_processor", "type"), "ByteLevel");
        assert_int_equal(
            json_is_true(json_object_get(json_object_get(tokenizer, "model"), "ignore_merges")),
            i % 4 == 2);
        assert_int_equal(json_is_object(json_object_get(tokenizer, "normalizer")), i == 3);
        json_decref(tokenizer);
        json_decref(config);
    }
}

static void expect_error(const vocabulary *v, attn_status want, const char *word)
{
    json_t *tokenizer, *config;
    char error[256] = "";
    attn_status status = convert(v, &tokenizer, &config, error, sizeof error);
    if (status != want || !strstr(error, word))
        fail_msg("status %d, '%s' does not say '%s'", (int)status, error, word);
    assert_null(tokenizer);
    assert_null(config);
}

static void test_errors(void **state)
{
    (void)state;
    vocabulary v = good;
    v.model = "rwkv";
    expect_error(&v, ATTN_ERR_UNSUPPORTED, "tokenizer.ggml.model: 'rwkv'");
    v = good, v.split = "o\033dd";
    expect_error(&v, ATTN_ERR_UNSUPPORTED, "tokenizer.ggml.pre: 'o?dd'");
    v = good, v.tokens[3] = "a";
    expect_error(&v, ATTN_ERR_FORMAT, "tokenizer.ggml.tokens: token 3 ('a')");
    v = good, v.tokens[3] = "\xff";
    expect_error(&v, ATTN_ERR_FORMAT, "tokenizer.ggml.tokens: token 3");
    v = good, v.merges[1] = "ab";
    expect_error(&v, ATTN_ERR_FORMAT, "tokenizer.ggml.merges: merge 1");
    v = good, v.merges[0] = "";
    expect_error(&v, ATTN_ERR_FORMAT, "tokenizer.ggml.merges: merge 0");
    v = good, v.n_types = 3;
    expect_error(&v, ATTN_ERR_FORMAT, "tokenizer.ggml.token_type: 3 types for 4");
    v = good, v.bos = 4;
    expect_error(&v, ATTN_ERR_FORMAT, "tokenizer.ggml.bos_token_id: 4");
}

/* Pieces with scores become merges; a blank goes in front. */
static void test_sentencepiece(void **state)
{
    (void)state;
    json_t *tokenizer, *config;
    char error[512] = "";
    if (convert(&pieces, &tokenizer, &config, error, sizeof error) != ATTN_OK)
        fail_msg("%s", error);
    json_t *merges = json_object_get(json_object_get(tokenizer, "model"), "merges"), *want = json_pack("[[s, s]]", "\xe2\x96\x81", "a");
    assert_true(json_equal(merges, want));
    assert_string_equal(text_at(tokenizer, "model", "unk_token"), "<unk>");
    assert_int_equal(json_array_size(json_object_get(json_object_get(tokenizer, "normalizer"), "normalizers")), 2);
    assert_int_equal(json_array_size(json_object_get(tokenizer, "added_tokens")), 1);
    json_decref(want);
    json_decref(tokenizer);
    json_decref(config);
    vocabulary v = pieces;
    v.n_scores = 3;
    expect_error(&v, ATTN_ERR_FORMAT, "tokenizer.ggml.scores: 3 scores for 4");
    v = pieces, v.unknown = 9;
    expect_error(&v, ATTN_ERR_FORMAT, "tokenizer.ggml.unknown_token_id: 9");
}

/* Marks at the beginning of words become ## inside them. */
static void test_wordpiece(void **state)
{
    (void)state;
    json_t *tokenizer, *config;
    char error[512] = "";
    if (convert(&word_pieces, &tokenizer, &config, error, sizeof error) != ATTN_OK)
        fail_msg("%s", error);
    json_t *vocab = json_object_get(json_object_get(tokenizer, "model"), "vocab");
    assert_int_equal(json_integer_value(json_object_get(vocab, "a")), 2);
    assert_int_equal(json_integer_value(json_object_get(vocab, "##a")), 3);
    assert_string_equal(text_at(tokenizer, "post_processor", "type"), "TemplateProcessing");
    assert_string_equal(json_string_value(json_object_get(config, "sep_token")), "[SEP]");
    json_decref(tokenizer);
    json_decref(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_sentencepiece),
        cmocka_unit_test(test_wordpiece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
