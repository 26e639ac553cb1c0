/* backward_plain.c - the plain backward pass: every gradient in a pass of its own, every element owned by one task. */
#include "ops/sdpa/backward_paths.h"
#include "core/view.h"

#define ROWS_PER_TASK 32

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
    const attn_problem *p = &job->g->forward;
    (void)worker;
    for (int64_t q = 0; q < p->seq_q; q++)
        job->rows[task * p->seq_q + q] = attn_ref_backward_row(job->g, task / p->n_heads, task % p->n_heads, q);
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

static double pair_work(const attn_problem *p)
{
    return (double)(p->batch * p->n_heads) * (double)p->seq_q * (double)p->seq_kv * (double)(p->head_dim + p->value_dim);
}

static void run(attn_ctx *ctx, int64_t n_tasks, double work, attn_task_fn fn, plain_job *job)
{
    attn_ctx_for(ctx, n_tasks, attn_ctx_workers(ctx, n_tasks, work), fn, job);
}

void attn_backward_plain_tables(attn_ctx *ctx, const attn_bwd_problem *g, attn_ref_row *rows, bool bias, bool relative)
{
    const attn_problem *p = &g->forward;
    plain_job job = {g, rows, NULL, 0, 0};
    if (bias) {
        const int64_t *shape = g->a.d_bias.shape;
        job.n_blocks = block_count(shape[3], ATTN_REF_BIAS_BLOCK);
        run(ctx, shape[0] * shape[1] * shape[2] * job.n_blocks, pair_work(p), bias_task, &job);
    }
    if (relative) {
        int64_t columns = p->a.mask.rel_left + p->a.mask.rel_right + 1;
        run(ctx, (p->a.mask.relative_stride ? p->n_heads : 1) * columns, pair_work(p), relative_task, &job);
    }
    if (g->a.d_sinks)
        run(ctx, p->n_heads, (double)(p->batch * p->n_heads) * (double)p->seq_q, sink_task, &job);
}

static size_t rows_bytes(const attn_problem *p)
{
    size_t bytes = 0;
    attn_backward_add_bytes(&bytes, (size_t)(p->batch * p->n_heads * p->seq_q), sizeof(attn_ref_row));
    return bytes;
}

void attn_backward_plain(attn_ctx *ctx, const attn_bwd_problem *g, void *memory)
{
    const attn_problem *p = &g->forward;
    int64_t n_rows = p->batch * p->n_heads, dims = p->head_dim + p->value_dim;
    plain_job job = {g, memory, (double *)(void *)((char *)memory + rows_bytes(p)), dims, 0};
    run(ctx, n_rows, (double)n_rows * (double)p->seq_q * (double)p->value_dim, rows_task, &job);
    if (g->a.d_query.data) {
        job.n_blocks = block_count(p->seq_q, ROWS_PER_TASK);
        run(ctx, n_rows * job.n_blocks, pair_work(p), query_task, &job);
    }
    if (g->a.d_key.data || g->a.d_value.data) {
        job.n_blocks = block_count(p->seq_kv, ROWS_PER_TASK);
        run(ctx, p->batch * p->n_kv_heads * job.n_blocks, pair_work(p), key_task, &job);
    }
    attn_backward_plain_tables(ctx, g, job.rows, g->a.d_bias.data != NULL, g->a.d_relative != NULL);
}

attn_status attn_backward_plain_bytes(attn_ctx *ctx, const attn_bwd_problem *g, size_t *bytes)
{
    const attn_problem *p = &g->forward;
    *bytes = 0;
    if (!attn_backward_add_bytes(bytes, (size_t)(p->batch * p->n_heads * p->seq_q), sizeof(attn_ref_row)) ||
        !attn_backward_add_bytes(bytes, (size_t)(p->head_dim + p->value_dim), sizeof(double) * (size_t)ctx->n_threads))
        return attn_fail(ctx, ATTN_ERR_OUT_OF_MEMORY, "the workspace of these shapes does not fit this address space");
    return ATTN_OK;
}

bool attn_backward_add_bytes(size_t *bytes, size_t count, size_t size)
{
    size_t more;
    return attn_mul_size(count, size, &more) && attn_add_size(more, ATTN_ALIGNMENT - 1, &more) &&
           attn_add_size(*bytes, more / ATTN_ALIGNMENT * ATTN_ALIGNMENT, bytes) && *bytes <= SIZE_MAX / 2;
}
