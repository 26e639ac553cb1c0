/* model_source.c - model files of either format behind one lookup. */
#include "models/model_source.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "io/dequant.h"
#include "io/io_error.h"
#include "io/json.h"

static char *join(const char *a, size_t a_length, const char *b)
{
    char *text = malloc(a_length + strlen(b) + 1);
    if (text) {
        memcpy(text, a, a_length);
        strcpy(text + a_length, b);
    }
    return text;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static bool is_file(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

/* Models of texts and images (Gemma 3) have the configuration of the part that reads text inside. */
static bool take_text_config(json_t **config)
{
    static const char *const shared[] = {"architectures", "bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings"};
    json_t *text = json_object_get(*config, "text_config");
    bool good = true;
    if (!json_is_string(json_object_get(text, "model_type")))
        return true;
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        json_t *value = json_object_get(*config, shared[i]);
        if (value && !json_object_get(text, shared[i]))
            good &= json_object_set(text, shared[i], value) == 0;
    }
    json_incref(text);
    json_decref(*config);
    *config = text;
    return good;
}

static attn_status read_config(const char *path, json_t **config, char *error, size_t error_size)
{
    attn_mapped_file *file;
    attn_status status = attn_mapped_file_open(path, &file, error, error_size);
    if (status != ATTN_OK)
        return status;
    char reason[256];
    *config = attn_json_parse((const char *)file->data, file->size, reason, sizeof reason);
    attn_mapped_file_close(file);
    if (*config && json_is_object(*config))
        return take_text_config(config) ? ATTN_OK : attn_io_no_memory(error, error_size, path);
    if (*config) {
        json_decref(*config);
        *config = NULL;
        return attn_io_fail(error, error_size, ATTN_ERR_FORMAT, "%s: not a JSON object", path);
    }
    return attn_io_fail(error, error_size, ATTN_ERR_FORMAT, "%s: %s", path, reason);
}

static attn_status config_of_directory(const char *path, attn_model_source *source, char *error, size_t error_size)
{
    source->folder = join(path, strlen(path), "");
    char *config = join(path, strlen(path), "/config.json");
    attn_status status = ATTN_ERR_OUT_OF_MEMORY;
    if (config && source->folder)
        status = read_config(config, &source->config, error, error_size);
    free(config);
    return status;
}

/* config.json beside x.safetensors (or an index of shards), or x.config.json where that is there. */
static attn_status config_of_file(const char *path, attn_model_source *source, char *error, size_t error_size)
{
    const char *slash = strrchr(path, '/');
    const size_t folder = slash ? (size_t)(slash - path) : 0;
    source->folder = slash ? join(path, folder, "") : join(".", 1, "");
    const size_t stem = strlen(path) - (ends_with(path, ".safetensors") ? strlen(".safetensors") : 0);
    char *own = join(path, stem, ".config.json");
    char *shared = slash ? join(path, folder, "/config.json") : join("", 0, "config.json");
    attn_status status = ATTN_ERR_OUT_OF_MEMORY;
    if (own && shared && source->folder)
        status = read_config(is_file(own) ? own : shared, &source->config, error, error_size);
    free(own);
    free(shared);
    return status;
}

static bool is_directory(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

attn_status attn_source_open_tensors(const char *path, attn_model_source *source, char *error, size_t error_size)
{
    attn_status status;
    memset(source, 0, sizeof *source);
    source->path = join(path, strlen(path), "");
    if (!source->path)
        status = attn_io_no_memory(error, error_size, path);
    else if (is_directory(path) || ends_with(path, ".safetensors") || ends_with(path, ".json"))
        status = attn_safetensors_open(path, &source->st, error, error_size);
    else
        status = attn_gguf_open(path, &source->gguf, error, error_size);
    if (status != ATTN_OK)
        attn_source_close(source);
    return status;
}

attn_status attn_source_open(const char *path, attn_model_source *source, char *error, size_t error_size)
{
    attn_status status = attn_source_open_tensors(path, source, error, error_size);
    if (status != ATTN_OK || source->gguf)
        return status;
    status = is_directory(path) ? config_of_directory(path, source, error, error_size)
                                : config_of_file(path, source, error, error_size);
    if (status != ATTN_OK)
        attn_source_close(source);
    return status;
}

void attn_source_close(attn_model_source *source)
{
    attn_gguf_close(source->gguf);
    attn_safetensors_close(source->st);
    json_decref(source->config);
    free(source->path);
    free(source->folder);
    memset(source, 0, sizeof *source);
}

static void from_gguf(const attn_gguf_tensor *t, attn_source_tensor *out)
{
    memset(out, 0, sizeof *out);
    out->name = t->name;
    out->dtype = attn_ggml_type_name(t->type);
    out->data = t->data;
    out->bytes = t->bytes;
    out->ggml_type = (int32_t)t->type;
    out->n_dims = t->n_dims;
    out->elements = t->elements;
    for (int32_t i = 0; i < t->n_dims; i++)
        out->shape[i] = t->shape[t->n_dims - 1 - i];
}

static void from_safetensors(const attn_st_tensor *t, attn_source_tensor *out)
{
    memset(out, 0, sizeof *out);
    out->name = t->name;
    out->dtype = attn_st_dtype_name(t->dtype);
    out->data = t->data;
    out->bytes = t->bytes;
    out->st_dtype = t->dtype;
    out->ggml_type = t->dtype == ATTN_ST_F32    ? ATTN_GGML_F32
                     : t->dtype == ATTN_ST_F16  ? ATTN_GGML_F16
                     : t->dtype == ATTN_ST_BF16 ? ATTN_GGML_BF16
                                                : -1;
    int32_t extra = t->n_dims > 4 ? t->n_dims - 4 : 0; /* leading axes beyond four are folded into the first */
    out->n_dims = t->n_dims - extra;
    out->elements = t->elements;
    for (int32_t i = 0; i < out->n_dims; i++)
        out->shape[i] = t->shape[i + extra];
    for (int32_t i = 0; i < extra; i++)
        out->shape[0] *= t->shape[i];
}

int64_t attn_source_count(const attn_model_source *source)
{
    return (int64_t)(source->gguf ? attn_gguf_tensor_count(source->gguf) : attn_safetensors_count(source->st));
}

void attn_source_at(const attn_model_source *source, int64_t index, attn_source_tensor *tensor)
{
    if (source->gguf)
        from_gguf(attn_gguf_tensor_at(source->gguf, (size_t)index), tensor);
    else
        from_safetensors(attn_safetensors_at(source->st, (size_t)index), tensor);
}

bool attn_source_find(const attn_model_source *source, const char *name, attn_source_tensor *tensor)
{
    if (source->gguf) {
        const attn_gguf_tensor *t = attn_gguf_find_tensor(source->gguf, name);
        if (t)
            from_gguf(t, tensor);
        return t != NULL;
    }
    const attn_st_tensor *t = attn_safetensors_find(source->st, name);
    if (t)
        from_safetensors(t, tensor);
    return t != NULL;
}

attn_status attn_source_read(const attn_source_tensor *tensor, int64_t first, int64_t n, float *out, char *error,
                             size_t error_size)
{
    if (tensor->ggml_type >= 0)
        return attn_dequant((uint32_t)tensor->ggml_type, tensor->data, tensor->bytes, first, n, out, error, error_size);
    const size_t size = attn_st_dtype_bits(tensor->st_dtype) / 8;
    attn_status status = attn_st_to_f32(tensor->st_dtype, tensor->data + (size_t)first * size, (size_t)n, out);
    if (status != ATTN_OK)
        return attn_io_fail(error, error_size, status, "tensor %s: dtype %s cannot be read as numbers", tensor->name,
                            tensor->dtype);
    return ATTN_OK;
}

void attn_source_release(const attn_model_source *source, const attn_source_tensor *tensor)
{
    if (source->gguf)
        attn_gguf_release(source->gguf, tensor->data, tensor->bytes);
    else
        attn_safetensors_release(source->st, tensor->data, tensor->bytes);
}

json_t *attn_source_side_file(const attn_model_source *source, const char *name)
{
    json_t *file = NULL;
    if (!source->folder || !source->path || !is_directory(source->path))
        return NULL;
    char *folder = join(source->folder, strlen(source->folder), "/");
    char *path = folder ? join(folder, strlen(folder), name) : NULL;
    attn_mapped_file *bytes = NULL;
    if (path && is_file(path) && attn_mapped_file_open(path, &bytes, NULL, 0) == ATTN_OK)
        file = attn_json_parse_wide((const char *)bytes->data, bytes->size, NULL, 0);
    attn_mapped_file_close(bytes);
    free(folder);
    free(path);
    return file;
}
