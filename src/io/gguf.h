/* gguf.h - GGUF files, versions 2 and 3: metadata and tensors of a mapped file, every byte checked
 * before use.
 *
 *     attn_gguf *gguf;
 *     char error[256];
 *     if (attn_gguf_open("model.gguf", &gguf, error, sizeof error) != ATTN_OK) ...   error names
 * field and value attn_gguf_get_u64(gguf, "llama.block_count", &n_layers, error, sizeof error);
 *     const attn_gguf_tensor *t = attn_gguf_find_tensor(gguf, "blk.0.attn_q.weight");
 *     attn_dequant(t->type, t->data, t->bytes, 0, t->elements, weights, error, sizeof error);
 *     attn_gguf_close(gguf);
 *
 * What is refused at open, with the field named: wrong magic, version other than 2 or 3, big-endian
 * files, counts and lengths that the rest of the file cannot hold, unknown value and tensor types,
 * a bool other than 0 or 1, empty or duplicate keys and tensor names, more than 4 axes, an axis of
 * 0, a row that is not whole blocks, sizes that overflow, a general.alignment that is not a uint32
 * and a multiple of 8, offsets off that alignment, tensors that end past the file or share bytes.
 * Memory used is at most a small multiple of the file.
 *
 * Everything returned is borrowed from the attn_gguf, except the arrays of the ..._array functions.
 * Threads: immutable after open, so any number may read. Statuses: ATTN_ERR_IO, ATTN_ERR_FORMAT (a
 * missing key or one of another type too), ATTN_ERR_OUT_OF_MEMORY. Source: the GGUF specification
 * (ggml, docs/gguf.md).
 */
#ifndef ATTN_IO_GGUF_H
#define ATTN_IO_GGUF_H

#include <stdbool.h>
#include <stdint.h>
#include "attn/attn.h"
#include "io/ggml_type.h"
#include "io/mapped_file.h"

typedef struct attn_gguf attn_gguf;

/* Types of metadata values, numbered as in the file. */
enum {
    ATTN_GGUF_U8 = 0,
    ATTN_GGUF_I8 = 1,
    ATTN_GGUF_U16 = 2,
    ATTN_GGUF_I16 = 3,
    ATTN_GGUF_U32 = 4,
    ATTN_GGUF_I32 = 5,
    ATTN_GGUF_F32 = 6,
    ATTN_GGUF_BOOL = 7,
    ATTN_GGUF_STRING = 8,
    ATTN_GGUF_ARRAY = 9,
    ATTN_GGUF_U64 = 10,
    ATTN_GGUF_I64 = 11,
    ATTN_GGUF_F64 = 12
};

typedef struct attn_gguf_string {
    const char *text; /* length bytes; not ended by 0, and not checked to be UTF-8 */
    size_t length;
} attn_gguf_string;

typedef struct attn_gguf_value {
    const char *key;       /* ended by 0, printable ASCII */
    uint32_t type;         /* ATTN_GGUF_* */
    uint32_t element_type; /* of an array; else equal to type */
    uint64_t count;        /* elements of an array; else 1 */
    const uint8_t *data;   /* private: the first element in the file */
    size_t bytes;          /* private: of all elements */
} attn_gguf_value;

typedef struct attn_gguf_tensor {
    const char *name;    /* ended by 0, UTF-8 without control characters, at most 64 bytes */
    uint32_t type;       /* ATTN_GGML_*: always one that attn_ggml_type knows, not always one that
                            attn_dequant reads */
    int32_t n_dims;      /* 0 to 4 */
    int64_t shape[4];    /* shape[0] runs fastest (the length of a row); axes past n_dims are 1 */
    int64_t elements;    /* product of shape */
    uint64_t offset;     /* in the data section */
    const uint8_t *data; /* bytes of data in the mapped file, aligned to 8 at least */
    size_t bytes;
} attn_gguf_tensor;

/** Maps and checks the file. On success *out is owned by the caller: attn_gguf_close. */
attn_status attn_gguf_open(const char *path, attn_gguf **out, char *error, size_t error_size);

/** The same for a file that is mapped already; takes the file over, on an error too. */
attn_status attn_gguf_parse(attn_mapped_file *file, attn_gguf **out, char *error,
                            size_t error_size);

/* attn_mapped_file_release for the bytes of a tensor. */
void attn_gguf_release(const attn_gguf *gguf, const uint8_t *data, size_t bytes);

/* Releases everything borrowed from gguf. NULL is fine. */
void attn_gguf_close(attn_gguf *gguf);

uint32_t attn_gguf_version(const attn_gguf *gguf);
uint32_t attn_gguf_alignment(const attn_gguf *gguf);
size_t attn_gguf_file_size(const attn_gguf *gguf);
const char *attn_gguf_type_name(uint32_t value_type); /* "uint32"; "unknown" */

/* Values and tensors in file order, 0 <= index < count. */
size_t attn_gguf_value_count(const attn_gguf *gguf);
const attn_gguf_value *attn_gguf_value_at(const attn_gguf *gguf, size_t index);
size_t attn_gguf_tensor_count(const attn_gguf *gguf);
const attn_gguf_tensor *attn_gguf_tensor_at(const attn_gguf *gguf, size_t index);

/* By name, in logarithmic time; NULL when there is none. */
const attn_gguf_value *attn_gguf_find(const attn_gguf *gguf, const char *key);
const attn_gguf_tensor *attn_gguf_find_tensor(const attn_gguf *gguf, const char *name);

/* One value by key. The value must be there (use attn_gguf_find for optional ones) and of the kind
 * asked for: u64 and i64 take every integer type within range, f64 takes floats and integers, and
 * bool takes bool only. On an error *out is untouched. */
attn_status attn_gguf_get_u64(const attn_gguf *gguf, const char *key, uint64_t *out, char *error,
                              size_t error_size);
attn_status attn_gguf_get_i64(const attn_gguf *gguf, const char *key, int64_t *out, char *error,
                              size_t error_size);
attn_status attn_gguf_get_f64(const attn_gguf *gguf, const char *key, double *out, char *error,
                              size_t error_size);
attn_status attn_gguf_get_bool(const attn_gguf *gguf, const char *key, bool *out, char *error,
                               size_t error_size);
attn_status attn_gguf_get_string(const attn_gguf *gguf, const char *key, attn_gguf_string *out,
                                 char *error, size_t error_size);

/* Arrays by key, converted one by one under the same rules (a bool counts as 0 or 1 in i64). A
 * scalar is taken as an array of one. *out is allocated with malloc (free it; not NULL for an empty
 * array); the texts of strings are borrowed from gguf. Arrays of arrays are checked at open but
 * cannot be fetched. */
attn_status attn_gguf_get_i64_array(const attn_gguf *gguf, const char *key, int64_t **out,
                                    size_t *count, char *error, size_t error_size);
attn_status attn_gguf_get_f64_array(const attn_gguf *gguf, const char *key, double **out,
                                    size_t *count, char *error, size_t error_size);
attn_status attn_gguf_get_string_array(const attn_gguf *gguf, const char *key,
                                       attn_gguf_string **out, size_t *count, char *error,
                                       size_t error_size);

#endif
