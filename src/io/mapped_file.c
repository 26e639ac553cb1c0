/* mapped_file.c - read-only files in memory, by mmap (or a heap copy). */
#include "io/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/io_error.h"

static const uint8_t no_bytes[1];

static attn_mapped_file *file_create(const char *name)
{
    attn_mapped_file *file = calloc(1, sizeof *file);
    if (!file)
        return NULL;
    file->name = strdup(name ? name : "(memory)");
    if (!file->name) {
        free(file);
        return NULL;
    }
    file->data = no_bytes;
    return file;
}

/* Maps the open descriptor; the caller closes it. */
static attn_status map_descriptor(int descriptor, attn_mapped_file *file, char *error,
                                  size_t error_size)
{
    struct stat info;
    if (fstat(descriptor, &info))
        return attn_io_fail(error, error_size, ATTN_ERR_IO, "%s: %s", file->name, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return attn_io_fail(error, error_size, ATTN_ERR_IO, "%s: not a regular file%s", file->name,
                            S_ISDIR(info.st_mode) ? " but a directory" : "");
    if ((uintmax_t)info.st_size > SIZE_MAX)
        return attn_io_fail(error, error_size, ATTN_ERR_IO, "%s: %jd bytes do not fit in memory",
                            file->name, (intmax_t)info.st_size);
    if (info.st_size == 0)
        return ATTN_OK;
    void *mapping = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (mapping == MAP_FAILED)
        return attn_io_fail(error, error_size, ATTN_ERR_IO, "%s: cannot map %jd bytes: %s",
                            file->name, (intmax_t)info.st_size, strerror(errno));
    file->mapping = mapping;
    file->data = mapping;
    file->size = (size_t)info.st_size;
    return ATTN_OK;
}

attn_status attn_mapped_file_open(const char *path, attn_mapped_file **out, char *error,
                                  size_t error_size)
{
    *out = NULL;
    attn_mapped_file *file = file_create(path);
    if (!file)
        return attn_io_no_memory(error, error_size, path);
    /* O_NONBLOCK: opening a named pipe must not wait for a writer */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        attn_io_fail(error, error_size, ATTN_ERR_IO, "%s: %s", path, strerror(errno));
        attn_mapped_file_close(file);
        return ATTN_ERR_IO;
    }
    attn_status status = map_descriptor(descriptor, file, error, error_size);
    close(descriptor);
    if (status != ATTN_OK) {
        attn_mapped_file_close(file);
        return status;
    }
    *out = file;
    return ATTN_OK;
}

attn_status attn_mapped_file_copy(const void *bytes, size_t size, const char *name,
                                  attn_mapped_file **out, char *error, size_t error_size)
{
    *out = NULL;
    attn_mapped_file *file = file_create(name);
    void *heap = NULL;
    if (!file || (size && posix_memalign(&heap, 64, size))) {
        attn_mapped_file_close(file);
        return attn_io_no_memory(error, error_size, name ? name : "(memory)");
    }
    if (size) {
        memcpy(heap, bytes, size);
        file->heap = heap;
        file->data = heap;
    }
    file->size = size;
    *out = file;
    return ATTN_OK;
}

void attn_mapped_file_release(const attn_mapped_file *file, const uint8_t *bytes, size_t size)
{
    if (!file->mapping || bytes < file->data || (size_t)(bytes - file->data) > file->size)
        return;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), first = (size_t)(bytes - file->data);
    const size_t end = size < file->size - first ? first + size : file->size;
    const size_t from = (first + page - 1) / page * page, to = end / page * page;
    if (to > from)
        madvise((char *)file->mapping + from, to - from, MADV_DONTNEED);
}

void attn_mapped_file_close(attn_mapped_file *file)
{
    if (!file)
        return;
    if (file->mapping)
        munmap(file->mapping, file->size);
    free(file->heap);
    free(file->name);
    free(file);
}
