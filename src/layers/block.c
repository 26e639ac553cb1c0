/* block.c - norms and feed-forward layers. */
#include "layers/block.h"
#include <math.h>
#include <string.h>
#include "layers/rare_act.h"
#include "ops/nn/nn_parallel.h"

/* Rows of one task in row-wise work: large enough that a task outweighs handing it out. */
#define ROWS_PER_TASK 16

typedef struct row_job {
    const attn_worker *worker;
    const attn_norm_options *options;
    const attn_norm *norm;
    const float *x;
    float *y;
    int64_t rows, n, ldx, ldy;
    int32_t act;
} row_job;

static int64_t task_rows(const row_job *job, int64_t task)
{
    const int64_t left = job->rows - task * ROWS_PER_TASK;
    return left < ROWS_PER_TASK ? left : ROWS_PER_TASK;
}

static void for_rows(const row_job *job, attn_nn_body body)
{
    attn_nn_for(job->worker->n_threads, (job->rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK, body,
                (void *)(uintptr_t)job);
}

static void norm_task(void *arg, int64_t task)
{
    const row_job *job = arg;
    const attn_nn_kernels *k = job->worker->kernels;
    for (int64_t i = 0; i < task_rows(job, task); i++) {
        const float *x = job->x + (task * ROWS_PER_TASK + i) * job->ldx;
        float *y = job->y + (task * ROWS_PER_TASK + i) * job->ldy;
        if (job->options->kind == ATTN_NORM_RMS)
            k->rms_norm(x, job->norm->weight, job->options->offset, job->options->eps, job->n, y);
        else
            k->layer_norm(x, job->norm->weight, job->norm->bias, job->options->eps, job->n, y);
    }
}

void attn_norm_rows(const attn_worker *worker, const attn_norm_options *options, const attn_norm *norm, int64_t rows,
                    int64_t n, const float *x, int64_t ldx, float *y, int64_t ldy)
{
    const row_job job = {worker, options, norm, x, y, rows, n, ldx, ldy, 0};
    if (norm->weight) {
        for_rows(&job, norm_task);
        return;
    }
    for (int64_t i = 0; x != y && i < rows; i++)
        memcpy(y + i * ldy, x + i * ldx, (size_t)n * sizeof *y);
}

static void add_task(void *arg, int64_t task)
{
    const row_job *job = arg;
    const int64_t first = task * ROWS_PER_TASK * job->n;
    job->worker->kernels->add(job->y + first, job->x + first, task_rows(job, task) * job->n);
}

void attn_add_rows(const attn_worker *worker, int64_t rows, int64_t n, const float *x, float *y)
{
    const row_job job = {.worker = worker, .x = x, .y = y, .rows = rows, .n = n};
    for_rows(&job, add_task);
}

static void gate_task(void *arg, int64_t task)
{
    const row_job *job = arg;
    const int64_t first = task * ROWS_PER_TASK * job->n;
    attn_activate_mul(job->worker, job->act, job->y + first, job->x + first, task_rows(job, task) * job->n);
}

static void activate_task(void *arg, int64_t task)
{
    const row_job *job = arg;
    attn_activate(job->worker, job->act, job->y + task * ROWS_PER_TASK * job->n, task_rows(job, task) * job->n);
}

void attn_linear_act_rows(const attn_worker *worker, const attn_linear *linear, int32_t act, int64_t rows, const float *x, float *y)
{
    const attn_linear_job in = {.linear = linear, .x = x, .ldx = linear->w.n_in, .y = y, .ldy = linear->w.n_out,
                                .act = attn_act_is_rare(act) ? ATTN_ACT_NONE : act};
    const row_job job = {.worker = worker, .y = y, .rows = rows, .n = linear->w.n_out, .act = act};
    attn_linear_run(worker, &in, 1, rows);
    if (attn_act_is_rare(act))
        for_rows(&job, activate_task);
}

/* ---- mixture of experts ---- */

/* gpt-oss: gate and up clamped, (up + 1) * gate / (1 + exp(-alpha gate)). */
static void clamped_swiglu(const attn_mlp_options *o, int64_t n, float *gate, const float *up)
{
    const float limit = (float)o->swiglu_limit, alpha = (float)o->swiglu_alpha;
    for (int64_t i = 0; i < n; i++) {
        const float g = gate[i] > limit ? limit : gate[i];
        const float u = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        gate[i] = (u + 1.0f) * (g / (1.0f + expf(-alpha * g)));
    }
}

void attn_choose_experts(const float *logits, const attn_mlp_options *o, int64_t *chosen, float *weights)
{
    float sum = 0;
    for (int64_t i = 0; i < o->experts_per_token; i++) {
        int64_t best = -1;
        for (int64_t e = 0; e < o->n_experts; e++) {
            bool taken = false;
            for (int64_t j = 0; j < i; j++)
                taken |= chosen[j] == e;
            if (!taken && (best < 0 || logits[e] > logits[best]))
                best = e;
        }
        chosen[i] = best;
        weights[i] = expf(logits[best] - logits[chosen[0]]);
        sum += weights[i];
    }
    for (int64_t i = 0; i < o->experts_per_token; i++)
        weights[i] /= sum;
}

static void experts_forward(const attn_worker *worker, const attn_mlp_options *o, const attn_layer_weights *w,
                            int64_t rows, int64_t d_model, int64_t d_ff, const float *x, float *y, float *scratch)
{
    float *logits = scratch, *weights = logits + o->n_experts, *gate = weights + o->experts_per_token;
    float *up = gate + d_ff, *out = up + d_ff;
    int64_t chosen[64];
    for (int64_t r = 0; r < rows; r++) {
        const float *row = x + r * d_model;
        float *to = y + r * d_model;
        attn_linear_job route = {.linear = &w->router, .x = row, .y = logits};
        attn_linear_run(worker, &route, 1, 1);
        attn_choose_experts(logits, o, chosen, weights);
        memset(to, 0, (size_t)d_model * sizeof *to);
        for (int64_t i = 0; i < o->experts_per_token; i++) {
            attn_linear_job in[2] = {{.linear = &w->expert_gate[chosen[i]], .x = row, .y = gate},
                                     {.linear = &w->expert_up[chosen[i]], .x = row, .y = up}};
            attn_linear_run(worker, in, 2, 1);
            if (o->swiglu_limit > 0)
                clamped_swiglu(o, d_ff, gate, up);
            else
                attn_activate_mul(worker, o->act, gate, up, d_ff);
            attn_linear_job down = {.linear = &w->expert_down[chosen[i]], .x = gate, .y = out};
            attn_linear_run(worker, &down, 1, 1);
            for (int64_t d = 0; d < d_model; d++)
                to[d] += weights[i] * out[d];
        }
    }
}

/* ---- feed-forward ---- */

int64_t attn_mlp_scratch(const attn_mlp_options *options, int64_t rows, int64_t d_model, int64_t d_ff)
{
    if (options->n_experts)
        return options->n_experts + options->experts_per_token + 2 * d_ff + d_model;
    return rows * d_ff * (options->gated ? 2 : 1);
}

void attn_mlp_forward(const attn_worker *worker, const attn_mlp_options *options, const attn_layer_weights *w,
                      int64_t rows, int64_t d_model, int64_t d_ff, const float *x, const float *residual, float *y,
                      float *scratch)
{
    if (options->n_experts) {
        experts_forward(worker, options, w, rows, d_model, d_ff, x, y, scratch);
        if (residual)
            attn_add_rows(worker, rows, d_model, residual, y);
        return;
    }
    float *gate = scratch, *up = scratch + rows * d_ff;
    if (options->gated) {
        attn_linear_job in[2] = {{.linear = &w->gate, .x = x, .ldx = d_model, .y = gate, .ldy = d_ff},
                                 {.linear = &w->up, .x = x, .ldx = d_model, .y = up, .ldy = d_ff}};
        attn_linear_run(worker, in, 2, rows);
        const row_job job = {.worker = worker, .x = up, .y = gate, .rows = rows, .n = d_ff, .act = options->act};
        for_rows(&job, gate_task);
    } else {
        attn_linear_act_rows(worker, &w->up, options->act, rows, x, gate);
    }
    attn_linear_job out = {.linear = &w->down, .x = gate, .ldx = d_ff, .y = y, .ldy = d_model, .residual = residual,
                           .ld_residual = d_model};
    attn_linear_run(worker, &out, 1, rows);
}
