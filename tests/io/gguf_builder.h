/* gguf_builder.h - writes GGUF bytes for tests, one field at a time, so that any field can be
 * wrong. */
#ifndef ATTN_TESTS_IO_GGUF_BUILDER_H
#define ATTN_TESTS_IO_GGUF_BUILDER_H

#include <assert.h>
#include <string.h>
#include "io/bytes.h"

typedef struct builder {
    uint8_t data[8192];
    size_t size;
} builder;

static inline void put_bytes(builder *b, const void *bytes, size_t n)
{
    assert(b->size + n <= sizeof b->data);
    memcpy(b->data + b->size, bytes, n);
    b->size += n;
}

static inline void put_u8(builder *b, uint8_t x)
{
    put_bytes(b, &x, 1);
}

static inline void put_u32(builder *b, uint32_t x)
{
    uint8_t bytes[4];
    attn_write_u32(bytes, x);
    put_bytes(b, bytes, 4);
}

static inline void put_u64(builder *b, uint64_t x)
{
    uint8_t bytes[8];
    attn_write_u64(bytes, x);
    put_bytes(b, bytes, 8);
}

static inline void put_string(builder *b, const char *text)
{
    put_u64(b, strlen(text));
    put_bytes(b, text, strlen(text));
}

static inline void put_header(builder *b, uint32_t version, uint64_t n_tensors, uint64_t n_values)
{
    put_bytes(b, "GGUF", 4);
    put_u32(b, version);
    put_u64(b, n_tensors);
    put_u64(b, n_values);
}

/* Key and type; the value follows. */
static inline void put_key(builder *b, const char *key, uint32_t type)
{
    put_string(b, key);
    put_u32(b, type);
}

static inline void put_tensor(builder *b, const char *name, uint32_t n_dims, const uint64_t *shape,
                              uint32_t type, uint64_t offset)
{
    put_string(b, name);
    put_u32(b, n_dims);
    for (uint32_t d = 0; d < n_dims; d++)
        put_u64(b, shape[d]);
    put_u32(b, type);
    put_u64(b, offset);
}

static inline void put_padding(builder *b, size_t alignment)
{
    while (b->size % alignment)
        put_u8(b, 0);
}

static inline void put_zeros(builder *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put_u8(b, 0);
}

#endif
