/* safetensors_parse.c - one safetensors file: from bytes to a checked list of tensors. */
#include "io/safetensors_internal.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "io/bytes.h"
#include "io/io_error.h"
#include "io/json.h"

#define MAX_HEADER 100000000u /* bytes, by the format */
#define SHOWN      160        /* bytes of a name in an error text */

typedef struct parse {
    attn_safetensors *st;
    const uint8_t *data; /* the data section */
    uint64_t data_bytes;
    char *error;
    size_t error_size;
} parse;

/* The constant at the end tells the compiler that this is never ATTN_OK. */
#define FAIL(p, ...)                                                                               \
    ((void)attn_io_fail((p)->error, (p)->error_size, ATTN_ERR_FORMAT, __VA_ARGS__), ATTN_ERR_FORMAT)

static attn_status parse_header(parse *p, const attn_mapped_file *file)
{
    char text[256] = "";
    if (file->size < 8)
        return FAIL(p, "header length: needs 8 bytes, the file has %zu", file->size);
    uint64_t length = attn_read_u64(file->data);
    if (length > MAX_HEADER)
        return FAIL(p, "header length: %llu is more than the %u that the format allows",
                    (unsigned long long)length, MAX_HEADER);
    if (length > file->size - 8)
        return FAIL(p, "header length: %llu, but the file has %zu bytes left",
                    (unsigned long long)length, file->size - 8);
    const char *header = (const char *)file->data + 8;
    if (length == 0 || header[0] != '{')
        return FAIL(p, "header: does not begin with '{'");
    p->data = file->data + 8 + length;
    p->data_bytes = file->size - 8 - length;
    p->st->header = attn_json_parse(header, (size_t)length, text, sizeof text);
    if (!p->st->header)
        return FAIL(p, "header: %s", text);
    if (!json_is_object(p->st->header))
        return FAIL(p, "header: is not an object");
    return ATTN_OK;
}

static attn_status parse_metadata(parse *p)
{
    json_t *metadata = json_object_get(p->st->header, "__metadata__");
    char shown[SHOWN];
    const char *key;
    json_t *value;
    size_t count = 0;
    if (!metadata)
        return ATTN_OK;
    if (!json_is_object(metadata))
        return FAIL(p, "__metadata__: is not an object");
    p->st->metadata_keys = calloc(json_object_size(metadata) + 1, sizeof *p->st->metadata_keys);
    if (!p->st->metadata_keys)
        return attn_io_no_memory(p->error, p->error_size, "__metadata__");
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return FAIL(p, "__metadata__: the value of '%s' is not a string",
                        attn_io_printable(key, strlen(key), shown, sizeof shown));
        p->st->metadata_keys[count++] = key;
    }
    return ATTN_OK;
}

/* Reads and multiplies the extents into `room`, which json_array_size(shape) numbers fit. */
static attn_status parse_shape(parse *p, const char *shown, const json_t *shape, int64_t *room,
                               attn_st_tensor *tensor)
{
    uint64_t elements = 1;
    size_t n_dims = json_array_size(shape);
    for (size_t d = 0; d < n_dims; d++) {
        const json_t *extent = json_array_get(shape, d);
        if (!json_is_integer(extent))
            return FAIL(p, "tensor '%s': shape[%zu] is not an integer", shown, d);
        room[d] = json_integer_value(extent);
        if (room[d] < 0)
            return FAIL(p, "tensor '%s': shape[%zu] is %lld", shown, d, (long long)room[d]);
        if (!attn_mul_u64(elements, (uint64_t)room[d], &elements) || elements > INT64_MAX)
            return FAIL(p, "tensor '%s': shape[%zu] of %lld makes more than 2^63 elements", shown,
                        d, (long long)room[d]);
    }
    tensor->shape = room;
    tensor->n_dims = (int32_t)n_dims; /* a header has at most 10^8 bytes */
    tensor->elements = (int64_t)elements;
    return ATTN_OK;
}

/* data_offsets: two integers, begin <= end <= data_bytes, and as many bytes as shape and dtype
 * need. */
static attn_status parse_offsets(parse *p, const char *shown, const json_t *offsets,
                                 attn_st_tensor *tensor)
{
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2)
        return FAIL(p, "tensor '%s': data_offsets has %zu entries, must have 2", shown,
                    json_array_size(offsets));
    if (!json_is_integer(first) || !json_is_integer(last))
        return FAIL(p, "tensor '%s': data_offsets are not integers", shown);
    long long begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin)
        return FAIL(p, "tensor '%s': data_offsets [%lld, %lld] are not in order", shown, begin,
                    end);
    if ((uint64_t)end > p->data_bytes)
        return FAIL(p, "tensor '%s': data_offsets [%lld, %lld] end past the %llu bytes of data",
                    shown, begin, end, (unsigned long long)p->data_bytes);
    uint64_t bits, span = (uint64_t)(end - begin);
    if (!attn_mul_u64((uint64_t)tensor->elements, attn_st_dtype_bits(tensor->dtype), &bits) ||
        bits % 8 || bits / 8 != span)
        return FAIL(p,
                    "tensor '%s': data_offsets [%lld, %lld] span %llu bytes, but its shape of %lld "
                    "elements of %s needs another number",
                    shown, begin, end, (unsigned long long)span, (long long)tensor->elements,
                    attn_st_dtype_name(tensor->dtype));
    tensor->data = p->data + begin;
    tensor->bytes = (size_t)span;
    return ATTN_OK;
}

static attn_status parse_tensor(parse *p, const char *name, const json_t *entry, int64_t *room,
                                attn_st_tensor *tensor)
{
    char shown[SHOWN], shown_dtype[32];
    attn_io_printable(name, strlen(name), shown, sizeof shown);
    if (!json_is_object(entry))
        return FAIL(p, "tensor '%s': is not an object", shown);
    const json_t *dtype = json_object_get(entry, "dtype");
    const json_t *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (!json_is_string(dtype))
        return FAIL(p, "tensor '%s': dtype is missing or not a string", shown);
    if (!json_is_array(shape))
        return FAIL(p, "tensor '%s': shape is missing or not an array", shown);
    if (!json_is_array(offsets))
        return FAIL(p, "tensor '%s': data_offsets is missing or not an array", shown);
    int known = attn_st_dtype_from_name(json_string_value(dtype));
    if (known < 0)
        return FAIL(p, "tensor '%s': dtype '%s' does not exist", shown,
                    attn_io_printable(json_string_value(dtype), json_string_length(dtype),
                                      shown_dtype, sizeof shown_dtype));
    tensor->name = name;
    tensor->dtype = (attn_st_dtype)known;
    attn_status status = parse_shape(p, shown, shape, room, tensor);
    return status == ATTN_OK ? parse_offsets(p, shown, offsets, tensor) : status;
}

static int compare_data(const void *a, const void *b)
{
    const attn_st_tensor *x = *(attn_st_tensor *const *)a, *y = *(attn_st_tensor *const *)b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* In the order of their offsets the tensors follow each other without a hole, from the first byte
 * to the last. */
static attn_status check_coverage(parse *p)
{
    attn_safetensors *st = p->st;
    char shown[SHOWN];
    const uint8_t *next = p->data;
    memcpy(st->by_name, st->in_order, st->n_tensors * sizeof *st->by_name);
    qsort(st->by_name, st->n_tensors, sizeof *st->by_name, compare_data);
    for (size_t i = 0; i < st->n_tensors; i++) {
        const attn_st_tensor *tensor = st->by_name[i];
        if (tensor->data != next)
            return FAIL(
                p, "tensor '%s': data_offsets begin at %zu, but the tensors before end at %zu: %s",
                attn_io_printable(tensor->name, strlen(tensor->name), shown, sizeof shown),
                (size_t)(tensor->data - p->data), (size_t)(next - p->data),
                tensor->data > next ? "a hole" : "they share bytes");
        next = tensor->data + tensor->bytes;
    }
    if ((uint64_t)(next - p->data) != p->data_bytes)
        return FAIL(p, "data_offsets: the tensors end at %zu, but there are %llu bytes of data",
                    (size_t)(next - p->data), (unsigned long long)p->data_bytes);
    return ATTN_OK;
}

/* Extents of all tensors together, and how many tensors there are. */
static size_t count_tensors(const json_t *header, size_t *n_extents)
{
    const char *key;
    json_t *entry;
    size_t count = 0;
    *n_extents = 0;
    json_object_foreach((json_t *)(uintptr_t)header, key, entry)
    {
        if (strcmp(key, "__metadata__")) {
            count++;
            *n_extents +=
                json_array_size(json_object_get(entry, "shape")); /* 0 for what is no array */
        }
    }
    return count;
}

static attn_status parse_tensors(parse *p)
{
    attn_safetensors *st = p->st;
    const char *key;
    json_t *entry;
    size_t n_extents, count = count_tensors(st->header, &n_extents);
    st->tensors = calloc(count + 1, sizeof *st->tensors);
    st->in_order = calloc(count + 1, sizeof *st->in_order);
    st->by_name = calloc(count + 1, sizeof *st->by_name);
    st->extents = calloc(n_extents + 1, sizeof *st->extents);
    if (!st->tensors || !st->in_order || !st->by_name || !st->extents)
        return attn_io_no_memory(p->error, p->error_size, "tensors");
    int64_t *room = st->extents;
    json_object_foreach(st->header, key, entry)
    {
        if (!strcmp(key, "__metadata__"))
            continue;
        attn_st_tensor *tensor = &st->tensors[st->n_tensors];
        attn_status status = parse_tensor(p, key, entry, room, tensor);
        if (status != ATTN_OK)
            return status;
        room += tensor->n_dims;
        st->in_order[st->n_tensors++] = tensor;
    }
    return check_coverage(p);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(attn_st_tensor *const *)a)->name, (*(attn_st_tensor *const *)b)->name);
}

void attn_safetensors_sort(attn_safetensors *st)
{
    memcpy(st->by_name, st->in_order, st->n_tensors * sizeof *st->by_name);
    qsort(st->by_name, st->n_tensors, sizeof *st->by_name, compare_names);
}

attn_status attn_safetensors_parse(attn_mapped_file *file, attn_safetensors **out, char *error,
                                   size_t error_size)
{
    *out = NULL;
    attn_safetensors *st = calloc(1, sizeof *st);
    if (!st) {
        attn_mapped_file_close(file);
        return attn_io_no_memory(error, error_size, "a safetensors file");
    }
    st->file = file;
    char text[512] = "";
    parse p = {.st = st, .error = text, .error_size = sizeof text};
    attn_status status = parse_header(&p, file);
    if (status == ATTN_OK)
        status = parse_metadata(&p);
    if (status == ATTN_OK)
        status = parse_tensors(&p);
    if (status != ATTN_OK) {
        attn_io_fail(error, error_size, status, "%s: %s", file->name, text);
        attn_safetensors_close(st);
        return status;
    }
    attn_safetensors_sort(st);
    *out = st;
    return ATTN_OK;
}
