/* test_io_memory.c - every reader and writer of src/io with the n-th allocation failing, for n = 1,
 * 2, ... until it succeeds: an error each time, nothing leaked, no file left behind. Not with
 * sanitizers, which have an allocator of their own. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "io/convert.h"
#include "io/gguf.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"

#if defined(__has_feature) /* clang */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* gcc */
#define SANITIZED 1
#endif
#if defined(__GLIBC__) && !defined(SANITIZED)
#define COUNTED 1
#else
#define COUNTED 0
#endif

/* ---- An allocator that fails when told ------------------------------------------------------ */

/* volatile: compilers take it that malloc and free change no variable of the program. */
static volatile long countdown = -1; /* allocations until one fails; negative: none does */
static volatile long live;           /* blocks allocated and not freed, while watching */
static volatile bool watching;

#if COUNTED
/* ATTN_API: visible, so that the C library and jansson come here too. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *block);

static bool fails(void)
{
    if (!watching || countdown < 0)
        return false;
    countdown = countdown - 1;
    if (countdown >= 0)
        return false;
    errno = ENOMEM;
    return true;
}

static void *counted(void *block)
{
    live = live + (watching && block);
    return block;
}

ATTN_API void *malloc(size_t size)
{
    return fails() ? NULL : counted(__libc_malloc(size));
}

ATTN_API void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : counted(__libc_calloc(n, size));
}

ATTN_API void *realloc(void *old, size_t size)
{
    if (fails())
        return NULL;
    return old ? __libc_realloc(old, size) : counted(__libc_malloc(size));
}

ATTN_API int posix_memalign(void **out, size_t alignment, size_t size)
{
    if (fails())
        return ENOMEM;
    *out = counted(__libc_memalign(alignment, size));
    return *out ? 0 : ENOMEM;
}

ATTN_API void free(void *block)
{
    live = live - (watching && block);
    __libc_free(block);
}
#endif

/* ---- The jobs ------------------------------------------------------------------------------- */

static const char vectors_path[] = ATTN_SOURCE_DIR "/tests/data/dequant/vectors.gguf";
static const char cases_path[] =
    ATTN_SOURCE_DIR "/tests/data/cases/safetensors/sf-ok-08.safetensors";
static const char llama_path[] = ATTN_SOURCE_DIR "/fuzz/corpus/gguf/llama.gguf";
static char folder[32], out_path[64], out_folder[64];

static attn_status read_gguf(void)
{
    attn_gguf *gguf;
    attn_gguf_string *texts = NULL;
    size_t count;
    char error[256];
    attn_status status = attn_gguf_open(vectors_path, &gguf, error, sizeof error);
    if (status != ATTN_OK)
        return status;
    status = attn_gguf_get_string_array(gguf, "test.strings", &texts, &count, error, sizeof error);
    if (status == ATTN_OK)
        free(texts);
    attn_gguf_close(gguf);
    return status;
}

static attn_status read_safetensors(void)
{
    attn_safetensors *st;
    char error[256];
    attn_status status = attn_safetensors_open(cases_path, &st, error, sizeof error);
    if (status == ATTN_OK)
        attn_safetensors_close(st);
    return status;
}

static attn_status write_safetensors(void)
{
    attn_st_writer *w;
    int64_t shape[1] = {3};
    float numbers[3] = {1, 2, 3};
    size_t index = 0;
    char error[256];
    attn_status status = attn_st_writer_create(&w, error, sizeof error);
    if (status != ATTN_OK)
        return status;
    status = attn_st_writer_metadata(w, "format", "pt", error, sizeof error);
    if (status == ATTN_OK)
        status = attn_st_writer_add(w, "t", ATTN_ST_F32, 1, shape, &index, error, sizeof error);
    if (status == ATTN_OK)
        status = attn_st_writer_begin(w, out_path, error, sizeof error);
    if (status == ATTN_OK)
        status = attn_st_writer_put_f32(w, index, numbers, 3, error, sizeof error);
    if (status == ATTN_OK)
        status = attn_st_writer_finish(w, error, sizeof error);
    attn_st_writer_destroy(w);
    return status;
}

static attn_status convert_gguf(void)
{
    attn_convert_options options = {.dtype = ATTN_ST_BF16};
    char error[256];
    return attn_convert(llama_path, out_folder, &options, NULL, error, sizeof error);
}

/* ---- The test ------------------------------------------------------------------------------- */

static int make_folder(void **state)
{
    (void)state;
    /* in memory where there is such a place: the jobs sync thousands of files */
    strcpy(folder, "/dev/shm/attn-test-XXXXXX");
    if (!mkdtemp(folder)) {
        strcpy(folder, "/tmp/attn-test-XXXXXX");
        if (!mkdtemp(folder))
            return -1;
    }
    snprintf(out_path, sizeof out_path, "%s/f", folder);
    snprintf(out_folder, sizeof out_folder, "%s/out", folder);
    return 0;
}

/* The files that the jobs write. */
static const char *result_path(size_t index, char *path, size_t size)
{
    static const char *const names[] = {"f", "out/model.safetensors", "out/config.json",
                                        "out/tokenizer.json", "out/tokenizer_config.json"};
    if (index >= sizeof names / sizeof *names)
        return NULL;
    snprintf(path, size, "%s/%s", folder, names[index]);
    return path;
}

static void remove_results(void)
{
    char path[128];
    for (size_t i = 0; result_path(i, path, sizeof path); i++)
        unlink(path);
    rmdir(out_folder);
}

/* FNV-1a over the bytes of all results that are there, and their places. */
static uint64_t sum_of_results(void)
{
    uint64_t sum = 0xcbf29ce484222325u;
    char path[128];
    for (size_t i = 0; result_path(i, path, sizeof path); i++) {
        FILE *file = fopen(path, "rb");
        sum = (sum ^ i) * 0x100000001b3u;
        for (int c; file && (c = getc(file)) != EOF;)
            sum = (sum ^ (uint64_t)c) * 0x100000001b3u;
        if (file)
            fclose(file);
    }
    return sum;
}

static int remove_folder(void **state)
{
    (void)state;
    remove_results();
    return rmdir(folder); /* fails when something else was left there */
}

/* Runs the job with ever later failures; *failures is how many there were. A run that ends well
 * although an allocation failed (the C library made it good, or a job goes on without an optional
 * part) must have written the same. */
static void fail_each(const char *name, attn_status (*job)(void), long *failures)
{
    remove_results();
    assert_int_equal(job(), ATTN_OK); /* once before: what the C library keeps is there */
    uint64_t sum = sum_of_results();
    for (*failures = 0; *failures < 10000; ++*failures) {
        remove_results();
        watching = true;
        countdown = *failures;
        live = 0;
        attn_status status = job();
        bool reached = countdown < 0; /* the allocation that was to fail was asked for */
        long leaked = live;
        watching = false;
        countdown = -1;
        if (leaked)
            fail_msg("%s: allocation %ld failing leaks %ld blocks", name, *failures, leaked);
        if (status == ATTN_OK && sum_of_results() != sum)
            fail_msg("%s: allocation %ld failing gives another result", name, *failures);
        if (status == ATTN_OK && !reached)
            return;
        if (!reached)
            fail_msg("%s: status %d without a failing allocation", name, (int)status);
    }
    fail_msg("%s: does not end", name);
}

static void test_each_allocation(void **state)
{
    static const struct {
        const char *name;
        attn_status (*job)(void);
    } jobs[] = {{"read_gguf", read_gguf},
                {"read_safetensors", read_safetensors},
                {"write_safetensors", write_safetensors},
                {"convert_gguf", convert_gguf}};
    (void)state;
    if (!COUNTED)
        skip();
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        long failures;
        fail_each(jobs[i].name, jobs[i].job, &failures);
        printf("%s: %ld allocations failed one by one\n", jobs[i].name, failures);
        assert_true(failures >= 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_allocation, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
