/* op_embed_own_pool.c - the library inside a program that has its own threads and its own memory: the context is given a
 * parallel_for and an allocator, and starts no thread and calls no malloc of its own.
 *
 * The program's pool has three workers that wait for jobs; the calling thread works too. Its memory is one static block
 * handed out from the front. The result is compared, bit for bit, with that of a context with one thread and no pool. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "attn/attn.h"

enum { WORKERS = 3, HEADS = 8, N = 256, DIM = 64, BLOCK_BYTES = 32 << 20 };

/* ---- The program's pool: one job at a time, its parts handed out by a counter ------------------- */

typedef struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    void (*body)(void *arg, int64_t index);
    void *arg;
    int64_t n, next, finished, jobs;
    int stop;
    pthread_t threads[WORKERS];
} pool;

/* Runs parts of the current job until none is left. The lock is held on entry and on return. */
static void run_parts(pool *p)
{
    while (p->next < p->n) {
        int64_t index = p->next++;
        pthread_mutex_unlock(&p->lock);
        p->body(p->arg, index);
        pthread_mutex_lock(&p->lock);
        if (++p->finished == p->n)
            pthread_cond_broadcast(&p->done);
    }
}

static void *worker(void *user)
{
    pool *p = user;
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        run_parts(p);
        if (!p->stop)
            pthread_cond_wait(&p->work, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* The library calls this: body(arg, 0) ... body(arg, n - 1) on any threads, and all have returned when it returns. */
static void pool_for(void *user, int64_t n, void (*body)(void *arg, int64_t index), void *arg)
{
    pool *p = user;
    pthread_mutex_lock(&p->lock);
    p->body = body;
    p->arg = arg;
    p->n = n;
    p->next = p->finished = 0;
    p->jobs++;
    pthread_cond_broadcast(&p->work);
    run_parts(p);
    while (p->finished < p->n)
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

/* ---- The program's memory ------------------------------------------------------------------------ */

typedef struct block {
    unsigned char *bytes;
    size_t used;
    int live;
} block;

static void *block_allocate(void *user, size_t bytes, size_t alignment)
{
    block *b = user;
    size_t start = (size_t)(((uintptr_t)b->bytes + b->used + alignment - 1) / alignment * alignment - (uintptr_t)b->bytes);
    if (bytes > BLOCK_BYTES || start > BLOCK_BYTES - bytes)
        return NULL; /* the library answers ATTN_ERR_OUT_OF_MEMORY */
    b->used = start + bytes;
    b->live++;
    return b->bytes + start;
}

static void block_release(void *user, void *pointer)
{
    (void)pointer; /* the whole block ends with the program */
    ((block *)user)->live--;
}

/* ---- The call -------------------------------------------------------------------------------------- */

static float query[HEADS * N * DIM], key[HEADS * N * DIM], value[HEADS * N * DIM];
static float out_alone[HEADS * N * DIM], out_pool[HEADS * N * DIM];

static void fill(float *x, uint32_t state)
{
    for (int n = 0; n < HEADS * N * DIM; n++) {
        state = state * 1664525u + 1013904223u;
        x[n] = (float)(state >> 8) * 0x1p-23f - 1;
    }
}

static attn_status attend(attn_ctx *ctx, float *out)
{
    attn_sdpa_args a;
    ATTN_ARGS_INIT(&a);
    a.query = attn_cview_of(query, ATTN_F32, 1, HEADS, N, DIM);
    a.key = attn_cview_of(key, ATTN_F32, 1, HEADS, N, DIM);
    a.value = attn_cview_of(value, ATTN_F32, 1, HEADS, N, DIM);
    a.out = attn_view_of(out, ATTN_F32, 1, HEADS, N, DIM);
    a.mask.flags = ATTN_MASK_CAUSAL;
    return attn_sdpa_forward(ctx, &a, NULL, 0);
}

int main(void)
{
    static unsigned char bytes[BLOCK_BYTES];
    static pool p;
    block memory = {bytes, 0, 0};
    attn_allocator allocator = {&memory, block_allocate, block_release};
    attn_ctx_options options;
    attn_ctx *mine = NULL, *alone = NULL;
    fill(query, 1);
    fill(key, 2);
    fill(value, 3);

    pthread_mutex_init(&p.lock, NULL);
    pthread_cond_init(&p.work, NULL);
    pthread_cond_init(&p.done, NULL);
    for (int n = 0; n < WORKERS; n++)
        if (pthread_create(&p.threads[n], NULL, worker, &p))
            return 1;

    ATTN_ARGS_INIT(&options);
    options.n_threads = WORKERS + 1; /* the most parts that pool_for is asked for at once */
    options.parallel_for = pool_for;
    options.parallel_for_user = &p;
    options.allocator = &allocator;
    attn_status status = attn_ctx_create(&options, &mine);
    if (status == ATTN_OK)
        status = attend(mine, out_pool);
    printf("own pool and memory: %s; %d jobs on the pool, %zu bytes of the block\n", attn_status_string(status), (int)p.jobs, memory.used);
    attn_ctx_destroy(mine);

    ATTN_ARGS_INIT(&options);
    options.n_threads = 1;
    if (attn_ctx_create(&options, &alone) != ATTN_OK || attend(alone, out_alone) != ATTN_OK)
        return 1;
    attn_ctx_destroy(alone);

    pthread_mutex_lock(&p.lock);
    p.stop = 1;
    pthread_cond_broadcast(&p.work);
    pthread_mutex_unlock(&p.lock);
    for (int n = 0; n < WORKERS; n++)
        pthread_join(p.threads[n], NULL);

    int same = !memcmp(out_alone, out_pool, sizeof out_pool);
    printf("%s; %d allocations left\n", same ? "the same bits as with one thread" : "OTHER BITS than with one thread", memory.live);
    return status == ATTN_OK && same && memory.live == 0 && p.jobs > 0 ? 0 : 1;
}
