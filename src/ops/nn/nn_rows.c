/* nn_rows.c - adding, copying and summing rows; activations and dropout. */
#include <string.h>
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

static void copy_task(void *arg, int64_t task, int32_t worker)
{
    const rows_job *job = arg;
    const int64_t first = task * TASK_ROWS, end = smaller(first + TASK_ROWS, job->rows);
    const int64_t size = job->dtype == ATTN_F64 ? 8 : 4;
    (void)worker;
    for (int64_t r = first; r < end; r++)
        memcpy((char *)job->y + r * job->ldy * size, (const char *)job->x + r * job->ldx * size,
               (size_t)(job->n * size));
}

void attn_rows_copy(const attn_team *team, int32_t dtype, int64_t rows, int64_t n, const void *x, int64_t ldx, void *y,
                    int64_t ldy)
{
    rows_job job = {team, x, y, rows, n, ldx, ldy, dtype};
    const int64_t tasks = (rows + TASK_ROWS - 1) / TASK_ROWS;
    attn_team_for(team, tasks, attn_team_workers(team, tasks, (double)rows * (double)n), copy_task, &job);
}

static void sum_columns_f32(const rows_job *job, int64_t first, int64_t n)
{
    double total[SUM_COLUMNS] = {0};
    float *sum = (float *)job->y + first;
    for (int64_t r = 0; r < job->rows; r += SUM_ROWS) {
        const int64_t end = smaller(r + SUM_ROWS, job->rows);
        float part[SUM_COLUMNS];
        job->team->kernels->sum_rows((const float *)job->x + r * job->ldx + first, job->ldx, end - r, n, part);
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

/* ---- activations and dropout: n numbers in pieces ---- */

#define PIECE 4096

typedef struct flat_job {
    const attn_team *team;
    const void *x, *up, *d_y, *residual;
    void *y, *d_x, *d_up;
    int64_t n;
    double p;
    uint64_t seed;
    int32_t dtype, act, accumulate;
} flat_job;

static const float *f32_at(const void *data, int64_t i)
{
    return data ? (const float *)data + i : NULL;
}

static float *f32_to(void *data, int64_t i)
{
    return data ? (float *)data + i : NULL;
}

static void for_pieces(flat_job *job, double cost, attn_team_fn fn)
{
    const int64_t tasks = (job->n + PIECE - 1) / PIECE;
    attn_team_for(job->team, tasks, attn_team_workers(job->team, tasks, cost * (double)job->n), fn, job);
}

static void activate_task(void *arg, int64_t task, int32_t worker)
{
    const flat_job *job = arg;
    const int64_t first = task * PIECE, n = smaller(PIECE, job->n - first);
    (void)worker;
    if (job->dtype == ATTN_F32) {
        if (job->up)
            job->team->kernels->activate_mul(job->act, f32_at(job->x, first), f32_at(job->up, first), n, f32_to(job->y, first));
        else
            job->team->kernels->activate(job->act, f32_at(job->x, first), n, f32_to(job->y, first));
        return;
    }
    const double *x = job->x, *up = job->up;
    for (int64_t i = first; i < first + n; i++)
        ((double *)job->y)[i] = attn_act_f64(job->act, x[i]) * (up ? up[i] : 1);
}

void attn_rows_activate(const attn_team *team, int32_t dtype, int32_t act, int64_t n, const void *x, const void *up, void *y)
{
    flat_job job = {.team = team, .x = x, .up = up, .y = y, .n = n, .dtype = dtype, .act = act};
    for_pieces(&job, 4, activate_task);
}

static void activate_grad_task(void *arg, int64_t task, int32_t worker)
{
    const flat_job *job = arg;
    const int64_t first = task * PIECE, n = smaller(PIECE, job->n - first);
    (void)worker;
    if (job->dtype == ATTN_F32) {
        job->team->kernels->activate_grad(job->act, f32_at(job->x, first), f32_at(job->up, first),
                                          f32_at(job->d_y, first), n, job->accumulate, f32_to(job->d_x, first),
                                          f32_to(job->d_up, first), f32_to(job->y, first));
        return;
    }
    const double *x = job->x, *up = job->up, *d_y = job->d_y;
    double *d_x = job->d_x, *d_up = job->d_up, *y = job->y;
    for (int64_t i = first; i < first + n; i++) {
        const double d = d_y[i], to_x = d * attn_act_slope_f64(job->act, x[i]) * (up ? up[i] : 1);
        if (y)
            y[i] = attn_act_f64(job->act, x[i]) * (up ? up[i] : 1);
        if (up && d_up)
            d_up[i] = (job->accumulate ? d_up[i] : 0) + d * attn_act_f64(job->act, x[i]);
        if (d_x)
            d_x[i] = (job->accumulate ? d_x[i] : 0) + to_x;
    }
}

void attn_rows_activate_grad(const attn_team *team, int32_t dtype, int32_t act, int64_t n, const void *x, const void *up,
                             const void *d_y, int32_t accumulate, void *d_x, void *d_up, void *y)
{
    flat_job job = {.team = team, .x = x, .up = up, .d_y = d_y, .d_x = d_x, .d_up = d_up, .y = y, .n = n, .dtype = dtype,
                    .act = act, .accumulate = accumulate};
    for_pieces(&job, 6, activate_grad_task);
}

/* A dropped number is 0 whatever it was (NaN too). factors are read where p > 0. */
static void drop_f32(const flat_job *job, int64_t first, int64_t n, const float *factors)
{
    const float *x = f32_at(job->x, first), *residual = f32_at(job->residual, first);
    float *y = f32_to(job->y, first);
    if (job->p > 0 && residual)
        for (int64_t i = 0; i < n; i++)
            y[i] = residual[i] + (factors[i] > 0 ? x[i] * factors[i] : 0);
    else if (job->p > 0)
        for (int64_t i = 0; i < n; i++)
            y[i] = factors[i] > 0 ? x[i] * factors[i] : 0;
    else if (residual)
        for (int64_t i = 0; i < n; i++)
            y[i] = residual[i] + x[i];
    else if (x != y)
        memcpy(y, x, (size_t)n * sizeof *y);
}

static void dropout_task(void *arg, int64_t task, int32_t worker)
{
    const flat_job *job = arg;
    const int64_t first = task * PIECE, n = smaller(PIECE, job->n - first);
    float factors[PIECE];
    (void)worker;
    if (job->p > 0)
        job->team->kernels->dropout_factors(first, n, job->p, job->seed, factors);
    if (job->dtype == ATTN_F32) {
        drop_f32(job, first, n, factors);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const double factor = job->p > 0 ? (factors[i] > 0 ? 1 / (1 - job->p) : 0) : 1;
        const double x = ((const double *)job->x)[first + i], y = factor > 0 ? x * factor : 0;
        ((double *)job->y)[first + i] = (job->residual ? ((const double *)job->residual)[first + i] : 0) + y;
    }
}

void attn_rows_dropout(const attn_team *team, int32_t dtype, int64_t n, const void *x, const void *residual, double p,
                       uint64_t seed, void *y)
{
    flat_job job = {.team = team, .x = x, .residual = residual, .y = y, .n = n, .p = p, .seed = seed, .dtype = dtype};
    for_pieces(&job, p > 0 ? 10 : 1, dropout_task);
}
