#include "core/context.h"
#include "core/args.h"
#include "core/cpu.h"
#include "core/pool.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#if ATTN_ARCH_X86_64
#include <xmmintrin.h>
#endif

#define MAX_THREADS 1024

static _Thread_local char create_error[ATTN_ERROR_BYTES];

const char *attn_version(void)
{
#define TEXT_OF(x) #x
#define VERSION_TEXT(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)
    return VERSION_TEXT(ATTN_VERSION_MAJOR, ATTN_VERSION_MINOR, ATTN_VERSION_PATCH);
}

const char *attn_status_string(attn_status status)
{
    switch (status) {
    case ATTN_OK:
        return "ok";
    case ATTN_ERR_INVALID_ARGUMENT:
        return "invalid argument";
    case ATTN_ERR_UNSUPPORTED:
        return "unsupported";
    case ATTN_ERR_OUT_OF_MEMORY:
        return "out of memory";
    case ATTN_ERR_WORKSPACE_TOO_SMALL:
        return "workspace too small";
    case ATTN_ERR_IO:
        return "input or output error";
    case ATTN_ERR_FORMAT:
        return "bad file format";
    case ATTN_ERR_CANCELLED:
        return "cancelled";
    }
    return "unknown status";
}

static void *system_allocate(void *user, size_t bytes, size_t alignment)
{
    (void)user;
    void *pointer = NULL;
    return posix_memalign(&pointer, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes ? bytes : 1)
               ? NULL
               : pointer;
}

static void system_release(void *user, void *pointer)
{
    (void)user;
    free(pointer);
}

static attn_status create_failed(attn_status status, const char *format, ...) ATTN_PRINTF(2, 3);
static attn_status create_failed(attn_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(create_error, sizeof create_error, format, list);
    va_end(list);
    return status;
}

attn_status attn_fail(attn_ctx *ctx, attn_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(ctx ? ctx->error : create_error, ATTN_ERROR_BYTES, format, list);
    va_end(list);
    return status;
}

static attn_status choose_isa(int32_t max_isa, int32_t *isa)
{
    if (max_isa != ATTN_ISA_BEST) {
        if (!attn_isa_name(max_isa))
            return create_failed(ATTN_ERR_INVALID_ARGUMENT, "max_isa is %d, not a level of attn/attn.h", max_isa);
        if (!attn_cpu_has_isa(max_isa))
            return create_failed(ATTN_ERR_UNSUPPORTED, "max_isa is %s, which this machine lacks", attn_isa_name(max_isa));
    }
    *isa = max_isa == ATTN_ISA_BEST ? attn_cpu_best_isa() : max_isa;
    const char *name = getenv("ATTN_ISA");
    if (!name || !*name)
        return ATTN_OK;
    int32_t wanted = attn_isa_from_name(name);
    if (wanted < 0)
        return create_failed(ATTN_ERR_INVALID_ARGUMENT,
                             "ATTN_ISA is \"%.64s\"; known: scalar, avx2, avx512, avx512bf16, neon, neondot, neonbf16", name);
    if (!attn_cpu_has_isa(wanted))
        return create_failed(ATTN_ERR_UNSUPPORTED, "ATTN_ISA is %s, which this machine lacks", name);
    if (wanted < *isa)
        *isa = wanted;
    return ATTN_OK;
}

static attn_status choose_threads(int32_t asked, int32_t *n_threads)
{
    if (asked < 0 || asked > MAX_THREADS)
        return create_failed(ATTN_ERR_INVALID_ARGUMENT, "n_threads is %d, must be 0..%d", asked, MAX_THREADS);
    if (asked == 0) {
        const char *text = getenv("ATTN_NUM_THREADS");
        if (text && *text) {
            char *end;
            errno = 0;
            long value = strtol(text, &end, 10);
            if (errno || *end || value < 1 || value > MAX_THREADS)
                return create_failed(ATTN_ERR_INVALID_ARGUMENT, "ATTN_NUM_THREADS is \"%.64s\", must be 1..%d", text,
                                     MAX_THREADS);
            asked = (int32_t)value;
        } else {
            asked = attn_cpu_count();
        }
    }
    *n_threads = asked > MAX_THREADS ? MAX_THREADS : asked;
    return ATTN_OK;
}

static void pool_parallel_for(void *user, int64_t n, void (*body)(void *arg, int64_t index), void *arg)
{
    attn_pool_run(user, n, body, arg);
}

attn_status attn_args_copy(attn_ctx *ctx, void *ours, size_t size, const void *theirs, const char *name)
{
    char text[ATTN_ARGS_TEXT_BYTES];
    const attn_status status = attn_args_read(ours, size, theirs, name, text);
    return status == ATTN_OK ? ATTN_OK : attn_fail(ctx, status, "%s", text);
}

attn_status attn_ctx_create(const attn_ctx_options *options, attn_ctx **ctx)
{
    create_error[0] = 0;
    if (!ctx)
        return create_failed(ATTN_ERR_INVALID_ARGUMENT, "ctx is NULL");
    *ctx = NULL;
    attn_ctx_options known;
    ATTN_ARGS_INIT(&known);
    if (options)
        ATTN_TRY(attn_args_copy(NULL, &known, sizeof known, options, "options"));
    int32_t isa = ATTN_ISA_SCALAR, n_threads = 1;
    ATTN_TRY(choose_isa(known.max_isa, &isa));
    ATTN_TRY(choose_threads(known.n_threads, &n_threads));
    attn_allocator allocator = {NULL, system_allocate, system_release};
    if (known.allocator) {
        allocator = *known.allocator;
        if (!allocator.allocate || !allocator.release)
            return create_failed(ATTN_ERR_INVALID_ARGUMENT, "options.allocator lacks allocate or release");
    }
    attn_ctx *created = allocator.allocate(allocator.user, sizeof *created, ATTN_ALIGNMENT);
    if (!created)
        return create_failed(ATTN_ERR_OUT_OF_MEMORY, "no memory for a context of %zu bytes", sizeof *created);
    memset(created, 0, sizeof *created);
    created->allocator = allocator;
    created->isa = isa;
    created->n_threads = n_threads;
    created->parallel_for = known.parallel_for;
    created->parallel_for_user = known.parallel_for_user;
    if (!known.parallel_for) {
        created->pool = attn_pool_create(n_threads, &allocator);
        if (!created->pool) {
            allocator.release(allocator.user, created);
            return create_failed(ATTN_ERR_OUT_OF_MEMORY, "no memory for a pool of %d threads", n_threads);
        }
        created->parallel_for = pool_parallel_for;
        created->parallel_for_user = created->pool;
    }
    *ctx = created;
    return ATTN_OK;
}

void attn_ctx_destroy(attn_ctx *ctx)
{
    if (!ctx)
        return;
    attn_pool_destroy(ctx->pool);
    attn_allocator allocator = ctx->allocator;
    if (ctx->arena)
        allocator.release(allocator.user, ctx->arena);
    allocator.release(allocator.user, ctx);
}

const char *attn_ctx_error(const attn_ctx *ctx)
{
    return ctx ? ctx->error : create_error;
}

const char *attn_ctx_isa(const attn_ctx *ctx)
{
    return attn_isa_name(ctx ? ctx->isa : attn_cpu_best_isa());
}

int32_t attn_ctx_threads(const attn_ctx *ctx)
{
    return ctx ? ctx->n_threads : attn_cpu_count();
}

attn_status attn_ctx_workspace(attn_ctx *ctx, void *workspace, size_t workspace_bytes, size_t bytes, void **out)
{
    if (workspace) {
        if ((uintptr_t)workspace % ATTN_ALIGNMENT)
            return attn_fail(ctx, ATTN_ERR_INVALID_ARGUMENT, "workspace is %p, must be %d-byte aligned", workspace,
                             ATTN_ALIGNMENT);
        if (workspace_bytes < bytes)
            return attn_fail(ctx, ATTN_ERR_WORKSPACE_TOO_SMALL, "workspace_bytes is %zu, %zu are needed", workspace_bytes,
                             bytes);
        *out = workspace;
        return ATTN_OK;
    }
    if (workspace_bytes)
        return attn_fail(ctx, ATTN_ERR_INVALID_ARGUMENT, "workspace is NULL but workspace_bytes is %zu", workspace_bytes);
    if (ctx->arena_bytes < bytes) {
        if (ctx->arena)
            ctx->allocator.release(ctx->allocator.user, ctx->arena);
        ctx->arena = NULL;
        ctx->arena_bytes = 0;
        ctx->arena = ctx->allocator.allocate(ctx->allocator.user, bytes, ATTN_ALIGNMENT);
        if (!ctx->arena)
            return attn_fail(ctx, ATTN_ERR_OUT_OF_MEMORY, "no memory for a workspace of %zu bytes", bytes);
        ctx->arena_bytes = bytes;
    }
    *out = ctx->arena;
    return ATTN_OK;
}

/* The floating-point environment of kernels: round to nearest, denormals kept. Saved and restored around each job, so
 * that a caller's flush-to-zero or another rounding mode changes no result and is still there afterwards. */
#if ATTN_ARCH_X86_64
typedef unsigned int fp_state;
static inline fp_state fp_enter(void)
{
    fp_state saved = _mm_getcsr();
    if (saved != 0x1f80u)
        _mm_setcsr(0x1f80u);
    return saved;
}
static inline void fp_leave(fp_state saved)
{
    if (saved != 0x1f80u)
        _mm_setcsr(saved);
}
#elif ATTN_ARCH_AARCH64
typedef uint64_t fp_state;
static inline fp_state fp_enter(void)
{
    fp_state saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    if (saved)
        __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
    return saved;
}
static inline void fp_leave(fp_state saved)
{
    if (saved)
        __asm__ volatile("msr fpcr, %0" : : "r"(saved));
}
#else
typedef int fp_state;
static inline fp_state fp_enter(void)
{
    return 0;
}
static inline void fp_leave(fp_state saved)
{
    (void)saved;
}
#endif

static void drain_queue(void *queue, int64_t worker)
{
    fp_state saved = fp_enter();
    attn_task_queue_drain(queue, worker);
    fp_leave(saved);
}

void attn_ctx_for(attn_ctx *ctx, int64_t n_tasks, int32_t n_workers, attn_task_fn fn, void *arg)
{
    if (n_workers > n_tasks)
        n_workers = (int32_t)n_tasks;
    if (n_workers <= 1) {
        fp_state saved = fp_enter();
        for (int64_t task = 0; task < n_tasks; task++)
            fn(arg, task, 0);
        fp_leave(saved);
        return;
    }
    attn_task_queue queue = {fn, arg, n_tasks, 0};
    ctx->parallel_for(ctx->parallel_for_user, n_workers, drain_queue, &queue);
}

int32_t attn_ctx_workers(const attn_ctx *ctx, int64_t n_tasks, double work)
{
    double most = work / 100e3;
    int32_t n = ctx->n_threads;
    if (n > n_tasks)
        n = (int32_t)n_tasks;
    if (most < n)
        n = (int32_t)most;
    return n < 1 ? 1 : n;
}
