/* layer_rows.c - layers that look at one row, or one number, at a time: activation, norm, dropout with residual. */
#include "layers/layer_parts.h"

/* ---- activation ---- */

attn_status attn_act_check(attn_layers *layers, int32_t act)
{
    ATTN_LAYERS_REQUIRE(layers, act >= ATTN_ACT_NONE && act <= ATTN_ACT_TANH, "args.act is %d: no ATTN_ACT_* value", act);
    return ATTN_OK;
}

static attn_status activation_check(attn_layers *layers, attn_activation_args *a, const attn_activation_args *args)
{
    ATTN_TRY(attn_layers_args(layers, a, sizeof *a, args, "args"));
    ATTN_TRY(attn_layers_dtype(layers, a->dtype));
    ATTN_TRY(attn_act_check(layers, a->act));
    ATTN_LAYERS_REQUIRE(layers, a->n >= 0, "args.n is %lld", (long long)a->n);
    return attn_layers_pointer(layers, a->x, a->n, "args.x");
}

static attn_status activation_forward(attn_layers *layers, const attn_activation_args *args)
{
    attn_activation_args a;
    ATTN_TRY(activation_check(layers, &a, args));
    ATTN_TRY(attn_layers_pointer(layers, a.y, a.n, "args.y"));
    attn_rows_activate(&layers->team, a.dtype, a.act, a.n, a.x, a.up, a.y);
    return ATTN_OK;
}

attn_status attn_activation_forward(attn_layers *layers, const attn_activation_args *args)
{
    return ATTN_LAYERS_CALL(layers, activation_forward(layers, args));
}

static attn_status activation_backward(attn_layers *layers, const attn_activation_args *args,
                                       const attn_activation_gradients *gradients)
{
    attn_activation_args a;
    attn_activation_gradients g;
    ATTN_TRY(activation_check(layers, &a, args));
    ATTN_TRY(attn_layers_args(layers, &g, sizeof g, gradients, "gradients"));
    ATTN_TRY(attn_layers_flags(layers, g.flags, ATTN_GRAD_ACCUMULATE, "gradients.flags"));
    ATTN_TRY(attn_layers_pointer(layers, g.d_y, a.n, "gradients.d_y"));
    ATTN_LAYERS_REQUIRE(layers, a.up || !g.d_up, "gradients.d_up is given without args.up");
    attn_rows_activate_grad(&layers->team, a.dtype, a.act, a.n, a.x, a.up, g.d_y,
                            (g.flags & ATTN_GRAD_ACCUMULATE) != 0, g.d_x, g.d_up, NULL);
    return ATTN_OK;
}

attn_status attn_activation_backward(attn_layers *layers, const attn_activation_args *args,
                                     const attn_activation_gradients *gradients)
{
    return ATTN_LAYERS_CALL(layers, activation_backward(layers, args, gradients));
}

/* ---- norm ---- */

attn_rows_norm_job attn_norm_job(const attn_norm_args *a)
{
    const attn_rows_norm_job job = {.dtype = a->dtype, .kind = a->kind, .rows = a->rows, .n = a->n, .eps = a->eps,
                                    .offset = a->offset, .x = a->x, .ldx = a->ldx, .weight = a->weight, .bias = a->bias,
                                    .y = a->y, .ldy = a->ldy};
    return job;
}

attn_status attn_norm_check(attn_layers *layers, attn_norm_args *a)
{
    ATTN_TRY(attn_layers_dtype(layers, a->dtype));
    ATTN_LAYERS_REQUIRE(layers, a->kind == ATTN_NORM_RMS || a->kind == ATTN_NORM_LAYER,
                        "args.kind is %d: no ATTN_NORM_* value", a->kind);
    ATTN_TRY(attn_layers_size(layers, a->rows, "args.rows"));
    ATTN_TRY(attn_layers_width(layers, a->n, "args.n"));
    ATTN_LAYERS_REQUIRE(layers, a->eps >= 0, "args.eps is %g", a->eps);
    ATTN_LAYERS_REQUIRE(layers, a->offset == 0 || a->kind == ATTN_NORM_RMS, "args.offset is %g: it is for ATTN_NORM_RMS",
                        a->offset);
    ATTN_LAYERS_REQUIRE(layers, !a->bias || a->kind == ATTN_NORM_LAYER, "args.bias is given with ATTN_NORM_RMS");
    ATTN_TRY(attn_layers_stride(layers, &a->ldx, a->n, "args.ldx"));
    return attn_layers_stride(layers, &a->ldy, a->n, "args.ldy");
}

static attn_status norm_forward(attn_layers *layers, const attn_norm_args *args)
{
    attn_norm_args a;
    ATTN_TRY(attn_layers_args(layers, &a, sizeof a, args, "args"));
    ATTN_TRY(attn_norm_check(layers, &a));
    ATTN_TRY(attn_layers_pointer(layers, a.x, a.rows, "args.x"));
    ATTN_TRY(attn_layers_pointer(layers, a.y, a.rows, "args.y"));
    const attn_rows_norm_job job = attn_norm_job(&a);
    attn_rows_norm(&layers->team, &job);
    return ATTN_OK;
}

attn_status attn_norm_forward(attn_layers *layers, const attn_norm_args *args)
{
    return ATTN_LAYERS_CALL(layers, norm_forward(layers, args));
}

attn_status attn_norm_run_backward(attn_layers *layers, const attn_norm_args *a, const attn_norm_gradients *g)
{
    attn_rows_norm_job job = attn_norm_job(a);
    const attn_arena_mark mark = attn_layers_mark(layers);
    job.d_y = g->d_y, job.ld_dy = g->ld_dy;
    job.d_x = g->d_x, job.ld_dx = g->ld_dx;
    job.d_weight = g->weight, job.d_bias = g->bias;
    job.accumulate = (g->flags & ATTN_GRAD_ACCUMULATE) != 0;
    if (job.d_weight || job.d_bias)
        ATTN_TRY(attn_layers_scratch(layers, attn_rows_norm_partial(&job), job.dtype, &job.partial));
    attn_rows_norm_grad(&layers->team, &job);
    attn_layers_release(layers, mark);
    return ATTN_OK;
}

static attn_status norm_backward(attn_layers *layers, const attn_norm_args *args, const attn_norm_gradients *gradients)
{
    attn_norm_args a;
    attn_norm_gradients g;
    ATTN_TRY(attn_layers_args(layers, &a, sizeof a, args, "args"));
    ATTN_TRY(attn_layers_args(layers, &g, sizeof g, gradients, "gradients"));
    ATTN_TRY(attn_norm_check(layers, &a));
    ATTN_TRY(attn_layers_pointer(layers, a.x, a.rows, "args.x"));
    ATTN_TRY(attn_layers_flags(layers, g.flags, ATTN_GRAD_ACCUMULATE, "gradients.flags"));
    ATTN_TRY(attn_layers_stride(layers, &g.ld_dy, a.n, "gradients.ld_dy"));
    ATTN_TRY(attn_layers_stride(layers, &g.ld_dx, a.n, "gradients.ld_dx"));
    ATTN_TRY(attn_layers_pointer(layers, g.d_y, a.rows, "gradients.d_y"));
    ATTN_LAYERS_REQUIRE(layers, !g.bias || a.kind == ATTN_NORM_LAYER, "gradients.bias is given with ATTN_NORM_RMS");
    return attn_norm_run_backward(layers, &a, &g);
}

attn_status attn_norm_backward(attn_layers *layers, const attn_norm_args *args, const attn_norm_gradients *gradients)
{
    return ATTN_LAYERS_CALL(layers, norm_backward(layers, args, gradients));
}

/* ---- dropout and residual ---- */

static attn_status residual_check(attn_layers *layers, attn_residual_args *a, const attn_residual_args *args)
{
    ATTN_TRY(attn_layers_args(layers, a, sizeof *a, args, "args"));
    ATTN_TRY(attn_layers_dtype(layers, a->dtype));
    ATTN_LAYERS_REQUIRE(layers, a->n >= 0, "args.n is %lld", (long long)a->n);
    return attn_layers_probability(layers, a->dropout_p, "args.dropout_p");
}

static attn_status residual_forward(attn_layers *layers, const attn_residual_args *args)
{
    attn_residual_args a;
    ATTN_TRY(residual_check(layers, &a, args));
    ATTN_TRY(attn_layers_pointer(layers, a.x, a.n, "args.x"));
    ATTN_TRY(attn_layers_pointer(layers, a.y, a.n, "args.y"));
    attn_rows_dropout(&layers->team, a.dtype, a.n, a.x, a.residual, a.dropout_p, a.dropout_seed, a.y);
    return ATTN_OK;
}

attn_status attn_residual_forward(attn_layers *layers, const attn_residual_args *args)
{
    return ATTN_LAYERS_CALL(layers, residual_forward(layers, args));
}

static attn_status residual_backward(attn_layers *layers, const attn_residual_args *args, const void *d_y, void *d_x,
                                     uint64_t flags)
{
    attn_residual_args a;
    ATTN_TRY(residual_check(layers, &a, args));
    ATTN_TRY(attn_layers_flags(layers, flags, ATTN_GRAD_ACCUMULATE, "flags"));
    ATTN_TRY(attn_layers_pointer(layers, d_y, a.n, "d_y"));
    ATTN_TRY(attn_layers_pointer(layers, d_x, a.n, "d_x"));
    attn_rows_dropout(&layers->team, a.dtype, a.n, d_y, flags & ATTN_GRAD_ACCUMULATE ? d_x : NULL, a.dropout_p,
                      a.dropout_seed, d_x);
    return ATTN_OK;
}

attn_status attn_residual_backward(attn_layers *layers, const attn_residual_args *args, const void *d_y, void *d_x,
                                   uint64_t flags)
{
    return ATTN_LAYERS_CALL(layers, residual_backward(layers, args, d_y, d_x, flags));
}
