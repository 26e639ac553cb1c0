#include "core/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#define SPIN_ROUNDS 2000 /* pauses before a worker sleeps: 60 microseconds on Zen 3 */

/* A job is open while its caller takes parts of it. Workers count themselves in before they look whether it is, and the
 * caller closes it before it looks whether somebody is in (both in one total order): so nobody reads a job that ended, and the
 * caller waits only for workers that took a part, never for one that is still waking up. The lock is for sleeping alone. */
struct attn_pool {
    attn_allocator allocator;
    int32_t n_threads, n_started; /* the caller is thread 0 and counted in n_threads only */
    pid_t owner;                  /* the process whose threads these are */
    pthread_t *threads;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    bool stop; /* under the lock */
    void (*body)(void *arg, int64_t index);
    void *arg;
    int64_t n;
    _Atomic uint64_t generation; /* one more for each job */
    _Atomic int64_t next;        /* parts handed out */
    _Atomic int32_t open, inside;
    _Atomic int32_t asleep, waiting; /* workers that wait for `wake`; the caller waits for `done` */
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

static void join_job(attn_pool *pool)
{
    atomic_fetch_add(&pool->inside, 1);
    if (atomic_load(&pool->open))
        take_parts(pool);
    if (atomic_fetch_sub(&pool->inside, 1) == 1 && atomic_load(&pool->waiting)) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_signal(&pool->done);
        pthread_mutex_unlock(&pool->lock);
    }
}

/* Until there is a job after `seen`; false: the pool ends. */
static bool sleep_until_woken(attn_pool *pool, uint64_t seen)
{
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->asleep, 1);
    while (atomic_load(&pool->generation) == seen && !pool->stop)
        pthread_cond_wait(&pool->wake, &pool->lock);
    atomic_fetch_sub(&pool->asleep, 1);
    const bool stop = pool->stop;
    pthread_mutex_unlock(&pool->lock);
    return !stop;
}

static void *worker_main(void *user)
{
    attn_pool *pool = user;
    uint64_t seen = 0;
    for (;;) {
        for (int r = 0; r < SPIN_ROUNDS && atomic_load_explicit(&pool->generation, memory_order_acquire) == seen; r++)
            pause_cpu();
        if (atomic_load(&pool->generation) == seen && !sleep_until_woken(pool, seen))
            return NULL;
        seen = atomic_load(&pool->generation);
        join_job(pool);
    }
}

static void init_sync(attn_pool *pool)
{
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    atomic_init(&pool->generation, 0);
    atomic_init(&pool->next, 0);
    atomic_init(&pool->open, 0);
    atomic_init(&pool->inside, 0);
    atomic_init(&pool->asleep, 0);
    atomic_init(&pool->waiting, 0);
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
    pool->body = body;
    pool->arg = arg;
    pool->n = n;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_store(&pool->open, 1);
    atomic_fetch_add(&pool->generation, 1);
    if (atomic_load(&pool->asleep) > 0) {
        pthread_mutex_lock(&pool->lock);
        for (int64_t part = 1; part < n; part++) /* no more than there is work for */
            pthread_cond_signal(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
    take_parts(pool);
    atomic_store(&pool->open, 0);
    for (int r = 0; r < SPIN_ROUNDS && atomic_load(&pool->inside) > 0; r++)
        pause_cpu();
    if (atomic_load(&pool->inside) > 0) {
        pthread_mutex_lock(&pool->lock);
        atomic_store(&pool->waiting, 1);
        while (atomic_load(&pool->inside) > 0)
            pthread_cond_wait(&pool->done, &pool->lock);
        atomic_store(&pool->waiting, 0);
        pthread_mutex_unlock(&pool->lock);
    }
}
