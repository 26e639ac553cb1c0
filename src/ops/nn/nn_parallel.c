/* nn_parallel.c - loops over the pool of the calling thread. */
#include "ops/nn/nn_parallel.h"
#include "core/pool.h"

#include <pthread.h>
#include <stdlib.h>

static void *allocate(void *user, size_t bytes, size_t alignment)
{
    void *memory = NULL;
    (void)user;
    return posix_memalign(&memory, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes) ? NULL : memory;
}

static void release(void *user, void *memory)
{
    (void)user;
    free(memory);
}

/* The calling thread's pool; it ends with the thread. */
typedef struct own_pool {
    attn_pool *pool;
    int32_t n_threads;
} own_pool;

static _Thread_local own_pool own;
static pthread_key_t ending;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void end_pool(void *pool)
{
    own.pool = NULL;
    attn_pool_destroy(pool);
}

static void make_key(void)
{
    pthread_key_create(&ending, end_pool);
}

/* NULL when there is no memory for one. */
static attn_pool *pool_of(int32_t n_threads)
{
    const attn_allocator allocator = {NULL, allocate, release};
    if (own.pool && own.n_threads >= n_threads)
        return own.pool;
    attn_pool *larger = attn_pool_create(n_threads, &allocator);
    if (!larger)
        return NULL;
    pthread_once(&once, make_key);
    attn_pool_destroy(own.pool);
    own.pool = larger;
    own.n_threads = n_threads;
    pthread_setspecific(ending, larger);
    return larger;
}

/* A body that does not ask which worker it runs on. */
typedef struct nn_call {
    attn_nn_body body;
    void *arg;
} nn_call;

static void call(void *user, int64_t task, int32_t worker)
{
    const nn_call *c = user;
    (void)worker;
    c->body(c->arg, task);
}

void attn_nn_for_workers(int32_t n_threads, int64_t n, attn_nn_worker_body body, void *arg)
{
    attn_pool *pool = n_threads > 1 && n > 1 ? pool_of(n_threads) : NULL;
    attn_task_queue queue = {body, arg, n, 0};
    if (pool)
        attn_pool_run(pool, n < n_threads ? n : n_threads, attn_task_queue_drain, &queue);
    else
        attn_task_queue_drain(&queue, 0);
}

void attn_nn_for(int32_t n_threads, int64_t n, attn_nn_body body, void *arg)
{
    nn_call c = {body, arg};
    attn_nn_for_workers(n_threads, n, call, &c);
}

void attn_nn_parallel_for(void *user, int64_t n, attn_nn_body body, void *arg)
{
    const int32_t *n_threads = user;
    attn_nn_for(*n_threads, n, body, arg);
}
