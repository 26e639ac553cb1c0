/* gguf_config.h - the metadata of a GGUF file as the config.json that Hugging Face's libraries
 * read. */
#ifndef ATTN_IO_GGUF_CONFIG_H
#define ATTN_IO_GGUF_CONFIG_H

#include <jansson.h>
#include "io/gguf.h"

/**
 * Builds config.json for the architectures llama (with a window: Mistral), qwen2, qwen3, gpt2 and
 * bert.
 *
 * What the metadata does not say is read off the tensors: vocabulary size, tied head, biases, token
 * types. Numbers that the file holds as f32 come out as the shortest decimal that names them
 * (1e-05). dtype is the element type that the weights will have ("float32", ...).
 *
 * On success *config is a new reference (json_decref). Errors: ATTN_ERR_FORMAT (a field missing or
 * of another type, by name); ATTN_ERR_UNSUPPORTED (another architecture; a RoPE scaling that
 * config.json cannot say); ATTN_ERR_OUT_OF_MEMORY.
 */
attn_status attn_gguf_config_json(const attn_gguf *gguf, const char *dtype, json_t **config,
                                  char *error, size_t error_size);

#endif
