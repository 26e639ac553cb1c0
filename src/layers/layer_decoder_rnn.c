/* layer_decoder_rnn.c - a recurrent decoder that attends to an encoder's states. Each step's softmax and weighted sum are the
 * operator's: additive scores go in as its bias (queries and keys are then one zero), dot products as queries and keys. */
#include <string.h>
#include "layers/layer_rnn.h"

typedef struct decoder {
    attn_decoder_rnn_args a;
    rnn_steps s;
    bool additive;
    int64_t d_query; /* width of W_a h: d_align */
    void *inputs;    /* [batch * seq, d_in + d_state]: x_t and what was read */
    void *queries;   /* [batch * seq, d_align] */
    void *keys;      /* [batch * seq_states, d_align]: U_a s_j; additive */
    void *lse;       /* [seq, batch] */
    size_t bytes;
} decoder;

static void *take(char *base, size_t *used, int64_t count, int32_t dtype)
{
    char *at = base ? base + *used : NULL;
    *used += attn_padded_bytes(count, dtype);
    return at;
}

static void place(decoder *d, char *base)
{
    const attn_decoder_rnn_args *a = &d->a;
    const int64_t rows = a->batch * a->seq;
    const rnn_steps s = {.dtype = a->dtype, .kind = a->kind, .batch = a->batch, .seq = a->seq, .d_hidden = a->d_hidden,
                         .n_gates = attn_rnn_gates(a->kind, a->d_hidden), .w_hidden = a->weights.rnn.w_hidden,
                         .b_hidden = a->weights.rnn.b_hidden, .hidden0 = a->hidden0, .cell0 = a->cell0, .hidden = a->out};
    size_t used = 0;
    d->s = s;
    d->s.gates = take(base, &used, rows * s.n_gates, a->dtype);
    if (a->kind == ATTN_RNN_LSTM)
        d->s.cells = take(base, &used, rows * a->d_hidden, a->dtype);
    d->inputs = take(base, &used, rows * (a->d_in + a->d_state), a->dtype);
    d->queries = take(base, &used, rows * a->d_align, a->dtype);
    d->keys = d->additive ? take(base, &used, a->batch * a->seq_states * a->d_align, a->dtype) : NULL;
    d->lse = take(base, &used, rows, a->dtype);
    d->bytes = used ? used : 64;
}

static attn_status check(attn_layers *layers, decoder *d, const attn_decoder_rnn_args *args, bool sizes_only)
{
    attn_decoder_rnn_args *a = &d->a;
    memset(d, 0, sizeof *d);
    ATTN_TRY(attn_layers_args(layers, a, sizeof *a, args, "args"));
    ATTN_TRY(attn_layers_dtype(layers, a->dtype));
    ATTN_TRY(attn_rnn_kind_check(layers, a->kind));
    ATTN_TRY(attn_layers_size(layers, a->batch, "args.batch"));
    ATTN_TRY(attn_layers_size(layers, a->seq, "args.seq"));
    ATTN_TRY(attn_layers_size(layers, a->seq_states, "args.seq_states"));
    ATTN_TRY(attn_layers_size(layers, a->batch * a->seq, "args.batch * args.seq"));
    ATTN_TRY(attn_layers_size(layers, a->batch * a->seq_states, "args.batch * args.seq_states"));
    ATTN_TRY(attn_layers_width(layers, a->d_in, "args.d_in"));
    ATTN_TRY(attn_layers_width(layers, a->d_hidden, "args.d_hidden"));
    ATTN_TRY(attn_layers_width(layers, a->d_state, "args.d_state"));
    ATTN_TRY(attn_layers_width(layers, a->d_align, "args.d_align"));
    const attn_decoder_rnn_weights *w = &a->weights;
    d->additive = w->v_align != NULL;
    ATTN_LAYERS_REQUIRE(layers, !w->v_align == !w->w_align_key, "args.weights.v_align and w_align_key: both or neither");
    ATTN_LAYERS_REQUIRE(layers, w->w_align_query || a->d_align == a->d_hidden,
                        "args.d_align is %lld and d_hidden %lld: w_align_query is NULL (identity)", (long long)a->d_align,
                        (long long)a->d_hidden);
    ATTN_LAYERS_REQUIRE(layers, d->additive || a->d_align == a->d_state,
                        "args.d_align is %lld and d_state %lld: a dot product needs them equal", (long long)a->d_align,
                        (long long)a->d_state);
    ATTN_LAYERS_REQUIRE(layers, a->kind == ATTN_RNN_LSTM || (!a->cell0 && !a->cell_last),
                        "args.cell0 or cell_last is given, but args.kind %d has no cell", a->kind);
    for (int64_t b = 0; a->states_len && b < a->batch; b++)
        ATTN_LAYERS_REQUIRE(layers, a->states_len[b] >= 0 && a->states_len[b] <= a->seq_states,
                            "args.states_len[%lld] is %lld, seq_states is %lld", (long long)b, (long long)a->states_len[b],
                            (long long)a->seq_states);
    place(d, NULL);
    if (sizes_only)
        return ATTN_OK;
    const int64_t rows = a->batch * a->seq;
    ATTN_TRY(attn_layers_pointer(layers, a->x, rows, "args.x"));
    ATTN_TRY(attn_layers_pointer(layers, a->states, a->batch * a->seq_states, "args.states"));
    ATTN_TRY(attn_layers_pointer(layers, a->out, rows, "args.out"));
    ATTN_TRY(attn_layers_pointer(layers, w->rnn.w_input, rows, "args.weights.rnn.w_input"));
    return attn_layers_pointer(layers, w->rnn.w_hidden, rows, "args.weights.rnn.w_hidden");
}

static attn_status saved_bytes(attn_layers *layers, const attn_decoder_rnn_args *args, size_t *bytes)
{
    decoder d;
    ATTN_LAYERS_REQUIRE(layers, bytes, "bytes is NULL");
    ATTN_TRY(check(layers, &d, args, true));
    *bytes = d.bytes;
    return ATTN_OK;
}

attn_status attn_decoder_rnn_saved_bytes(attn_layers *layers, const attn_decoder_rnn_args *args, size_t *bytes)
{
    return ATTN_LAYERS_CALL(layers, saved_bytes(layers, args, bytes));
}

/* ---- one step ---- */

/* Scratch of the steps. */
typedef struct step_room {
    void *scores, *d_scores; /* [batch, seq_states] */
    void *zeros;             /* [batch, seq_states] */
    void *zero_hidden;       /* [batch, d_hidden] */
} step_room;

static attn_status make_room(attn_layers *layers, const decoder *d, step_room *room)
{
    const attn_decoder_rnn_args *a = &d->a;
    const int64_t n = a->batch * a->seq_states, size = a->dtype == ATTN_F64 ? 8 : 4;
    ATTN_TRY(attn_layers_scratch(layers, n, a->dtype, &room->scores));
    ATTN_TRY(attn_layers_scratch(layers, n, a->dtype, &room->d_scores));
    ATTN_TRY(attn_layers_scratch(layers, n + a->batch, a->dtype, &room->zeros));
    ATTN_TRY(attn_layers_scratch(layers, a->batch * a->d_hidden, a->dtype, &room->zero_hidden));
    memset(room->zeros, 0, (size_t)((n + a->batch) * size));
    memset(room->zero_hidden, 0, (size_t)(a->batch * a->d_hidden * size));
    return ATTN_OK;
}

static attn_cview cview(const void *data, int32_t dtype, int64_t batch, int64_t n, int64_t dim, int64_t batch_stride)
{
    attn_cview v = attn_cview_of(data, dtype, batch, 1, n, dim);
    v.stride[0] = batch_stride;
    return v;
}

static attn_view view(void *data, int32_t dtype, int64_t batch, int64_t n, int64_t dim, int64_t batch_stride)
{
    attn_view v = attn_view_of(data, dtype, batch, 1, n, dim);
    v.stride[0] = batch_stride;
    return v;
}

/* The operator's arguments at step t; scores are read with additive alignment. */
static void operator_args(const decoder *d, const step_room *room, int64_t t, attn_sdpa_args *s)
{
    const attn_decoder_rnn_args *a = &d->a;
    const int64_t width = a->d_in + a->d_state;
    ATTN_ARGS_INIT(s);
    s->flags = ATTN_SCALE_GIVEN, s->scale = 1;
    s->value = cview(a->states, a->dtype, a->batch, a->seq_states, a->d_state, a->seq_states * a->d_state);
    s->out = view(attn_at(d->inputs, a->dtype, t * width + a->d_in), a->dtype, a->batch, 1, a->d_state, a->seq * width);
    s->lse = attn_at(d->lse, a->dtype, t * a->batch);
    s->mask.kv_len = a->states_len;
    if (d->additive) {
        s->query = cview(room->zeros, a->dtype, a->batch, 1, 1, 1);
        s->key = cview(room->zeros, a->dtype, a->batch, a->seq_states, 1, a->seq_states);
        s->mask.bias = attn_cview_of(room->scores, a->dtype, a->batch, 1, 1, a->seq_states);
    } else {
        s->query = cview(attn_at(d->queries, a->dtype, t * a->d_align), a->dtype, a->batch, 1, a->d_align,
                         a->seq * a->d_align);
        s->key = s->value;
    }
}

static double number(const void *x, int32_t dtype, int64_t i)
{
    return dtype == ATTN_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

static void put(void *x, int32_t dtype, int64_t i, double value, bool add)
{
    if (dtype == ATTN_F64)
        ((double *)x)[i] = (add ? ((double *)x)[i] : 0) + value;
    else
        ((float *)x)[i] = (float)((add ? (double)((float *)x)[i] : 0) + value);
}

/* scores[b, j] = v . tanh(query + key_j); additive. */
static void score_all(const decoder *d, const step_room *room, int64_t t)
{
    const attn_decoder_rnn_args *a = &d->a;
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t j = 0; j < a->seq_states; j++) {
            const int64_t q = (b * a->seq + t) * a->d_align, k = (b * a->seq_states + j) * a->d_align;
            double sum = 0;
            for (int64_t i = 0; i < a->d_align; i++)
                sum += number(a->weights.v_align, a->dtype, i) *
                       attn_act_f64(ATTN_ACT_TANH, number(d->queries, a->dtype, q + i) + number(d->keys, a->dtype, k + i));
            put(room->scores, a->dtype, b * a->seq_states + j, sum, false);
        }
}

/* queries of step t = W_a h_{t-1} */
static void make_query(attn_layers *layers, const decoder *d, const step_room *room, int64_t t)
{
    const attn_decoder_rnn_args *a = &d->a;
    const int64_t h = a->d_hidden;
    const void *x = t ? attn_at(a->out, a->dtype, (t - 1) * h) : a->hidden0 ? a->hidden0 : room->zero_hidden;
    const int64_t ldx = t ? a->seq * h : h;
    void *y = attn_at(d->queries, a->dtype, t * a->d_align);
    const attn_linear_args linear = {.dtype = a->dtype, .rows = a->batch, .n_in = h, .n_out = a->d_align, .x = x,
                                     .ldx = ldx, .weight = a->weights.w_align_query, .y = y, .ldy = a->seq * a->d_align};
    if (a->weights.w_align_query)
        attn_linear_run_forward(layers, &linear);
    else
        attn_rows_copy(&layers->team, a->dtype, a->batch, h, x, ldx, y, a->seq * a->d_align);
}

static attn_status show_align(attn_layers *layers, const decoder *d, const attn_sdpa_args *s, int64_t t)
{
    const attn_decoder_rnn_args *a = &d->a;
    for (int64_t b = 0; b < a->batch; b++) {
        const attn_row row = {b, 0, 0};
        const attn_view weights = attn_view_of(attn_at(a->align, a->dtype, (b * a->seq + t) * a->seq_states), a->dtype, 1,
                                               1, 1, a->seq_states);
        ATTN_TRY(attn_layers_ctx_status(layers, attn_sdpa_rows(layers->ctx, s, &row, 1, &weights)));
    }
    return ATTN_OK;
}

static attn_status step(attn_layers *layers, const decoder *d, const step_room *room, int64_t t)
{
    const attn_decoder_rnn_args *a = &d->a;
    const int64_t width = a->d_in + a->d_state;
    attn_sdpa_args s;
    make_query(layers, d, room, t);
    if (d->additive)
        score_all(d, room, t);
    operator_args(d, room, t, &s);
    ATTN_TRY(attn_layers_ctx_status(layers, attn_sdpa_forward(layers->ctx, &s, NULL, 0)));
    if (a->align && a->seq_states)
        ATTN_TRY(show_align(layers, d, &s, t));
    const attn_linear_args in = {.dtype = a->dtype, .rows = a->batch, .n_in = width, .n_out = d->s.n_gates,
                                 .x = attn_at(d->inputs, a->dtype, t * width), .ldx = a->seq * width,
                                 .weight = a->weights.rnn.w_input, .bias = a->weights.rnn.b_input,
                                 .y = attn_at(d->s.gates, a->dtype, t * d->s.n_gates), .ldy = a->seq * d->s.n_gates};
    attn_linear_run_forward(layers, &in);
    attn_rnn_step(layers, &d->s, t);
    return ATTN_OK;
}

static void last_state(const attn_layers *layers, const attn_decoder_rnn_args *a, const void *rows, const void *start, void *to)
{
    const int64_t n = a->d_hidden;
    if (to && a->seq)
        attn_rnn_take(layers, a->dtype, a->batch, n, attn_at(rows, a->dtype, (a->seq - 1) * n), a->seq * n, to, n, false);
    else if (to && start)
        attn_rnn_take(layers, a->dtype, a->batch, n, start, n, to, n, false);
    else if (to)
        memset(to, 0, (size_t)(a->batch * n) * (a->dtype == ATTN_F64 ? 8 : 4));
}

static attn_status forward(attn_layers *layers, const attn_decoder_rnn_args *args)
{
    decoder d;
    step_room room;
    ATTN_TRY(check(layers, &d, args, false));
    const attn_decoder_rnn_args *a = &d.a;
    const int64_t rows = a->batch * a->seq, width = a->d_in + a->d_state;
    void *base = a->saved;
    if (!base)
        ATTN_TRY(attn_layers_scratch(layers, (int64_t)d.bytes / 4, ATTN_F32, &base));
    place(&d, base);
    ATTN_TRY(make_room(layers, &d, &room));
    d.s.zero = room.zero_hidden;
    ATTN_TRY(attn_rnn_pack(layers, &d.s, 1));
    attn_rows_copy(&layers->team, a->dtype, rows, a->d_in, a->x, a->d_in, d.inputs, width);
    const attn_linear_args keys = {.dtype = a->dtype, .rows = a->batch * a->seq_states, .n_in = a->d_state,
                                   .n_out = a->d_align, .x = a->states, .ldx = a->d_state,
                                   .weight = a->weights.w_align_key, .y = d.keys, .ldy = a->d_align};
    if (d.additive)
        attn_linear_run_forward(layers, &keys);
    for (int64_t t = 0; t < a->seq; t++)
        ATTN_TRY(step(layers, &d, &room, t));
    if (a->context)
        attn_rows_copy(&layers->team, a->dtype, rows, a->d_state, attn_at(d.inputs, a->dtype, a->d_in), width, a->context,
                       a->d_state);
    last_state(layers, a, a->out, a->hidden0, a->hidden_last);
    last_state(layers, a, d.s.cells, a->cell0, a->cell_last);
    return ATTN_OK;
}

attn_status attn_decoder_rnn_forward(attn_layers *layers, const attn_decoder_rnn_args *args)
{
    return ATTN_LAYERS_CALL(layers, forward(layers, args));
}

/* ---- backward ---- */

typedef struct back_room {
    step_room step;
    void *d_hidden, *d_cell; /* [batch, d_hidden] */
    void *d_gates;           /* [batch * seq, n_gates] */
    void *d_inputs;          /* [batch * seq, d_in + d_state] */
    void *d_queries;         /* [batch * seq, d_align] */
    void *d_keys;            /* [batch * seq_states, d_align]; additive */
    void *d_states;          /* [batch * seq_states, d_state] */
    void *d_v;               /* [d_align] */
} back_room;

static attn_status zeroed(attn_layers *layers, int64_t count, int32_t dtype, const void *given, void **out)
{
    const size_t bytes = (size_t)count * (dtype == ATTN_F64 ? 8 : 4);
    ATTN_TRY(attn_layers_scratch(layers, count, dtype, out));
    if (given)
        memcpy(*out, given, bytes);
    else
        memset(*out, 0, bytes);
    return ATTN_OK;
}

/* From d_scores: gradients of the query, the keys and v; additive. */
static void score_back(const decoder *d, const back_room *room, int64_t t)
{
    const attn_decoder_rnn_args *a = &d->a;
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t j = 0; j < a->seq_states; j++) {
            const int64_t q = (b * a->seq + t) * a->d_align, k = (b * a->seq_states + j) * a->d_align;
            const double d_score = number(room->step.d_scores, a->dtype, b * a->seq_states + j);
            for (int64_t i = 0; i < a->d_align; i++) {
                const double y = attn_act_f64(ATTN_ACT_TANH, number(d->queries, a->dtype, q + i) +
                                                                 number(d->keys, a->dtype, k + i));
                const double to_sum = d_score * number(a->weights.v_align, a->dtype, i) * (1 - y * y);
                put(room->d_queries, a->dtype, q + i, to_sum, true);
                put(room->d_keys, a->dtype, k + i, to_sum, true);
                put(room->d_v, a->dtype, i, d_score * y, true);
            }
        }
}

static attn_status attention_back(attn_layers *layers, const decoder *d, const back_room *room, int64_t t)
{
    const attn_decoder_rnn_args *a = &d->a;
    const int64_t width = a->d_in + a->d_state, n = a->batch * a->seq_states;
    attn_sdpa_args s;
    attn_sdpa_backward_args b;
    if (d->additive)
        score_all(d, &room->step, t);
    operator_args(d, &room->step, t, &s);
    ATTN_ARGS_INIT(&b);
    b.forward = &s;
    b.flags = ATTN_GRAD_ACCUMULATE;
    b.d_out = cview(attn_at(room->d_inputs, a->dtype, t * width + a->d_in), a->dtype, a->batch, 1, a->d_state,
                    a->seq * width);
    b.d_value = view(room->d_states, a->dtype, a->batch, a->seq_states, a->d_state, a->seq_states * a->d_state);
    if (d->additive) {
        memset(room->step.d_scores, 0, (size_t)n * (a->dtype == ATTN_F64 ? 8 : 4));
        b.d_bias = attn_view_of(room->step.d_scores, a->dtype, a->batch, 1, 1, a->seq_states);
        ATTN_TRY(attn_layers_ctx_status(layers, attn_sdpa_backward(layers->ctx, &b, NULL, 0)));
        score_back(d, room, t);
        return ATTN_OK;
    }
    void *d_key = NULL; /* keys are the values: their gradient apart, then joined */
    const attn_arena_mark mark = attn_layers_mark(layers);
    ATTN_TRY(zeroed(layers, n * a->d_state, a->dtype, NULL, &d_key));
    b.d_key = view(d_key, a->dtype, a->batch, a->seq_states, a->d_state, a->seq_states * a->d_state);
    b.d_query = view(attn_at(room->d_queries, a->dtype, t * a->d_align), a->dtype, a->batch, 1, a->d_align,
                     a->seq * a->d_align);
    ATTN_TRY(attn_layers_ctx_status(layers, attn_sdpa_backward(layers->ctx, &b, NULL, 0)));
    attn_rows_add(&layers->team, a->dtype, n, a->d_state, d_key, a->d_state, room->d_states, a->d_state);
    attn_layers_release(layers, mark);
    return ATTN_OK;
}

/* One step back: through the cell, the input, what was read, and the query to h_{t-1}. */
static attn_status step_back(attn_layers *layers, const decoder *d, const back_room *room,
                             const attn_decoder_rnn_gradients *g, int64_t t)
{
    const attn_decoder_rnn_args *a = &d->a;
    const int64_t width = a->d_in + a->d_state, h = a->d_hidden;
    if (g->d_out)
        attn_rnn_take(layers, a->dtype, a->batch, h, attn_at(g->d_out, a->dtype, t * h), a->seq * h, room->d_hidden, h, true);
    attn_rnn_step_back(layers, &d->s, t, room->d_hidden, room->d_cell, room->d_gates);
    const attn_gemm_args to_in = {.dtype = a->dtype, .kind = ATTN_GEMM_NN, .m = a->batch, .n = width, .k = d->s.n_gates,
                                  .a = attn_at(room->d_gates, a->dtype, t * d->s.n_gates), .lda = a->seq * d->s.n_gates,
                                  .b = a->weights.rnn.w_input, .ldb = width,
                                  .c = attn_at(room->d_inputs, a->dtype, t * width), .ldc = a->seq * width};
    attn_gemm(&layers->team, &to_in);
    if (g->d_context)
        attn_rows_add(&layers->team, a->dtype, a->batch, a->d_state, attn_at(g->d_context, a->dtype, t * a->d_state),
                      a->seq * a->d_state, attn_at(room->d_inputs, a->dtype, t * width + a->d_in), a->seq * width);
    ATTN_TRY(attention_back(layers, d, room, t));
    const void *d_query = attn_at(room->d_queries, a->dtype, t * a->d_align);
    const attn_gemm_args to_hidden = {.dtype = a->dtype, .kind = ATTN_GEMM_NN, .m = a->batch, .n = h, .k = a->d_align,
                                      .a = d_query, .lda = a->seq * a->d_align, .b = a->weights.w_align_query, .ldb = h,
                                      .c = room->d_hidden, .ldc = h, .accumulate = 1};
    if (a->weights.w_align_query)
        attn_gemm(&layers->team, &to_hidden);
    else
        attn_rows_add(&layers->team, a->dtype, a->batch, h, d_query, a->seq * a->d_align, room->d_hidden, h);
    return ATTN_OK;
}

/* Gradients of all weights, once the rows of all steps are there. */
static attn_status weights_back(attn_layers *layers, const decoder *d, const back_room *room,
                                const attn_decoder_rnn_gradients *g)
{
    const attn_decoder_rnn_args *a = &d->a;
    const int64_t rows = a->batch * a->seq, width = a->d_in + a->d_state, h = a->d_hidden, n = a->batch * a->seq_states;
    const attn_decoder_rnn_weight_gradients *w = &g->weights;
    void *before = NULL;
    ATTN_TRY(attn_rnn_hidden_before(layers, &d->s, &before));
    const attn_linear_args in = {.dtype = a->dtype, .rows = rows, .n_in = width, .n_out = d->s.n_gates, .x = d->inputs, .ldx = width};
    const attn_linear_args recurrent = {.dtype = a->dtype, .rows = rows, .n_in = h, .n_out = d->s.n_gates, .x = before, .ldx = h};
    const attn_linear_args query = {.dtype = a->dtype, .rows = rows, .n_in = h, .n_out = a->d_align, .x = before, .ldx = h};
    const attn_linear_args key = {.dtype = a->dtype, .rows = n, .n_in = a->d_state, .n_out = a->d_align, .x = a->states,
                                  .ldx = a->d_state, .weight = a->weights.w_align_key};
    const attn_linear_gradients to_in = {.d_y = room->d_gates, .ld_dy = d->s.n_gates, .weight = w->rnn.w_input,
                                         .bias = w->rnn.b_input};
    const attn_linear_gradients to_recurrent = {.d_y = room->d_gates, .ld_dy = d->s.n_gates, .weight = w->rnn.w_hidden,
                                                .bias = w->rnn.b_hidden};
    const attn_linear_gradients to_query = {.d_y = room->d_queries, .ld_dy = a->d_align, .weight = w->w_align_query};
    const attn_linear_gradients to_key = {.flags = ATTN_GRAD_ACCUMULATE, .d_y = room->d_keys, .ld_dy = a->d_align,
                                          .d_x = room->d_states, .ld_dx = a->d_state, .weight = w->w_align_key};
    attn_linear_run_backward(layers, &in, &to_in);
    attn_linear_run_backward(layers, &recurrent, &to_recurrent);
    attn_linear_run_backward(layers, &query, &to_query);
    if (d->additive)
        attn_linear_run_backward(layers, &key, &to_key);
    if (d->additive && w->v_align)
        attn_rows_add(&layers->team, a->dtype, 1, a->d_align, room->d_v, a->d_align, w->v_align, a->d_align);
    return ATTN_OK;
}

static attn_status backward(attn_layers *layers, const attn_decoder_rnn_args *args,
                            const attn_decoder_rnn_gradients *gradients)
{
    decoder d;
    attn_decoder_rnn_gradients g;
    back_room room;
    memset(&room, 0, sizeof room);
    ATTN_TRY(check(layers, &d, args, false));
    ATTN_TRY(attn_layers_args(layers, &g, sizeof g, gradients, "gradients"));
    ATTN_TRY(attn_layers_flags(layers, g.flags, ATTN_GRAD_ACCUMULATE, "gradients.flags"));
    const attn_decoder_rnn_args *a = &d.a;
    const int64_t rows = a->batch * a->seq, n = a->batch * a->seq_states, width = a->d_in + a->d_state, h = a->d_hidden;
    ATTN_TRY(attn_layers_pointer(layers, a->saved, rows, "args.saved"));
    place(&d, a->saved);
    ATTN_TRY(make_room(layers, &d, &room.step));
    ATTN_TRY(zeroed(layers, a->batch * h, a->dtype, g.d_hidden_last, &room.d_hidden));
    ATTN_TRY(zeroed(layers, a->batch * h, a->dtype, g.d_cell_last, &room.d_cell));
    ATTN_TRY(attn_layers_scratch(layers, rows * d.s.n_gates, a->dtype, &room.d_gates));
    ATTN_TRY(attn_layers_scratch(layers, rows * width, a->dtype, &room.d_inputs));
    ATTN_TRY(zeroed(layers, rows * a->d_align, a->dtype, NULL, &room.d_queries));
    ATTN_TRY(zeroed(layers, n * a->d_align, a->dtype, NULL, &room.d_keys));
    ATTN_TRY(zeroed(layers, n * a->d_state, a->dtype, NULL, &room.d_states));
    ATTN_TRY(zeroed(layers, a->d_align, a->dtype, NULL, &room.d_v));
    ATTN_TRY(attn_rnn_pack(layers, &d.s, 0));
    for (int64_t t = a->seq - 1; t >= 0; t--)
        ATTN_TRY(step_back(layers, &d, &room, &g, t));
    ATTN_TRY(weights_back(layers, &d, &room, &g));
    const bool add = (g.flags & ATTN_GRAD_ACCUMULATE) != 0;
    if (g.d_x)
        attn_rnn_take(layers, a->dtype, rows, a->d_in, room.d_inputs, width, g.d_x, a->d_in, add);
    if (g.d_states)
        attn_rnn_take(layers, a->dtype, n, a->d_state, room.d_states, a->d_state, g.d_states, a->d_state, add);
    if (g.d_hidden0)
        attn_rnn_take(layers, a->dtype, a->batch, h, room.d_hidden, h, g.d_hidden0, h, add);
    if (g.d_cell0)
        attn_rnn_take(layers, a->dtype, a->batch, h, room.d_cell, h, g.d_cell0, h, add);
    return ATTN_OK;
}

attn_status attn_decoder_rnn_backward(attn_layers *layers, const attn_decoder_rnn_args *args,
                                      const attn_decoder_rnn_gradients *gradients)
{
    return ATTN_LAYERS_CALL(layers, backward(layers, args, gradients));
}
