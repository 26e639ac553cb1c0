#include "ops/sdpa/decode_append.h"
#include "core/half.h"
#include "core/view.h"

#include <math.h>

/* Index on axes 0 and 2 of the cache where token `position` of batch entry b lies. */
static void token_slot(const attn_decode_args *a, int64_t b, int64_t position, int64_t *first, int64_t *row)
{
    int64_t size = a->cache_key.shape[2];
    *first = b;
    *row = position;
    if (a->layout.block_table) {
        *first = a->layout.block_table[b * a->layout.block_table_stride + position / size];
        *row = position % size;
    } else if (a->layout.ring) {
        *row = position % size;
    }
}

/* Rounds to an integer, nearest even, |x| <= 2^22: the sum with 1.5 * 2^23 has no bits below 1. */
static float round_small(float x)
{
    const float magic = 0x1.8p23f;
    return (x + magic) - magic;
}

static float absolute_max(const attn_cview *from, int64_t at, int64_t n, bool *finite)
{
    float most = 0, poison = 0;
    if (from->dtype == ATTN_F32 && from->stride[3] == 1) {
        const float *x = (const float *)from->data + at;
        for (int64_t d = 0; d < n; d++) {
            float size = fabsf(x[d]);
            most = size > most ? size : most;
            poison += x[d] * 0.0f; /* NaN from infinity and NaN */
        }
    } else {
        for (int64_t d = 0; d < n; d++) {
            float x = (float)attn_load_element(from->data, from->dtype, at + d * from->stride[3]);
            most = fabsf(x) > most ? fabsf(x) : most;
            poison += x * 0.0f;
        }
    }
    *finite = poison == 0;
    return most;
}

static void quantise_row(const attn_view *to, int64_t to_at, const attn_cview *from, int64_t from_at, float *scale)
{
    int64_t n = to->shape[3], step = to->stride[3];
    int8_t *out = (int8_t *)to->data + to_at;
    bool finite;
    *scale = (float)((double)absolute_max(from, from_at, n, &finite) / 127.0);
    if (!finite)
        *scale = NAN;
    if (!finite || *scale == 0) {
        for (int64_t d = 0; d < n; d++)
            out[d * step] = 0;
        return;
    }
    const float *x = (const float *)from->data + from_at;
    bool plain = from->dtype == ATTN_F32 && from->stride[3] == 1;
    for (int64_t d = 0; d < n; d++) {
        float value = plain ? x[d] : (float)attn_load_element(from->data, from->dtype, from_at + d * from->stride[3]);
        float level = round_small(value / *scale); /* a subnormal scale is coarse: the quotient may pass 127 */
        out[d * step] = (int8_t)(level > 127 ? 127 : level < -127 ? -127 : level);
    }
}

static void convert_row(const attn_view *to, int64_t to_at, const attn_cview *from, int64_t from_at)
{
    int64_t n = to->shape[3];
    bool plain = to->stride[3] == 1 && from->stride[3] == 1;
    if (plain && to->dtype == from->dtype) {
        size_t size = attn_dtype_size(to->dtype);
        if (n > 0)
            memcpy((char *)to->data + (size_t)to_at * size, (const char *)from->data + (size_t)from_at * size, (size_t)n * size);
        return;
    }
    if (plain && from->dtype == ATTN_F32 && (to->dtype == ATTN_BF16 || to->dtype == ATTN_F16)) {
        const float *x = (const float *)from->data + from_at;
        uint16_t *out = (uint16_t *)to->data + to_at;
        if (to->dtype == ATTN_BF16)
            for (int64_t d = 0; d < n; d++)
                out[d] = attn_f32_to_bf16(x[d]);
        else
            for (int64_t d = 0; d < n; d++)
                out[d] = attn_f32_to_f16(x[d]);
        return;
    }
    for (int64_t d = 0; d < n; d++)
        attn_store_element(to->data, to->dtype, to_at + d * to->stride[3],
                           attn_load_element(from->data, from->dtype, from_at + d * from->stride[3]));
}

static void append_row(const attn_view *cache, const attn_view *scale, const attn_cview *from, int64_t b, int64_t g, int64_t i,
                       int64_t first, int64_t row)
{
    int64_t to_at = attn_offset(cache->stride, first, g, row, 0), from_at = attn_offset(from->stride, b, g, i, 0);
    if (cache->dtype == ATTN_I8)
        quantise_row(cache, to_at, from, from_at, (float *)scale->data + attn_offset(scale->stride, first, g, row, 0));
    else
        convert_row(cache, to_at, from, from_at);
}

/* One task: all new tokens of one kv head of one batch entry. */
static void append_task(void *arg, int64_t task, int32_t worker)
{
    const attn_decode_args *a = arg;
    int64_t heads = a->cache_key.shape[1], b = task / heads, g = task % heads;
    int64_t n = a->new_len ? a->new_len[b] : a->query.shape[2];
    (void)worker;
    for (int64_t i = 0; i < n; i++) {
        int64_t first, row;
        token_slot(a, b, a->cache_len[b] + i, &first, &row);
        append_row(&a->cache_key, &a->cache_key_scale, &a->new_key, b, g, i, first, row);
        append_row(&a->cache_value, &a->cache_value_scale, &a->new_value, b, g, i, first, row);
    }
}

void attn_decode_append(attn_ctx *ctx, const attn_decode_args *a)
{
    int64_t n_tasks = a->query.shape[0] * a->cache_key.shape[1];
    double work = (double)n_tasks * (double)a->query.shape[2] * (double)(a->cache_key.shape[3] + a->cache_value.shape[3]);
    attn_decode_args copy = *a;
    attn_ctx_for(ctx, n_tasks, attn_ctx_workers(ctx, n_tasks, work), append_task, &copy);
}
