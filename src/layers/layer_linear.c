/* layer_linear.c - y = x W^T + b. */
#include "layers/layer_parts.h"

attn_status attn_linear_check(attn_layers *layers, attn_linear_args *a)
{
    ATTN_TRY(attn_layers_dtype(layers, a->dtype));
    ATTN_TRY(attn_layers_size(layers, a->rows, "args.rows"));
    ATTN_TRY(attn_layers_width(layers, a->n_in, "args.n_in"));
    ATTN_TRY(attn_layers_width(layers, a->n_out, "args.n_out"));
    ATTN_TRY(attn_layers_stride(layers, &a->ldx, a->n_in, "args.ldx"));
    ATTN_TRY(attn_layers_stride(layers, &a->ldy, a->n_out, "args.ldy"));
    ATTN_TRY(attn_layers_stride(layers, &a->ld_residual, a->n_out, "args.ld_residual"));
    ATTN_TRY(attn_layers_pointer(layers, a->x, a->rows, "args.x"));
    return attn_layers_pointer(layers, a->weight, a->rows, "args.weight");
}

void attn_linear_run_forward(attn_layers *layers, const attn_linear_args *a)
{
    const attn_gemm_args g = {.dtype = a->dtype, .kind = ATTN_GEMM_NT, .m = a->rows, .n = a->n_out, .k = a->n_in,
                              .a = a->x, .lda = a->ldx, .b = a->weight, .ldb = a->n_in, .c = a->y, .ldc = a->ldy,
                              .bias = a->bias};
    if (a->residual && a->residual == a->y) { /* y keeps what is in it: the product is added */
        attn_gemm_args more = g;
        more.accumulate = 1;
        attn_gemm(&layers->team, &more);
        return;
    }
    attn_gemm(&layers->team, &g);
    if (a->residual)
        attn_rows_add(&layers->team, a->dtype, a->rows, a->n_out, a->residual, a->ld_residual, a->y, a->ldy);
}

static attn_status forward(attn_layers *layers, const attn_linear_args *args)
{
    attn_linear_args a;
    ATTN_TRY(attn_layers_args(layers, &a, sizeof a, args, "args"));
    ATTN_TRY(attn_linear_check(layers, &a));
    ATTN_TRY(attn_layers_pointer(layers, a.y, a.rows, "args.y"));
    attn_linear_run_forward(layers, &a);
    return ATTN_OK;
}

attn_status attn_linear_forward(attn_layers *layers, const attn_linear_args *args)
{
    return ATTN_LAYERS_CALL(layers, forward(layers, args));
}

void attn_linear_run_backward(attn_layers *layers, const attn_linear_args *a, const attn_linear_gradients *g)
{
    const attn_team *team = &layers->team;
    if (g->d_x) {
        const attn_gemm_args x = {.dtype = a->dtype, .kind = ATTN_GEMM_NN, .m = a->rows, .n = a->n_in, .k = a->n_out,
                                  .a = g->d_y, .lda = g->ld_dy, .b = a->weight, .ldb = a->n_in, .c = g->d_x,
                                  .ldc = g->ld_dx, .accumulate = (g->flags & ATTN_GRAD_ACCUMULATE) != 0};
        attn_gemm(team, &x);
    }
    if (g->weight) {
        const attn_gemm_args w = {.dtype = a->dtype, .kind = ATTN_GEMM_TN, .m = a->n_out, .n = a->n_in, .k = a->rows,
                                  .a = g->d_y, .lda = g->ld_dy, .b = a->x, .ldb = a->ldx, .c = g->weight,
                                  .ldc = a->n_in, .accumulate = 1};
        attn_gemm(team, &w);
    }
    if (g->bias)
        attn_rows_sum(team, a->dtype, a->rows, a->n_out, g->d_y, g->ld_dy, g->bias);
}

static attn_status backward(attn_layers *layers, const attn_linear_args *args, const attn_linear_gradients *gradients)
{
    attn_linear_args a;
    attn_linear_gradients g;
    ATTN_TRY(attn_layers_args(layers, &a, sizeof a, args, "args"));
    ATTN_TRY(attn_layers_args(layers, &g, sizeof g, gradients, "gradients"));
    ATTN_TRY(attn_linear_check(layers, &a));
    ATTN_TRY(attn_layers_flags(layers, g.flags, ATTN_GRAD_ACCUMULATE, "gradients.flags"));
    ATTN_TRY(attn_layers_stride(layers, &g.ld_dy, a.n_out, "gradients.ld_dy"));
    ATTN_TRY(attn_layers_stride(layers, &g.ld_dx, a.n_in, "gradients.ld_dx"));
    ATTN_TRY(attn_layers_pointer(layers, g.d_y, a.rows, "gradients.d_y"));
    attn_linear_run_backward(layers, &a, &g);
    return ATTN_OK;
}

attn_status attn_linear_backward(attn_layers *layers, const attn_linear_args *args,
                                 const attn_linear_gradients *gradients)
{
    return ATTN_LAYERS_CALL(layers, backward(layers, args, gradients));
}
