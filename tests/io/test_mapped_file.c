/* test_mapped_file.c - pages that are released leave the process and come back as they were; nothing else changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "io/mapped_file.h"

#define SIZE ((size_t)8 << 20)

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 31 + i / 4096);
}

static void assert_bytes(const attn_mapped_file *file)
{
    for (size_t i = 0; i < file->size; i++)
        if (file->data[i] != byte_at(i))
            fail_msg("byte %zu is %d, not %d", i, file->data[i], byte_at(i));
}

/* Pages of this process that are in memory; -1 where the system does not say. */
static long resident_bytes(void)
{
    FILE *statm = fopen("/proc/self/statm", "r");
    long all = 0, resident = -1;
    if (statm && fscanf(statm, "%ld %ld", &all, &resident) != 2)
        resident = -1;
    if (statm)
        fclose(statm);
    return resident < 0 ? -1 : resident * sysconf(_SC_PAGESIZE);
}

static void test_release(void **state)
{
    (void)state;
    char path[] = "/tmp/attn_mapped_XXXXXX";
    uint8_t *bytes = malloc(SIZE + 100);
    for (size_t i = 0; i < SIZE + 100; i++)
        bytes[i] = byte_at(i);
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0 && write(descriptor, bytes, SIZE + 100) == (ssize_t)(SIZE + 100));
    close(descriptor);
    attn_mapped_file *file, *copy;
    assert_int_equal(attn_mapped_file_open(path, &file, NULL, 0), ATTN_OK);
    assert_int_equal(attn_mapped_file_copy(bytes, SIZE, "bytes", &copy, NULL, 0), ATTN_OK);
    free(bytes);
    unlink(path);
    assert_bytes(file);
    const long before = resident_bytes();
    attn_mapped_file_release(file, file->data + 10, SIZE);
    const long after = resident_bytes();
    if (before >= 0)
        assert_true(after <= before - (long)SIZE / 2);
    assert_bytes(file);
    attn_mapped_file_release(file, file->data + 5000, 100);       /* no whole page */
    attn_mapped_file_release(file, copy->data, SIZE);             /* another file's */
    attn_mapped_file_release(copy, copy->data, SIZE);             /* a heap copy keeps its bytes */
    attn_mapped_file_release(file, file->data + file->size, 100); /* behind the end */
    assert_bytes(file);
    assert_bytes(copy);
    attn_mapped_file_close(file);
    attn_mapped_file_close(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_release)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
