/* linear_blocks.h - matrices of GGUF files into panels, without a detour over f32 and without losing a bit. */
#ifndef ATTN_MODELS_LINEAR_BLOCKS_H
#define ATTN_MODELS_LINEAR_BLOCKS_H

#include <stdbool.h>
#include "io/ggml_type.h"
#include "ops/nn/linear.h"

/* The format that keeps a GGUF tensor type (io/ggml_type.h) without loss; F32 for what has no shorter one, or where
 * rows are not whole blocks of 32. */
attn_linear_format attn_linear_format_of(uint32_t ggml_type, int64_t n_in);

/* Packs panels first .. first + count - 1 of a tensor whose rows lie in GGUF blocks, keeping its numbers exactly; row r
 * of W is at data + r * row_bytes. False: this type has no direct way (use attn_linear_pack_rows). */
bool attn_linear_pack_blocks(attn_linear *linear, int64_t first, int64_t count, uint32_t ggml_type,
                             const uint8_t *data, int64_t row_bytes);

#endif
