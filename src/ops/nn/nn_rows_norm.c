/* nn_rows_norm.c - norms of rows and their gradients, shared among threads. */
#include <string.h>
#include "ops/nn/nn_rows.h"

/* Rows of one task forward; rows whose gradients of the weights are summed before they join the others' (by shape alone). */
#define TASK_ROWS 16
#define SUM_ROWS 64

typedef struct norm_run {
    const attn_team *team;
    const attn_rows_norm_job *job;
} norm_run;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void norm_task(void *arg, int64_t task, int32_t worker)
{
    const norm_run *run = arg;
    const attn_rows_norm_job *job = run->job;
    const int64_t end = smaller((task + 1) * TASK_ROWS, job->rows);
    (void)worker;
    for (int64_t r = task * TASK_ROWS; r < end; r++) {
        if (job->dtype == ATTN_F64) {
            attn_norm_row_f64(job, (const double *)job->x + r * job->ldx, (double *)job->y + r * job->ldy);
            continue;
        }
        const float *x = (const float *)job->x + r * job->ldx;
        float *y = (float *)job->y + r * job->ldy;
        if (job->kind == ATTN_NORM_LAYER)
            run->team->kernels->layer_norm(x, job->weight, job->bias, job->eps, job->n, y);
        else
            run->team->kernels->rms_norm(x, job->weight, (float)job->offset, job->eps, job->n, y);
    }
}

void attn_rows_norm(const attn_team *team, const attn_rows_norm_job *job)
{
    norm_run run = {team, job};
    const int64_t tasks = (job->rows + TASK_ROWS - 1) / TASK_ROWS;
    attn_team_for(team, tasks, attn_team_workers(team, tasks, (double)job->rows * (double)job->n), norm_task, &run);
}

int64_t attn_rows_norm_partial(const attn_rows_norm_job *job)
{
    return (job->rows + SUM_ROWS - 1) / SUM_ROWS * 2 * job->n;
}

/* Gradients of SUM_ROWS rows; those of the weights into the task's own part of partial. */
static void grad_task(void *arg, int64_t task, int32_t worker)
{
    const norm_run *run = arg;
    const attn_rows_norm_job *job = run->job;
    const int64_t end = smaller((task + 1) * SUM_ROWS, job->rows), n = job->n;
    const size_t size = job->dtype == ATTN_F64 ? 8 : 4;
    char *dw = NULL, *db = NULL;
    (void)worker;
    if (job->d_weight || job->d_bias) {
        char *own = (char *)job->partial + (size_t)(task * 2 * n) * size;
        memset(own, 0, (size_t)(2 * n) * size);
        dw = job->d_weight ? own : NULL;
        db = job->d_bias ? own + (size_t)n * size : NULL;
    }
    for (int64_t r = task * SUM_ROWS; r < end; r++) {
        const char *x = (const char *)job->x + (size_t)(r * job->ldx) * size;
        const char *dy = (const char *)job->d_y + (size_t)(r * job->ld_dy) * size;
        char *dx = job->d_x ? (char *)job->d_x + (size_t)(r * job->ld_dx) * size : NULL;
        if (job->dtype == ATTN_F64)
            attn_norm_row_grad_f64(job, (const void *)x, (const void *)dy, (void *)dx, (void *)dw, (void *)db);
        else
            run->team->kernels->norm_grad(job->kind, (const void *)x, job->weight, (float)job->offset, job->eps,
                                          (const void *)dy, n, job->accumulate, (void *)dx, (void *)dw, (void *)db);
    }
}

/* to[i] += the parts of all tasks, in their order. */
static void join_parts(const attn_rows_norm_job *job, int64_t first, void *to)
{
    const int64_t tasks = (job->rows + SUM_ROWS - 1) / SUM_ROWS;
    for (int64_t i = 0; i < job->n; i++) {
        double sum = 0;
        for (int64_t t = 0; t < tasks; t++) {
            const int64_t at = t * 2 * job->n + first + i;
            sum += job->dtype == ATTN_F64 ? ((const double *)job->partial)[at] : (double)((const float *)job->partial)[at];
        }
        if (job->dtype == ATTN_F64)
            ((double *)to)[i] += sum;
        else
            ((float *)to)[i] = (float)((double)((float *)to)[i] + sum);
    }
}

void attn_rows_norm_grad(const attn_team *team, const attn_rows_norm_job *job)
{
    norm_run run = {team, job};
    const int64_t tasks = (job->rows + SUM_ROWS - 1) / SUM_ROWS;
    attn_team_for(team, tasks, attn_team_workers(team, tasks, 3 * (double)job->rows * (double)job->n), grad_task, &run);
    if (job->d_weight)
        join_parts(job, 0, job->d_weight);
    if (job->d_bias)
        join_parts(job, job->n, job->d_bias);
}
