/* layer_rnn.c - Elman networks and LSTMs over a sequence. The input's share of all steps is one product. */
#include <string.h>
#include "layers/layer_rnn.h"

static attn_status check(attn_layers *layers, attn_rnn_args *a, const attn_rnn_args *args, bool sizes_only)
{
    ATTN_TRY(attn_layers_args(layers, a, sizeof *a, args, "args"));
    ATTN_TRY(attn_layers_dtype(layers, a->dtype));
    ATTN_TRY(attn_rnn_kind_check(layers, a->kind));
    ATTN_TRY(attn_layers_size(layers, a->batch, "args.batch"));
    ATTN_TRY(attn_layers_size(layers, a->seq, "args.seq"));
    ATTN_TRY(attn_layers_size(layers, a->batch * a->seq, "args.batch * args.seq"));
    ATTN_TRY(attn_layers_width(layers, a->d_in, "args.d_in"));
    ATTN_TRY(attn_layers_width(layers, a->d_hidden, "args.d_hidden"));
    ATTN_TRY(attn_layers_width(layers, attn_rnn_gates(a->kind, a->d_hidden), "4 * args.d_hidden"));
    ATTN_LAYERS_REQUIRE(layers, a->kind == ATTN_RNN_LSTM || (!a->cell0 && !a->cell_last),
                        "args.cell0 or cell_last is given, but args.kind %d has no cell", a->kind);
    if (sizes_only)
        return ATTN_OK;
    const int64_t rows = a->batch * a->seq;
    ATTN_TRY(attn_layers_pointer(layers, a->x, rows, "args.x"));
    ATTN_TRY(attn_layers_pointer(layers, a->out, rows, "args.out"));
    ATTN_TRY(attn_layers_pointer(layers, a->weights.w_input, rows, "args.weights.w_input"));
    return attn_layers_pointer(layers, a->weights.w_hidden, rows, "args.weights.w_hidden");
}

/* Bytes of gates and cells; with base they are placed there. */
static size_t place(const attn_rnn_args *a, char *base, rnn_steps *s)
{
    const int64_t rows = a->batch * a->seq, n_gates = attn_rnn_gates(a->kind, a->d_hidden);
    const size_t gates = attn_padded_bytes(rows * n_gates, a->dtype);
    const size_t cells = a->kind == ATTN_RNN_LSTM ? attn_padded_bytes(rows * a->d_hidden, a->dtype) : 0;
    const rnn_steps steps = {.dtype = a->dtype, .kind = a->kind, .batch = a->batch, .seq = a->seq,
                             .d_hidden = a->d_hidden, .n_gates = n_gates, .w_hidden = a->weights.w_hidden,
                             .b_hidden = a->weights.b_hidden, .hidden0 = a->hidden0, .cell0 = a->cell0, .hidden = a->out,
                             .gates = base, .cells = cells && base ? base + gates : NULL};
    *s = steps;
    return gates + cells ? gates + cells : 64;
}

static attn_status saved_bytes(attn_layers *layers, const attn_rnn_args *args, size_t *bytes)
{
    attn_rnn_args a;
    rnn_steps s;
    ATTN_LAYERS_REQUIRE(layers, bytes, "bytes is NULL");
    ATTN_TRY(check(layers, &a, args, true));
    *bytes = place(&a, NULL, &s);
    return ATTN_OK;
}

attn_status attn_rnn_saved_bytes(attn_layers *layers, const attn_rnn_args *args, size_t *bytes)
{
    return ATTN_LAYERS_CALL(layers, saved_bytes(layers, args, bytes));
}

/* to[b] = the state after the last step: row seq - 1, or the start. */
static void last_state(const attn_layers *layers, const attn_rnn_args *a, const void *rows, const void *start, void *to)
{
    const int64_t n = a->d_hidden;
    if (!to || !a->batch)
        return;
    if (a->seq)
        attn_rnn_take(layers, a->dtype, a->batch, n, attn_at(rows, a->dtype, (a->seq - 1) * n), a->seq * n, to, n, false);
    else if (start)
        attn_rnn_take(layers, a->dtype, a->batch, n, start, n, to, n, false);
    else
        memset(to, 0, (size_t)(a->batch * n) * (a->dtype == ATTN_F64 ? 8 : 4));
}

static attn_status forward(attn_layers *layers, const attn_rnn_args *args)
{
    attn_rnn_args a;
    rnn_steps s;
    ATTN_TRY(check(layers, &a, args, false));
    void *base = a.saved;
    const size_t bytes = place(&a, base, &s);
    if (!base)
        ATTN_TRY(attn_layers_scratch(layers, (int64_t)bytes / 4, ATTN_F32, &base));
    place(&a, base, &s);
    ATTN_TRY(attn_layers_scratch(layers, a.d_hidden, a.dtype, &s.zero));
    memset(s.zero, 0, (size_t)a.d_hidden * (a.dtype == ATTN_F64 ? 8 : 4));
    ATTN_TRY(attn_rnn_pack(layers, &s, 1));
    const attn_linear_args in = {.dtype = a.dtype, .rows = a.batch * a.seq, .n_in = a.d_in, .n_out = s.n_gates, .x = a.x,
                                 .ldx = a.d_in, .weight = a.weights.w_input, .bias = a.weights.b_input, .y = s.gates,
                                 .ldy = s.n_gates};
    attn_linear_run_forward(layers, &in);
    for (int64_t t = 0; t < a.seq; t++)
        attn_rnn_step(layers, &s, t);
    last_state(layers, &a, s.hidden, a.hidden0, a.hidden_last);
    last_state(layers, &a, s.cells, a.cell0, a.cell_last);
    return ATTN_OK;
}

attn_status attn_rnn_forward(attn_layers *layers, const attn_rnn_args *args)
{
    return ATTN_LAYERS_CALL(layers, forward(layers, args));
}

/* A gradient of [batch, d_hidden] to start from: what is given, or 0. */
static attn_status state_gradient(attn_layers *layers, const attn_rnn_args *a, const void *given, void **out)
{
    const int64_t n = a->batch * a->d_hidden;
    const size_t bytes = (size_t)n * (a->dtype == ATTN_F64 ? 8 : 4);
    ATTN_TRY(attn_layers_scratch(layers, n, a->dtype, out));
    if (given)
        memcpy(*out, given, bytes);
    else
        memset(*out, 0, bytes);
    return ATTN_OK;
}

static void put_state(const attn_layers *layers, const attn_rnn_args *a, const void *from, void *to, uint64_t flags)
{
    if (to)
        attn_rnn_take(layers, a->dtype, a->batch, a->d_hidden, from, a->d_hidden, to, a->d_hidden,
                      (flags & ATTN_GRAD_ACCUMULATE) != 0);
}

static attn_status backward(attn_layers *layers, const attn_rnn_args *args, const attn_rnn_gradients *gradients)
{
    attn_rnn_args a;
    attn_rnn_gradients g;
    rnn_steps s;
    void *d_hidden = NULL, *d_cell = NULL, *d_gates = NULL, *hidden_before = NULL;
    ATTN_TRY(check(layers, &a, args, false));
    ATTN_TRY(attn_layers_args(layers, &g, sizeof g, gradients, "gradients"));
    ATTN_TRY(attn_layers_flags(layers, g.flags, ATTN_GRAD_ACCUMULATE, "gradients.flags"));
    ATTN_LAYERS_REQUIRE(layers, a.kind == ATTN_RNN_LSTM || (!g.d_cell_last && !g.d_cell0),
                        "gradients.d_cell_last or d_cell0 is given, but args.kind %d has no cell", a.kind);
    const int64_t rows = a.batch * a.seq, n = a.d_hidden;
    ATTN_TRY(attn_layers_pointer(layers, a.saved, rows, "args.saved"));
    place(&a, a.saved, &s);
    ATTN_TRY(state_gradient(layers, &a, g.d_hidden_last, &d_hidden));
    ATTN_TRY(state_gradient(layers, &a, g.d_cell_last, &d_cell));
    ATTN_TRY(attn_layers_scratch(layers, rows * s.n_gates, a.dtype, &d_gates));
    ATTN_TRY(attn_rnn_pack(layers, &s, 0));
    ATTN_TRY(attn_rnn_hidden_before(layers, &s, &hidden_before));
    for (int64_t t = a.seq - 1; t >= 0; t--) {
        if (g.d_out)
            attn_rnn_take(layers, a.dtype, a.batch, n, attn_at(g.d_out, a.dtype, t * n), a.seq * n, d_hidden, n, true);
        attn_rnn_step_back(layers, &s, t, d_hidden, d_cell, d_gates);
    }
    const attn_linear_args in = {.dtype = a.dtype, .rows = rows, .n_in = a.d_in, .n_out = s.n_gates, .x = a.x,
                                 .ldx = a.d_in, .weight = a.weights.w_input};
    const attn_linear_args recurrent = {.dtype = a.dtype, .rows = rows, .n_in = n, .n_out = s.n_gates,
                                        .x = hidden_before, .ldx = n, .weight = a.weights.w_hidden};
    const attn_linear_gradients to_in = {.flags = g.flags, .d_y = d_gates, .ld_dy = s.n_gates, .d_x = g.d_x,
                                         .ld_dx = a.d_in, .weight = g.weights.w_input, .bias = g.weights.b_input};
    const attn_linear_gradients to_hidden = {.d_y = d_gates, .ld_dy = s.n_gates, .weight = g.weights.w_hidden,
                                             .bias = g.weights.b_hidden};
    attn_linear_run_backward(layers, &in, &to_in);
    attn_linear_run_backward(layers, &recurrent, &to_hidden);
    put_state(layers, &a, d_hidden, g.d_hidden0, g.flags);
    put_state(layers, &a, d_cell, g.d_cell0, g.flags);
    return ATTN_OK;
}

attn_status attn_rnn_backward(attn_layers *layers, const attn_rnn_args *args, const attn_rnn_gradients *gradients)
{
    return ATTN_LAYERS_CALL(layers, backward(layers, args, gradients));
}
