/* safetensors_write.c - the writer behind safetensors_write.h. */
#include "io/safetensors_write.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/half.h"
#include "io/atomic_file.h"
#include "io/bytes.h"
#include "io/io_error.h"
#include "io/json.h"

#define MAX_HEADER 100000000u
#define SHOWN      160
#define CHUNK      16384 /* numbers converted at a time: 32 KiB of 16-bit output, within L1 */

typedef struct out_tensor {
    attn_st_dtype dtype;
    uint64_t bytes, offset, written; /* offset in the data section */
    const char *name;                /* the key in entries */
    json_t *entry;                   /* borrowed from entries */
} out_tensor;

struct attn_st_writer {
    json_t *metadata,
        *entries; /* entries: name to {dtype, shape, data_offsets}, in the order of _add */
    out_tensor *tensors;
    size_t n_tensors, room;
    attn_atomic_file *file;
    uint64_t data_start, overflows;
    bool begun, failed;
};

static attn_status no_memory(attn_st_writer *w, char *error, size_t error_size)
{
    if (w)
        w->failed = true;
    return attn_io_no_memory(error, error_size, "writing safetensors");
}

#define REFUSE(w, ...)                                                                             \
    ((w)->failed = true,                                                                           \
     (void)attn_io_fail(error, error_size, ATTN_ERR_INVALID_ARGUMENT, __VA_ARGS__),                \
     ATTN_ERR_INVALID_ARGUMENT)

attn_status attn_st_writer_create(attn_st_writer **out, char *error, size_t error_size)
{
    *out = NULL;
    attn_st_writer *w = calloc(1, sizeof *w);
    if (!w)
        return no_memory(NULL, error, error_size);
    w->metadata = json_object();
    w->entries = json_object();
    if (!w->metadata || !w->entries) {
        attn_st_writer_destroy(w);
        return no_memory(NULL, error, error_size);
    }
    *out = w;
    return ATTN_OK;
}

attn_status attn_st_writer_metadata(attn_st_writer *w, const char *key, const char *text,
                                    char *error, size_t error_size)
{
    char shown[SHOWN];
    if (w->begun || w->failed)
        return REFUSE(w, "metadata must be given before the file is begun");
    if (!attn_utf8_valid(key, strlen(key)) || !attn_utf8_valid(text, strlen(text)))
        return REFUSE(w, "metadata '%s': is not UTF-8",
                      attn_io_printable(key, strlen(key), shown, sizeof shown));
    if (json_object_set_new(w->metadata, key, json_string(text)))
        return no_memory(w, error, error_size);
    return ATTN_OK;
}

/* Bytes of a tensor; false when shape and type have no such number. */
static bool tensor_bytes(attn_st_dtype dtype, int32_t n_dims, const int64_t *shape, uint64_t *bytes)
{
    uint64_t bits = attn_st_dtype_bits(dtype);
    for (int32_t d = 0; d < n_dims; d++)
        if (shape[d] < 0 || !attn_mul_u64(bits, (uint64_t)shape[d], &bits))
            return false;
    *bytes = bits / 8;
    return bits % 8 == 0 && attn_st_dtype_bits(dtype) != 0;
}

static json_t *shape_json(int32_t n_dims, const int64_t *shape)
{
    json_t *array = json_array();
    for (int32_t d = 0; array && d < n_dims; d++)
        if (json_array_append_new(array, json_integer(shape[d]))) {
            json_decref(array);
            array = NULL;
        }
    return array;
}

attn_status attn_st_writer_add(attn_st_writer *w, const char *name, attn_st_dtype dtype,
                               int32_t n_dims, const int64_t *shape, size_t *index, char *error,
                               size_t error_size)
{
    char shown[SHOWN];
    uint64_t bytes;
    attn_io_printable(name, strlen(name), shown, sizeof shown);
    if (w->begun || w->failed)
        return REFUSE(w, "tensor '%s': must be added before the file is begun", shown);
    if (!name[0] || !strcmp(name, "__metadata__") || !attn_utf8_valid(name, strlen(name)))
        return REFUSE(w, "tensor '%s': is not a name that a file can hold", shown);
    if (json_object_get(w->entries, name))
        return REFUSE(w, "tensor '%s': is there twice", shown);
    if (!tensor_bytes(dtype, n_dims, shape, &bytes))
        return REFUSE(w, "tensor '%s': shape and dtype %s make no valid size", shown,
                      attn_st_dtype_name(dtype));
    if (w->n_tensors == w->room) {
        size_t room = w->room ? 2 * w->room : 64;
        out_tensor *larger = realloc(w->tensors, room * sizeof *larger);
        if (!larger)
            return no_memory(w, error, error_size);
        w->tensors = larger;
        w->room = room;
    }
    json_t *entry = json_pack("{s:s, s:o, s:[]}", "dtype", attn_st_dtype_name(dtype), "shape",
                              shape_json(n_dims, shape), "data_offsets");
    if (!entry || json_object_set_new(w->entries, name, entry))
        return no_memory(w, error, error_size);
    void *at = json_object_iter_at(w->entries, name);
    w->tensors[w->n_tensors] = (out_tensor){
        .dtype = dtype, .bytes = bytes, .name = json_object_iter_key(at), .entry = entry};
    *index = w->n_tensors++;
    return ATTN_OK;
}

/* Gives every tensor its place: types of 64 bits first, then 32, 16, and 8 or fewer. False on
 * overflow or no memory. */
static bool lay_out(attn_st_writer *w)
{
    static const uint32_t widest[] = {64, 32, 16, 8};
    uint64_t next = 0;
    for (size_t pass = 0; pass < 4; pass++) {
        uint32_t below = pass < 3 ? widest[pass + 1] : 0;
        for (size_t i = 0; i < w->n_tensors; i++) {
            out_tensor *tensor = &w->tensors[i];
            uint32_t bits = attn_st_dtype_bits(tensor->dtype);
            if (bits > widest[pass] || bits <= below)
                continue;
            tensor->offset = next;
            if (!attn_add_u64(next, tensor->bytes, &next) || next > INT64_MAX)
                return false;
            json_t *offsets = json_object_get(tensor->entry, "data_offsets");
            if (json_array_append_new(offsets, json_integer((json_int_t)tensor->offset)) ||
                json_array_append_new(offsets, json_integer((json_int_t)next)))
                return false;
        }
    }
    return true;
}

/* The header as text (free it), __metadata__ first when there is any; padded so that 8 + length
 * divides by 8. */
static char *header_text(const attn_st_writer *w, size_t *length)
{
    json_t *header = json_object();
    char *padded = NULL, *text = NULL;
    size_t used = 0;
    if (header &&
        (!json_object_size(w->metadata) || !json_object_set(header, "__metadata__", w->metadata)) &&
        !json_object_update(header, w->entries))
        text = attn_json_text(header, JSON_COMPACT, &used);
    json_decref(header);
    if (text) {
        *length = (used + 7) / 8 * 8;
        padded = malloc(*length + 1);
        if (padded) {
            memset(padded, ' ', *length);
            memcpy(padded, text, used);
        }
    }
    free(text);
    return padded;
}

attn_status attn_st_writer_begin(attn_st_writer *w, const char *path, char *error,
                                 size_t error_size)
{
    if (w->begun || w->failed)
        return REFUSE(w, "%s: the writer is in use or has failed", path);
    w->begun = true;
    size_t length = 0;
    char *text = lay_out(w) ? header_text(w, &length) : NULL;
    if (!text)
        return no_memory(w, error, error_size);
    if (length > MAX_HEADER) {
        free(text);
        return REFUSE(w, "%s: a header of %zu bytes is more than the format allows", path, length);
    }
    uint8_t prefix[8];
    attn_write_u64(prefix, length);
    w->data_start = 8 + length;
    attn_status status = attn_atomic_file_create(path, &w->file, error, error_size);
    if (status == ATTN_OK)
        status = attn_atomic_file_write(w->file, prefix, sizeof prefix, error, error_size);
    if (status == ATTN_OK)
        status = attn_atomic_file_write(w->file, text, length, error, error_size);
    free(text);
    w->failed = status != ATTN_OK;
    return status;
}

/* Checks that `size` more bytes fit tensor `index`. */
static attn_status check_put(attn_st_writer *w, size_t index, uint64_t size, char *error,
                             size_t error_size)
{
    char shown[SHOWN];
    if (!w->file || w->failed)
        return REFUSE(w, "tensor %zu: the file is not begun or has failed", index);
    if (index >= w->n_tensors)
        return REFUSE(w, "tensor %zu: there are %zu", index, w->n_tensors);
    const out_tensor *tensor = &w->tensors[index];
    if (size > tensor->bytes - tensor->written)
        return REFUSE(w, "tensor '%s': %llu bytes more are too many, %llu are missing",
                      attn_io_printable(tensor->name, strlen(tensor->name), shown, sizeof shown),
                      (unsigned long long)size,
                      (unsigned long long)(tensor->bytes - tensor->written));
    return ATTN_OK;
}

attn_status attn_st_writer_put_bytes(attn_st_writer *w, size_t index, const void *bytes,
                                     size_t size, char *error, size_t error_size)
{
    attn_status status = check_put(w, index, size, error, error_size);
    if (status != ATTN_OK)
        return status;
    out_tensor *tensor = &w->tensors[index];
    status = attn_atomic_file_write_at(w->file, w->data_start + tensor->offset + tensor->written,
                                       bytes, size, error, error_size);
    tensor->written += size;
    w->failed = status != ATTN_OK;
    return status;
}

/* n <= CHUNK numbers to little-endian bytes of dtype; counts finite numbers that became infinite.
 */
static void convert(attn_st_dtype dtype, const float *numbers, size_t n, uint8_t *out,
                    uint64_t *overflows)
{
    for (size_t i = 0; i < n; i++) {
        if (dtype == ATTN_ST_F32) {
            attn_write_u32(out + 4 * i, attn_f32_bits(numbers[i]));
            continue;
        }
        bool bf16 = dtype == ATTN_ST_BF16;
        uint16_t half = bf16 ? attn_f32_to_bf16(numbers[i]) : attn_f32_to_f16(numbers[i]);
        attn_write_u16(out + 2 * i, half);
        *overflows += (half & 0x7fff) == (bf16 ? 0x7f80 : 0x7c00) && !isinf(numbers[i]);
    }
}

attn_status attn_st_writer_put_f32(attn_st_writer *w, size_t index, const float *numbers, int64_t n,
                                   char *error, size_t error_size)
{
    uint64_t bytes;
    attn_status status = check_put(w, index, 0, error, error_size);
    if (status != ATTN_OK)
        return status;
    attn_st_dtype dtype = w->tensors[index].dtype;
    if (dtype != ATTN_ST_F32 && dtype != ATTN_ST_BF16 && dtype != ATTN_ST_F16) {
        w->failed = true;
        return attn_io_fail(error, error_size, ATTN_ERR_UNSUPPORTED,
                            "tensor %zu: numbers are written as F32, BF16 or F16, not as %s", index,
                            attn_st_dtype_name(dtype));
    }
    if (n < 0 || !attn_mul_u64((uint64_t)n, attn_st_dtype_bits(dtype) / 8, &bytes))
        return REFUSE(w, "tensor %zu: %lld numbers", index, (long long)n);
    status = check_put(w, index, bytes, error, error_size);
    uint8_t chunk[4 * CHUNK];
    while (status == ATTN_OK && n > 0) {
        size_t piece = n < CHUNK ? (size_t)n : CHUNK;
        convert(dtype, numbers, piece, chunk, &w->overflows);
        status = attn_st_writer_put_bytes(w, index, chunk, piece * (attn_st_dtype_bits(dtype) / 8),
                                          error, error_size);
        numbers += piece;
        n -= (int64_t)piece;
    }
    return status;
}

uint64_t attn_st_writer_overflows(const attn_st_writer *w)
{
    return w->overflows;
}

attn_status attn_st_writer_finish(attn_st_writer *w, char *error, size_t error_size)
{
    char shown[SHOWN];
    if (!w->file || w->failed)
        return REFUSE(w, "the file is not begun or has failed");
    for (size_t i = 0; i < w->n_tensors; i++) {
        const out_tensor *tensor = &w->tensors[i];
        if (tensor->written != tensor->bytes)
            return REFUSE(
                w, "tensor '%s': %llu of %llu bytes were written",
                attn_io_printable(tensor->name, strlen(tensor->name), shown, sizeof shown),
                (unsigned long long)tensor->written, (unsigned long long)tensor->bytes);
    }
    attn_atomic_file *file = w->file;
    w->file = NULL;
    w->failed = true; /* nothing can follow */
    return attn_atomic_file_commit(file, error, error_size);
}

void attn_st_writer_destroy(attn_st_writer *w)
{
    if (!w)
        return;
    attn_atomic_file_abort(w->file);
    json_decref(w->metadata);
    json_decref(w->entries);
    free(w->tensors);
    free(w);
}
