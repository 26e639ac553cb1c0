/* test_atomic_file.c - a file appears whole or not at all, and nothing else is left in its folder.
 */
#include <dirent.h>
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
#include "io/mapped_file.h"

static char folder[64];

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/attn-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path_of("f"));
    unlink(path_of("link"));
    return rmdir(folder); /* fails when a temporary file was left behind */
}

static int entries_in_folder(void)
{
    DIR *directory = opendir(folder);
    int count = 0;
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

static void check_bytes(const char *name, const char *want)
{
    attn_mapped_file *file;
    char error[256];
    if (attn_mapped_file_open(path_of(name), &file, error, sizeof error) != ATTN_OK)
        fail_msg("%s", error);
    assert_int_equal(file->size, strlen(want));
    assert_memory_equal(file->data, want, file->size);
    attn_mapped_file_close(file);
}

static void test_save(void **state)
{
    (void)state;
    char error[256];
    struct stat info;
    assert_int_equal(attn_atomic_file_save(path_of("f"), "one", 3, error, sizeof error), ATTN_OK);
    check_bytes("f", "one");
    assert_int_equal(chmod(path_of("f"), 0640), 0);
    assert_int_equal(attn_atomic_file_save(path_of("f"), "", 0, error, sizeof error), ATTN_OK);
    check_bytes("f", "");
    assert_int_equal(stat(path_of("f"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640); /* kept */
    assert_int_equal(entries_in_folder(), 1);
}

static void test_pieces(void **state)
{
    (void)state;
    attn_atomic_file *file;
    char error[256];
    assert_int_equal(attn_atomic_file_create(path_of("f"), &file, error, sizeof error), ATTN_OK);
    assert_int_equal(attn_atomic_file_write(file, "ab", 2, error, sizeof error), ATTN_OK);
    assert_int_equal(attn_atomic_file_write_at(file, 4, "ef", 2, error, sizeof error), ATTN_OK);
    assert_int_equal(attn_atomic_file_write(file, "cd", 2, error, sizeof error), ATTN_OK);
    assert_int_equal(attn_atomic_file_write_at(file, UINT64_MAX, "x", 1, error, sizeof error),
                     ATTN_ERR_IO);
    assert_int_equal(access(path_of("f"), F_OK), -1);
    assert_int_equal(attn_atomic_file_commit(file, error, sizeof error), ATTN_OK);
    check_bytes("f", "abcdef");
    assert_int_equal(entries_in_folder(), 1);
}

static void test_abort(void **state)
{
    (void)state;
    attn_atomic_file *file;
    char error[256];
    assert_int_equal(attn_atomic_file_save(path_of("f"), "old", 3, error, sizeof error), ATTN_OK);
    assert_int_equal(attn_atomic_file_create(path_of("f"), &file, error, sizeof error), ATTN_OK);
    assert_int_equal(attn_atomic_file_write(file, "new", 3, error, sizeof error), ATTN_OK);
    check_bytes("f", "old");
    attn_atomic_file_abort(file);
    check_bytes("f", "old");
    assert_int_equal(entries_in_folder(), 1);
    attn_atomic_file_abort(NULL);
}

/* A reader that has the old file mapped keeps its bytes. */
static void test_reader_keeps_old(void **state)
{
    (void)state;
    attn_mapped_file *file;
    char error[256];
    assert_int_equal(attn_atomic_file_save(path_of("f"), "old", 3, error, sizeof error), ATTN_OK);
    assert_int_equal(attn_mapped_file_open(path_of("f"), &file, error, sizeof error), ATTN_OK);
    assert_int_equal(attn_atomic_file_save(path_of("f"), "n", 1, error, sizeof error), ATTN_OK);
    assert_memory_equal(file->data, "old", 3);
    attn_mapped_file_close(file);
    check_bytes("f", "n");
}

static void test_link(void **state)
{
    (void)state;
    char error[256];
    struct stat info;
    char target[128];
    snprintf(target, sizeof target, "%s", path_of("f"));
    assert_int_equal(attn_atomic_file_save(target, "old", 3, error, sizeof error), ATTN_OK);
    assert_int_equal(symlink(target, path_of("link")), 0);
    assert_int_equal(attn_atomic_file_save(path_of("link"), "new", 3, error, sizeof error),
                     ATTN_OK);
    assert_int_equal(lstat(path_of("link"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    check_bytes("f", "new");
}

static void test_errors(void **state)
{
    (void)state;
    char error[256] = "";
    assert_int_equal(attn_atomic_file_save("/no/such/folder/f", "x", 1, error, sizeof error),
                     ATTN_ERR_IO);
    assert_non_null(strstr(error, "/no/such/folder/f"));
    assert_int_equal(attn_atomic_file_save(folder, "x", 1, error, sizeof error), ATTN_ERR_IO);
    assert_int_equal(attn_atomic_file_save("/dev/null", "x", 1, error, sizeof error), ATTN_ERR_IO);
    assert_int_equal(entries_in_folder(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_save, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_pieces, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_abort, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_reader_keeps_old, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_link, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_errors, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
