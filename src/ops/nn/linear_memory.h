/* linear_memory.h - memory that the matrices of a model share: pieces of a few chunks on large pages. Decoding reads all of it for each
 * token, and a matrix alone may be smaller than a large page. */
#ifndef ATTN_OPS_NN_LINEAR_MEMORY_H
#define ATTN_OPS_NN_LINEAR_MEMORY_H

#include <stddef.h>

/* All zero: empty. `expected`: bytes that will be asked for in all, about; chunks are no larger. */
typedef struct attn_linear_memory {
    struct attn_linear_chunk *chunks;
    char *at;
    size_t left, expected;
} attn_linear_memory;

/* 64-byte aligned, not cleared; NULL: no memory. */
void *attn_linear_memory_take(attn_linear_memory *memory, size_t bytes);

/* Frees all pieces at once. */
void attn_linear_memory_free(attn_linear_memory *memory);

#endif
