/* backward_plain.c - the backward pass in double: every gradient in a pass of its own, every element owned by one task. Gradients
 * of queries, keys and values run in tiles (kernels/sdpa/wide.h), those of things added to scores pair by pair. */
#include "ops/sdpa/backward_paths.h"
#include "kernels/sdpa/wide.h"
#include "core/view.h"

typedef struct plain_job {
    const attn_bwd_problem *g;
    const attn_wide_kernels *kernels;
    attn_ref_row *rows;   /* batch * n_heads * seq_q */
    double *scratch;      /* scratch_count doubles per worker */
    int64_t scratch_count;
    const uint8_t *marked; /* [rows] which rows may take their own lse; NULL: all */
    int64_t n_blocks;     /* of ATTN_WIDE_ROWS rows, of ATTN_WIDE_KEYS keys, or of ATTN_REF_BIAS_BLOCK keys */
    int64_t first_head;   /* of own_lse_task: kv heads of entries before the first task's */
} plain_job;

static int64_t block_count(int64_t extent, int64_t block)
{
    return (extent + block - 1) / block;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rows of block `block` of the stack of a kv head in an entry; false when there are none. */
static bool rows_of(const plain_job *job, int64_t task, attn_wide_rows *rows)
{
    const attn_problem *p = &job->g->forward;
    int64_t head = task / job->n_blocks, g = head % p->n_kv_heads;
    rows->entry = attn_problem_entry(p, head / p->n_kv_heads);
    rows->kv_head = g;
    rows->head = g * p->group;
    rows->stack = p->group;
    rows->begin = task % job->n_blocks * ATTN_WIDE_ROWS;
    rows->count = least(ATTN_WIDE_ROWS, rows->entry.q_count * p->group - rows->begin);
    return rows->count > 0;
}

static double *scratch_of(const plain_job *job, int32_t worker)
{
    return job->scratch + worker * job->scratch_count;
}

static void rows_task(void *arg, int64_t task, int32_t worker)
{
    const plain_job *job = arg;
    const attn_problem *p = &job->g->forward;
    (void)worker;
    for (int64_t q = 0; q < p->seq_q; q++)
        job->rows[task * p->seq_q + q] = attn_ref_backward_row(job->g, task / p->n_heads, task % p->n_heads, q);
}

/* An lse of less than this is taken as it is: its rounding moves a weight by less than 2^-17 (f64: 2^-32) of itself. */
static double exact_lse(const attn_problem *p)
{
    return p->lse_dtype == ATTN_F64 ? 0x1p20 : 64;
}

static bool takes_own_lse(const plain_job *job, int64_t row)
{
    double lse = fabs(job->rows[row].lse);
    return (!job->marked || job->marked[row]) && lse >= exact_lse(&job->g->forward) && lse < INFINITY;
}

static void own_lse_task(void *arg, int64_t task, int32_t worker)
{
    const plain_job *job = arg;
    const attn_problem *p = &job->g->forward;
    double lse[ATTN_WIDE_ROWS], rest[ATTN_WIDE_ROWS];
    int64_t at[ATTN_WIDE_ROWS];
    attn_wide_rows rows;
    bool any = false;
    if (!rows_of(job, task + job->first_head * job->n_blocks, &rows))
        return;
    for (int64_t r = 0; r < rows.count; r++) {
        int64_t row = rows.begin + r, h = rows.head + row % rows.stack;
        at[r] = (rows.entry.batch * p->n_heads + h) * p->seq_q + rows.entry.q_begin + row / rows.stack;
        any |= takes_own_lse(job, at[r]);
    }
    if (!any)
        return;
    job->kernels->row_lse(p, &rows, lse, rest, scratch_of(job, worker));
    for (int64_t r = 0; r < rows.count; r++) {
        if (takes_own_lse(job, at[r]) && attn_lse_is_own(p, lse[r] + rest[r], job->rows[at[r]].lse)) {
            job->rows[at[r]].lse = lse[r];
            job->rows[at[r]].rest = rest[r];
        }
    }
}

static void exact_rows_task(void *arg, int64_t task, int32_t worker)
{
    const plain_job *job = arg;
    attn_wide_rows rows;
    if (rows_of(job, task, &rows))
        job->kernels->backward_rows(job->g, &rows, job->rows, scratch_of(job, worker));
}

static void query_task(void *arg, int64_t task, int32_t worker)
{
    const plain_job *job = arg;
    attn_wide_rows rows;
    if (rows_of(job, task, &rows))
        job->kernels->backward_query(job->g, &rows, job->rows, scratch_of(job, worker));
}

static void key_task(void *arg, int64_t task, int32_t worker)
{
    const plain_job *job = arg;
    const attn_problem *p = &job->g->forward;
    int64_t head = task / job->n_blocks, first = task % job->n_blocks * ATTN_WIDE_KEYS;
    attn_entry e = attn_problem_entry(p, head / p->n_kv_heads);
    if (first < e.k_count)
        job->kernels->backward_keys(job->g, &e, head % p->n_kv_heads, first, job->rows, scratch_of(job, worker));
}

/* Queries and keys of no entry: 0. One task is a head of a batch entry. */
static void padding_task(void *arg, int64_t task, int32_t worker)
{
    const plain_job *job = arg;
    const attn_problem *p = &job->g->forward;
    int64_t b = task / p->n_heads, h = task % p->n_heads, unused;
    attn_entry e;
    for (int64_t q = 0; q < p->seq_q; q++)
        if (!attn_entry_of_query(p, b, q, &e, &unused)) {
            job->rows[task * p->seq_q + q] = (attn_ref_row){-INFINITY, 0, 0};
            attn_ref_backward_query(job->g, job->rows, b, h, q, scratch_of(job, worker));
        }
    for (int64_t k = 0; h < p->n_kv_heads && k < p->seq_kv; k++)
        if (!attn_entry_of_key(p, b, k, &e, &unused))
            attn_ref_backward_key(job->g, job->rows, b, h, k, scratch_of(job, worker));
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

/* Whether any of n_heads kv heads from the job's first on has such a row. */
static bool any_own_lse(const plain_job *job, int64_t n_heads)
{
    const attn_problem *p = &job->g->forward;
    const int64_t head_rows = p->group * p->seq_q, all = p->batch * p->n_kv_heads;
    int64_t row = p->packed ? 0 : job->first_head * head_rows;
    const int64_t end = p->packed ? all * head_rows : (job->first_head + n_heads) * head_rows;
    while (row < end && !takes_own_lse(job, row))
        row++;
    return row < end;
}

void attn_backward_own_lse(attn_ctx *ctx, const attn_bwd_problem *g, int64_t first_head, int64_t n_heads, attn_ref_row *rows,
                           const uint8_t *marked, double *scratch, int64_t scratch_count)
{
    const attn_problem *p = &g->forward;
    const int64_t n_blocks = block_count(p->seq_q * p->group, ATTN_WIDE_ROWS);
    plain_job job = {g, attn_wide_kernels_at(ctx->isa), rows, scratch, scratch_count, marked, n_blocks, first_head};
    const double work = pair_work(p) * (double)n_heads / (double)(p->n_entries * p->n_kv_heads);
    if (any_own_lse(&job, n_heads))
        run(ctx, n_heads * n_blocks, work, own_lse_task, &job);
}

void attn_backward_own_lse_of(int32_t isa, const attn_bwd_problem *g, int64_t head, attn_ref_row *rows,
                              const uint8_t *marked, double *scratch)
{
    const int64_t n_blocks = block_count(g->forward.seq_q * g->forward.group, ATTN_WIDE_ROWS);
    plain_job job = {g, attn_wide_kernels_at(isa), rows, scratch, 0, marked, n_blocks, head};
    if (any_own_lse(&job, 1))
        for (int64_t block = 0; block < n_blocks; block++)
            own_lse_task(&job, block, 0);
}

/* Most queries and keys of an entry. */
static void longest_entry(const attn_problem *p, int64_t *queries, int64_t *keys)
{
    *queries = *keys = 0;
    for (int64_t s = 0; s < p->n_entries; s++) {
        attn_entry e = attn_problem_entry(p, s);
        *queries = e.q_count > *queries ? e.q_count : *queries;
        *keys = e.k_count > *keys ? e.k_count : *keys;
    }
}

void attn_backward_exact_rows(attn_ctx *ctx, const attn_bwd_problem *g, attn_ref_row *rows, double *scratch, int64_t scratch_count)
{
    const attn_problem *p = &g->forward;
    plain_job job = {g, attn_wide_kernels_at(ctx->isa), rows, scratch, scratch_count, NULL, 0, 0};
    int64_t queries, keys;
    longest_entry(p, &queries, &keys);
    job.n_blocks = block_count(queries * p->group, ATTN_WIDE_ROWS);
    run(ctx, p->n_entries * p->n_kv_heads * job.n_blocks, pair_work(p), exact_rows_task, &job);
}

void attn_backward_plain_tables(attn_ctx *ctx, const attn_bwd_problem *g, attn_ref_row *rows, bool bias, bool relative)
{
    const attn_problem *p = &g->forward;
    plain_job job = {g, NULL, rows, NULL, 0, NULL, 0, 0};
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

bool attn_backward_is_small(const attn_bwd_problem *g)
{
    const attn_problem *p = &g->forward;
    int64_t pair = p->head_dim + p->value_dim, most = ATTN_BACKWARD_SMALL / (pair > 0 ? pair : 1);
    return !p->packed && (p->seq_kv == 0 || p->seq_q <= most / p->seq_kv);
}

void attn_backward_plain(attn_ctx *ctx, const attn_bwd_problem *g, void *memory)
{
    const attn_problem *p = &g->forward;
    int64_t n_rows = p->batch * p->n_heads, heads = p->n_entries * p->n_kv_heads, queries, keys;
    plain_job job = {g, attn_wide_kernels_at(ctx->isa), memory, (double *)(void *)((char *)memory + rows_bytes(p)),
                     attn_wide_scratch(p), NULL, 0, 0};
    longest_entry(p, &queries, &keys);
    int64_t row_blocks = block_count(queries * p->group, ATTN_WIDE_ROWS);
    job.n_blocks = row_blocks;
    if (attn_backward_is_small(g)) {
        run(ctx, heads * row_blocks, pair_work(p), exact_rows_task, &job);
    } else {
        run(ctx, n_rows, (double)n_rows * (double)p->seq_q * (double)p->value_dim, rows_task, &job);
        attn_backward_own_lse(ctx, g, 0, heads, job.rows, NULL, job.scratch, job.scratch_count);
    }
    if (p->packed || p->a.mask.q_len || p->a.mask.kv_len)
        run(ctx, n_rows, (double)n_rows * (double)(p->seq_q + p->seq_kv), padding_task, &job);
    if (g->a.d_query.data)
        run(ctx, heads * row_blocks, pair_work(p), query_task, &job);
    job.n_blocks = block_count(keys, ATTN_WIDE_KEYS);
    if (g->a.d_key.data || g->a.d_value.data)
        run(ctx, heads * job.n_blocks, pair_work(p), key_task, &job);
    attn_backward_plain_tables(ctx, g, job.rows, g->a.d_bias.data != NULL, g->a.d_relative != NULL);
}

attn_status attn_backward_plain_bytes(attn_ctx *ctx, const attn_bwd_problem *g, size_t *bytes)
{
    const attn_problem *p = &g->forward;
    *bytes = 0;
    if (!attn_backward_add_bytes(bytes, (size_t)(p->batch * p->n_heads * p->seq_q), sizeof(attn_ref_row)) ||
        !attn_backward_add_bytes(bytes, (size_t)attn_wide_scratch(p), sizeof(double) * (size_t)ctx->n_threads))
        return attn_fail(ctx, ATTN_ERR_OUT_OF_MEMORY, "the workspace of these shapes does not fit this address space");
    return ATTN_OK;
}

bool attn_backward_add_bytes(size_t *bytes, size_t count, size_t size)
{
    size_t more;
    return attn_mul_size(count, size, &more) && attn_add_size(more, ATTN_ALIGNMENT - 1, &more) &&
           attn_add_size(*bytes, more / ATTN_ALIGNMENT * ATTN_ALIGNMENT, bytes) && *bytes <= SIZE_MAX / 2;
}
