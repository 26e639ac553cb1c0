/* gguf_tokenizer.h - the tokenizer inside a GGUF file as the two JSON files that Hugging Face's
 * libraries read. */
#ifndef ATTN_IO_GGUF_TOKENIZER_H
#define ATTN_IO_GGUF_TOKENIZER_H

#include <jansson.h>
#include "io/gguf.h"

/**
 * Builds tokenizer.json and tokenizer_config.json from the tokenizer.ggml.* values: byte-level BPE
 * (tokenizer.ggml.model "gpt2") with the splits that tokenizer.ggml.pre names: gpt-2, smollm,
 * llama-bpe, qwen2; SentencePiece ("llama") as BPE with byte fallback; WordPiece ("bert"), lower case.
 *
 * On success *tokenizer and *config are new references (json_decref). Errors: ATTN_ERR_UNSUPPORTED
 * for another tokenizer or split, by name; ATTN_ERR_FORMAT for tokens, merges or ids that
 * contradict each other, with the field named; ATTN_ERR_OUT_OF_MEMORY.
 */
attn_status attn_gguf_tokenizer_json(const attn_gguf *gguf, json_t **tokenizer, json_t **config,
                                     char *error, size_t error_size);

#endif
