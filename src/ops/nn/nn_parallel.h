/* nn_parallel.h - the threads of libattn_model: a pool for each thread that calls, also handed to libattn's contexts, so that one
 * set of threads serves a forward pass and no idle thread spins against it. */
#ifndef ATTN_OPS_NN_NN_PARALLEL_H
#define ATTN_OPS_NN_NN_PARALLEL_H

#include <stdint.h>

typedef void (*attn_nn_body)(void *arg, int64_t index);

/* body(arg, 0) ... body(arg, n - 1), each once, on up to n_threads threads; tasks are taken in ascending order. One
 * thread or one task: a plain loop. A body must not call it again with more than one thread. */
void attn_nn_for(int32_t n_threads, int64_t n, attn_nn_body body, void *arg);

/* The same for bodies that ask which worker they run on: below n_threads, and no two at a time have one number. */
typedef void (*attn_nn_worker_body)(void *arg, int64_t index, int32_t worker);
void attn_nn_for_workers(int32_t n_threads, int64_t n, attn_nn_worker_body body, void *arg);

/* The same as attn_ctx_options.parallel_for; user points to an int32_t, the number of threads. */
void attn_nn_parallel_for(void *user, int64_t n, attn_nn_body body, void *arg);

#endif
