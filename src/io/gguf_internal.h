/* gguf_internal.h - the object behind gguf.h, shared by its parser and its typed access. */
#ifndef ATTN_IO_GGUF_INTERNAL_H
#define ATTN_IO_GGUF_INTERNAL_H

#include "io/gguf.h"

struct attn_gguf {
    attn_mapped_file *file;
    uint32_t version, alignment;
    size_t n_values, n_tensors;
    attn_gguf_value *values;                  /* file order */
    attn_gguf_tensor *tensors;                /* file order */
    const attn_gguf_value **values_by_key;    /* sorted by key */
    const attn_gguf_tensor **tensors_by_name; /* sorted by name */
};

/* Bytes of one value of a fixed-size type; 0 for strings, arrays and unknown types. */
size_t attn_gguf_type_size(uint32_t type);

#endif
