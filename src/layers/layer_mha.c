/* layer_mha.c - attention with its projections, forward. Keys behind the given ones (bias_k, ADD_ZERO) are a second call
 * of the operator, merged by lse, where masks count from positions; so memory stays linear. Else they are appended to the
 * given keys, and masks get columns for them. */
#include <string.h>
#include "layers/layer_mha.h"

static attn_status saved_bytes(attn_layers *layers, const attn_mha_args *args, size_t *bytes)
{
    attn_mha_plan plan;
    ATTN_LAYERS_REQUIRE(layers, bytes, "bytes is NULL");
    ATTN_TRY(attn_mha_prepare(layers, &plan, args, true));
    *bytes = plan.saved_bytes;
    return ATTN_OK;
}

attn_status attn_mha_saved_bytes(attn_layers *layers, const attn_mha_args *args, size_t *bytes)
{
    return ATTN_LAYERS_CALL(layers, saved_bytes(layers, args, bytes));
}

/* y = x W^T + b, or x itself. */
static void project(attn_layers *layers, int32_t dtype, int64_t rows, const void *x, int64_t ldx, int64_t n_in,
                    const void *weight, const void *bias, int64_t n_out, void *y, int64_t ldy)
{
    const attn_linear_args linear = {.dtype = dtype, .rows = rows, .n_in = n_in, .n_out = n_out, .x = x, .ldx = ldx,
                                     .weight = weight, .bias = bias, .y = y, .ldy = ldy};
    if (weight)
        attn_linear_run_forward(layers, &linear);
    else
        attn_rows_copy(&layers->team, dtype, rows, n_out, x, ldx, y, ldy);
}

/* Whether second lies right behind first's `count` numbers; two that are missing do too. */
static bool follows(const void *first, int64_t count, const void *second, int32_t dtype)
{
    return (!first && !second) || (first && second && attn_at(first, dtype, count) == second);
}

static void project_inputs(attn_layers *layers, const attn_mha_plan *plan)
{
    const attn_mha_args *a = &plan->a;
    const attn_mha_weights *w = &a->weights;
    const int64_t rows_q = a->batch * a->seq_q, rows_kv = a->batch * a->seq_kv;
    if (plan->together && w->w_query && w->w_key && w->w_value &&
        follows(w->w_query, plan->q_width * a->d_query, w->w_key, a->dtype) &&
        follows(w->w_key, plan->k_width * a->d_query, w->w_value, a->dtype) &&
        follows(w->b_query, plan->q_width, w->b_key, a->dtype) && follows(w->b_key, plan->k_width, w->b_value, a->dtype)) {
        project(layers, a->dtype, rows_q, a->query, a->ld_query, a->d_query, w->w_query, w->b_query, plan->ld_q, plan->q,
                plan->ld_q);
        return;
    }
    project(layers, a->dtype, rows_q, a->query, a->ld_query, a->d_query, w->w_query, w->b_query, plan->q_width, plan->q,
            plan->ld_q);
    if (plan->appended) { /* each batch entry's keys have a gap behind them */
        for (int64_t b = 0; b < a->batch; b++) {
            project(layers, a->dtype, a->seq_kv, attn_at(plan->key_rows, a->dtype, b * a->seq_kv * plan->ld_key_rows),
                    plan->ld_key_rows, a->d_key, w->w_key, w->b_key, plan->k_width,
                    attn_at(plan->k, a->dtype, b * plan->rows_kv * plan->ld_k), plan->ld_k);
            project(layers, a->dtype, a->seq_kv, attn_at(plan->value_rows, a->dtype, b * a->seq_kv * plan->ld_value_rows),
                    plan->ld_value_rows, a->d_value, w->w_value, w->b_value, plan->v_width,
                    attn_at(plan->v, a->dtype, b * plan->rows_kv * plan->ld_v), plan->ld_v);
        }
        return;
    }
    project(layers, a->dtype, rows_kv, plan->key_rows, plan->ld_key_rows, a->d_key, w->w_key, w->b_key, plan->k_width,
            plan->k, plan->ld_k);
    project(layers, a->dtype, rows_kv, plan->value_rows, plan->ld_value_rows, a->d_value, w->w_value, w->b_value,
            plan->v_width, plan->v, plan->ld_v);
}

/* q, k and v in the layer's type, in scratch, where they are kept in another. */
static attn_status place_wide(attn_layers *layers, const attn_mha_plan *plan, attn_mha_plan *wide)
{
    const attn_mha_args *a = &plan->a;
    *wide = *plan;
    wide->half = false;
    if (!plan->half)
        return ATTN_OK;
    ATTN_TRY(attn_layers_scratch(layers, a->batch * a->seq_q * plan->ld_q, a->dtype, &wide->q));
    if (plan->together) {
        wide->k = attn_at(wide->q, a->dtype, plan->q_width);
        wide->v = attn_at(wide->q, a->dtype, plan->q_width + plan->k_width);
        return ATTN_OK;
    }
    ATTN_TRY(attn_layers_scratch(layers, a->batch * plan->rows_kv * plan->ld_k, a->dtype, &wide->k));
    return attn_layers_scratch(layers, a->batch * plan->rows_kv * plan->ld_v, a->dtype, &wide->v);
}

static void keep_half(attn_layers *layers, const attn_mha_plan *plan, const attn_mha_plan *wide)
{
    const attn_mha_args *a = &plan->a;
    attn_mha_narrow(&layers->team, wide->q, a->batch * a->seq_q * plan->ld_q, plan->q);
    if (plan->together)
        return;
    attn_mha_narrow(&layers->team, wide->k, a->batch * plan->rows_kv * plan->ld_k, plan->k);
    attn_mha_narrow(&layers->team, wide->v, a->batch * plan->rows_kv * plan->ld_v, plan->v);
}

/* The keys behind the given ones: their part of the result, merged into heads and lse. */
static attn_status merge_extra(attn_layers *layers, const attn_mha_plan *plan, const void *extra_kv)
{
    const attn_mha_args *a = &plan->a;
    const int64_t rows = a->batch * a->seq_q;
    attn_sdpa_args s, more;
    void *heads = NULL, *lse = NULL;
    attn_mha_operator_args(plan, 0, NULL, &s);
    attn_mha_operator_args(plan, 1, extra_kv, &more);
    ATTN_TRY(attn_layers_scratch(layers, rows * a->n_heads * a->value_dim, a->dtype, &heads));
    ATTN_TRY(attn_layers_scratch(layers, rows * a->n_heads, a->dtype, &lse));
    more.out.data = heads, more.lse = lse;
    ATTN_TRY(attn_layers_ctx_status(layers, attn_sdpa_forward(layers->ctx, &more, NULL, 0)));
    attn_cview outs[2] = {more.query, more.query};
    for (int p = 0; p < 2; p++) {
        const attn_view *from = p ? &more.out : &s.out;
        outs[p].data = from->data;
        memcpy(outs[p].shape, from->shape, sizeof outs[p].shape);
        memcpy(outs[p].stride, from->stride, sizeof outs[p].stride);
    }
    const void *lses[2] = {s.lse, lse};
    return attn_layers_ctx_status(layers, attn_sdpa_merge(layers->ctx, outs, lses, 2, &s.out, s.lse));
}

attn_status attn_mha_run_forward(attn_layers *layers, attn_mha_plan *plan)
{
    const attn_mha_args *a = &plan->a;
    const int64_t rows_q = a->batch * a->seq_q;
    const attn_arena_mark mark = attn_layers_mark(layers);
    void *base = a->saved, *extra_kv = NULL;
    if (!base)
        ATTN_TRY(attn_layers_scratch(layers, (int64_t)plan->saved_bytes / 4, ATTN_F32, &base));
    attn_mha_place(plan, base);
    attn_mha_plan wide;
    const void *heads = NULL;
    ATTN_TRY(place_wide(layers, plan, &wide));
    ATTN_TRY(attn_mha_extra(layers, plan, &extra_kv));
    project_inputs(layers, &wide);
    ATTN_TRY(attn_mha_rotate(layers, &wide, wide.q, wide.k, 0));
    if (plan->half)
        keep_half(layers, plan, &wide);
    if (plan->appended)
        attn_mha_append(plan, extra_kv);
    attn_sdpa_args s;
    attn_mha_operator_args(plan, 0, NULL, &s);
    ATTN_TRY(attn_mha_widen_masks(layers, plan, &s));
    ATTN_TRY(attn_layers_ctx_status(layers, attn_sdpa_forward(layers->ctx, &s, NULL, 0)));
    if (plan->n_extra && !plan->appended)
        ATTN_TRY(merge_extra(layers, plan, extra_kv));
    ATTN_TRY(attn_mha_show_weights(layers, plan, extra_kv));
    const int64_t width = a->n_heads * a->value_dim;
    ATTN_TRY(attn_mha_heads(layers, plan, &heads));
    project(layers, a->dtype, rows_q, heads, width, width, a->weights.w_out, a->weights.b_out, a->d_out, a->out,
            a->ld_out);
    attn_layers_release(layers, mark);
    return ATTN_OK;
}

static attn_status forward(attn_layers *layers, const attn_mha_args *args)
{
    attn_mha_plan plan;
    ATTN_TRY(attn_mha_prepare(layers, &plan, args, false));
    ATTN_TRY(attn_layers_pointer(layers, plan.a.out, plan.a.batch * plan.a.seq_q, "args.out"));
    return attn_mha_run_forward(layers, &plan);
}

attn_status attn_mha_forward(attn_layers *layers, const attn_mha_args *args)
{
    return ATTN_LAYERS_CALL(layers, forward(layers, args));
}
