/* backward_fast.c - plans and runs the fast backward pass: pack, key blocks, finish (kernels/sdpa/bwd_fast.h). */
#include "ops/sdpa/backward_paths.h"
#include "kernels/sdpa/wide.h"
#include "core/view.h"

#define ROWS_PER_TASK 64 /* of packing and finishing */

bool attn_backward_is_fast(const attn_bwd_problem *g)
{
    return g->forward.a.query.dtype != ATTN_F64 && !attn_backward_is_small(g);
}

static int64_t round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t longest_keys(const attn_problem *p)
{
    int64_t longest = 0;
    for (int64_t s = 0; s < p->n_entries; s++) {
        attn_entry e = attn_problem_entry(p, s);
        longest = e.k_count > longest ? e.k_count : longest;
    }
    return longest;
}

static double row_work(const attn_problem *p, int64_t rows)
{
    return (double)rows * (double)(p->head_dim + p->value_dim);
}

static double pair_work(const attn_problem *p, int64_t rows)
{
    return row_work(p, rows) * (double)p->seq_kv * 2.5;
}

/* Packed rows are read once for every block of keys, so they should not leave the caches. A worker takes a head from
 * packing to the end, and its rows stay in the worker's own cache: on Zen 4 (1 MB) 3 % of a pass in bf16, 48 heads of
 * 1024 x 64. The last heads are shared block by block, so that no worker waits for another's last head; so are few
 * heads, packed sequences, and the heads of tables that receive head by head. How heads are run shows in no bit. */
static int64_t own_heads(const attn_bwd_plan *plan)
{
    const attn_problem *p = &plan->g->forward;
    const int64_t all = p->n_entries * p->n_kv_heads, workers = plan->workers;
    if (p->packed || (plan->relative_columns && workers > 1))
        return 0;
    return workers == 1 ? all : all < 2 * workers ? 0 : all - workers - all % workers;
}

/* Shared heads are at work a few at a time: at least two for each thread (while one thread ends, another has work) and
 * 2 MB of rows for each. */
#define BYTES_AT_ONCE (2 << 20)

static int64_t heads_at_once(const attn_bwd_plan *plan)
{
    const attn_problem *p = &plan->g->forward;
    const int64_t shared = p->n_entries * p->n_kv_heads - plan->own_heads;
    const int64_t bytes = 4 * p->group * p->seq_q * (plan->query_row + plan->d_out_row + plan->dim_pad);
    const int64_t each = bytes > 0 && BYTES_AT_ONCE / bytes > 1 ? BYTES_AT_ONCE / bytes + 1 : 2;
    return p->packed || shared / plan->workers < each ? shared : each * plan->workers;
}

/* Slots from one packed row to the next. Long rows are no power of two apart: they would share few sets of the cache.
 * Gaps behind short ones cost 1 % in f32, d 64. */
static int64_t row_stride(int64_t slots)
{
    return slots > 64 ? slots + 16 : slots;
}

/* Everything that the shape and the ISA level decide, and how many heads run at a time. */
static attn_bwd_plan make_plan(const attn_ctx *ctx, const attn_bwd_problem *g)
{
    const attn_problem *p = &g->forward;
    const attn_sdpa_args *a = &p->a;
    attn_bwd_plan plan = {.g = g, .kernels = attn_bwd_kernels_for(ctx->isa, g)};
    plan.query_block = 96; /* whole register tiles of every level: rows of 6, 12; lanes of 2, 8, 16, 32 */
    /* bf16: half as many sums of d_query are loaded and stored, pairs of rows joined half as often: 2 %; f32: no gain */
    plan.key_block = plan.kernels->pair > 1 ? 192 : 96;
    plan.dim_pad = round_up(p->head_dim, plan.kernels->lanes);
    plan.value_pad = round_up(p->value_dim, plan.kernels->lanes);
    plan.dim_slots = plan.dim_pad / plan.kernels->pair;
    plan.value_slots = plan.value_pad / plan.kernels->pair;
    plan.query_row = row_stride(plan.dim_slots);
    plan.d_out_row = row_stride(plan.value_slots);
    plan.score_row = plan.key_block + 16;
    plan.blocks_per_head = p->seq_q / plan.query_block + (p->packed ? p->n_entries : 1) + 1;
    plan.key_blocks = round_up(longest_keys(p), plan.key_block) / plan.key_block;
    plan.rich = a->softcap > 0 || attn_drops(p) || a->mask.bias.data || a->mask.allow.data || a->mask.alibi_slopes ||
                a->mask.relative;
    plan.bias_in_tile = g->a.d_bias.data && g->a.d_bias.dtype == ATTN_F32 && !(g->bias_sums[2] && p->seq_q > 1) &&
                        !(g->bias_sums[3] && p->seq_kv > 1);
    plan.bias_shared = plan.bias_in_tile && ((g->bias_sums[0] && p->batch > 1) || (g->bias_sums[1] && p->n_heads > 1));
    plan.relative_columns = g->a.d_relative ? a->mask.rel_left + a->mask.rel_right + 1 : 0;
    plan.workers = attn_ctx_workers(ctx, p->n_entries * p->n_kv_heads * plan.key_blocks,
                                    pair_work(p, p->batch * p->n_heads * p->seq_q));
    plan.own_heads = own_heads(&plan);
    plan.heads_at_once = heads_at_once(&plan);
    plan.scratch_bytes = (size_t)round_up((int64_t)plan.kernels->scratch_bytes(&plan), 4096);
    size_t lse_bytes = (size_t)round_up(attn_wide_scratch(p) * (int64_t)sizeof(double), 4096); /* for attn_backward_own_lse */
    if (plan.scratch_bytes < lse_bytes)
        plan.scratch_bytes = lse_bytes;
    return plan;
}

/* Hands out pieces of the workspace; with base NULL it only counts. */
typedef struct carver {
    char *base;
    size_t used;
    bool fits;
} carver;

static void *carve(carver *c, int64_t count, size_t size)
{
    size_t at = c->used;
    c->fits &= attn_backward_add_bytes(&c->used, (size_t)count, size);
    return c->base && c->fits ? c->base + at : NULL;
}

static void carve_plan(attn_bwd_plan *plan, carver *c, int32_t n_threads)
{
    const attn_problem *p = &plan->g->forward;
    const int64_t rows = p->batch * p->n_heads * p->seq_q, owners = plan->own_heads ? plan->workers : 0;
    const int64_t heads = plan->heads_at_once + owners;
    const int64_t at_once = p->packed ? rows : heads * p->group * p->seq_q;
    plan->query = carve(c, at_once, (size_t)plan->query_row * sizeof(float));
    plan->d_out = carve(c, at_once, (size_t)plan->d_out_row * sizeof(float));
    plan->d_query = plan->g->a.d_query.data ? carve(c, at_once, (size_t)plan->dim_pad * sizeof(float)) : NULL;
    plan->rows = carve(c, rows, sizeof(attn_ref_row));
    plan->special = carve(c, rows, 1);
    plan->tickets = carve(c, p->batch * p->n_heads * plan->blocks_per_head, sizeof *plan->tickets);
    plan->bias_turn = carve(c, plan->key_blocks, sizeof *plan->bias_turn);
    plan->relative_turn = carve(c, p->n_heads, sizeof *plan->relative_turn);
    plan->scratch = carve(c, n_threads, plan->scratch_bytes);
}

attn_status attn_backward_fast_bytes(attn_ctx *ctx, const attn_bwd_problem *g, size_t *bytes)
{
    attn_bwd_plan plan = make_plan(ctx, g);
    carver c = {NULL, 0, true};
    carve_plan(&plan, &c, ctx->n_threads);
    if (!c.fits)
        return attn_fail(ctx, ATTN_ERR_OUT_OF_MEMORY, "the workspace of these shapes does not fit this address space");
    *bytes = c.used ? c.used : ATTN_ALIGNMENT;
    return ATTN_OK;
}

typedef struct row_job {
    const attn_bwd_plan *plan; /* of the heads at work */
    int32_t isa;
    int64_t n_chunks;
    int64_t side;        /* kv heads whose key blocks are handed out side by side */
    int64_t head, heads; /* kv heads at work, counted over entries */
    int64_t row;         /* query heads before the first of them, counted over batch entries */
    int64_t own;         /* kv heads before all of these that are still to do, each by one worker */
} row_job;

static void pack_task(void *arg, int64_t task, int32_t worker)
{
    const row_job *job = arg;
    const attn_bwd_plan *plan = job->plan;
    const attn_problem *p = &plan->g->forward;
    int64_t row = job->row + task / job->n_chunks, q0 = task % job->n_chunks * ROWS_PER_TASK;
    plan->kernels->pack(plan, row / p->n_heads, row % p->n_heads, q0, q0 + ROWS_PER_TASK < p->seq_q ? q0 + ROWS_PER_TASK : p->seq_q,
                        plan->scratch + (size_t)worker * plan->scratch_bytes);
}

static void finish_task(void *arg, int64_t task, int32_t worker)
{
    const row_job *job = arg;
    const attn_bwd_plan *plan = job->plan;
    const attn_problem *p = &plan->g->forward;
    int64_t row = job->row + task / job->n_chunks, q0 = task % job->n_chunks * ROWS_PER_TASK;
    (void)worker;
    plan->kernels->finish(plan, row / p->n_heads, row % p->n_heads, q0,
                          q0 + ROWS_PER_TASK < p->seq_q ? q0 + ROWS_PER_TASK : p->seq_q);
}

static bool keys_wanted(const attn_bwd_plan *plan)
{
    return plan->g->a.d_key.data || plan->g->a.d_value.data;
}

static bool blocks_wanted(const attn_bwd_plan *plan)
{
    return keys_wanted(plan) || plan->d_query || plan->bias_in_tile || plan->relative_columns;
}

/* The plan of kv head `head` in the rows that lie `heads` heads behind the first. */
static attn_bwd_plan plan_at(const attn_bwd_plan *plan, int64_t head, int64_t heads)
{
    const int64_t head_rows = plan->g->forward.group * plan->g->forward.seq_q;
    attn_bwd_plan moved = *plan;
    moved.first_row = head * head_rows;
    moved.query += heads * head_rows * plan->query_row;
    moved.d_out += heads * head_rows * plan->d_out_row;
    if (plan->d_query)
        moved.d_query += heads * head_rows * plan->dim_pad;
    return moved;
}

/* Head `head` from packing to the end, in a worker's own rows. */
static void own_head(const row_job *job, int64_t head, int32_t worker)
{
    const attn_problem *p = &job->plan->g->forward;
    const attn_bwd_plan plan = plan_at(job->plan, head, job->plan->heads_at_once + worker);
    char *scratch = plan.scratch + (size_t)worker * plan.scratch_bytes;
    const int64_t b = head / p->n_kv_heads, kv_head = head % p->n_kv_heads, first = kv_head * p->group;
    for (int64_t h = first; h < first + p->group; h++)
        plan.kernels->pack(&plan, b, h, 0, p->seq_q, scratch);
    attn_backward_own_lse_of(job->isa, plan.g, head, plan.rows, plan.special, (double *)(void *)scratch);
    if (blocks_wanted(&plan))
        for (int64_t block = 0; block < plan.key_blocks; block++)
            plan.kernels->key_block(&plan, b, kv_head, block, scratch);
    for (int64_t h = first; plan.d_query && h < first + p->group; h++)
        plan.kernels->finish(&plan, b, h, 0, p->seq_q);
}

/* Shared heads side by side, block 0 of each, then block 1 of each: a worker meets no other in its head's query blocks,
 * and the rows stay in its cache. For every head blocks still ascend, and for every block heads, which is all that
 * turns ask for; only tables of d_relative have their turns head by head. */
static int64_t heads_side_by_side(const attn_bwd_plan *plan)
{
    return plan->relative_columns ? 1 : plan->workers;
}

static void head_task(void *arg, int64_t task, int32_t worker)
{
    const row_job *job = arg;
    const attn_bwd_plan *plan = job->plan;
    const attn_problem *p = &plan->g->forward;
    if (task < job->own) {
        own_head(job, task, worker);
        return;
    }
    task -= job->own;
    int64_t first = task / (job->side * plan->key_blocks) * job->side, at = task - first * plan->key_blocks;
    int64_t side = job->heads - first < job->side ? job->heads - first : job->side, head = job->head + first + at % side;
    plan->kernels->key_block(plan, head / p->n_kv_heads, head % p->n_kv_heads, at / side,
                             plan->scratch + (size_t)worker * plan->scratch_bytes);
}

static void clear_row(const attn_view *view, int64_t b, int64_t h, int64_t n)
{
    for (int64_t d = 0; view->data && d < view->shape[3]; d++)
        attn_store_element(view->data, view->dtype, attn_offset(view->stride, b, h, n, d), 0);
}

/* Keys of no entry: beyond kv_len, or behind the last segment. One task is a kv head of a batch entry. */
static void clear_keys_task(void *arg, int64_t task, int32_t worker)
{
    const attn_bwd_problem *g = ((const row_job *)arg)->plan->g;
    const attn_problem *p = &g->forward;
    int64_t b = task / p->n_kv_heads, h = task % p->n_kv_heads, j;
    attn_entry e;
    (void)worker;
    for (int64_t k = 0; k < p->seq_kv; k++)
        if (!attn_entry_of_key(p, b, k, &e, &j)) {
            clear_row(&g->a.d_key, b, h, k);
            clear_row(&g->a.d_value, b, h, k);
        }
}

/* d_bias starts at zero, so that tiles may add. One task is a row of it. */
static void clear_bias_task(void *arg, int64_t task, int32_t worker)
{
    const attn_view *d_bias = &((const row_job *)arg)->plan->g->a.d_bias;
    (void)worker;
    clear_row(d_bias, task / (d_bias->shape[1] * d_bias->shape[2]), task / d_bias->shape[2] % d_bias->shape[1],
              task % d_bias->shape[2]);
}

static void run(attn_ctx *ctx, int64_t n_tasks, double work, attn_task_fn fn, row_job *job)
{
    attn_ctx_for(ctx, n_tasks, attn_ctx_workers(ctx, n_tasks, work), fn, job);
}

/* The job's shared heads, from packing to the end, and between both its own ones. */
static void run_heads(attn_ctx *ctx, row_job *job)
{
    const attn_bwd_plan *all = job->plan;
    const attn_problem *p = &all->g->forward;
    const attn_bwd_plan plan = p->packed ? *all : plan_at(all, job->head, 0);
    const int64_t n_rows = p->packed ? p->batch * p->n_heads : job->heads * p->group;
    const int64_t n_tasks = job->own + (blocks_wanted(all) ? job->heads * all->key_blocks : 0);
    const double work = row_work(p, n_rows * p->seq_q);
    job->plan = &plan;
    job->row = p->packed ? 0 : job->head * p->group;
    job->side = heads_side_by_side(all);
    run(ctx, n_rows * job->n_chunks, work, pack_task, job);
    attn_backward_own_lse(ctx, plan.g, job->head, job->heads, plan.rows, plan.special, (double *)(void *)plan.scratch,
                          (int64_t)(plan.scratch_bytes / sizeof(double)));
    attn_ctx_for(ctx, n_tasks, all->workers, head_task, job);
    if (plan.d_query)
        run(ctx, n_rows * job->n_chunks, work, finish_task, job);
    job->plan = all;
}

static void clear_tables(attn_ctx *ctx, const attn_bwd_plan *plan, row_job *job)
{
    const attn_bwd_problem *g = plan->g;
    const attn_problem *p = &g->forward;
    memset((void *)plan->tickets, 0, (size_t)(p->batch * p->n_heads * plan->blocks_per_head) * sizeof *plan->tickets);
    memset((void *)plan->bias_turn, 0, (size_t)plan->key_blocks * sizeof *plan->bias_turn);
    memset((void *)plan->relative_turn, 0, (size_t)p->n_heads * sizeof *plan->relative_turn);
    if (plan->relative_columns && !g->accumulate)
        for (int64_t h = 0; h < (p->a.mask.relative_stride ? p->n_heads : 1); h++)
            memset(g->a.d_relative + h * p->a.mask.relative_stride, 0, (size_t)plan->relative_columns * sizeof(float));
    if (plan->bias_in_tile && !g->accumulate) {
        const int64_t *shape = g->a.d_bias.shape;
        run(ctx, shape[0] * shape[1] * shape[2], (double)(shape[0] * shape[1] * shape[2]) * (double)shape[3], clear_bias_task, job);
    }
}

void attn_backward_fast(attn_ctx *ctx, const attn_bwd_problem *g, void *memory)
{
    const attn_problem *p = &g->forward;
    attn_bwd_plan plan = make_plan(ctx, g);
    carver c = {memory, 0, true};
    carve_plan(&plan, &c, ctx->n_threads);
    row_job job = {.plan = &plan, .isa = ctx->isa, .n_chunks = round_up(p->seq_q, ROWS_PER_TASK) / ROWS_PER_TASK};
    const int64_t heads = p->n_entries * p->n_kv_heads, kv_heads = p->batch * p->n_kv_heads;
    clear_tables(ctx, &plan, &job);
    job.own = plan.own_heads;
    for (job.head = plan.own_heads; job.head < heads || job.own; job.head += job.heads) {
        job.heads = least(heads - job.head, plan.heads_at_once);
        run_heads(ctx, &job);
        job.own = 0;
    }
    if (keys_wanted(&plan) && !g->accumulate && (p->packed || p->a.mask.kv_len))
        run(ctx, kv_heads, (double)kv_heads * (double)(p->seq_kv * (p->head_dim + p->value_dim)), clear_keys_task, &job);
    const bool bias = g->a.d_bias.data && !plan.bias_in_tile;
    if (bias) /* what is summed over whole rows cancels to 0: out and lse as they were rounded would show */
        attn_backward_exact_rows(ctx, g, plan.rows, (double *)(void *)plan.scratch, (int64_t)(plan.scratch_bytes / sizeof(double)));
    attn_backward_plain_tables(ctx, g, plan.rows, bias, false);
}
