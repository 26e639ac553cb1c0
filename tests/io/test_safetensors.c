/* test_safetensors.c - the safetensors reader rule by rule, shards with an index, and the writer.
 */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "io/atomic_file.h"
#include "io/bytes.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"

/* ---- One file, from memory ------------------------------------------------------------------ */

/* A file of this header and `data` zero bytes; the claimed header length is off by `lie`. */
static attn_status parse_text(const char *header, size_t header_size, size_t data, int64_t lie,
                              attn_safetensors **out, char *error, size_t error_size)
{
    size_t size = 8 + header_size + data;
    uint8_t *bytes = calloc(1, size);
    attn_mapped_file *file;
    assert_non_null(bytes);
    attn_write_u64(bytes, header_size + (uint64_t)lie);
    memcpy(bytes + 8, header, header_size);
    assert_int_equal(attn_mapped_file_copy(bytes, size, "t.safetensors", &file, error, error_size),
                     ATTN_OK);
    free(bytes);
    return attn_safetensors_parse(file, out, error, error_size);
}

static void expect_refused(const char *header, size_t data, const char *word)
{
    attn_safetensors *st;
    char error[512] = "";
    attn_status status = parse_text(header, strlen(header), data, 0, &st, error, sizeof error);
    if (status != ATTN_ERR_FORMAT || !strstr(error, word))
        fail_msg("%s: status %d, '%s' does not say '%s'", header, (int)status, error, word);
    assert_null(st);
}

static void expect_accepted(const char *header, size_t data, size_t count)
{
    attn_safetensors *st;
    char error[512] = "";
    if (parse_text(header, strlen(header), data, 0, &st, error, sizeof error) != ATTN_OK)
        fail_msg("%s: %s", header, error);
    assert_int_equal(attn_safetensors_count(st), count);
    attn_safetensors_close(st);
}

#define ENTRY(name, dtype, shape, offsets)                                                         \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void test_header(void **state)
{
    (void)state;
    attn_safetensors *st;
    char error[512];
    static const int64_t lies[] = {-3, -1, 1, 8, INT64_MAX, INT64_MIN};
    expect_accepted("{}", 0, 0);
    expect_accepted("{}   ", 0, 0);
    expect_refused("{}", 1, "data_offsets");
    expect_refused("", 0, "header");
    expect_refused(" {}", 0, "begin with '{'");
    expect_refused("{", 0, "header: JSON line 1");
    expect_refused("{}x", 0, "header: JSON");
    expect_refused("{\"a\xff\":1}", 0, "header: JSON");
    expect_refused("{\"a\":1e999}", 0, "header: JSON");
    expect_refused("{\"a\":99999999999999999999}", 0, "header: JSON");
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
        assert_int_equal(parse_text("{}", 2, 0, lies[i], &st, error, sizeof error),
                         ATTN_ERR_FORMAT);
    char deep[400] = "{\"a\":";
    memset(deep + 5, '[', 300);
    expect_refused(deep, 0, "nests deeper than 64");
}

static void test_entries(void **state)
{
    (void)state;
    expect_refused("{\"t\":3}", 0, "'t': is not an object");
    expect_refused("{\"t\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "'t': dtype is missing");
    expect_refused("{\"t\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "'t': dtype");
    expect_refused("{" ENTRY("t", "f32", "[1]", "[0,4]") "}", 4, "'t': dtype 'f32' does not exist");
    expect_refused("{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4,
                   "'t': shape is missing");
    expect_refused("{" ENTRY("t", "F32", "4", "[0,4]") "}", 4,
                   "'t': shape is missing or not an array");
    expect_refused("{" ENTRY("t", "F32", "[1.0]", "[0,4]") "}", 4,
                   "'t': shape[0] is not an integer");
    expect_refused("{" ENTRY("t", "F32", "[true]", "[0,4]") "}", 4,
                   "'t': shape[0] is not an integer");
    expect_refused("{" ENTRY("t", "F32", "[1,-1]", "[0,4]") "}", 4, "'t': shape[1] is -1");
    expect_refused("{" ENTRY("t", "F32", "[9223372036854775807,2]", "[0,4]") "}", 4,
                   "'t': shape[1]");
    /* 2^62 elements of 4 bytes are 0 in 64 bits */
    expect_refused("{" ENTRY("t", "F32", "[4611686018427387904]", "[0,0]") "}", 0,
                   "'t': data_offsets");
    expect_refused("{" ENTRY("t", "F32", "[1]", "[0]") "}", 4, "data_offsets has 1 entries");
    expect_refused("{" ENTRY("t", "F32", "[1]", "[0,4,8]") "}", 8, "data_offsets has 3 entries");
    expect_refused("{" ENTRY("t", "F32", "[1]", "{}") "}", 4, "'t': data_offsets");
    expect_refused("{" ENTRY("t", "F32", "[1]", "[0,4.0]") "}", 4, "not integers");
    expect_refused("{" ENTRY("t", "F32", "[1]", "[0,\"4\"]") "}", 4, "not integers");
    expect_refused("{" ENTRY("t", "F32", "[1]", "[-4,0]") "}", 4, "not in order");
    expect_refused("{" ENTRY("t", "F32", "[1]", "[4,0]") "}", 4, "not in order");
    expect_refused("{" ENTRY("t", "F32", "[1]", "[4,8]") "}", 4, "end past the 4 bytes");
    expect_refused("{" ENTRY("t", "F32", "[2]", "[0,4]") "}", 4, "span 4 bytes");
    expect_refused("{" ENTRY("t", "F32", "[1]", "[0,8]") "}", 8, "span 8 bytes");
    expect_refused("{" ENTRY("t", "F4", "[3]", "[0,1]") "}", 1, "'t': data_offsets");
    expect_accepted("{" ENTRY("t", "F4", "[4]", "[0,2]") "}", 2, 1);
    expect_accepted("{" ENTRY("", "U8", "[1]", "[0,1]") "}", 1, 1);
    /* no control character reaches a terminal */
    expect_refused("{\"\\u001b[2J\":3}", 0, "'?[2J'");
}

static void test_coverage(void **state)
{
    (void)state;
    expect_accepted("{" ENTRY("b", "U8", "[2]", "[2,4]") "," ENTRY("a", "U8", "[2]", "[0,2]") "}",
                    4, 2);
    expect_refused("{" ENTRY("a", "U8", "[2]", "[1,3]") "}", 3, "'a': data_offsets begin at 1");
    expect_refused("{" ENTRY("a", "U8", "[2]", "[0,2]") "," ENTRY("b", "U8", "[1]", "[3,4]") "}", 4,
                   "'b': data_offsets begin at 3, but the tensors before end at 2: a hole");
    expect_refused("{" ENTRY("a", "U8", "[2]", "[0,2]") "," ENTRY("b", "U8", "[2]", "[1,3]") "}", 3,
                   "'b': data_offsets begin at 1, but the tensors before end at 2: they share");
    expect_refused("{" ENTRY("a", "U8", "[2]", "[0,2]") "}", 3, "end at 2, but there are 3");
    expect_refused("{" ENTRY("a", "U8", "[4]", "[0,4]") "," ENTRY("z", "U8", "[0]", "[2,2]") "}", 4,
                   "'z': data_offsets begin at 2");
    expect_accepted("{" ENTRY("a", "U8", "[4]", "[0,4]") "," ENTRY("z", "U8", "[0]", "[4,4]") "}",
                    4, 2);
    expect_refused("{" ENTRY("a", "U8", "[1]", "[0,1]") "," ENTRY("a", "U8", "[1]", "[1,2]") "}", 2,
                   "duplicate");
}

static void test_metadata(void **state)
{
    (void)state;
    attn_safetensors *st;
    char error[512];
    const char *header = "{\"__metadata__\":{\"format\":\"pt\",\"n\":\"\"}}", *key, *text;
    assert_int_equal(parse_text(header, strlen(header), 0, 0, &st, error, sizeof error), ATTN_OK);
    assert_int_equal(attn_safetensors_metadata_count(st), 2);
    assert_string_equal(attn_safetensors_metadata(st, "format"), "pt");
    assert_null(attn_safetensors_metadata(st, "absent"));
    attn_safetensors_metadata_at(st, 1, &key, &text);
    assert_string_equal(key, "n");
    assert_string_equal(text, "");
    attn_safetensors_close(st);
    expect_refused("{\"__metadata__\":[]}", 0, "__metadata__");
    expect_refused("{\"__metadata__\":null}", 0, "__metadata__");
    expect_refused("{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, "__metadata__: the value of 'a'");
}

/* Every bit pattern of the 8-bit types against their definitions, and rounding of large integers.
 */
static void test_numbers(void **state)
{
    (void)state;
    static const uint8_t integer[16] = {
        1,    0,    0,    1,    0,    0,    0x20, 0, /* 2^53 + 2^24 + 1 */
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    double real[2];
    float single[2];
    for (int bits = 0; bits < 256; bits++) {
        uint8_t byte = (uint8_t)bits;
        assert_int_equal(attn_st_to_f64(ATTN_ST_F8_E5M2, &byte, 1, real), ATTN_OK);
        int exponent = (bits >> 2) & 31, mantissa = bits & 3;
        double want = exponent == 31 ? (mantissa ? (double)NAN : (double)INFINITY)
                      : exponent     ? (1 + mantissa / 4.0) * pow(2, exponent - 15)
                                     : mantissa / 4.0 * pow(2, -14);
        want = bits & 128 ? -want : want;
        assert_true(real[0] == want || (isnan(real[0]) && isnan(want)));
        assert_int_equal(attn_st_to_f64(ATTN_ST_F8_E4M3, &byte, 1, real), ATTN_OK);
        exponent = (bits >> 3) & 15, mantissa = bits & 7;
        want = (bits & 127) == 127 ? (double)NAN
               : exponent          ? (1 + mantissa / 8.0) * pow(2, exponent - 7)
                                   : mantissa / 8.0 * pow(2, -6);
        want = bits & 128 ? -want : want;
        assert_true(real[0] == want || (isnan(real[0]) && isnan(want)));
    }
    assert_int_equal(attn_st_to_f32(ATTN_ST_I64, integer, 2, single), ATTN_OK);
    assert_true(single[0] == (float)9007199271518209LL && single[1] == -1.0f);
    assert_int_equal(attn_st_to_f32(ATTN_ST_U64, integer, 2, single), ATTN_OK);
    assert_true(single[1] == 0x1p64f);
    assert_int_equal(attn_st_to_f32(ATTN_ST_C64, integer, 1, single), ATTN_ERR_UNSUPPORTED);
    assert_int_equal(attn_st_to_f64(ATTN_ST_F4, integer, 1, real), ATTN_ERR_UNSUPPORTED);
}

static void test_ranges(void **state)
{
    (void)state;
    attn_safetensors *st;
    char error[512] = "";
    float out[4];
    const char *header =
        "{" ENTRY("t", "F32", "[3]", "[0,12]") "," ENTRY("c", "C64", "[1]", "[12,20]") "}";
    assert_int_equal(parse_text(header, strlen(header), 20, 0, &st, error, sizeof error), ATTN_OK);
    const attn_st_tensor *t = attn_safetensors_find(st, "t"), *c = attn_safetensors_find(st, "c");
    assert_int_equal(attn_st_read_f32(t, 1, 2, out, error, sizeof error), ATTN_OK);
    assert_int_equal(attn_st_read_f32(t, 3, 0, out, error, sizeof error), ATTN_OK);
    assert_int_equal(attn_st_read_f32(t, 1, 3, out, error, sizeof error),
                     ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(attn_st_read_f32(t, -1, 1, out, error, sizeof error),
                     ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(attn_st_read_f32(t, 0, INT64_MAX, out, error, sizeof error),
                     ATTN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, "'t'"));
    assert_int_equal(attn_st_read_f32(c, 0, 1, out, error, sizeof error), ATTN_ERR_UNSUPPORTED);
    assert_non_null(strstr(error, "C64"));
    attn_safetensors_close(st);
}

/* ---- Files in a folder of their own --------------------------------------------------------- */

typedef struct folder {
    char path[64], names[16][128];
    size_t count;
} folder;

static int make_folder(void **state)
{
    folder *f = calloc(1, sizeof *f);
    if (!f)
        return -1;
    strcpy(f->path, "/tmp/attn-test-XXXXXX");
    *state = f;
    return mkdtemp(f->path) ? 0 : -1;
}

static int remove_folder(void **state)
{
    folder *f = *state;
    for (size_t i = 0; i < f->count; i++)
        unlink(f->names[i]);
    int left = rmdir(f->path); /* fails when a temporary file was left behind */
    free(f);
    return left;
}

static const char *inside(folder *f, const char *name)
{
    assert_true(f->count < 16);
    char joined[sizeof f->names[0]];
    snprintf(joined, sizeof joined, "%s/%s", f->path, name);
    memcpy(f->names[f->count], joined, sizeof joined);
    return f->names[f->count++];
}

static void save(folder *f, const char *name, const char *text)
{
    assert_int_equal(attn_atomic_file_save(inside(f, name), text, strlen(text), NULL, 0), ATTN_OK);
}

/* A file with one f32 tensor of two elements, both `value`, and such another where also is not NULL. */
static void save_shard(folder *f, const char *file, const char *tensor, float value, const char *also)
{
    attn_st_writer *w;
    size_t index, second = 0;
    int64_t shape[1] = {2};
    float numbers[2] = {value, value};
    assert_int_equal(attn_st_writer_create(&w, NULL, 0), ATTN_OK);
    assert_int_equal(attn_st_writer_metadata(w, "file", file, NULL, 0), ATTN_OK);
    assert_int_equal(attn_st_writer_add(w, tensor, ATTN_ST_F32, 1, shape, &index, NULL, 0),
                     ATTN_OK);
    if (also)
        assert_int_equal(attn_st_writer_add(w, also, ATTN_ST_F32, 1, shape, &second, NULL, 0), ATTN_OK);
    assert_int_equal(attn_st_writer_begin(w, inside(f, file), NULL, 0), ATTN_OK);
    assert_int_equal(attn_st_writer_put_f32(w, index, numbers, 2, NULL, 0), ATTN_OK);
    if (also)
        assert_int_equal(attn_st_writer_put_f32(w, second, numbers, 2, NULL, 0), ATTN_OK);
    assert_int_equal(attn_st_writer_finish(w, NULL, 0), ATTN_OK);
    attn_st_writer_destroy(w);
}

static void test_shards(void **state)
{
    folder *f = *state;
    attn_safetensors *st;
    char error[512] = "";
    float out[2];
    save_shard(f, "one.safetensors", "a", 1, NULL);
    save_shard(f, "two.safetensors", "b", 2, NULL);
    save(f, "model.safetensors.index.json",
         "{\"metadata\":{\"total_size\":16},\"weight_map\":{\"b\":\"two.safetensors\",\"a\":\"one."
         "safetensors\"}}");
    if (attn_safetensors_open(f->path, &st, error, sizeof error) != ATTN_OK)
        fail_msg("%s", error);
    assert_int_equal(attn_safetensors_count(st), 2);
    assert_string_equal(attn_safetensors_at(st, 0)->name, "b");
    assert_int_equal(attn_st_read_f32(attn_safetensors_find(st, "a"), 0, 2, out, NULL, 0), ATTN_OK);
    assert_true(out[0] == 1 && out[1] == 1);
    assert_int_equal(attn_st_read_f32(attn_safetensors_find(st, "b"), 0, 2, out, NULL, 0), ATTN_OK);
    assert_true(out[0] == 2);
    assert_string_equal(attn_safetensors_metadata(st, "file"), "one.safetensors");
    attn_safetensors_close(st);
    /* a single model.safetensors wins */
    save_shard(f, "model.safetensors", "whole", 3, NULL);
    assert_int_equal(attn_safetensors_open(f->path, &st, error, sizeof error), ATTN_OK);
    assert_non_null(attn_safetensors_find(st, "whole"));
    attn_safetensors_close(st);
}

static void expect_bad_index(folder *f, const char *name, const char *text, attn_status want,
                             const char *word)
{
    attn_safetensors *st;
    char error[512] = "";
    save(f, name, text);
    attn_status status = attn_safetensors_open(f->names[f->count - 1], &st, error, sizeof error);
    if (status != want || !strstr(error, word))
        fail_msg("%s: status %d, '%s' does not say '%s'", text, (int)status, error, word);
    assert_null(st);
}

static void test_bad_index(void **state)
{
    folder *f = *state;
    save_shard(f, "one.safetensors", "a", 1, NULL);
    expect_bad_index(f, "0.json", "{", ATTN_ERR_FORMAT, "JSON");
    expect_bad_index(f, "1.json", "{}", ATTN_ERR_FORMAT, "weight_map");
    expect_bad_index(f, "2.json", "{\"weight_map\":[]}", ATTN_ERR_FORMAT, "weight_map");
    expect_bad_index(f, "3.json", "{\"weight_map\":{\"a\":1}}", ATTN_ERR_FORMAT, "'a'");
    expect_bad_index(f, "4.json", "{\"weight_map\":{\"a\":\"../one.safetensors\"}}",
                     ATTN_ERR_FORMAT, "'../one.safetensors'");
    expect_bad_index(f, "5.json", "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", ATTN_ERR_FORMAT,
                     "'/etc/passwd'");
    expect_bad_index(f, "6.json", "{\"weight_map\":{\"a\":\"..\"}}", ATTN_ERR_FORMAT, "'..'");
    expect_bad_index(f, "7.json", "{\"weight_map\":{\"b\":\"one.safetensors\"}}", ATTN_ERR_FORMAT,
                     "tensor 'b' is not in 'one.safetensors'");
    expect_bad_index(f, "8.json", "{\"weight_map\":{\"a\":\"none.safetensors\"}}", ATTN_ERR_IO,
                     "none.safetensors");
    expect_bad_index(f, "9.json",
                     "{\"weight_map\":{\"a\":\"one.safetensors\",\"a\":\"one.safetensors\"}}",
                     ATTN_ERR_FORMAT, "duplicate");
    save_shard(f, "two.safetensors", "b", 2, "a");
    expect_bad_index(f, "10.json", "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}",
                     ATTN_ERR_FORMAT, "tensor 'a' is in 'one.safetensors', but '");
    attn_safetensors *st;
    char error[512];
    unlink(f->names[0]);
    assert_int_equal(attn_safetensors_open(f->path, &st, error, sizeof error), ATTN_ERR_IO);
    assert_non_null(strstr(error, "model.safetensors"));
}

/* ---- Writer --------------------------------------------------------------------------------- */

static void test_round_trip(void **state)
{
    folder *f = *state;
    enum { N = 20000 }; /* more than the writer converts at a time */
    attn_st_writer *w;
    attn_safetensors *st;
    char error[512] = "";
    float *numbers = malloc(N * sizeof *numbers), *got = malloc(N * sizeof *got);
    static const attn_st_dtype dtypes[3] = {ATTN_ST_BF16, ATTN_ST_F32, ATTN_ST_F16};
    static const char *const names[3] = {"b", "\xc3\xa9\"\\", "h"};
    int64_t shape[2] = {N / 4, 4}, odd[1] = {3}, none[2] = {0, 5};
    size_t index[3], bytes_index, none_index, scalar_index;
    assert_non_null(numbers);
    assert_non_null(got);
    for (int i = 0; i < N; i++)
        numbers[i] = (float)i / 256 - 30;
    numbers[0] = 1e30f, numbers[1] = NAN, numbers[2] = -INFINITY, numbers[3] = 3.4e38f;
    assert_int_equal(attn_st_writer_create(&w, error, sizeof error), ATTN_OK);
    assert_int_equal(attn_st_writer_metadata(w, "format", "pt", error, sizeof error), ATTN_OK);
    assert_int_equal(
        attn_st_writer_add(w, "u", ATTN_ST_U8, 1, odd, &bytes_index, error, sizeof error), ATTN_OK);
    for (int t = 0; t < 3; t++)
        assert_int_equal(
            attn_st_writer_add(w, names[t], dtypes[t], 2, shape, &index[t], error, sizeof error),
            ATTN_OK);
    assert_int_equal(
        attn_st_writer_add(w, "none", ATTN_ST_F32, 2, none, &none_index, error, sizeof error),
        ATTN_OK);
    assert_int_equal(
        attn_st_writer_add(w, "s", ATTN_ST_F64, 0, NULL, &scalar_index, error, sizeof error),
        ATTN_OK);
    if (attn_st_writer_begin(w, inside(f, "w.safetensors"), error, sizeof error) != ATTN_OK)
        fail_msg("%s", error);
    for (int t = 2; t >= 0; t--) { /* in another order, in two pieces */
        assert_int_equal(attn_st_writer_put_f32(w, index[t], numbers, N - 7, error, sizeof error),
                         ATTN_OK);
        assert_int_equal(
            attn_st_writer_put_f32(w, index[t], numbers + N - 7, 7, error, sizeof error), ATTN_OK);
    }
    assert_int_equal(attn_st_writer_put_bytes(w, bytes_index, "xyz", 3, error, sizeof error),
                     ATTN_OK);
    assert_int_equal(
        attn_st_writer_put_bytes(w, scalar_index, "\0\0\0\0\0\0\xf0\x3f", 8, error, sizeof error),
        ATTN_OK);
    assert_int_equal(attn_st_writer_overflows(w), 3); /* 1e30 in f16, 3.4e38 in both */
    assert_int_equal(access(f->names[0], F_OK), -1);  /* nothing has that name yet */
    if (attn_st_writer_finish(w, error, sizeof error) != ATTN_OK)
        fail_msg("%s", error);
    attn_st_writer_destroy(w);

    if (attn_safetensors_open(f->names[0], &st, error, sizeof error) != ATTN_OK)
        fail_msg("%s", error);
    assert_string_equal(attn_safetensors_metadata(st, "format"), "pt");
    for (int t = 0; t < 3; t++) {
        const attn_st_tensor *tensor = attn_safetensors_find(st, names[t]);
        double bound = dtypes[t] == ATTN_ST_F32 ? 0 : dtypes[t] == ATTN_ST_BF16 ? 0x1p-8 : 0x1p-11;
        assert_non_null(tensor);
        assert_int_equal(tensor->dtype, dtypes[t]);
        assert_int_equal((uintptr_t)tensor->data % (attn_st_dtype_bits(tensor->dtype) / 8), 0);
        assert_int_equal(attn_st_read_f32(tensor, 0, N, got, error, sizeof error), ATTN_OK);
        assert_true(isnan(got[1]) && got[2] == -INFINITY);
        for (int i = 4; i < N; i++) /* round to nearest: half a unit in the last place */
            assert_true(fabs((double)got[i] - (double)numbers[i]) <=
                        bound * fabs((double)numbers[i]));
    }
    assert_memory_equal(attn_safetensors_find(st, "u")->data, "xyz", 3);
    assert_int_equal(attn_safetensors_find(st, "none")->elements, 0);
    assert_int_equal(attn_safetensors_find(st, "s")->n_dims, 0);
    attn_safetensors_close(st);
    free(numbers);
    free(got);
}

static void test_writer_errors(void **state)
{
    folder *f = *state;
    const char *path = inside(f, "w.safetensors");
    int64_t shape[1] = {2}, bad[2] = {INT64_MAX, 4}, negative[1] = {-1};
    float numbers[3] = {1, 2, 3};
    size_t index;
    attn_st_writer *w;
    char e[256];
    for (int mistake = 0; mistake < 13; mistake++) {
        attn_status status = ATTN_OK, want = ATTN_ERR_INVALID_ARGUMENT;
        assert_int_equal(attn_st_writer_create(&w, e, sizeof e), ATTN_OK);
        assert_int_equal(attn_st_writer_add(w, "t", ATTN_ST_F32, 1, shape, &index, e, sizeof e),
                         ATTN_OK);
        if (mistake == 0)
            status = attn_st_writer_add(w, "t", ATTN_ST_F32, 1, shape, &index, e, sizeof e);
        else if (mistake == 1)
            status =
                attn_st_writer_add(w, "__metadata__", ATTN_ST_F32, 1, shape, &index, e, sizeof e);
        else if (mistake == 2)
            status = attn_st_writer_add(w, "\xff", ATTN_ST_F32, 1, shape, &index, e, sizeof e);
        else if (mistake == 3)
            status = attn_st_writer_add(w, "u", ATTN_ST_F32, 2, bad, &index, e, sizeof e);
        else if (mistake == 4)
            status = attn_st_writer_add(w, "u", ATTN_ST_F32, 1, negative, &index, e, sizeof e);
        else if (mistake == 5)
            status = attn_st_writer_put_f32(w, index, numbers, 2, e, sizeof e);
        else if (mistake == 6)
            status = attn_st_writer_begin(w, "/no/such/folder/x", e, sizeof e), want = ATTN_ERR_IO;
        else if (mistake == 12)
            status = attn_st_writer_begin(w, f->path, e, sizeof e), want = ATTN_ERR_IO;
        if (mistake > 6 && mistake < 12)
            assert_int_equal(attn_st_writer_begin(w, path, e, sizeof e), ATTN_OK);
        if (mistake == 7)
            status = attn_st_writer_put_f32(w, index, numbers, 3, e, sizeof e);
        else if (mistake == 8)
            status = attn_st_writer_put_f32(w, 1, numbers, 1, e, sizeof e);
        else if (mistake == 9)
            status = attn_st_writer_finish(w, e, sizeof e);
        else if (mistake == 10)
            status = attn_st_writer_add(w, "u", ATTN_ST_F32, 1, shape, &index, e, sizeof e);
        else if (mistake == 11)
            status = attn_st_writer_begin(w, path, e, sizeof e);
        if (status != want)
            fail_msg("mistake %d: status %d", mistake, (int)status);
        /* a writer that failed writes nothing more */
        assert_int_equal(attn_st_writer_finish(w, e, sizeof e), ATTN_ERR_INVALID_ARGUMENT);
        attn_st_writer_destroy(w);
        assert_int_equal(access(path, F_OK), -1);
    }
    attn_st_writer_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_coverage),
        cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test_setup_teardown(test_shards, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_bad_index, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_round_trip, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_writer_errors, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
