/* ggml_type.h - the tensor types of GGUF files: numbers, names and block sizes.
 *
 * A block-quantised type stores block_elements numbers in block_bytes bytes; a row (the fastest
 * axis) is a whole number of blocks. The numbers are those of the file format. Block sizes: the
 * GGUF specification and ggml's public table of types (facts; MIT licence).
 */
#ifndef ATTN_IO_GGML_TYPE_H
#define ATTN_IO_GGML_TYPE_H

#include <stdint.h>

/* The types that attn_dequant reads; the other numbers have a name and a size, so that files
 * holding them can be listed. */
enum {
    ATTN_GGML_F32 = 0,
    ATTN_GGML_F16 = 1,
    ATTN_GGML_Q4_0 = 2,
    ATTN_GGML_Q4_1 = 3,
    ATTN_GGML_Q5_0 = 6,
    ATTN_GGML_Q5_1 = 7,
    ATTN_GGML_Q8_0 = 8,
    ATTN_GGML_Q4_K = 12,
    ATTN_GGML_Q5_K = 13,
    ATTN_GGML_Q6_K = 14,
    ATTN_GGML_BF16 = 30
};

typedef struct attn_ggml_type_info {
    const char *name;       /* "Q4_1" */
    int32_t block_elements; /* 1 for plain types */
    int32_t block_bytes;
} attn_ggml_type_info;

/* NULL for a number that the format does not define (or has withdrawn). Static. */
const attn_ggml_type_info *attn_ggml_type(uint32_t type);

/* The name, or "unknown" for an undefined number. Static, never NULL. */
const char *attn_ggml_type_name(uint32_t type);

#endif
