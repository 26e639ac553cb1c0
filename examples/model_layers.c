/* A transformer block forward and backward: its gradient in one direction against the change of its output. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "attn/layers.h"

enum { BATCH = 2, SEQ = 16, D = 32, FF = 64, HEADS = 4, ROWS = BATCH * SEQ };

static double *numbers(int n, double amplitude) /* -amplitude .. amplitude, from a small generator */
{
    static unsigned state = 1;
    double *x = malloc((size_t)n * sizeof *x);
    for (int i = 0; i < n; i++)
        x[i] = amplitude * ((double)((state = state * 1664525u + 1013904223u) >> 8) / 8388608.0 - 1.0);
    return x;
}

int main(void)
{
    attn_layers *layers;
    if (attn_layers_create(NULL, &layers) != ATTN_OK)
        return puts(attn_layers_error(NULL)), 1;
    attn_block_args a;
    attn_block_gradients g;
    ATTN_ARGS_INIT(&a), ATTN_ARGS_INIT(&g);
    a.dtype = ATTN_F64, a.batch = BATCH, a.seq = SEQ, a.d_model = D, a.d_ff = FF, a.n_heads = HEADS;
    a.norm_kind = ATTN_NORM_LAYER, a.act = ATTN_ACT_GELU_TANH; /* pre-norm, as GPT-2 */
    a.mask.flags = ATTN_MASK_CAUSAL;
    const void **w[] = {&a.weights.attention.w_query, &a.weights.attention.w_key, &a.weights.attention.w_value,
                        &a.weights.attention.w_out, &a.weights.ffn.w_up, &a.weights.ffn.w_down};
    for (int i = 0; i < 6; i++)
        *w[i] = numbers(i < 4 ? D * D : D * FF, 0.2);
    double *x = numbers(ROWS * D, 1), *y = malloc(ROWS * D * sizeof *y), *d_y = numbers(ROWS * D, 1);
    double *d_x = malloc(ROWS * D * sizeof *d_x), loss[2];
    size_t bytes;
    a.x = x, a.y = y, g.d_y = d_y, g.d_x = d_x;
    if (attn_block_saved_bytes(layers, &a, &bytes) != ATTN_OK)
        return puts(attn_layers_error(layers)), 1;
    a.saved = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (attn_block_forward(layers, &a) != ATTN_OK || attn_block_backward(layers, &a, &g) != ATTN_OK)
        return puts(attn_layers_error(layers)), 1;
    for (int side = 0; side < 2; side++) { /* the loss is <y, d_y>; token 3, feature 5 moves by 1e-5 either way */
        x[3 * D + 5] += side ? -2e-5 : 1e-5;
        if (attn_block_forward(layers, &a) != ATTN_OK)
            return puts(attn_layers_error(layers)), 1;
        loss[side] = 0;
        for (int i = 0; i < ROWS * D; i++)
            loss[side] += y[i] * d_y[i];
    }
    const double measured = (loss[0] - loss[1]) / 2e-5;
    printf("gradient %.9f, measured %.9f\n", d_x[3 * D + 5], measured);
    const int good = fabs(d_x[3 * D + 5] - measured) < 1e-6;
    for (int i = 0; i < 6; i++)
        free((void *)(size_t)*w[i]);
    free(x), free(y), free(d_y), free(d_x), free(a.saved);
    attn_layers_destroy(layers);
    return good ? 0 : 1;
}
