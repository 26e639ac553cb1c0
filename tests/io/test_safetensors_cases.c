/* test_safetensors_cases.c - every case of tests/data/cases/safetensors: bad files are refused with
 * the field named, good ones load to the given values. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "io/json.h"
#include "io/safetensors.h"

static const char folder[] = ATTN_SOURCE_DIR "/tests/data/cases/safetensors";

/* The field that an error must name, by the case's kind. */
static const struct {
    const char *kind, *field;
} fields[] = {
    {"overlap", "data_offsets"},
    {"coverage", "data_offsets"},
    {"truncated", "data_offsets"},
    {"offsets", "data_offsets"},
    {"size mismatch", "data_offsets"},
    {"header length", "header length"},
    {"header json", "header"},
    {"shape overflow", "shape"},
    {"dtype", "dtype"},
    {"names", "duplicate"},
    {"metadata", "__metadata__"},
};

static const char *field_of(const char *kind)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!strcmp(fields[i].kind, kind))
            return fields[i].field;
    return ".safetensors: "; /* an unknown kind: at least the file is named */
}

static double number(const json_t *value)
{
    const char *text = json_string_value(value);
    if (text)
        return !strcmp(text, "inf")    ? (double)INFINITY
               : !strcmp(text, "-inf") ? -(double)INFINITY
                                       : (double)NAN;
    return json_number_value(value);
}

static void check_tensor(const char *id, const attn_st_tensor *tensor, const json_t *want)
{
    const json_t *shape = json_object_get(want, "shape"), *data = json_object_get(want, "data");
    assert_int_equal(tensor->n_dims, json_array_size(shape));
    for (int32_t d = 0; d < tensor->n_dims; d++)
        assert_int_equal(tensor->shape[d], json_integer_value(json_array_get(shape, (size_t)d)));
    assert_int_equal(tensor->elements, json_array_size(data));
    size_t n = (size_t)tensor->elements;
    double *got = malloc((n + 1) * sizeof *got);
    float *single = malloc((n + 1) * sizeof *single);
    assert_non_null(got);
    assert_non_null(single);
    assert_int_equal(attn_st_read_f64(tensor, 0, tensor->elements, got, NULL, 0), ATTN_OK);
    assert_int_equal(attn_st_read_f32(tensor, 0, tensor->elements, single, NULL, 0), ATTN_OK);
    for (size_t i = 0; i < n; i++) {
        double x = number(json_array_get(data, i));
        bool same = got[i] == x || (isnan(got[i]) && isnan(x));
        if (!same || !((double)single[i] == (double)(float)x || isnan(x)))
            fail_msg("%s: tensor '%s' element %zu is %.17g, expected %.17g", id, tensor->name, i,
                     got[i], x);
    }
    free(got);
    free(single);
}

static void check_good(const char *id, const attn_safetensors *st, const json_t *expect)
{
    json_t *tensors = json_object_get(expect, "tensors");
    json_t *metadata = json_object_get(expect, "metadata");
    const char *name;
    json_t *want;
    assert_int_equal(attn_safetensors_count(st), json_object_size(tensors));
    json_object_foreach(tensors, name, want)
    {
        const attn_st_tensor *tensor = attn_safetensors_find(st, name);
        if (!tensor)
            fail_msg("%s: no tensor '%s'", id, name);
        check_tensor(id, tensor, want);
    }
    if (metadata)
        assert_int_equal(attn_safetensors_metadata_count(st), json_object_size(metadata));
    json_object_foreach(metadata, name, want)
        assert_string_equal(attn_safetensors_metadata(st, name), json_string_value(want));
}

static void check_case(const json_t *test)
{
    const char *id = json_string_value(json_object_get(test, "id"));
    const json_t *expect = json_object_get(test, "expect");
    char path[512], error[512] = "";
    attn_safetensors *st;
    snprintf(path, sizeof path, "%s/%s", folder, json_string_value(json_object_get(test, "file")));
    attn_status status = attn_safetensors_open(path, &st, error, sizeof error);
    if (json_object_get(expect, "error")) {
        const char *field = field_of(json_string_value(json_object_get(test, "kind")));
        if (status != ATTN_ERR_FORMAT)
            fail_msg("%s: status %d, expected a refusal", id, (int)status);
        if (!strstr(error, field))
            fail_msg("%s: '%s' does not name '%s'", id, error, field);
        assert_null(st);
        return;
    }
    if (status != ATTN_OK)
        fail_msg("%s: %s", id, error);
    check_good(id, st, expect);
    attn_safetensors_close(st);
}

static json_t *read_case(const char *name)
{
    char path[512], error[256] = "";
    attn_mapped_file *file;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(attn_mapped_file_open(path, &file, error, sizeof error), ATTN_OK);
    json_t *test = attn_json_parse((const char *)file->data, file->size, error, sizeof error);
    attn_mapped_file_close(file);
    if (!test)
        fail_msg("%s: %s", name, error);
    return test;
}

static void test_cases(void **state)
{
    (void)state;
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    int bad = 0, good = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        size_t length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 5, ".json"))
            continue;
        json_t *test = read_case(entry->d_name);
        check_case(test);
        if (json_object_get(json_object_get(test, "expect"), "error"))
            bad++;
        else
            good++;
        json_decref(test);
    }
    closedir(directory);
    printf("%d bad files refused, %d good ones loaded\n", bad, good);
    assert_true(bad >= 18 && good >= 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
