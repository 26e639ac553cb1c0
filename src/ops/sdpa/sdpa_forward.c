/* sdpa_forward.c - attn_sdpa_forward, its workspace query and its plan: validate, plan, run. */
#include "ops/sdpa/decode_path.h"
#include "ops/sdpa/run.h"
#include "ops/sdpa/validate.h"
#include "kernels/ref/ref_sdpa.h"
#include "core/cpu.h"
#include "core/view.h"

/* One task of the generic path: all rows of one head of one entry. */
typedef struct generic_job {
    const attn_problem *problem;
    bool decoded; /* entries with few rows are done (ops/sdpa/decode_path.h) */
    double *scratch; /* value_dim doubles per worker */
} generic_job;

static void generic_task(void *arg, int64_t task, int32_t worker)
{
    const generic_job *job = arg;
    const attn_problem *p = job->problem;
    attn_entry e = attn_problem_entry(p, task / p->n_heads);
    if (job->decoded && attn_decode_takes(p, e.q_count))
        return;
    for (int64_t i = 0; i < e.q_count; i++)
        attn_ref_forward_row(p, &e, task % p->n_heads, i, job->scratch + worker * p->value_dim);
}

/* Rows that belong to no entry (beyond q_len, after the last segment): out 0, lse -inf. */
static void clear_padding(const attn_problem *p)
{
    for (int64_t b = 0; b < p->batch; b++) {
        int64_t q = 0, s = p->packed ? 0 : b, last = p->packed ? p->n_entries : b + 1;
        for (; s <= last; s++) {
            int64_t begin = p->seq_q, end = p->seq_q;
            if (s < last) {
                attn_entry e = attn_problem_entry(p, s);
                begin = e.q_begin;
                end = begin + e.q_count;
            }
            for (; q < begin; q++)
                for (int64_t h = 0; h < p->n_heads; h++)
                    attn_ref_empty_row(p, b, h, q, -INFINITY);
            q = end > q ? end : q;
        }
    }
}

size_t attn_sdpa_scratch(const attn_ctx *ctx, const attn_problem *p)
{
    size_t generic = (size_t)ctx->n_threads * (size_t)(p->value_dim ? p->value_dim : 1) * sizeof(double);
    size_t decode = attn_decode_suits(p) ? attn_decode_scratch(ctx, p) : 0; /* one after the other */
    return decode > generic ? decode : generic;
}

void attn_sdpa_run(attn_ctx *ctx, const attn_problem *p, void *scratch)
{
    generic_job job = {p, attn_decode_suits(p), scratch};
    int64_t n_tasks = p->n_entries * p->n_heads;
    double work = (double)n_tasks * (double)p->seq_q * (double)p->seq_kv * (double)(p->head_dim + p->value_dim);
    clear_padding(p);
    if (job.decoded)
        attn_decode_run(ctx, p, scratch);
    if (job.decoded && !p->packed && attn_decode_takes(p, p->seq_q))
        return;
    attn_ctx_for(ctx, n_tasks, attn_ctx_workers(ctx, n_tasks, work), generic_task, &job);
}

attn_status attn_sdpa_workspace(attn_ctx *ctx, const attn_sdpa_args *args, size_t *bytes)
{
    attn_problem p;
    ATTN_TRY(attn_sdpa_validate(ctx, args, ATTN_NEED_VALUE, &p));
    ATTN_REQUIRE(ctx, bytes, "bytes is NULL");
    *bytes = attn_sdpa_scratch(ctx, &p);
    return ATTN_OK;
}

attn_status attn_sdpa_forward(attn_ctx *ctx, const attn_sdpa_args *args, void *workspace, size_t workspace_bytes)
{
    attn_problem p;
    void *scratch;
    ATTN_TRY(attn_sdpa_validate(ctx, args, ATTN_NEED_ALL, &p));
    ATTN_TRY(attn_ctx_workspace(ctx, workspace, workspace_bytes, attn_sdpa_scratch(ctx, &p), &scratch));
    attn_sdpa_run(ctx, &p, scratch);
    return ATTN_OK;
}

attn_status attn_sdpa_describe(attn_ctx *ctx, const attn_sdpa_args *args, attn_sdpa_plan *plan)
{
    attn_problem p;
    ATTN_TRY(attn_sdpa_validate(ctx, args, ATTN_NEED_VALUE, &p));
    attn_sdpa_plan filled;
    ATTN_TRY(attn_args_copy(ctx, &filled, sizeof filled, plan, "plan"));
    size_t size = plan->struct_size;
    ATTN_ARGS_INIT(&filled);
    filled.isa = attn_isa_name(ctx->isa);
    filled.kernel = "reference";
    filled.tile_rows = filled.tile_keys = 1;
    filled.query_block = p.seq_q;
    filled.key_block = p.seq_kv;
    filled.n_tasks = p.n_entries * p.n_heads;
    filled.n_splits = 1;
    filled.n_threads = attn_ctx_workers(ctx, filled.n_tasks, (double)filled.n_tasks * (double)p.seq_q * (double)p.seq_kv *
                                                                 (double)(p.head_dim + p.value_dim));
    filled.workspace_bytes = attn_sdpa_scratch(ctx, &p);
    filled.struct_size = size;
    memcpy(plan, &filled, size < sizeof filled ? size : sizeof filled);
    return ATTN_OK;
}
