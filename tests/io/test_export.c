/* test_export.c - tensors through a reader function to a safetensors file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "io/export.h"
#include "io/io_error.h"
#include "io/safetensors.h"

enum { ROWS = 3000, LENGTH = 700 }; /* more than is read at a time */

static char path[64];
static int64_t reads, fail_at;

static int make_path(void **state)
{
    (void)state;
    strcpy(path, "/tmp/attn-test-XXXXXX");
    if (!mkdtemp(path))
        return -1;
    strcat(path, "/f");
    reads = 0;
    fail_at = -1;
    return 0;
}

static int remove_path(void **state)
{
    (void)state;
    unlink(path);
    *strrchr(path, '/') = '\0';
    return rmdir(path); /* fails when a temporary file was left behind */
}

/* Element (row, i) is row + i / 1024. */
static attn_status read_rows(void *user, int64_t first_row, int64_t n_rows, float *out, char *error,
                             size_t error_size)
{
    int64_t length = *(const int64_t *)user;
    if (reads++ == fail_at)
        return attn_io_fail(error, error_size, ATTN_ERR_FORMAT, "the %lldth read",
                            (long long)fail_at);
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t i = 0; i < length; i++)
            *out++ = (float)(first_row + r) + (float)i / 1024;
    return ATTN_OK;
}

static int64_t length_700 = LENGTH, length_1 = 1;
static const uint8_t some_bytes[6] = {1, 2, 3, 4, 5, 6};
static const int64_t matrix_shape[] = {ROWS, LENGTH}, empty_shape[] = {0, 5}, bytes_shape[] = {3},
                     cube_shape[] = {2, 2, LENGTH};
static const attn_export_tensor tensors[] = {
    {"matrix", ATTN_ST_F32, 2, matrix_shape, read_rows, &length_700, NULL},
    {"scalar", ATTN_ST_BF16, 0, NULL, read_rows, &length_1, NULL},
    {"empty", ATTN_ST_F32, 2, empty_shape, read_rows, &length_1, NULL},
    {"bytes", ATTN_ST_I16, 1, bytes_shape, NULL, NULL, some_bytes},
    {"cube", ATTN_ST_F16, 3, cube_shape, read_rows, &length_700, NULL},
};

static int64_t last_done, last_total;

static int note_progress(void *user, int64_t done, int64_t total)
{
    assert_true(done > last_done);
    last_done = done;
    last_total = total;
    return user && done > 1500 * LENGTH;
}

static void test_round_trip(void **state)
{
    (void)state;
    char error[256] = "";
    uint64_t overflows = 1;
    attn_safetensors *st;
    last_done = 0;
    if (attn_export_safetensors(path, tensors, 5, note_progress, NULL, &overflows, error,
                                sizeof error) != ATTN_OK)
        fail_msg("%s", error);
    assert_int_equal(overflows, 0);
    assert_int_equal(last_total, ROWS * LENGTH + 1 + 3 + 4 * LENGTH);
    assert_int_equal(last_done, last_total);
    assert_true(reads > 4); /* the matrix came in pieces */
    if (attn_safetensors_open(path, &st, error, sizeof error) != ATTN_OK)
        fail_msg("%s", error);
    assert_string_equal(attn_safetensors_metadata(st, "format"), "pt");
    const attn_st_tensor *matrix = attn_safetensors_find(st, "matrix");
    float *row = malloc(LENGTH * sizeof *row);
    assert_non_null(row);
    for (int64_t r = 0; r < ROWS; r++) {
        assert_int_equal(attn_st_read_f32(matrix, r * LENGTH, LENGTH, row, NULL, 0), ATTN_OK);
        for (int i = 0; i < LENGTH; i++)
            assert_true(row[i] == (float)r + (float)i / 1024);
    }
    assert_int_equal(
        attn_st_read_f32(attn_safetensors_find(st, "cube"), 3 * LENGTH, 1, row, NULL, 0), ATTN_OK);
    assert_true(row[0] == 3);
    assert_memory_equal(attn_safetensors_find(st, "bytes")->data, some_bytes, 6);
    assert_int_equal(attn_safetensors_find(st, "scalar")->n_dims, 0);
    assert_int_equal(attn_safetensors_find(st, "empty")->elements, 0);
    free(row);
    attn_safetensors_close(st);
}

static void test_errors(void **state)
{
    (void)state;
    char error[256] = "";
    attn_export_tensor large = tensors[0];
    const int64_t large_shape[3] = {(int64_t)1 << 31, (int64_t)1 << 31, 4};
    fail_at = 1;
    assert_int_equal(
        attn_export_safetensors(path, tensors, 5, NULL, NULL, NULL, error, sizeof error),
        ATTN_ERR_FORMAT);
    assert_string_equal(error, "the 1th read");
    fail_at = -1;
    last_done = 0;
    assert_int_equal(
        attn_export_safetensors(path, tensors, 5, note_progress, error, NULL, error, sizeof error),
        ATTN_ERR_CANCELLED);
    large.n_dims = 3, large.shape = large_shape;
    assert_int_equal(
        attn_export_safetensors(path, &large, 1, NULL, NULL, NULL, error, sizeof error),
        ATTN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, "'matrix'"));
    assert_int_equal(access(path, F_OK), -1);
}

static void test_copy_and_json(void **state)
{
    (void)state;
    char error[256] = "";
    attn_mapped_file *file;
    json_t *json = json_pack("{s:i}", "a", 1);
    assert_int_equal(attn_export_json(path, json, error, sizeof error), ATTN_OK);
    json_decref(json);
    assert_int_equal(attn_mapped_file_open(path, &file, error, sizeof error), ATTN_OK);
    assert_int_equal(file->size, strlen("{\n  \"a\": 1\n}\n"));
    assert_memory_equal(file->data, "{\n  \"a\": 1\n}\n", file->size);
    attn_mapped_file_close(file);
    assert_int_equal(attn_export_copy(ATTN_SOURCE_DIR "/LICENSE", path, error, sizeof error),
                     ATTN_OK);
    assert_int_equal(attn_export_copy("/no/such/file", path, error, sizeof error), ATTN_ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_errors, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_copy_and_json, make_path, remove_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
