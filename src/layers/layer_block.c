/* layer_block.c - transformer blocks: up to three parts (attention, cross attention, feed-forward), each with its norm and
 * its residual.
 *
 *     pre-norm:  in = norm(stream)   next = stream + drop(part(in))
 *     post-norm: in = stream         next = norm(mid), mid = stream + drop(part(in))                                     */
#include <string.h>
#include "layers/layer_mha.h"

enum { ATTENTION, CROSS, FFN, N_PARTS };

typedef struct block_part {
    int32_t kind;
    attn_norm_args norm;
    attn_mha_plan mha;
    attn_ffn_args ffn;
    uint64_t seed;
    void *kept;   /* pre-norm: in; post-norm: mid */
    void *stream; /* what the part starts from; args.x for the first */
    void *next;   /* what it ends with; args.y for the last */
    void *inner;  /* saved of attention or feed-forward; NULL without backward */
} block_part;

typedef struct block_plan {
    attn_block_args a;
    int32_t n_parts;
    block_part parts[N_PARTS];
    size_t saved_bytes;
} block_plan;

static uint64_t seed_of(uint64_t seed, uint64_t n)
{
    uint64_t z = seed + (n + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static attn_status check(attn_layers *layers, attn_block_args *a, const attn_block_args *args)
{
    ATTN_TRY(attn_layers_args(layers, a, sizeof *a, args, "args"));
    ATTN_LAYERS_REQUIRE(layers, a->place == ATTN_BLOCK_PRE_NORM || a->place == ATTN_BLOCK_POST_NORM,
                        "args.place is %d: no ATTN_BLOCK_* value", a->place);
    ATTN_TRY(attn_layers_size(layers, a->batch, "args.batch"));
    ATTN_TRY(attn_layers_size(layers, a->seq, "args.seq"));
    ATTN_TRY(attn_layers_size(layers, a->batch * a->seq, "args.batch * args.seq"));
    ATTN_TRY(attn_layers_width(layers, a->d_model, "args.d_model"));
    ATTN_TRY(attn_layers_width(layers, a->n_heads, "args.n_heads"));
    ATTN_LAYERS_REQUIRE(layers, a->head_dim || a->d_model % a->n_heads == 0,
                        "args.d_model is %lld: not a multiple of n_heads %lld, and head_dim is 0", (long long)a->d_model,
                        (long long)a->n_heads);
    a->head_dim = a->head_dim ? a->head_dim : a->d_model / a->n_heads;
    a->d_memory = a->d_memory ? a->d_memory : a->d_model;
    a->eps = a->eps == 0 ? 1e-5 : a->eps;
    ATTN_TRY(attn_layers_probability(layers, a->dropout_p, "args.dropout_p"));
    ATTN_TRY(attn_layers_probability(layers, a->attention_dropout_p, "args.attention_dropout_p"));
    ATTN_TRY(attn_layers_probability(layers, a->ffn_dropout_p, "args.ffn_dropout_p"));
    return attn_layers_flags(layers, a->flags, ATTN_SCALE_GIVEN, "args.flags");
}

static attn_status plan_norm(attn_layers *layers, const attn_block_args *a, attn_norm_args *norm, const void *weight,
                             const void *bias)
{
    const attn_norm_args n = {.dtype = a->dtype, .kind = a->norm_kind, .rows = a->batch * a->seq, .n = a->d_model,
                              .eps = a->eps, .offset = a->norm_offset, .weight = weight, .bias = bias};
    *norm = n;
    return attn_norm_check(layers, norm);
}

static attn_status plan_attention(attn_layers *layers, const attn_block_args *a, block_part *part, bool sizes_only)
{
    const bool cross = part->kind == CROSS;
    attn_mha_args m;
    ATTN_ARGS_INIT(&m);
    m.dtype = a->dtype;
    m.batch = a->batch, m.seq_q = a->seq;
    m.d_query = a->d_model;
    m.n_heads = a->n_heads, m.n_kv_heads = a->n_kv_heads, m.head_dim = a->head_dim, m.value_dim = a->value_dim;
    m.d_out = a->d_model;
    m.query = a->x; /* its real place is set when the block runs */
    m.weights = cross ? a->weights.cross : a->weights.attention;
    m.mask = cross ? a->memory_mask : a->mask;
    m.scale = a->scale, m.softcap = a->softcap, m.flags = a->flags;
    m.dropout_p = a->attention_dropout_p, m.dropout_seed = seed_of(a->dropout_seed, cross ? 11 : 10);
    if (cross) {
        m.key = a->memory, m.d_key = a->d_memory, m.seq_kv = a->seq_memory;
    } else {
        m.rope = a->rope;
    }
    return attn_mha_prepare(layers, &part->mha, &m, sizes_only);
}

static attn_status plan_ffn(attn_layers *layers, const attn_block_args *a, block_part *part, bool sizes_only)
{
    attn_ffn_args *f = &part->ffn;
    ATTN_ARGS_INIT(f);
    f->dtype = a->dtype, f->act = a->act;
    f->rows = a->batch * a->seq, f->d_model = a->d_model, f->d_ff = a->d_ff;
    f->x = a->x;
    f->weights = a->weights.ffn;
    f->dropout_p = a->ffn_dropout_p, f->dropout_seed = seed_of(a->dropout_seed, 12);
    return attn_ffn_check(layers, f, sizes_only);
}

static attn_status plan_block(attn_layers *layers, block_plan *plan, const attn_block_args *args, bool sizes_only)
{
    memset(plan, 0, sizeof *plan);
    attn_block_args *a = &plan->a;
    ATTN_TRY(check(layers, a, args));
    for (int32_t kind = 0; kind < N_PARTS; kind++) {
        if (kind == CROSS && !a->memory)
            continue;
        block_part *part = &plan->parts[plan->n_parts++];
        const attn_block_weights *w = &a->weights;
        part->kind = kind;
        part->seed = seed_of(a->dropout_seed, (uint64_t)kind);
        ATTN_TRY(plan_norm(layers, a, &part->norm,
                           kind == ATTENTION ? w->norm1_weight : kind == CROSS ? w->norm_cross_weight : w->norm2_weight,
                           kind == ATTENTION ? w->norm1_bias : kind == CROSS ? w->norm_cross_bias : w->norm2_bias));
        if (kind == FFN)
            ATTN_TRY(plan_ffn(layers, a, part, sizes_only));
        else
            ATTN_TRY(plan_attention(layers, a, part, sizes_only));
    }
    return sizes_only ? ATTN_OK : attn_layers_pointer(layers, a->x, a->batch * a->seq, "args.x");
}

/* Lays the arrays out from base (NULL: only counts). with_inner: room for what backward needs of the parts. */
static void place(block_plan *plan, char *base, bool with_inner)
{
    const attn_block_args *a = &plan->a;
    const size_t rows = attn_padded_bytes(a->batch * a->seq * a->d_model, a->dtype);
    size_t used = 0;
    void *stream = (void *)(uintptr_t)a->x;
    for (int32_t p = 0; p < plan->n_parts; p++) {
        block_part *part = &plan->parts[p];
        part->stream = stream;
        part->kept = base ? base + used : NULL;
        used += rows;
        if (p + 1 < plan->n_parts) {
            part->next = base ? base + used : NULL;
            used += rows;
        } else {
            part->next = a->y;
        }
        stream = part->next;
        part->inner = base && with_inner ? base + used : NULL;
        if (with_inner)
            used += part->kind == FFN ? attn_ffn_saved_size(&part->ffn) : (part->mha.saved_bytes + 63) / 64 * 64;
    }
    plan->saved_bytes = used;
}

static attn_status saved_bytes(attn_layers *layers, const attn_block_args *args, size_t *bytes)
{
    block_plan plan;
    ATTN_LAYERS_REQUIRE(layers, bytes, "bytes is NULL");
    ATTN_TRY(plan_block(layers, &plan, args, true));
    place(&plan, NULL, true);
    *bytes = plan.saved_bytes;
    return ATTN_OK;
}

attn_status attn_block_saved_bytes(attn_layers *layers, const attn_block_args *args, size_t *bytes)
{
    return ATTN_LAYERS_CALL(layers, saved_bytes(layers, args, bytes));
}

static void run_norm(attn_layers *layers, const block_part *part, const void *x, void *y)
{
    attn_norm_args norm = part->norm;
    norm.x = x, norm.y = y;
    const attn_rows_norm_job job = attn_norm_job(&norm);
    attn_rows_norm(&layers->team, &job);
}

/* Points the inner layer to its rows. */
static void aim(block_part *part, const void *in, void *out)
{
    if (part->kind == FFN) {
        part->ffn.x = in, part->ffn.y = out, part->ffn.saved = part->inner;
        return;
    }
    attn_mha_plan *m = &part->mha;
    m->a.query = in, m->a.out = out, m->a.saved = part->inner;
    m->key_rows = m->a.key ? m->a.key : in;
    m->value_rows = m->key_rows;
}

static attn_status part_forward(attn_layers *layers, const block_plan *plan, block_part *part, void *out)
{
    const attn_block_args *a = &plan->a;
    const bool pre = a->place == ATTN_BLOCK_PRE_NORM;
    const int64_t n = a->batch * a->seq * a->d_model;
    if (pre)
        run_norm(layers, part, part->stream, part->kept);
    aim(part, pre ? part->kept : part->stream, out);
    if (part->kind == FFN)
        ATTN_TRY(attn_ffn_run_forward(layers, &part->ffn));
    else
        ATTN_TRY(attn_mha_run_forward(layers, &part->mha));
    attn_rows_dropout(&layers->team, a->dtype, n, out, part->stream, a->dropout_p, part->seed,
                      pre ? part->next : part->kept);
    if (!pre)
        run_norm(layers, part, part->kept, part->next);
    return ATTN_OK;
}

static attn_status forward(attn_layers *layers, const attn_block_args *args)
{
    block_plan plan;
    ATTN_TRY(plan_block(layers, &plan, args, false));
    const attn_block_args *a = &plan.a;
    ATTN_TRY(attn_layers_pointer(layers, a->y, a->batch * a->seq, "args.y"));
    void *base = a->saved, *out = NULL;
    place(&plan, NULL, base != NULL);
    if (!base)
        ATTN_TRY(attn_layers_scratch(layers, (int64_t)plan.saved_bytes / 4, ATTN_F32, &base));
    place(&plan, base, a->saved != NULL);
    ATTN_TRY(attn_layers_scratch(layers, a->batch * a->seq * a->d_model, a->dtype, &out));
    for (int32_t p = 0; p < plan.n_parts; p++)
        ATTN_TRY(part_forward(layers, &plan, &plan.parts[p], out));
    return ATTN_OK;
}

attn_status attn_block_forward(attn_layers *layers, const attn_block_args *args)
{
    return ATTN_LAYERS_CALL(layers, forward(layers, args));
}

/* ---- backward ---- */

static attn_status norm_back(attn_layers *layers, const attn_block_args *a, const block_part *part,
                             const attn_block_weight_gradients *w, const void *x, const void *d_y, void *d_x, bool add)
{
    attn_norm_args norm = part->norm;
    norm.x = x;
    const attn_norm_gradients g = {
        .flags = add ? ATTN_GRAD_ACCUMULATE : 0, .d_y = d_y, .ld_dy = a->d_model, .d_x = d_x, .ld_dx = a->d_model,
        .weight = part->kind == ATTENTION ? w->norm1_weight : part->kind == CROSS ? w->norm_cross_weight : w->norm2_weight,
        .bias = part->kind == ATTENTION ? w->norm1_bias : part->kind == CROSS ? w->norm_cross_bias : w->norm2_bias};
    return attn_norm_run_backward(layers, &norm, &g);
}

/* Gradient of the part's input from that of its output; add: d_in += (d_in may then be d_out, which is read first). */
static attn_status inner_back(attn_layers *layers, const attn_block_args *a, block_part *part,
                              const attn_block_gradients *g, const void *d_out, void *d_in, bool add)
{
    if (part->kind == FFN) {
        const attn_ffn_gradients f = {.flags = add ? ATTN_GRAD_ACCUMULATE : 0, .d_y = d_out, .ld_dy = a->d_model,
                                      .d_x = d_in, .ld_dx = a->d_model, .weights = g->weights.ffn};
        return attn_ffn_run_backward(layers, &part->ffn, &f);
    }
    attn_mha_gradients m;
    ATTN_ARGS_INIT(&m);
    m.flags = add ? ATTN_GRAD_ACCUMULATE : 0;
    m.d_out = d_out, m.ld_dout = a->d_model;
    m.d_query = d_in, m.ld_dquery = a->d_model;
    m.weights = part->kind == CROSS ? g->weights.cross : g->weights.attention;
    if (part->kind == CROSS && g->d_memory) { /* flags are those of the query: the memory's gradient apart, then joined */
        const int64_t rows = a->batch * a->seq_memory;
        void *d_memory = NULL;
        ATTN_TRY(attn_layers_scratch(layers, rows * a->d_memory, a->dtype, &d_memory));
        memset(d_memory, 0, (size_t)(rows * a->d_memory) * (a->dtype == ATTN_F64 ? 8 : 4));
        m.d_key = d_memory, m.ld_dkey = a->d_memory;
        ATTN_TRY(attn_mha_run_backward(layers, &part->mha, &m));
        if (g->flags & ATTN_GRAD_ACCUMULATE)
            attn_rows_add(&layers->team, a->dtype, rows, a->d_memory, d_memory, a->d_memory, g->d_memory, a->d_memory);
        else
            attn_rows_copy(&layers->team, a->dtype, rows, a->d_memory, d_memory, a->d_memory, g->d_memory, a->d_memory);
        return ATTN_OK;
    }
    return attn_mha_run_backward(layers, &part->mha, &m);
}

/* d: gradient of part->next on entry, of part->stream on return. */
static attn_status part_backward(attn_layers *layers, const block_plan *plan, block_part *part,
                                 const attn_block_gradients *g, void *d, void *d_part, void *d_in)
{
    const attn_block_args *a = &plan->a;
    const bool pre = a->place == ATTN_BLOCK_PRE_NORM;
    const int64_t n = a->batch * a->seq * a->d_model;
    const void *d_out = d;
    if (!pre)
        ATTN_TRY(norm_back(layers, a, part, &g->weights, part->kept, d, d, false));
    if (a->dropout_p > 0) {
        attn_rows_dropout(&layers->team, a->dtype, n, d, NULL, a->dropout_p, part->seed, d_part);
        d_out = d_part;
    }
    aim(part, pre ? part->kept : part->stream, NULL);
    if (!pre)
        return inner_back(layers, a, part, g, d_out, d, true);
    ATTN_TRY(inner_back(layers, a, part, g, d_out, d_in, false));
    return norm_back(layers, a, part, &g->weights, part->stream, d_in, d, true);
}

static attn_status backward(attn_layers *layers, const attn_block_args *args, const attn_block_gradients *gradients)
{
    block_plan plan;
    attn_block_gradients g;
    ATTN_TRY(plan_block(layers, &plan, args, false));
    ATTN_TRY(attn_layers_args(layers, &g, sizeof g, gradients, "gradients"));
    ATTN_TRY(attn_layers_flags(layers, g.flags, ATTN_GRAD_ACCUMULATE, "gradients.flags"));
    const attn_block_args *a = &plan.a;
    const int64_t rows = a->batch * a->seq, n = rows * a->d_model;
    ATTN_TRY(attn_layers_pointer(layers, g.d_y, rows, "gradients.d_y"));
    ATTN_TRY(attn_layers_pointer(layers, a->saved, rows, "args.saved"));
    ATTN_LAYERS_REQUIRE(layers, a->memory || !g.d_memory, "gradients.d_memory is given without args.memory");
    place(&plan, a->saved, true);
    const bool own = !g.d_x || (g.flags & ATTN_GRAD_ACCUMULATE);
    void *d = g.d_x, *d_part = NULL, *d_in = NULL;
    if (own)
        ATTN_TRY(attn_layers_scratch(layers, n, a->dtype, &d));
    ATTN_TRY(attn_layers_scratch(layers, n, a->dtype, &d_part));
    ATTN_TRY(attn_layers_scratch(layers, n, a->dtype, &d_in));
    if (d != g.d_y)
        attn_rows_copy(&layers->team, a->dtype, rows, a->d_model, g.d_y, a->d_model, d, a->d_model);
    for (int32_t p = plan.n_parts - 1; p >= 0; p--)
        ATTN_TRY(part_backward(layers, &plan, &plan.parts[p], &g, d, d_part, d_in));
    if (own && g.d_x)
        attn_rows_add(&layers->team, a->dtype, rows, a->d_model, d, a->d_model, g.d_x, a->d_model);
    return ATTN_OK;
}

attn_status attn_block_backward(attn_layers *layers, const attn_block_args *args, const attn_block_gradients *gradients)
{
    return ATTN_LAYERS_CALL(layers, backward(layers, args, gradients));
}
