/* gguf_parse.c - from the bytes of a GGUF file to a checked list of values and tensors.
 *
 * The way of a byte: a cursor walks header, values and tensor infos once; `take` is the only place
 * that moves it, and it refuses to pass the end. Then names are sorted (duplicates), and tensors
 * are sorted by offset (overlaps).
 */
#include "io/gguf_internal.h"

#include <stdlib.h>
#include <string.h>

#include "io/bytes.h"
#include "io/io_error.h"

#define GGUF_MAX_DIMS          4
#define GGUF_MAX_NAME          64    /* bytes of a tensor name, by the specification */
#define GGUF_MAX_KEY           65535 /* bytes of a key, by the specification */
#define GGUF_MAX_ARRAY_DEPTH   8     /* arrays of arrays: no known file nests deeper than 1 */
#define GGUF_DEFAULT_ALIGNMENT 32
#define SHOWN                  96 /* bytes of a name in an error text */

typedef struct cursor {
    const uint8_t *data;
    size_t size, at;
    char *error;
    size_t error_size;
} cursor;

/* The constant at the end tells the compiler that this is never ATTN_OK. */
#define FAIL(c, ...)                                                                               \
    ((void)attn_io_fail((c)->error, (c)->error_size, ATTN_ERR_FORMAT, __VA_ARGS__), ATTN_ERR_FORMAT)
#define TRY(expression)                                                                            \
    do {                                                                                           \
        attn_status try_status = (expression);                                                     \
        if (try_status != ATTN_OK)                                                                 \
            return try_status;                                                                     \
    } while (0)

/* Moves over `bytes` bytes of `what`; *p is where they start. */
static attn_status take(cursor *c, uint64_t bytes, const char *what, const uint8_t **p)
{
    if (bytes > c->size - c->at)
        return FAIL(c, "%s: needs %llu bytes at offset %zu, the file has %zu left", what,
                    (unsigned long long)bytes, c->at, c->size - c->at);
    *p = c->data + c->at;
    c->at += (size_t)bytes;
    return ATTN_OK;
}

static attn_status take_u32(cursor *c, const char *what, uint32_t *out)
{
    const uint8_t *p;
    TRY(take(c, 4, what, &p));
    *out = attn_read_u32(p);
    return ATTN_OK;
}

static attn_status take_u64(cursor *c, const char *what, uint64_t *out)
{
    const uint8_t *p;
    TRY(take(c, 8, what, &p));
    *out = attn_read_u64(p);
    return ATTN_OK;
}

static attn_status take_string(cursor *c, const char *what, attn_gguf_string *out)
{
    uint64_t length;
    const uint8_t *p;
    TRY(take_u64(c, what, &length));
    TRY(take(c, length, what, &p));
    out->text = (const char *)p;
    out->length = (size_t)length;
    return ATTN_OK;
}

/* Makes room for one more element; doubles, so that memory follows what the file really holds, not
 * what it claims. */
static attn_status grow(cursor *c, void **array, size_t used, size_t *room, size_t element,
                        const char *what)
{
    if (used < *room)
        return ATTN_OK;
    size_t wanted = *room ? 2 * *room : 16;
    void *larger = wanted > SIZE_MAX / element ? NULL : realloc(*array, wanted * element);
    if (!larger)
        return attn_io_no_memory(c->error, c->error_size, what);
    *array = larger;
    *room = wanted;
    return ATTN_OK;
}

static attn_status copy_name(cursor *c, attn_gguf_string name, const char *what, const char **out)
{
    char *copy = malloc(name.length + 1);
    if (!copy)
        return attn_io_no_memory(c->error, c->error_size, what);
    memcpy(copy, name.text, name.length);
    copy[name.length] = '\0';
    *out = copy;
    return ATTN_OK;
}

/* ---- Header --------------------------------------------------------------------------------- */

static attn_status parse_header(cursor *c, uint32_t *version, uint64_t *n_tensors,
                                uint64_t *n_values)
{
    const uint8_t *magic;
    if (c->size < 4 || memcmp(c->data, "GGUF", 4))
        return FAIL(c, "magic: not a GGUF file (its first 4 bytes are not \"GGUF\")");
    TRY(take(c, 4, "magic", &magic));
    TRY(take_u32(c, "version", version));
    if (*version != 0 && (*version & 0xffffu) == 0)
        return FAIL(c, "version: 0x%08x is a big-endian file, which is not supported",
                    (unsigned)*version);
    if (*version != 2 && *version != 3)
        return FAIL(c, "version: %u, but only 2 and 3 are supported", (unsigned)*version);
    TRY(take_u64(c, "tensor_count", n_tensors));
    TRY(take_u64(c, "metadata_kv_count", n_values));
    /* the smallest value is an empty key's length, a type and one byte; the smallest tensor has no
     * axes */
    uint64_t left = c->size - c->at;
    if (*n_values > left / (8 + 4 + 1))
        return FAIL(c, "metadata_kv_count: %llu values cannot be in the %llu bytes left",
                    (unsigned long long)*n_values, (unsigned long long)left);
    if (*n_tensors > left / (8 + 4 + 4 + 8))
        return FAIL(c, "tensor_count: %llu tensors cannot be in the %llu bytes left",
                    (unsigned long long)*n_tensors, (unsigned long long)left);
    return ATTN_OK;
}

/* ---- Values --------------------------------------------------------------------------------- */

static attn_status check_bools(cursor *c, const char *key, const uint8_t *p, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (p[i] > 1)
            return FAIL(c, "metadata '%.*s': bool %llu is %u, not 0 or 1", SHOWN, key,
                        (unsigned long long)i, (unsigned)p[i]);
    return ATTN_OK;
}

static attn_status parse_array(cursor *c, const char *key, int depth, uint32_t *element_type,
                               uint64_t *count);

/* Moves over `count` elements of `type`, checking each. */
static attn_status parse_elements(cursor *c, const char *key, uint32_t type, uint64_t count,
                                  int depth)
{
    const uint8_t *p;
    size_t size = attn_gguf_type_size(type);
    if (size) {
        if (count > (c->size - c->at) / size)
            return FAIL(c, "metadata '%.*s': %llu values of %s cannot be in the %zu bytes left",
                        SHOWN, key, (unsigned long long)count, attn_gguf_type_name(type),
                        c->size - c->at);
        TRY(take(c, count * size, key, &p));
        return type == ATTN_GGUF_BOOL ? check_bools(c, key, p, count) : ATTN_OK;
    }
    if (type != ATTN_GGUF_STRING && type != ATTN_GGUF_ARRAY)
        return FAIL(c, "metadata '%.*s': value type %u does not exist", SHOWN, key, (unsigned)type);
    size_t least = type == ATTN_GGUF_STRING ? 8 : 12;
    if (count > (c->size - c->at) / least)
        return FAIL(c, "metadata '%.*s': %llu values of %s cannot be in the %zu bytes left", SHOWN,
                    key, (unsigned long long)count, attn_gguf_type_name(type), c->size - c->at);
    for (uint64_t i = 0; i < count; i++) {
        attn_gguf_string text;
        uint32_t inner_type;
        uint64_t inner_count;
        if (type == ATTN_GGUF_STRING)
            TRY(take_string(c, key, &text));
        else
            TRY(parse_array(c, key, depth + 1, &inner_type, &inner_count));
    }
    return ATTN_OK;
}

static attn_status parse_array(cursor *c, const char *key, int depth, uint32_t *element_type,
                               uint64_t *count)
{
    if (depth > GGUF_MAX_ARRAY_DEPTH)
        return FAIL(c, "metadata '%.*s': arrays nested deeper than %d", SHOWN, key,
                    GGUF_MAX_ARRAY_DEPTH);
    TRY(take_u32(c, key, element_type));
    TRY(take_u64(c, key, count));
    return parse_elements(c, key, *element_type, *count, depth);
}

static attn_status parse_value(cursor *c, size_t index, attn_gguf_value *value)
{
    attn_gguf_string key;
    char shown[SHOWN];
    TRY(take_string(c, "metadata key", &key));
    if (key.length == 0 || key.length > GGUF_MAX_KEY)
        return FAIL(c, "metadata key %zu: %zu bytes long, allowed are 1 to %d", index, key.length,
                    GGUF_MAX_KEY);
    for (size_t i = 0; i < key.length; i++)
        if ((uint8_t)key.text[i] < 0x20 || (uint8_t)key.text[i] > 0x7e)
            return FAIL(c, "metadata key %zu ('%s'): byte %zu is 0x%02x, not printable ASCII",
                        index, attn_io_printable(key.text, key.length, shown, sizeof shown), i,
                        (unsigned)(uint8_t)key.text[i]);
    TRY(copy_name(c, key, "metadata key", &value->key));
    TRY(take_u32(c, value->key, &value->type));
    value->element_type = value->type;
    value->count = 1;
    size_t start = c->at;
    if (value->type == ATTN_GGUF_ARRAY) {
        TRY(parse_array(c, value->key, 1, &value->element_type, &value->count));
        start += 12;
    } else {
        TRY(parse_elements(c, value->key, value->type, 1, 0));
    }
    value->data = c->data + start;
    value->bytes = c->at - start;
    return ATTN_OK;
}

static int compare_values(const void *a, const void *b)
{
    return strcmp((*(attn_gguf_value *const *)a)->key, (*(attn_gguf_value *const *)b)->key);
}

static attn_status parse_values(cursor *c, attn_gguf *gguf, uint64_t count)
{
    size_t room = 0;
    for (uint64_t i = 0; i < count; i++) {
        void *array = gguf->values;
        TRY(grow(c, &array, gguf->n_values, &room, sizeof *gguf->values, "metadata"));
        gguf->values = array;
        attn_gguf_value *value = &gguf->values[gguf->n_values++];
        memset(value, 0, sizeof *value);
        TRY(parse_value(c, (size_t)i, value));
    }
    gguf->values_by_key = malloc((gguf->n_values + 1) * sizeof *gguf->values_by_key);
    if (!gguf->values_by_key)
        return attn_io_no_memory(c->error, c->error_size, "metadata");
    for (size_t i = 0; i < gguf->n_values; i++)
        gguf->values_by_key[i] = &gguf->values[i];
    qsort(gguf->values_by_key, gguf->n_values, sizeof *gguf->values_by_key, compare_values);
    for (size_t i = 1; i < gguf->n_values; i++)
        if (!strcmp(gguf->values_by_key[i - 1]->key, gguf->values_by_key[i]->key))
            return FAIL(c, "metadata '%.*s': the key is there twice", SHOWN,
                        gguf->values_by_key[i]->key);
    return ATTN_OK;
}

static attn_status find_alignment(cursor *c, attn_gguf *gguf)
{
    gguf->alignment = GGUF_DEFAULT_ALIGNMENT;
    const attn_gguf_value *value = attn_gguf_find(gguf, "general.alignment");
    if (!value)
        return ATTN_OK;
    if (value->type != ATTN_GGUF_U32)
        return FAIL(c, "general.alignment: type %s, must be uint32",
                    attn_gguf_type_name(value->type));
    gguf->alignment = attn_read_u32(value->data);
    if (gguf->alignment == 0 || gguf->alignment % 8)
        return FAIL(c, "general.alignment: %u is not a positive multiple of 8",
                    (unsigned)gguf->alignment);
    return ATTN_OK;
}

/* ---- Tensors -------------------------------------------------------------------------------- */

static attn_status parse_tensor_name(cursor *c, size_t index, attn_gguf_tensor *tensor)
{
    attn_gguf_string name;
    char shown[SHOWN];
    TRY(take_string(c, "tensor name", &name));
    if (name.length == 0 || name.length > GGUF_MAX_NAME)
        return FAIL(c, "tensor %zu: name of %zu bytes ('%s'), allowed are 1 to %d", index,
                    name.length, attn_io_printable(name.text, name.length, shown, sizeof shown),
                    GGUF_MAX_NAME);
    for (size_t i = 0; i < name.length;) {
        const uint8_t *p = (const uint8_t *)name.text + i;
        size_t step = attn_utf8_length(p, name.length - i);
        if (step == 0 || *p < 0x20 || *p == 0x7f)
            return FAIL(c, "tensor %zu: name '%s' has byte 0x%02x at %zu, a control or not UTF-8",
                        index, attn_io_printable(name.text, name.length, shown, sizeof shown),
                        (unsigned)*p, i);
        i += step;
    }
    return copy_name(c, name, "tensor name", &tensor->name);
}

/* Reads the axes; elements is their product. */
static attn_status parse_tensor_shape(cursor *c, attn_gguf_tensor *tensor)
{
    uint32_t n_dims;
    uint64_t elements = 1;
    TRY(take_u32(c, "tensor n_dims", &n_dims));
    if (n_dims > GGUF_MAX_DIMS)
        return FAIL(c, "tensor '%s': n_dims is %u, at most %d are allowed", tensor->name,
                    (unsigned)n_dims, GGUF_MAX_DIMS);
    tensor->n_dims = (int32_t)n_dims;
    for (uint32_t d = 0; d < GGUF_MAX_DIMS; d++) {
        uint64_t extent = 1;
        if (d < n_dims)
            TRY(take_u64(c, "tensor shape", &extent));
        if (extent == 0 || extent > INT64_MAX)
            return FAIL(c, "tensor '%s': shape[%u] is %llu", tensor->name, (unsigned)d,
                        (unsigned long long)extent);
        if (!attn_mul_u64(elements, extent, &elements) || elements > INT64_MAX)
            return FAIL(c, "tensor '%s': shape[%u] of %llu makes more than 2^63 elements",
                        tensor->name, (unsigned)d, (unsigned long long)extent);
        tensor->shape[d] = (int64_t)extent;
    }
    tensor->elements = (int64_t)elements;
    return ATTN_OK;
}

static attn_status parse_tensor(cursor *c, const attn_gguf *gguf, size_t index,
                                attn_gguf_tensor *tensor)
{
    uint64_t bytes;
    TRY(parse_tensor_name(c, index, tensor));
    TRY(parse_tensor_shape(c, tensor));
    TRY(take_u32(c, "tensor type", &tensor->type));
    TRY(take_u64(c, "tensor offset", &tensor->offset));
    const attn_ggml_type_info *info = attn_ggml_type(tensor->type);
    if (!info)
        return FAIL(c, "tensor '%s': type %u does not exist", tensor->name, (unsigned)tensor->type);
    if (tensor->shape[0] % info->block_elements)
        return FAIL(
            c, "tensor '%s': shape[0] is %lld, not a multiple of the %d numbers in a %s block",
            tensor->name, (long long)tensor->shape[0], (int)info->block_elements, info->name);
    uint64_t blocks = (uint64_t)(tensor->elements / info->block_elements);
    if (!attn_mul_u64(blocks, (uint64_t)info->block_bytes, &bytes) || bytes > SIZE_MAX)
        return FAIL(c, "tensor '%s': %lld elements of %s do not fit in memory", tensor->name,
                    (long long)tensor->elements, info->name);
    tensor->bytes = (size_t)bytes;
    if (tensor->offset % gguf->alignment)
        return FAIL(c, "tensor '%s': offset %llu is not a multiple of the alignment %u",
                    tensor->name, (unsigned long long)tensor->offset, (unsigned)gguf->alignment);
    return ATTN_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(attn_gguf_tensor *const *)a)->name, (*(attn_gguf_tensor *const *)b)->name);
}

static int compare_offsets(const void *a, const void *b)
{
    const attn_gguf_tensor *x = *(attn_gguf_tensor *const *)a, *y = *(attn_gguf_tensor *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static attn_status parse_tensors(cursor *c, attn_gguf *gguf, uint64_t count)
{
    size_t room = 0;
    for (uint64_t i = 0; i < count; i++) {
        void *array = gguf->tensors;
        TRY(grow(c, &array, gguf->n_tensors, &room, sizeof *gguf->tensors, "tensors"));
        gguf->tensors = array;
        attn_gguf_tensor *tensor = &gguf->tensors[gguf->n_tensors++];
        memset(tensor, 0, sizeof *tensor);
        TRY(parse_tensor(c, gguf, (size_t)i, tensor));
    }
    return ATTN_OK;
}

/* Finds the data section (the cursor stands behind the last tensor info) and places every tensor in
 * it. */
static attn_status place_tensors(cursor *c, attn_gguf *gguf)
{
    uint64_t padding = (gguf->alignment - c->at % gguf->alignment) % gguf->alignment;
    uint64_t left = c->size - c->at;
    uint64_t data_bytes =
        padding < left ? left - padding : 0; /* a file without tensors may end early */
    const uint8_t *data = c->data + c->at + (padding < left ? padding : left);
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        attn_gguf_tensor *tensor = &gguf->tensors[i];
        if (tensor->offset > data_bytes || tensor->bytes > data_bytes - tensor->offset)
            return FAIL(c, "tensor '%s': %zu bytes at offset %llu end past the %llu bytes of data",
                        tensor->name, tensor->bytes, (unsigned long long)tensor->offset,
                        (unsigned long long)data_bytes);
        tensor->data = data + tensor->offset;
    }
    return ATTN_OK;
}

/* Sorts once by offset (overlaps), then by name (duplicates, and for searching). */
static attn_status index_tensors(cursor *c, attn_gguf *gguf)
{
    const attn_gguf_tensor **sorted = malloc((gguf->n_tensors + 1) * sizeof *sorted);
    if (!sorted)
        return attn_io_no_memory(c->error, c->error_size, "tensors");
    gguf->tensors_by_name = sorted;
    for (size_t i = 0; i < gguf->n_tensors; i++)
        sorted[i] = &gguf->tensors[i];
    qsort(sorted, gguf->n_tensors, sizeof *sorted, compare_offsets);
    for (size_t i = 1; i < gguf->n_tensors; i++)
        if (sorted[i]->offset < sorted[i - 1]->offset + sorted[i - 1]->bytes)
            return FAIL(c, "tensor '%s': offset %llu lies within '%s' (%zu bytes at %llu)",
                        sorted[i]->name, (unsigned long long)sorted[i]->offset, sorted[i - 1]->name,
                        sorted[i - 1]->bytes, (unsigned long long)sorted[i - 1]->offset);
    qsort(sorted, gguf->n_tensors, sizeof *sorted, compare_names);
    for (size_t i = 1; i < gguf->n_tensors; i++)
        if (!strcmp(sorted[i - 1]->name, sorted[i]->name))
            return FAIL(c, "tensor '%s': the name is there twice", sorted[i]->name);
    return ATTN_OK;
}

static attn_status parse_all(cursor *c, attn_gguf *gguf)
{
    uint64_t n_tensors, n_values;
    TRY(parse_header(c, &gguf->version, &n_tensors, &n_values));
    TRY(parse_values(c, gguf, n_values));
    TRY(find_alignment(c, gguf));
    TRY(parse_tensors(c, gguf, n_tensors));
    TRY(place_tensors(c, gguf));
    return index_tensors(c, gguf);
}

attn_status attn_gguf_parse(attn_mapped_file *file, attn_gguf **out, char *error, size_t error_size)
{
    *out = NULL;
    attn_gguf *gguf = calloc(1, sizeof *gguf);
    if (!gguf) {
        attn_mapped_file_close(file);
        return attn_io_no_memory(error, error_size, "a GGUF file");
    }
    gguf->file = file;
    char text[512] = "";
    cursor c = {.data = file->data, .size = file->size, .error = text, .error_size = sizeof text};
    attn_status status = parse_all(&c, gguf);
    if (status != ATTN_OK) {
        attn_io_fail(error, error_size, status, "%s: %s", file->name, text);
        attn_gguf_close(gguf);
        return status;
    }
    *out = gguf;
    return ATTN_OK;
}

attn_status attn_gguf_open(const char *path, attn_gguf **out, char *error, size_t error_size)
{
    attn_mapped_file *file;
    *out = NULL;
    TRY(attn_mapped_file_open(path, &file, error, error_size));
    return attn_gguf_parse(file, out, error, error_size);
}

void attn_gguf_close(attn_gguf *gguf)
{
    if (!gguf)
        return;
    for (size_t i = 0; i < gguf->n_values; i++)
        free((char *)(uintptr_t)gguf->values[i].key);
    for (size_t i = 0; i < gguf->n_tensors; i++)
        free((char *)(uintptr_t)gguf->tensors[i].name);
    free(gguf->values);
    free(gguf->tensors);
    free(gguf->values_by_key);
    free(gguf->tensors_by_name);
    attn_mapped_file_close(gguf->file);
    free(gguf);
}
