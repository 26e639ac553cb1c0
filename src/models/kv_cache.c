/* kv_cache.c - arrays of keys and values that grow. */
#include "models/kv_cache.h"
#include <stdlib.h>
#include <string.h>
#include "core/view.h"

static int n_arrays(const attn_kv_cache *c)
{
    return c->dtype == ATTN_I8 ? 4 : 2;
}

static int32_t array_dtype(const attn_kv_cache *c, int which)
{
    return which < ATTN_KV_KEY_SCALE ? c->dtype : ATTN_F32;
}

/* Bytes of one token of one head. */
static size_t row_bytes(const attn_kv_cache *c, int which)
{
    return (which < ATTN_KV_KEY_SCALE ? (size_t)c->dim : 1) * attn_dtype_size(array_dtype(c, which));
}

attn_status attn_kv_create(attn_kv_cache *c, int32_t dtype, int64_t n_layers, int64_t batch, int64_t heads, int64_t dim)
{
    *c = (attn_kv_cache){.dtype = dtype, .n_layers = n_layers, .batch = batch, .heads = heads, .dim = dim};
    for (int w = 0; w < n_arrays(c); w++)
        if ((c->arrays[w] = calloc((size_t)n_layers, sizeof *c->arrays[w])) == NULL)
            return ATTN_ERR_OUT_OF_MEMORY;
    return ATTN_OK;
}

void attn_kv_destroy(attn_kv_cache *c)
{
    for (int w = 0; w < 4; w++) {
        for (int64_t l = 0; c->arrays[w] && l < c->n_layers; l++)
            free(c->arrays[w][l]);
        free(c->arrays[w]);
        c->arrays[w] = NULL;
    }
}

/* Copies the used rows of every sequence and head into an array of another capacity. */
static void move_rows(const attn_kv_cache *c, int which, const char *from, char *to, int64_t capacity,
                      const int64_t *lengths)
{
    const size_t row = row_bytes(c, which);
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t h = 0; h < c->heads; h++)
            memcpy(to + (size_t)((b * c->heads + h) * capacity) * row,
                   from + (size_t)((b * c->heads + h) * c->capacity) * row, (size_t)lengths[b] * row);
}

attn_status attn_kv_grow(attn_kv_cache *c, int64_t capacity, const int64_t *lengths)
{
    const int64_t n = n_arrays(c) * c->n_layers;
    if ((double)c->batch * (double)c->heads * (double)capacity * (double)row_bytes(c, ATTN_KV_KEY) > 0x1p46)
        return ATTN_ERR_OUT_OF_MEMORY;
    void **grown = calloc((size_t)n, sizeof *grown);
    bool enough = grown != NULL;
    for (int64_t i = 0; enough && i < n; i++)
        enough = (grown[i] = malloc((size_t)(c->batch * c->heads * capacity) * row_bytes(c, (int)(i / c->n_layers)))) != NULL;
    for (int64_t i = 0; grown && i < n; i++) {
        const int which = (int)(i / c->n_layers);
        void **array = &c->arrays[which][i % c->n_layers];
        if (!enough) {
            free(grown[i]);
            continue;
        }
        if (*array)
            move_rows(c, which, *array, grown[i], capacity, lengths);
        free(*array);
        *array = grown[i];
    }
    free(grown);
    if (!enough)
        return ATTN_ERR_OUT_OF_MEMORY;
    c->capacity = capacity;
    return ATTN_OK;
}

attn_cview attn_kv_view(const attn_kv_cache *c, int which, int64_t layer, int64_t entry, int64_t batch, int64_t n)
{
    attn_cview v;
    memset(&v, 0, sizeof v);
    if (which >= n_arrays(c))
        return v;
    const int64_t width = which < ATTN_KV_KEY_SCALE ? c->dim : 1;
    const char *data = c->arrays[which][layer];
    v = attn_cview_of(data + (size_t)(entry * c->heads * c->capacity) * row_bytes(c, which), array_dtype(c, which), batch,
                      c->heads, n, width);
    v.stride[0] = c->heads * c->capacity * width;
    v.stride[1] = c->capacity * width;
    return v;
}

int64_t attn_kv_token_bytes(int32_t dtype, int64_t n_layers, int64_t heads, int64_t dim)
{
    return 2 * n_layers * heads * (dim * (int64_t)attn_dtype_size(dtype) + (dtype == ATTN_I8 ? 4 : 0));
}
