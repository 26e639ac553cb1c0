/* linear.c - running linear layers: rows in chunks, outputs in groups of panels, one parallel loop. */
#include "ops/nn/linear.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "ops/nn/nn_parallel.h"

/* Rows of one task: their inputs (96 x 1,536 floats) stay in L2 while the panels pass. */
#define ROW_CHUNK 96
/* Rows of activations that one task makes 8-bit. */
#define QUANTISE_ROWS 16
/* Different 8-bit rows in a run: those of queries, keys and values, each balanced in its way. */
#define MAX_DOTS 3
/* Weights of one task of a row alone, at least, where threads do not lack work by it. */
#define PART_BYTES ((int64_t)512 << 10)

/* Inputs that 8-bit rows have. */
static int64_t padded(int64_t n_in)
{
    return (n_in + ATTN_PANEL_BLOCK - 1) / ATTN_PANEL_BLOCK * ATTN_PANEL_BLOCK;
}

attn_status attn_linear_create(attn_linear *linear, attn_linear_format format, int64_t n_in, int64_t n_out)
{
    return attn_linear_create_in(NULL, linear, format, n_in, n_out);
}

attn_status attn_linear_create_in(attn_linear_memory *shared, attn_linear *linear, attn_linear_format format, int64_t n_in, int64_t n_out)
{
    memset(linear, 0, sizeof *linear);
    if (n_in <= 0 || n_out <= 0 || n_in > INT32_MAX || n_out > INT32_MAX)
        return ATTN_ERR_INVALID_ARGUMENT;
    if (format.format == ATTN_PANEL_U4 && n_in % ATTN_PANEL_BLOCK)
        return ATTN_ERR_INVALID_ARGUMENT;
    attn_panels *w = &linear->w;
    const bool quantised = format.format >= ATTN_PANEL_I8 && format.format <= ATTN_PANEL_D8;
    w->format = format.format;
    w->scale_block = quantised ? format.scale_block : 0;
    if (format.format == ATTN_PANEL_D8 && !format.scale_block)
        w->scale_block = (int32_t)padded(n_in);
    w->half_scales = quantised && format.half_scales;
    w->has_min = quantised && format.has_min;
    w->n_in = n_in;
    w->n_out = n_out;
    /* a panel is a multiple of 64 bytes in every format with whole blocks, so that panels start on cache lines */
    const size_t panels = (size_t)attn_panel_count(w);
    const size_t values = panels * (size_t)attn_panel_bytes(w->format, n_in);
    size_t scales = 0;
    if (quantised)
        scales = panels * (size_t)((n_in + w->scale_block - 1) / w->scale_block) * ATTN_PANEL *
                 (w->half_scales ? 2 : 4);
    const size_t values_end = (values + 63) / 64 * 64, scales_end = (scales + 63) / 64 * 64;
    const size_t total = values_end + scales_end * (w->has_min ? 2 : 1);
    char *memory = shared ? attn_linear_memory_take(shared, total) : aligned_alloc(64, total);
    if (!memory)
        return ATTN_ERR_OUT_OF_MEMORY;
    if (n_in % ATTN_PANEL_BLOCK && format.format == ATTN_PANEL_D8)
        memset(memory, 0, values);
    w->values = memory;
    w->scales = scales ? memory + values_end : NULL;
    w->mins = w->has_min ? memory + values_end + scales_end : NULL;
    linear->bytes = total;
    linear->shared = shared != NULL;
    return ATTN_OK;
}

void attn_linear_destroy(attn_linear *linear)
{
    if (!linear->shared)
        free(linear->w.values);
    free(linear->bias);
    free(linear->balance);
    memset(linear, 0, sizeof *linear);
}

typedef struct run_plan {
    const attn_worker *worker;
    const attn_linear_job *jobs;
    int32_t n_jobs;
    int64_t rows, group; /* panels of one task */
    int64_t first_task[ATTN_LINEAR_MAX_JOBS + 1];
    /* 8- and 16-bit activations: those that each job takes, -1: f32 ones */
    int32_t which[ATTN_LINEAR_MAX_JOBS], n_dots;
    attn_dot_rows dots[MAX_DOTS];
    const attn_linear_job *dot_jobs[MAX_DOTS];
} run_plan;

/* What is left to do with outputs first .. first + n - 1 of some rows. */
typedef struct row_end {
    bool bias, residual;
} row_end;

static void finish_rows(const run_plan *plan, const attn_linear_job *job, row_end left, int64_t row, int64_t rows, int64_t first,
                        int64_t n)
{
    const attn_nn_kernels *kernels = plan->worker->kernels;
    for (int64_t m = row; m < row + rows; m++) {
        float *y = job->y + m * job->ldy + first;
        if (left.bias && job->linear->bias)
            kernels->add(y, job->linear->bias + first, n);
        if (job->act != ATTN_ACT_NONE)
            kernels->activate(job->act, y, n, y);
        if (left.residual && job->residual)
            kernels->add(y, job->residual + m * job->ld_residual + first, n);
    }
}

/* ---- 8- and 16-bit activations ---- */

/* From the scales of one group to those of the next: an odd number of cache lines, since at a power of two, 1,024 rows, all groups of a
 * row would fall to the same few lines of L1. */
static int64_t rows_apart(int64_t rows)
{
    return ((rows + 15) / 16 | 1) * 16;
}

size_t attn_linear_scratch(int64_t rows, int64_t n_in)
{
    const int64_t n = padded(n_in);
    return MAX_DOTS * ((size_t)(rows * n) * 3 + (size_t)(rows_apart(rows) * (n / ATTN_PANEL_BLOCK)) * 12 + 5 * 64);
}

static void *carve(char **at, size_t bytes)
{
    void *part = *at;
    *at += (bytes + 63) / 64 * 64;
    return part;
}

/* Which jobs take 8-bit activations, and one set of them for jobs with the same rows and groups. */
static void plan_dots(run_plan *plan)
{
    char *at = plan->worker->scratch;
    for (int32_t j = 0; j < plan->n_jobs; j++) {
        const attn_linear_job *job = &plan->jobs[j];
        const attn_panels *w = &job->linear->w;
        plan->which[j] = -1;
        if (w->format != ATTN_PANEL_D8 && w->format != ATTN_PANEL_P16 && !(w->format == ATTN_PANEL_U4 && job->linear->act_i8))
            continue;
        for (int32_t i = 0; i < plan->n_dots; i++)
            if (plan->dot_jobs[i]->x == job->x && plan->dot_jobs[i]->ldx == job->ldx &&
                plan->dots[i].n_in == padded(w->n_in) && plan->dots[i].group == w->scale_block && /* bf16: 0 */
                plan->dot_jobs[i]->linear->balance == job->linear->balance)
                plan->which[j] = i;
        if (plan->which[j] >= 0)
            continue;
        attn_dot_rows *d = &plan->dots[plan->n_dots];
        d->n_rows = rows_apart(plan->rows);
        d->n_in = padded(w->n_in);
        d->group = w->scale_block;
        d->n_groups = d->group ? (d->n_in + d->group - 1) / d->group : 0;
        d->wide = carve(&at, (size_t)(plan->rows * d->n_in) * sizeof *d->wide);
        d->q = carve(&at, (size_t)(plan->rows * d->n_in));
        d->scale = carve(&at, (size_t)(d->n_rows * d->n_groups) * sizeof *d->scale);
        d->total = carve(&at, (size_t)(d->n_rows * d->n_groups) * sizeof *d->total);
        d->start = carve(&at, (size_t)(d->n_rows * d->n_groups) * sizeof *d->start);
        plan->dot_jobs[plan->n_dots] = job;
        plan->which[j] = plan->n_dots++;
    }
}

static void quantise_task(void *arg, int64_t task)
{
    const run_plan *plan = arg;
    const int64_t first = task * QUANTISE_ROWS, left = plan->rows - first, rows = left < QUANTISE_ROWS ? left : QUANTISE_ROWS;
    for (int32_t i = 0; i < plan->n_dots; i++) {
        const attn_linear_job *job = plan->dot_jobs[i];
        const attn_linear *linear = job->linear;
        const float *x = job->x + first * job->ldx;
        if (linear->w.format != ATTN_PANEL_P16)
            plan->worker->dot->quantise(x, job->ldx, rows, linear->balance, linear->w.n_in, &plan->dots[i], first);
        else
            for (int64_t m = 0; m < rows; m++)
                plan->worker->pair->round(x + m * job->ldx, linear->w.n_in,
                                          (uint16_t *)plan->dots[i].wide + (first + m) * plan->dots[i].n_in);
    }
}

static void run_panels(const run_plan *plan, const attn_panels *w, int64_t panel, int64_t n, const attn_dot_rows *x, int64_t row,
                       int64_t rows, const attn_panels_end *end, float *y, int64_t ldy)
{
    if (w->format == ATTN_PANEL_P16)
        plan->worker->pair->panels(w, panel, n, (const uint16_t *)x->wide + row * x->n_in, x->n_in, rows, end, y, ldy);
    else
        plan->worker->dot->panels(w, panel, n, x, row, rows, end, y, ldy);
}

/* Whole panels get their bias while they are in registers, and where no activation comes between, the residual. */
static attn_panels_end end_of(const attn_linear_job *job, int64_t row, int64_t first)
{
    const bool residual = job->residual && job->act == ATTN_ACT_NONE;
    return (attn_panels_end){job->linear->bias ? job->linear->bias + first : NULL,
                             residual ? job->residual + row * job->ld_residual + first : NULL, job->ld_residual};
}

/* The same for n outputs of one row that are stored already. */
static void add_end(const run_plan *plan, const attn_panels_end *end, float *y, int64_t n)
{
    if (end->bias)
        plan->worker->kernels->add(y, end->bias, n);
    if (end->residual)
        plan->worker->kernels->add(y, end->residual, n);
}

/* The outputs of a panel that is filled up with zeros. */
static void dot_last_panel(const run_plan *plan, const attn_linear_job *job, const attn_dot_rows *x, int64_t row, int64_t rows,
                           int64_t panel)
{
    const int64_t first = panel * ATTN_PANEL, n = job->linear->w.n_out - first;
    const attn_panels_end none = {NULL, NULL, 0}, end = end_of(job, row, first);
    float last[ROW_CHUNK * ATTN_PANEL];
    run_panels(plan, &job->linear->w, panel, 1, x, row, rows, &none, last, ATTN_PANEL);
    for (int64_t m = 0; m < rows; m++) {
        float *y = job->y + (row + m) * job->ldy + first;
        memcpy(y, last + m * ATTN_PANEL, (size_t)n * sizeof *y);
        const attn_panels_end own = attn_panels_end_at(&end, m);
        add_end(plan, &own, y, n);
    }
}

/* How many of the panels are done by the quick way for a row alone. */
static int64_t dot_row(const run_plan *plan, const attn_linear_job *job, const attn_dot_rows *x, int64_t row, int64_t rows,
                       int64_t panel, int64_t count)
{
    const attn_panels *w = &job->linear->w;
    if (rows != 1 || w->format == ATTN_PANEL_P16 || !plan->worker->dot->row)
        return 0;
    const int64_t whole = w->n_out / ATTN_PANEL - panel, done = whole < count ? whole : count, first = panel * ATTN_PANEL;
    const attn_panels_end end = end_of(job, row, first);
    float *y = job->y + row * job->ldy + first;
    plan->worker->dot->row(w, panel, done, x, row, y);
    add_end(plan, &end, y, done * ATTN_PANEL);
    return done;
}

static void dot_panels(const run_plan *plan, const attn_linear_job *job, const attn_dot_rows *x, int64_t row, int64_t rows,
                       int64_t panel, int64_t count)
{
    const attn_panels *w = &job->linear->w;
    const int64_t done = dot_row(plan, job, x, row, rows, panel, count);
    for (int64_t p = panel + done, n; p < panel + count; p += n) {
        const int64_t left = w->n_out - p * ATTN_PANEL;
        const attn_panels_end end = end_of(job, row, p * ATTN_PANEL);
        n = left >= 2 * ATTN_PANEL && p + 1 < panel + count ? 2 : 1;
        if (left >= ATTN_PANEL)
            run_panels(plan, w, p, n, x, row, rows, &end, job->y + row * job->ldy + p * ATTN_PANEL, job->ldy);
        else
            dot_last_panel(plan, job, x, row, rows, p);
    }
}

/* ---- the loop ---- */

/* Tasks of one run, about: one thread gets as few as possible, more get up to four each, but none of a row alone much less than
 * PART_BYTES: where a task begins memory has to be asked anew. */
static int64_t task_count(const run_plan *plan)
{
    const int64_t n_threads = plan->worker->n_threads;
    int64_t bytes = 0;
    for (int32_t j = 0; j < plan->n_jobs; j++) {
        const attn_panels *w = &plan->jobs[j].linear->w;
        bytes += attn_panel_count(w) * attn_panel_bytes(w->format, w->n_in);
    }
    const int64_t parts = plan->rows > 1 ? 4 * n_threads : bytes / PART_BYTES;
    return n_threads <= 1 ? 1 : parts < n_threads ? n_threads : parts > 4 * n_threads ? 4 * n_threads : parts;
}

static void run_task(void *arg, int64_t task, int32_t worker)
{
    const run_plan *plan = arg;
    int32_t j = 0;
    while (task >= plan->first_task[j + 1])
        j++;
    const attn_linear_job *job = &plan->jobs[j];
    const attn_panels *w = &job->linear->w;
    const int64_t panels = attn_panel_count(w);
    const int64_t groups = (panels + plan->group - 1) / plan->group;
    task -= plan->first_task[j];
    const int64_t row = task / groups * ROW_CHUNK, panel = task % groups * plan->group;
    const int64_t rows = plan->rows - row < ROW_CHUNK ? plan->rows - row : ROW_CHUNK;
    const int64_t count = panels - panel < plan->group ? panels - panel : plan->group;
    const int64_t first = panel * ATTN_PANEL;
    const int64_t n = w->n_out - first < count * ATTN_PANEL ? w->n_out - first : count * ATTN_PANEL;
    row_end left = {true, true};
    if (plan->which[j] >= 0) {
        left = (row_end){false, job->act != ATTN_ACT_NONE};
        dot_panels(plan, job, &plan->dots[plan->which[j]], row, rows, panel, count);
    } else {
        plan->worker->kernels->matmul(w, panel, count, job->x + row * job->ldx, job->ldx, rows,
                                      job->y + row * job->ldy + first, job->ldy,
                                      plan->worker->tiles + worker * ATTN_MATMUL_SCRATCH);
    }
    finish_rows(plan, job, left, row, rows, first, n);
}

void attn_linear_run(const attn_worker *worker, const attn_linear_job *jobs, int32_t n_jobs, int64_t rows)
{
    if (rows <= 0)
        return;
    const int32_t n_threads = worker->n_threads;
    run_plan plan = {.worker = worker, .jobs = jobs, .n_jobs = n_jobs, .rows = rows};
    plan_dots(&plan);
    if (plan.n_dots)
        attn_nn_for(n_threads, (rows + QUANTISE_ROWS - 1) / QUANTISE_ROWS, quantise_task, &plan);
    int64_t panels = 0;
    for (int32_t j = 0; j < n_jobs; j++)
        panels += attn_panel_count(&jobs[j].linear->w);
    const int64_t parts = task_count(&plan); /* of whole groups of 4 panels */
    plan.group = (panels + parts - 1) / parts;
    if (rows >= ROW_CHUNK) /* many rows: with more threads small tasks, as all wait for the last one */
        plan.group = n_threads <= 1 ? 32 : 8;
    plan.group = (plan.group + 3) / 4 * 4;
    for (int32_t j = 0; j < n_jobs; j++) {
        int64_t groups = (attn_panel_count(&jobs[j].linear->w) + plan.group - 1) / plan.group;
        plan.first_task[j + 1] = plan.first_task[j] + groups * ((rows + ROW_CHUNK - 1) / ROW_CHUNK);
    }
    attn_nn_for_workers(n_threads, plan.first_task[n_jobs], run_task, &plan);
}
