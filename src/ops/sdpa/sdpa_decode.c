/* sdpa_decode.c - attn_sdpa_decode and its workspace query: check, append, attend to prefix and cache, merge. */
#include "ops/sdpa/decode_append.h"
#include "ops/sdpa/run.h"
#include "ops/sdpa/validate.h"
#include "core/view.h"

#define LL(x) ((long long)(x))
#define MAX_TOKENS ((int64_t)1 << 40)

/* One call, resolved. Positions are counted from the prefix's first token; slots from the cache's. */
typedef struct decode_plan {
    attn_decode_args a;
    int64_t batch, n_new, prefix_len, longest; /* longest: most tokens that any cache holds after the call */
    bool appends, has_prefix;
    int64_t *kv_len, *q_len, *slot, *position; /* [batch]: tokens after, real new tokens, where new token 0 stands */
    unsigned char *written;                    /* paged: one bit per block that this call writes */
    attn_problem cache, prefix;
    attn_view partial[2];                      /* with a prefix: out of prefix and cache parts, */
    void *partial_lse[2];                      /* f32 (f64 with f64 queries) */
    size_t partial_offset[4], scratch_offset, bytes;
} decode_plan;

static size_t align_up(size_t bytes)
{
    return (bytes + ATTN_ALIGNMENT - 1) / ATTN_ALIGNMENT * ATTN_ALIGNMENT;
}

/* Word-wise "key." -> "cache_key." and so on: attn_sdpa_validate speaks of the forward call's fields. */
static void rename_fields(attn_ctx *ctx, const char *prefix)
{
    static const char *const fields[] = {"key.", "value.", "key_scale.", "value_scale."};
    char text[ATTN_ERROR_BYTES];
    size_t n = 0, length = strlen(prefix);
    for (const char *c = ctx->error; *c && n + length + 2 < sizeof text; c++) {
        bool starts = c == ctx->error || c[-1] == ' ';
        for (int f = 0; f < 4 && starts; f++)
            if (!strncmp(c, fields[f], strlen(fields[f]))) {
                memcpy(text + n, prefix, length);
                n += length;
                break;
            }
        text[n++] = *c;
    }
    text[n] = 0;
    memcpy(ctx->error, text, n + 1);
}

/* ---- Checks ------------------------------------------------------------------------------------- */

static attn_status check_mask_unset(attn_ctx *ctx, const attn_mask *m)
{
    ATTN_REQUIRE(ctx, !(m->flags & ATTN_MASK_OFFSET) && m->query_offset == 0 && !m->query_offsets,
                 "mask.query_offset is %lld with flags 0x%x: decode places new tokens itself, leave it unset",
                 LL(m->query_offset), m->flags);
    ATTN_REQUIRE(ctx, m->bias_offset == 0 && !m->bias_offsets,
                 "mask.bias_offset is %lld: decode places new tokens itself, leave it unset", LL(m->bias_offset));
    ATTN_REQUIRE(ctx, !m->kv_len && !m->q_len, "mask.kv_len or q_len is set: decode takes cache_len and new_len");
    ATTN_REQUIRE(ctx, !m->cu_seqlens_q && !m->cu_seqlens_k && m->n_segments == 0,
                 "mask.cu_seqlens_q, cu_seqlens_k or n_segments is set: decode takes no packed sequences");
    return ATTN_OK;
}

static attn_status check_new(attn_ctx *ctx, decode_plan *plan, const attn_cview *fresh, const attn_cview *cache,
                             const char *name, unsigned need)
{
    const int64_t want[4] = {plan->batch, cache->shape[1], plan->n_new, cache->shape[3]};
    ATTN_TRY(attn_check_view(ctx, fresh, name, need));
    if (fresh->dtype == ATTN_I8 || fresh->dtype == ATTN_BOOL)
        return attn_fail(ctx, ATTN_ERR_UNSUPPORTED, "%s.dtype is %s, must be f32, f64, bf16 or f16", name,
                         attn_dtype_name(fresh->dtype));
    for (int axis = 0; axis < 4; axis++)
        ATTN_REQUIRE(ctx, fresh->shape[axis] == want[axis], "%s.shape[%d] is %lld, must be %lld", name, axis,
                     LL(fresh->shape[axis]), LL(want[axis]));
    return ATTN_OK;
}

static attn_status check_prefix(attn_ctx *ctx, decode_plan *plan, unsigned need)
{
    const attn_cview *views[2] = {&plan->a.prefix_key, &plan->a.prefix_value};
    static const char *const names[2] = {"prefix_key", "prefix_value"};
    for (int n = 0; n < 2; n++) {
        const attn_cview *v = views[n];
        const attn_view *cache = n ? &plan->a.cache_value : &plan->a.cache_key;
        ATTN_TRY(attn_check_view(ctx, v, names[n], need));
        if (v->dtype == ATTN_I8 || v->dtype != cache->dtype)
            return attn_fail(ctx, ATTN_ERR_UNSUPPORTED, "%s.dtype is %s with a cache of %s: no kernel", names[n],
                             attn_dtype_name(v->dtype), attn_dtype_name(cache->dtype));
        const int64_t want[4] = {1, cache->shape[1], plan->a.prefix_key.shape[2], cache->shape[3]};
        for (int axis = 0; axis < 4; axis++)
            ATTN_REQUIRE(ctx, v->shape[axis] == want[axis], "%s.shape[%d] is %lld, must be %lld", names[n], axis,
                         LL(v->shape[axis]), LL(want[axis]));
    }
    plan->prefix_len = plan->a.prefix_key.shape[2];
    return ATTN_OK;
}

/* The oldest token of entry b that the first new token may see. */
static int64_t oldest_seen(const decode_plan *plan, int64_t b)
{
    const attn_mask *m = &plan->a.mask;
    int64_t reach = (m->flags & ATTN_MASK_WINDOW) && m->left >= 0 ? plan->slot[b] - m->left : 0;
    return reach > 0 ? reach : 0;
}

/* Lengths of one batch entry against the capacity, and a ring's window against what the call overwrites. */
static attn_status check_lengths(attn_ctx *ctx, decode_plan *plan, int64_t b)
{
    const attn_decode_args *a = &plan->a;
    int64_t held = a->cache_len[b], added = a->new_len ? a->new_len[b] : plan->n_new, size = a->cache_key.shape[2];
    ATTN_REQUIRE(ctx, held >= 0 && held <= MAX_TOKENS, "cache_len[%lld] is %lld, must be 0..2^40", LL(b), LL(held));
    ATTN_REQUIRE(ctx, added >= 0 && added <= plan->n_new, "new_len[%lld] is %lld, must be 0..%lld (query.shape[2])", LL(b),
                 LL(added), LL(plan->n_new));
    plan->kv_len[b] = held + added;
    plan->q_len[b] = added;
    plan->slot[b] = held;
    plan->position[b] = plan->prefix_len + held;
    if (held + added > plan->longest)
        plan->longest = held + added;
    if (a->layout.ring) {
        int64_t oldest = held + added - size; /* the first token that is still there afterwards */
        ATTN_REQUIRE(ctx, added == 0 || oldest <= oldest_seen(plan, b),
                     "cache_key.shape[2] is %lld: with cache_len[%lld] %lld and %lld new tokens this ring keeps tokens from %lld on, "
                     "but the window (mask.left) of the first new token reaches back to %lld",
                     LL(size), LL(b), LL(held), LL(added), LL(oldest), LL(oldest_seen(plan, b)));
    } else if (a->layout.block_table) {
        ATTN_REQUIRE(ctx, size > 0 || held + added == 0, "cache_key.shape[2] is 0 (block size)");
        ATTN_REQUIRE(ctx, held + added == 0 || (held + added - 1) / size < a->layout.block_table_stride,
                     "cache_len[%lld] is %lld and %lld are new, but layout.block_table_stride is %lld blocks of %lld", LL(b),
                     LL(held), LL(added), LL(a->layout.block_table_stride), LL(size));
    } else {
        ATTN_REQUIRE(ctx, held + added <= size, "cache_len[%lld] is %lld and %lld are new, but the capacity is %lld (cache_key.shape[2])",
                     LL(b), LL(held), LL(added), LL(size));
    }
    return ATTN_OK;
}

/* A block that this call writes may stand in one place only of what the call reads or writes. */
static attn_status check_block_sharing(attn_ctx *ctx, const decode_plan *plan)
{
    const attn_kv_layout *l = &plan->a.layout;
    int64_t size = plan->a.cache_key.shape[2], n_blocks = plan->a.cache_key.shape[0];
    memset(plan->written, 0, (size_t)(n_blocks + 7) / 8);
    for (int pass = 0; pass < 2; pass++) /* mark what is written; then look where else it stands */
        for (int64_t b = 0; b < plan->batch; b++) {
            if (plan->kv_len[b] == 0)
                continue;
            int64_t behind = (plan->kv_len[b] - 1) / size + 1, fresh = plan->q_len[b] ? plan->slot[b] / size : behind;
            for (int64_t n = pass ? oldest_seen(plan, b) / size : fresh; n < (pass ? fresh : behind); n++) {
                int32_t block = l->block_table[b * l->block_table_stride + n];
                if (block < 0 || block >= n_blocks)
                    continue; /* an entry without new tokens: not read */
                unsigned char bit = (unsigned char)(1u << (block % 8)), *byte = &plan->written[block / 8];
                ATTN_REQUIRE(ctx, !(*byte & bit), "layout.block_table[%lld, %lld] is %d, a block that this call writes elsewhere too",
                             LL(b), LL(n), block);
                if (!pass)
                    *byte |= bit;
            }
        }
    return ATTN_OK;
}

static attn_status check_overlaps(attn_ctx *ctx, const decode_plan *plan)
{
    const attn_decode_args *a = &plan->a;
    attn_cview out = attn_view_const(&a->out), cache[4] = {attn_view_const(&a->cache_key), attn_view_const(&a->cache_value),
                                                           attn_view_const(&a->cache_key_scale),
                                                           attn_view_const(&a->cache_value_scale)};
    static const char *const cache_names[4] = {"cache_key", "cache_value", "cache_key_scale", "cache_value_scale"};
    const attn_cview *inputs[] = {&a->query, &a->new_key, &a->new_value, &a->prefix_key, &a->prefix_value, &a->mask.allow,
                                  &a->mask.bias};
    static const char *const names[] = {"query", "new_key", "new_value", "prefix_key", "prefix_value", "mask.allow", "mask.bias"};
    int n_cache = a->cache_key.dtype == ATTN_I8 ? 4 : 2;
    for (int n = 0; n < 7; n++) {
        ATTN_REQUIRE(ctx, !attn_views_overlap(&out, inputs[n]), "out overlaps %s", names[n]);
        for (int c = 0; c < n_cache && plan->appends; c++)
            ATTN_REQUIRE(ctx, !attn_views_overlap(&cache[c], inputs[n]), "%s overlaps %s", cache_names[c], names[n]);
    }
    for (int c = 0; c < n_cache; c++) {
        ATTN_REQUIRE(ctx, !attn_views_overlap(&out, &cache[c]), "out overlaps %s", cache_names[c]);
        for (int other = 0; other < c && plan->appends; other++)
            ATTN_REQUIRE(ctx, !attn_views_overlap(&cache[c], &cache[other]), "%s overlaps %s", cache_names[c], cache_names[other]);
    }
    return ATTN_OK;
}

/* ---- The two problems: cache and prefix --------------------------------------------------------- */

/* Columns first .. first + count - 1 of a mask over the positions (extent 1 is kept: it broadcasts). */
static attn_status slice_mask(attn_ctx *ctx, attn_cview *v, const char *name, int64_t first, int64_t count, int64_t positions,
                              unsigned need)
{
    if (!v->data)
        return ATTN_OK;
    ATTN_TRY(attn_check_view(ctx, v, name, need));
    if (v->shape[3] == 1)
        return ATTN_OK;
    ATTN_REQUIRE(ctx, v->shape[3] >= positions, "%s.shape[3] is %lld, must be 1 or reach the longest sequence, %lld", name,
                 LL(v->shape[3]), LL(positions));
    v->data = (const char *)v->data + first * v->stride[3] * (int64_t)attn_dtype_size(v->dtype);
    v->shape[3] = count;
    return ATTN_OK;
}

static attn_status forward_args(attn_ctx *ctx, const decode_plan *plan, bool prefix, unsigned need, attn_sdpa_args *f)
{
    const attn_decode_args *a = &plan->a;
    int64_t positions = plan->prefix_len + plan->longest;
    int64_t first = prefix ? 0 : plan->prefix_len, count = prefix ? plan->prefix_len : plan->longest;
    ATTN_ARGS_INIT(f);
    f->query = a->query;
    f->out = a->out;
    f->lse = a->lse;
    f->mask = a->mask;
    f->mask.flags |= ATTN_MASK_OFFSET;
    f->mask.q_len = plan->q_len;
    f->mask.query_offsets = f->mask.bias_offsets = prefix ? plan->position : plan->slot;
    ATTN_TRY(slice_mask(ctx, &f->mask.allow, "mask.allow", first, count, positions, need));
    ATTN_TRY(slice_mask(ctx, &f->mask.bias, "mask.bias", first, count, positions, need));
    f->scale = a->scale;
    f->softcap = a->softcap;
    f->flags = a->flags;
    if (prefix) {
        f->key = a->prefix_key;
        f->value = a->prefix_value;
        f->key.shape[0] = f->value.shape[0] = plan->batch;
        f->key.stride[0] = f->value.stride[0] = 0;
        return ATTN_OK;
    }
    f->sinks = a->sinks; /* once: the prefix part goes without */
    f->mask.kv_len = plan->kv_len;
    f->layout = a->layout;
    f->layout.seq_kv = plan->longest;
    attn_cview *views[4] = {&f->key, &f->value, &f->key_scale, &f->value_scale};
    const attn_view *caches[4] = {&a->cache_key, &a->cache_value, &a->cache_key_scale, &a->cache_value_scale};
    for (int n = 0; n < 4; n++) {
        *views[n] = attn_view_const(caches[n]);
        if (!a->layout.ring && !a->layout.block_table && views[n]->shape[2] == a->cache_key.shape[2])
            views[n]->shape[2] = plan->longest;
    }
    return ATTN_OK;
}

static attn_status check_cache(attn_ctx *ctx, decode_plan *plan, unsigned need)
{
    attn_decode_args *a = &plan->a;
    const attn_view *views[4] = {&a->cache_key, &a->cache_value, &a->cache_key_scale, &a->cache_value_scale};
    static const char *const names[4] = {"cache_key", "cache_value", "cache_key_scale", "cache_value_scale"};
    ATTN_REQUIRE(ctx, a->layout.block_table || a->cache_key.shape[0] == plan->batch,
                 "cache_key.shape[0] is %lld, must be query.shape[0], %lld", LL(a->cache_key.shape[0]), LL(plan->batch));
    ATTN_REQUIRE(ctx, a->layout.ring == 0 || a->layout.ring == 1, "layout.ring is %lld, must be 0 or 1", LL(a->layout.ring));
    ATTN_REQUIRE(ctx, !(a->layout.ring && a->layout.block_table), "layout.ring and layout.block_table exclude each other");
    for (int n = 0; n < (a->cache_key.dtype == ATTN_I8 ? 4 : 2); n++) {
        attn_cview v = attn_view_const(views[n]);
        ATTN_TRY(attn_check_view(ctx, &v, names[n], need));
        for (int axis = 0; n > 0 && axis < 3; axis++)
            ATTN_REQUIRE(ctx, v.shape[axis] == a->cache_key.shape[axis], "%s.shape[%d] is %lld, must be as cache_key, %lld",
                         names[n], axis, LL(v.shape[axis]), LL(a->cache_key.shape[axis]));
        ATTN_REQUIRE(ctx, n < 2 || v.shape[3] == 1, "%s.shape[3] is %lld, must be 1", names[n], LL(v.shape[3]));
        ATTN_REQUIRE(ctx, !plan->appends || attn_elements_distinct(&v), "%s.stride makes elements of %s overlap", names[n],
                     names[n]);
    }
    return ATTN_OK;
}

/* What needs no memory: shapes and fields on their own. */
static attn_status check_fields(attn_ctx *ctx, const attn_decode_args *args, unsigned need, decode_plan *plan)
{
    ctx->error[0] = 0;
    memset(plan, 0, sizeof *plan);
    attn_decode_args *a = &plan->a;
    ATTN_TRY(attn_args_copy(ctx, a, sizeof *a, args, "args"));
    ATTN_TRY(attn_check_view(ctx, &a->query, "query", need));
    plan->batch = a->query.shape[0];
    plan->n_new = a->query.shape[2];
    ATTN_REQUIRE(ctx, !a->new_key.data == !a->new_value.data, "new_key.data and new_value.data: one is NULL, both or neither");
    ATTN_REQUIRE(ctx, !a->prefix_key.data == !a->prefix_value.data,
                 "prefix_key.data and prefix_value.data: one is NULL, both or neither");
    plan->appends = a->new_key.data != NULL;
    plan->has_prefix = a->prefix_key.data != NULL;
    ATTN_TRY(check_cache(ctx, plan, need));
    if (plan->appends) {
        attn_cview key = attn_view_const(&a->cache_key), value = attn_view_const(&a->cache_value);
        ATTN_TRY(check_new(ctx, plan, &a->new_key, &key, "new_key", need));
        ATTN_TRY(check_new(ctx, plan, &a->new_value, &value, "new_value", need));
    }
    if (plan->has_prefix)
        ATTN_TRY(check_prefix(ctx, plan, need));
    ATTN_TRY(check_mask_unset(ctx, &a->mask));
    ATTN_REQUIRE(ctx, plan->batch == 0 || a->cache_len, "cache_len is NULL");
    return ATTN_OK;
}

/* Bytes for the arrays of the plan: four of [batch], one bit per block. */
static size_t arrays_bytes(const decode_plan *plan)
{
    size_t bits = plan->appends && plan->a.layout.block_table ? (size_t)(plan->a.cache_key.shape[0] + 7) / 8 : 0;
    return align_up((size_t)plan->batch * 4 * sizeof(int64_t) + bits);
}

static attn_status plan_partials(attn_ctx *ctx, decode_plan *plan)
{
    const attn_problem *p = &plan->cache;
    size_t bytes = arrays_bytes(plan), element = attn_dtype_size(p->lse_dtype), rows, values, cache, prefix;
    for (int part = 0; part < 2 && plan->has_prefix; part++) {
        if (!attn_mul_size((size_t)(p->batch * p->n_heads), (size_t)p->seq_q * element, &rows) ||
            !attn_mul_size(rows, (size_t)p->value_dim, &values) || !attn_add_size(bytes, align_up(values), &plan->partial_offset[2 + part]))
            return attn_fail(ctx, ATTN_ERR_OUT_OF_MEMORY, "out and its parts do not fit in memory");
        plan->partial_offset[part] = bytes;
        bytes = plan->partial_offset[2 + part] + align_up(rows);
    }
    plan->scratch_offset = bytes;
    cache = attn_sdpa_scratch(ctx, p);
    prefix = plan->has_prefix ? attn_sdpa_scratch(ctx, &plan->prefix) : 0;
    plan->bytes = bytes + (cache > prefix ? cache : prefix);
    return ATTN_OK;
}

/* Fills the arrays in `memory` (arrays_bytes) and both problems, checking all that is left to check. */
static attn_status resolve(attn_ctx *ctx, decode_plan *plan, unsigned need, void *memory)
{
    attn_sdpa_args f;
    attn_status status;
    plan->kv_len = memory;
    plan->q_len = plan->kv_len + plan->batch;
    plan->slot = plan->q_len + plan->batch;
    plan->position = plan->slot + plan->batch;
    plan->written = (unsigned char *)(plan->position + plan->batch);
    plan->longest = 0;
    for (int64_t b = 0; b < plan->batch; b++)
        ATTN_TRY(check_lengths(ctx, plan, b));
    for (int prefix = plan->has_prefix; prefix >= 0; prefix--) {
        ATTN_TRY(forward_args(ctx, plan, prefix, need, &f));
        status = attn_sdpa_validate(ctx, &f, need, prefix ? &plan->prefix : &plan->cache);
        if (status != ATTN_OK) {
            rename_fields(ctx, prefix ? "prefix_" : "cache_");
            return status;
        }
    }
    plan->prefix.shared_keys = true;
    if (plan->appends && plan->a.layout.block_table)
        ATTN_TRY(check_block_sharing(ctx, plan));
    if ((need & ATTN_NEED_DATA) != 0)
        ATTN_TRY(check_overlaps(ctx, plan));
    return plan_partials(ctx, plan);
}

/* ---- Running ------------------------------------------------------------------------------------ */

/* One (batch, head): out = sum_p exp(lse_p - lse) out_p over the prefix and the cache, in this order. */
static void merge_task(void *arg, int64_t task, int32_t worker)
{
    const decode_plan *plan = arg;
    const attn_problem *p = &plan->cache;
    const attn_view *out = &plan->a.out;
    int64_t b = task / p->n_heads, h = task % p->n_heads;
    (void)worker;
    for (int64_t i = 0; i < p->seq_q; i++) {
        int64_t row = task * p->seq_q + i;
        double lse[2], max = -INFINITY, weight[2] = {0, 0}, sum = 0;
        for (int n = 0; n < 2; n++) {
            lse[n] = attn_load_element(plan->partial_lse[n], p->lse_dtype, row);
            if (!(lse[n] <= max))
                max = lse[n];
        }
        for (int n = 0; n < 2 && max != -INFINITY; n++)
            sum += weight[n] = lse[n] == -INFINITY ? 0 : exp(lse[n] - max);
        for (int64_t d = 0; d < p->value_dim; d++) {
            double acc = 0;
            for (int n = 0; n < 2; n++)
                if (weight[n] != 0)
                    acc += weight[n] / sum * attn_load_element(plan->partial[n].data, p->lse_dtype, row * p->value_dim + d);
            attn_store_element(out->data, out->dtype, attn_offset(out->stride, b, h, i, d), acc);
        }
        if (plan->a.lse)
            attn_store_element(plan->a.lse, p->lse_dtype, row, max == -INFINITY ? max : max + log(sum));
    }
}

static void attend(attn_ctx *ctx, decode_plan *plan, char *memory)
{
    attn_problem *parts[2] = {&plan->prefix, &plan->cache};
    if (!plan->has_prefix) {
        attn_sdpa_run(ctx, &plan->cache, memory + plan->scratch_offset);
        return;
    }
    for (int n = 0; n < 2; n++) {
        attn_problem *p = parts[n];
        plan->partial[n] = attn_view_of(memory + plan->partial_offset[n], p->lse_dtype, p->batch, p->n_heads, p->seq_q, p->value_dim);
        plan->partial_lse[n] = memory + plan->partial_offset[2 + n];
        p->a.out = plan->partial[n];
        p->a.lse = plan->partial_lse[n];
        attn_sdpa_run(ctx, p, memory + plan->scratch_offset);
    }
    int64_t n_tasks = plan->cache.batch * plan->cache.n_heads;
    double work = 2.0 * (double)n_tasks * (double)plan->n_new * (double)plan->cache.value_dim;
    attn_ctx_for(ctx, n_tasks, attn_ctx_workers(ctx, n_tasks, work), merge_task, plan);
}

attn_status attn_sdpa_decode_workspace(attn_ctx *ctx, const attn_decode_args *args, size_t *bytes)
{
    decode_plan plan;
    void *memory;
    if (!ctx)
        return ATTN_ERR_INVALID_ARGUMENT;
    ATTN_TRY(check_fields(ctx, args, ATTN_NEED_VALUE, &plan));
    ATTN_REQUIRE(ctx, bytes, "bytes is NULL");
    ATTN_TRY(attn_ctx_workspace(ctx, NULL, 0, arrays_bytes(&plan), &memory));
    ATTN_TRY(resolve(ctx, &plan, ATTN_NEED_VALUE, memory));
    *bytes = plan.bytes;
    return ATTN_OK;
}

attn_status attn_sdpa_decode(attn_ctx *ctx, const attn_decode_args *args, void *workspace, size_t workspace_bytes)
{
    decode_plan plan;
    void *arrays, *memory;
    if (!ctx)
        return ATTN_ERR_INVALID_ARGUMENT;
    ATTN_TRY(check_fields(ctx, args, ATTN_NEED_ALL, &plan));
    bool hopeless = workspace && workspace_bytes < arrays_bytes(&plan); /* still say how much is needed */
    ATTN_TRY(attn_ctx_workspace(ctx, hopeless ? NULL : workspace, hopeless ? 0 : workspace_bytes, arrays_bytes(&plan), &arrays));
    ATTN_TRY(resolve(ctx, &plan, ATTN_NEED_ALL, arrays));
    bool grows = !workspace && ctx->arena_bytes < plan.bytes; /* then the arrays are lost */
    ATTN_TRY(attn_ctx_workspace(ctx, workspace, workspace_bytes, plan.bytes, &memory));
    if (grows)
        ATTN_TRY(resolve(ctx, &plan, ATTN_NEED_ALL, memory));
    if (plan.appends)
        attn_decode_append(ctx, &plan.a);
    attend(ctx, &plan, memory);
    return ATTN_OK;
}
