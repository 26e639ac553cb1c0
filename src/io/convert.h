/* convert.h - any model file as a folder that Hugging Face's libraries load: model.safetensors,
 * config.json, and the tokenizer's files. */
#ifndef ATTN_IO_CONVERT_H
#define ATTN_IO_CONVERT_H

#include <stdbool.h>
#include "io/export.h"

typedef struct attn_convert_options {
    attn_st_dtype dtype; /* of floating-point tensors: ATTN_ST_F32, ATTN_ST_BF16 or ATTN_ST_F16 */
    attn_export_progress progress; /* NULL: none */
    void *progress_user;
} attn_convert_options;

typedef struct attn_convert_report {
    int64_t tensors, elements; /* written */
    uint64_t overflows;        /* finite numbers that became infinite in a 16-bit type */
    bool has_config, has_tokenizer;
    char note[256]; /* why there is no config.json or tokenizer, "" otherwise */
} attn_convert_report;

/**
 * Converts `path` (a GGUF file of architecture llama, qwen2, qwen3, gpt2 or bert; a .safetensors
 * file; an index of shards; or a folder that holds one of the latter two) into the folder `folder`,
 * which is made when it is not there.
 *
 * Floating-point tensors get the wanted type, rounded to nearest even from their exact value as
 * f32; numbers that have it already keep their bits, and other types are copied. From GGUF, names,
 * order of rows and configuration are those of Hugging Face's checkpoints. Files appear whole or
 * not at all; beside the mapped file and the tokenizer, memory stays at a few MiB. report may be
 * NULL.
 *
 * Errors: those of the readers and the writer; ATTN_ERR_UNSUPPORTED for an architecture, tensor or
 * tensor type without a counterpart and for checkpoints with a quantization_config;
 * ATTN_ERR_INVALID_ARGUMENT for another dtype and when the folder is the model's own;
 * ATTN_ERR_CANCELLED.
 */
attn_status attn_convert(const char *path, const char *folder, const attn_convert_options *options,
                         attn_convert_report *report, char *error, size_t error_size);

#endif
