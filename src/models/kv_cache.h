/* kv_cache.h - a session's keys and values: one array for each layer, of a type that the session chose. */
#ifndef ATTN_MODELS_KV_CACHE_H
#define ATTN_MODELS_KV_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include "attn/attn.h"
#include "attn/model.h"

typedef struct attn_kv_cache {
    int32_t dtype;      /* ATTN_F32, ATTN_BF16, ATTN_F16; ATTN_I8: with one f32 scale for each token and head */
    int64_t n_layers, batch, heads, dim;
    int64_t capacity;   /* tokens per sequence */
    void **arrays[4];   /* [n_layers] each: keys, values [batch, heads, capacity, dim]; scales of both [.., 1] */
} attn_kv_cache;

enum { ATTN_KV_KEY = 0, ATTN_KV_VALUE = 1, ATTN_KV_KEY_SCALE = 2, ATTN_KV_VALUE_SCALE = 3 };

/* Empty arrays of capacity 0. Returns OK; OUT_OF_MEMORY (destroy it then, too). */
attn_status attn_kv_create(attn_kv_cache *cache, int32_t dtype, int64_t n_layers, int64_t batch, int64_t heads,
                           int64_t dim);
void attn_kv_destroy(attn_kv_cache *cache);

/* Gives every sequence room for `capacity` tokens, keeping the first lengths[b] of each.
 * Returns OK; OUT_OF_MEMORY (the cache is as it was). */
attn_status attn_kv_grow(attn_kv_cache *cache, int64_t capacity, const int64_t *lengths);

/* n tokens of `batch` sequences from `entry` on: [batch, heads, n, dim or 1]. which: ATTN_KV_*; an array that the type
 * has not gives a zeroed view. */
attn_cview attn_kv_view(const attn_kv_cache *cache, int which, int64_t layer, int64_t entry, int64_t batch, int64_t n);

/* Bytes of one token in all layers. */
int64_t attn_kv_token_bytes(int32_t dtype, int64_t n_layers, int64_t heads, int64_t dim);

#endif
