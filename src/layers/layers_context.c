/* layers_context.c - contexts of layers: creation, errors, scratch memory, the checks that all layers share. */
#include "layers/layers_context.h"
#include "core/args.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/cpu.h"
#include "core/pages.h"
#include "kernels/nn/nn_pair.h"
#include "ops/nn/nn_parallel.h"

/* The smallest block of scratch. */
#define BLOCK_BYTES ((size_t)1 << 16)

static _Thread_local char create_error[ATTN_LAYERS_ERROR_BYTES];

static void *default_allocate(void *user, size_t bytes, size_t alignment)
{
    (void)user, (void)alignment; /* 64 is what this file asks for */
    return attn_pages_allocate(bytes);
}

static void default_release(void *user, void *memory)
{
    (void)user;
    free(memory);
}

attn_status attn_layers_fail(attn_layers *layers, attn_status status, const char *format, ...)
{
    va_list list;
    char *text = layers ? layers->error : create_error;
    va_start(list, format);
    vsnprintf(text, ATTN_LAYERS_ERROR_BYTES, format, list);
    va_end(list);
    return status;
}

attn_status attn_layers_ctx_status(attn_layers *layers, attn_status status)
{
    return status == ATTN_OK ? status : attn_layers_fail(layers, status, "%s", attn_ctx_error(layers->ctx));
}

/* ---- life ---- */

static attn_status create(attn_layers *layers, const attn_ctx_options *options)
{
    attn_ctx_options inner = *options;
    inner.allocator = &layers->allocator;
    if (!inner.parallel_for) { /* one pool serves layers and operator: the calling thread's */
        inner.parallel_for = attn_nn_parallel_for;
        inner.parallel_for_user = &layers->team.n_threads;
    }
    const attn_status status = attn_ctx_create(&inner, &layers->ctx);
    if (status != ATTN_OK)
        return attn_layers_fail(NULL, status, "%s", attn_ctx_error(NULL));
    attn_team *team = &layers->team;
    team->n_threads = attn_ctx_threads(layers->ctx);
    team->parallel_for = inner.parallel_for;
    team->parallel_for_user = inner.parallel_for_user;
    const int32_t isa = attn_isa_from_name(attn_ctx_isa(layers->ctx));
    team->kernels = attn_nn_kernels_for(isa);
    team->pairs = attn_pair_gemm(isa);
    team->scratch = layers->allocator.allocate(layers->allocator.user, (size_t)team->n_threads * ATTN_TEAM_SCRATCH,
                                               ATTN_ALIGNMENT);
    return team->scratch ? ATTN_OK : attn_layers_fail(NULL, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
}

attn_status attn_layers_create(const attn_ctx_options *options, attn_layers **layers)
{
    attn_ctx_options given;
    ATTN_ARGS_INIT(&given);
    create_error[0] = 0;
    ATTN_LAYERS_REQUIRE(NULL, layers, "layers is NULL");
    *layers = NULL;
    if (options)
        ATTN_TRY(attn_layers_args(NULL, &given, sizeof given, options, "options"));
    const attn_allocator standard = {NULL, default_allocate, default_release};
    const attn_allocator allocator = given.allocator ? *given.allocator : standard;
    ATTN_LAYERS_REQUIRE(NULL, allocator.allocate && allocator.release, "options.allocator lacks a function");
    attn_layers *made = allocator.allocate(allocator.user, sizeof *made, ATTN_ALIGNMENT);
    if (!made)
        return attn_layers_fail(NULL, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    memset(made, 0, sizeof *made);
    made->allocator = allocator;
    const attn_status status = create(made, &given);
    if (status != ATTN_OK)
        attn_layers_destroy(made);
    else
        *layers = made;
    return status;
}

static void free_blocks(attn_layers *layers, int32_t keep)
{
    attn_arena *arena = &layers->arena;
    while (arena->n_blocks > keep)
        layers->allocator.release(layers->allocator.user, arena->blocks[--arena->n_blocks]);
}

void attn_layers_destroy(attn_layers *layers)
{
    if (!layers)
        return;
    const attn_allocator allocator = layers->allocator;
    free_blocks(layers, 0);
    if (layers->team.scratch)
        allocator.release(allocator.user, layers->team.scratch);
    attn_ctx_destroy(layers->ctx);
    allocator.release(allocator.user, layers);
}

const char *attn_layers_error(const attn_layers *layers)
{
    return layers ? layers->error : create_error;
}

attn_ctx *attn_layers_ctx(attn_layers *layers)
{
    return layers ? layers->ctx : NULL;
}

void attn_layers_set_products(attn_layers *layers, int32_t dtype)
{
    layers->team.products = dtype;
}

/* ---- scratch ---- */

static attn_status add_block(attn_layers *layers, size_t bytes)
{
    attn_arena *arena = &layers->arena;
    if (arena->n_blocks == ATTN_LAYERS_MAX_BLOCKS)
        return attn_layers_fail(layers, ATTN_ERR_OUT_OF_MEMORY, "out of memory (%zu bytes of scratch)", bytes);
    char *block = layers->allocator.allocate(layers->allocator.user, bytes, ATTN_ALIGNMENT);
    if (!block)
        return attn_layers_fail(layers, ATTN_ERR_OUT_OF_MEMORY, "out of memory (%zu bytes of scratch)", bytes);
    arena->blocks[arena->n_blocks] = block;
    arena->sizes[arena->n_blocks++] = bytes;
    arena->used = 0;
    return ATTN_OK;
}

void attn_layers_begin(attn_layers *layers)
{
    if (layers->depth++ == 0)
        layers->error[0] = 0;
}

attn_status attn_layers_end(attn_layers *layers, attn_status status)
{
    attn_arena *arena = &layers->arena;
    if (--layers->depth > 0)
        return status;
    if (arena->n_blocks > 1) {
        size_t total = 0;
        for (int32_t i = 0; i < arena->n_blocks; i++)
            total += arena->sizes[i];
        free_blocks(layers, 0);
        char kept[ATTN_LAYERS_ERROR_BYTES]; /* no memory for one large block is no error: the next call starts anew */
        memcpy(kept, layers->error, sizeof kept);
        add_block(layers, total);
        memcpy(layers->error, kept, sizeof kept);
    }
    arena->used = 0;
    return status;
}

attn_status attn_layers_scratch(attn_layers *layers, int64_t count, int32_t dtype, void **out)
{
    attn_arena *arena = &layers->arena;
    const size_t bytes = attn_padded_bytes(count < 1 ? 1 : count, dtype);
    if (!arena->n_blocks || arena->sizes[arena->n_blocks - 1] - arena->used < bytes) {
        size_t size = arena->n_blocks ? 2 * arena->sizes[arena->n_blocks - 1] : BLOCK_BYTES;
        ATTN_TRY(add_block(layers, size < bytes ? bytes : size));
    }
    *out = arena->blocks[arena->n_blocks - 1] + arena->used;
    arena->used += bytes;
    return ATTN_OK;
}

attn_arena_mark attn_layers_mark(const attn_layers *layers)
{
    const attn_arena_mark mark = {layers->arena.n_blocks, layers->arena.used};
    return mark;
}

/* Blocks that were added after the mark stay until the end of the call, but are not reused before it: only what was taken
 * from the marked block itself comes back. */
void attn_layers_release(attn_layers *layers, attn_arena_mark mark)
{
    if (layers->arena.n_blocks == mark.n_blocks)
        layers->arena.used = mark.used;
}

/* ---- checks ---- */

attn_status attn_layers_args(attn_layers *layers, void *ours, size_t size, const void *theirs, const char *name)
{
    char text[ATTN_ARGS_TEXT_BYTES];
    const attn_status status = attn_args_read(ours, size, theirs, name, text);
    return status == ATTN_OK ? ATTN_OK : attn_layers_fail(layers, status, "%s", text);
}

attn_status attn_layers_dtype(attn_layers *layers, int32_t dtype)
{
    if (dtype == ATTN_F32 || dtype == ATTN_F64)
        return ATTN_OK;
    return attn_layers_fail(layers, dtype == ATTN_BF16 || dtype == ATTN_F16 ? ATTN_ERR_UNSUPPORTED
                                                                            : ATTN_ERR_INVALID_ARGUMENT,
                            "dtype is %d: layers take ATTN_F32 (0) and ATTN_F64 (1)", dtype);
}

attn_status attn_layers_size(attn_layers *layers, int64_t value, const char *name)
{
    ATTN_LAYERS_REQUIRE(layers, value >= 0 && value <= INT32_MAX, "%s is %lld: must be 0 .. 2^31 - 1", name,
                        (long long)value);
    return ATTN_OK;
}

attn_status attn_layers_width(attn_layers *layers, int64_t value, const char *name)
{
    ATTN_LAYERS_REQUIRE(layers, value >= 1 && value <= INT32_MAX, "%s is %lld: must be 1 .. 2^31 - 1", name,
                        (long long)value);
    return ATTN_OK;
}

attn_status attn_layers_stride(attn_layers *layers, int64_t *ld, int64_t width, const char *name)
{
    if (*ld == 0)
        *ld = width;
    ATTN_LAYERS_REQUIRE(layers, *ld >= width, "%s is %lld, rows are %lld wide", name, (long long)*ld, (long long)width);
    return ATTN_OK;
}

attn_status attn_layers_pointer(attn_layers *layers, const void *pointer, int64_t count, const char *name)
{
    ATTN_LAYERS_REQUIRE(layers, pointer || count == 0, "%s is NULL", name);
    return ATTN_OK;
}

attn_status attn_layers_probability(attn_layers *layers, double p, const char *name)
{
    ATTN_LAYERS_REQUIRE(layers, p >= 0 && p <= 1, "%s is %g: must be 0 .. 1", name, p);
    return ATTN_OK;
}

attn_status attn_layers_flags(attn_layers *layers, uint64_t flags, uint64_t known, const char *name)
{
    if (flags & ~known)
        return attn_layers_fail(layers, ATTN_ERR_UNSUPPORTED, "%s is 0x%llx: bits 0x%llx are unknown", name,
                                (unsigned long long)flags, (unsigned long long)(flags & ~known));
    return ATTN_OK;
}
