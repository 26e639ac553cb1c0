/* Tokenizers from arrays: a tiny one made here, and SmolLM2's out of its GGUF file against the golden ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "io/gguf.h"
#include "text/bytelevel.h"
#include "text_support.h"

/* ---- A tiny byte-level BPE ---- */

enum { N_EXTRA = 5, N_TINY = 256 + N_EXTRA };
static char byte_names[256][4];
static attn_text tiny_tokens[N_TINY];
static int32_t tiny_types[N_TINY];
static const char *const extra_names[N_EXTRA] = {"he", "\xc4\xa0he", "hel", "<|end|>", "12"};
static const attn_text tiny_merges[] = {{"h e", 3}, {"\xc4\xa0 he", 5}, {"he l", 4}, {"1 2", 3}};

static attn_tokenizer_arrays tiny_arrays(void)
{
    for (int byte = 0; byte < 256; byte++) {
        size_t size = attn_utf8_put(attn_bytelevel_point((unsigned char)byte), byte_names[byte]);
        tiny_tokens[byte] = (attn_text){byte_names[byte], size};
        tiny_types[byte] = 1;
    }
    for (int i = 0; i < N_EXTRA; i++) {
        tiny_tokens[256 + i] = (attn_text){extra_names[i], strlen(extra_names[i])};
        tiny_types[256 + i] = i == 3 ? 3 : 1;
    }
    attn_tokenizer_arrays arrays;
    ATTN_ARGS_INIT(&arrays);
    arrays.pre = "gpt-2";
    arrays.tokens = tiny_tokens;
    arrays.n_tokens = N_TINY;
    arrays.merges = tiny_merges;
    arrays.n_merges = 4;
    arrays.token_types = tiny_types;
    arrays.bos_id = arrays.eos_id = 259;
    arrays.unk_id = arrays.pad_id = arrays.sep_id = arrays.cls_id = arrays.mask_id = -1;
    return arrays;
}

static void check_ids(const attn_tokenizer *tokenizer, const char *text, uint32_t flags, const int32_t *want, int64_t n)
{
    attn_encoding *encoding;
    attn_encode_options options;
    ATTN_ARGS_INIT(&options);
    options.flags = flags;
    assert_int_equal(attn_encoding_create(&encoding), ATTN_OK);
    assert_int_equal(attn_tokenizer_encode(tokenizer, text, strlen(text), NULL, 0, &options, encoding), ATTN_OK);
    assert_int_equal(attn_encoding_length(encoding), n);
    if (n)
        assert_memory_equal(attn_encoding_ids(encoding), want, (size_t)n * sizeof *want);
    attn_encoding_destroy(encoding);
}

static void test_tiny(void **state)
{
    (void)state;
    attn_tokenizer *tokenizer;
    attn_tokenizer_arrays arrays = tiny_arrays();
    assert_int_equal(attn_tokenizer_from_arrays(&arrays, &tokenizer), ATTN_OK);
    const int32_t words[] = {258, 257, 'y'}, ended[] = {256, 259, 260}, letters[] = {'<', '|', 'e', 'n', 'd', '|', '>'};
    check_ids(tokenizer, "hel hey", 0, words, 3);
    check_ids(tokenizer, "he<|end|>12", 0, ended, 3);
    check_ids(tokenizer, "<|end|>", ATTN_ENCODE_SPECIALS_AS_TEXT, letters, 7);
    check_ids(tokenizer, "", 0, NULL, 0);
    assert_int_equal(attn_tokenizer_size(tokenizer), N_TINY);
    assert_int_equal(attn_tokenizer_id(tokenizer, "hel", 3), 258);
    assert_int_equal(attn_tokenizer_id(tokenizer, "hell", 4), -1);
    assert_string_equal(attn_tokenizer_token(tokenizer, 257, NULL), "\xc4\xa0he");
    assert_null(attn_tokenizer_token(tokenizer, N_TINY, NULL));
    assert_int_equal(attn_tokenizer_is_special(tokenizer, 259), 1);
    assert_int_equal(attn_tokenizer_is_special(tokenizer, 258), 0);
    assert_int_equal(attn_tokenizer_special(tokenizer, ATTN_SPECIAL_EOS), 259);
    assert_int_equal(attn_tokenizer_special(tokenizer, ATTN_SPECIAL_PAD), -1);
    attn_tokenizer_destroy(tokenizer);

    arrays.add_bos = 1;
    arrays.pre = "smollm"; /* digits apart */
    assert_int_equal(attn_tokenizer_from_arrays(&arrays, &tokenizer), ATTN_OK);
    const int32_t apart[] = {259, 256, '1', '2'};
    check_ids(tokenizer, "he12", 0, apart, 4);
    check_ids(tokenizer, "he12", ATTN_ENCODE_NO_SPECIAL, apart + 1, 3);
    attn_tokenizer_destroy(tokenizer);
}

static void test_refused(void **state)
{
    (void)state;
    attn_tokenizer *tokenizer = (attn_tokenizer *)&tokenizer;
    attn_tokenizer_arrays arrays = tiny_arrays();
    arrays.pre = "no-such-split";
    assert_int_equal(attn_tokenizer_from_arrays(&arrays, &tokenizer), ATTN_ERR_UNSUPPORTED);
    assert_null(tokenizer);
    assert_non_null(strstr(attn_tokenizer_error(), "no-such-split"));
    arrays = tiny_arrays();
    arrays.eos_id = N_TINY;
    assert_int_equal(attn_tokenizer_from_arrays(&arrays, &tokenizer), ATTN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_tokenizer_error(), "eos_id is 261"));
    arrays = tiny_arrays();
    const attn_text bad_merge[] = {{"h q", 3}}, no_blank[] = {{"hq", 2}};
    arrays.merges = bad_merge;
    arrays.n_merges = 1;
    assert_int_equal(attn_tokenizer_from_arrays(&arrays, &tokenizer), ATTN_ERR_FORMAT);
    assert_non_null(strstr(attn_tokenizer_error(), "merges[0]"));
    arrays.merges = no_blank;
    assert_int_equal(attn_tokenizer_from_arrays(&arrays, &tokenizer), ATTN_ERR_FORMAT);
    arrays = tiny_arrays();
    const attn_text not_utf8[] = {{"\xff", 1}};
    arrays.tokens = not_utf8;
    arrays.n_tokens = 1;
    arrays.token_types = NULL;
    arrays.bos_id = arrays.eos_id = -1;
    assert_int_equal(attn_tokenizer_from_arrays(&arrays, &tokenizer), ATTN_ERR_FORMAT);
    assert_non_null(strstr(attn_tokenizer_error(), "tokens[0]"));
    assert_int_equal(attn_tokenizer_from_arrays(NULL, &tokenizer), ATTN_ERR_INVALID_ARGUMENT);
}

/* ---- SmolLM2 ---- */

static attn_gguf *open_model(void)
{
    char path[4096], error[512];
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache)
        snprintf(path, sizeof path, "%s/attn/SmolLM2-135M-Instruct.Q4_1.gguf", cache);
    else
        snprintf(path, sizeof path, "%s/.cache/attn/SmolLM2-135M-Instruct.Q4_1.gguf", home ? home : "");
    attn_gguf *gguf = NULL;
    if (access(path, R_OK))
        fprintf(stderr, "SKIPPED: the model is not there: %s (./dev build fetches it)\n", path);
    else if (attn_gguf_open(path, &gguf, error, sizeof error) != ATTN_OK)
        fail_msg("%s", error);
    return gguf;
}

static attn_text *texts_of(const attn_gguf *gguf, const char *key, size_t *n)
{
    attn_gguf_string *strings;
    char error[512];
    if (attn_gguf_get_string_array(gguf, key, &strings, n, error, sizeof error) != ATTN_OK)
        fail_msg("%s", error);
    attn_text *texts = calloc(*n, sizeof *texts);
    for (size_t i = 0; i < *n; i++)
        texts[i] = (attn_text){strings[i].text, strings[i].length};
    free(strings);
    return texts;
}

static attn_tokenizer *smollm2(const attn_gguf *gguf)
{
    size_t n_tokens, n_merges, n_types;
    int64_t *types;
    attn_text *tokens = texts_of(gguf, "tokenizer.ggml.tokens", &n_tokens);
    attn_text *merges = texts_of(gguf, "tokenizer.ggml.merges", &n_merges);
    assert_int_equal(attn_gguf_get_i64_array(gguf, "tokenizer.ggml.token_type", &types, &n_types, NULL, 0), ATTN_OK);
    assert_int_equal(n_types, n_tokens);
    int32_t *token_types = calloc(n_types, sizeof *token_types);
    for (size_t i = 0; i < n_types; i++)
        token_types[i] = (int32_t)types[i];
    attn_tokenizer_arrays arrays;
    ATTN_ARGS_INIT(&arrays);
    arrays.pre = "smollm";
    arrays.tokens = tokens;
    arrays.n_tokens = (int64_t)n_tokens;
    arrays.merges = merges;
    arrays.n_merges = (int64_t)n_merges;
    arrays.token_types = token_types;
    arrays.bos_id = 1;
    arrays.eos_id = arrays.pad_id = 2;
    arrays.unk_id = 0;
    arrays.sep_id = arrays.cls_id = arrays.mask_id = -1;
    attn_tokenizer *tokenizer;
    if (attn_tokenizer_from_arrays(&arrays, &tokenizer) != ATTN_OK)
        fail_msg("%s", attn_tokenizer_error());
    free(tokens);
    free(merges);
    free(types);
    free(token_types);
    return tokenizer;
}

static void check_prompt(const attn_tokenizer *tokenizer, const json_t *golden, attn_encoding *encoding)
{
    const char *text = json_string_value(json_object_get(golden, "text"));
    const json_t *tokens = json_object_get(golden, "tokens");
    size_t size;
    assert_int_equal(attn_tokenizer_encode(tokenizer, text, strlen(text), NULL, 0, NULL, encoding), ATTN_OK);
    int64_t n = attn_encoding_length(encoding);
    assert_true(same_ids(text, attn_encoding_ids(encoding), n, json_object_get(golden, "ids")));
    for (int64_t i = 0; i < n; i++) {
        const char *token = attn_encoding_token(encoding, i, &size);
        const char *want = json_string_value(json_array_get(tokens, (size_t)i));
        assert_int_equal(size, strlen(want));
        assert_memory_equal(token, want, size);
    }
    char *decoded = decoded_text(tokenizer, attn_encoding_ids(encoding), n, 0, &size);
    assert_string_equal(decoded, text);
    free(decoded);
    int32_t ids[64];
    const json_t *greedy = json_object_get(golden, "greedy_ids");
    for (size_t i = 0; i < json_array_size(greedy) && i < 64; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(greedy, i));
    char *streamed = streamed_text(tokenizer, ids, (int64_t)json_array_size(greedy), 0, &size);
    assert_string_equal(streamed, json_string_value(json_object_get(golden, "greedy_text")));
    free(streamed);
}

static void test_smollm2(void **state)
{
    (void)state;
    static const char *const names[] = {"bridge", "capital", "code", "names", "repeat", "utf8"};
    if (access(shared_path("golden/smollm2/bridge.json"), R_OK)) {
        fprintf(stderr, "SKIPPED: no golden values at %s (set ATTN_SHARED)\n", shared_path("golden/smollm2"));
        skip();
    }
    attn_gguf *gguf = open_model();
    if (!gguf)
        skip();
    attn_tokenizer *tokenizer = smollm2(gguf);
    attn_gguf_close(gguf);
    attn_encoding *encoding;
    assert_int_equal(attn_encoding_create(&encoding), ATTN_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        snprintf(name, sizeof name, "golden/smollm2/%s.json", names[i]);
        json_t *golden = load_json(shared_path(name));
        assert_non_null(golden);
        check_prompt(tokenizer, golden, encoding);
        json_decref(golden);
    }
    attn_encoding_destroy(encoding);
    attn_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_smollm2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
