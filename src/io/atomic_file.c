/* atomic_file.c - write beside, fsync, rename, fsync the directory. */
#include "io/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "io/io_error.h"

struct attn_atomic_file {
    char *path;      /* the final name, links resolved */
    char *temporary; /* path.PID-N.tmp */
    int descriptor;
    uint64_t written; /* where _write goes on */
};

static attn_status fail_errno(const char *path, const char *doing, char *error, size_t error_size)
{
    return attn_io_fail(error, error_size, ATTN_ERR_IO, "%s: %s: %s", path, doing, strerror(errno));
}

static void release(attn_atomic_file *file)
{
    if (file->descriptor >= 0)
        close(file->descriptor);
    free(file->path);
    free(file->temporary);
    free(file);
}

/* Creates a file that nobody else has, named after the final one. False with errno set. */
static bool create_temporary(attn_atomic_file *file)
{
    size_t room = strlen(file->path) + 64;
    file->temporary = malloc(room);
    if (!file->temporary)
        return false;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (unsigned attempt = 0; attempt < 100; attempt++) {
        snprintf(file->temporary, room, "%s.%ld-%lx-%u.tmp", file->path, (long)getpid(),
                 (unsigned long)now.tv_nsec, attempt);
        file->descriptor = open(file->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->descriptor >= 0)
            return true;
        if (errno != EEXIST)
            break;
    }
    free(file->temporary);
    file->temporary = NULL;
    return false;
}

attn_status attn_atomic_file_create(const char *path, attn_atomic_file **out, char *error,
                                    size_t error_size)
{
    struct stat info;
    *out = NULL;
    bool exists = !stat(path, &info);
    if (exists && !S_ISREG(info.st_mode))
        return attn_io_fail(error, error_size, ATTN_ERR_IO,
                            "%s: is not a regular file, cannot be replaced", path);
    attn_atomic_file *file = calloc(1, sizeof *file);
    if (!file)
        return attn_io_no_memory(error, error_size, path);
    file->descriptor = -1;
    file->path = exists ? realpath(path, NULL) : strdup(path);
    if (!file->path || !create_temporary(file)) {
        attn_status status = fail_errno(path, "cannot be written", error, error_size);
        release(file);
        return status;
    }
    /* keeping the old permissions is a courtesy: a file system without them is no reason to fail */
    if (exists && fchmod(file->descriptor, info.st_mode & 0777))
        errno = 0;
    *out = file;
    return ATTN_OK;
}

attn_status attn_atomic_file_write_at(attn_atomic_file *file, uint64_t offset, const void *bytes,
                                      size_t size, char *error, size_t error_size)
{
    const char *from = bytes;
    if (offset > INT64_MAX || size > INT64_MAX - offset)
        return attn_io_fail(error, error_size, ATTN_ERR_IO, "%s: offset %llu is too large",
                            file->path, (unsigned long long)offset);
    while (size) {
        size_t piece = size < ((size_t)1 << 30) ? size : (size_t)1 << 30;
        ssize_t done = pwrite(file->descriptor, from, piece, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return fail_errno(file->path, "writing", error, error_size);
        from += done;
        offset += (uint64_t)done;
        size -= (size_t)done;
    }
    return ATTN_OK;
}

attn_status attn_atomic_file_write(attn_atomic_file *file, const void *bytes, size_t size,
                                   char *error, size_t error_size)
{
    attn_status status =
        attn_atomic_file_write_at(file, file->written, bytes, size, error, error_size);
    if (status == ATTN_OK)
        file->written += size;
    return status;
}

/* After a rename the directory entry must reach the disk too. */
static bool sync_directory(const char *path)
{
    char directory[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    if (length >= sizeof directory)
        return true; /* renaming worked with this name, so it cannot be */
    memcpy(directory, path, length);
    directory[length] = '\0';
    const char *name = !slash ? "." : length ? directory : "/";
    int descriptor = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return errno == EACCES; /* a directory that may be written but not read cannot be synced */
    bool synced = !fsync(descriptor) || errno == EINVAL;
    int reason = errno;
    close(descriptor);
    errno = reason;
    return synced;
}

attn_status attn_atomic_file_commit(attn_atomic_file *file, char *error, size_t error_size)
{
    if (fsync(file->descriptor) && errno != EINVAL) {
        attn_status status = fail_errno(file->path, "syncing", error, error_size);
        attn_atomic_file_abort(file);
        return status;
    }
    int closed = close(file->descriptor);
    file->descriptor = -1;
    if (closed || rename(file->temporary, file->path)) {
        attn_status status = fail_errno(file->path, "renaming", error, error_size);
        attn_atomic_file_abort(file);
        return status;
    }
    attn_status status = ATTN_OK;
    if (!sync_directory(file->path))
        status = fail_errno(file->path, "syncing its directory", error, error_size);
    release(file);
    return status;
}

void attn_atomic_file_abort(attn_atomic_file *file)
{
    if (!file)
        return;
    if (file->temporary)
        unlink(file->temporary);
    release(file);
}

attn_status attn_atomic_file_save(const char *path, const void *bytes, size_t size, char *error,
                                  size_t error_size)
{
    attn_atomic_file *file;
    attn_status status = attn_atomic_file_create(path, &file, error, error_size);
    if (status != ATTN_OK)
        return status;
    status = attn_atomic_file_write(file, bytes, size, error, error_size);
    if (status != ATTN_OK) {
        attn_atomic_file_abort(file);
        return status;
    }
    return attn_atomic_file_commit(file, error, error_size);
}
