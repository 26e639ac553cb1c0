/* op_training_step.c - trains a toy attention layer by gradient descent, with attn_sdpa_forward and attn_sdpa_backward.
 *
 * Tokens are random vectors with their position beside them: x_i = [content (8), position (8)]. The layer has three
 * matrices; q = x Wq, k = x Wk, v = x Wv are cut into 2 heads of 8, causal attention gives out, and the first 8 numbers of
 * out_i should be the content of token i - 1. So the layer must learn to look one position back. The gradient goes through
 * attention by one call, and through the matrices by two loops. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attn/attn.h"

enum { N = 32, WIDTH = 16, CONTENT = 8, HEADS = 2, DIM = WIDTH / HEADS, STEPS = 300 };

typedef struct layer {
    float query[WIDTH][WIDTH], key[WIDTH][WIDTH], value[WIDTH][WIDTH];
} layer;

static float x[N][WIDTH], q[N][WIDTH], k[N][WIDTH], v[N][WIDTH], out[N][WIDTH], lse[HEADS][N];
static float d_out[N][WIDTH], d_q[N][WIDTH], d_k[N][WIDTH], d_v[N][WIDTH];

static float uniform(void) /* -1..1, the same on every machine */
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) * 0x1p-23f - 1;
}

static void make_tokens(void)
{
    for (int i = 0; i < N; i++)
        for (int d = 0; d < CONTENT; d++) {
            double angle = i / pow(4, d / 2); /* sines and cosines of falling frequency */
            x[i][d] = uniform();
            x[i][CONTENT + d] = (float)(d % 2 ? cos(angle) : sin(angle));
        }
}

/* y = x w, [N, WIDTH] */
static void project(const float w[WIDTH][WIDTH], float y[N][WIDTH])
{
    for (int i = 0; i < N; i++)
        for (int c = 0; c < WIDTH; c++) {
            y[i][c] = 0;
            for (int r = 0; r < WIDTH; r++)
                y[i][c] += x[i][r] * w[r][c];
        }
}

/* w -= rate * x^T d_y */
static void descend(float w[WIDTH][WIDTH], const float d_y[N][WIDTH], float rate)
{
    for (int r = 0; r < WIDTH; r++)
        for (int c = 0; c < WIDTH; c++) {
            float gradient = 0;
            for (int i = 0; i < N; i++)
                gradient += x[i][r] * d_y[i][c];
            w[r][c] -= rate * gradient;
        }
}

/* The mean square error of out, and its gradient in d_out. Token 0 has nothing before it and does not count. */
static double loss(void)
{
    double sum = 0, count = (N - 1) * CONTENT;
    memset(d_out, 0, sizeof d_out);
    for (int i = 1; i < N; i++)
        for (int d = 0; d < CONTENT; d++) {
            float error = out[i][d] - x[i - 1][d];
            sum += (double)error * (double)error / count;
            d_out[i][d] = (float)(2 * (double)error / count);
        }
    return sum;
}

/* [N, WIDTH] seen as [1, HEADS, N, DIM]: a head is DIM columns of each row. No copy. */
static attn_cview heads_of(const float *data)
{
    attn_cview view = attn_cview_of(data, ATTN_F32, 1, HEADS, N, DIM);
    view.stride[1] = DIM;
    view.stride[2] = WIDTH;
    return view;
}
static attn_view writable_heads_of(float *data)
{
    attn_view view = attn_view_of(data, ATTN_F32, 1, HEADS, N, DIM);
    view.stride[1] = DIM;
    view.stride[2] = WIDTH;
    return view;
}

static int failed(attn_ctx *ctx, const char *what)
{
    fprintf(stderr, "%s: %s\n", what, attn_ctx_error(ctx));
    return 1;
}

int main(void)
{
    attn_ctx *ctx = NULL;
    if (attn_ctx_create(NULL, &ctx) != ATTN_OK)
        return failed(NULL, "attn_ctx_create");

    layer w;
    make_tokens();
    for (int r = 0; r < WIDTH; r++)
        for (int c = 0; c < WIDTH; c++) {
            w.query[r][c] = 0.5f * uniform();
            w.key[r][c] = 0.5f * uniform();
            w.value[r][c] = 0.5f * uniform();
        }

    /* The arguments do not change from step to step; what they point at does. */
    attn_sdpa_args forward;
    ATTN_ARGS_INIT(&forward);
    forward.query = heads_of(q[0]);
    forward.key = heads_of(k[0]);
    forward.value = heads_of(v[0]);
    forward.out = writable_heads_of(out[0]);
    forward.lse = lse; /* backward recomputes the weights from it */
    forward.mask.flags = ATTN_MASK_CAUSAL;
    attn_sdpa_backward_args backward;
    ATTN_ARGS_INIT(&backward);
    backward.forward = &forward;
    backward.d_out = heads_of(d_out[0]);
    backward.d_query = writable_heads_of(d_q[0]);
    backward.d_key = writable_heads_of(d_k[0]);
    backward.d_value = writable_heads_of(d_v[0]);

    double first = 0, last = 0;
    for (int step = 0; step <= STEPS; step++) {
        project((const float(*)[WIDTH])w.query, q);
        project((const float(*)[WIDTH])w.key, k);
        project((const float(*)[WIDTH])w.value, v);
        if (attn_sdpa_forward(ctx, &forward, NULL, 0) != ATTN_OK)
            return failed(ctx, "attn_sdpa_forward");
        last = loss();
        if (step == 0)
            first = last;
        if (step % 50 == 0)
            printf("step %3d  loss %.5f\n", step, last);
        if (attn_sdpa_backward(ctx, &backward, NULL, 0) != ATTN_OK)
            return failed(ctx, "attn_sdpa_backward");
        descend(w.query, (const float(*)[WIDTH])d_q, 2.0f);
        descend(w.key, (const float(*)[WIDTH])d_k, 2.0f);
        descend(w.value, (const float(*)[WIDTH])d_v, 2.0f);
    }
    attn_ctx_destroy(ctx);
    printf("the loss fell to %.0f %% of what it was\n", 100 * last / first);
    return last < 0.5 * first ? 0 : 1;
}
