/* context.h - what a call runs with: threads, memory, ISA level, and the text of the last error. */
#ifndef ATTN_CORE_CONTEXT_H
#define ATTN_CORE_CONTEXT_H

#include <stdbool.h>
#include "attn/attn.h"
#include "core/compiler.h"

#define ATTN_ERROR_BYTES 512
#define ATTN_ALIGNMENT 64

struct attn_pool;

struct attn_ctx {
    attn_allocator allocator;
    attn_parallel_for parallel_for; /* never NULL */
    void *parallel_for_user;
    struct attn_pool *pool; /* NULL with the caller's parallel_for */
    int32_t n_threads;
    int32_t isa; /* ATTN_ISA_SCALAR, ... */
    void *arena;
    size_t arena_bytes;
    char error[ATTN_ERROR_BYTES];
};

/* Records a message and returns status, for `return attn_fail(ctx, ATTN_ERR_..., "...")`. */
attn_status attn_fail(attn_ctx *ctx, attn_status status, const char *format, ...) ATTN_PRINTF(3, 4);

/* Forwards an error. */
#define ATTN_TRY(expression)                                                                                           \
    do {                                                                                                               \
        attn_status attn_try_status = (expression);                                                                    \
        if (attn_try_status != ATTN_OK)                                                                                \
            return attn_try_status;                                                                                    \
    } while (0)

/* Returns INVALID_ARGUMENT with the message (field and value) unless the condition holds. */
#define ATTN_REQUIRE(ctx, condition, ...)                                                                              \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return attn_fail((ctx), ATTN_ERR_INVALID_ARGUMENT, __VA_ARGS__);                                           \
    } while (0)

/* Picks the memory of a call: the caller's workspace when it is given, else the context's arena, grown to `bytes`.
 * The result is 64-byte aligned and stays valid until the next call on ctx. */
attn_status attn_ctx_workspace(attn_ctx *ctx, void *workspace, size_t workspace_bytes, size_t bytes, void **out);

/* Copies a versioned struct of the caller into ours of `size` bytes: missing fields read as zero, unknown bytes
 * must be zero. `name` is for the message. */
attn_status attn_args_copy(attn_ctx *ctx, void *ours, size_t size, const void *theirs, const char *name);

/* fn(arg, task, worker) for every task in 0..n_tasks-1, by up to n_workers workers that take tasks from one counter in
 * ascending order. worker < n_workers names the scratch that the task may use. One worker: no thread, no atomics. */
typedef void (*attn_task_fn)(void *arg, int64_t task, int32_t worker);
void attn_ctx_for(attn_ctx *ctx, int64_t n_tasks, int32_t n_workers, attn_task_fn fn, void *arg);

/* Workers worth waking for `work` multiply-adds in n_tasks tasks: never more than tasks, threads, or one for each
 * 100,000 multiply-adds (about 5 microseconds, what waking costs). */
int32_t attn_ctx_workers(const attn_ctx *ctx, int64_t n_tasks, double work);

#endif
