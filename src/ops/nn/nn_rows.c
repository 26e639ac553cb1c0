/* nn_rows.c - adding and summing rows. */
#include "ops/nn/nn_rows.h"

/* Rows of one task in row-wise work. */
#define TASK_ROWS 32
/* Columns of one task when rows are summed; rows summed in f32 before they join the f64 sum. */
#define SUM_COLUMNS 64
#define SUM_ROWS 64

typedef struct rows_job {
    const attn_team *team;
    const void *x;
    void *y;
    int64_t rows, n, ldx, ldy;
    int32_t dtype;
} rows_job;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void add_task(void *arg, int64_t task, int32_t worker)
{
    const rows_job *job = arg;
    const int64_t first = task * TASK_ROWS, end = smaller(first + TASK_ROWS, job->rows);
    (void)worker;
    for (int64_t r = first; r < end; r++) {
        if (job->dtype == ATTN_F32) {
            job->team->kernels->add((float *)job->y + r * job->ldy, (const float *)job->x + r * job->ldx, job->n);
        } else {
            const double *x = (const double *)job->x + r * job->ldx;
            double *y = (double *)job->y + r * job->ldy;
            for (int64_t i = 0; i < job->n; i++)
                y[i] += x[i];
        }
    }
}

void attn_rows_add(const attn_team *team, int32_t dtype, int64_t rows, int64_t n, const void *x, int64_t ldx, void *y,
                   int64_t ldy)
{
    rows_job job = {team, x, y, rows, n, ldx, ldy, dtype};
    const int64_t tasks = (rows + TASK_ROWS - 1) / TASK_ROWS;
    attn_team_for(team, tasks, attn_team_workers(team, tasks, (double)rows * (double)n), add_task, &job);
}

static void sum_columns_f32(const rows_job *job, int64_t first, int64_t n)
{
    double total[SUM_COLUMNS] = {0};
    float *sum = (float *)job->y + first;
    for (int64_t r = 0; r < job->rows; r += SUM_ROWS) {
        const int64_t end = smaller(r + SUM_ROWS, job->rows);
        float part[SUM_COLUMNS] = {0};
        for (int64_t i = r; i < end; i++)
            job->team->kernels->add(part, (const float *)job->x + i * job->ldx + first, n);
        for (int64_t c = 0; c < n; c++)
            total[c] += (double)part[c];
    }
    for (int64_t c = 0; c < n; c++)
        sum[c] = (float)((double)sum[c] + total[c]);
}

static void sum_task(void *arg, int64_t task, int32_t worker)
{
    const rows_job *job = arg;
    const int64_t first = task * SUM_COLUMNS, n = smaller(SUM_COLUMNS, job->n - first);
    (void)worker;
    if (job->dtype == ATTN_F32) {
        sum_columns_f32(job, first, n);
        return;
    }
    for (int64_t r = 0; r < job->rows; r++)
        for (int64_t c = first; c < first + n; c++)
            ((double *)job->y)[c] += ((const double *)job->x)[r * job->ldx + c];
}

void attn_rows_sum(const attn_team *team, int32_t dtype, int64_t rows, int64_t n, const void *x, int64_t ldx, void *sum)
{
    rows_job job = {team, x, sum, rows, n, ldx, 0, dtype};
    const int64_t tasks = (n + SUM_COLUMNS - 1) / SUM_COLUMNS;
    attn_team_for(team, tasks, attn_team_workers(team, tasks, (double)rows * (double)n), sum_task, &job);
}
