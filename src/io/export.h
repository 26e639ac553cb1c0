/* export.h - writing a set of tensors as one safetensors file, each read piece by piece through a
 * function of the caller, so that memory stays at a few MiB whatever the size of the model. */
#ifndef ATTN_IO_EXPORT_H
#define ATTN_IO_EXPORT_H

#include <jansson.h>
#include <stdbool.h>
#include "io/safetensors_dtype.h"

/* Gives rows [first_row, first_row + n_rows) of the tensor as f32, row after row. A tensor of n
 * axes has as many rows as the product of all but the last; a row is as long as the last axis. A
 * scalar is one row of one. */
typedef attn_status (*attn_export_read)(void *user, int64_t first_row, int64_t n_rows, float *out,
                                        char *error, size_t error_size);

typedef struct attn_export_tensor {
    const char *name;
    attn_st_dtype dtype; /* F32, BF16, F16: rounded to nearest even from what `read` gives */
    int32_t n_dims;
    const int64_t *shape; /* n_dims extents, outermost first */
    attn_export_read read;
    void *user;        /* given to read */
    const void *bytes; /* not NULL: read is not called, these bytes are copied; then any dtype */
} attn_export_tensor;

/* Told how many of how many elements are written; anything but 0 stops with ATTN_ERR_CANCELLED. */
typedef int (*attn_export_progress)(void *user, int64_t done, int64_t total);

/**
 * Writes tensors[n] to `path` (through a temporary file: it is there whole or not at all), with the
 * metadata "format": "pt" that Transformers asks for.
 *
 * *overflows (may be NULL) counts finite numbers that became infinite in a 16-bit type. progress
 * may be NULL. Errors: those of safetensors_write.h, those of read, ATTN_ERR_CANCELLED.
 */
attn_status attn_export_safetensors(const char *path, const attn_export_tensor *tensors, size_t n,
                                    attn_export_progress progress, void *progress_user,
                                    uint64_t *overflows, char *error, size_t error_size);

/* Copies a file through a temporary one. ATTN_ERR_IO. */
attn_status attn_export_copy(const char *from, const char *to, char *error, size_t error_size);

/* Writes JSON with an indent of 2 and a newline at the end. Takes no reference. */
attn_status attn_export_json(const char *path, const json_t *json, char *error, size_t error_size);

#endif
