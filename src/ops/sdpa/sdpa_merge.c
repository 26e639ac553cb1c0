/* sdpa_merge.c - partial results over disjoint key sets, combined by their log-sum-exp. */
#include "core/context.h"
#include "core/view.h"

#include <math.h>

#define LL(x) ((long long)(x))

typedef struct merge_job {
    const attn_cview *outs;
    const void *const *lses;
    int64_t n_parts;
    const attn_view *out;
    void *lse;
    int32_t lse_dtype;
} merge_job;

/* One (batch, head): every row in turn. A part whose lse is -inf is skipped, so that its out is never read. */
static void merge_task(void *arg, int64_t task, int32_t worker)
{
    const merge_job *job = arg;
    const attn_view *out = job->out;
    int64_t heads = out->shape[1], b = task / heads, h = task % heads;
    (void)worker;
    for (int64_t i = 0; i < out->shape[2]; i++) {
        int64_t row = task * out->shape[2] + i;
        double max = -INFINITY, sum = 0;
        for (int64_t n = 0; n < job->n_parts; n++) {
            double lse = attn_load_element(job->lses[n], job->lse_dtype, row);
            if (!(lse <= max) && max == max)
                max = lse;
        }
        for (int64_t n = 0; n < job->n_parts && max != -INFINITY; n++) {
            double lse = attn_load_element(job->lses[n], job->lse_dtype, row);
            sum += lse == -INFINITY ? 0 : exp(lse - max);
        }
        for (int64_t d = 0; d < out->shape[3]; d++) {
            double acc = 0;
            for (int64_t n = 0; n < job->n_parts && max != -INFINITY; n++) {
                double lse = attn_load_element(job->lses[n], job->lse_dtype, row);
                if (lse != -INFINITY)
                    acc += exp(lse - max) / sum * attn_cview_at(&job->outs[n], b, h, i, d);
            }
            attn_store_element(out->data, out->dtype, attn_offset(out->stride, b, h, i, d), acc);
        }
        if (job->lse)
            attn_store_element(job->lse, job->lse_dtype, row, max == -INFINITY ? max : max + log(sum));
    }
}

static attn_status check_part(attn_ctx *ctx, const merge_job *job, int64_t n)
{
    const attn_cview *part = &job->outs[n];
    attn_cview out = attn_view_const(job->out);
    int64_t count;
    uintptr_t first, last;
    ATTN_REQUIRE(ctx, part->dtype == out.dtype, "outs[%lld].dtype is %s, out.dtype is %s", LL(n), attn_dtype_name(part->dtype),
                 attn_dtype_name(out.dtype));
    for (int axis = 0; axis < 4; axis++)
        ATTN_REQUIRE(ctx, part->shape[axis] == out.shape[axis], "outs[%lld].shape[%d] is %lld, out's is %lld", LL(n), axis,
                     LL(part->shape[axis]), LL(out.shape[axis]));
    ATTN_REQUIRE(ctx, attn_shape_count(part->shape, &count) && attn_view_extent(part, &first, &last),
                 "outs[%lld] has shape and strides whose extent overflows", LL(n));
    ATTN_REQUIRE(ctx, count == 0 || part->data, "outs[%lld].data is NULL", LL(n));
    ATTN_REQUIRE(ctx, job->lses[n], "lses[%lld] is NULL", LL(n));
    bool same = part->data == out.data && !memcmp(part->stride, out.stride, sizeof out.stride);
    ATTN_REQUIRE(ctx, same || !attn_views_overlap(part, &out), "out overlaps outs[%lld] without being it", LL(n));
    return ATTN_OK;
}

attn_status attn_sdpa_merge(attn_ctx *ctx, const attn_cview *outs, const void *const *lses, int64_t n_parts,
                            const attn_view *out, void *lse)
{
    if (!ctx)
        return ATTN_ERR_INVALID_ARGUMENT;
    ctx->error[0] = 0;
    ATTN_REQUIRE(ctx, n_parts >= 0, "n_parts is %lld, must be 0 or more", LL(n_parts));
    ATTN_REQUIRE(ctx, out, "out is NULL");
    ATTN_REQUIRE(ctx, n_parts == 0 || (outs && lses), "outs or lses is NULL");
    int32_t t = out->dtype;
    ATTN_REQUIRE(ctx, t == ATTN_F32 || t == ATTN_F64 || t == ATTN_BF16 || t == ATTN_F16, "out.dtype is %s, must be f32, f64, bf16 or f16",
                 attn_dtype_name(t));
    int64_t count;
    uintptr_t first, last;
    attn_cview whole = attn_view_const(out);
    ATTN_REQUIRE(ctx, attn_shape_count(out->shape, &count) && attn_view_extent(&whole, &first, &last),
                 "out.shape has a negative extent or overflows");
    ATTN_REQUIRE(ctx, count == 0 || out->data, "out.data is NULL");
    merge_job job = {outs, lses, n_parts, out, lse, t == ATTN_F64 ? ATTN_F64 : ATTN_F32};
    for (int64_t n = 0; n < n_parts; n++)
        ATTN_TRY(check_part(ctx, &job, n));
    int64_t n_tasks = out->shape[0] * out->shape[1];
    attn_ctx_for(ctx, n_tasks, attn_ctx_workers(ctx, n_tasks, (double)count * (double)n_parts), merge_task, &job);
    return ATTN_OK;
}
