/* atomic_file.h - a file that appears whole or not at all: written beside its final name, synced,
 * then renamed. */
#ifndef ATTN_IO_ATOMIC_FILE_H
#define ATTN_IO_ATOMIC_FILE_H

#include <stdint.h>
#include "attn/attn.h"

typedef struct attn_atomic_file attn_atomic_file;

/**
 * Starts writing what will be `path`, into a new file in the same directory. A file that has that
 * name stays as it is until commit, and readers that hold it keep their old bytes. A symbolic link
 * is followed: its target is replaced. Permissions are those of the replaced file, else 0666 less
 * the umask. Errors (here and below): ATTN_ERR_IO with path and reason, ATTN_ERR_OUT_OF_MEMORY; on
 * an error *out is NULL.
 */
attn_status attn_atomic_file_create(const char *path, attn_atomic_file **out, char *error,
                                    size_t error_size);

/* Appends after the bytes that the last _write call wrote. */
attn_status attn_atomic_file_write(attn_atomic_file *file, const void *bytes, size_t size,
                                   char *error, size_t error_size);

/* Writes at a byte offset (the file grows as needed; bytes never written read as 0). _write is not
 * moved by it. */
attn_status attn_atomic_file_write_at(attn_atomic_file *file, uint64_t offset, const void *bytes,
                                      size_t size, char *error, size_t error_size);

/* Syncs the bytes to the disk, gives the file its name, syncs the directory, and frees the object.
 * On an error nothing is left behind and the old file stays (except when only the last sync failed:
 * then the new file is in place). */
attn_status attn_atomic_file_commit(attn_atomic_file *file, char *error, size_t error_size);

/* Gives up: removes what was written and frees the object. NULL is fine. */
void attn_atomic_file_abort(attn_atomic_file *file);

/* All of the above for bytes that are in memory. */
attn_status attn_atomic_file_save(const char *path, const void *bytes, size_t size, char *error,
                                  size_t error_size);

#endif
