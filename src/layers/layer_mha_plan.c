/* layer_mha_plan.c - checks and layout of an attention layer, and the operator's view of it. */
#include <string.h>
#include "layers/layer_mha.h"

static attn_status complete_sizes(attn_layers *layers, attn_mha_plan *plan)
{
    attn_mha_args *a = &plan->a;
    ATTN_TRY(attn_layers_dtype(layers, a->dtype));
    ATTN_TRY(attn_layers_size(layers, a->batch, "args.batch"));
    ATTN_TRY(attn_layers_size(layers, a->seq_q, "args.seq_q"));
    ATTN_TRY(attn_layers_size(layers, a->seq_kv, "args.seq_kv"));
    if (!a->key && !a->seq_kv)
        a->seq_kv = a->seq_q;
    ATTN_LAYERS_REQUIRE(layers, a->key || a->seq_kv == a->seq_q,
                        "args.seq_kv is %lld and seq_q %lld: without key they are the same", (long long)a->seq_kv,
                        (long long)a->seq_q);
    ATTN_LAYERS_REQUIRE(layers, a->key || !a->value, "args.value is given without args.key");
    ATTN_TRY(attn_layers_size(layers, a->batch * a->seq_q, "args.batch * args.seq_q"));
    ATTN_TRY(attn_layers_size(layers, a->batch * a->seq_kv, "args.batch * args.seq_kv"));
    ATTN_TRY(attn_layers_width(layers, a->d_query, "args.d_query"));
    a->d_key = a->d_key ? a->d_key : a->d_query;
    a->d_value = a->d_value ? a->d_value : a->d_key;
    ATTN_TRY(attn_layers_width(layers, a->d_key, "args.d_key"));
    ATTN_TRY(attn_layers_width(layers, a->d_value, "args.d_value"));
    ATTN_LAYERS_REQUIRE(layers, a->key || a->d_key == a->d_query, "args.d_key is %lld and d_query %lld: key is the query",
                        (long long)a->d_key, (long long)a->d_query);
    ATTN_LAYERS_REQUIRE(layers, a->value || a->d_value == a->d_key, "args.d_value is %lld and d_key %lld: value is the key",
                        (long long)a->d_value, (long long)a->d_key);
    ATTN_TRY(attn_layers_width(layers, a->n_heads, "args.n_heads"));
    a->n_kv_heads = a->n_kv_heads ? a->n_kv_heads : a->n_heads;
    ATTN_LAYERS_REQUIRE(layers, a->n_kv_heads > 0 && a->n_heads % a->n_kv_heads == 0,
                        "args.n_heads is %lld: not a multiple of n_kv_heads %lld", (long long)a->n_heads,
                        (long long)a->n_kv_heads);
    ATTN_TRY(attn_layers_width(layers, a->head_dim, "args.head_dim"));
    a->value_dim = a->value_dim ? a->value_dim : a->head_dim;
    ATTN_TRY(attn_layers_width(layers, a->value_dim, "args.value_dim"));
    plan->q_width = a->n_heads * a->head_dim;
    plan->k_width = a->n_kv_heads * a->head_dim;
    plan->v_width = a->n_kv_heads * a->value_dim;
    const int64_t heads = a->n_heads * a->value_dim;
    a->d_out = a->d_out ? a->d_out : a->weights.w_out ? a->d_query : heads;
    ATTN_TRY(attn_layers_width(layers, a->d_out, "args.d_out"));
    ATTN_TRY(attn_layers_width(layers, plan->q_width + plan->k_width + plan->v_width, "args.n_heads * args.head_dim"));
    return attn_layers_width(layers, heads, "args.n_heads * args.value_dim");
}

static attn_status check_identity(attn_layers *layers, const void *weight, const void *bias, int64_t width, int64_t want,
                                  const char *name)
{
    ATTN_LAYERS_REQUIRE(layers, weight || width == want,
                        "args.weights.w_%s is NULL (identity), but rows are %lld wide and the heads %lld", name,
                        (long long)width, (long long)want);
    ATTN_LAYERS_REQUIRE(layers, weight || !bias, "args.weights.b_%s is given without w_%s", name, name);
    return ATTN_OK;
}

static attn_status check_weights(attn_layers *layers, const attn_mha_plan *plan)
{
    const attn_mha_args *a = &plan->a;
    const attn_mha_weights *w = &a->weights;
    ATTN_TRY(check_identity(layers, w->w_query, w->b_query, a->d_query, plan->q_width, "query"));
    ATTN_TRY(check_identity(layers, w->w_key, w->b_key, a->d_key, plan->k_width, "key"));
    ATTN_TRY(check_identity(layers, w->w_value, w->b_value, a->d_value, plan->v_width, "value"));
    ATTN_TRY(check_identity(layers, w->w_out, w->b_out, a->d_out, a->n_heads * a->value_dim, "out"));
    ATTN_LAYERS_REQUIRE(layers, !w->bias_k == !w->bias_v, "args.weights.bias_k and bias_v: both or neither");
    return attn_layers_flags(layers, a->flags, ATTN_SCALE_GIVEN | ATTN_MHA_ADD_ZERO, "args.flags");
}

static attn_status check_rope(attn_layers *layers, const attn_mha_args *a)
{
    if (!a->rope)
        return ATTN_OK;
    ATTN_LAYERS_REQUIRE(layers, a->rope->struct_size >= sizeof(size_t), "args.rope.struct_size is %zu: set it with "
                        "ATTN_ARGS_INIT", a->rope->struct_size);
    ATTN_LAYERS_REQUIRE(layers, !a->rope->positions || a->seq_q == a->seq_kv,
                        "args.rope.positions is given, but seq_q is %lld and seq_kv %lld", (long long)a->seq_q,
                        (long long)a->seq_kv);
    ATTN_LAYERS_REQUIRE(layers, !(a->mask.flags & ATTN_MASK_OFFSET) || !a->mask.query_offsets,
                        "args.rope is given with args.mask.query_offsets: give one query_offset");
    return ATTN_OK;
}

attn_status attn_mha_prepare(attn_layers *layers, attn_mha_plan *plan, const attn_mha_args *args, bool sizes_only)
{
    memset(plan, 0, sizeof *plan);
    attn_mha_args *a = &plan->a;
    ATTN_TRY(attn_layers_args(layers, a, sizeof *a, args, "args"));
    ATTN_TRY(complete_sizes(layers, plan));
    ATTN_TRY(check_weights(layers, plan));
    ATTN_TRY(check_rope(layers, a));
    ATTN_TRY(attn_layers_probability(layers, a->dropout_p, "args.dropout_p"));
    ATTN_TRY(attn_layers_stride(layers, &a->ld_query, a->d_query, "args.ld_query"));
    ATTN_TRY(attn_layers_stride(layers, &a->ld_key, a->d_key, "args.ld_key"));
    ATTN_TRY(attn_layers_stride(layers, &a->ld_value, a->d_value, "args.ld_value"));
    ATTN_TRY(attn_layers_stride(layers, &a->ld_out, a->d_out, "args.ld_out"));
    ATTN_LAYERS_REQUIRE(layers, a->n_weight_rows >= 0 && (a->weight_rows || !a->n_weight_rows || a->row_weights),
                        "args.n_weight_rows is %lld", (long long)a->n_weight_rows);
    plan->n_extra = (a->weights.bias_k ? 1 : 0) + (a->flags & ATTN_MHA_ADD_ZERO ? 1 : 0);
    plan->key_rows = a->key ? a->key : a->query;
    plan->ld_key_rows = a->key ? a->ld_key : a->ld_query;
    plan->value_rows = a->value ? a->value : plan->key_rows;
    plan->ld_value_rows = a->value ? a->ld_value : plan->ld_key_rows;
    const attn_mask *m = &a->mask; /* rules that count from positions or lengths cannot name the keys behind */
    plan->appended = plan->n_extra && !(m->flags & (ATTN_MASK_CAUSAL | ATTN_MASK_WINDOW)) && !m->kv_len && !m->q_len &&
                     !m->cu_seqlens_q && !m->alibi_slopes && !m->relative;
    plan->rows_kv = a->seq_kv + (plan->appended ? plan->n_extra : 0);
    plan->together = !a->key && !plan->appended;
    /* both ways must see the same scores, so the choice is by the arguments that both get; a mask of numbers stays f32's */
    plan->half = layers->team.products == ATTN_BF16 && layers->team.pairs && a->dtype == ATTN_F32 && a->dropout_p == 0 &&
                 !plan->n_extra && !m->bias.data && !m->relative && !a->row_weights && !a->mean_weights;
    attn_mha_place(plan, NULL);
    return sizes_only ? ATTN_OK : attn_layers_pointer(layers, a->query, a->batch * a->seq_q, "args.query");
}

/* The next `count` numbers of what base has. */
static void *take(char *base, size_t *used, int64_t count, int32_t dtype)
{
    char *at = base ? base + *used : NULL;
    *used += attn_padded_bytes(count, dtype);
    return at;
}

void attn_mha_place(attn_mha_plan *plan, void *base)
{
    const attn_mha_args *a = &plan->a;
    const int64_t rows_q = a->batch * a->seq_q, rows_kv = a->batch * plan->rows_kv;
    const int32_t kept = attn_mha_kept(plan);
    size_t used = 0;
    if (plan->together) {
        plan->ld_q = plan->ld_k = plan->ld_v = plan->q_width + plan->k_width + plan->v_width;
        plan->q = take(base, &used, rows_q * plan->ld_q, kept);
        plan->k = base ? attn_at(plan->q, kept, plan->q_width) : NULL;
        plan->v = base ? attn_at(plan->q, kept, plan->q_width + plan->k_width) : NULL;
    } else {
        plan->ld_q = plan->q_width, plan->ld_k = plan->k_width, plan->ld_v = plan->v_width;
        plan->q = take(base, &used, rows_q * plan->q_width, kept);
        plan->k = take(base, &used, rows_kv * plan->k_width, kept);
        plan->v = take(base, &used, rows_kv * plan->v_width, kept);
    }
    plan->heads = take(base, &used, rows_q * a->n_heads * a->value_dim, kept);
    plan->lse = take(base, &used, rows_q * a->n_heads, a->dtype);
    plan->saved_bytes = used ? used : 64;
}

/* Rows seen as [batch, heads, seq, dim]. */
static attn_view heads_of(void *rows, int32_t dtype, int64_t batch, int64_t seq, int64_t n_heads, int64_t dim, int64_t ld)
{
    attn_view v = attn_view_of(rows, dtype, batch, n_heads, seq, dim);
    v.stride[0] = seq * ld;
    v.stride[1] = dim;
    v.stride[2] = ld;
    return v;
}

static attn_cview read_heads(const void *rows, int32_t dtype, int64_t batch, int64_t seq, int64_t n_heads, int64_t dim,
                             int64_t ld)
{
    attn_cview v = attn_cview_of(rows, dtype, batch, n_heads, seq, dim);
    v.stride[0] = seq * ld;
    v.stride[1] = dim;
    v.stride[2] = ld;
    return v;
}

attn_status attn_mha_extra(attn_layers *layers, const attn_mha_plan *plan, void **extra_kv)
{
    const attn_mha_args *a = &plan->a;
    const size_t size = a->dtype == ATTN_F64 ? 8 : 4;
    *extra_kv = NULL;
    if (!plan->n_extra)
        return ATTN_OK;
    const int64_t width = plan->k_width + plan->v_width;
    ATTN_TRY(attn_layers_scratch(layers, plan->n_extra * width, a->dtype, extra_kv));
    memset(*extra_kv, 0, (size_t)(plan->n_extra * width) * size);
    if (a->weights.bias_k) {
        memcpy(*extra_kv, a->weights.bias_k, (size_t)plan->k_width * size);
        memcpy(attn_at(*extra_kv, a->dtype, plan->k_width), a->weights.bias_v, (size_t)plan->v_width * size);
    }
    return ATTN_OK;
}

void attn_mha_append(const attn_mha_plan *plan, const void *extra_kv)
{
    const attn_mha_args *a = &plan->a;
    const size_t size = a->dtype == ATTN_F64 ? 8 : 4;
    const int64_t ld = plan->k_width + plan->v_width;
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t e = 0; e < plan->n_extra; e++) {
            const int64_t row = b * plan->rows_kv + a->seq_kv + e;
            memcpy(attn_at(plan->k, a->dtype, row * plan->ld_k), attn_at(extra_kv, a->dtype, e * ld),
                   (size_t)plan->k_width * size);
            memcpy(attn_at(plan->v, a->dtype, row * plan->ld_v), attn_at(extra_kv, a->dtype, e * ld + plan->k_width),
                   (size_t)plan->v_width * size);
        }
}

/* A copy of a mask with `more` columns behind, all holding `filler` (one element). */
static attn_status widen(attn_layers *layers, attn_cview *mask, int64_t keys, int64_t more, size_t size, const void *filler)
{
    attn_cview wide = *mask;
    void *memory = NULL;
    for (int n = 0; n < 3; n++) /* what repeats stays one */
        wide.shape[n] = mask->stride[n] == 0 && mask->shape[n] > 0 ? 1 : mask->shape[n];
    const int64_t rows = wide.shape[0] * wide.shape[1] * wide.shape[2], width = keys + more;
    ATTN_LAYERS_REQUIRE(layers, rows >= 0 && (mask->shape[3] == keys || mask->shape[3] == 1),
                        "args.mask has %lld columns, there are %lld keys", (long long)mask->shape[3], (long long)keys);
    ATTN_TRY(attn_layers_scratch(layers, rows * width, ATTN_F64, &memory));
    char *to = memory;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < width; j++, to += size) {
            const int64_t i = r % wide.shape[2], h = r / wide.shape[2] % wide.shape[1];
            const int64_t b = r / wide.shape[2] / wide.shape[1], column = mask->shape[3] == 1 ? 0 : j;
            const int64_t at = b * mask->stride[0] + h * mask->stride[1] + i * mask->stride[2] + column * mask->stride[3];
            memcpy(to, j < keys ? (const char *)mask->data + at * (int64_t)size : filler, size);
        }
    *mask = attn_cview_of(memory, wide.dtype, wide.shape[0], wide.shape[1], wide.shape[2], width);
    return ATTN_OK;
}

attn_status attn_mha_widen_masks(attn_layers *layers, const attn_mha_plan *plan, attn_sdpa_args *s)
{
    const uint8_t admitted = 1;
    const double nothing = 0;
    if (!plan->appended)
        return ATTN_OK;
    if (s->mask.allow.data)
        ATTN_TRY(widen(layers, &s->mask.allow, plan->a.seq_kv, plan->n_extra, 1, &admitted));
    if (s->mask.bias.data)
        ATTN_TRY(widen(layers, &s->mask.bias, plan->a.seq_kv, plan->n_extra, s->mask.bias.dtype == ATTN_F64 ? 8 : 4,
                       &nothing));
    return ATTN_OK;
}

void attn_mha_operator_args(const attn_mha_plan *plan, int32_t extra, const void *extra_kv, attn_sdpa_args *s)
{
    const attn_mha_args *a = &plan->a;
    const int32_t kept = attn_mha_kept(plan);
    ATTN_ARGS_INIT(s);
    s->query = read_heads(plan->q, kept, a->batch, a->seq_q, a->n_heads, a->head_dim, plan->ld_q);
    s->out = heads_of(plan->heads, kept, a->batch, a->seq_q, a->n_heads, a->value_dim, a->n_heads * a->value_dim);
    s->lse = plan->lse;
    s->scale = a->scale, s->softcap = a->softcap;
    s->flags = a->flags & ATTN_SCALE_GIVEN;
    s->dropout_p = a->dropout_p;
    s->dropout_seed = a->dropout_seed + (extra ? 0x9E3779B97F4A7C15u : 0);
    if (extra) { /* the same keys for every batch entry */
        const int64_t ld = plan->k_width + plan->v_width;
        s->key = read_heads(extra_kv, a->dtype, a->batch, plan->n_extra, a->n_kv_heads, a->head_dim, ld);
        s->value = read_heads(attn_at(extra_kv, a->dtype, plan->k_width), a->dtype, a->batch, plan->n_extra, a->n_kv_heads,
                              a->value_dim, ld);
        s->key.stride[0] = s->value.stride[0] = 0;
    } else {
        s->key = read_heads(plan->k, kept, a->batch, plan->rows_kv, a->n_kv_heads, a->head_dim, plan->ld_k);
        s->value = read_heads(plan->v, kept, a->batch, plan->rows_kv, a->n_kv_heads, a->value_dim, plan->ld_v);
        s->mask = a->mask;
        s->sinks = a->weights.sinks;
    }
}

attn_status attn_mha_rotate(attn_layers *layers, const attn_mha_plan *plan, void *q, void *k, uint64_t more_flags)
{
    const attn_mha_args *a = &plan->a;
    if (!a->rope)
        return ATTN_OK;
    attn_rope_args rope;
    ATTN_TRY(attn_layers_args(layers, &rope, sizeof rope, a->rope, "args.rope"));
    rope.flags |= more_flags;
    rope.x = read_heads(k, a->dtype, a->batch, a->seq_kv, a->n_kv_heads, a->head_dim, plan->ld_k);
    rope.out = heads_of(k, a->dtype, a->batch, a->seq_kv, a->n_kv_heads, a->head_dim, plan->ld_k);
    rope.x.stride[0] = rope.out.stride[0] = plan->rows_kv * plan->ld_k;
    ATTN_TRY(attn_layers_ctx_status(layers, attn_rope(layers->ctx, &rope)));
    rope.x = read_heads(q, a->dtype, a->batch, a->seq_q, a->n_heads, a->head_dim, plan->ld_q);
    rope.out = heads_of(q, a->dtype, a->batch, a->seq_q, a->n_heads, a->head_dim, plan->ld_q);
    if (a->mask.flags & ATTN_MASK_OFFSET)
        rope.position_offset += a->mask.query_offset;
    return attn_layers_ctx_status(layers, attn_rope(layers->ctx, &rope));
}
