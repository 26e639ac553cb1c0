/* pair_table.c - a hash table of pairs and a binary heap over their counts. */
#include "train/pair_table.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "train/train_error.h"

static size_t slot_of(const attn_pair_table *t, uint64_t key)
{
    size_t at = (size_t)((key * 0x9E3779B97F4A7C15u) >> 20) & (t->n_slots - 1);
    while (t->slots[at] && t->data[t->slots[at] - 1].key != key)
        at = (at + 1) & (t->n_slots - 1);
    return at;
}

static attn_status grow_slots(attn_pair_table *t)
{
    if (2 * (t->n + 1) <= t->n_slots)
        return ATTN_OK;
    size_t n_slots = t->n_slots ? 2 * t->n_slots : 4096;
    uint32_t *slots = calloc(n_slots, sizeof *slots);
    if (!slots)
        return attn_train_no_memory();
    free(t->slots);
    t->slots = slots;
    t->n_slots = n_slots;
    for (size_t i = 0; i < t->n; i++)
        t->slots[slot_of(t, t->data[i].key)] = (uint32_t)i + 1;
    return ATTN_OK;
}

/* The pair with this key, made with count 0 where it is new; NULL: out of memory. */
static attn_pair *pair_of(attn_pair_table *t, uint64_t key)
{
    if (grow_slots(t) != ATTN_OK)
        return NULL;
    size_t slot = slot_of(t, key);
    if (t->slots[slot])
        return &t->data[t->slots[slot] - 1];
    if (t->n == t->capacity) {
        size_t capacity = t->capacity ? 2 * t->capacity : 4096;
        attn_pair *data = capacity < UINT32_MAX ? realloc(t->data, capacity * sizeof *data) : NULL;
        if (!data)
            return NULL;
        t->data = data;
        t->capacity = capacity;
    }
    t->data[t->n] = (attn_pair){.key = key};
    t->slots[slot] = (uint32_t)++t->n;
    return &t->data[t->n - 1];
}

attn_status attn_pair_add(attn_pair_table *t, uint64_t key, int64_t by, uint32_t word)
{
    attn_pair *pair = pair_of(t, key);
    if (!pair)
        return attn_train_no_memory();
    pair->count += by;
    if (by <= 0 || word == ATTN_PAIR_NO_WORD || (pair->n_words && pair->words[pair->n_words - 1] == word))
        return ATTN_OK;
    if (pair->n_words == pair->words_capacity) {
        size_t capacity = pair->words_capacity ? 2 * pair->words_capacity : 4;
        uint32_t *words = realloc(pair->words, capacity * sizeof *words);
        if (!words)
            return attn_train_no_memory();
        pair->words = words;
        pair->words_capacity = capacity;
    }
    pair->words[pair->n_words++] = word;
    return ATTN_OK;
}

static bool before(const attn_pair_rank *a, const attn_pair_rank *b)
{
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static attn_status push(attn_pair_table *t, attn_pair_rank entry)
{
    if (t->n_heap == t->heap_capacity) {
        size_t capacity = t->heap_capacity ? 2 * t->heap_capacity : 4096;
        attn_pair_rank *heap = realloc(t->heap, capacity * sizeof *heap);
        if (!heap)
            return attn_train_no_memory();
        t->heap = heap;
        t->heap_capacity = capacity;
    }
    size_t at = t->n_heap++;
    for (; at > 0 && before(&entry, &t->heap[(at - 1) / 2]); at = (at - 1) / 2)
        t->heap[at] = t->heap[(at - 1) / 2];
    t->heap[at] = entry;
    return ATTN_OK;
}

static attn_pair_rank pop(attn_pair_table *t)
{
    attn_pair_rank top = t->heap[0], last = t->heap[--t->n_heap];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= t->n_heap)
            break;
        if (child + 1 < t->n_heap && before(&t->heap[child + 1], &t->heap[child]))
            child++;
        if (!before(&t->heap[child], &last))
            break;
        t->heap[at] = t->heap[child];
        at = child;
    }
    if (t->n_heap)
        t->heap[at] = last;
    return top;
}

attn_status attn_pair_rank_it(attn_pair_table *t, uint64_t key)
{
    size_t slot = slot_of(t, key);
    uint32_t pair = t->slots[slot] - 1;
    return push(t, (attn_pair_rank){t->data[pair].count, key, pair});
}

attn_status attn_pair_rank_all(attn_pair_table *t)
{
    for (size_t i = 0; i < t->n; i++)
        ATTN_TRAIN_TRY(push(t, (attn_pair_rank){t->data[i].count, t->data[i].key, (uint32_t)i}));
    return ATTN_OK;
}

/* Counts only fall behind the heap's back (new pairs are ranked when they are made), so an entry whose count is
 * out of date goes back with the right one. */
attn_pair *attn_pair_best(attn_pair_table *t)
{
    while (t->n_heap) {
        attn_pair_rank top = pop(t);
        attn_pair *pair = &t->data[top.pair];
        if (pair->count <= 0)
            continue;
        if (pair->count == top.count)
            return pair;
        push(t, (attn_pair_rank){pair->count, top.key, top.pair}); /* there is room: one was taken */
    }
    return NULL;
}

void attn_pair_table_free(attn_pair_table *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->data[i].words);
    free(t->data);
    free(t->slots);
    free(t->heap);
    memset(t, 0, sizeof *t);
}
