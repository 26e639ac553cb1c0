/* Each layer: gradients against finite differences, f32 against f64, equal bits for any threads, failing allocations. */
#include "layers/layer_world.h"

/* ---- rows ---- */

static void linear_case(world *w)
{
    attn_linear_args a;
    attn_linear_gradients g;
    ATTN_ARGS_INIT(&a);
    ATTN_ARGS_INIT(&g);
    a.dtype = w->dtype, a.rows = 70, a.n_in = 19, a.n_out = 37;
    a.ldx = 20;
    a.x = input(w, 70 * 20, 1), g.d_x = gradient(w), g.ld_dx = 20;
    /* the gap is no input of the layer */
    for (int r = 0; w->backward && r < 70; r++)
        w->dtype == ATTN_F64 ? (void)(((double *)g.d_x)[r * 20 + 19] = 0) : (void)(((float *)g.d_x)[r * 20 + 19] = 0);
    a.weight = weight(w, 37 * 19, 1), g.weight = gradient(w);
    a.bias = weight(w, 37, 1), g.bias = gradient(w);
    a.y = output(w, 70 * 37), g.d_y = d_output(w);
    WORLD_CALL(w, attn_linear_forward(w->layers, &a));
    if (w->backward)
        WORLD_CALL(w, attn_linear_backward(w->layers, &a, &g));
}

static void activation(world *w, int32_t act, int gated)
{
    attn_activation_args a;
    attn_activation_gradients g;
    ATTN_ARGS_INIT(&a);
    ATTN_ARGS_INIT(&g);
    a.dtype = w->dtype, a.act = act, a.n = 5003;
    a.x = input(w, a.n, 4), g.d_x = gradient(w);
    if (gated)
        a.up = input(w, a.n, 1), g.d_up = gradient(w);
    a.y = output(w, a.n), g.d_y = d_output(w);
    WORLD_CALL(w, attn_activation_forward(w->layers, &a));
    if (w->backward)
        WORLD_CALL(w, attn_activation_backward(w->layers, &a, &g));
}

static void relu_case(world *w) { activation(w, ATTN_ACT_RELU, 0); }
static void silu_case(world *w) { activation(w, ATTN_ACT_SILU, 0); }
static void gelu_erf_case(world *w) { activation(w, ATTN_ACT_GELU_ERF, 0); }
static void gelu_tanh_case(world *w) { activation(w, ATTN_ACT_GELU_TANH, 0); }
static void gelu_quick_case(world *w) { activation(w, ATTN_ACT_GELU_QUICK, 0); }
static void tanh_case(world *w) { activation(w, ATTN_ACT_TANH, 0); }
static void swiglu_case(world *w) { activation(w, ATTN_ACT_SILU, 1); }
static void geglu_case(world *w) { activation(w, ATTN_ACT_GELU_ERF, 1); }

static void norm(world *w, int32_t kind, double offset, int with_weight)
{
    attn_norm_args a;
    attn_norm_gradients g;
    ATTN_ARGS_INIT(&a);
    ATTN_ARGS_INIT(&g);
    a.dtype = w->dtype, a.kind = kind, a.rows = 131, a.n = 21, a.eps = 1e-5, a.offset = offset;
    a.x = input(w, a.rows * a.n, 2), g.d_x = gradient(w);
    if (with_weight)
        a.weight = weight(w, a.n, 1), g.weight = gradient(w);
    if (with_weight && kind == ATTN_NORM_LAYER)
        a.bias = weight(w, a.n, 1), g.bias = gradient(w);
    a.y = output(w, a.rows * a.n), g.d_y = d_output(w);
    WORLD_CALL(w, attn_norm_forward(w->layers, &a));
    if (w->backward)
        WORLD_CALL(w, attn_norm_backward(w->layers, &a, &g));
}

static void layer_norm_case(world *w) { norm(w, ATTN_NORM_LAYER, 0, 1); }
static void layer_norm_plain_case(world *w) { norm(w, ATTN_NORM_LAYER, 0, 0); }
static void rms_norm_case(world *w) { norm(w, ATTN_NORM_RMS, 0, 1); }
static void rms_norm_offset_case(world *w) { norm(w, ATTN_NORM_RMS, 1, 1); }
static void rms_norm_plain_case(world *w) { norm(w, ATTN_NORM_RMS, 0, 0); }

static void residual_case(world *w)
{
    attn_residual_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = w->dtype, a.n = 9001, a.dropout_p = 0.3, a.dropout_seed = 42;
    a.x = input(w, a.n, 1);
    void *d_x = gradient(w);
    a.residual = input(w, a.n, 1);
    void *d_residual = gradient(w);
    a.y = output(w, a.n);
    WORLD_CALL(w, attn_residual_forward(w->layers, &a));
    if (w->backward) {
        WORLD_CALL(w, attn_residual_backward(w->layers, &a, d_output(w), d_x, 0));
        memcpy(d_residual, d_output(w), (size_t)a.n * (w->dtype == ATTN_F64 ? 8 : 4));
    }
}

static void embedding_case(world *w)
{
    static const int32_t ids[12] = {3, 1, 3, 0, 6, 3, 2, 2, 5, 3, 1, 0}, types[12] = {0, 0, 1, 1, 0, 1, 0, 1, 1, 0, 0, 0};
    attn_embedding_args a;
    attn_embedding_gradients g;
    ATTN_ARGS_INIT(&a);
    ATTN_ARGS_INIT(&g);
    a.dtype = w->dtype, a.rows = 12, a.seq = 4, a.d_model = 37, a.vocab = 7, a.ids = ids, a.scale = 6;
    a.position_offset = 1, a.sinusoidal = 1;
    a.table = weight(w, 7 * 37, 1), g.table = gradient(w);
    a.position_table = weight(w, 5 * 37, 1), g.position_table = gradient(w), a.n_positions = 5;
    a.type_table = weight(w, 2 * 37, 1), g.type_table = gradient(w), a.n_types = 2, a.type_ids = types;
    a.y = output(w, 12 * 37), g.d_y = d_output(w);
    WORLD_CALL(w, attn_embedding_forward(w->layers, &a));
    if (w->backward)
        WORLD_CALL(w, attn_embedding_backward(w->layers, &a, &g));
}

/* ---- attention ---- */

typedef struct mha_options {
    int64_t seq_q, seq_kv, n_heads, n_kv_heads, head_dim, value_dim, d_query, d_key, d_value, d_out;
    int cross, separate_value, weights, out, bias, extra, add_zero, rope, causal, dropout, together, sinks;
} mha_options;

static void mha(world *w, const mha_options *o)
{
    attn_mha_args a;
    attn_mha_gradients g;
    attn_rope_args rope;
    size_t bytes = 0;
    ATTN_ARGS_INIT(&a);
    ATTN_ARGS_INIT(&g);
    const int64_t kv = o->n_kv_heads ? o->n_kv_heads : o->n_heads, hd = o->head_dim, vd = o->value_dim;
    const int64_t dk = o->d_key ? o->d_key : o->d_query, dv = o->d_value ? o->d_value : dk;
    a.dtype = w->dtype, a.batch = 2, a.seq_q = o->seq_q, a.seq_kv = o->seq_kv;
    a.d_query = o->d_query, a.d_key = o->d_key, a.d_value = o->d_value;
    a.n_heads = o->n_heads, a.n_kv_heads = o->n_kv_heads, a.head_dim = hd, a.value_dim = vd, a.d_out = o->d_out;
    a.query = input(w, 2 * o->seq_q * o->d_query, 1), g.d_query = gradient(w);
    if (o->cross)
        a.key = input(w, 2 * o->seq_kv * dk, 1), g.d_key = gradient(w);
    if (o->separate_value)
        a.value = input(w, 2 * o->seq_kv * dv, 1), g.d_value = gradient(w);
    if (o->together) { /* one matrix of three */
        const int64_t q = o->n_heads * hd, k = kv * hd, v = kv * vd, size = w->dtype == ATTN_F64 ? 8 : 4;
        char *m = weight(w, (q + k + v) * o->d_query, 0.4), *dm = gradient(w);
        a.weights.w_query = m, a.weights.w_key = m + q * o->d_query * size;
        a.weights.w_value = m + (q + k) * o->d_query * size;
        g.weights.w_query = dm, g.weights.w_key = dm + q * o->d_query * size;
        g.weights.w_value = dm + (q + k) * o->d_query * size;
    } else if (o->weights) {
        a.weights.w_query = weight(w, o->n_heads * hd * o->d_query, 0.4), g.weights.w_query = gradient(w);
        a.weights.w_key = weight(w, kv * hd * dk, 0.4), g.weights.w_key = gradient(w);
        a.weights.w_value = weight(w, kv * vd * dv, 0.4), g.weights.w_value = gradient(w);
    }
    if (o->bias) {
        a.weights.b_query = weight(w, o->n_heads * hd, 1), g.weights.b_query = gradient(w);
        a.weights.b_key = weight(w, kv * hd, 1), g.weights.b_key = gradient(w);
        a.weights.b_value = weight(w, kv * vd, 1), g.weights.b_value = gradient(w);
    }
    const int64_t d_out = o->d_out ? o->d_out : o->out ? o->d_query : o->n_heads * vd;
    if (o->out)
        a.weights.w_out = weight(w, d_out * o->n_heads * vd, 0.4), g.weights.w_out = gradient(w);
    if (o->out && o->bias)
        a.weights.b_out = weight(w, d_out, 1), g.weights.b_out = gradient(w);
    if (o->extra) {
        a.weights.bias_k = weight(w, kv * hd, 1), g.weights.bias_k = gradient(w);
        a.weights.bias_v = weight(w, kv * vd, 1), g.weights.bias_v = gradient(w);
    }
    if (o->add_zero)
        a.flags |= ATTN_MHA_ADD_ZERO;
    if (o->rope) {
        ATTN_ARGS_INIT(&rope);
        rope.position_offset = 3;
        a.rope = &rope;
    }
    if (o->causal)
        a.mask.flags = ATTN_MASK_CAUSAL | ATTN_MASK_OFFSET, a.mask.query_offset = (o->seq_kv ? o->seq_kv : o->seq_q) - o->seq_q;
    if (o->dropout)
        a.dropout_p = 0.25, a.dropout_seed = 7;
    a.out = output(w, 2 * o->seq_q * d_out), g.d_out = d_output(w);
    WORLD_CALL(w, attn_mha_saved_bytes(w->layers, &a, &bytes));
    if (w->backward)
        a.saved = saved_memory(w, bytes);
    WORLD_CALL(w, attn_mha_forward(w->layers, &a));
    if (w->backward)
        WORLD_CALL(w, attn_mha_backward(w->layers, &a, &g));
}

static void lookup_case(world *w)
{
    mha(w, &(mha_options){.seq_q = 7, .n_heads = 1, .head_dim = 5, .value_dim = 5, .d_query = 5, .causal = 1});
}

static void one_head_case(world *w)
{
    mha(w, &(mha_options){.seq_q = 6, .n_heads = 1, .head_dim = 4, .value_dim = 3, .d_query = 8, .weights = 1});
}

static void one_head_out_case(world *w)
{
    mha(w, &(mha_options){.seq_q = 6, .n_heads = 1, .head_dim = 4, .value_dim = 3, .d_query = 8, .weights = 1, .out = 1,
                          .bias = 1, .causal = 1});
}

static void many_heads_case(world *w)
{
    mha(w, &(mha_options){.seq_q = 9, .n_heads = 4, .head_dim = 6, .value_dim = 6, .d_query = 24, .weights = 1, .out = 1,
                          .bias = 1, .causal = 1, .rope = 1});
}

static void together_case(world *w)
{
    mha(w, &(mha_options){.seq_q = 9, .n_heads = 4, .n_kv_heads = 2, .head_dim = 6, .value_dim = 4, .d_query = 10,
                          .together = 1, .out = 1, .causal = 1, .rope = 1});
}

static void cross_case(world *w)
{
    mha(w, &(mha_options){.seq_q = 5, .seq_kv = 8, .n_heads = 2, .head_dim = 4, .value_dim = 4, .d_query = 7, .d_key = 9,
                          .cross = 1, .weights = 1, .out = 1, .bias = 1});
}

static void three_inputs_case(world *w)
{
    mha(w, &(mha_options){.seq_q = 5, .seq_kv = 8, .n_heads = 2, .head_dim = 4, .value_dim = 5, .d_query = 7, .d_key = 9,
                          .d_value = 6, .d_out = 3, .cross = 1, .separate_value = 1, .weights = 1, .out = 1,
                          .causal = 1});
}

static void extra_keys_case(world *w)
{
    mha(w, &(mha_options){.seq_q = 5, .n_heads = 2, .head_dim = 4, .value_dim = 4, .d_query = 8, .weights = 1, .out = 1,
                          .bias = 1, .extra = 1, .add_zero = 1, .causal = 1});
}

static void extra_keys_open_case(world *w)
{
    mha(w, &(mha_options){.seq_q = 5, .n_heads = 2, .head_dim = 4, .value_dim = 4, .d_query = 8, .weights = 1, .out = 1,
                          .bias = 1, .extra = 1, .add_zero = 1, .rope = 1});
}

static void extra_keys_cross_case(world *w)
{
    mha(w, &(mha_options){.seq_q = 5, .seq_kv = 8, .n_heads = 2, .head_dim = 4, .value_dim = 4, .d_query = 7, .d_key = 9,
                          .cross = 1, .weights = 1, .out = 1, .extra = 1});
}

static void attention_dropout_case(world *w)
{
    mha(w, &(mha_options){.seq_q = 9, .n_heads = 2, .head_dim = 4, .value_dim = 4, .d_query = 8, .weights = 1, .out = 1,
                          .dropout = 1, .add_zero = 1});
}

/* ---- feed-forward and blocks ---- */

static void ffn(world *w, int32_t act, int gated, double dropout)
{
    attn_ffn_args a;
    attn_ffn_gradients g;
    size_t bytes = 0;
    ATTN_ARGS_INIT(&a);
    ATTN_ARGS_INIT(&g);
    a.dtype = w->dtype, a.act = act, a.rows = 13, a.d_model = 9, a.d_ff = 22, a.dropout_p = dropout, a.dropout_seed = 5;
    a.x = input(w, 13 * 9, 1), g.d_x = gradient(w);
    a.weights.w_up = weight(w, 22 * 9, 0.5), g.weights.w_up = gradient(w);
    a.weights.b_up = weight(w, 22, 0.5), g.weights.b_up = gradient(w);
    if (gated) {
        a.weights.w_gate = weight(w, 22 * 9, 0.5), g.weights.w_gate = gradient(w);
        a.weights.b_gate = weight(w, 22, 0.5), g.weights.b_gate = gradient(w);
    }
    a.weights.w_down = weight(w, 9 * 22, 0.5), g.weights.w_down = gradient(w);
    a.weights.b_down = weight(w, 9, 0.5), g.weights.b_down = gradient(w);
    a.y = output(w, 13 * 9), g.d_y = d_output(w);
    WORLD_CALL(w, attn_ffn_saved_bytes(w->layers, &a, &bytes));
    if (w->backward)
        a.saved = saved_memory(w, bytes);
    WORLD_CALL(w, attn_ffn_forward(w->layers, &a));
    if (w->backward)
        WORLD_CALL(w, attn_ffn_backward(w->layers, &a, &g));
}

static void ffn_gelu_case(world *w) { ffn(w, ATTN_ACT_GELU_TANH, 0, 0); }
static void ffn_swiglu_case(world *w) { ffn(w, ATTN_ACT_SILU, 1, 0); }
static void ffn_dropout_case(world *w) { ffn(w, ATTN_ACT_GELU_ERF, 0, 0.4); }

static void block_attention(world *w, int64_t d, int64_t d_key, attn_mha_weights *m, attn_mha_weight_gradients *g)
{
    m->w_query = weight(w, d * d, 0.4), g->w_query = gradient(w);
    m->w_key = weight(w, d * d_key, 0.4), g->w_key = gradient(w);
    m->w_value = weight(w, d * d_key, 0.4), g->w_value = gradient(w);
    m->w_out = weight(w, d * d, 0.4), g->w_out = gradient(w);
    m->b_out = weight(w, d, 0.4), g->b_out = gradient(w);
}

static void block(world *w, int32_t place, int32_t kind, int cross, double dropout, int accumulate)
{
    attn_block_args a;
    attn_block_gradients g;
    size_t bytes = 0;
    const int64_t d = 12, rows = 10;
    ATTN_ARGS_INIT(&a);
    ATTN_ARGS_INIT(&g);
    a.dtype = w->dtype, a.place = place, a.norm_kind = kind, a.act = ATTN_ACT_GELU_ERF;
    a.batch = 2, a.seq = 5, a.d_model = d, a.d_ff = 20, a.n_heads = 3;
    a.mask.flags = ATTN_MASK_CAUSAL;
    a.dropout_p = a.attention_dropout_p = a.ffn_dropout_p = dropout, a.dropout_seed = 11;
    a.x = accumulate ? weight(w, rows * d, 1) : input(w, rows * d, 1);
    g.d_x = gradient(w), g.flags = accumulate ? ATTN_GRAD_ACCUMULATE : 0;
    if (cross) {
        a.memory = accumulate ? weight(w, 2 * 7 * 8, 1) : input(w, 2 * 7 * 8, 1);
        g.d_memory = gradient(w), a.seq_memory = 7, a.d_memory = 8;
    }
    const void **norms[3][2] = {{&a.weights.norm1_weight, &a.weights.norm1_bias},
                                {&a.weights.norm2_weight, &a.weights.norm2_bias},
                                {&a.weights.norm_cross_weight, &a.weights.norm_cross_bias}};
    void **d_norms[3][2] = {{&g.weights.norm1_weight, &g.weights.norm1_bias},
                            {&g.weights.norm2_weight, &g.weights.norm2_bias},
                            {&g.weights.norm_cross_weight, &g.weights.norm_cross_bias}};
    for (int i = 0; i < (cross ? 3 : 2); i++)
        for (int j = 0; j < (kind == ATTN_NORM_LAYER ? 2 : 1); j++) {
            *norms[i][j] = weight(w, d, 1);
            *d_norms[i][j] = gradient(w);
        }
    block_attention(w, d, d, &a.weights.attention, &g.weights.attention);
    if (cross)
        block_attention(w, d, 8, &a.weights.cross, &g.weights.cross);
    a.weights.ffn.w_up = weight(w, 20 * d, 0.4), g.weights.ffn.w_up = gradient(w);
    a.weights.ffn.w_down = weight(w, 20 * d, 0.4), g.weights.ffn.w_down = gradient(w);
    a.weights.ffn.b_down = weight(w, d, 0.4), g.weights.ffn.b_down = gradient(w);
    a.y = output(w, rows * d), g.d_y = d_output(w);
    WORLD_CALL(w, attn_block_saved_bytes(w->layers, &a, &bytes));
    if (w->backward)
        a.saved = saved_memory(w, bytes);
    WORLD_CALL(w, attn_block_forward(w->layers, &a));
    if (w->backward)
        WORLD_CALL(w, attn_block_backward(w->layers, &a, &g));
}

static void block_pre_case(world *w) { block(w, ATTN_BLOCK_PRE_NORM, ATTN_NORM_LAYER, 0, 0, 0); }
static void block_post_case(world *w) { block(w, ATTN_BLOCK_POST_NORM, ATTN_NORM_LAYER, 0, 0, 0); }
static void block_pre_cross_case(world *w) { block(w, ATTN_BLOCK_PRE_NORM, ATTN_NORM_RMS, 1, 0.2, 1); }
static void block_post_cross_case(world *w) { block(w, ATTN_BLOCK_POST_NORM, ATTN_NORM_LAYER, 1, 0.2, 0); }

/* ---- loss: its one number is the output, its gradient scale the gradient of it ---- */

static void loss(world *w, int with_weight, double smoothing)
{
    static const int32_t targets[9] = {3, 0, -100, 10, 3, 3, -100, 7, 1};
    attn_cross_entropy_args a;
    attn_cross_entropy_gradients g;
    double sum = 0;
    ATTN_ARGS_INIT(&a);
    ATTN_ARGS_INIT(&g);
    a.dtype = w->dtype, a.rows = 9, a.d_model = with_weight ? 6 : 11, a.vocab = 11, a.targets = targets, a.ignore_index = -100;
    a.label_smoothing = smoothing, a.loss = &sum;
    a.x = input(w, 9 * a.d_model, 2), g.d_x = gradient(w);
    if (with_weight) {
        a.weight = weight(w, 11 * 6, 1), g.weight = gradient(w);
        a.bias = weight(w, 11, 1), g.bias = gradient(w);
    }
    void *y = output(w, 1);
    a.gradient_scale = w->dtype == ATTN_F64 ? *(const double *)d_output(w) : (double)*(const float *)d_output(w);
    WORLD_CALL(w, attn_cross_entropy(w->layers, &a, w->backward ? &g : NULL));
    if (w->dtype == ATTN_F64)
        *(double *)y = sum;
    else
        *(float *)y = (float)sum;
}

static void loss_case(world *w) { loss(w, 1, 0); }
static void loss_smoothed_case(world *w) { loss(w, 1, 0.1); }
static void loss_logits_case(world *w) { loss(w, 0, 0.1); }

/* ---- recurrent networks ---- */

static void rnn(world *w, int32_t kind, int states)
{
    attn_rnn_args a;
    attn_rnn_gradients g;
    size_t bytes = 0;
    const int64_t h = 6, gates = kind == ATTN_RNN_LSTM ? 4 * h : h;
    ATTN_ARGS_INIT(&a);
    ATTN_ARGS_INIT(&g);
    a.dtype = w->dtype, a.kind = kind, a.batch = 3, a.seq = 7, a.d_in = 5, a.d_hidden = h;
    a.x = input(w, 3 * 7 * 5, 1), g.d_x = gradient(w);
    a.weights.w_input = weight(w, gates * 5, 0.6), g.weights.w_input = gradient(w);
    a.weights.w_hidden = weight(w, gates * h, 0.6), g.weights.w_hidden = gradient(w);
    a.weights.b_input = weight(w, gates, 0.6), g.weights.b_input = gradient(w);
    a.weights.b_hidden = weight(w, gates, 0.6), g.weights.b_hidden = gradient(w);
    if (states)
        a.hidden0 = input(w, 3 * h, 1), g.d_hidden0 = gradient(w);
    if (states && kind == ATTN_RNN_LSTM)
        a.cell0 = input(w, 3 * h, 1), g.d_cell0 = gradient(w);
    a.out = output(w, 3 * 7 * h), g.d_out = d_output(w);
    if (states)
        a.hidden_last = output(w, 3 * h), g.d_hidden_last = d_output(w);
    if (states && kind == ATTN_RNN_LSTM)
        a.cell_last = output(w, 3 * h), g.d_cell_last = d_output(w);
    WORLD_CALL(w, attn_rnn_saved_bytes(w->layers, &a, &bytes));
    if (w->backward)
        a.saved = saved_memory(w, bytes);
    WORLD_CALL(w, attn_rnn_forward(w->layers, &a));
    if (w->backward)
        WORLD_CALL(w, attn_rnn_backward(w->layers, &a, &g));
}

static void elman_case(world *w) { rnn(w, ATTN_RNN_ELMAN, 1); }
static void elman_relu_case(world *w) { rnn(w, ATTN_RNN_ELMAN_RELU, 0); }
static void lstm_case(world *w) { rnn(w, ATTN_RNN_LSTM, 1); }
static void lstm_plain_case(world *w) { rnn(w, ATTN_RNN_LSTM, 0); }

static void decoder_rnn(world *w, int32_t kind, int additive)
{
    static const int64_t lengths[2] = {5, 3};
    attn_decoder_rnn_args a;
    attn_decoder_rnn_gradients g;
    size_t bytes = 0;
    const int64_t h = 4, d_state = 6, d_align = additive ? 5 : d_state, gates = kind == ATTN_RNN_LSTM ? 4 * h : h;
    ATTN_ARGS_INIT(&a);
    ATTN_ARGS_INIT(&g);
    a.dtype = w->dtype, a.kind = kind, a.batch = 2, a.seq = 4, a.seq_states = 5, a.states_len = lengths;
    a.d_in = 3, a.d_hidden = h, a.d_state = d_state, a.d_align = d_align;
    a.x = input(w, 2 * 4 * 3, 1), g.d_x = gradient(w);
    a.states = input(w, 2 * 5 * d_state, 1), g.d_states = gradient(w);
    a.weights.w_align_query = weight(w, d_align * h, 0.8), g.weights.w_align_query = gradient(w);
    if (additive) {
        a.weights.w_align_key = weight(w, d_align * d_state, 0.8), g.weights.w_align_key = gradient(w);
        a.weights.v_align = weight(w, d_align, 0.8), g.weights.v_align = gradient(w);
    }
    a.weights.rnn.w_input = weight(w, gates * (3 + d_state), 0.5), g.weights.rnn.w_input = gradient(w);
    a.weights.rnn.w_hidden = weight(w, gates * h, 0.5), g.weights.rnn.w_hidden = gradient(w);
    a.weights.rnn.b_input = weight(w, gates, 0.5), g.weights.rnn.b_input = gradient(w);
    a.hidden0 = input(w, 2 * h, 1), g.d_hidden0 = gradient(w);
    if (kind == ATTN_RNN_LSTM)
        a.cell0 = input(w, 2 * h, 1), g.d_cell0 = gradient(w);
    a.out = output(w, 2 * 4 * h), g.d_out = d_output(w);
    a.context = output(w, 2 * 4 * d_state), g.d_context = d_output(w);
    a.hidden_last = output(w, 2 * h), g.d_hidden_last = d_output(w);
    WORLD_CALL(w, attn_decoder_rnn_saved_bytes(w->layers, &a, &bytes));
    if (w->backward)
        a.saved = saved_memory(w, bytes);
    WORLD_CALL(w, attn_decoder_rnn_forward(w->layers, &a));
    if (w->backward)
        WORLD_CALL(w, attn_decoder_rnn_backward(w->layers, &a, &g));
}

static void decoder_additive_case(world *w) { decoder_rnn(w, ATTN_RNN_LSTM, 1); }
static void decoder_dot_case(world *w) { decoder_rnn(w, ATTN_RNN_ELMAN, 0); }

#define CASE(name) {#name, name##_case}
static const struct {
    const char *name;
    layer_case run;
} cases[] = {CASE(linear), CASE(relu), CASE(silu), CASE(gelu_erf), CASE(gelu_tanh), CASE(gelu_quick), CASE(tanh),
             CASE(swiglu), CASE(geglu), CASE(layer_norm), CASE(layer_norm_plain), CASE(rms_norm), CASE(rms_norm_offset),
             CASE(rms_norm_plain), CASE(residual), CASE(embedding), CASE(lookup), CASE(one_head), CASE(one_head_out),
             CASE(many_heads), CASE(together), CASE(cross), CASE(three_inputs), CASE(extra_keys), CASE(extra_keys_open), CASE(extra_keys_cross), CASE(attention_dropout),
             CASE(ffn_gelu), CASE(ffn_swiglu), CASE(ffn_dropout), CASE(block_pre), CASE(block_post), CASE(block_pre_cross),
             CASE(block_post_cross), CASE(loss), CASE(loss_smoothed), CASE(loss_logits), CASE(elman),
             CASE(elman_relu), CASE(lstm), CASE(lstm_plain),
             CASE(decoder_additive), CASE(decoder_dot)};

static void test_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_layer(cases[i].run, cases[i].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
