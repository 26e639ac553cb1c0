/* gguf_tokenizer_internal.h - what the files that turn GGUF tokenizers into JSON share. */
#ifndef ATTN_IO_GGUF_TOKENIZER_INTERNAL_H
#define ATTN_IO_GGUF_TOKENIZER_INTERNAL_H

#include <stdbool.h>
#include "io/gguf_tokenizer.h"
#include "io/io_error.h"

#define SHOWN 96

enum { TOKEN_UNKNOWN = 2, TOKEN_CONTROL = 3, TOKEN_USER_DEFINED = 4 }; /* values of tokenizer.ggml.token_type */

typedef struct build {
    const attn_gguf *gguf;
    enum { KIND_BYTE_LEVEL, KIND_SENTENCEPIECE, KIND_WORDPIECE, KIND_OTHER } kind;
    attn_gguf_string *tokens, *merges;
    int64_t *types;  /* NULL: every token is ordinary */
    double *scores;  /* SENTENCEPIECE */
    char *spelled;   /* WORDPIECE: the texts of tokens */
    size_t n_tokens, n_merges, n_scores;
    attn_gguf_string split;
    char *error;
    size_t error_size;
} build;

#define FAIL(b, status, ...)                                                                       \
    ((void)attn_io_fail((b)->error, (b)->error_size, status, __VA_ARGS__), status)
#define NO_MEMORY(b) attn_gguf_tokenizer_no_memory(b)

attn_status attn_gguf_tokenizer_no_memory(const build *b);
/* Fills an object: token to id. */
attn_status attn_gguf_tokenizer_vocabulary(const build *b, json_t *vocabulary);
/* The token that `key` names, as a new string; NULL with *status ATTN_OK where the file has no such key. */
json_t *attn_gguf_tokenizer_token(const build *b, const char *key, int64_t *id, attn_status *status);

/* SentencePiece (gguf_tokenizer_spm.c): the steps around the model, new references, and the model. */
attn_status attn_gguf_spm_steps(const build *b, json_t **normalizer, json_t **split, json_t **decoder);
attn_status attn_gguf_spm_model(const build *b, json_t **model);

/* WordPiece (gguf_tokenizer_words.c). Pieces that begin a word have U+2581 in front there, and others nothing: _spelling gives
 * b->tokens BERT's ## back. */
attn_status attn_gguf_wordpiece_spelling(build *b);
attn_status attn_gguf_wordpiece_steps(const build *b, json_t **normalizer, json_t **split, json_t **post, json_t **decoder);
attn_status attn_gguf_wordpiece_model(const build *b, json_t **model);

#endif
