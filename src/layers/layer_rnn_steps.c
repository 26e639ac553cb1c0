/* layer_rnn_steps.c - steps of recurrent cells. */
#include <math.h>
#include <string.h>
#include "layers/layer_rnn.h"

#define REAL double
#define CELL_FN(name) cell_f64_##name
#define CELL_EXP exp
#define CELL_TANH tanh
#include "layers/rnn_cell.inc"
#undef REAL
#undef CELL_FN
#undef CELL_EXP
#undef CELL_TANH
#define REAL float
#define CELL_FN(name) cell_f32_##name
#define CELL_EXP expf
#define CELL_TANH tanhf
#include "layers/rnn_cell.inc"

attn_status attn_rnn_kind_check(attn_layers *layers, int32_t kind)
{
    ATTN_LAYERS_REQUIRE(layers, kind >= ATTN_RNN_ELMAN && kind <= ATTN_RNN_LSTM, "args.kind is %d: no ATTN_RNN_* value",
                        kind);
    return ATTN_OK;
}

int64_t attn_rnn_gates(int32_t kind, int64_t d_hidden)
{
    return kind == ATTN_RNN_LSTM ? 4 * d_hidden : d_hidden;
}

attn_status attn_rnn_pack(attn_layers *layers, rnn_steps *s, int32_t forward)
{
    const int64_t n = forward ? s->n_gates : s->d_hidden, k = forward ? s->d_hidden : s->n_gates;
    void *memory = NULL;
    s->packed = NULL;
    if (s->dtype != ATTN_F32 || !s->w_hidden) /* without a row there need be no weights */
        return ATTN_OK;
    ATTN_TRY(attn_layers_scratch(layers, attn_gemm_packed_floats(&layers->team, n, k), ATTN_F32, &memory));
    s->packed = memory;
    attn_gemm_pack(&layers->team, forward ? ATTN_GEMM_NT : ATTN_GEMM_NN, n, k, s->w_hidden, s->d_hidden, s->packed);
    return ATTN_OK;
}

/* What batch entry b holds before step t in an array of rows, or its start (which may be NULL). */
static const void *before(const rnn_steps *s, const void *rows, const void *start, int64_t b, int64_t t)
{
    if (t)
        return attn_at(rows, s->dtype, (b * s->seq + t - 1) * s->d_hidden);
    return start ? attn_at(start, s->dtype, b * s->d_hidden) : NULL;
}

typedef struct step_job {
    const rnn_steps *s;
    int64_t t;
    void *d_hidden, *d_cell, *d_gates;
} step_job;

static void forward_task(void *arg, int64_t b, int32_t worker)
{
    const step_job *job = arg;
    const rnn_steps *s = job->s;
    const int64_t row = b * s->seq + job->t;
    void *gates = attn_at(s->gates, s->dtype, row * s->n_gates), *hidden = attn_at(s->hidden, s->dtype, row * s->d_hidden);
    void *cell = s->cells ? attn_at(s->cells, s->dtype, row * s->d_hidden) : NULL;
    const void *cell_before = s->cells ? before(s, s->cells, s->cell0, b, job->t) : NULL;
    (void)worker;
    if (s->dtype == ATTN_F64)
        cell_f64_forward(s->kind, s->d_hidden, gates, cell_before, cell, hidden);
    else
        cell_f32_forward(s->kind, s->d_hidden, gates, cell_before, cell, hidden);
}

void attn_rnn_step(attn_layers *layers, const rnn_steps *s, int64_t t)
{
    attn_gemm_args g = {.dtype = s->dtype, .kind = ATTN_GEMM_NT, .m = s->batch, .n = s->n_gates, .k = s->d_hidden,
                        .b = s->w_hidden, .ldb = s->d_hidden, .packed = s->packed,
                        .c = attn_at(s->gates, s->dtype, t * s->n_gates), .ldc = s->seq * s->n_gates,
                        .bias = s->b_hidden, .accumulate = 1};
    g.a = t ? attn_at(s->hidden, s->dtype, (t - 1) * s->d_hidden) : s->hidden0 ? s->hidden0 : s->zero;
    g.lda = t ? s->seq * s->d_hidden : s->hidden0 ? s->d_hidden : 0;
    attn_gemm(&layers->team, &g);
    step_job job = {s, t, NULL, NULL, NULL};
    attn_team_for(&layers->team, s->batch, attn_team_workers(&layers->team, s->batch, 40 * (double)(s->batch * s->n_gates)),
                  forward_task, &job);
}

static void backward_task(void *arg, int64_t b, int32_t worker)
{
    const step_job *job = arg;
    const rnn_steps *s = job->s;
    const int64_t row = b * s->seq + job->t;
    const void *gates = attn_at(s->gates, s->dtype, row * s->n_gates);
    const void *cell = s->cells ? attn_at(s->cells, s->dtype, row * s->d_hidden) : NULL;
    const void *cell_before = s->cells ? before(s, s->cells, s->cell0, b, job->t) : NULL;
    const void *d_hidden = attn_at(job->d_hidden, s->dtype, b * s->d_hidden);
    void *d_cell = attn_at(job->d_cell, s->dtype, b * s->d_hidden);
    void *d_gates = attn_at(job->d_gates, s->dtype, row * s->n_gates);
    (void)worker;
    if (s->dtype == ATTN_F64)
        cell_f64_backward(s->kind, s->d_hidden, gates, cell_before, cell, d_hidden, d_cell, d_gates);
    else
        cell_f32_backward(s->kind, s->d_hidden, gates, cell_before, cell, d_hidden, d_cell, d_gates);
}

void attn_rnn_step_back(attn_layers *layers, const rnn_steps *s, int64_t t, void *d_hidden, void *d_cell, void *d_gates)
{
    step_job job = {s, t, d_hidden, d_cell, d_gates};
    attn_team_for(&layers->team, s->batch, attn_team_workers(&layers->team, s->batch, 40 * (double)(s->batch * s->n_gates)),
                  backward_task, &job);
    const attn_gemm_args g = {.dtype = s->dtype, .kind = ATTN_GEMM_NN, .m = s->batch, .n = s->d_hidden, .k = s->n_gates,
                              .a = attn_at(d_gates, s->dtype, t * s->n_gates), .lda = s->seq * s->n_gates,
                              .b = s->w_hidden, .ldb = s->d_hidden, .packed = s->packed, .c = d_hidden,
                              .ldc = s->d_hidden};
    attn_gemm(&layers->team, &g);
}

attn_status attn_rnn_hidden_before(attn_layers *layers, const rnn_steps *s, void **out)
{
    const size_t bytes = (size_t)s->d_hidden * (s->dtype == ATTN_F64 ? 8 : 4);
    ATTN_TRY(attn_layers_scratch(layers, s->batch * s->seq * s->d_hidden, s->dtype, out));
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t t = 0; t < s->seq; t++) {
            const void *from = before(s, s->hidden, s->hidden0, b, t);
            void *to = attn_at(*out, s->dtype, (b * s->seq + t) * s->d_hidden);
            if (from)
                memcpy(to, from, bytes);
            else
                memset(to, 0, bytes);
        }
    return ATTN_OK;
}

void attn_rnn_take(const attn_layers *layers, int32_t dtype, int64_t batch, int64_t n, const void *x, int64_t ldx, void *y,
                   int64_t ldy, bool add)
{
    if (add)
        attn_rows_add(&layers->team, dtype, batch, n, x, ldx, y, ldy);
    else
        attn_rows_copy(&layers->team, dtype, batch, n, x, ldx, y, ldy);
}
