/* pool.h - a small pool of threads: one job at a time, cut into n parts; workers spin for microseconds after a job and
 * then sleep, so that an idle context costs nothing. */
#ifndef ATTN_CORE_POOL_H
#define ATTN_CORE_POOL_H

#include <stdatomic.h>
#include "attn/attn.h"

typedef struct attn_pool attn_pool;

/* n_threads counts the caller; threads start at the first attn_pool_run that needs them. NULL: out of memory. */
attn_pool *attn_pool_create(int32_t n_threads, const attn_allocator *allocator);
void attn_pool_destroy(attn_pool *pool);

/* Runs body(arg, 0) ... body(arg, n - 1) on up to n_threads threads, the caller among them; n <= n_threads. Where
 * threads cannot be started, the caller does all of it. After a fork the child starts threads of its own. */
void attn_pool_run(attn_pool *pool, int64_t n, void (*body)(void *arg, int64_t index), void *arg);

/* Tasks 0 .. n - 1, each once, that any number of workers take from one counter in ascending order. */
typedef struct attn_task_queue {
    void (*fn)(void *arg, int64_t task, int32_t worker);
    void *arg;
    int64_t n;
    _Atomic int64_t next; /* 0 at first */
} attn_task_queue;

/* Takes tasks until none is left: the body of an attn_parallel_for over workers. */
void attn_task_queue_drain(void *queue, int64_t worker);

/* One round of waiting for another thread that is running: a pause, and now and then the processor is given away, in case
 * that thread is waiting for one. */
void attn_pool_wait(int32_t round);

#endif
