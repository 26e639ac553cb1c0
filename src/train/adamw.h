/* adamw.h - the optimiser: AdamW with decoupled decay, and the norm of the gradient. */
#ifndef ATTN_TRAIN_ADAMW_H
#define ATTN_TRAIN_ADAMW_H

#include "train/train_net.h"

typedef struct attn_adamw {
    int32_t n_threads;
    double learning_rate, beta1, beta2, epsilon, weight_decay;
    double gradient_scale; /* multiplies the gradient: clipping, and the mean over accumulated calls */
    int64_t step;          /* 1 for the first */
} attn_adamw;

/* The square root of the sum of squares of gradient[n], times scale. Sums are f64, one for each 16,384 elements, added in
 * order: the same bits for any number of threads. */
double attn_gradient_norm(int32_t n_threads, const float *gradient, int64_t n);

/* One step on all parameters:
 *     m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,
 *     w -= lr * (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay * w)       decay of matrices only
 * The gradient is 0 afterwards. */
void attn_adamw_step(const attn_adamw *a, const attn_net *net, float *weights, float *gradient, float *m, float *v);

#endif
