/* pool.h - a small pool of threads: one job at a time, cut into n parts; workers spin for microseconds after a job and
 * then sleep, so that an idle context costs nothing. */
#ifndef ATTN_CORE_POOL_H
#define ATTN_CORE_POOL_H

#include "attn/attn.h"

typedef struct attn_pool attn_pool;

/* n_threads counts the caller; threads start at the first attn_pool_run that needs them. NULL: out of memory. */
attn_pool *attn_pool_create(int32_t n_threads, const attn_allocator *allocator);
void attn_pool_destroy(attn_pool *pool);

/* Runs body(arg, 0) ... body(arg, n - 1) on up to n_threads threads, the caller among them; n <= n_threads. Where
 * threads cannot be started, the caller does all of it. After a fork the child starts threads of its own. */
void attn_pool_run(attn_pool *pool, int64_t n, void (*body)(void *arg, int64_t index), void *arg);

/* One round of waiting for another thread that is running: a pause, and now and then the processor is given away, in case
 * that thread is waiting for one. */
void attn_pool_wait(int32_t round);

#endif
