/* gguf_names.h - what the tensors of a GGUF file are called, and how they lie, in Hugging Face's
 * checkpoints. */
#ifndef ATTN_IO_GGUF_NAMES_H
#define ATTN_IO_GGUF_NAMES_H

#include "io/gguf.h"

#define ATTN_GGUF_HF_NAME 128 /* bytes that any translated name fits, its 0 included */

enum attn_gguf_layout {
    ATTN_GGUF_SAME,
    ATTN_GGUF_TRANSPOSED, /* there [in, out] (GPT-2's Conv1D), here [out, in]; of weights only */
    ATTN_GGUF_ROPE_QUERY, /* rows of a head: here pairs (0, 1), (2, 3), ...; there (0, d/2), (1, d/2
                             + 1), ... */
    ATTN_GGUF_ROPE_KEY    /* the same, for the key's heads */
};

/**
 * Translates the name of a tensor of architecture `architecture` (general.architecture: llama,
 * qwen2, qwen3, gpt2, bert). Errors: ATTN_ERR_UNSUPPORTED for another architecture or a tensor
 * without a counterpart, by name.
 */
attn_status attn_gguf_hf_name(attn_gguf_string architecture, const char *tensor,
                              char name[ATTN_GGUF_HF_NAME], enum attn_gguf_layout *layout,
                              char *error, size_t error_size);

#endif
