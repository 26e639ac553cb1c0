/* dequant.h - numbers of GGUF tensors as f32, exactly as the formats define them.
 *
 * Formats (block of 32 or 256 numbers; d, m, dmin are f16; every product and sum below is one f32
 * operation, in the order written, so that results are equal to the bit to those of ggml's
 * reference and of the PyPI package gguf):
 *
 *     F32 F16 BF16   as they are (NaN payloads kept)
 *     Q8_0           d, 32 x int8                                x = q * d
 *     Q4_0           d, 16 bytes                                 x = (q - 8) * d
 *     Q4_1           d, m, 16 bytes                              x = q * d + m
 *     Q5_0           d, 32 high bits, 16 bytes                   x = (q - 16) * d
 *     Q5_1           d, m, 32 high bits, 16 bytes                x = q * d + m
 *     Q4_K Q5_K      d, dmin, 8 x (6-bit scale, 6-bit min), ...  x = (d * scale) * q - dmin * min
 *     Q6_K           low nibbles, high bits, 16 x int8 scale, d  x = (d * scale) * (q - 32)
 *
 * In the 32-number types byte i of the 16 holds number i in its low and number i + 16 in its high
 * nibble. Every bit pattern is valid; a block whose f16 scale is infinite or NaN gives what the
 * formula gives.
 */
#ifndef ATTN_IO_DEQUANT_H
#define ATTN_IO_DEQUANT_H

#include <stdbool.h>
#include <stdint.h>
#include "attn/attn.h"

/* n_blocks blocks of one format to n_blocks * block_elements floats. in needs no alignment. Checks
 * nothing. */
typedef void (*attn_dequant_fn)(const uint8_t *in, int64_t n_blocks, float *out);

/* The function for a type of ggml_type.h, or NULL where it is not supported. */
attn_dequant_fn attn_dequant_function(uint32_t type);

/**
 * Writes elements [first, first + n) of a tensor of `type` to out (n floats, owned by the caller).
 *
 * data holds the whole tensor, `bytes` long (attn_gguf_tensor gives both). first and n must be
 * whole blocks. n of 0 does nothing. Rows of a matrix are contiguous: row r of a tensor with row
 * length w is (first = r * w, n = w). Errors: ATTN_ERR_UNSUPPORTED for a type that is not listed
 * above (named in the text); ATTN_ERR_INVALID_ARGUMENT for a range that is not whole blocks or that
 * ends past the data. On an error out is untouched. Any number of threads may call it.
 */
attn_status attn_dequant(uint32_t type, const void *data, size_t bytes, int64_t first, int64_t n,
                         float *out, char *error, size_t error_size);

#endif
