#include "ops/sdpa/decode_path.h"
#include "kernels/simd/simd_levels.h"
#include "core/view.h"

#include <stdatomic.h>

/* Keys that a row's own cost stands for (Zen 4, d 64: a head of 7 rows takes 0.6 us and 0.02 for each key). */
#define DECODE_ROW_KEYS 16
#define DECODE_RUNS 16 /* of a thread: the last one to end is late by a sixteenth at most */

/* The call: a grid of units (stack, kv head, block of rows) by splits. */
typedef struct decode_job {
    const attn_problem *problem;
    const attn_decode_kernel *kernel;
    attn_decode_bound bound;
    int64_t stack_rows;                  /* most rows of a stack */
    int64_t blocks, block_rows;          /* blocks of a stack, rows of a block */
    int64_t n_units, n_splits;
    int64_t run;                         /* tasks that a thread takes in turn, one behind the other in memory */
    int64_t query_floats, out_floats;    /* per row, padded to whole vectors of any level */
    size_t worker_bytes, counter_bytes, partial_bytes;
    _Atomic int32_t *counter;            /* [units]: splits that are done */
    float *partial;                      /* [units][splits][block_rows][2 + out_floats]: max, sum, out */
    char *workers;
} decode_job;

static int64_t round_up(int64_t x, int64_t step)
{
    return (x + step - 1) / step * step;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static const attn_decode_kernel *decode_kernel(int32_t isa, const attn_problem *p)
{
#if ATTN_HAVE_AVX512BF16
    if (isa == ATTN_ISA_AVX512BF16 && p->kv_dtype == ATTN_BF16 && p->a.query.dtype == ATTN_BF16)
        return &attn_decode_kernel_avx512bf16;
#endif
#if ATTN_HAVE_AVX512
    if (isa == ATTN_ISA_AVX512 || isa == ATTN_ISA_AVX512BF16)
        return &attn_decode_kernel_avx512;
#endif
#if ATTN_HAVE_AVX2
    if (isa >= ATTN_ISA_AVX2 && isa <= ATTN_ISA_AVX512BF16)
        return &attn_decode_kernel_avx2;
#endif
#if ATTN_HAVE_NEONBF16
    if (isa == ATTN_ISA_NEONBF16 && p->kv_dtype == ATTN_BF16 && p->a.query.dtype == ATTN_BF16)
        return &attn_decode_kernel_neonbf16;
#endif
#if ATTN_HAVE_NEON
    if (isa >= ATTN_ISA_NEON)
        return &attn_decode_kernel_neon;
#endif
    (void)isa, (void)p;
    return &attn_decode_kernel_scalar;
}

bool attn_decode_serves(const attn_problem *p)
{
    const attn_sdpa_args *a = &p->a;
    return a->query.dtype != ATTN_F64 && p->kv_dtype != ATTN_F64 && (!a->mask.bias.data || a->mask.bias.dtype != ATTN_F64) &&
           !attn_drops(p) && (a->key.stride[3] == 1 || p->head_dim <= 1) && (a->value.stride[3] == 1 || p->value_dim <= 1);
}

attn_decode_bound attn_decode_bound_of(const attn_ctx *ctx, const attn_problem *p)
{
    const attn_decode_kernel *kernel = decode_kernel(ctx->isa, p);
    return kernel->bound[p->kv_dtype == ATTN_F32 ? 0 : p->kv_dtype == ATTN_I8 ? 2 : 1];
}

bool attn_decode_suits(const attn_ctx *ctx, const attn_problem *p)
{
    const attn_decode_bound bound = attn_decode_bound_of(ctx, p);
    return attn_decode_serves(p) && (p->packed || p->a.mask.q_len || attn_decode_takes(p, &bound, p->seq_q, p->seq_kv));
}

/* ---- Plan --------------------------------------------------------------------------------------- */

static void plan_job(const attn_ctx *ctx, const attn_problem *p, decode_job *job)
{
    memset(job, 0, sizeof *job);
    job->problem = p;
    job->kernel = decode_kernel(ctx->isa, p);
    job->bound = attn_decode_bound_of(ctx, p);
    job->stack_rows = smaller(ATTN_DECODE_ROWS, p->seq_q * p->group) * (p->shared_keys ? p->n_entries : 1);
    job->block_rows = round_up(smaller(job->stack_rows, ATTN_DECODE_BLOCK), ATTN_DECODE_TILE);
    job->blocks = job->block_rows ? (job->stack_rows + job->block_rows - 1) / job->block_rows : 0;
    job->n_units = (p->shared_keys ? 1 : p->n_entries) * p->n_kv_heads * job->blocks;
    job->n_splits = (p->seq_kv + ATTN_DECODE_SPLIT - 1) / ATTN_DECODE_SPLIT;
    job->n_splits = job->n_splits ? job->n_splits : 1;
    job->query_floats = round_up(p->head_dim, 16);
    job->out_floats = round_up(p->value_dim, 16);
    int64_t keys = ATTN_DECODE_CHUNK + ATTN_DECODE_PAD;
    int64_t floats = job->block_rows * (job->query_floats + job->out_floats + 2) + keys * (2 * ATTN_DECODE_TILE + 2);
    int64_t orders = (ATTN_DECODE_CHUNK + ATTN_DECODE_NEAR) * (int64_t)(2 * sizeof(char *)); /* key, value, order */
    orders += ATTN_DECODE_CHUNK * (int64_t)sizeof(uint16_t);
    job->worker_bytes = (size_t)round_up(floats * 4 + orders + job->block_rows * (int64_t)sizeof(attn_decode_row) +
                                             (int64_t)sizeof(attn_decode_holes), 64);
    if (job->n_splits > 1) {
        job->counter_bytes = (size_t)round_up(job->n_units * (int64_t)sizeof(int32_t), 64);
        job->partial_bytes = (size_t)round_up(job->n_units * job->n_splits * job->block_rows * (2 + job->out_floats) * 4, 64);
    }
}

size_t attn_decode_scratch(const attn_ctx *ctx, const attn_problem *p)
{
    decode_job job;
    plan_job(ctx, p, &job);
    return job.counter_bytes + job.partial_bytes + (size_t)ctx->n_threads * job.worker_bytes;
}

/* ---- One task ----------------------------------------------------------------------------------- */

static void read_query(const decode_job *job, const attn_decode_row *row, float *to)
{
    const attn_problem *p = job->problem;
    const attn_cview *q = &p->a.query;
    const size_t size = attn_dtype_size(q->dtype);
    const int64_t at = attn_offset(q->stride, row->entry.batch, row->head, row->entry.q_begin + row->query, 0);
    const char *from = (const char *)q->data + (size_t)at * size;
    if (q->stride[3] != 1) { /* put together at the end of the place where it goes */
        char *dense = (char *)to + (size_t)job->query_floats * (sizeof *to - size);
        for (int64_t d = 0; d < p->head_dim; d++)
            memcpy(dense + (size_t)d * size, from + d * q->stride[3] * (int64_t)size, size);
        from = dense;
    }
    job->kernel->read_row(from, q->dtype, p->head_dim, to, job->query_floats);
}

/* The row of out times `factor`. */
static void write_row(const decode_job *job, const attn_decode_row *row, float *from, float factor)
{
    const attn_problem *p = job->problem;
    const attn_view *out = &p->a.out;
    const size_t size = attn_dtype_size(out->dtype);
    const int64_t at = attn_offset(out->stride, row->entry.batch, row->head, row->entry.q_begin + row->query, 0);
    char *to = (char *)out->data + (size_t)at * size;
    if (out->stride[3] == 1) {
        job->kernel->write_row(from, factor, out->dtype, p->value_dim, to);
        return;
    }
    job->kernel->write_row(from, factor, out->dtype, p->value_dim, from);
    for (int64_t d = 0; d < p->value_dim; d++)
        memcpy(to + d * out->stride[3] * (int64_t)size, (const char *)from + (size_t)d * size, size);
}

/* Scratch of a worker cut into the arrays of a task. */
static void open_task(const decode_job *job, char *scratch, attn_decode_task *t)
{
    int64_t keys = ATTN_DECODE_CHUNK + ATTN_DECODE_PAD;
    t->problem = job->problem;
    t->query_stride = job->query_floats;
    t->out_stride = job->out_floats;
    t->query = (float *)(void *)scratch;
    t->out = t->query + job->block_rows * job->query_floats;
    t->score = t->out + job->block_rows * job->out_floats;
    t->scale = t->score + keys * ATTN_DECODE_TILE;
    t->key_scale = t->scale + keys * ATTN_DECODE_TILE;
    t->value_scale = t->key_scale + keys;
    t->max = t->value_scale + keys;
    t->sum = t->max + job->block_rows;
    t->key = (const char **)(void *)(t->sum + job->block_rows);
    t->value = t->key + ATTN_DECODE_CHUNK + ATTN_DECODE_NEAR;
    t->order = (uint16_t *)(void *)(t->value + ATTN_DECODE_CHUNK + ATTN_DECODE_NEAR);
    t->row = (attn_decode_row *)(void *)(t->order + ATTN_DECODE_CHUNK);
    t->holes = (attn_decode_holes *)(void *)(t->row + job->block_rows);
}

/* Adds rows of one entry to the task: those from place `skip` of the entry's own on, as far as the block has room. */
static void add_rows(const decode_job *job, const attn_entry *e, int64_t skip, attn_decode_task *t)
{
    const attn_problem *p = job->problem;
    for (int64_t r = skip; r < e->q_count * p->group && t->n_rows < job->block_rows; r++) {
        attn_decode_row *row = &t->row[t->n_rows++];
        row->entry = *e;
        row->query = r / p->group;
        row->head = t->g * p->group + r % p->group;
        attn_row_range(p, e, row->query, &row->low, &row->high);
        if (row->high <= row->low)
            row->low = row->high = 0;
    }
}

/* Rows, queries and empty results of a unit; n_rows 0 when the block has no rows. */
static void fill_task(const decode_job *job, int64_t unit, attn_decode_task *t)
{
    const attn_problem *p = job->problem;
    int64_t skip = unit % job->blocks * job->block_rows, stack = unit / job->blocks / p->n_kv_heads;
    t->g = unit / job->blocks % p->n_kv_heads;
    t->n_rows = 0;
    t->keys = attn_problem_entry(p, stack);
    for (int64_t s = stack; s < (p->shared_keys ? p->n_entries : stack + 1) && t->n_rows < job->block_rows; s++) {
        attn_entry e = attn_problem_entry(p, s);
        int64_t own = attn_decode_takes(p, &job->bound, e.q_count, e.k_count) ? e.q_count * p->group : 0;
        if (skip < own)
            add_rows(job, &e, skip, t);
        skip = skip > own ? skip - own : 0;
    }
    int64_t padded = round_up(t->n_rows, ATTN_DECODE_TILE);
    for (int64_t r = 0; r < padded; r++) {
        if (r >= t->n_rows)
            t->row[r] = t->row[t->n_rows - 1];
        read_query(job, &t->row[r], t->query + r * t->query_stride);
        t->max[r] = -INFINITY;
        t->sum[r] = 0;
    }
    memset(t->out, 0, (size_t)(padded * t->out_stride) * sizeof(float));
}

/* ---- Finishing ---------------------------------------------------------------------------------- */

/* One row from its parts (max, sum, out at `stride` floats from each other), in ascending order; the sink joins here. */
static void finish_row(const decode_job *job, const attn_decode_row *row, const float *max, const float *sum, float *const out,
                       int64_t n_parts, int64_t stride)
{
    const attn_problem *p = job->problem;
    double sink = p->a.sinks ? (double)p->a.sinks[row->head] : -INFINITY, most = sink, total = 0;
    int64_t q = row->entry.q_begin + row->query;
    for (int64_t n = 0; n < n_parts; n++)
        most = (double)max[n * stride] > most ? (double)max[n * stride] : most;
    double shift = most == -INFINITY ? 0 : most;
    if (sink != -INFINITY)
        total = sink == shift ? 1 : exp(sink - shift);
    for (int64_t n = 0; n < n_parts; n++) { /* the first part's array collects the sum */
        float *part = out + n * stride;
        double weight = (double)max[n * stride] == shift ? 1 : exp((double)max[n * stride] - shift);
        float factor = (float)weight;
        total += weight * (double)sum[n * stride];
        if (n == 0 && factor != 1)
            for (int64_t d = 0; d < p->value_dim; d++)
                part[d] *= factor;
        for (int64_t d = 0; n > 0 && d < p->value_dim; d++)
            out[d] += factor * part[d];
    }
    float inverse = total == 0 ? 0 : (float)(1 / total);
    if (total == 0)
        memset(out, 0, (size_t)p->value_dim * sizeof *out); /* not 0 * inverse: a part may hold NaN of weight 0 */
    write_row(job, row, out, inverse);
    if (p->a.lse)
        ((float *)p->a.lse)[(row->entry.batch * p->n_heads + row->head) * p->seq_q + q] =
            (float)(total == 0 ? -INFINITY : row->high <= row->low && p->a.sinks ? sink : most + log(total));
}

static float *partial_at(const decode_job *job, int64_t unit, int64_t split, int64_t r)
{
    return job->partial + ((unit * job->n_splits + split) * job->block_rows + r) * (2 + job->out_floats);
}

static void keep_partial(const decode_job *job, int64_t unit, int64_t split, const attn_decode_task *t)
{
    for (int64_t r = 0; r < t->n_rows; r++) {
        float *to = partial_at(job, unit, split, r);
        to[0] = t->max[r];
        to[1] = t->sum[r];
        if (t->max[r] != -INFINITY || t->sum[r] != 0)
            memcpy(to + 2, t->out + r * t->out_stride, (size_t)job->out_floats * sizeof(float));
        else
            memset(to + 2, 0, (size_t)job->out_floats * sizeof(float));
    }
}

static void finish_unit(const decode_job *job, int64_t unit, const attn_decode_task *t)
{
    for (int64_t r = 0; r < t->n_rows; r++) {
        if (job->n_splits == 1) {
            finish_row(job, &t->row[r], &t->max[r], &t->sum[r], t->out + r * t->out_stride, 1, 0);
            continue;
        }
        float *first = partial_at(job, unit, 0, r);
        finish_row(job, &t->row[r], first, first + 1, first + 2, job->n_splits, job->block_rows * (2 + job->out_floats));
    }
}

/* Tasks are unit-major. Whoever ends the last split of a unit merges them all. */
static void decode_task(const decode_job *job, int64_t task, bool last, int32_t worker)
{
    int64_t unit = task / job->n_splits, split = task % job->n_splits;
    attn_decode_task t;
    open_task(job, job->workers + (size_t)worker * job->worker_bytes, &t);
    fill_task(job, unit, &t);
    if (t.n_rows == 0)
        return;
    t.goes_on = !last;
    t.alone = job->blocks == 1;
    t.first = split * ATTN_DECODE_SPLIT;
    t.end = smaller(t.first + ATTN_DECODE_SPLIT, job->problem->seq_kv);
    job->kernel->split(&t);
    if (job->n_splits > 1) {
        keep_partial(job, unit, split, &t);
        if (atomic_fetch_add_explicit(&job->counter[unit], 1, memory_order_acq_rel) != job->n_splits - 1)
            return;
    }
    finish_unit(job, unit, &t);
}

static void decode_run(void *arg, int64_t run, int32_t worker)
{
    const decode_job *job = arg;
    const int64_t end = smaller((run + 1) * job->run, job->n_units * job->n_splits);
    for (int64_t task = run * job->run; task < end; task++)
        decode_task(job, task, task + 1 == end, worker);
}

/* A row takes as long to set up and to finish as some keys do. */
static int32_t workers_of(const attn_ctx *ctx, const decode_job *job)
{
    const attn_problem *p = job->problem;
    const double rows = (double)job->n_units * (double)smaller(job->block_rows, job->stack_rows);
    const double work = rows * (double)(p->seq_kv + DECODE_ROW_KEYS) * (double)(p->head_dim + p->value_dim);
    return attn_ctx_workers(ctx, job->n_units * job->n_splits, work);
}

void attn_decode_run(attn_ctx *ctx, const attn_problem *p, void *scratch)
{
    decode_job job;
    plan_job(ctx, p, &job);
    job.counter = scratch;
    job.partial = (float *)(void *)((char *)scratch + job.counter_bytes);
    job.workers = (char *)scratch + job.counter_bytes + job.partial_bytes;
    for (int64_t n = 0; n < job.n_units && job.n_splits > 1; n++)
        atomic_init(&job.counter[n], 0);
    const int64_t n_tasks = job.n_units * job.n_splits;
    const int32_t n_workers = workers_of(ctx, &job);
    job.run = n_workers == 1 ? n_tasks : 1 + n_tasks / n_workers / DECODE_RUNS;
    attn_ctx_for(ctx, n_tasks ? (n_tasks + job.run - 1) / job.run : 0, n_workers, decode_run, &job);
}

void attn_decode_describe(const attn_ctx *ctx, const attn_problem *p, attn_sdpa_plan *plan)
{
    decode_job job;
    plan_job(ctx, p, &job);
    plan->kernel = "keys read once";
    plan->tile_rows = smaller(ATTN_DECODE_TILE, job.stack_rows);
    plan->tile_keys = 1;
    plan->query_block = smaller(job.block_rows, job.stack_rows);
    plan->key_block = ATTN_DECODE_CHUNK;
    plan->n_tasks = job.n_units * job.n_splits;
    plan->n_splits = job.n_splits;
    plan->n_threads = workers_of(ctx, &job);
}
