/* token_file.h - a file of token ids: 64 bytes of header (with a digest of all ids, checked when the file is
 * opened), then the training ids, then the validation ids, 2 bytes each where the vocabulary has at most 65,536
 * entries, else 4; little-endian. */
#ifndef ATTN_TRAIN_TOKEN_FILE_H
#define ATTN_TRAIN_TOKEN_FILE_H

#include "attn/train.h"
#include "io/mapped_file.h"

struct attn_train_data {
    attn_mapped_file *file;
    const uint8_t *train, *validation;
    int64_t width, vocab_size, n_train, n_validation, validation_bytes;
};

/* Id `at` of an array of ids of this file. */
int32_t attn_token_at(const attn_train_data *data, const uint8_t *ids, int64_t at);

#endif
