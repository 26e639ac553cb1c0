/* run.h - the forward pass of a validated problem, for calls that are made of it (decode, looking in). */
#ifndef ATTN_OPS_SDPA_RUN_H
#define ATTN_OPS_SDPA_RUN_H

#include "core/context.h"
#include "kernels/sdpa/problem.h"

/* Bytes of 64-byte aligned scratch that attn_sdpa_run needs. Depends on extents, dtypes and the context only, never on
 * lengths, offsets or data, so that it may be asked before those are known. */
size_t attn_sdpa_scratch(const attn_ctx *ctx, const attn_problem *p);

/* Writes out and lse of every row. Fails never: everything was checked. */
void attn_sdpa_run(attn_ctx *ctx, const attn_problem *p, void *scratch);

#endif
