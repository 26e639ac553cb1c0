/* args.c - reading the versioned structs of callers. */
#include "core/args.h"
#include <stdio.h>
#include <string.h>

#define LARGEST_STRUCT ((size_t)1 << 16)

attn_status attn_args_read(void *ours, size_t size, const void *theirs, const char *name, char text[ATTN_ARGS_TEXT_BYTES])
{
    size_t given;
    memset(ours, 0, size);
    if (!theirs) {
        snprintf(text, ATTN_ARGS_TEXT_BYTES, "%s is NULL", name);
        return ATTN_ERR_INVALID_ARGUMENT;
    }
    memcpy(&given, theirs, sizeof given);
    if (given < sizeof given || given > LARGEST_STRUCT) {
        snprintf(text, ATTN_ARGS_TEXT_BYTES, "%s.struct_size is %zu: use ATTN_ARGS_INIT", name, given);
        return ATTN_ERR_INVALID_ARGUMENT;
    }
    const unsigned char *bytes = theirs;
    for (size_t n = size; n < given; n++)
        if (bytes[n]) {
            snprintf(text, ATTN_ARGS_TEXT_BYTES, "%s.struct_size is %zu, this library knows %zu bytes and byte %zu is set", name,
                     given, size, n);
            return ATTN_ERR_UNSUPPORTED;
        }
    memcpy(ours, theirs, given < size ? given : size);
    memcpy(ours, &size, sizeof size);
    return ATTN_OK;
}
