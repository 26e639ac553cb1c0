/* mapped_file.h - the bytes of a file, read-only, for as long as the object lives. */
#ifndef ATTN_IO_MAPPED_FILE_H
#define ATTN_IO_MAPPED_FILE_H

#include <stdint.h>
#include "attn/attn.h"

typedef struct attn_mapped_file {
    const uint8_t
        *data; /* size bytes; never NULL, also for an empty file. A mapping starts on a page. */
    size_t size;
    char *name;    /* the path (or the name given to _copy), for messages */
    void *mapping; /* private: what munmap gets, or NULL for a heap copy */
    uint8_t *heap; /* private */
} attn_mapped_file;

/**
 * Maps a regular file. Nothing is read until the bytes are touched, and pages are shared with other
 * processes. The file must not be shortened while it is mapped (the system then stops the process
 * on access): replace files by renaming, as attn_atomic_file does. Errors: ATTN_ERR_IO (cannot be
 * opened, is a directory or a device, ...), ATTN_ERR_OUT_OF_MEMORY. On success *out is owned by the
 * caller: attn_mapped_file_close. Threads: the object is immutable.
 */
attn_status attn_mapped_file_open(const char *path, attn_mapped_file **out, char *error,
                                  size_t error_size);

/**
 * The same object over a heap copy of exactly `size` bytes, 64-byte aligned as a mapping would be
 * (a reader may be tested or fuzzed on bytes in memory, and a sanitizer sees one byte too far).
 */
attn_status attn_mapped_file_copy(const void *bytes, size_t size, const char *name,
                                  attn_mapped_file **out, char *error, size_t error_size);

/* Bytes that will hardly be read again: their whole pages leave this process, and come back from the file when touched. Bytes of
 * another file and heap copies are left alone. */
void attn_mapped_file_release(const attn_mapped_file *file, const uint8_t *bytes, size_t size);

/* Releases everything. NULL is fine. */
void attn_mapped_file_close(attn_mapped_file *file);

#endif
