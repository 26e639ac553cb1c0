/* gguf.c - typed access to the values and tensors of a parsed GGUF file. */
#include "io/gguf_internal.h"

#include <stdlib.h>
#include <string.h>

#include "io/bytes.h"
#include "io/io_error.h"

typedef struct value_type {
    const char *name;
    size_t size; /* 0: variable */
} value_type;

static const value_type value_types[] = {
    [ATTN_GGUF_U8] = {"uint8", 1},      [ATTN_GGUF_I8] = {"int8", 1},
    [ATTN_GGUF_U16] = {"uint16", 2},    [ATTN_GGUF_I16] = {"int16", 2},
    [ATTN_GGUF_U32] = {"uint32", 4},    [ATTN_GGUF_I32] = {"int32", 4},
    [ATTN_GGUF_F32] = {"float32", 4},   [ATTN_GGUF_BOOL] = {"bool", 1},
    [ATTN_GGUF_STRING] = {"string", 0}, [ATTN_GGUF_ARRAY] = {"array", 0},
    [ATTN_GGUF_U64] = {"uint64", 8},    [ATTN_GGUF_I64] = {"int64", 8},
    [ATTN_GGUF_F64] = {"float64", 8},
};

size_t attn_gguf_type_size(uint32_t type)
{
    return type < sizeof value_types / sizeof value_types[0] ? value_types[type].size : 0;
}

const char *attn_gguf_type_name(uint32_t type)
{
    return type < sizeof value_types / sizeof value_types[0] ? value_types[type].name : "unknown";
}

uint32_t attn_gguf_version(const attn_gguf *gguf)
{
    return gguf->version;
}

uint32_t attn_gguf_alignment(const attn_gguf *gguf)
{
    return gguf->alignment;
}

void attn_gguf_release(const attn_gguf *gguf, const uint8_t *data, size_t bytes)
{
    attn_mapped_file_release(gguf->file, data, bytes);
}

size_t attn_gguf_file_size(const attn_gguf *gguf)
{
    return gguf->file->size;
}

size_t attn_gguf_value_count(const attn_gguf *gguf)
{
    return gguf->n_values;
}

const attn_gguf_value *attn_gguf_value_at(const attn_gguf *gguf, size_t index)
{
    return &gguf->values[index];
}

size_t attn_gguf_tensor_count(const attn_gguf *gguf)
{
    return gguf->n_tensors;
}

const attn_gguf_tensor *attn_gguf_tensor_at(const attn_gguf *gguf, size_t index)
{
    return &gguf->tensors[index];
}

static int compare_key(const void *key, const void *value)
{
    return strcmp(key, (*(attn_gguf_value *const *)value)->key);
}

static int compare_name(const void *name, const void *tensor)
{
    return strcmp(name, (*(attn_gguf_tensor *const *)tensor)->name);
}

const attn_gguf_value *attn_gguf_find(const attn_gguf *gguf, const char *key)
{
    const attn_gguf_value *const *found =
        bsearch(key, gguf->values_by_key, gguf->n_values, sizeof *gguf->values_by_key, compare_key);
    return found ? *found : NULL;
}

const attn_gguf_tensor *attn_gguf_find_tensor(const attn_gguf *gguf, const char *name)
{
    const attn_gguf_tensor *const *found = bsearch(name, gguf->tensors_by_name, gguf->n_tensors,
                                                   sizeof *gguf->tensors_by_name, compare_name);
    return found ? *found : NULL;
}

/* ---- One element ---------------------------------------------------------------------------- */

/* An integer of any width as sign and 64 bits: *negative says how to read *bits. False for other
 * types. */
static bool element_integer(const attn_gguf_value *value, uint64_t index, uint64_t *bits,
                            bool *negative)
{
    const uint8_t *p = value->data + index * attn_gguf_type_size(value->element_type);
    int64_t number = 0;
    switch (value->element_type) {
    case ATTN_GGUF_U8:
        number = p[0];
        break;
    case ATTN_GGUF_I8:
        number = (int8_t)p[0];
        break;
    case ATTN_GGUF_U16:
        number = attn_read_u16(p);
        break;
    case ATTN_GGUF_I16:
        number = (int16_t)attn_read_u16(p);
        break;
    case ATTN_GGUF_U32:
        number = attn_read_u32(p);
        break;
    case ATTN_GGUF_I32:
        number = (int32_t)attn_read_u32(p);
        break;
    case ATTN_GGUF_I64:
        number = (int64_t)attn_read_u64(p);
        break;
    case ATTN_GGUF_U64:
        *bits = attn_read_u64(p);
        *negative = false;
        return true;
    default:
        return false;
    }
    *bits = (uint64_t)number;
    *negative = number < 0;
    return true;
}

static bool element_float(const attn_gguf_value *value, uint64_t index, double *out)
{
    const uint8_t *p = value->data + index * attn_gguf_type_size(value->element_type);
    uint64_t bits;
    bool negative;
    if (value->element_type == ATTN_GGUF_F32) {
        uint32_t bits32 = attn_read_u32(p);
        float number;
        memcpy(&number, &bits32, sizeof number);
        *out = (double)number;
        return true;
    }
    if (value->element_type == ATTN_GGUF_F64) {
        bits = attn_read_u64(p);
        memcpy(out, &bits, sizeof *out);
        return true;
    }
    if (!element_integer(value, index, &bits, &negative))
        return false;
    *out = negative ? (double)(int64_t)bits : (double)bits;
    return true;
}

static attn_status wrong_type(const attn_gguf_value *value, const char *wanted, char *error,
                              size_t error_size)
{
    bool array = value->type == ATTN_GGUF_ARRAY;
    return attn_io_fail(
        error, error_size, ATTN_ERR_FORMAT, "metadata '%.96s': is %s%s, %s expected", value->key,
        array ? "an array of " : "", attn_gguf_type_name(value->element_type), wanted);
}

static attn_status find_value(const attn_gguf *gguf, const char *key, const attn_gguf_value **out,
                              char *error, size_t error_size)
{
    *out = attn_gguf_find(gguf, key);
    if (*out)
        return ATTN_OK;
    return attn_io_fail(error, error_size, ATTN_ERR_FORMAT, "metadata '%.96s': missing", key);
}

static attn_status find_scalar(const attn_gguf *gguf, const char *key, const char *wanted,
                               const attn_gguf_value **out, char *error, size_t error_size)
{
    attn_status status = find_value(gguf, key, out, error, error_size);
    if (status == ATTN_OK && (*out)->type == ATTN_GGUF_ARRAY)
        status = wrong_type(*out, wanted, error, error_size);
    return status;
}

attn_status attn_gguf_get_u64(const attn_gguf *gguf, const char *key, uint64_t *out, char *error,
                              size_t error_size)
{
    const attn_gguf_value *value;
    uint64_t bits;
    bool negative;
    attn_status status = find_scalar(gguf, key, "an integer", &value, error, error_size);
    if (status != ATTN_OK)
        return status;
    if (!element_integer(value, 0, &bits, &negative))
        return wrong_type(value, "an integer", error, error_size);
    if (negative)
        return attn_io_fail(error, error_size, ATTN_ERR_FORMAT,
                            "metadata '%.96s': is %lld, not negative expected", key,
                            (long long)(int64_t)bits);
    *out = bits;
    return ATTN_OK;
}

/* Element `index` as int64; a bool counts when `bools` says so. */
static attn_status element_i64(const attn_gguf_value *value, uint64_t index, bool bools,
                               int64_t *out, char *error, size_t error_size)
{
    uint64_t bits;
    bool negative;
    if (bools && value->element_type == ATTN_GGUF_BOOL) {
        *out = value->data[index];
        return ATTN_OK;
    }
    if (!element_integer(value, index, &bits, &negative))
        return wrong_type(value, "an integer", error, error_size);
    if (!negative && bits > INT64_MAX)
        return attn_io_fail(error, error_size, ATTN_ERR_FORMAT,
                            "metadata '%.96s': %llu does not fit in a signed integer", value->key,
                            (unsigned long long)bits);
    *out = (int64_t)bits;
    return ATTN_OK;
}

attn_status attn_gguf_get_i64(const attn_gguf *gguf, const char *key, int64_t *out, char *error,
                              size_t error_size)
{
    const attn_gguf_value *value;
    attn_status status = find_scalar(gguf, key, "an integer", &value, error, error_size);
    return status == ATTN_OK ? element_i64(value, 0, false, out, error, error_size) : status;
}

attn_status attn_gguf_get_f64(const attn_gguf *gguf, const char *key, double *out, char *error,
                              size_t error_size)
{
    const attn_gguf_value *value;
    attn_status status = find_scalar(gguf, key, "a number", &value, error, error_size);
    if (status == ATTN_OK && !element_float(value, 0, out))
        status = wrong_type(value, "a number", error, error_size);
    return status;
}

attn_status attn_gguf_get_bool(const attn_gguf *gguf, const char *key, bool *out, char *error,
                               size_t error_size)
{
    const attn_gguf_value *value;
    attn_status status = find_scalar(gguf, key, "a bool", &value, error, error_size);
    if (status != ATTN_OK)
        return status;
    if (value->type != ATTN_GGUF_BOOL)
        return wrong_type(value, "a bool", error, error_size);
    *out = value->data[0] != 0;
    return ATTN_OK;
}

attn_status attn_gguf_get_string(const attn_gguf *gguf, const char *key, attn_gguf_string *out,
                                 char *error, size_t error_size)
{
    const attn_gguf_value *value;
    attn_status status = find_scalar(gguf, key, "a string", &value, error, error_size);
    if (status != ATTN_OK)
        return status;
    if (value->type != ATTN_GGUF_STRING)
        return wrong_type(value, "a string", error, error_size);
    out->text = (const char *)value->data + 8;
    out->length = (size_t)attn_read_u64(value->data);
    return ATTN_OK;
}

/* ---- Arrays --------------------------------------------------------------------------------- */

/* Finds the value and makes room for its elements; element_bytes is never more than 16 times what
 * the file spends. */
static attn_status begin_array(const attn_gguf *gguf, const char *key, size_t element_bytes,
                               const attn_gguf_value **value, void **out, char *error,
                               size_t error_size)
{
    attn_status status = find_value(gguf, key, value, error, error_size);
    if (status != ATTN_OK)
        return status;
    if ((*value)->count > (SIZE_MAX - 1) / element_bytes)
        return attn_io_no_memory(error, error_size, key);
    *out = malloc((size_t)(*value)->count * element_bytes + 1);
    return *out ? ATTN_OK : attn_io_no_memory(error, error_size, key);
}

attn_status attn_gguf_get_i64_array(const attn_gguf *gguf, const char *key, int64_t **out,
                                    size_t *count, char *error, size_t error_size)
{
    const attn_gguf_value *value;
    void *memory = NULL;
    attn_status status =
        begin_array(gguf, key, sizeof(int64_t), &value, &memory, error, error_size);
    int64_t *numbers = memory;
    for (uint64_t i = 0; status == ATTN_OK && i < value->count; i++)
        status = element_i64(value, i, true, &numbers[i], error, error_size);
    if (status != ATTN_OK) {
        free(memory);
        return status;
    }
    *out = numbers;
    *count = (size_t)value->count;
    return ATTN_OK;
}

attn_status attn_gguf_get_f64_array(const attn_gguf *gguf, const char *key, double **out,
                                    size_t *count, char *error, size_t error_size)
{
    const attn_gguf_value *value;
    void *memory = NULL;
    attn_status status = begin_array(gguf, key, sizeof(double), &value, &memory, error, error_size);
    double *numbers = memory;
    for (uint64_t i = 0; status == ATTN_OK && i < value->count; i++)
        if (!element_float(value, i, &numbers[i]))
            status = wrong_type(value, "numbers", error, error_size);
    if (status != ATTN_OK) {
        free(memory);
        return status;
    }
    *out = numbers;
    *count = (size_t)value->count;
    return ATTN_OK;
}

attn_status attn_gguf_get_string_array(const attn_gguf *gguf, const char *key,
                                       attn_gguf_string **out, size_t *count, char *error,
                                       size_t error_size)
{
    const attn_gguf_value *value;
    void *memory = NULL;
    attn_status status = find_value(gguf, key, &value, error, error_size);
    if (status == ATTN_OK && value->element_type != ATTN_GGUF_STRING)
        status = wrong_type(value, "strings", error, error_size);
    if (status == ATTN_OK)
        status =
            begin_array(gguf, key, sizeof(attn_gguf_string), &value, &memory, error, error_size);
    if (status != ATTN_OK)
        return status;
    attn_gguf_string *strings = memory;
    const uint8_t *p = value->data;
    for (uint64_t i = 0; i < value->count; i++) {
        strings[i].length = (size_t)attn_read_u64(p);
        strings[i].text = (const char *)p + 8;
        p += 8 + strings[i].length;
    }
    *out = strings;
    *count = (size_t)value->count;
    return ATTN_OK;
}
