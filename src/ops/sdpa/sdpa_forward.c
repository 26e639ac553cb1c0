/* sdpa_forward.c - attn_sdpa_forward, its workspace query and its plan: validate, plan, run. */
#include "ops/sdpa/decode_path.h"
#include "ops/sdpa/run.h"
#include "ops/sdpa/validate.h"
#include "kernels/ref/ref_sdpa.h"
#include "kernels/sdpa/wide.h"
#include "kernels/table.h"
#include "core/cpu.h"
#include "core/view.h"

/* A call after its plan: which dataflow, how many tasks and workers, which memory. */
typedef struct forward_job {
    const attn_problem *problem;
    bool strips;              /* queries in lanes (kernels/sdpa/fwd_plan.h); else doubles (kernels/sdpa/wide.h) */
    const attn_wide_kernels *wide;
    bool decoded;             /* entries of few rows go the decode way (ops/sdpa/decode_path.h), before the others */
    attn_decode_bound bound;  /* which these are */
    attn_fwd_plan plan;
    int64_t strips_per_entry; /* where all entries have the same number of queries; 0: first_strip tells */
    int64_t n_tasks;
    int32_t n_workers;
    size_t table_bytes, scratch_bytes, workspace_bytes; /* one worker's scratch is scratch_bytes */
    int64_t *first_strip;     /* [n_entries + 1]: strips before this entry */
    char *scratch;
} forward_job;

/* Strips of an entry; none where the decode way takes it. */
static int64_t strips_of(const forward_job *job, int64_t entry)
{
    const attn_entry e = attn_problem_entry(job->problem, entry);
    int64_t rows = e.q_count * job->problem->group;
    if (job->decoded && attn_decode_takes(job->problem, &job->bound, e.q_count, e.k_count))
        return 0;
    return (rows + job->plan.strip_rows - 1) / job->plan.strip_rows;
}

static size_t round_size(size_t bytes)
{
    return (bytes + ATTN_ALIGNMENT - 1) / ATTN_ALIGNMENT * ATTN_ALIGNMENT;
}

/* Multiply-adds, were every pair admitted: decides the number of threads. */
static double work_of(const attn_problem *p)
{
    double pairs = (double)p->seq_q * (double)p->seq_kv * (double)p->batch * (double)p->n_heads;
    return pairs * (double)(p->head_dim + p->value_dim);
}

/* What follows from extents, dtypes and the context alone: dataflow and memory. Lengths may not be known yet. */
static void plan_memory(const attn_ctx *ctx, const attn_problem *p, forward_job *job)
{
    memset(job, 0, sizeof *job);
    job->problem = p;
    job->strips = attn_fwd_suits(p);
    job->decoded = attn_decode_suits(ctx, p);
    job->bound = attn_decode_bound_of(ctx, p);
    if (job->decoded && !p->packed && attn_decode_takes(p, &job->bound, p->seq_q, p->a.mask.kv_len ? 0 : p->seq_kv)) {
        job->scratch_bytes = 0; /* every entry goes that way */
    } else if (job->strips) {
        attn_fwd_plan_make(p, attn_fwd_kernel_for(ctx->isa, p), &job->plan);
        job->scratch_bytes = round_size(job->plan.scratch_bytes);
        job->table_bytes = p->n_entries > 1 ? round_size((size_t)(p->n_entries + 1) * sizeof(int64_t)) : 0;
    } else {
        job->wide = attn_wide_kernels_at(ctx->isa);
        job->scratch_bytes = round_size((size_t)attn_wide_scratch(p) * sizeof(double));
    }
    job->n_workers = attn_ctx_workers(ctx, ctx->n_threads, work_of(p));
    job->workspace_bytes = job->table_bytes + (size_t)job->n_workers * job->scratch_bytes;
    size_t decode_bytes = job->decoded ? attn_decode_scratch(ctx, p) : 0; /* one after the other, in the same memory */
    if (job->workspace_bytes < decode_bytes)
        job->workspace_bytes = decode_bytes;
}

/* Blocks of rows of the longest entry. */
static int64_t wide_blocks(const attn_problem *p)
{
    return (p->seq_q * p->group + ATTN_WIDE_ROWS - 1) / ATTN_WIDE_ROWS;
}

/* The tasks: lengths are read here. */
static void plan_tasks(const attn_ctx *ctx, forward_job *job)
{
    const attn_problem *p = job->problem;
    if (job->scratch_bytes == 0) {
        job->n_tasks = 0;
    } else if (!job->strips) {
        job->n_tasks = p->n_entries * p->n_kv_heads * wide_blocks(p);
    } else if (p->n_entries <= 1 || (!p->packed && !p->a.mask.q_len && !(job->decoded && p->a.mask.kv_len))) {
        job->strips_per_entry = p->n_entries ? strips_of(job, 0) : 0;
        job->n_tasks = job->strips_per_entry * p->n_entries * p->n_kv_heads;
    } else {
        for (int64_t s = 0; s < p->n_entries; s++)
            job->n_tasks += strips_of(job, s) * p->n_kv_heads;
    }
    job->n_workers = attn_ctx_workers(ctx, job->n_tasks, work_of(p));
}

static void wide_task(void *arg, int64_t task, int32_t worker)
{
    const forward_job *job = arg;
    const attn_problem *p = job->problem;
    int64_t blocks = wide_blocks(p), head = task / blocks, g = head % p->n_kv_heads;
    attn_entry e = attn_problem_entry(p, head / p->n_kv_heads);
    int64_t begin = (blocks - 1 - task % blocks) * ATTN_WIDE_ROWS, left = e.q_count * p->group - begin;
    attn_wide_rows rows = {e, g, g * p->group, p->group, begin, left < ATTN_WIDE_ROWS ? left : ATTN_WIDE_ROWS};
    if (left > 0)
        job->wide->forward(p, &rows, (double *)(void *)(job->scratch + (size_t)worker * job->scratch_bytes));
}

/* Tasks go from the last strip of an entry, which a causal mask makes the longest, to its first. */
static attn_fwd_task place_task(const forward_job *job, int64_t task)
{
    const attn_problem *p = job->problem;
    int64_t unit = task / p->n_kv_heads, g = task % p->n_kv_heads, entry, strip;
    if (job->strips_per_entry) { /* strip-major over all entries */
        entry = unit % p->n_entries;
        strip = job->strips_per_entry - 1 - unit / p->n_entries;
    } else { /* entry-major: the entry whose strips hold this one */
        int64_t low = 0, high = p->n_entries - 1;
        while (low < high) {
            int64_t middle = (low + high + 1) / 2;
            if (job->first_strip[middle] <= unit)
                low = middle;
            else
                high = middle - 1;
        }
        entry = low;
        strip = job->first_strip[entry + 1] - 1 - unit;
    }
    attn_fwd_task t = {attn_problem_entry(p, entry), g, strip * job->plan.strip_rows, 0};
    int64_t rows = t.entry.q_count * p->group - t.row_begin;
    t.row_count = rows < job->plan.strip_rows ? rows : job->plan.strip_rows;
    return t;
}

static void strip_task(void *arg, int64_t task, int32_t worker)
{
    const forward_job *job = arg;
    attn_fwd_task now = place_task(job, task), next;
    const bool more = !job->plan.small && task + job->n_workers < job->n_tasks;
    if (more)
        next = place_task(job, task + job->n_workers);
    job->plan.kernel->strip(&job->plan, &now, more ? &next : NULL, job->scratch + (size_t)worker * job->scratch_bytes);
}

/* Rows that belong to no entry (beyond q_len, after the last segment): out 0, lse -inf. */
static void clear_padding(const attn_problem *p)
{
    if (!p->packed && !p->a.mask.q_len)
        return;
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
    forward_job job;
    plan_memory(ctx, p, &job);
    return job.workspace_bytes;
}

void attn_sdpa_run(attn_ctx *ctx, const attn_problem *p, void *scratch)
{
    forward_job job;
    plan_memory(ctx, p, &job);
    if (job.decoded)
        attn_decode_run(ctx, p, scratch);
    plan_tasks(ctx, &job);
    job.first_strip = scratch;
    job.scratch = (char *)scratch + job.table_bytes;
    if (job.table_bytes && !job.strips_per_entry) {
        job.first_strip[0] = 0;
        for (int64_t s = 0; s < p->n_entries; s++)
            job.first_strip[s + 1] = job.first_strip[s] + strips_of(&job, s);
    }
    clear_padding(p);
    if (job.n_tasks)
        attn_ctx_for(ctx, job.n_tasks, job.n_workers, job.strips ? strip_task : wide_task, &job);
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
    forward_job job;
    ATTN_TRY(attn_sdpa_validate(ctx, args, ATTN_NEED_VALUE, &p));
    attn_sdpa_plan filled;
    ATTN_TRY(attn_args_copy(ctx, &filled, sizeof filled, plan, "plan"));
    size_t size = plan->struct_size;
    plan_memory(ctx, &p, &job);
    plan_tasks(ctx, &job);
    ATTN_ARGS_INIT(&filled);
    filled.isa = attn_isa_name(ctx->isa);
    filled.n_splits = 1;
    if (job.scratch_bytes == 0) {
        attn_decode_describe(ctx, &p, &filled);
    } else { /* entries of few rows in a mixed batch go the decode way first; this is what the others do */
        filled.kernel = !job.strips ? "doubles" : job.plan.kernel->pair == 2 ? "queries in lanes, bf16" : "queries in lanes";
        filled.tile_rows = job.strips ? job.plan.tile_rows : job.wide->tile_rows;
        filled.tile_keys = job.strips ? job.plan.kernel->keys : job.wide->panel;
        filled.query_block = job.strips ? job.plan.strip_rows : ATTN_WIDE_ROWS;
        filled.key_block = job.strips ? job.plan.key_block : ATTN_WIDE_KEYS;
        filled.n_tasks = job.n_tasks;
        filled.n_threads = job.n_workers;
    }
    filled.workspace_bytes = job.workspace_bytes;
    filled.struct_size = size;
    memcpy(plan, &filled, size < sizeof filled ? size : sizeof filled);
    return ATTN_OK;
}
