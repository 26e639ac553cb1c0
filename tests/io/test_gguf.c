/* test_gguf.c - the GGUF reader: a file written by another implementation, and every malformed
 * field. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "io/gguf.h"
#include "io/gguf_builder.h"

static const char vectors_path[] = ATTN_SOURCE_DIR "/tests/data/dequant/vectors.gguf";

static attn_status parse_bytes(const uint8_t *bytes, size_t size, attn_gguf **out, char *error,
                               size_t error_size)
{
    attn_mapped_file *file;
    attn_status status = attn_mapped_file_copy(bytes, size, "test.gguf", &file, error, error_size);
    return status == ATTN_OK ? attn_gguf_parse(file, out, error, error_size) : status;
}

static void check_text(const attn_gguf_string *text, const char *want)
{
    assert_int_equal(text->length, strlen(want));
    assert_memory_equal(text->text, want, text->length);
}

/* ---- A file of another implementation ------------------------------------------------------- */

static void test_scalars(void **state)
{
    static const struct {
        const char *key;
        int64_t value;
    } integers[] = {{"test.u8", 200},       {"test.i8", -100},        {"test.u16", 60000},
                    {"test.i16", -30000},   {"test.u32", 4000000000}, {"test.i32", -2000000000},
                    {"test.i64", INT64_MIN}};
    (void)state;
    attn_gguf *gguf;
    char error[512];
    assert_int_equal(attn_gguf_open(vectors_path, &gguf, error, sizeof error), ATTN_OK);
    assert_int_equal(attn_gguf_version(gguf), 3);
    assert_int_equal(attn_gguf_alignment(gguf), 32);
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        int64_t got;
        double real;
        assert_int_equal(attn_gguf_get_i64(gguf, integers[i].key, &got, error, sizeof error),
                         ATTN_OK);
        assert_int_equal(got, integers[i].value);
        assert_int_equal(attn_gguf_get_f64(gguf, integers[i].key, &real, error, sizeof error),
                         ATTN_OK);
        assert_true(real == (double)integers[i].value);
    }
    uint64_t large;
    double real;
    bool flag = false;
    attn_gguf_string text;
    assert_int_equal(attn_gguf_get_u64(gguf, "test.u64", &large, error, sizeof error), ATTN_OK);
    assert_true(large == UINT64_MAX);
    assert_int_equal(attn_gguf_get_f64(gguf, "test.f32", &real, error, sizeof error), ATTN_OK);
    assert_true(real == 0.15625);
    assert_int_equal(attn_gguf_get_f64(gguf, "test.f64", &real, error, sizeof error), ATTN_OK);
    assert_true(real == 0.1);
    assert_int_equal(attn_gguf_get_bool(gguf, "test.bool", &flag, error, sizeof error), ATTN_OK);
    assert_true(flag);
    assert_int_equal(attn_gguf_get_string(gguf, "test.string", &text, error, sizeof error),
                     ATTN_OK);
    check_text(&text, "h\xc3\xa9llo");
    assert_null(attn_gguf_find(gguf, "test.absent"));
    assert_null(attn_gguf_find_tensor(gguf, "absent"));
    attn_gguf_close(gguf);
}

static void test_arrays(void **state)
{
    (void)state;
    attn_gguf *gguf;
    char error[512];
    attn_gguf_string *texts;
    int64_t *integers;
    double *reals;
    size_t count;
    assert_int_equal(attn_gguf_open(vectors_path, &gguf, error, sizeof error), ATTN_OK);
    assert_int_equal(
        attn_gguf_get_string_array(gguf, "test.strings", &texts, &count, error, sizeof error),
        ATTN_OK);
    assert_int_equal(count, 3);
    check_text(&texts[0], "");
    check_text(&texts[1], "a");
    check_text(&texts[2], "\xe2\x96\x81"
                          "b");
    free(texts);
    assert_int_equal(
        attn_gguf_get_i64_array(gguf, "test.integers", &integers, &count, error, sizeof error),
        ATTN_OK);
    assert_int_equal(count, 3);
    assert_int_equal(integers[1], -2);
    free(integers);
    assert_int_equal(
        attn_gguf_get_f64_array(gguf, "test.floats", &reals, &count, error, sizeof error), ATTN_OK);
    assert_int_equal(count, 2);
    assert_true(reals[1] == -0.25);
    free(reals);
    /* a scalar is an array of one */
    assert_int_equal(
        attn_gguf_get_i64_array(gguf, "test.u16", &integers, &count, error, sizeof error), ATTN_OK);
    assert_int_equal(count, 1);
    assert_int_equal(integers[0], 60000);
    free(integers);
    attn_gguf_close(gguf);
}

static void expect_text(attn_status status, const char *error, const char *word)
{
    assert_int_equal(status, ATTN_ERR_FORMAT);
    if (!strstr(error, word))
        fail_msg("'%s' does not say '%s'", error, word);
}

static void test_wrong_types(void **state)
{
    (void)state;
    attn_gguf *gguf;
    char e[512];
    uint64_t u;
    int64_t i, *integers;
    double d, *reals;
    bool flag;
    attn_gguf_string text, *texts;
    size_t count;
    assert_int_equal(attn_gguf_open(vectors_path, &gguf, e, sizeof e), ATTN_OK);
    expect_text(attn_gguf_get_u64(gguf, "no.key", &u, e, sizeof e), e, "'no.key': missing");
    expect_text(attn_gguf_get_u64(gguf, "test.i8", &u, e, sizeof e), e, "'test.i8': is -100");
    expect_text(attn_gguf_get_u64(gguf, "test.f32", &u, e, sizeof e), e, "'test.f32': is float32");
    expect_text(attn_gguf_get_u64(gguf, "test.integers", &u, e, sizeof e), e, "an array of int32");
    expect_text(attn_gguf_get_i64(gguf, "test.u64", &i, e, sizeof e), e, "18446744073709551615");
    expect_text(attn_gguf_get_i64(gguf, "test.bool", &i, e, sizeof e), e, "is bool");
    expect_text(attn_gguf_get_f64(gguf, "test.string", &d, e, sizeof e), e, "is string");
    expect_text(attn_gguf_get_bool(gguf, "test.u8", &flag, e, sizeof e), e, "a bool expected");
    expect_text(attn_gguf_get_string(gguf, "test.strings", &text, e, sizeof e), e,
                "a string expected");
    expect_text(attn_gguf_get_i64_array(gguf, "test.floats", &integers, &count, e, sizeof e), e,
                "an integer expected");
    expect_text(attn_gguf_get_f64_array(gguf, "test.strings", &reals, &count, e, sizeof e), e,
                "numbers expected");
    expect_text(attn_gguf_get_string_array(gguf, "test.integers", &texts, &count, e, sizeof e), e,
                "strings expected");
    attn_gguf_close(gguf);
}

static void test_tensors(void **state)
{
    (void)state;
    attn_gguf *gguf;
    char error[512];
    assert_int_equal(attn_gguf_open(vectors_path, &gguf, error, sizeof error), ATTN_OK);
    assert_int_equal(attn_gguf_tensor_count(gguf), 22);
    for (size_t t = 0; t < attn_gguf_tensor_count(gguf); t++) {
        const attn_gguf_tensor *tensor = attn_gguf_tensor_at(gguf, t);
        assert_ptr_equal(attn_gguf_find_tensor(gguf, tensor->name), tensor);
        assert_int_equal(tensor->n_dims, 2);
        assert_int_equal(tensor->shape[0], 512);
        assert_int_equal(tensor->shape[1], 2);
        assert_int_equal(tensor->elements, 1024);
        assert_int_equal((uintptr_t)tensor->data % 32, 0);
    }
    for (size_t v = 0; v < attn_gguf_value_count(gguf); v++) {
        const attn_gguf_value *value = attn_gguf_value_at(gguf, v);
        assert_ptr_equal(attn_gguf_find(gguf, value->key), value);
    }
    attn_gguf_close(gguf);
}

/* ---- Malformed files ------------------------------------------------------------------------ */

enum { TWO_D = 2 };
static const uint64_t shape_8x4[] = {8, 4};

/* A small good file: two f32 tensors of 8 x 4 (128 bytes each), two values, one of them nested
 * arrays. */
static void good_file(builder *b, uint32_t version)
{
    memset(b, 0, sizeof *b);
    put_header(b, version, 2, 3);
    put_key(b, "general.alignment", ATTN_GGUF_U32);
    put_u32(b, 64);
    put_key(b, "a.text", ATTN_GGUF_STRING);
    put_string(b, "value");
    put_key(b, "a.nested", ATTN_GGUF_ARRAY);
    put_u32(b, ATTN_GGUF_ARRAY);
    put_u64(b, 2);
    for (int i = 0; i < 2; i++) {
        put_u32(b, ATTN_GGUF_U8);
        put_u64(b, 1);
        put_u8(b, 7);
    }
    put_tensor(b, "first", TWO_D, shape_8x4, ATTN_GGML_F32, 0);
    put_tensor(b, "second", TWO_D, shape_8x4, ATTN_GGML_F32, 128);
    put_padding(b, 64);
    put_zeros(b, 256);
}

static void test_good(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        builder b;
        attn_gguf *gguf;
        char error[512] = "";
        good_file(&b, version);
        if (parse_bytes(b.data, b.size, &gguf, error, sizeof error) != ATTN_OK)
            fail_msg("%s", error);
        assert_int_equal(attn_gguf_version(gguf), version);
        assert_int_equal(attn_gguf_alignment(gguf), 64);
        assert_int_equal(attn_gguf_find_tensor(gguf, "second")->bytes, 128);
        attn_gguf_close(gguf);
    }
}

/* Every shorter file is refused: the last byte belongs to a tensor. */
static void test_truncated(void **state)
{
    (void)state;
    builder b;
    good_file(&b, 3);
    for (size_t size = 0; size < b.size; size++) {
        attn_gguf *gguf;
        char error[512] = "";
        if (parse_bytes(b.data, size, &gguf, error, sizeof error) != ATTN_ERR_FORMAT)
            fail_msg("%zu of %zu bytes: accepted", size, b.size);
        assert_true(strlen(error) > strlen("test.gguf: "));
        assert_null(gguf);
    }
}

static void expect_refused(const builder *b, const char *word)
{
    attn_gguf *gguf;
    char error[512] = "";
    attn_status status = parse_bytes(b->data, b->size, &gguf, error, sizeof error);
    if (status == ATTN_OK)
        fail_msg("accepted, though '%s' is wrong", word);
    expect_text(status, error, word);
    assert_null(gguf);
}

static void test_header(void **state)
{
    (void)state;
    builder b;
    good_file(&b, 3);
    b.data[0] = 'g';
    expect_refused(&b, "magic");
    good_file(&b, 1);
    expect_refused(&b, "version: 1");
    good_file(&b, 4);
    expect_refused(&b, "version: 4");
    good_file(&b, 0);
    expect_refused(&b, "version: 0");
    good_file(&b, 3u << 24);
    expect_refused(&b, "big-endian");
    for (int field = 0; field < 2; field++) {
        static const uint64_t absurd[] = {UINT64_MAX, (uint64_t)1 << 63, (uint64_t)1 << 60, 100000};
        for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
            good_file(&b, 3);
            attn_write_u64(b.data + 8 + 8 * field, absurd[i]);
            expect_refused(&b, field ? "metadata_kv_count" : "tensor_count");
        }
    }
}

/* Starts a file whose only value is the next one put. */
static void begin_value(builder *b, const char *key, uint32_t type)
{
    memset(b, 0, sizeof *b);
    put_header(b, 3, 0, 1);
    put_key(b, key, type);
}

static void test_values(void **state)
{
    (void)state;
    builder b;
    begin_value(&b, "x", 13);
    put_u64(&b, 0);
    expect_refused(&b, "'x': value type 13");
    begin_value(&b, "x", ATTN_GGUF_BOOL);
    put_u8(&b, 2);
    expect_refused(&b, "'x': bool 0 is 2");
    begin_value(&b, "", ATTN_GGUF_U64);
    put_u64(&b, 2);
    expect_refused(&b, "metadata key 0: 0 bytes");
    begin_value(&b, "a\033[2Jb", ATTN_GGUF_U64);
    put_u64(&b, 2);
    expect_refused(&b, "'a?[2Jb'");
    begin_value(&b, "x", ATTN_GGUF_STRING);
    put_u64(&b, UINT64_MAX);
    expect_refused(&b, "x: needs 18446744073709551615 bytes");
    begin_value(&b, "x", ATTN_GGUF_ARRAY);
    put_u32(&b, ATTN_GGUF_U32);
    put_u64(&b, (uint64_t)1 << 62); /* 4 * count wraps to 0 */
    expect_refused(&b, "'x': 4611686018427387904 values of uint32");
    begin_value(&b, "x", ATTN_GGUF_ARRAY);
    put_u32(&b, ATTN_GGUF_STRING);
    put_u64(&b, (uint64_t)1 << 61);
    expect_refused(&b, "'x': 2305843009213693952 values of string");
    begin_value(&b, "x", ATTN_GGUF_ARRAY);
    put_u32(&b, 99);
    put_u64(&b, 0);
    expect_refused(&b, "value type 99");
    begin_value(&b, "x", ATTN_GGUF_ARRAY);
    for (int depth = 0; depth < 100; depth++) {
        put_u32(&b, ATTN_GGUF_ARRAY);
        put_u64(&b, 1);
    }
    expect_refused(&b, "nested deeper");
    begin_value(&b, "x", ATTN_GGUF_ARRAY);
    put_u32(&b, ATTN_GGUF_BOOL);
    put_u64(&b, 3);
    put_bytes(&b, "\0\1\377", 3);
    expect_refused(&b, "'x': bool 2 is 255");
    memset(&b, 0, sizeof b);
    put_header(&b, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_key(&b, "same.key", ATTN_GGUF_U32);
        put_u32(&b, 1);
    }
    expect_refused(&b, "'same.key': the key is there twice");
}

static void test_alignment(void **state)
{
    static const uint32_t bad[] = {0, 4, 12, 33, UINT32_MAX};
    (void)state;
    builder b;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        begin_value(&b, "general.alignment", ATTN_GGUF_U32);
        put_u32(&b, bad[i]);
        expect_refused(&b, "general.alignment");
    }
    begin_value(&b, "general.alignment", ATTN_GGUF_U64);
    put_u64(&b, 32);
    expect_refused(&b, "general.alignment: type uint64");
}

/* A file with one tensor and `bytes` bytes of data. */
static void one_tensor(builder *b, const char *name, uint32_t n_dims, const uint64_t *shape,
                       uint32_t type, uint64_t offset, size_t bytes)
{
    memset(b, 0, sizeof *b);
    put_header(b, 3, 1, 0);
    put_tensor(b, name, n_dims, shape, type, offset);
    put_padding(b, 32);
    put_zeros(b, bytes);
}

static void test_tensor_fields(void **state)
{
    (void)state;
    builder b;
    uint64_t shape[8] = {8, 4, 1, 1, 1, 1, 1, 1};
    char long_name[66];
    memset(long_name, 'n', 65);
    long_name[65] = '\0';
    one_tensor(&b, "", 2, shape, ATTN_GGML_F32, 0, 128);
    expect_refused(&b, "tensor 0: name of 0 bytes");
    one_tensor(&b, long_name, 2, shape, ATTN_GGML_F32, 0, 128);
    expect_refused(&b, "name of 65 bytes");
    one_tensor(&b, "bad\xff", 2, shape, ATTN_GGML_F32, 0, 128);
    expect_refused(&b, "'bad?' has byte 0xff");
    one_tensor(&b, "t", 5, shape, ATTN_GGML_F32, 0, 128);
    expect_refused(&b, "'t': n_dims is 5");
    one_tensor(&b, "t", 2, shape, 4, 0, 128);
    expect_refused(&b, "'t': type 4 does not exist");
    one_tensor(&b, "t", 2, shape, 1000, 0, 128);
    expect_refused(&b, "'t': type 1000 does not exist");
    one_tensor(&b, "t", 2, shape, ATTN_GGML_Q4_1, 0, 128);
    expect_refused(&b, "'t': shape[0] is 8, not a multiple of the 32");
    one_tensor(&b, "t", 2, shape, ATTN_GGML_F32, 8, 256);
    expect_refused(&b, "'t': offset 8 is not a multiple of the alignment 32");
    one_tensor(&b, "t", 2, shape, ATTN_GGML_F32, 32, 159);
    expect_refused(&b, "'t': 128 bytes at offset 32 end past the 159");
    one_tensor(&b, "t", 2, shape, ATTN_GGML_F32, UINT64_MAX - 31, 128);
    expect_refused(&b, "offset 18446744073709551584");
    one_tensor(&b, "t", 2, shape, ATTN_GGML_F32, 0, 0);
    expect_refused(&b, "'t': 128 bytes");
    shape[1] = 0;
    one_tensor(&b, "t", 2, shape, ATTN_GGML_F32, 0, 128);
    expect_refused(&b, "'t': shape[1] is 0");
    shape[0] = shape[1] = (uint64_t)1 << 32; /* the product wraps to 0 */
    one_tensor(&b, "t", 2, shape, ATTN_GGML_F32, 0, 128);
    expect_refused(&b, "'t': shape[1] of 4294967296 makes more");
    shape[0] = (uint64_t)1 << 62; /* four times the elements wraps to 0 */
    one_tensor(&b, "t", 1, shape, ATTN_GGML_F32, 0, 128);
    expect_refused(&b, "'t': 4611686018427387904 elements of F32");
    shape[0] = (uint64_t)1 << 63;
    one_tensor(&b, "t", 1, shape, ATTN_GGML_F32, 0, 128);
    expect_refused(&b, "'t': shape[0] is 9223372036854775808");
}

static void test_tensor_pairs(void **state)
{
    (void)state;
    builder b;
    for (int twice = 0; twice < 2; twice++) {
        memset(&b, 0, sizeof b);
        put_header(&b, 3, 2, 0);
        put_tensor(&b, "b", TWO_D, shape_8x4, ATTN_GGML_F32, 96);
        put_tensor(&b, twice ? "b" : "a", TWO_D, shape_8x4, ATTN_GGML_F32, twice ? 224 : 0);
        put_padding(&b, 32);
        put_zeros(&b, 512);
        expect_refused(&b,
                       twice ? "'b': the name is there twice" : "'b': offset 96 lies within 'a'");
    }
}

/* Any single wrong byte: an error or a file whose tensors lie inside it; never a crash (run under
 * the sanitizers). */
static void test_any_byte(void **state)
{
    (void)state;
    builder b;
    good_file(&b, 3);
    int refused = 0;
    for (size_t at = 0; at < b.size - 256; at++) {
        for (int change = 1; change < 256; change = change * 2 + (change & 1)) {
            uint8_t before = b.data[at];
            attn_gguf *gguf;
            b.data[at] = (uint8_t)(before ^ change);
            if (parse_bytes(b.data, b.size, &gguf, NULL, 0) == ATTN_OK) {
                for (size_t t = 0; t < attn_gguf_tensor_count(gguf); t++) {
                    const attn_gguf_tensor *tensor = attn_gguf_tensor_at(gguf, t);
                    volatile uint8_t last = tensor->data[tensor->bytes - 1];
                    (void)last;
                }
                attn_gguf_close(gguf);
            } else {
                refused++;
            }
            b.data[at] = before;
        }
    }
    assert_true(refused > 100);
}

static void test_files(void **state)
{
    (void)state;
    attn_gguf *gguf;
    char error[512] = "";
    assert_int_equal(attn_gguf_open("/no/such/file", &gguf, error, sizeof error), ATTN_ERR_IO);
    assert_non_null(strstr(error, "/no/such/file"));
    assert_int_equal(attn_gguf_open(ATTN_SOURCE_DIR, &gguf, error, sizeof error), ATTN_ERR_IO);
    assert_non_null(strstr(error, "directory"));
    assert_int_equal(attn_gguf_open("/dev/zero", &gguf, error, sizeof error), ATTN_ERR_IO);
    assert_int_equal(attn_gguf_open("/dev/null", &gguf, error, sizeof error), ATTN_ERR_IO);
    assert_int_equal(attn_gguf_open(ATTN_SOURCE_DIR "/CMakeLists.txt", &gguf, error, sizeof error),
                     ATTN_ERR_FORMAT);
    attn_gguf_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars),      cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_wrong_types),  cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_good),         cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_header),       cmocka_unit_test(test_values),
        cmocka_unit_test(test_alignment),    cmocka_unit_test(test_tensor_fields),
        cmocka_unit_test(test_tensor_pairs), cmocka_unit_test(test_any_byte),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
