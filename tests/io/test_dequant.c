/* test_dequant.c - every block format against vectors of another implementation
 * (tests/data/dequant/make_vectors.py), to the bit, and the errors of attn_dequant. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "io/dequant.h"
#include "io/gguf.h"

static const char vectors_path[] = ATTN_SOURCE_DIR "/tests/data/dequant/vectors.gguf";

static attn_gguf *open_vectors(void)
{
    attn_gguf *gguf;
    char error[512];
    if (attn_gguf_open(vectors_path, &gguf, error, sizeof error) != ATTN_OK)
        fail_msg("%s", error);
    return gguf;
}

static void check_type(const attn_gguf *gguf, uint32_t type)
{
    const char *name = attn_ggml_type_name(type);
    char expected_name[64], error[512];
    snprintf(expected_name, sizeof expected_name, "%s.f32", name);
    const attn_gguf_tensor *tensor = attn_gguf_find_tensor(gguf, name);
    const attn_gguf_tensor *expected = attn_gguf_find_tensor(gguf, expected_name);
    assert_non_null(tensor);
    assert_non_null(expected);
    assert_int_equal(tensor->type, type);
    assert_int_equal(tensor->elements, expected->elements);
    int64_t n = tensor->elements;
    float *out = malloc((size_t)n * sizeof *out);
    assert_non_null(out);
    assert_int_equal(
        attn_dequant(type, tensor->data, tensor->bytes, 0, n, out, error, sizeof error), ATTN_OK);
    int64_t distinct = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t got, want;
        memcpy(&got, &out[i], 4);
        memcpy(&want, expected->data + 4 * i, 4);
        if (got != want)
            fail_msg("%s element %lld: got %.9g (%08x), expected bits %08x", name, (long long)i,
                     (double)out[i], (unsigned)got, (unsigned)want);
        distinct += i > 0 && out[i] != out[i - 1];
    }
    assert_true(distinct > n / 2); /* the vectors are not empty */
    free(out);
}

static const uint32_t supported[] = {ATTN_GGML_F32,  ATTN_GGML_F16,  ATTN_GGML_BF16, ATTN_GGML_Q8_0,
                                     ATTN_GGML_Q4_0, ATTN_GGML_Q4_1, ATTN_GGML_Q5_0, ATTN_GGML_Q5_1,
                                     ATTN_GGML_Q4_K, ATTN_GGML_Q5_K, ATTN_GGML_Q6_K};

static void test_vectors(void **state)
{
    (void)state;
    attn_gguf *gguf = open_vectors();
    for (size_t t = 0; t < sizeof supported / sizeof *supported; t++)
        check_type(gguf, supported[t]);
    attn_gguf_close(gguf);
}

/* A row in the middle is what the whole holds there. */
static void test_range(void **state)
{
    (void)state;
    attn_gguf *gguf = open_vectors();
    for (size_t t = 0; t < sizeof supported / sizeof *supported; t++) {
        const attn_gguf_tensor *tensor =
            attn_gguf_find_tensor(gguf, attn_ggml_type_name(supported[t]));
        float *whole = malloc(2048 * sizeof *whole), *row = malloc(512 * sizeof *row);
        assert_non_null(tensor);
        assert_non_null(whole);
        assert_non_null(row);
        assert_int_equal(attn_dequant(tensor->type, tensor->data, tensor->bytes, 0,
                                      tensor->elements, whole, NULL, 0),
                         ATTN_OK);
        assert_int_equal(
            attn_dequant(tensor->type, tensor->data, tensor->bytes, 512, 512, row, NULL, 0),
            ATTN_OK);
        assert_memory_equal(row, whole + 512, 512 * sizeof *row);
        free(whole);
        free(row);
    }
    attn_gguf_close(gguf);
}

/* The formula of a block by hand: Q4_1 with d = 2, m = 1, number i has value i % 16. */
static void test_by_hand(void **state)
{
    (void)state;
    uint8_t block[20] = {0x00, 0x40, 0x00, 0x3c};
    float out[32];
    for (int i = 0; i < 16; i++)
        block[4 + i] = (uint8_t)(i | (15 - i) << 4);
    assert_int_equal(attn_dequant(ATTN_GGML_Q4_1, block, sizeof block, 0, 32, out, NULL, 0),
                     ATTN_OK);
    for (int i = 0; i < 16; i++) {
        assert_true(out[i] == (float)(2 * i + 1));
        assert_true(out[16 + i] == (float)(2 * (15 - i) + 1));
    }
}

static void expect_error(uint32_t type, size_t bytes, int64_t first, int64_t n, attn_status status,
                         const char *word)
{
    uint8_t data[512] = {0};
    float out[512];
    char error[256] = "";
    memset(out, 0x5a, sizeof out);
    assert_int_equal(attn_dequant(type, data, bytes, first, n, out, error, sizeof error), status);
    if (!strstr(error, word))
        fail_msg("'%s' does not say '%s'", error, word);
    for (size_t i = 0; i < sizeof out; i++)
        assert_int_equal(((uint8_t *)out)[i], 0x5a);
}

static void test_errors(void **state)
{
    (void)state;
    expect_error(16, 66, 0, 256, ATTN_ERR_UNSUPPORTED, "IQ2_XXS");
    expect_error(10, 84, 0, 256, ATTN_ERR_UNSUPPORTED, "Q2_K");
    expect_error(26, 4, 0, 1, ATTN_ERR_UNSUPPORTED, "I32");
    expect_error(4, 4, 0, 1, ATTN_ERR_UNSUPPORTED, "unknown (4)");
    expect_error(4000000000u, 4, 0, 1, ATTN_ERR_UNSUPPORTED, "4000000000");
    expect_error(ATTN_GGML_Q8_0, 68, 16, 32, ATTN_ERR_INVALID_ARGUMENT, "blocks of 32");
    expect_error(ATTN_GGML_Q8_0, 68, 0, 31, ATTN_ERR_INVALID_ARGUMENT, "blocks of 32");
    expect_error(ATTN_GGML_Q8_0, 68, -32, 32, ATTN_ERR_INVALID_ARGUMENT, "-32");
    expect_error(ATTN_GGML_Q8_0, 68, 32, 64, ATTN_ERR_INVALID_ARGUMENT, "end past");
    expect_error(ATTN_GGML_Q8_0, 67, 32, 32, ATTN_ERR_INVALID_ARGUMENT, "end past");
    expect_error(ATTN_GGML_F32, 16, 0, INT64_MAX, ATTN_ERR_INVALID_ARGUMENT, "end past");
    expect_error(ATTN_GGML_F32, 16, INT64_MAX, INT64_MAX, ATTN_ERR_INVALID_ARGUMENT, "end past");
    float none;
    assert_int_equal(attn_dequant(ATTN_GGML_Q6_K, NULL, 0, 0, 0, &none, NULL, 0), ATTN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_range),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
