/* args.h - reading the versioned structs of callers: one meaning of struct_size for every public function. */
#ifndef ATTN_CORE_ARGS_H
#define ATTN_CORE_ARGS_H

#include <stddef.h>
#include "attn/attn.h"

#define ATTN_ARGS_TEXT_BYTES 256

/* Copies theirs, which begins with its size in bytes, into ours of `size` bytes: missing fields read as zero, bytes that
 * this version does not know must be zero, and ours says `size`. On an error ours is zero and text names field and value;
 * `name` is the caller's name of the struct. A size above 64 KiB is garbage and is refused before it is read. */
attn_status attn_args_read(void *ours, size_t size, const void *theirs, const char *name, char text[ATTN_ARGS_TEXT_BYTES]);

#endif
