/* fuzz_op_decode.c - decode calls over caches of every kind. The input's bytes choose sizes, types, rules and, for up to three
 * calls, how many tokens each sequence gets; the same tokens go through a contiguous cache and through a paged one or a ring, which
 * must give the same bits. Then one number of the last call is spoiled: any status may come back, and no byte beyond the arrays,
 * which have exactly their size, may be touched. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "core/view.h"

enum { MOST_BATCH = 3, MOST_ARRAYS = 64 };

typedef struct fuzz_input {
    const uint8_t *data;
    size_t left;
} fuzz_input;

static int64_t pick(fuzz_input *in, int64_t low, int64_t high)
{
    if (in->left == 0)
        return low;
    in->left--;
    return low + *in->data++ % (high - low + 1);
}

static void *arrays[MOST_ARRAYS];
static int n_arrays;

/* Exactly `bytes`, filled with a pattern of small numbers. */
static void *array_of(int32_t dtype, int64_t count)
{
    size_t size = attn_dtype_size(dtype);
    void *x = malloc((size_t)count * size + (count == 0));
    if (!x || n_arrays == MOST_ARRAYS)
        abort();
    arrays[n_arrays++] = x;
    for (int64_t n = 0; n < count; n++) {
        double value = (double)(n * 37 % 101 - 50) / 32;
        if (size == 1)
            ((uint8_t *)x)[n] = (uint8_t)(dtype == ATTN_BOOL ? n % 5 != 0 : n % 120);
        else
            attn_store_element(x, dtype, n, value);
    }
    return x;
}

typedef struct shapes {
    int64_t batch, kv_heads, group, dim, value_dim, capacity, n_new, prefix;
    int32_t query, cache, fresh;
} shapes;

static attn_view view_of(int32_t dtype, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return attn_view_of(array_of(dtype, a * b * c * d), dtype, a, b, c, d);
}

static attn_cview cview_of(int32_t dtype, int64_t a, int64_t b, int64_t c, int64_t d)
{
    attn_view v = view_of(dtype, a, b, c, d);
    return attn_view_const(&v);
}

static void make_cache(attn_decode_args *a, const shapes *s, int64_t n, int64_t rows)
{
    a->cache_key = view_of(s->cache, n, s->kv_heads, rows, s->dim);
    a->cache_value = view_of(s->cache, n, s->kv_heads, rows, s->value_dim);
    a->cache_key_scale = view_of(ATTN_F32, n, s->kv_heads, rows, 1);
    a->cache_value_scale = view_of(ATTN_F32, n, s->kv_heads, rows, 1);
}

/* A second cache for the same tokens: blocks in falling order, or a ring. */
static void make_other(attn_decode_args *a, const shapes *s, fuzz_input *in)
{
    if ((a->mask.flags & ATTN_MASK_WINDOW) && a->mask.left >= 0 && pick(in, 0, 1)) {
        make_cache(a, s, s->batch, a->mask.left + s->n_new + pick(in, 0, 3) + 1);
        a->layout.ring = 1;
        return;
    }
    int64_t size = pick(in, 1, 20), per = (s->capacity + size - 1) / size, n = s->batch * per + pick(in, 0, 2);
    int32_t *table = malloc((size_t)(s->batch * per) * sizeof *table);
    if (!table)
        abort();
    arrays[n_arrays++] = table;
    for (int64_t k = 0; k < s->batch * per; k++)
        table[k] = (int32_t)(n - 1 - k);
    make_cache(a, s, n, size);
    a->layout.block_table = table;
    a->layout.block_table_stride = per;
}

static void make_rules(attn_decode_args *a, const shapes *s, fuzz_input *in)
{
    attn_mask *m = &a->mask;
    int64_t heads = s->kv_heads * s->group, positions = s->prefix + s->capacity;
    int64_t rules = pick(in, 0, 255);
    if (rules & 1)
        m->flags |= ATTN_MASK_CAUSAL;
    if (rules & 2) {
        m->flags |= ATTN_MASK_WINDOW;
        m->left = pick(in, 0, 30) - 1;
        m->right = pick(in, 0, 5) - 1;
    }
    if (rules & 4)
        m->alibi_slopes = array_of(ATTN_F32, heads);
    if (rules & 8)
        a->sinks = array_of(ATTN_F32, heads);
    if (rules & 16)
        a->softcap = 2;
    if (rules & 32)
        m->allow = cview_of(ATTN_BOOL, 1, heads, s->n_new, positions);
    if (rules & 64)
        m->bias = cview_of(ATTN_F32, s->batch, 1, s->n_new, positions);
    if (rules & 128) {
        m->rel_left = pick(in, 0, 9), m->rel_right = pick(in, 0, 9);
        m->relative_stride = m->rel_left + m->rel_right + 1;
        m->relative = array_of(ATTN_F32, heads * m->relative_stride);
    }
}

/* One number of the call becomes another. */
static void spoil(attn_decode_args *a, int64_t *cache_len, int64_t *new_len, fuzz_input *in)
{
    int64_t amount = pick(in, 0, 40) - 20;
    switch (pick(in, 0, 9)) {
    case 0: cache_len[0] += amount; break;
    case 1: new_len[0] += amount; break;
    case 2: a->layout.block_table_stride += amount; break;
    case 3: a->cache_key.shape[2] += amount; break;
    case 4: a->query.shape[2] += amount; break;
    case 5: a->cache_key.shape[0] += amount; break;
    case 6: a->mask.left += amount; break;
    case 7: a->layout.ring = amount; break;
    case 8: a->cache_value.shape[3] += amount; break;
    default: a->prefix_key.shape[2] += amount; break;
    }
    /* what the call may still read and write must be there: only sizes that shrink are run */
    if (amount > 0)
        a->query.data = NULL;
}

static void run(attn_ctx *ctx, fuzz_input *in)
{
    static const int32_t queries[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_F64}, caches[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_I8};
    shapes s = {.batch = pick(in, 1, MOST_BATCH), .kv_heads = pick(in, 1, 2), .group = pick(in, 1, 5), .dim = pick(in, 1, 20), .value_dim = pick(in, 1, 20)};
    s.query = queries[pick(in, 0, 3)];
    s.cache = s.query == ATTN_F64 ? ATTN_F64 : caches[pick(in, 0, 3)];
    s.fresh = queries[pick(in, 0, 3)];
    s.n_new = pick(in, 0, 40);
    s.capacity = 3 * s.n_new + pick(in, 0, 200) + 1;
    s.prefix = s.cache != ATTN_I8 && pick(in, 0, 2) == 0 ? pick(in, 0, 30) : 0;
    attn_decode_args calls[2];
    ATTN_ARGS_INIT(&calls[0]);
    make_rules(&calls[0], &s, in);
    int64_t heads = s.kv_heads * s.group, rows = s.batch * heads * s.n_new, cache_len[MOST_BATCH], new_len[MOST_BATCH];
    if (s.prefix > 0) {
        calls[0].prefix_key = cview_of(s.cache, 1, s.kv_heads, s.prefix, s.dim);
        calls[0].prefix_value = cview_of(s.cache, 1, s.kv_heads, s.prefix, s.value_dim);
    }
    calls[0].cache_len = cache_len;
    calls[0].new_len = new_len;
    calls[1] = calls[0];
    make_cache(&calls[0], &s, s.batch, s.capacity);
    make_other(&calls[1], &s, in);
    for (int64_t b = 0; b < s.batch; b++)
        cache_len[b] = 0;
    for (int step = 0; step < 3; step++) {
        for (int64_t b = 0; b < s.batch; b++)
            new_len[b] = pick(in, 0, s.n_new);
        attn_cview query = cview_of(s.query, s.batch, heads, s.n_new, s.dim), key = cview_of(s.fresh, s.batch, s.kv_heads, s.n_new, s.dim),
                   value = cview_of(s.fresh, s.batch, s.kv_heads, s.n_new, s.value_dim);
        for (int n = 0; n < 2; n++) {
            calls[n].query = query, calls[n].new_key = key, calls[n].new_value = value;
            calls[n].out = view_of(s.query, s.batch, heads, s.n_new, s.value_dim);
            calls[n].lse = array_of(s.query == ATTN_F64 ? ATTN_F64 : ATTN_F32, rows);
            if (attn_sdpa_decode(ctx, &calls[n], NULL, 0) != ATTN_OK)
                abort();
        }
        if (memcmp(calls[0].out.data, calls[1].out.data, (size_t)(rows * s.value_dim) * attn_dtype_size(s.query)) ||
            memcmp(calls[0].lse, calls[1].lse, (size_t)rows * (s.query == ATTN_F64 ? 8 : 4)))
            abort();
        for (int64_t b = 0; b < s.batch; b++)
            cache_len[b] += new_len[b];
    }
    for (int64_t b = 0; b < s.batch; b++)
        cache_len[b] = 0;
    spoil(&calls[pick(in, 0, 1)], cache_len, new_len, in);
    for (int n = 0; n < 2; n++)
        if (attn_sdpa_decode(ctx, &calls[n], NULL, 0) != ATTN_OK && !*attn_ctx_error(ctx))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static attn_ctx *contexts[2];
    fuzz_input in = {data, size};
    for (int n = 0; n < 2 && !contexts[n]; n++) {
        attn_ctx_options options;
        ATTN_ARGS_INIT(&options);
        options.n_threads = 1;
        options.max_isa = n == 0 ? ATTN_ISA_BEST : ATTN_ISA_SCALAR;
        if (attn_ctx_create(&options, &contexts[n]) != ATTN_OK)
            abort();
    }
    if (size > 0 && size < 4096)
        run(contexts[pick(&in, 0, 1)], &in);
    while (n_arrays > 0)
        free(arrays[--n_arrays]);
    return 0;
}
