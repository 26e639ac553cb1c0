/* safetensors.h - reading safetensors files: one, or a set of shards with its index; every byte
 * checked before use.
 *
 *     attn_safetensors *st;
 *     char error[512];
 *     if (attn_safetensors_open("model-directory", &st, error, sizeof error) != ATTN_OK) ...
 *     const attn_st_tensor *t = attn_safetensors_find(st, "model.embed_tokens.weight");
 *     attn_st_read_f32(t, 0, t->elements, weights, error, sizeof error);
 *     attn_safetensors_close(st);
 *
 * The format: 8 bytes little-endian length of the header, the header (a JSON object), the data.
 * What is refused, with the field named: a header length past the file or above 100,000,000; a
 * header that does not begin with '{', is not UTF-8 or JSON, nests deeper than 64 or names a key
 * twice; an entry without dtype, shape or data_offsets, or with others than those of the format;
 * sizes that overflow; offsets that do not match shape and dtype, leave a hole, share bytes or
 * leave bytes at the end that belong to no tensor; a __metadata__ that is not an object of strings.
 * Tensors need not be aligned or in order, may have no elements (an axis of 0) and no axes (a
 * scalar).
 *
 * Everything returned is borrowed from the attn_safetensors. Threads: immutable after open.
 * Statuses: ATTN_ERR_IO, ATTN_ERR_FORMAT, ATTN_ERR_OUT_OF_MEMORY; ATTN_ERR_UNSUPPORTED and
 * ATTN_ERR_INVALID_ARGUMENT from reading. Source: the format description of the safetensors
 * project.
 */
#ifndef ATTN_IO_SAFETENSORS_H
#define ATTN_IO_SAFETENSORS_H

#include "io/mapped_file.h"
#include "io/safetensors_dtype.h"

typedef struct attn_safetensors attn_safetensors;

typedef struct attn_st_tensor {
    const char *name; /* UTF-8, ended by 0, without a 0 inside; may hold control characters: see
                         attn_io_printable */
    attn_st_dtype dtype;
    int32_t n_dims;
    const int64_t *shape; /* n_dims extents >= 0, outermost first; the last runs fastest */
    int64_t elements;     /* product of shape; 1 for a scalar */
    const uint8_t *data;  /* `bytes` bytes, at any alignment */
    size_t bytes;
} attn_st_tensor;

/**
 * Opens a .safetensors file, a model.safetensors.index.json with the shards beside it, or a
 * directory that holds model.safetensors or that index (the single file wins). Of shards, the
 * tensors that the index names are listed, each from the shard that the index says, and may be in no
 * other; shard names are plain file names. On success *out is owned by the caller: attn_safetensors_close.
 */
attn_status attn_safetensors_open(const char *path, attn_safetensors **out, char *error,
                                  size_t error_size);

/** One file that is mapped already; takes the file over, on an error too. */
attn_status attn_safetensors_parse(attn_mapped_file *file, attn_safetensors **out, char *error,
                                   size_t error_size);

/* attn_mapped_file_release for the bytes of a tensor, whichever shard they are in. */
void attn_safetensors_release(const attn_safetensors *st, const uint8_t *data, size_t bytes);

/* Releases everything borrowed from it. NULL is fine. */
void attn_safetensors_close(attn_safetensors *st);

/* Tensors in the order of the header (of the index, for shards). */
size_t attn_safetensors_count(const attn_safetensors *st);
const attn_st_tensor *attn_safetensors_at(const attn_safetensors *st, size_t index);
/* By name, in logarithmic time; NULL when there is none. */
const attn_st_tensor *attn_safetensors_find(const attn_safetensors *st, const char *name);

/* Bytes of all files together. */
size_t attn_safetensors_file_size(const attn_safetensors *st);

/* The texts of __metadata__ (of the first shard), in header order; NULL when there is none of that
 * key. */
const char *attn_safetensors_metadata(const attn_safetensors *st, const char *key);
size_t attn_safetensors_metadata_count(const attn_safetensors *st);
void attn_safetensors_metadata_at(const attn_safetensors *st, size_t index, const char **key,
                                  const char **text);

/* Elements [first, first + n) of a tensor as numbers (see attn_st_to_f32); n of 0 does nothing. On
 * an error out is untouched. */
attn_status attn_st_read_f32(const attn_st_tensor *tensor, int64_t first, int64_t n, float *out,
                             char *error, size_t error_size);
attn_status attn_st_read_f64(const attn_st_tensor *tensor, int64_t first, int64_t n, double *out,
                             char *error, size_t error_size);

/* An index file without its shards: checks the bytes and gives name and file of each tensor to
 * `each`, in order (texts borrowed for the call; anything but ATTN_OK ends the walk with that
 * status). For _open, and for fuzzing. */
typedef attn_status (*attn_st_index_fn)(void *user, size_t index, const char *tensor,
                                        const char *file);
attn_status attn_safetensors_read_index(const uint8_t *bytes, size_t size, attn_st_index_fn each,
                                        void *user, size_t *count, char *error, size_t error_size);

#endif
