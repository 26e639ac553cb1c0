/* convert_internal.h - what both kinds of source share in a conversion. */
#ifndef ATTN_IO_CONVERT_INTERNAL_H
#define ATTN_IO_CONVERT_INTERNAL_H

#include "io/convert.h"
#include "io/gguf.h"

typedef struct attn_convert_job {
    const char *path, *folder;
    const attn_convert_options *options;
    attn_convert_report report;
    char *error;
    size_t error_size;
} attn_convert_job;

/* "float32", "bfloat16" or "float16": the wanted type as config.json says it. */
const char *attn_convert_dtype_name(attn_st_dtype dtype);

/* folder/name; free it. NULL: out of memory. */
char *attn_convert_join(const char *folder, const char *name);

/* Writes folder/model.safetensors and counts it in the report. */
attn_status attn_convert_write(attn_convert_job *job, const attn_export_tensor *tensors, size_t n);

/* Writes folder/name. */
attn_status attn_convert_json(attn_convert_job *job, const char *name, const json_t *json);

/* Makes the folder in which this file of the job's folder will lie; what fails is told when the file is written. */
void attn_convert_folder(const attn_convert_job *job, const char *name);

/* The whole conversion of a GGUF file. */
attn_status attn_convert_gguf(attn_convert_job *job, const attn_gguf *gguf);

#endif
