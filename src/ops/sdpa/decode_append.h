/* decode_append.h - writes new keys and values into a caller-owned cache: contiguous, paged or ring. */
#ifndef ATTN_OPS_SDPA_DECODE_APPEND_H
#define ATTN_OPS_SDPA_DECODE_APPEND_H

#include "core/context.h"

/* Appends a->new_key and new_value of every batch entry at its cache_len, converted to the cache's dtype (nearest even).
 * i8: scale = absmax/127 of the token and kv head in f32, element = nearest(x / scale); a row with a non-finite element
 * gets a NaN scale, so that the NaN is seen. Everything has been checked. */
void attn_decode_append(attn_ctx *ctx, const attn_decode_args *a);

#endif
