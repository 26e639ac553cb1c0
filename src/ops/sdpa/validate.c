#include "ops/sdpa/validate.h"
#include "core/view.h"

#include <math.h>
#include <stdlib.h>

#define LL(x) ((long long)(x))
#define MAX_EXTENT ((int64_t)1 << 40)

attn_status attn_check_view(attn_ctx *ctx, const attn_cview *v, const char *name, unsigned need)
{
    int64_t count;
    uintptr_t first, last;
    ATTN_REQUIRE(ctx, attn_dtype_size(v->dtype), "%s.dtype is %d, not a dtype of attn/attn.h", name, v->dtype);
    ATTN_REQUIRE(ctx, v->reserved == 0, "%s.reserved is %d, must be 0", name, v->reserved);
    for (int n = 0; n < 4; n++)
        ATTN_REQUIRE(ctx, v->shape[n] >= 0 && v->shape[n] <= MAX_EXTENT, "%s.shape[%d] is %lld, must be 0..2^40", name, n,
                     LL(v->shape[n]));
    ATTN_REQUIRE(ctx, attn_shape_count(v->shape, &count) && attn_view_extent(v, &first, &last),
                 "%s has shape and strides whose extent overflows", name);
    ATTN_REQUIRE(ctx, !(need & ATTN_NEED_DATA) || count == 0 || v->data, "%s.data is NULL", name);
    return ATTN_OK;
}

static attn_status check_extent(attn_ctx *ctx, const attn_cview *v, const char *name, int axis, int64_t want,
                                const char *what)
{
    ATTN_REQUIRE(ctx, v->shape[axis] == want, "%s.shape[%d] is %lld, must be %s, %lld", name, axis, LL(v->shape[axis]), what,
                 LL(want));
    return ATTN_OK;
}

/* Element strides of an output must not make two elements one. Sort axes by stride, each must clear the one inside. */
bool attn_elements_distinct(const attn_cview *v)
{
    int order[4], n = 0;
    int64_t count;
    if (!attn_shape_count(v->shape, &count) || count == 0)
        return true;
    for (int a = 0; a < 4; a++)
        if (v->shape[a] > 1)
            order[n++] = a;
    for (int a = 1; a < n; a++)
        for (int b = a; b > 0 && attn_magnitude(v->stride[order[b]]) < attn_magnitude(v->stride[order[b - 1]]); b--) {
            int swap = order[b];
            order[b] = order[b - 1];
            order[b - 1] = swap;
        }
    int64_t reach = 0;
    for (int a = 0; a < n; a++) {
        int64_t step = attn_magnitude(v->stride[order[a]]);
        if (step <= reach)
            return false;
        reach += step * (v->shape[order[a]] - 1);
    }
    return true;
}

static bool is_float(int32_t dtype)
{
    return dtype == ATTN_F32 || dtype == ATTN_F64 || dtype == ATTN_BF16 || dtype == ATTN_F16;
}

static attn_status check_dtypes(attn_ctx *ctx, const attn_sdpa_args *a, unsigned need)
{
    int32_t q = a->query.dtype, k = a->key.dtype;
    ATTN_REQUIRE(ctx, is_float(q), "query.dtype is %s, must be f32, f64, bf16 or f16", attn_dtype_name(q));
    if (k == ATTN_BOOL || (k != q && (k == ATTN_F64 || q == ATTN_F64)))
        return attn_fail(ctx, ATTN_ERR_UNSUPPORTED, "key.dtype is %s with query.dtype %s: no kernel", attn_dtype_name(k),
                         attn_dtype_name(q));
    if (need & ATTN_NEED_VALUE) {
        int32_t v = a->value.dtype, o = a->out.dtype;
        if (v != k)
            return attn_fail(ctx, ATTN_ERR_UNSUPPORTED, "value.dtype is %s, key.dtype is %s: no kernel", attn_dtype_name(v),
                             attn_dtype_name(k));
        if (o != q && !(o == ATTN_F32 && q != ATTN_F64))
            return attn_fail(ctx, ATTN_ERR_UNSUPPORTED, "out.dtype is %s with query.dtype %s: no kernel", attn_dtype_name(o),
                             attn_dtype_name(q));
    }
    return ATTN_OK;
}

static attn_status check_scales(attn_ctx *ctx, const attn_problem *p, unsigned need)
{
    const attn_sdpa_args *a = &p->a;
    if (a->key.dtype != ATTN_I8)
        return ATTN_OK;
    const attn_cview *scales[2] = {&a->key_scale, &a->value_scale}, *owners[2] = {&a->key, &a->value};
    static const char *const names[2] = {"key_scale", "value_scale"};
    for (int n = 0; n < 2; n++) {
        if (n == 1 && !(need & ATTN_NEED_VALUE))
            continue;
        ATTN_TRY(attn_check_view(ctx, scales[n], names[n], need));
        ATTN_REQUIRE(ctx, scales[n]->dtype == ATTN_F32, "%s.dtype is %s, must be f32", names[n],
                     attn_dtype_name(scales[n]->dtype));
        for (int axis = 0; axis < 3; axis++)
            ATTN_TRY(check_extent(ctx, scales[n], names[n], axis, owners[n]->shape[axis], "as the array it scales"));
    }
    return ATTN_OK;
}

static attn_status check_layout(attn_ctx *ctx, attn_problem *p)
{
    const attn_kv_layout *l = &p->a.layout;
    const attn_cview *key = &p->a.key;
    ATTN_REQUIRE(ctx, l->ring == 0 || l->ring == 1, "layout.ring is %lld, must be 0 or 1", LL(l->ring));
    ATTN_REQUIRE(ctx, !(l->ring && l->block_table), "layout.ring and layout.block_table exclude each other");
    bool plain = !l->ring && !l->block_table;
    p->seq_kv = plain ? key->shape[2] : l->seq_kv;
    if (plain) {
        ATTN_REQUIRE(ctx, l->seq_kv == 0 || l->seq_kv == key->shape[2], "layout.seq_kv is %lld but key.shape[2] is %lld",
                     LL(l->seq_kv), LL(key->shape[2]));
        return check_extent(ctx, key, "key", 0, p->batch, "query.shape[0]");
    }
    ATTN_REQUIRE(ctx, l->seq_kv >= 0 && l->seq_kv <= MAX_EXTENT, "layout.seq_kv is %lld, must be 0..2^40", LL(l->seq_kv));
    ATTN_REQUIRE(ctx, !p->a.mask.cu_seqlens_k && !p->a.mask.cu_seqlens_q, "layout is paged or a ring, which cu_seqlens excludes");
    ATTN_REQUIRE(ctx, l->seq_kv == 0 || key->shape[2] > 0, "key.shape[2] is 0 (block size or ring capacity)");
    if (l->ring)
        return check_extent(ctx, key, "key", 0, p->batch, "query.shape[0]");
    ATTN_REQUIRE(ctx, l->block_table_stride >= 0 && (l->seq_kv == 0 || l->block_table_stride >= (l->seq_kv - 1) / key->shape[2] + 1 || p->a.mask.kv_len),
                 "layout.block_table_stride is %lld, too few blocks of %lld for seq_kv %lld", LL(l->block_table_stride),
                 LL(key->shape[2]), LL(l->seq_kv));
    return ATTN_OK;
}

static attn_status check_shapes(attn_ctx *ctx, attn_problem *p, unsigned need)
{
    attn_sdpa_args *a = &p->a;
    ATTN_TRY(attn_check_view(ctx, &a->query, "query", need));
    ATTN_TRY(attn_check_view(ctx, &a->key, "key", need));
    ATTN_TRY(check_dtypes(ctx, a, need));
    p->batch = a->query.shape[0];
    p->n_heads = a->query.shape[1];
    p->seq_q = a->query.shape[2];
    p->head_dim = a->query.shape[3];
    p->n_kv_heads = a->key.shape[1];
    p->kv_dtype = a->key.dtype;
    p->lse_dtype = a->query.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    ATTN_TRY(check_extent(ctx, &a->key, "key", 3, p->head_dim, "head_dim"));
    ATTN_REQUIRE(ctx, p->n_heads == 0 || (p->n_kv_heads > 0 && p->n_heads % p->n_kv_heads == 0),
                 "n_heads is %lld (query.shape[1]), not a multiple of n_kv_heads, %lld (key.shape[1])", LL(p->n_heads),
                 LL(p->n_kv_heads));
    p->group = p->n_kv_heads ? p->n_heads / p->n_kv_heads : 1;
    ATTN_TRY(check_layout(ctx, p));
    if (!(need & ATTN_NEED_VALUE))
        return check_scales(ctx, p, need);
    attn_cview out = attn_view_const(&a->out);
    ATTN_TRY(attn_check_view(ctx, &a->value, "value", need));
    ATTN_TRY(attn_check_view(ctx, &out, "out", need));
    for (int axis = 0; axis < 3; axis++) {
        ATTN_TRY(check_extent(ctx, &a->value, "value", axis, a->key.shape[axis], "as key"));
        ATTN_TRY(check_extent(ctx, &out, "out", axis, a->query.shape[axis], "as query"));
    }
    p->value_dim = a->value.shape[3];
    ATTN_TRY(check_extent(ctx, &out, "out", 3, p->value_dim, "value_dim"));
    ATTN_REQUIRE(ctx, attn_elements_distinct(&out), "out.stride makes elements of out overlap");
    return check_scales(ctx, p, need);
}

static attn_status check_numbers(attn_ctx *ctx, attn_problem *p)
{
    const attn_sdpa_args *a = &p->a;
    if (a->flags & ~(uint64_t)ATTN_SCALE_GIVEN)
        return attn_fail(ctx, ATTN_ERR_UNSUPPORTED, "flags is 0x%llx, unknown bits", (unsigned long long)a->flags);
    if (a->flags & ATTN_SCALE_GIVEN) {
        ATTN_REQUIRE(ctx, isfinite(a->scale), "scale is %g, must be finite", a->scale);
        p->scale = a->scale;
    } else if (a->scale != 0) {
        ATTN_REQUIRE(ctx, isfinite(a->scale) && a->scale > 0, "scale is %g: without ATTN_SCALE_GIVEN it must be 0 or positive",
                     a->scale);
        p->scale = a->scale;
    } else {
        ATTN_REQUIRE(ctx, p->head_dim > 0, "head_dim is 0 (query.shape[3]): the default scale 1/sqrt(head_dim) has no value");
        p->scale = 1 / sqrt((double)p->head_dim);
    }
    ATTN_REQUIRE(ctx, isfinite(a->softcap) && a->softcap >= 0, "softcap is %g, must be 0 or positive", a->softcap);
    ATTN_REQUIRE(ctx, a->dropout_p >= 0 && a->dropout_p <= 1, "dropout_p is %g, must be 0..1", a->dropout_p);
    return ATTN_OK;
}

/* A mask over [batch, n_heads, seq_q, seq_kv]: extent 1 broadcasts (stride set to 0 in our copy). */
static attn_status check_pair_view(attn_ctx *ctx, const attn_problem *p, attn_cview *v, const char *name, unsigned need)
{
    const int64_t full[4] = {p->batch, p->n_heads, p->seq_q, p->seq_kv};
    if (!v->data)
        return ATTN_OK;
    ATTN_TRY(attn_check_view(ctx, v, name, need));
    for (int n = 0; n < 4; n++) {
        ATTN_REQUIRE(ctx, v->shape[n] == full[n] || v->shape[n] == 1, "%s.shape[%d] is %lld, must be 1 or %lld", name, n,
                     LL(v->shape[n]), LL(full[n]));
        if (v->shape[n] == 1)
            v->stride[n] = 0;
    }
    return ATTN_OK;
}

static attn_status check_cu_seqlens(attn_ctx *ctx, const int64_t *cu, int64_t n, int64_t seq, const char *name)
{
    ATTN_REQUIRE(ctx, cu[0] == 0, "mask.%s[0] is %lld, must be 0", name, LL(cu[0]));
    for (int64_t s = 0; s < n; s++)
        ATTN_REQUIRE(ctx, cu[s + 1] >= cu[s], "mask.%s[%lld] is %lld, less than the one before, %lld", name, LL(s + 1),
                     LL(cu[s + 1]), LL(cu[s]));
    ATTN_REQUIRE(ctx, cu[n] <= seq, "mask.%s[%lld] is %lld, more than the axis holds, %lld", name, LL(n), LL(cu[n]), LL(seq));
    return ATTN_OK;
}

static attn_status check_entries(attn_ctx *ctx, attn_problem *p)
{
    const attn_mask *m = &p->a.mask;
    p->packed = m->cu_seqlens_q || m->cu_seqlens_k;
    p->n_entries = p->batch;
    if (p->packed) {
        ATTN_REQUIRE(ctx, m->cu_seqlens_q && m->cu_seqlens_k, "mask.cu_seqlens_q and cu_seqlens_k: one is NULL, both or neither");
        ATTN_REQUIRE(ctx, m->n_segments >= 0, "mask.n_segments is %lld, must be 0 or more", LL(m->n_segments));
        ATTN_REQUIRE(ctx, p->batch == 1, "query.shape[0] is %lld, must be 1 with mask.cu_seqlens_q", LL(p->batch));
        ATTN_TRY(check_cu_seqlens(ctx, m->cu_seqlens_q, m->n_segments, p->seq_q, "cu_seqlens_q"));
        ATTN_TRY(check_cu_seqlens(ctx, m->cu_seqlens_k, m->n_segments, p->seq_kv, "cu_seqlens_k"));
        p->n_entries = m->n_segments;
    } else {
        ATTN_REQUIRE(ctx, m->n_segments == 0, "mask.n_segments is %lld without mask.cu_seqlens_q", LL(m->n_segments));
    }
    bool positioned = (m->flags & (ATTN_MASK_CAUSAL | ATTN_MASK_WINDOW)) != 0;
    for (int64_t s = 0; s < p->n_entries; s++) {
        int64_t n_q = p->packed ? m->cu_seqlens_q[s + 1] - m->cu_seqlens_q[s] : p->seq_q;
        int64_t n_k = p->packed ? m->cu_seqlens_k[s + 1] - m->cu_seqlens_k[s] : p->seq_kv;
        ATTN_REQUIRE(ctx, !positioned || (m->flags & ATTN_MASK_OFFSET) || n_q == n_k,
                     "mask.flags asks for causal or window with seq_q %lld and seq_kv %lld: set ATTN_MASK_OFFSET and query_offset",
                     LL(n_q), LL(n_k));
        if (m->q_len)
            ATTN_REQUIRE(ctx, m->q_len[s] >= 0 && m->q_len[s] <= n_q, "mask.q_len[%lld] is %lld, must be 0..%lld", LL(s),
                         LL(m->q_len[s]), LL(n_q));
        if (m->kv_len)
            ATTN_REQUIRE(ctx, m->kv_len[s] >= 0 && m->kv_len[s] <= n_k, "mask.kv_len[%lld] is %lld, must be 0..%lld", LL(s),
                         LL(m->kv_len[s]), LL(n_k));
        attn_entry e = attn_problem_entry(p, s);
        ATTN_REQUIRE(ctx, attn_magnitude(e.q_offset) <= MAX_EXTENT, "mask.query_offset is %lld, beyond 2^40", LL(e.q_offset));
        ATTN_REQUIRE(ctx, attn_magnitude(e.bias_offset) <= MAX_EXTENT, "mask.bias_offset is %lld, beyond 2^40", LL(e.bias_offset));
    }
    return ATTN_OK;
}

static attn_status check_mask(attn_ctx *ctx, attn_problem *p, unsigned need)
{
    attn_mask *m = &p->a.mask;
    const uint32_t known = ATTN_MASK_CAUSAL | ATTN_MASK_WINDOW | ATTN_MASK_OFFSET;
    if (m->flags & ~known)
        return attn_fail(ctx, ATTN_ERR_UNSUPPORTED, "mask.flags is 0x%x, unknown bits", m->flags);
    ATTN_REQUIRE(ctx, m->reserved == 0, "mask.reserved is %u, must be 0", m->reserved);
    p->left = -1;
    p->has_right = false;
    p->right = 0;
    if (m->flags & ATTN_MASK_WINDOW) {
        ATTN_REQUIRE(ctx, m->left >= -1 && m->left <= MAX_EXTENT, "mask.left is %lld, must be -1 (open) to 2^40", LL(m->left));
        ATTN_REQUIRE(ctx, m->right >= -1 && m->right <= MAX_EXTENT, "mask.right is %lld, must be -1 (open) to 2^40", LL(m->right));
        p->left = m->left;
        p->has_right = m->right >= 0;
        p->right = p->has_right ? m->right : 0;
    }
    if (m->flags & ATTN_MASK_CAUSAL) {
        p->has_right = true;
        p->right = 0;
    }
    ATTN_TRY(check_entries(ctx, p));
    ATTN_TRY(check_pair_view(ctx, p, &m->allow, "mask.allow", need));
    ATTN_REQUIRE(ctx, !m->allow.data || m->allow.dtype == ATTN_BOOL, "mask.allow.dtype is %s, must be bool",
                 attn_dtype_name(m->allow.dtype));
    ATTN_TRY(check_pair_view(ctx, p, &m->bias, "mask.bias", need));
    if (m->bias.data && m->bias.dtype != ATTN_F32 && m->bias.dtype != p->a.query.dtype)
        return attn_fail(ctx, ATTN_ERR_UNSUPPORTED, "mask.bias.dtype is %s, must be f32 or the query's, %s",
                         attn_dtype_name(m->bias.dtype), attn_dtype_name(p->a.query.dtype));
    ATTN_TRY(check_pair_view(ctx, p, &p->a.keep, "keep", need));
    ATTN_REQUIRE(ctx, !p->a.keep.data || p->a.keep.dtype == ATTN_BOOL, "keep.dtype is %s, must be bool",
                 attn_dtype_name(p->a.keep.dtype));
    if (m->relative) {
        ATTN_REQUIRE(ctx, m->rel_left >= 0 && m->rel_left <= MAX_EXTENT, "mask.rel_left is %lld, must be 0..2^40", LL(m->rel_left));
        ATTN_REQUIRE(ctx, m->rel_right >= 0 && m->rel_right <= MAX_EXTENT, "mask.rel_right is %lld, must be 0..2^40",
                     LL(m->rel_right));
    }
    return ATTN_OK;
}

/* A paged table is read only where keys are; a ring must not be asked for keys that it has lost. */
static attn_status check_storage(attn_ctx *ctx, const attn_problem *p)
{
    const attn_kv_layout *l = &p->a.layout;
    int64_t size = p->a.key.shape[2];
    if (!l->block_table && !l->ring)
        return ATTN_OK;
    for (int64_t s = 0; s < p->n_entries; s++) {
        attn_entry e = attn_problem_entry(p, s);
        if (e.k_count == 0 || e.q_count == 0)
            continue;
        int64_t lo, hi, lo_last, hi_last;
        attn_row_range(p, &e, 0, &lo, &hi);
        attn_row_range(p, &e, e.q_count - 1, &lo_last, &hi_last);
        hi_last = hi_last < e.k_count ? hi_last : e.k_count; /* an empty range may lie beyond the keys */
        if (l->ring) {
            ATTN_REQUIRE(ctx, lo >= e.k_count - size || hi <= lo,
                         "layout.ring holds %lld keys, but entry %lld admits key %lld of %lld", LL(size), LL(s), LL(lo),
                         LL(e.k_count));
            continue;
        }
        if (hi_last <= lo)
            continue;
        ATTN_REQUIRE(ctx, (hi_last - 1) / size < l->block_table_stride,
                     "layout.block_table_stride is %lld, too few blocks of %lld for %lld keys of entry %lld",
                     LL(l->block_table_stride), LL(size), LL(hi_last), LL(s));
        for (int64_t n = lo / size; n <= (hi_last - 1) / size; n++) {
            int32_t block = l->block_table[s * l->block_table_stride + n];
            ATTN_REQUIRE(ctx, block >= 0 && block < p->a.key.shape[0],
                         "layout.block_table[%lld, %lld] is %d, must be 0..%lld", LL(s), LL(n), block,
                         LL(p->a.key.shape[0] - 1));
        }
    }
    return ATTN_OK;
}

static attn_status check_overlap(attn_ctx *ctx, const attn_problem *p)
{
    const attn_sdpa_args *a = &p->a;
    attn_cview out = attn_view_const(&a->out);
    const attn_cview *inputs[] = {&a->query, &a->key, &a->value, &a->mask.allow, &a->mask.bias, &a->keep};
    static const char *const names[] = {"query", "key", "value", "mask.allow", "mask.bias", "keep"};
    for (int n = 0; n < 6; n++)
        ATTN_REQUIRE(ctx, !attn_views_overlap(&out, inputs[n]), "out overlaps %s", names[n]);
    return ATTN_OK;
}

attn_status attn_sdpa_validate(attn_ctx *ctx, const attn_sdpa_args *args, unsigned need, attn_problem *p)
{
    if (!ctx)
        return ATTN_ERR_INVALID_ARGUMENT;
    ctx->error[0] = 0;
    memset(p, 0, sizeof *p);
    ATTN_TRY(attn_args_copy(ctx, &p->a, sizeof p->a, args, "args"));
    ATTN_TRY(check_shapes(ctx, p, need));
    ATTN_TRY(check_numbers(ctx, p));
    ATTN_TRY(check_mask(ctx, p, need));
    ATTN_TRY(check_storage(ctx, p));
    if ((need & ATTN_NEED_ALL) == ATTN_NEED_ALL)
        ATTN_TRY(check_overlap(ctx, p));
    return ATTN_OK;
}
