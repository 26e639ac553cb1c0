/* layer_ffn.c - the feed-forward layer, plain and gated. */
#include "layers/layer_parts.h"

/* saved: what the activation saw, [rows, d_ff] (gated: the gate's), and behind it, gated, W_up x + b_up. */
static void *saved_up(const attn_ffn_args *a, void *saved)
{
    return (char *)saved + attn_padded_bytes(a->rows * a->d_ff, a->dtype);
}

attn_status attn_ffn_check(attn_layers *layers, attn_ffn_args *a, bool sizes_only)
{
    ATTN_TRY(attn_layers_dtype(layers, a->dtype));
    ATTN_TRY(attn_act_check(layers, a->act));
    ATTN_TRY(attn_layers_size(layers, a->rows, "args.rows"));
    ATTN_TRY(attn_layers_width(layers, a->d_model, "args.d_model"));
    ATTN_TRY(attn_layers_width(layers, a->d_ff, "args.d_ff"));
    ATTN_TRY(attn_layers_stride(layers, &a->ldx, a->d_model, "args.ldx"));
    ATTN_TRY(attn_layers_stride(layers, &a->ldy, a->d_model, "args.ldy"));
    ATTN_TRY(attn_layers_probability(layers, a->dropout_p, "args.dropout_p"));
    ATTN_LAYERS_REQUIRE(layers, a->weights.w_gate || !a->weights.b_gate, "args.weights.b_gate is given without w_gate");
    if (sizes_only)
        return ATTN_OK;
    ATTN_TRY(attn_layers_pointer(layers, a->x, a->rows, "args.x"));
    ATTN_TRY(attn_layers_pointer(layers, a->weights.w_up, a->rows, "args.weights.w_up"));
    return attn_layers_pointer(layers, a->weights.w_down, a->rows, "args.weights.w_down");
}

size_t attn_ffn_saved_size(const attn_ffn_args *a)
{
    return attn_padded_bytes(a->rows * a->d_ff, a->dtype) * (a->weights.w_gate ? 2 : 1);
}

static attn_status saved_bytes(attn_layers *layers, const attn_ffn_args *args, size_t *bytes)
{
    attn_ffn_args a;
    ATTN_LAYERS_REQUIRE(layers, bytes, "bytes is NULL");
    ATTN_TRY(attn_layers_args(layers, &a, sizeof a, args, "args"));
    ATTN_TRY(attn_ffn_check(layers, &a, true));
    *bytes = attn_ffn_saved_size(&a);
    return ATTN_OK;
}

attn_status attn_ffn_saved_bytes(attn_layers *layers, const attn_ffn_args *args, size_t *bytes)
{
    return ATTN_LAYERS_CALL(layers, saved_bytes(layers, args, bytes));
}

static attn_linear_args into_hidden(const attn_ffn_args *a, const void *weight, const void *bias, void *y)
{
    const attn_linear_args linear = {.dtype = a->dtype, .rows = a->rows, .n_in = a->d_model, .n_out = a->d_ff, .x = a->x,
                                     .ldx = a->ldx, .weight = weight, .bias = bias, .y = y, .ldy = a->d_ff};
    return linear;
}

/* hidden = dropout(act(before) (* up)) */
static void activate(attn_layers *layers, const attn_ffn_args *a, const void *before, const void *up, void *hidden)
{
    const int64_t n = a->rows * a->d_ff;
    attn_rows_activate(&layers->team, a->dtype, a->act, n, before, up, hidden);
    if (a->dropout_p > 0)
        attn_rows_dropout(&layers->team, a->dtype, n, hidden, NULL, a->dropout_p, a->dropout_seed, hidden);
}

attn_status attn_ffn_run_forward(attn_layers *layers, const attn_ffn_args *a)
{
    const attn_ffn_weights *w = &a->weights;
    const attn_arena_mark mark = attn_layers_mark(layers);
    void *before = a->saved, *up = a->saved ? saved_up(a, a->saved) : NULL, *hidden = NULL;
    ATTN_TRY(attn_layers_scratch(layers, a->rows * a->d_ff, a->dtype, &hidden));
    if (!a->saved) { /* the activation works in place */
        before = hidden;
        if (w->w_gate)
            ATTN_TRY(attn_layers_scratch(layers, a->rows * a->d_ff, a->dtype, &up));
    }
    const attn_linear_args first = w->w_gate ? into_hidden(a, w->w_gate, w->b_gate, before)
                                             : into_hidden(a, w->w_up, w->b_up, before);
    attn_linear_run_forward(layers, &first);
    if (w->w_gate) {
        const attn_linear_args second = into_hidden(a, w->w_up, w->b_up, up);
        attn_linear_run_forward(layers, &second);
    }
    activate(layers, a, before, w->w_gate ? up : NULL, hidden);
    const attn_linear_args down = {.dtype = a->dtype, .rows = a->rows, .n_in = a->d_ff, .n_out = a->d_model,
                                   .x = hidden, .ldx = a->d_ff, .weight = w->w_down, .bias = w->b_down, .y = a->y,
                                   .ldy = a->ldy};
    attn_linear_run_forward(layers, &down);
    attn_layers_release(layers, mark);
    return ATTN_OK;
}

static attn_status forward(attn_layers *layers, const attn_ffn_args *args)
{
    attn_ffn_args a;
    ATTN_TRY(attn_layers_args(layers, &a, sizeof a, args, "args"));
    ATTN_TRY(attn_ffn_check(layers, &a, false));
    ATTN_TRY(attn_layers_pointer(layers, a.y, a.rows, "args.y"));
    return attn_ffn_run_forward(layers, &a);
}

attn_status attn_ffn_forward(attn_layers *layers, const attn_ffn_args *args)
{
    return ATTN_LAYERS_CALL(layers, forward(layers, args));
}

attn_status attn_ffn_run_backward(attn_layers *layers, const attn_ffn_args *a, const attn_ffn_gradients *g)
{
    const attn_ffn_weights *w = &a->weights;
    const bool gated = w->w_gate != NULL;
    const int64_t n = a->rows * a->d_ff;
    const attn_arena_mark mark = attn_layers_mark(layers);
    const bool down_wanted = g->weights.w_down || g->weights.b_down;
    void *before = a->saved, *up = gated ? saved_up(a, a->saved) : NULL, *hidden = NULL, *d_hidden = NULL, *d_up = NULL;
    ATTN_TRY(attn_layers_scratch(layers, n, a->dtype, &d_hidden));
    if (down_wanted)
        ATTN_TRY(attn_layers_scratch(layers, n, a->dtype, &hidden));
    if (gated)
        ATTN_TRY(attn_layers_scratch(layers, n, a->dtype, &d_up));
    const attn_gemm_args to_hidden = {.dtype = a->dtype, .kind = ATTN_GEMM_NN, .m = a->rows, .n = a->d_ff,
                                      .k = a->d_model, .a = g->d_y, .lda = g->ld_dy, .b = w->w_down, .ldb = a->d_ff,
                                      .c = d_hidden, .ldc = a->d_ff};
    attn_gemm(&layers->team, &to_hidden);
    if (a->dropout_p > 0)
        attn_rows_dropout(&layers->team, a->dtype, n, d_hidden, NULL, a->dropout_p, a->dropout_seed, d_hidden);
    /* hidden is computed again, for its weight's gradient */
    attn_rows_activate_grad(&layers->team, a->dtype, a->act, n, before, up, d_hidden, 0, d_hidden, d_up, hidden);
    if (down_wanted) {
        if (a->dropout_p > 0)
            attn_rows_dropout(&layers->team, a->dtype, n, hidden, NULL, a->dropout_p, a->dropout_seed, hidden);
        const attn_linear_args down = {.dtype = a->dtype, .rows = a->rows, .n_in = a->d_ff, .n_out = a->d_model,
                                       .x = hidden, .ldx = a->d_ff, .weight = w->w_down};
        const attn_linear_gradients to_weight = {.d_y = g->d_y, .ld_dy = g->ld_dy, .weight = g->weights.w_down,
                                                 .bias = g->weights.b_down};
        attn_linear_run_backward(layers, &down, &to_weight);
    }
    attn_linear_args first = into_hidden(a, gated ? w->w_gate : w->w_up, NULL, NULL);
    attn_linear_gradients back = {.flags = g->flags, .d_y = d_hidden, .ld_dy = a->d_ff, .d_x = g->d_x, .ld_dx = g->ld_dx,
                                  .weight = gated ? g->weights.w_gate : g->weights.w_up,
                                  .bias = gated ? g->weights.b_gate : g->weights.b_up};
    attn_linear_run_backward(layers, &first, &back);
    if (gated) {
        first.weight = w->w_up;
        back.flags |= ATTN_GRAD_ACCUMULATE;
        back.d_y = d_up, back.weight = g->weights.w_up, back.bias = g->weights.b_up;
        attn_linear_run_backward(layers, &first, &back);
    }
    attn_layers_release(layers, mark);
    return ATTN_OK;
}

static attn_status backward(attn_layers *layers, const attn_ffn_args *args, const attn_ffn_gradients *gradients)
{
    attn_ffn_args a;
    attn_ffn_gradients g;
    ATTN_TRY(attn_layers_args(layers, &a, sizeof a, args, "args"));
    ATTN_TRY(attn_layers_args(layers, &g, sizeof g, gradients, "gradients"));
    ATTN_TRY(attn_ffn_check(layers, &a, false));
    ATTN_TRY(attn_layers_flags(layers, g.flags, ATTN_GRAD_ACCUMULATE, "gradients.flags"));
    ATTN_TRY(attn_layers_stride(layers, &g.ld_dy, a.d_model, "gradients.ld_dy"));
    ATTN_TRY(attn_layers_stride(layers, &g.ld_dx, a.d_model, "gradients.ld_dx"));
    ATTN_TRY(attn_layers_pointer(layers, g.d_y, a.rows, "gradients.d_y"));
    ATTN_TRY(attn_layers_pointer(layers, a.saved, a.rows, "args.saved"));
    return attn_ffn_run_backward(layers, &a, &g);
}

attn_status attn_ffn_backward(attn_layers *layers, const attn_ffn_args *args, const attn_ffn_gradients *gradients)
{
    return ATTN_LAYERS_CALL(layers, backward(layers, args, gradients));
}
