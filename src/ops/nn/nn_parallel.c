/* nn_parallel.c - loops over OpenMP's threads. */
#include "ops/nn/nn_parallel.h"

void attn_nn_for(int32_t n_threads, int64_t n, attn_nn_body body, void *arg)
{
    if (n_threads <= 1 || n <= 1) {
        for (int64_t i = 0; i < n; i++)
            body(arg, i);
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(n_threads)
    for (int64_t i = 0; i < n; i++)
        body(arg, i);
}

void attn_nn_parallel_for(void *user, int64_t n, attn_nn_body body, void *arg)
{
    const int32_t *n_threads = user;
    attn_nn_for(*n_threads, n, body, arg);
}
