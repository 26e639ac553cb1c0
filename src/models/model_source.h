/* model_source.h - the files of a model: configuration and tensors by name, whatever the format. */
#ifndef ATTN_MODELS_MODEL_SOURCE_H
#define ATTN_MODELS_MODEL_SOURCE_H

#include <jansson.h>
#include "attn/attn.h"
#include "io/gguf.h"
#include "io/safetensors.h"

typedef struct attn_model_source {
    attn_gguf *gguf;       /* one of the two */
    attn_safetensors *st;
    json_t *config;        /* config.json, with safetensors */
    char *path, *folder;   /* folder: where tokenizer.json is looked for; NULL: nowhere */
} attn_model_source;

typedef struct attn_source_tensor {
    const char *name, *dtype;
    const uint8_t *data;
    size_t bytes;
    int32_t ggml_type;   /* ATTN_GGML_*, also for F32, F16, BF16 of safetensors; -1: st_dtype says */
    attn_st_dtype st_dtype;
    int32_t n_dims;
    int64_t shape[4];    /* outermost first */
    int64_t elements;
} attn_source_tensor;

/* Opens a GGUF file, a .safetensors file with config.json (or NAME.config.json) beside it, or a directory. */
attn_status attn_source_open(const char *path, attn_model_source *source, char *error, size_t error_size);
/* The same for tensors alone: configurations are not looked for. path may also name the index of shards. */
attn_status attn_source_open_tensors(const char *path, attn_model_source *source, char *error, size_t error_size);
void attn_source_close(attn_model_source *source);

int64_t attn_source_count(const attn_model_source *source);
void attn_source_at(const attn_model_source *source, int64_t index, attn_source_tensor *tensor);
/* False where there is no tensor of that name. */
bool attn_source_find(const attn_model_source *source, const char *name, attn_source_tensor *tensor);

/* Elements [first, first + n) as f32; GGUF blocks: whole blocks. */
attn_status attn_source_read(const attn_source_tensor *tensor, int64_t first, int64_t n, float *out, char *error,
                             size_t error_size);

/* The tensor's bytes leave this process, until they are read again. */
void attn_source_release(const attn_model_source *source, const attn_source_tensor *tensor);

/* The JSON object in a file of the model's folder, a new reference; NULL: there is none, or the model is no folder. */
json_t *attn_source_side_file(const attn_model_source *source, const char *name);

#endif
