/* linear.c - running linear layers: rows in chunks, outputs in groups of panels, one parallel loop. */
#include "ops/nn/linear.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "ops/nn/nn_parallel.h"

/* Rows of one task: their inputs (96 x 1,536 floats) stay in L2 while the panels pass. */
#define ROW_CHUNK 96

attn_status attn_linear_create(attn_linear *linear, attn_linear_format format, int64_t n_in, int64_t n_out)
{
    memset(linear, 0, sizeof *linear);
    if (n_in <= 0 || n_out <= 0 || n_in > INT32_MAX || n_out > INT32_MAX)
        return ATTN_ERR_INVALID_ARGUMENT;
    if (format.format == ATTN_PANEL_U4 && n_in % ATTN_PANEL_BLOCK)
        return ATTN_ERR_INVALID_ARGUMENT;
    attn_panels *w = &linear->w;
    const bool quantised = format.format >= ATTN_PANEL_I8;
    w->format = format.format;
    w->scale_block = quantised ? format.scale_block : 0;
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
    char *memory = aligned_alloc(64, total);
    if (!memory)
        return ATTN_ERR_OUT_OF_MEMORY;
    w->values = memory;
    w->scales = scales ? memory + values_end : NULL;
    w->mins = w->has_min ? memory + values_end + scales_end : NULL;
    linear->bytes = total;
    return ATTN_OK;
}

void attn_linear_destroy(attn_linear *linear)
{
    free(linear->w.values);
    free(linear->bias);
    memset(linear, 0, sizeof *linear);
}

typedef struct run_plan {
    const attn_nn_kernels *kernels;
    const attn_linear_job *jobs;
    int32_t n_jobs;
    int64_t rows, group; /* panels of one task */
    int64_t first_task[ATTN_LINEAR_MAX_JOBS + 1];
} run_plan;

static void finish_rows(const run_plan *plan, const attn_linear_job *job, int64_t row, int64_t rows, int64_t first,
                        int64_t n)
{
    for (int64_t m = row; m < row + rows; m++) {
        float *y = job->y + m * job->ldy + first;
        if (job->linear->bias)
            plan->kernels->add(y, job->linear->bias + first, n);
        if (job->act != ATTN_ACT_NONE)
            plan->kernels->activate(job->act, y, n);
        if (job->residual)
            plan->kernels->add(y, job->residual + m * job->ld_residual + first, n);
    }
}

static void run_task(void *arg, int64_t task)
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
    plan->kernels->matmul(w, panel, count, job->x + row * job->ldx, job->ldx, rows, job->y + row * job->ldy + first,
                          job->ldy);
    finish_rows(plan, job, row, rows, first, n);
}

void attn_linear_run(const attn_nn_kernels *kernels, int32_t n_threads, const attn_linear_job *jobs, int32_t n_jobs,
                     int64_t rows)
{
    if (rows <= 0)
        return;
    run_plan plan = {.kernels = kernels, .jobs = jobs, .n_jobs = n_jobs, .rows = rows};
    int64_t panels = 0;
    for (int32_t j = 0; j < n_jobs; j++)
        panels += attn_panel_count(&jobs[j].linear->w);
    /* one thread: as few tasks as possible; more: about four for each in a decode step, whole groups of 4 panels */
    const int64_t parts = n_threads <= 1 ? 1 : 4 * (int64_t)n_threads;
    plan.group = rows >= ROW_CHUNK ? 32 : (panels + parts - 1) / parts;
    plan.group = (plan.group + 3) / 4 * 4;
    for (int32_t j = 0; j < n_jobs; j++) {
        int64_t groups = (attn_panel_count(&jobs[j].linear->w) + plan.group - 1) / plan.group;
        plan.first_task[j + 1] = plan.first_task[j] + groups * ((rows + ROW_CHUNK - 1) / ROW_CHUNK);
    }
    attn_nn_for(n_threads, plan.first_task[n_jobs], run_task, &plan);
}
