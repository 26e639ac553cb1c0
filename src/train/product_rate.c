/* product_rate.c - what a large matrix product reaches on this machine: the yardstick of a training step. */
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include "attn/train.h"
#include "layers/layers_context.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double attn_train_product_rate(int32_t dtype, int32_t n_threads)
{
    enum { ROWS = 512, WIDTH = 768, OUT = 768 };
    attn_ctx_options options;
    attn_layers *layers;
    double best = 0;
    float *x = calloc(ROWS * WIDTH, sizeof *x), *w = calloc(OUT * WIDTH, sizeof *w), *y = calloc(ROWS * OUT, sizeof *y);
    ATTN_ARGS_INIT(&options);
    options.n_threads = n_threads;
    if (x && w && y && attn_layers_create(&options, &layers) == ATTN_OK) {
        attn_linear_args a;
        ATTN_ARGS_INIT(&a);
        a.rows = ROWS;
        a.n_in = WIDTH;
        a.n_out = OUT;
        a.x = x;
        a.weight = w;
        a.y = y;
        attn_layers_set_products(layers, dtype);
        const double start = now();
        while (now() - start < 0.3) { /* the best: other work on the machine only slows */
            const double begin = now();
            if (attn_linear_forward(layers, &a) != ATTN_OK)
                break;
            best = fmax(best, 2.0 * ROWS * WIDTH * OUT / (now() - begin));
        }
        attn_layers_destroy(layers);
    }
    free(x);
    free(w);
    free(y);
    return best;
}
