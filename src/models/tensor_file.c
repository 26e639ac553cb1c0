/* tensor_file.c - the tensors of a model file, without its configuration. */
#include <stdlib.h>
#include <string.h>
#include "core/context.h"
#include "models/model_internal.h"

struct attn_tensor_file {
    attn_model_source source;
};

/* Tensor `index`, which is checked. */
static attn_status tensor_at(const attn_model_source *source, int64_t index, attn_source_tensor *t)
{
    ATTN_MODEL_REQUIRE(index >= 0 && index < attn_source_count(source), "index is %lld of %lld tensors", (long long)index,
                       (long long)attn_source_count(source));
    attn_source_at(source, index, t);
    return ATTN_OK;
}

attn_status attn_source_tensor_info(const attn_model_source *source, int64_t index, attn_tensor_info *info)
{
    attn_source_tensor t;
    ATTN_TRY(tensor_at(source, index, &t));
    memset(info, 0, sizeof *info);
    info->name = t.name;
    info->dtype = t.dtype;
    info->n_dims = t.n_dims;
    memcpy(info->shape, t.shape, sizeof info->shape);
    info->n_bytes = (int64_t)t.bytes;
    return ATTN_OK;
}

attn_status attn_tensor_file_open(const char *path, attn_tensor_file **file)
{
    ATTN_MODEL_REQUIRE(file, "file is NULL");
    *file = NULL;
    ATTN_MODEL_REQUIRE(path && *path, "path is empty");
    attn_tensor_file *opened = calloc(1, sizeof *opened);
    if (!opened)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    attn_status status =
        attn_source_open_tensors(path, &opened->source, attn_model_error_buffer(), ATTN_MODEL_ERROR_BYTES);
    if (status == ATTN_OK)
        *file = opened;
    else
        free(opened);
    return status;
}

void attn_tensor_file_close(attn_tensor_file *file)
{
    if (file)
        attn_source_close(&file->source);
    free(file);
}

int64_t attn_tensor_file_count(const attn_tensor_file *file)
{
    return file ? attn_source_count(&file->source) : 0;
}

attn_status attn_tensor_file_get(const attn_tensor_file *file, int64_t index, attn_tensor_info *info)
{
    ATTN_MODEL_REQUIRE(file && info, "file or info is NULL");
    return attn_source_tensor_info(&file->source, index, info);
}

attn_status attn_tensor_file_read(const attn_tensor_file *file, int64_t index, int64_t first, int64_t n, float *out)
{
    attn_source_tensor t;
    ATTN_MODEL_REQUIRE(file && (out || n == 0), "file or out is NULL");
    ATTN_TRY(tensor_at(&file->source, index, &t));
    ATTN_MODEL_REQUIRE(first >= 0 && n >= 0 && first <= t.elements && n <= t.elements - first,
                       "elements %lld + %lld of %lld", (long long)first, (long long)n, (long long)t.elements);
    return n == 0 ? ATTN_OK : attn_source_read(&t, first, n, out, attn_model_error_buffer(), ATTN_MODEL_ERROR_BYTES);
}

const char *attn_tensor_file_metadata(const attn_tensor_file *file, int64_t index, const char **key)
{
    const char *text = NULL, *name = NULL;
    const attn_safetensors *st = file ? file->source.st : NULL;
    if (st && index >= 0 && (size_t)index < attn_safetensors_metadata_count(st))
        attn_safetensors_metadata_at(st, (size_t)index, &name, &text);
    if (key)
        *key = name;
    return text;
}
