/* The rules of attn/tokenizer.h: statuses and their texts, long texts, several threads, SentencePiece and BERT arrays. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "text_support.h"

#define CASES ATTN_SOURCE_DIR "/tests/data/cases/tokenizer/"

static attn_tokenizer *load(const char *name)
{
    char path[4096];
    attn_tokenizer *tokenizer;
    snprintf(path, sizeof path, CASES "%s.tokenizer.json", name);
    if (attn_tokenizer_load(path, &tokenizer) != ATTN_OK)
        fail_msg("%s", attn_tokenizer_error());
    return tokenizer;
}

static void refuse(const char *json, attn_status status, const char *word)
{
    attn_tokenizer *tokenizer = (attn_tokenizer *)&tokenizer;
    assert_int_equal(attn_tokenizer_from_json(json, strlen(json), &tokenizer), status);
    assert_null(tokenizer);
    if (!strstr(attn_tokenizer_error(), word))
        fail_msg("\"%s\" does not say %s", attn_tokenizer_error(), word);
}

static void test_bad_json(void **state)
{
    (void)state;
#define MODEL "\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0},\"unk_token\":\"a\"}"
    refuse("", ATTN_ERR_FORMAT, "tokenizer.json");
    refuse("[]", ATTN_ERR_FORMAT, "object");
    refuse("{}", ATTN_ERR_FORMAT, "model is missing");
    refuse("{\"model\":{\"type\":\"GPT\"}}", ATTN_ERR_UNSUPPORTED, "model.type is \"GPT\"");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", ATTN_ERR_FORMAT, "model.vocab.a is -1");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}", ATTN_ERR_FORMAT, "uplicate");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", ATTN_ERR_FORMAT, "model.merges[0] is \"a\"");
    refuse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}}", ATTN_ERR_UNSUPPORTED, "dropout is 0.1");
    refuse("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":1}}", ATTN_ERR_FORMAT, "unk_id is 1");
    refuse("{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}}",
           ATTN_ERR_FORMAT, "pre_tokenizer.pattern.Regex");
    refuse("{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a[^b]]\"},\"behavior\":\"Isolated\"}}",
           ATTN_ERR_UNSUPPORTED, "[a[^b]]");
    refuse("{" MODEL ",\"normalizer\":{\"type\":\"Fancy\"}}", ATTN_ERR_UNSUPPORTED, "normalizer.type is \"Fancy\"");
    refuse("{" MODEL ",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA!\"}}", ATTN_ERR_FORMAT, "base64");
    refuse("{" MODEL ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"b\",\"type_id\":0}}],"
           "\"pair\":[],\"special_tokens\":{}}}", ATTN_ERR_FORMAT, "single[0].SpecialToken.id is \"b\"");
    refuse("{" MODEL ",\"added_tokens\":[{\"id\":0}]}", ATTN_ERR_FORMAT, "added_tokens[0].content is missing");
    attn_tokenizer *tokenizer;
    assert_int_equal(attn_tokenizer_load("/no/such/file", &tokenizer), ATTN_ERR_IO);
    assert_non_null(strstr(attn_tokenizer_error(), "/no/such/file"));
    assert_int_equal(attn_tokenizer_load(NULL, &tokenizer), ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(attn_tokenizer_from_json(NULL, 0, &tokenizer), ATTN_ERR_INVALID_ARGUMENT);
}

static void test_options(void **state)
{
    (void)state;
    attn_tokenizer *tokenizer = load("wordpiece-uncased");
    attn_encoding *encoding;
    attn_encode_options options;
    assert_int_equal(attn_encoding_create(&encoding), ATTN_OK);
    ATTN_ARGS_INIT(&options);
    options.max_length = 1;
    assert_int_equal(attn_tokenizer_encode(tokenizer, "the", 3, NULL, 0, &options, encoding), ATTN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_tokenizer_error(), "max_length is 1"));
    options.max_length = -1;
    assert_int_equal(attn_tokenizer_encode(tokenizer, "the", 3, NULL, 0, &options, encoding), ATTN_ERR_INVALID_ARGUMENT);
    options.max_length = 0;
    options.flags = 1u << 20;
    assert_int_equal(attn_tokenizer_encode(tokenizer, "the", 3, NULL, 0, &options, encoding), ATTN_ERR_UNSUPPORTED);
    options.flags = ATTN_ENCODE_TRUNCATE_LEFT;
    options.max_length = 4;
    assert_int_equal(attn_tokenizer_encode(tokenizer, "the the cat the", 15, NULL, 0, &options, encoding), ATTN_OK);
    const int32_t last_two[] = {2, 123, 122, 3};
    assert_int_equal(attn_encoding_length(encoding), 4);
    assert_memory_equal(attn_encoding_ids(encoding), last_two, sizeof last_two);
    assert_int_equal(attn_tokenizer_encode(tokenizer, NULL, 3, NULL, 0, NULL, encoding), ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(attn_encoding_length(encoding), 0);
    assert_int_equal(attn_tokenizer_special(tokenizer, ATTN_SPECIAL_CLS), 2);
    assert_int_equal(attn_tokenizer_special(tokenizer, ATTN_SPECIAL_UNK), 1);
    assert_int_equal(attn_tokenizer_special(tokenizer, ATTN_SPECIAL_BOS), -1);
    int32_t bad = -1, beyond = 1 << 30;
    size_t size = 7;
    assert_int_equal(attn_tokenizer_decode(tokenizer, &bad, 1, 0, NULL, 0, &size), ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(size, 7);
    assert_int_equal(attn_tokenizer_decode(tokenizer, &beyond, 1, 0, NULL, 0, &size), ATTN_OK);
    assert_int_equal(size, 0);
    assert_int_equal(attn_tokenizer_decode(tokenizer, &bad, 1, 8, NULL, 0, &size), ATTN_ERR_UNSUPPORTED);
    attn_encoding_destroy(encoding);
    attn_tokenizer_destroy(tokenizer);
    attn_encoding_destroy(NULL);
    attn_tokenizer_destroy(NULL);
    attn_decode_stream_destroy(NULL);
}

/* What a normaliser has deleted in front was the beginning of the text: the mark is not put before what follows. */
static void test_deleted_beginning(void **state)
{
    (void)state;
    const char json[] = "{\"normalizer\": {\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": true}, \"pre_tokenizer\": "
                        "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"first\", \"split\": true},"
                        " \"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0, \"[UNK]\": 1, \"_a\": 2}, \"unk_token\": \"[UNK]\"}}";
    const char *const texts[] = {" a", "", "a"}; /* ids 0, none, 2 */
    attn_tokenizer *tokenizer;
    attn_encoding *encoding;
    assert_int_equal(attn_tokenizer_from_json(json, sizeof json - 1, &tokenizer), ATTN_OK);
    assert_int_equal(attn_encoding_create(&encoding), ATTN_OK);
    for (int32_t i = 0; i < 3; i++) {
        assert_int_equal(attn_tokenizer_encode(tokenizer, texts[i], strlen(texts[i]), NULL, 0, NULL, encoding), ATTN_OK);
        assert_int_equal(attn_encoding_length(encoding), i != 1);
        assert_true(i == 1 || attn_encoding_ids(encoding)[0] == i);
    }
    attn_encoding_destroy(encoding);
    attn_tokenizer_destroy(tokenizer);
}

/* Two blanks are a token that takes the blanks around it: what the first match has taken gives no second token. */
static void test_blanks_taken(void **state)
{
    (void)state;
    const char json[] = "{\"added_tokens\": [{\"id\": 2, \"content\": \"  \", \"lstrip\": true, \"rstrip\": true}],"
                        " \"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0, \"[UNK]\": 1}, \"unk_token\": \"[UNK]\"}}";
    const int32_t want[] = {2, 0};
    attn_tokenizer *tokenizer;
    attn_encoding *encoding;
    assert_int_equal(attn_tokenizer_from_json(json, sizeof json - 1, &tokenizer), ATTN_OK);
    assert_int_equal(attn_encoding_create(&encoding), ATTN_OK);
    assert_int_equal(attn_tokenizer_encode(tokenizer, "     a", 6, NULL, 0, NULL, encoding), ATTN_OK);
    assert_int_equal(attn_encoding_length(encoding), 2);
    assert_memory_equal(attn_encoding_ids(encoding), want, sizeof want);
    attn_encoding_destroy(encoding);
    attn_tokenizer_destroy(tokenizer);
}

/* A megabyte of one kind of character: quadratic work anywhere would take hours. One thread's work is nothing to the thread
 * sanitizer, which takes 60 times as long for it. */
#if defined(__SANITIZE_THREAD__)
#define LONG_TEXT (1 << 14)
#else
#define LONG_TEXT (1 << 20)
#endif
static void test_long(void **state)
{
    (void)state;
    static const char *const names[] = {"bytelevel", "split-ignore-merges", "wordpiece-uncased", "bytefallback"};
    static const char *const units[] = {"a", "th", " ", "\n", "1", "'", "\xe6\x9d\xb1", "e\xcc\x81", "<|"};
    enum { LENGTH = LONG_TEXT };
    char *text = malloc(LENGTH);
    attn_encoding *encoding;
    assert_non_null(text);
    assert_int_equal(attn_encoding_create(&encoding), ATTN_OK);
    for (size_t t = 0; t < sizeof names / sizeof *names; t++) {
        attn_tokenizer *tokenizer = load(names[t]);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            size_t unit = strlen(units[u]), size = LENGTH / unit * unit;
            for (size_t i = 0; i < size; i++)
                text[i] = units[u][i % unit];
            assert_int_equal(attn_tokenizer_encode(tokenizer, text, size, NULL, 0, NULL, encoding), ATTN_OK);
            int64_t n = attn_encoding_length(encoding);
            if (t == 2)
                continue;
            char *decoded = decoded_text(tokenizer, attn_encoding_ids(encoding), n, ATTN_DECODE_SKIP_SPECIAL, &unit);
            assert_int_equal(unit, size);
            assert_memory_equal(decoded, text, size);
            free(decoded);
        }
        attn_tokenizer_destroy(tokenizer);
    }
    attn_encoding_destroy(encoding);
    free(text);
}

/* ---- Threads ---- */

typedef struct worker {
    const attn_tokenizer *tokenizer;
    pthread_t thread;
    int wrong;
} worker;

static void *work(void *arg)
{
    worker *w = arg;
    attn_encoding *encoding;
    const int32_t want[] = {258, 328, 324, 325};
    if (attn_encoding_create(&encoding) != ATTN_OK)
        return NULL;
    for (int i = 0; i < 500; i++) {
        attn_status status = attn_tokenizer_encode(w->tokenizer, "the quick brown fox", 19, NULL, 0, NULL, encoding);
        w->wrong += status != ATTN_OK || attn_encoding_length(encoding) != 4 ||
                    memcmp(attn_encoding_ids(encoding), want, sizeof want) != 0;
    }
    attn_encoding_destroy(encoding);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    attn_tokenizer *tokenizer = load("bytelevel");
    worker workers[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (worker){.tokenizer = tokenizer};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].wrong, 0);
    }
    attn_tokenizer_destroy(tokenizer);
}

/* ---- Arrays of the other kinds ---- */

#define N_OF(array) ((int64_t)(sizeof(array) / sizeof *(array)))
#define T(text) {text, sizeof(text) - 1}

static attn_tokenizer *from_arrays(const attn_tokenizer_arrays *arrays)
{
    attn_tokenizer *tokenizer;
    if (attn_tokenizer_from_arrays(arrays, &tokenizer) != ATTN_OK)
        fail_msg("%s", attn_tokenizer_error());
    return tokenizer;
}

static void check_text(const attn_tokenizer *tokenizer, const char *text, const int32_t *want, int64_t n, const char *decoded)
{
    attn_encoding *encoding;
    size_t size;
    assert_int_equal(attn_encoding_create(&encoding), ATTN_OK);
    assert_int_equal(attn_tokenizer_encode(tokenizer, text, strlen(text), NULL, 0, NULL, encoding), ATTN_OK);
    assert_int_equal(attn_encoding_length(encoding), n);
    assert_memory_equal(attn_encoding_ids(encoding), want, (size_t)n * sizeof *want);
    char *back = decoded_text(tokenizer, want, n, ATTN_DECODE_SKIP_SPECIAL, &size);
    assert_string_equal(back, decoded);
    free(back);
    attn_encoding_destroy(encoding);
}

static void test_spm(void **state)
{
    (void)state;
    const attn_text tokens[] = {T("<unk>"), T("<s>"), T("<0xC3>"), T("<0xA9>"), T("\xe2\x96\x81"), T("a"), T("b"), T("c"),
                                T("ab"), T("bc"), T("\xe2\x96\x81" "a")};
    const float scores[] = {0, 0, 0, 0, -9, -9, -9, -9, -3, -2, -4};
    const int32_t types[] = {2, 3, 6, 6, 1, 1, 1, 1, 1, 1, 1};
    attn_tokenizer_arrays arrays;
    ATTN_ARGS_INIT(&arrays);
    arrays.model = ATTN_TOKENIZER_SPM;
    arrays.tokens = tokens;
    arrays.n_tokens = N_OF(tokens);
    arrays.scores = scores;
    arrays.token_types = types;
    arrays.bos_id = 1;
    arrays.unk_id = 0;
    arrays.eos_id = arrays.pad_id = arrays.sep_id = arrays.cls_id = arrays.mask_id = -1;
    arrays.add_bos = arrays.add_space_prefix = 1;
    attn_tokenizer *tokenizer = from_arrays(&arrays);
    const int32_t best[] = {1, 10, 9}, bytes[] = {1, 10, 2, 3, 4, 8}, special[] = {1, 10, 1, 4, 6}, blank[] = {1, 4, 10};
    check_text(tokenizer, "abc", best, 3, "abc"); /* bc (-2) before ab (-3), then the blank with a (-4) */
    check_text(tokenizer, "a\xc3\xa9 ab", bytes, 6, "a\xc3\xa9 ab");
    check_text(tokenizer, "a<s>b", special, 5, "a b");
    check_text(tokenizer, " a", blank, 3, " a");
    attn_tokenizer_destroy(tokenizer);
    arrays.scores = NULL;
    assert_int_equal(attn_tokenizer_from_arrays(&arrays, &tokenizer), ATTN_ERR_INVALID_ARGUMENT);
}

/* Qwen's tokenizer composes characters first, which its GGUF files do not say. */
static void test_composed(void **state)
{
    (void)state;
    const attn_text tokens[] = {T("e"), T("\xc3\x83"), T("\xc2\xa9"), T("\xc3\x83\xc2\xa9"), T("\xc3\x8c"), T("\xc4\xa3")};
    const attn_text merges[] = {T("\xc3\x83 \xc2\xa9")};
    attn_tokenizer_arrays arrays;
    ATTN_ARGS_INIT(&arrays);
    arrays.model = ATTN_TOKENIZER_BYTE_BPE;
    arrays.tokens = tokens;
    arrays.n_tokens = N_OF(tokens);
    arrays.merges = merges;
    arrays.n_merges = N_OF(merges);
    arrays.bos_id = arrays.unk_id = arrays.eos_id = arrays.pad_id = arrays.sep_id = arrays.cls_id = arrays.mask_id = -1;
    const int32_t composed[] = {3}, apart[] = {0, 4, 5};
    arrays.pre = "qwen2";
    attn_tokenizer *tokenizer = from_arrays(&arrays);
    check_text(tokenizer, "e\xcc\x81", composed, 1, "\xc3\xa9");
    attn_tokenizer_destroy(tokenizer);
    arrays.pre = "gpt-2";
    tokenizer = from_arrays(&arrays);
    check_text(tokenizer, "e\xcc\x81", apart, 3, "e\xcc\x81");
    attn_tokenizer_destroy(tokenizer);
}

static void test_wordpiece_arrays(void **state)
{
    (void)state;
    const attn_text tokens[] = {T("[UNK]"), T("[CLS]"), T("[SEP]"), T("\xe2\x96\x81the"), T("\xe2\x96\x81" "cat"), T("s"),
                                T("\xe2\x96\x81!")};
    const int32_t types[] = {3, 3, 3, 1, 1, 1, 1};
    attn_tokenizer_arrays arrays;
    ATTN_ARGS_INIT(&arrays);
    arrays.model = ATTN_TOKENIZER_WORDPIECE;
    arrays.tokens = tokens;
    arrays.n_tokens = N_OF(tokens);
    arrays.token_types = types;
    arrays.unk_id = 0;
    arrays.cls_id = 1;
    arrays.sep_id = 2;
    arrays.bos_id = arrays.eos_id = arrays.pad_id = arrays.mask_id = -1;
    arrays.lowercase = 1;
    attn_tokenizer *tokenizer = from_arrays(&arrays);
    const int32_t want[] = {1, 3, 4, 5, 6, 2}, unknown[] = {1, 0, 2};
    check_text(tokenizer, "The c\xc3\xa1ts!", want, 6, "the cats!");
    check_text(tokenizer, "sat", unknown, 3, "");
    assert_string_equal(attn_tokenizer_token(tokenizer, 5, NULL), "##s");
    attn_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_json),         cmocka_unit_test(test_options), cmocka_unit_test(test_deleted_beginning), cmocka_unit_test(test_blanks_taken), cmocka_unit_test(test_long),
        cmocka_unit_test(test_threads),          cmocka_unit_test(test_spm),     cmocka_unit_test(test_wordpiece_arrays), cmocka_unit_test(test_composed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
