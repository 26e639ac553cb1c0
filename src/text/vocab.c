/* vocab.c - hash tables and the vocabulary. */
#include "text/vocab.h"

#include <limits.h>

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

static uint64_t load_word(const char *bytes, size_t n)
{
    uint64_t word = 0;
    memcpy(&word, bytes, n);
    return word;
}

uint64_t attn_hash_bytes(const char *bytes, size_t len)
{
    uint64_t hash = UINT64_C(0x9e3779b97f4a7c15) * (len + 1);
    if (len >= 8) {
        for (size_t i = 0; i + 8 < len; i += 8)
            hash = mix(hash ^ load_word(bytes + i, 8));
        return mix(hash ^ load_word(bytes + len - 8, 8)); /* the last eight, overlapping */
    }
    if (len >= 4)
        return mix(hash ^ (load_word(bytes, 4) << 32 | load_word(bytes + len - 4, 4)));
    if (len)
        hash ^= (uint64_t)(unsigned char)bytes[0] | (uint64_t)(unsigned char)bytes[len / 2] << 8 |
                (uint64_t)(unsigned char)bytes[len - 1] << 16;
    return mix(hash);
}

/* ---- Strings to numbers ---- */

static attn_strmap_slot *strmap_slot(const attn_strmap *map, const char *key, size_t len, uint64_t hash)
{
    size_t i = (size_t)hash & (map->n_slots - 1);
    for (;; i = (i + 1) & (map->n_slots - 1)) {
        attn_strmap_slot *slot = &map->slots[i];
        if (slot->value < 0 || (slot->hash == (uint32_t)(hash >> 32) && slot->len == len &&
                                !memcmp(map->keys.data + slot->at, key, len)))
            return slot;
    }
}

static attn_status strmap_rehash(attn_strmap *map, size_t n_slots)
{
    attn_strmap_slot *old = map->slots;
    size_t n_old = map->n_slots;
    if (n_slots > SIZE_MAX / sizeof *old)
        return attn_text_no_memory();
    attn_strmap_slot *slots = malloc(n_slots * sizeof *slots);
    if (!slots)
        return attn_text_no_memory();
    for (size_t i = 0; i < n_slots; i++)
        slots[i].value = -1;
    map->slots = slots;
    map->n_slots = n_slots;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].value >= 0) {
            const char *key = map->keys.data + old[i].at;
            *strmap_slot(map, key, old[i].len, attn_hash_bytes(key, old[i].len)) = old[i];
        }
    free(old);
    return ATTN_OK;
}

attn_status attn_strmap_reserve(attn_strmap *map, size_t count)
{
    size_t want = 16;
    while (want / 2 < count && want <= SIZE_MAX / 2)
        want *= 2;
    return want > map->n_slots ? strmap_rehash(map, want) : ATTN_OK;
}

attn_status attn_strmap_put(attn_strmap *map, const char *key, size_t len, int32_t value)
{
    ATTN_TEXT_TRY(attn_strmap_reserve(map, map->count + 1));
    if (!map->keys.data)
        ATTN_TEXT_TRY(attn_strbuf_reserve(&map->keys, len + 1));
    uint64_t hash = attn_hash_bytes(key, len);
    attn_strmap_slot *slot = strmap_slot(map, key, len, hash);
    if (slot->value < 0) {
        size_t at = map->keys.len;
        ATTN_TEXT_TRY(attn_strbuf_add(&map->keys, key, len));
        slot->hash = (uint32_t)(hash >> 32);
        slot->at = at;
        slot->len = len;
        map->count++;
        if (len > map->max_len)
            map->max_len = len;
    }
    slot->value = value;
    return ATTN_OK;
}

int32_t attn_strmap_get(const attn_strmap *map, const char *key, size_t len)
{
    if (!map->n_slots || len > map->max_len)
        return -1;
    return strmap_slot(map, key, len, attn_hash_bytes(key, len))->value;
}

void attn_strmap_free(attn_strmap *map)
{
    attn_strbuf_free(&map->keys);
    free(map->slots);
    memset(map, 0, sizeof *map);
}

/* ---- 64-bit keys ---- */

static attn_pairmap_slot *pairmap_slot(const attn_pairmap *map, uint64_t key)
{
    size_t i = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> map->shift);
    while (map->slots[i].key != key && map->slots[i].key != UINT64_MAX)
        i = (i + 1) & (map->n_slots - 1);
    return &map->slots[i];
}

static attn_status pairmap_rehash(attn_pairmap *map, size_t n_slots, int shift)
{
    attn_pairmap_slot *old = map->slots;
    size_t n_old = map->n_slots;
    if (n_slots > SIZE_MAX / sizeof *old)
        return attn_text_no_memory();
    attn_pairmap_slot *slots = malloc(n_slots * sizeof *slots);
    if (!slots)
        return attn_text_no_memory();
    memset(slots, 0xff, n_slots * sizeof *slots);
    map->slots = slots;
    map->n_slots = n_slots;
    map->shift = shift;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].key != UINT64_MAX)
            *pairmap_slot(map, old[i].key) = old[i];
    free(old);
    return ATTN_OK;
}

attn_status attn_pairmap_reserve(attn_pairmap *map, size_t count)
{
    size_t want = 16;
    int shift = 60;
    while (want / 2 < count && shift > 8) {
        want *= 2;
        shift--;
    }
    return want > map->n_slots ? pairmap_rehash(map, want, shift) : ATTN_OK;
}

attn_status attn_pairmap_put(attn_pairmap *map, uint64_t key, uint64_t value)
{
    ATTN_TEXT_TRY(attn_pairmap_reserve(map, map->count + 1));
    attn_pairmap_slot *slot = pairmap_slot(map, key);
    map->count += slot->key == UINT64_MAX;
    slot->key = key;
    slot->value = value;
    return ATTN_OK;
}

void attn_pairmap_free(attn_pairmap *map)
{
    free(map->slots);
    memset(map, 0, sizeof *map);
}

/* ---- The vocabulary ---- */

attn_status attn_vocab_add(attn_vocab *vocab, const char *text, size_t len, int32_t id, int32_t *entry)
{
    if (vocab->n_entries == INT32_MAX || len > INT32_MAX)
        return attn_text_fail(ATTN_ERR_UNSUPPORTED, "vocabulary: more than %d tokens or bytes in one", INT32_MAX);
    size_t n = vocab->n_entries;
    if (!n)
        vocab->dense = true, vocab->max_id = -1;
    ATTN_TEXT_TRY(attn_grow(&vocab->entries, &vocab->entries_cap, n + 1, sizeof *vocab->entries));
    size_t at = vocab->text.len;
    ATTN_TEXT_TRY(attn_strbuf_reserve(&vocab->text, len + 1));
    ATTN_TEXT_TRY(attn_strmap_put(&vocab->by_text, text, len, (int32_t)n));
    if (vocab->dense && id != (int32_t)n) {
        vocab->dense = false;
        for (size_t e = 0; e < n; e++)
            ATTN_TEXT_TRY(attn_pairmap_put(&vocab->by_id, e, e));
    }
    if (!vocab->dense)
        ATTN_TEXT_TRY(attn_pairmap_put(&vocab->by_id, (uint64_t)id, n));
    if (len)
        memcpy(vocab->text.data + at, text, len);
    vocab->text.data[at + len] = '\0';
    vocab->text.len = at + len + 1;
    vocab->entries[n] =
        (attn_token_entry){.at = at, .shown_at = at, .len = (uint32_t)len, .shown_len = (uint32_t)len, .id = id};
    vocab->n_entries++;
    if (id > vocab->max_id)
        vocab->max_id = id;
    if (entry)
        *entry = (int32_t)n;
    return ATTN_OK;
}

int32_t attn_vocab_find(const attn_vocab *vocab, const char *text, size_t len)
{
    return attn_strmap_get(&vocab->by_text, text, len);
}

int32_t attn_vocab_find_model(const attn_vocab *vocab, const char *text, size_t len)
{
    int32_t entry = attn_strmap_get(&vocab->by_text, text, len);
    return entry >= 0 && vocab->entries[entry].flags & ATTN_TOKEN_OUTSIDE ? -1 : entry;
}

int32_t attn_vocab_entry_of(const attn_vocab *vocab, int32_t id)
{
    if (id < 0 || vocab->n_entries == 0)
        return -1;
    if (vocab->dense)
        return (size_t)id < vocab->n_entries ? id : -1;
    uint64_t entry = attn_pairmap_get(&vocab->by_id, (uint64_t)id);
    return entry == UINT64_MAX ? -1 : (int32_t)entry;
}

void attn_vocab_free(attn_vocab *vocab)
{
    attn_strbuf_free(&vocab->text);
    free(vocab->entries);
    attn_strmap_free(&vocab->by_text);
    attn_pairmap_free(&vocab->by_id);
    memset(vocab, 0, sizeof *vocab);
}
