/* linear_memory.c - pieces of chunks, one behind the other. */
#include "ops/nn/linear_memory.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "core/pages.h"

#define CHUNK      ((size_t)32 << 20)
#define LARGE_PAGE ((size_t)2 << 20)
#define LINE       ((size_t)64)

/* In front of each chunk's pieces. */
typedef struct attn_linear_chunk {
    struct attn_linear_chunk *next;
} attn_linear_chunk;

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* A chunk for `bytes` and what follows; a large matrix fills its own, so that no chunk is left half empty behind it. */
static int add_chunk(attn_linear_memory *memory, size_t bytes)
{
    const size_t usual = memory->expected < CHUNK ? memory->expected : CHUNK;
    size_t size = (bytes > usual ? bytes : usual) + LINE;
    if (size >= 2 * LARGE_PAGE)
        size = round_up(size, LARGE_PAGE);
    char *chunk = attn_pages_allocate(size);
    if (!chunk)
        return 0;
    const attn_linear_chunk head = {memory->chunks};
    memcpy(chunk, &head, sizeof head);
    memory->chunks = (void *)chunk;
    memory->at = chunk + LINE;
    memory->left = size - LINE;
    return 1;
}

void *attn_linear_memory_take(attn_linear_memory *memory, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return NULL;
    bytes = round_up(bytes, LINE);
    if (bytes > memory->left && !add_chunk(memory, bytes))
        return NULL;
    void *piece = memory->at;
    memory->at += bytes;
    memory->left -= bytes;
    return piece;
}

void attn_linear_memory_free(attn_linear_memory *memory)
{
    while (memory->chunks) {
        attn_linear_chunk *chunk = memory->chunks;
        memory->chunks = chunk->next;
        free(chunk);
    }
    memset(memory, 0, sizeof *memory);
}
