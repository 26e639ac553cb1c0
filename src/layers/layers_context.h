/* layers_context.h - what every public layer call stands on: the context, checks of arguments, scratch memory. */
#ifndef ATTN_LAYERS_LAYERS_CONTEXT_H
#define ATTN_LAYERS_LAYERS_CONTEXT_H

#include <stdbool.h>
#include "attn/layers.h"
#include "core/context.h" /* ATTN_TRY */
#include "ops/nn/nn_team.h"

#define ATTN_LAYERS_ERROR_BYTES 512
#define ATTN_LAYERS_MAX_BLOCKS 32

/* Scratch memory of a call: blocks that are taken from in order and given back all at once when the outermost call
 * ends. A call that needed more than one block leaves one block of the whole size for the next call. */
typedef struct attn_arena {
    char *blocks[ATTN_LAYERS_MAX_BLOCKS];
    size_t sizes[ATTN_LAYERS_MAX_BLOCKS];
    int32_t n_blocks;
    size_t used; /* of the last block */
} attn_arena;

struct attn_layers {
    attn_ctx *ctx;
    attn_allocator allocator;
    attn_team team;
    attn_arena arena;
    int32_t depth; /* of public calls inside public calls */
    char error[ATTN_LAYERS_ERROR_BYTES];
};

/* What the operands of products in f32 calls are rounded to while they are multiplied: ATTN_F32 (not at all; the
 * default) or ATTN_BF16, as gemm.h says. It holds for all calls from then on, and so for the products of gradients
 * too. */
void attn_layers_set_products(attn_layers *layers, int32_t dtype);

/* Records a message and returns status. */
attn_status attn_layers_fail(attn_layers *layers, attn_status status, const char *format, ...) ATTN_PRINTF(3, 4);
/* The operator's error, as this context's. */
attn_status attn_layers_ctx_status(attn_layers *layers, attn_status status);

#define ATTN_LAYERS_REQUIRE(layers, condition, ...)                                                                    \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return attn_layers_fail((layers), ATTN_ERR_INVALID_ARGUMENT, __VA_ARGS__);                                 \
    } while (0)

/* Begin and end of every public call that uses scratch: end gives it back and returns its argument. */
void attn_layers_begin(attn_layers *layers);
attn_status attn_layers_end(attn_layers *layers, attn_status status);

/* The body of a public call: no context is an error without a text. */
#define ATTN_LAYERS_CALL(layers, call)                                                                                 \
    (!(layers) ? ATTN_ERR_INVALID_ARGUMENT : (attn_layers_begin(layers), attn_layers_end((layers), (call))))

/* 64-byte aligned scratch for `count` numbers of dtype, valid until the outermost call ends. */
attn_status attn_layers_scratch(attn_layers *layers, int64_t count, int32_t dtype, void **out);
/* A place in the scratch to return to: everything taken after mark is given back by release. */
typedef struct attn_arena_mark {
    int32_t n_blocks;
    size_t used;
} attn_arena_mark;
attn_arena_mark attn_layers_mark(const attn_layers *layers);
void attn_layers_release(attn_layers *layers, attn_arena_mark mark);

/* Copies a versioned struct of the caller; `name` is for the message. */
attn_status attn_layers_args(attn_layers *layers, void *ours, size_t size, const void *theirs, const char *name);

/* The checks that all layers share; names are those of the caller's fields. */
attn_status attn_layers_dtype(attn_layers *layers, int32_t dtype);
/* 0 <= value < 2^31, so that products of two sizes fit. */
attn_status attn_layers_size(attn_layers *layers, int64_t value, const char *name);
/* 1 <= value < 2^31 */
attn_status attn_layers_width(attn_layers *layers, int64_t value, const char *name);
/* *ld is 0 (then it becomes width) or at least width. */
attn_status attn_layers_stride(attn_layers *layers, int64_t *ld, int64_t width, const char *name);
/* pointer is given where rows * width is not 0. */
attn_status attn_layers_pointer(attn_layers *layers, const void *pointer, int64_t count, const char *name);
/* 0 <= p <= 1 */
attn_status attn_layers_probability(attn_layers *layers, double p, const char *name);
attn_status attn_layers_flags(attn_layers *layers, uint64_t flags, uint64_t known, const char *name);

/* Bytes of a number: f32 and f64 of the caller's arrays, bf16 of what is kept for the operator. */
static inline int64_t attn_number_bytes(int32_t dtype)
{
    return dtype == ATTN_F64 ? 8 : dtype == ATTN_BF16 ? 2 : 4;
}

/* Element `index` of an array of dtype. */
static inline void *attn_at(const void *data, int32_t dtype, int64_t index)
{
    return (char *)(uintptr_t)data + attn_number_bytes(dtype) * index;
}

/* Bytes of `count` numbers of dtype, rounded up to whole cache lines. */
static inline size_t attn_padded_bytes(int64_t count, int32_t dtype)
{
    return ((size_t)(count * attn_number_bytes(dtype)) + 63) / 64 * 64;
}

#endif
