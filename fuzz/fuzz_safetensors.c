/* fuzz_safetensors.c - any bytes as a safetensors file and as an index of shards: refused, or every
 * tensor can be read to its last byte and the tensors cover the data exactly. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t read_tensor(const attn_safetensors *st, const attn_st_tensor *tensor)
{
    double ends[2] = {0, 0};
    float number = 0;
    char error[128];
    if (attn_safetensors_find(st, tensor->name) != tensor)
        abort();
    if (tensor->elements) {
        attn_st_read_f64(tensor, 0, 1, &ends[0], error, sizeof error);
        attn_st_read_f64(tensor, tensor->elements - 1, 1, &ends[1], error, sizeof error);
        attn_st_read_f32(tensor, tensor->elements - 1, 1, &number, error, sizeof error);
    }
    return tensor->bytes;
}

static attn_status count_entry(void *user, size_t index, const char *tensor, const char *file)
{
    size_t *count = user;
    if (index != *count || strlen(tensor) > (size_t)1 << 20 || strchr(file, '/'))
        abort();
    ++*count;
    return ATTN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_mapped_file *file;
    attn_safetensors *st;
    char error[256] = "";
    size_t listed = 0, count = 0;
    if (attn_safetensors_read_index(data, size, count_entry, &listed, &count, error,
                                    sizeof error) == ATTN_OK &&
        listed != count)
        abort();
    error[0] = '\0';
    if (attn_mapped_file_copy(data, size, "fuzz", &file, error, sizeof error) != ATTN_OK)
        return 0;
    if (attn_safetensors_parse(file, &st, error, sizeof error) != ATTN_OK) {
        if (!error[0] || st)
            abort(); /* an error says why */
        return 0;
    }
    size_t bytes = 0;
    for (size_t t = 0; t < attn_safetensors_count(st); t++)
        bytes += read_tensor(st, attn_safetensors_at(st, t));
    for (size_t m = 0; m < attn_safetensors_metadata_count(st); m++) {
        const char *key, *text;
        attn_safetensors_metadata_at(st, m, &key, &text);
        if (!key || attn_safetensors_metadata(st, key) != text)
            abort();
    }
    if (bytes >= size)
        abort();
    attn_safetensors_close(st);
    return 0;
}
