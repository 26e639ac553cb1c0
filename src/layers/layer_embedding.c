/* layer_embedding.c - token embedding with learned, sinusoidal and segment tables. */
#include <math.h>
#include "layers/layer_parts.h"

#define TASK_ROWS 32
#define TASK_COLUMNS 32

static int64_t position_of(const attn_embedding_args *a, int64_t row)
{
    return a->positions ? a->positions[row] : a->position_offset + row % (a->seq ? a->seq : a->rows);
}

static attn_status check_rows(attn_layers *layers, const attn_embedding_args *a)
{
    for (int64_t r = 0; r < a->rows; r++) {
        ATTN_LAYERS_REQUIRE(layers, a->ids[r] >= 0 && a->ids[r] < a->vocab, "args.ids[%lld] is %d, vocab is %lld",
                            (long long)r, a->ids[r], (long long)a->vocab);
        if (a->position_table)
            ATTN_LAYERS_REQUIRE(layers, position_of(a, r) >= 0 && position_of(a, r) < a->n_positions,
                                "row %lld stands at position %lld, args.n_positions is %lld", (long long)r,
                                (long long)position_of(a, r), (long long)a->n_positions);
        if (a->type_table && a->type_ids)
            ATTN_LAYERS_REQUIRE(layers, a->type_ids[r] >= 0 && a->type_ids[r] < a->n_types,
                                "args.type_ids[%lld] is %d, n_types is %lld", (long long)r, a->type_ids[r],
                                (long long)a->n_types);
    }
    return ATTN_OK;
}

static attn_status check(attn_layers *layers, attn_embedding_args *a, const attn_embedding_args *args)
{
    ATTN_TRY(attn_layers_args(layers, a, sizeof *a, args, "args"));
    ATTN_TRY(attn_layers_dtype(layers, a->dtype));
    ATTN_LAYERS_REQUIRE(layers, a->sinusoidal == 0 || a->sinusoidal == 1, "args.sinusoidal is %d: 0 or 1", a->sinusoidal);
    ATTN_TRY(attn_layers_size(layers, a->rows, "args.rows"));
    ATTN_TRY(attn_layers_width(layers, a->d_model, "args.d_model"));
    ATTN_TRY(attn_layers_size(layers, a->seq, "args.seq"));
    ATTN_TRY(attn_layers_width(layers, a->vocab, "args.vocab"));
    ATTN_TRY(attn_layers_pointer(layers, a->ids, a->rows, "args.ids"));
    ATTN_LAYERS_REQUIRE(layers, isfinite(a->scale), "args.scale is %g", a->scale);
    ATTN_LAYERS_REQUIRE(layers, !a->position_table || a->n_positions > 0, "args.n_positions is %lld with a position_table",
                        (long long)a->n_positions);
    ATTN_LAYERS_REQUIRE(layers, !a->type_table || a->n_types > 0, "args.n_types is %lld with a type_table",
                        (long long)a->n_types);
    ATTN_TRY(attn_layers_stride(layers, &a->ldy, a->d_model, "args.ldy"));
    a->scale = a->scale == 0 ? 1 : a->scale;
    return check_rows(layers, a);
}

/* ---- forward ---- */

typedef struct embedding_run {
    const attn_embedding_args *a;
    const attn_embedding_gradients *g;
} embedding_run;

static double sinusoid(int64_t position, int64_t i, int64_t d_model)
{
    const double angle = (double)position / pow(10000, (double)(i / 2 * 2) / (double)d_model);
    return i % 2 ? cos(angle) : sin(angle);
}

static void row_f32(const attn_embedding_args *a, int64_t r)
{
    const int64_t d = a->d_model, p = position_of(a, r);
    const float *token = (const float *)a->table + a->ids[r] * d, scale = (float)a->scale;
    const float *position = a->position_table ? (const float *)a->position_table + p * d : NULL;
    const float *type = a->type_table ? (const float *)a->type_table + (a->type_ids ? a->type_ids[r] : 0) * d : NULL;
    float *y = (float *)a->y + r * a->ldy;
    for (int64_t i = 0; i < d; i++)
        y[i] = token[i] * scale;
    for (int64_t i = 0; type && i < d; i++)
        y[i] += type[i];
    for (int64_t i = 0; position && i < d; i++)
        y[i] += position[i];
    for (int64_t i = 0; a->sinusoidal && i < d; i++)
        y[i] += (float)sinusoid(p, i, d);
}

static void row_f64(const attn_embedding_args *a, int64_t r)
{
    const int64_t d = a->d_model, p = position_of(a, r);
    const double *token = (const double *)a->table + a->ids[r] * d;
    const double *position = a->position_table ? (const double *)a->position_table + p * d : NULL;
    const double *type = a->type_table ? (const double *)a->type_table + (a->type_ids ? a->type_ids[r] : 0) * d : NULL;
    double *y = (double *)a->y + r * a->ldy;
    for (int64_t i = 0; i < d; i++)
        y[i] = token[i] * a->scale + (type ? type[i] : 0) + (position ? position[i] : 0) +
               (a->sinusoidal ? sinusoid(p, i, d) : 0);
}

static void forward_task(void *arg, int64_t task, int32_t worker)
{
    const attn_embedding_args *a = ((const embedding_run *)arg)->a;
    (void)worker;
    for (int64_t r = task * TASK_ROWS; r < a->rows && r < (task + 1) * TASK_ROWS; r++) {
        if (a->dtype == ATTN_F64)
            row_f64(a, r);
        else
            row_f32(a, r);
    }
}

static attn_status forward(attn_layers *layers, const attn_embedding_args *args)
{
    attn_embedding_args a;
    ATTN_TRY(check(layers, &a, args));
    ATTN_TRY(attn_layers_pointer(layers, a.table, a.rows, "args.table"));
    ATTN_TRY(attn_layers_pointer(layers, a.y, a.rows, "args.y"));
    embedding_run run = {&a, NULL};
    const int64_t tasks = (a.rows + TASK_ROWS - 1) / TASK_ROWS;
    const double cost = (double)a.rows * (double)a.d_model * (a.sinusoidal ? 50 : 1);
    attn_team_for(&layers->team, tasks, attn_team_workers(&layers->team, tasks, cost), forward_task, &run);
    return ATTN_OK;
}

attn_status attn_embedding_forward(attn_layers *layers, const attn_embedding_args *args)
{
    return ATTN_LAYERS_CALL(layers, forward(layers, args));
}

/* ---- backward ---- */

/* to[i] += from[i] * scale for the task's columns */
static void scatter(int32_t dtype, void *to, int64_t row, int64_t d_model, const void *from, int64_t at, int64_t first,
                    int64_t n, double scale)
{
    if (!to)
        return;
    if (dtype == ATTN_F64) {
        double *t = (double *)to + row * d_model + first;
        const double *f = (const double *)from + at + first;
        for (int64_t i = 0; i < n; i++)
            t[i] += f[i] * scale;
    } else {
        float *t = (float *)to + row * d_model + first;
        const float *f = (const float *)from + at + first, s = (float)scale;
        for (int64_t i = 0; i < n; i++)
            t[i] += f[i] * s;
    }
}

/* A task owns some columns of all tables and passes over the rows in order. */
static void backward_task(void *arg, int64_t task, int32_t worker)
{
    const attn_embedding_args *a = ((const embedding_run *)arg)->a;
    const attn_embedding_gradients *g = ((const embedding_run *)arg)->g;
    const int64_t first = task * TASK_COLUMNS;
    const int64_t n = a->d_model - first < TASK_COLUMNS ? a->d_model - first : TASK_COLUMNS;
    (void)worker;
    for (int64_t r = 0; r < a->rows; r++) {
        const int64_t at = r * g->ld_dy;
        scatter(a->dtype, g->table, a->ids[r], a->d_model, g->d_y, at, first, n, a->scale);
        scatter(a->dtype, g->position_table, position_of(a, r), a->d_model, g->d_y, at, first, n, 1);
        scatter(a->dtype, g->type_table, a->type_ids ? a->type_ids[r] : 0, a->d_model, g->d_y, at, first, n, 1);
    }
}

static attn_status backward(attn_layers *layers, const attn_embedding_args *args,
                            const attn_embedding_gradients *gradients)
{
    attn_embedding_args a;
    attn_embedding_gradients g;
    ATTN_TRY(check(layers, &a, args));
    ATTN_TRY(attn_layers_args(layers, &g, sizeof g, gradients, "gradients"));
    ATTN_TRY(attn_layers_flags(layers, g.flags, 0, "gradients.flags"));
    ATTN_TRY(attn_layers_stride(layers, &g.ld_dy, a.d_model, "gradients.ld_dy"));
    ATTN_TRY(attn_layers_pointer(layers, g.d_y, a.rows, "gradients.d_y"));
    ATTN_LAYERS_REQUIRE(layers, a.position_table || !g.position_table,
                        "gradients.position_table is given without args.position_table");
    ATTN_LAYERS_REQUIRE(layers, a.type_table || !g.type_table, "gradients.type_table is given without args.type_table");
    embedding_run run = {&a, &g};
    const int64_t tasks = (a.d_model + TASK_COLUMNS - 1) / TASK_COLUMNS;
    const double cost = (double)a.rows * (double)a.d_model;
    attn_team_for(&layers->team, tasks, attn_team_workers(&layers->team, tasks, cost), backward_task, &run);
    return ATTN_OK;
}

attn_status attn_embedding_backward(attn_layers *layers, const attn_embedding_args *args,
                                    const attn_embedding_gradients *gradients)
{
    return ATTN_LAYERS_CALL(layers, backward(layers, args, gradients));
}

/* ---- ALiBi ---- */

attn_status attn_alibi_slopes(int64_t n_heads, double *slopes)
{
    ATTN_LAYERS_REQUIRE(NULL, n_heads >= 1 && n_heads <= 1 << 16, "n_heads is %lld; it must lie in 1 .. 65536",
                        (long long)n_heads);
    ATTN_LAYERS_REQUIRE(NULL, slopes, "slopes is NULL");
    int64_t power = 1;
    while (2 * power <= n_heads)
        power *= 2;
    for (int64_t h = 0; h < n_heads; h++)
        slopes[h] = h < power ? exp2(-8.0 * (double)(h + 1) / (double)power)
                              : exp2(-4.0 * (double)(2 * (h - power) + 1) / (double)power);
    return ATTN_OK;
}
