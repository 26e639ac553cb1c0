/* sdpa_backward.c - attn_sdpa_backward and its workspace query: validate, plan, run. */
#include "ops/sdpa/validate_backward.h"
#include "kernels/ref/ref_backward.h"
#include "core/view.h"

#define ROWS_PER_TASK 32

/* The plain path: every gradient in a pass of its own, every element owned by one task. */
typedef struct plain_job {
    const attn_bwd_problem *g;
    attn_ref_row *rows;   /* batch * n_heads * seq_q */
    double *scratch;      /* scratch_count doubles per worker */
    int64_t scratch_count;
    int64_t n_blocks;     /* of ROWS_PER_TASK rows, or of ATTN_REF_BIAS_BLOCK keys */
} plain_job;

static int64_t block_count(int64_t extent, int64_t block)
{
    return (extent + block - 1) / block;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void rows_task(void *arg, int64_t task, int32_t worker)
{
    const plain_job *job = arg;
    int64_t n_heads = job->g->forward.n_heads;
    (void)worker;
    attn_ref_backward_rows(job->g, task / n_heads, task % n_heads, job->rows);
}

static void query_task(void *arg, int64_t task, int32_t worker)
{
    const plain_job *job = arg;
    const attn_problem *p = &job->g->forward;
    int64_t head = task / job->n_blocks, first = task % job->n_blocks * ROWS_PER_TASK;
    for (int64_t q = first; q < least(first + ROWS_PER_TASK, p->seq_q); q++)
        attn_ref_backward_query(job->g, job->rows, head / p->n_heads, head % p->n_heads, q,
                                job->scratch + worker * job->scratch_count);
}

static void key_task(void *arg, int64_t task, int32_t worker)
{
    const plain_job *job = arg;
    const attn_problem *p = &job->g->forward;
    int64_t head = task / job->n_blocks, first = task % job->n_blocks * ROWS_PER_TASK;
    for (int64_t k = first; k < least(first + ROWS_PER_TASK, p->seq_kv); k++)
        attn_ref_backward_key(job->g, job->rows, head / p->n_kv_heads, head % p->n_kv_heads, k,
                              job->scratch + worker * job->scratch_count);
}

static void bias_task(void *arg, int64_t task, int32_t worker)
{
    const plain_job *job = arg;
    const int64_t *shape = job->g->a.d_bias.shape;
    (void)worker;
    int64_t k = task % job->n_blocks * ATTN_REF_BIAS_BLOCK, row = task / job->n_blocks;
    attn_ref_backward_bias(job->g, job->rows, row / (shape[1] * shape[2]), row / shape[2] % shape[1], row % shape[2], k);
}

static void relative_task(void *arg, int64_t task, int32_t worker)
{
    const plain_job *job = arg;
    int64_t columns = job->g->forward.a.mask.rel_left + job->g->forward.a.mask.rel_right + 1;
    (void)worker;
    attn_ref_backward_relative(job->g, job->rows, task / columns, task % columns);
}

static void sink_task(void *arg, int64_t task, int32_t worker)
{
    const plain_job *job = arg;
    (void)worker;
    attn_ref_backward_sink(job->g, job->rows, task);
}

static void run_plain(attn_ctx *ctx, plain_job *job)
{
    const attn_problem *p = &job->g->forward;
    const attn_sdpa_backward_args *a = &job->g->a;
    int64_t n_rows = p->batch * p->n_heads;
    double work = (double)n_rows * (double)p->seq_q * (double)p->seq_kv * (double)(p->head_dim + p->value_dim);
#define RUN(fn, tasks, amount)                                                                                         \
    do {                                                                                                               \
        int64_t n_tasks = (tasks);                                                                                     \
        attn_ctx_for(ctx, n_tasks, attn_ctx_workers(ctx, n_tasks, (amount)), fn, job);                                 \
    } while (0)
    RUN(rows_task, n_rows, (double)n_rows * (double)p->seq_q * (double)p->value_dim);
    if (a->d_query.data) {
        job->n_blocks = block_count(p->seq_q, ROWS_PER_TASK);
        RUN(query_task, n_rows * job->n_blocks, work);
    }
    if (a->d_key.data || a->d_value.data) {
        job->n_blocks = block_count(p->seq_kv, ROWS_PER_TASK);
        RUN(key_task, p->batch * p->n_kv_heads * job->n_blocks, work);
    }
    if (a->d_bias.data) {
        const int64_t *shape = a->d_bias.shape;
        job->n_blocks = block_count(shape[3], ATTN_REF_BIAS_BLOCK);
        RUN(bias_task, shape[0] * shape[1] * shape[2] * job->n_blocks, work);
    }
    if (a->d_relative) {
        int64_t columns = p->a.mask.rel_left + p->a.mask.rel_right + 1;
        RUN(relative_task, (p->a.mask.relative_stride ? p->n_heads : 1) * columns, work);
    }
    if (a->d_sinks)
        RUN(sink_task, p->n_heads, (double)n_rows * (double)p->seq_q);
#undef RUN
}

static size_t round_up(size_t bytes)
{
    return (bytes + ATTN_ALIGNMENT - 1) / ATTN_ALIGNMENT * ATTN_ALIGNMENT;
}

/* rows, then scratch per worker. */
static attn_status plain_workspace(attn_ctx *ctx, const attn_bwd_problem *g, size_t *rows_bytes, size_t *bytes)
{
    const attn_problem *p = &g->forward;
    size_t rows = (size_t)p->seq_q, dims = (size_t)p->head_dim + (size_t)p->value_dim;
    bool fits = attn_mul_size(rows, (size_t)p->batch, &rows) && attn_mul_size(rows, (size_t)p->n_heads, &rows) &&
                attn_mul_size(rows, sizeof(attn_ref_row), &rows) && attn_add_size(rows, ATTN_ALIGNMENT, rows_bytes) &&
                attn_mul_size(dims, sizeof(double) * (size_t)ctx->n_threads, &dims) && attn_add_size(*rows_bytes, dims, bytes) &&
                *bytes < SIZE_MAX / 2;
    if (!fits)
        return attn_fail(ctx, ATTN_ERR_OUT_OF_MEMORY, "the workspace of these shapes does not fit this address space");
    *rows_bytes = round_up(rows);
    *bytes = *rows_bytes + round_up(dims ? dims : 1);
    return ATTN_OK;
}

attn_status attn_sdpa_backward_workspace(attn_ctx *ctx, const attn_sdpa_backward_args *args, size_t *bytes)
{
    attn_bwd_problem g;
    size_t rows_bytes = 0;
    ATTN_TRY(attn_sdpa_validate_backward(ctx, args, false, &g));
    ATTN_REQUIRE(ctx, bytes, "bytes is NULL");
    return plain_workspace(ctx, &g, &rows_bytes, bytes);
}

attn_status attn_sdpa_backward(attn_ctx *ctx, const attn_sdpa_backward_args *args, void *workspace,
                               size_t workspace_bytes)
{
    attn_bwd_problem g;
    size_t rows_bytes = 0, bytes = 0;
    void *memory;
    ATTN_TRY(attn_sdpa_validate_backward(ctx, args, true, &g));
    ATTN_TRY(plain_workspace(ctx, &g, &rows_bytes, &bytes));
    ATTN_TRY(attn_ctx_workspace(ctx, workspace, workspace_bytes, bytes, &memory));
    plain_job job = {&g, memory, (double *)(void *)((char *)memory + rows_bytes),
                     g.forward.head_dim + g.forward.value_dim, 0};
    run_plain(ctx, &job);
    return ATTN_OK;
}
