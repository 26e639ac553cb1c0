/* safetensors_internal.h - the object behind safetensors.h, shared by its parser and its opening of
 * shards. */
#ifndef ATTN_IO_SAFETENSORS_INTERNAL_H
#define ATTN_IO_SAFETENSORS_INTERNAL_H

#include <jansson.h>
#include "io/safetensors.h"

struct attn_safetensors {
    attn_mapped_file *file;    /* of a single file */
    attn_safetensors **shards; /* of an index: n_shards single files */
    size_t n_shards;
    attn_st_tensor *tensors; /* of a single file, header order; of an index NULL */
    size_t n_tensors;
    const attn_st_tensor **in_order, **by_name; /* into tensors, or into those of the shards */
    int64_t *extents;           /* shapes of a single file's tensors, one after the other */
    const char **metadata_keys; /* of a single file, header order; borrowed from header */
    /* Keeps the names alive; of an index NULL (the names are those of the shards). */
    json_t *header;
};

/* Fills by_name (room for n_tensors) from in_order. */
void attn_safetensors_sort(attn_safetensors *st);

#endif
