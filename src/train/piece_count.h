/* piece_count.h - how often each piece of GPT-2's split comes in texts: what BPE is learnt from. */
#ifndef ATTN_TRAIN_PIECE_COUNT_H
#define ATTN_TRAIN_PIECE_COUNT_H

#include <stdint.h>
#include "attn/tokenizer.h"

typedef struct attn_piece {
    const char *bytes; /* within the texts */
    uint32_t size, hash;
    int64_t count;
} attn_piece;

typedef struct attn_pieces {
    attn_piece *data; /* in the order of their first appearance */
    size_t n, capacity;
    uint32_t *slots; /* open addressing: index + 1, 0 empty */
    size_t n_slots;
} attn_pieces;

/* Adds the pieces of one text, whose bytes must outlive `pieces`. `index` names the text in messages.
 * Returns OK; FORMAT (ill-formed UTF-8); OUT_OF_MEMORY. */
attn_status attn_pieces_add_text(attn_pieces *pieces, const attn_text *text, int64_t index);

void attn_pieces_free(attn_pieces *pieces);

/* OK, or FORMAT naming the text and the byte where UTF-8 is ill-formed. */
attn_status attn_train_check_utf8(const attn_text *text, int64_t index);

#endif
