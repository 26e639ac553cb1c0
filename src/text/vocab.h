/* vocab.h - the strings of a tokenizer and their ids, and two small hash tables. */
#ifndef ATTN_TEXT_VOCAB_H
#define ATTN_TEXT_VOCAB_H

#include <stdint.h>

#include "text/strbuf.h"

/* Hash of bytes for tables in memory only. */
uint64_t attn_hash_bytes(const char *bytes, size_t len);

/* ---- Strings to numbers ---- */

typedef struct attn_strmap_slot {
    uint32_t hash;
    int32_t value; /* -1: empty */
    size_t at;     /* of the key, in keys */
    size_t len;
} attn_strmap_slot;

/* Open addressing, linear probing, never deletes. Keys are copied. Values are 0 or more. */
typedef struct attn_strmap {
    attn_strbuf keys;
    attn_strmap_slot *slots;
    size_t n_slots; /* a power of two, or 0 */
    size_t count;
    size_t max_len; /* longest key */
} attn_strmap;

attn_status attn_strmap_reserve(attn_strmap *map, size_t count);
/* Adds or replaces. */
attn_status attn_strmap_put(attn_strmap *map, const char *key, size_t len, int32_t value);
/* -1 when the key is not there. */
int32_t attn_strmap_get(const attn_strmap *map, const char *key, size_t len);
void attn_strmap_free(attn_strmap *map);

/* ---- 64-bit keys to 64-bit values ---- */

typedef struct attn_pairmap_slot {
    uint64_t key; /* UINT64_MAX: empty */
    uint64_t value;
} attn_pairmap_slot;

typedef struct attn_pairmap {
    attn_pairmap_slot *slots;
    size_t n_slots, count;
    int shift; /* 64 - log2(n_slots) */
} attn_pairmap;

attn_status attn_pairmap_reserve(attn_pairmap *map, size_t count);
/* Adds or replaces. key may not be UINT64_MAX. */
attn_status attn_pairmap_put(attn_pairmap *map, uint64_t key, uint64_t value);
void attn_pairmap_free(attn_pairmap *map);

/* The value of key, or UINT64_MAX. */
static inline uint64_t attn_pairmap_get(const attn_pairmap *map, uint64_t key)
{
    if (!map->n_slots)
        return UINT64_MAX;
    size_t i = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> map->shift);
    for (;; i = (i + 1) & (map->n_slots - 1)) {
        if (map->slots[i].key == key)
            return map->slots[i].value;
        if (map->slots[i].key == UINT64_MAX)
            return UINT64_MAX;
    }
}

/* ---- The vocabulary ---- */

enum { /* attn_token_entry.flags */
    ATTN_TOKEN_SPECIAL = 1,
    ATTN_TOKEN_ADDED = 2,
    ATTN_TOKEN_OUTSIDE = 4, /* not in the model's vocabulary: found as an added token only */
    ATTN_TOKEN_RESPELLED = 8 /* decoding shows another text, which is then no special token's: it is not left out */
};

typedef struct attn_token_entry {
    size_t at;       /* of the spelling in text, where a zero byte follows it */
    size_t shown_at; /* of what decoding makes of it: the spelling, but for added tokens that are normalised */
    uint32_t len, shown_len;
    int32_t id;
    uint32_t flags;
} attn_token_entry;

/* Tokens are held in the order in which they were added ("entries"); ids may have gaps, so memory follows the
 * number of tokens and never the highest id. */
typedef struct attn_vocab {
    attn_strbuf text;
    attn_token_entry *entries;
    size_t n_entries, entries_cap;
    attn_strmap by_text; /* spelling -> entry */
    attn_pairmap by_id;  /* id -> entry, where ids are not simply the entries */
    bool dense;          /* id == entry for all */
    int32_t max_id;      /* -1 when empty */
} attn_vocab;

/* Adds a spelling with its id; a spelling or id that is there already is replaced in the look-ups. *entry may be
 * NULL. */
attn_status attn_vocab_add(attn_vocab *vocab, const char *text, size_t len, int32_t id, int32_t *entry);
/* The entry of a spelling, -1 when there is none. */
int32_t attn_vocab_find(const attn_vocab *vocab, const char *text, size_t len);
/* The same, of the model's own vocabulary. */
int32_t attn_vocab_find_model(const attn_vocab *vocab, const char *text, size_t len);
/* The entry of an id, -1 when there is none. */
int32_t attn_vocab_entry_of(const attn_vocab *vocab, int32_t id);
void attn_vocab_free(attn_vocab *vocab);

static inline const char *attn_vocab_text(const attn_vocab *vocab, int32_t entry, size_t *len)
{
    *len = vocab->entries[entry].len;
    return vocab->text.data + vocab->entries[entry].at;
}

static inline int32_t attn_vocab_id(const attn_vocab *vocab, const char *text, size_t len)
{
    int32_t entry = attn_vocab_find(vocab, text, len);
    return entry < 0 ? -1 : vocab->entries[entry].id;
}

#endif
