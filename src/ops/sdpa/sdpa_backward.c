/* sdpa_backward.c - attn_sdpa_backward and its workspace query: validate, plan, run. */
#include "ops/sdpa/backward_paths.h"
#include "ops/sdpa/validate_backward.h"

static attn_status workspace_bytes_of(attn_ctx *ctx, const attn_bwd_problem *g, size_t *bytes)
{
    return attn_backward_is_fast(g) ? attn_backward_fast_bytes(ctx, g, bytes) : attn_backward_plain_bytes(ctx, g, bytes);
}

attn_status attn_sdpa_backward_workspace(attn_ctx *ctx, const attn_sdpa_backward_args *args, size_t *bytes)
{
    attn_bwd_problem g;
    ATTN_TRY(attn_sdpa_validate_backward(ctx, args, false, &g));
    ATTN_REQUIRE(ctx, bytes, "bytes is NULL");
    return workspace_bytes_of(ctx, &g, bytes);
}

attn_status attn_sdpa_backward(attn_ctx *ctx, const attn_sdpa_backward_args *args, void *workspace,
                               size_t workspace_bytes)
{
    attn_bwd_problem g;
    size_t bytes = 0;
    void *memory;
    ATTN_TRY(attn_sdpa_validate_backward(ctx, args, true, &g));
    ATTN_TRY(workspace_bytes_of(ctx, &g, &bytes));
    ATTN_TRY(attn_ctx_workspace(ctx, workspace, workspace_bytes, bytes, &memory));
    if (attn_backward_is_fast(&g))
        attn_backward_fast(ctx, &g, memory);
    else
        attn_backward_plain(ctx, &g, memory);
    return ATTN_OK;
}
