/* layer_mha_backward.c - gradients of an attention layer. With keys behind the given ones both calls of the operator's
 * backward get the merged out and lse, which is all that ties them. */
#include <string.h>
#include "layers/layer_mha.h"

/* Gradients of the projected rows, laid out as in the plan. */
typedef struct projected {
    void *q, *k, *v;
} projected;

static attn_view like(const attn_cview *v, int32_t dtype, void *data)
{
    attn_view w = attn_view_of(data, dtype, 1, 1, 1, 1);
    memcpy(w.shape, v->shape, sizeof w.shape);
    memcpy(w.stride, v->stride, sizeof w.stride);
    return w;
}

static attn_status place_projected(attn_layers *layers, const attn_mha_plan *plan, projected *d)
{
    const attn_mha_args *a = &plan->a;
    const int64_t rows_q = a->batch * a->seq_q, rows_kv = a->batch * plan->rows_kv;
    ATTN_TRY(attn_layers_scratch(layers, rows_q * plan->ld_q, a->dtype, &d->q));
    if (plan->together) {
        d->k = attn_at(d->q, a->dtype, plan->q_width);
        d->v = attn_at(d->q, a->dtype, plan->q_width + plan->k_width);
        return ATTN_OK;
    }
    ATTN_TRY(attn_layers_scratch(layers, rows_kv * plan->ld_k, a->dtype, &d->k));
    return attn_layers_scratch(layers, rows_kv * plan->ld_v, a->dtype, &d->v);
}

/* Gradient of the heads: d_out W_O, and those of W_O and its bias. */
static attn_status through_out(attn_layers *layers, const attn_mha_plan *plan, const attn_mha_gradients *g, void **d_heads)
{
    const attn_mha_args *a = &plan->a;
    const int64_t rows = a->batch * a->seq_q, width = a->n_heads * a->value_dim;
    const void *heads = NULL;
    ATTN_TRY(attn_layers_scratch(layers, rows * width, a->dtype, d_heads));
    ATTN_TRY(attn_mha_heads(layers, plan, &heads));
    const attn_linear_args linear = {.dtype = a->dtype, .rows = rows, .n_in = width, .n_out = a->d_out, .x = heads,
                                     .ldx = width, .weight = a->weights.w_out};
    const attn_linear_gradients back = {.d_y = g->d_out, .ld_dy = g->ld_dout, .d_x = *d_heads, .ld_dx = width,
                                        .weight = g->weights.w_out, .bias = g->weights.b_out};
    if (a->weights.w_out)
        attn_linear_run_backward(layers, &linear, &back);
    else
        attn_rows_copy(&layers->team, a->dtype, rows, width, g->d_out, g->ld_dout, *d_heads, width);
    return ATTN_OK;
}

/* The operator writes the sinks' gradients; weights' gradients are added to. */
static void add_sinks(const attn_mha_args *a, const float *d_sinks, float *to)
{
    for (int64_t h = 0; d_sinks && h < a->n_heads; h++)
        to[h] += d_sinks[h];
}

/* The keys behind the given ones: adds to d->q, and their own gradients to bias_k and bias_v. Sinks have theirs from here: the
 * operator leaves out queries that see no key, and here every one sees some. */
static attn_status through_extra(attn_layers *layers, const attn_mha_plan *plan, const attn_mha_gradients *g,
                                 const void *d_heads, const projected *d)
{
    const attn_mha_args *a = &plan->a;
    const int64_t ld = plan->k_width + plan->v_width, n = a->batch * plan->n_extra * ld;
    attn_sdpa_args s;
    attn_sdpa_backward_args b;
    void *extra_kv = NULL, *d_extra = NULL, *sinks = NULL;
    ATTN_TRY(attn_mha_extra(layers, plan, &extra_kv));
    attn_mha_operator_args(plan, 1, extra_kv, &s);
    ATTN_TRY(attn_layers_scratch(layers, n, a->dtype, &d_extra));
    memset(d_extra, 0, (size_t)n * (a->dtype == ATTN_F64 ? 8 : 4));
    ATTN_ARGS_INIT(&b);
    b.forward = &s;
    b.flags = ATTN_GRAD_ACCUMULATE;
    b.d_out = attn_cview_of(d_heads, a->dtype, 1, 1, 1, 1);
    memcpy(b.d_out.shape, s.out.shape, sizeof b.d_out.shape);
    memcpy(b.d_out.stride, s.out.stride, sizeof b.d_out.stride);
    b.d_query = like(&s.query, a->dtype, d->q);
    b.d_key = like(&s.key, a->dtype, d_extra);
    b.d_value = like(&s.value, a->dtype, attn_at(d_extra, a->dtype, plan->k_width));
    b.d_key.stride[0] = b.d_value.stride[0] = plan->n_extra * ld;
    if (g->weights.sinks) {
        s.sinks = a->weights.sinks;
        ATTN_TRY(attn_layers_scratch(layers, a->n_heads, ATTN_F32, &sinks));
        memset(sinks, 0, (size_t)a->n_heads * sizeof(float)); /* the call accumulates */
        b.d_sinks = sinks;
    }
    ATTN_TRY(attn_layers_ctx_status(layers, attn_sdpa_backward(layers->ctx, &b, NULL, 0)));
    add_sinks(a, sinks, g->weights.sinks);
    if (g->weights.bias_k)
        attn_rows_sum(&layers->team, a->dtype, a->batch, plan->k_width, d_extra, plan->n_extra * ld, g->weights.bias_k);
    if (g->weights.bias_v)
        attn_rows_sum(&layers->team, a->dtype, a->batch, plan->v_width, attn_at(d_extra, a->dtype, plan->k_width),
                      plan->n_extra * ld, g->weights.bias_v);
    return ATTN_OK;
}

/* Room for the gradient of a mask with columns for appended keys; the extents that sum stay 1. */
static attn_status wide_bias(attn_layers *layers, const attn_mha_plan *plan, const attn_mha_gradients *g, attn_view *wide)
{
    const int64_t *e = g->d_bias.shape;
    void *memory = NULL;
    ATTN_LAYERS_REQUIRE(layers, e[3] == plan->a.seq_kv || e[3] == 1, "gradients.d_bias.shape[3] is %lld, there are %lld keys",
                        (long long)e[3], (long long)plan->a.seq_kv);
    ATTN_LAYERS_REQUIRE(layers, g->d_bias.dtype == plan->a.dtype, "gradients.d_bias.dtype is %d, args.dtype %d",
                        g->d_bias.dtype, plan->a.dtype);
    ATTN_TRY(attn_layers_scratch(layers, e[0] * e[1] * e[2] * plan->rows_kv, plan->a.dtype, &memory));
    *wide = attn_view_of(memory, plan->a.dtype, e[0], e[1], e[2], plan->rows_kv);
    return ATTN_OK;
}

/* to = the given keys' columns of wide, summed where to has one column. */
static void narrow_bias(const attn_mha_plan *plan, const attn_view *wide, const attn_view *to)
{
    const int64_t *e = to->shape;
    for (int64_t r = 0; r < e[0] * e[1] * e[2]; r++) {
        const int64_t at = r / e[2] / e[1] * to->stride[0] + r / e[2] % e[1] * to->stride[1] + r % e[2] * to->stride[2];
        double sum = 0;
        for (int64_t j = 0; j < plan->a.seq_kv; j++) {
            const int64_t from = r * plan->rows_kv + j;
            const double d = to->dtype == ATTN_F64 ? ((double *)wide->data)[from] : (double)((float *)wide->data)[from];
            sum = e[3] == 1 ? sum + d : d;
            if (e[3] == 1 && j + 1 < plan->a.seq_kv)
                continue;
            const int64_t place = at + (e[3] == 1 ? 0 : j * to->stride[3]);
            if (to->dtype == ATTN_F64)
                ((double *)to->data)[place] = sum;
            else
                ((float *)to->data)[place] = (float)sum;
        }
    }
}

static attn_status through_operator(attn_layers *layers, const attn_mha_plan *plan, const attn_mha_gradients *g,
                                    const void *d_heads, const projected *d)
{
    const attn_mha_args *a = &plan->a;
    attn_sdpa_args s;
    attn_sdpa_backward_args b;
    attn_mha_operator_args(plan, 0, NULL, &s);
    ATTN_ARGS_INIT(&b);
    b.forward = &s;
    if (plan->half) {
        void *narrow = NULL;
        const int64_t n = a->batch * a->seq_q * a->n_heads * a->value_dim;
        ATTN_TRY(attn_layers_scratch(layers, n, ATTN_BF16, &narrow));
        attn_mha_narrow(&layers->team, d_heads, n, narrow);
        d_heads = narrow;
    }
    b.d_out = attn_cview_of(d_heads, attn_mha_kept(plan), 1, 1, 1, 1);
    memcpy(b.d_out.shape, s.out.shape, sizeof b.d_out.shape);
    memcpy(b.d_out.stride, s.out.stride, sizeof b.d_out.stride);
    b.d_query = like(&s.query, a->dtype, d->q);
    b.d_key = like(&s.key, a->dtype, d->k);
    b.d_value = like(&s.value, a->dtype, d->v);
    b.d_bias = g->d_bias;
    ATTN_TRY(attn_mha_widen_masks(layers, plan, &s));
    if (plan->appended && g->d_bias.data)
        ATTN_TRY(wide_bias(layers, plan, g, &b.d_bias));
    b.d_relative = g->d_relative;
    void *sinks = NULL, *relative = NULL; /* the operator writes these; weights' gradients are added to */
    if (g->weights.sinks && (plan->appended || !plan->n_extra)) {
        ATTN_TRY(attn_layers_scratch(layers, a->n_heads, ATTN_F32, &sinks));
        b.d_sinks = sinks;
    }
    const int64_t table = (a->mask.rel_left + a->mask.rel_right + 1) * (a->mask.relative_stride ? a->n_heads : 1);
    if (g->d_relative) {
        const int64_t count = a->mask.relative_stride ? (a->n_heads - 1) * a->mask.relative_stride + table / a->n_heads : table;
        ATTN_TRY(attn_layers_scratch(layers, count, ATTN_F32, &relative));
        memset(relative, 0, (size_t)count * sizeof(float));
        b.d_relative = relative;
        ATTN_TRY(attn_layers_ctx_status(layers, attn_sdpa_backward(layers->ctx, &b, NULL, 0)));
        for (int64_t i = 0; i < count; i++)
            g->d_relative[i] += ((float *)relative)[i];
    } else {
        ATTN_TRY(attn_layers_ctx_status(layers, attn_sdpa_backward(layers->ctx, &b, NULL, 0)));
    }
    if (plan->appended && g->d_bias.data)
        narrow_bias(plan, &b.d_bias, &g->d_bias);
    add_sinks(a, sinks, g->weights.sinks);
    return ATTN_OK;
}

/* ---- projections ---- */

/* Where the gradient of some rows goes; the second one that goes there is added. */
typedef struct row_target {
    void *data;
    int64_t ld;
    bool add;
} row_target;

static void project_back(attn_layers *layers, int32_t dtype, int64_t rows, const void *x, int64_t ldx, int64_t n_in,
                         const void *weight, int64_t n_out, const void *d_y, int64_t ld_dy, void *d_weight, void *d_bias,
                         row_target *to)
{
    const attn_linear_args linear = {.dtype = dtype, .rows = rows, .n_in = n_in, .n_out = n_out, .x = x, .ldx = ldx,
                                     .weight = weight};
    const attn_linear_gradients back = {.flags = to->add ? ATTN_GRAD_ACCUMULATE : 0, .d_y = d_y, .ld_dy = ld_dy,
                                        .d_x = to->data, .ld_dx = to->ld, .weight = d_weight, .bias = d_bias};
    if (weight)
        attn_linear_run_backward(layers, &linear, &back);
    else if (to->data && to->add)
        attn_rows_add(&layers->team, dtype, rows, n_in, d_y, ld_dy, to->data, to->ld);
    else if (to->data)
        attn_rows_copy(&layers->team, dtype, rows, n_in, d_y, ld_dy, to->data, to->ld);
    to->add = true;
}

static bool follows(const void *first, int64_t count, const void *second, int32_t dtype)
{
    return (!first && !second) || (first && second && attn_at(first, dtype, count) == second);
}

/* Weights and gradients of q, k and v each lie as one matrix: one product does for all. */
static bool as_one(const attn_mha_plan *plan, const attn_mha_weight_gradients *d)
{
    const attn_mha_args *a = &plan->a;
    const attn_mha_weights *w = &a->weights;
    const int64_t q = plan->q_width, k = plan->k_width, n = a->d_query;
    return plan->together && w->w_query && w->w_key && w->w_value && follows(w->w_query, q * n, w->w_key, a->dtype) &&
           follows(w->w_key, k * n, w->w_value, a->dtype) && follows(d->w_query, q * n, d->w_key, a->dtype) &&
           follows(d->w_key, k * n, d->w_value, a->dtype) && follows(d->b_query, q, d->b_key, a->dtype) &&
           follows(d->b_key, k, d->b_value, a->dtype);
}

static void through_inputs(attn_layers *layers, const attn_mha_plan *plan, const attn_mha_gradients *g, const projected *d)
{
    const attn_mha_args *a = &plan->a;
    const attn_mha_weight_gradients *to = &g->weights;
    const bool add = (g->flags & ATTN_GRAD_ACCUMULATE) != 0;
    const int64_t rows_q = a->batch * a->seq_q, rows_kv = a->batch * a->seq_kv;
    row_target query = {g->d_query, g->ld_dquery, add}, key = {g->d_key, g->ld_dkey, add};
    row_target value = {g->d_value, g->ld_dvalue, add};
    row_target *to_key = a->key ? &key : &query, *to_value = a->value ? &value : to_key;
    if (as_one(plan, to)) {
        project_back(layers, a->dtype, rows_q, a->query, a->ld_query, a->d_query, a->weights.w_query, plan->ld_q, d->q,
                     plan->ld_q, to->w_query, to->b_query, &query);
        return;
    }
    project_back(layers, a->dtype, rows_q, a->query, a->ld_query, a->d_query, a->weights.w_query, plan->q_width, d->q,
                 plan->ld_q, to->w_query, to->b_query, &query);
    for (int64_t b = 0; plan->appended && b < a->batch; b++) { /* each batch entry's keys have a gap behind them */
        const int64_t row = b * a->seq_kv, d_row = b * plan->rows_kv;
        for (int part = 0; part < 2; part++) {
            const row_target *target = part ? to_value : to_key;
            /* the first to write an entry's rows may be the queries, or the keys; later ones add */
            const bool shared = part ? to_value != &value : to_key != &key;
            row_target here = {target->data ? attn_at(target->data, a->dtype, row * target->ld) : NULL, target->ld,
                               add || shared};
            if (part)
                project_back(layers, a->dtype, a->seq_kv, attn_at(plan->value_rows, a->dtype, row * plan->ld_value_rows),
                             plan->ld_value_rows, a->d_value, a->weights.w_value, plan->v_width,
                             attn_at(d->v, a->dtype, d_row * plan->ld_v), plan->ld_v, to->w_value, to->b_value, &here);
            else
                project_back(layers, a->dtype, a->seq_kv, attn_at(plan->key_rows, a->dtype, row * plan->ld_key_rows),
                             plan->ld_key_rows, a->d_key, a->weights.w_key, plan->k_width,
                             attn_at(d->k, a->dtype, d_row * plan->ld_k), plan->ld_k, to->w_key, to->b_key, &here);
        }
    }
    if (plan->appended) {
        if (to->bias_k)
            attn_rows_sum(&layers->team, a->dtype, a->batch, plan->k_width,
                          attn_at(d->k, a->dtype, a->seq_kv * plan->ld_k), plan->rows_kv * plan->ld_k, to->bias_k);
        if (to->bias_v)
            attn_rows_sum(&layers->team, a->dtype, a->batch, plan->v_width,
                          attn_at(d->v, a->dtype, a->seq_kv * plan->ld_v), plan->rows_kv * plan->ld_v, to->bias_v);
        return;
    }
    project_back(layers, a->dtype, rows_kv, plan->key_rows, plan->ld_key_rows, a->d_key, a->weights.w_key, plan->k_width,
                 d->k, plan->ld_k, to->w_key, to->b_key, to_key);
    project_back(layers, a->dtype, rows_kv, plan->value_rows, plan->ld_value_rows, a->d_value, a->weights.w_value,
                 plan->v_width, d->v, plan->ld_v, to->w_value, to->b_value, to_value);
}

attn_status attn_mha_run_backward(attn_layers *layers, attn_mha_plan *plan, const attn_mha_gradients *gradients)
{
    const attn_arena_mark mark = attn_layers_mark(layers);
    projected d;
    void *d_heads = NULL;
    attn_mha_place(plan, plan->a.saved);
    ATTN_TRY(place_projected(layers, plan, &d));
    ATTN_TRY(through_out(layers, plan, gradients, &d_heads));
    ATTN_TRY(through_operator(layers, plan, gradients, d_heads, &d));
    if (plan->n_extra && !plan->appended)
        ATTN_TRY(through_extra(layers, plan, gradients, d_heads, &d));
    ATTN_TRY(attn_mha_rotate(layers, plan, d.q, d.k, ATTN_ROPE_INVERSE));
    through_inputs(layers, plan, gradients, &d);
    attn_layers_release(layers, mark);
    return ATTN_OK;
}

static attn_status backward(attn_layers *layers, const attn_mha_args *args, const attn_mha_gradients *gradients)
{
    attn_mha_plan plan;
    attn_mha_gradients g;
    ATTN_TRY(attn_mha_prepare(layers, &plan, args, false));
    ATTN_TRY(attn_layers_args(layers, &g, sizeof g, gradients, "gradients"));
    ATTN_TRY(attn_layers_flags(layers, g.flags, ATTN_GRAD_ACCUMULATE, "gradients.flags"));
    ATTN_TRY(attn_layers_stride(layers, &g.ld_dout, plan.a.d_out, "gradients.ld_dout"));
    ATTN_TRY(attn_layers_stride(layers, &g.ld_dquery, plan.a.d_query, "gradients.ld_dquery"));
    ATTN_TRY(attn_layers_stride(layers, &g.ld_dkey, plan.a.d_key, "gradients.ld_dkey"));
    ATTN_TRY(attn_layers_stride(layers, &g.ld_dvalue, plan.a.d_value, "gradients.ld_dvalue"));
    ATTN_LAYERS_REQUIRE(layers, plan.a.key || !g.d_key, "gradients.d_key is given, but args.key is NULL (it is query)");
    ATTN_LAYERS_REQUIRE(layers, plan.a.value || !g.d_value, "gradients.d_value is given, but args.value is NULL (it is key)");
    ATTN_TRY(attn_layers_pointer(layers, g.d_out, plan.a.batch * plan.a.seq_q, "gradients.d_out"));
    ATTN_LAYERS_REQUIRE(layers, plan.a.saved, "args.saved is NULL");
    return attn_mha_run_backward(layers, &plan, &g);
}

attn_status attn_mha_backward(attn_layers *layers, const attn_mha_args *args, const attn_mha_gradients *gradients)
{
    return ATTN_LAYERS_CALL(layers, backward(layers, args, gradients));
}
