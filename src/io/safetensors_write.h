/* safetensors_write.h - writing a safetensors file: declare tensors, begin, write their numbers,
 * finish.
 *
 *     attn_st_writer *w;
 *     attn_st_writer_create(&w, error, sizeof error);
 *     attn_st_writer_metadata(w, "format", "pt", error, sizeof error);          (Transformers asks
 * for it) attn_st_writer_add(w, "a.weight", ATTN_ST_BF16, 2, shape, &index, error, sizeof error);
 *     attn_st_writer_begin(w, "model.safetensors", error, sizeof error);
 *     attn_st_writer_put_f32(w, index, numbers, n, error, sizeof error);        (any number of
 * times) attn_st_writer_finish(w, error, sizeof error); attn_st_writer_destroy(w);
 *
 * Memory does not depend on the size of the data. The data section starts at a multiple of 8 bytes
 * and holds wider types first, so that every tensor is aligned to its element. The file appears
 * under its name only when it is whole (atomic_file.h). Threads: one call at a time per writer.
 * Statuses: ATTN_ERR_INVALID_ARGUMENT (a name that is empty, twice there, "__metadata__" or not
 * UTF-8; calls out of order; too many or too few numbers), ATTN_ERR_UNSUPPORTED, ATTN_ERR_IO,
 * ATTN_ERR_OUT_OF_MEMORY. After an error the writer can only be destroyed.
 */
#ifndef ATTN_IO_SAFETENSORS_WRITE_H
#define ATTN_IO_SAFETENSORS_WRITE_H

#include <stddef.h>
#include <stdint.h>
#include "attn/attn.h"
#include "io/safetensors_dtype.h"

typedef struct attn_st_writer attn_st_writer;

attn_status attn_st_writer_create(attn_st_writer **out, char *error, size_t error_size);

/* Before _begin: one text of __metadata__ (copied). A key given again takes the new text. */
attn_status attn_st_writer_metadata(attn_st_writer *w, const char *key, const char *text,
                                    char *error, size_t error_size);

/* Before _begin: a tensor (name and shape copied; n_dims of 0 is a scalar). *index names it in _put
 * calls. */
attn_status attn_st_writer_add(attn_st_writer *w, const char *name, attn_st_dtype dtype,
                               int32_t n_dims, const int64_t *shape, size_t *index, char *error,
                               size_t error_size);

/* Lays the file out and writes its header. */
attn_status attn_st_writer_begin(attn_st_writer *w, const char *path, char *error,
                                 size_t error_size);

/* The next n numbers of a tensor of type F32, BF16 or F16, rounded to nearest even. Tensors may be
 * written in any order, also in turns. */
attn_status attn_st_writer_put_f32(attn_st_writer *w, size_t index, const float *numbers, int64_t n,
                                   char *error, size_t error_size);

/* The next `size` bytes of a tensor of any type, as they are. */
attn_status attn_st_writer_put_bytes(attn_st_writer *w, size_t index, const void *bytes,
                                     size_t size, char *error, size_t error_size);

/* Finite numbers that became infinite in a 16-bit type so far: worth a warning. */
uint64_t attn_st_writer_overflows(const attn_st_writer *w);

/* Checks that every tensor is whole and gives the file its name. */
attn_status attn_st_writer_finish(attn_st_writer *w, char *error, size_t error_size);

/* Frees the writer; what was not finished is removed. NULL is fine. */
void attn_st_writer_destroy(attn_st_writer *w);

#endif
