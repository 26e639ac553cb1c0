/* pair_table.h - neighbouring symbols: how often each pair comes, in which words, and which comes most. */
#ifndef ATTN_TRAIN_PAIR_TABLE_H
#define ATTN_TRAIN_PAIR_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include "attn/attn.h"

typedef struct attn_pair {
    uint64_t key;    /* left << 32 | right */
    int64_t count;
    uint32_t *words; /* where it comes or came; a word may be there more than once */
    size_t n_words, words_capacity;
} attn_pair;

typedef struct attn_pair_rank { /* an entry of the heap: right only while count is the pair's */
    int64_t count;
    uint64_t key;
    uint32_t pair;
} attn_pair_rank;

typedef struct attn_pair_table {
    attn_pair *data;
    size_t n, capacity;
    uint32_t *slots;
    size_t n_slots;
    attn_pair_rank *heap; /* the most frequent pair first, equal counts by lower key */
    size_t n_heap, heap_capacity;
} attn_pair_table;

static inline uint64_t attn_pair_key(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

#define ATTN_PAIR_NO_WORD UINT32_MAX

/* Adds `by` (may be negative) to a pair's count; where by > 0 also notes that it comes in `word` (unless NO_WORD).
 * Returns OK; OUT_OF_MEMORY. */
attn_status attn_pair_add(attn_pair_table *table, uint64_t key, int64_t by, uint32_t word);

/* Puts a pair into the heap with its present count. */
attn_status attn_pair_rank_it(attn_pair_table *table, uint64_t key);

/* Puts every pair into the heap. */
attn_status attn_pair_rank_all(attn_pair_table *table);

/* Takes the most frequent pair out of the heap: NULL when none is left. Valid until the next _add. */
attn_pair *attn_pair_best(attn_pair_table *table);

void attn_pair_table_free(attn_pair_table *table);

#endif
