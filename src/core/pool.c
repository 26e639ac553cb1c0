#include "core/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#define SPIN_ROUNDS 2000 /* about 10 microseconds of pauses before a worker sleeps */

struct attn_pool {
    attn_allocator allocator;
    int32_t n_threads, n_started; /* the caller is thread 0 and counted in n_threads only */
    pid_t owner;                  /* the process whose threads these are */
    pthread_t *threads;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    bool stop;
    void (*body)(void *arg, int64_t index);
    void *arg;
    int64_t n;
    _Atomic uint64_t generation; /* one more for each job */
    _Atomic int64_t next;        /* parts handed out */
    _Atomic int32_t working;     /* workers that have not finished the current job */
};

static inline void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void attn_pool_wait(int32_t round)
{
    if (round % 256 == 255)
        sched_yield();
    else
        pause_cpu();
}

void attn_task_queue_drain(void *user, int64_t worker)
{
    attn_task_queue *queue = user;
    for (;;) {
        const int64_t task = atomic_fetch_add_explicit(&queue->next, 1, memory_order_relaxed);
        if (task >= queue->n)
            return;
        queue->fn(queue->arg, task, (int32_t)worker);
    }
}

static void take_parts(attn_pool *pool)
{
    for (;;) {
        int64_t index = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (index >= pool->n)
            return;
        pool->body(pool->arg, index);
    }
}

static void *worker_main(void *user)
{
    attn_pool *pool = user;
    uint64_t seen = 0;
    for (;;) {
        for (int r = 0; r < SPIN_ROUNDS && atomic_load_explicit(&pool->generation, memory_order_acquire) == seen; r++)
            pause_cpu();
        pthread_mutex_lock(&pool->lock);
        while (atomic_load_explicit(&pool->generation, memory_order_acquire) == seen && !pool->stop)
            pthread_cond_wait(&pool->wake, &pool->lock);
        bool stop = pool->stop;
        seen = atomic_load_explicit(&pool->generation, memory_order_acquire);
        pthread_mutex_unlock(&pool->lock);
        if (stop)
            return NULL;
        take_parts(pool);
        if (atomic_fetch_sub_explicit(&pool->working, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->lock);
        }
    }
}

static void init_sync(attn_pool *pool)
{
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    atomic_init(&pool->generation, 0);
    atomic_init(&pool->next, 0);
    atomic_init(&pool->working, 0);
    pool->stop = false;
    pool->n_started = 0;
    pool->owner = getpid();
}

attn_pool *attn_pool_create(int32_t n_threads, const attn_allocator *allocator)
{
    attn_pool *pool = allocator->allocate(allocator->user, sizeof *pool, 64);
    if (!pool)
        return NULL;
    pool->allocator = *allocator;
    pool->n_threads = n_threads;
    pool->threads = allocator->allocate(allocator->user, (size_t)n_threads * sizeof(pthread_t), 64);
    if (!pool->threads) {
        allocator->release(allocator->user, pool);
        return NULL;
    }
    init_sync(pool);
    return pool;
}

void attn_pool_destroy(attn_pool *pool)
{
    if (!pool)
        return;
    if (pool->owner == getpid()) {
        pthread_mutex_lock(&pool->lock);
        pool->stop = true;
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
        for (int32_t t = 0; t < pool->n_started; t++)
            pthread_join(pool->threads[t], NULL);
        pthread_cond_destroy(&pool->wake);
        pthread_cond_destroy(&pool->done);
        pthread_mutex_destroy(&pool->lock);
    }
    attn_allocator allocator = pool->allocator;
    allocator.release(allocator.user, pool->threads);
    allocator.release(allocator.user, pool);
}

static void start_threads(attn_pool *pool)
{
    if (pool->owner != getpid())
        init_sync(pool); /* forked: the parent's threads are not here */
    while (pool->n_started < pool->n_threads - 1) {
        if (pthread_create(&pool->threads[pool->n_started], NULL, worker_main, pool))
            break;
        pool->n_started++;
    }
}

void attn_pool_run(attn_pool *pool, int64_t n, void (*body)(void *arg, int64_t index), void *arg)
{
    if (n > 1)
        start_threads(pool);
    if (n <= 1 || pool->n_started == 0) {
        for (int64_t index = 0; index < n; index++)
            body(arg, index);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->body = body;
    pool->arg = arg;
    pool->n = n;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->working, pool->n_started, memory_order_relaxed);
    atomic_fetch_add_explicit(&pool->generation, 1, memory_order_release);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    take_parts(pool);
    for (int r = 0; r < SPIN_ROUNDS && atomic_load_explicit(&pool->working, memory_order_acquire) > 0; r++)
        pause_cpu();
    pthread_mutex_lock(&pool->lock);
    while (atomic_load_explicit(&pool->working, memory_order_acquire) > 0)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}
