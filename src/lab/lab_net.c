/* lab_net.c - the networks of lab_net.h, from the layers of attn/layers.h. */
#include <math.h>
#include <string.h>
#include "attn/train.h"
#include "lab/lab_net.h"

enum { MOST_LAYERS = 32 };

typedef struct block_places { /* where a block's weights lie */
    int64_t norm1, norm2, wq, wk, wv, wo, up, up_bias, down, down_bias;
} block_places;

struct lab_net {
    lab *l;
    lab_net_options o;
    float *w, *g, *m, *v;         /* weights, gradient, Adam's moments: [n] */
    int64_t n, step, rows, n_positions;
    int64_t table, position, type, readout, final_norm, recurrent, recurrent_hidden, recurrent_bias, first_layer, end_layers;
    block_places blocks[MOST_LAYERS];
    float *x[MOST_LAYERS + 2];    /* what each layer reads; the last is what is read out */
    float *d, *d2;                /* gradients of rows */
    void *saved[MOST_LAYERS];
};

/* ---- Layout ---- */

static int64_t take(lab_net *net, int64_t count)
{
    const int64_t at = net->n;
    net->n += (count + 15) / 16 * 16;
    return at;
}

static int64_t inner(const lab_net_options *o)
{
    return o->n_heads * o->head_dim;
}

static void lay_out(lab_net *net)
{
    const lab_net_options *o = &net->o;
    const int64_t d = o->d_model, gates = o->kind == LAB_NET_LSTM ? 4 : 1, qkv = inner(o) * d;
    net->table = take(net, o->vocab * d);
    net->position = o->positions ? take(net, o->seq * d) : -1;
    net->type = o->n_types ? take(net, o->n_types * d) : -1;
    net->readout = take(net, o->readouts * o->classes * d);
    net->final_norm = take(net, d);
    net->first_layer = net->n;
    if (o->kind == LAB_NET_ELMAN || o->kind == LAB_NET_LSTM) {
        net->recurrent = take(net, gates * d * d);
        net->recurrent_hidden = take(net, gates * d * d);
        net->recurrent_bias = take(net, gates * d);
    }
    for (int64_t i = 0; i < o->n_layers && (o->kind == LAB_NET_MHA || o->kind == LAB_NET_BLOCKS); i++) {
        block_places *b = &net->blocks[i];
        b->wq = take(net, qkv), b->wk = take(net, qkv), b->wv = take(net, qkv), b->wo = take(net, qkv);
        if (o->kind == LAB_NET_MHA)
            continue;
        b->norm1 = take(net, d), b->norm2 = take(net, d);
        b->up = take(net, 4 * d * d), b->up_bias = take(net, 4 * d), b->down = take(net, 4 * d * d);
        b->down_bias = take(net, d);
    }
    net->end_layers = net->n;
}

static void fill(lab_net *net, int64_t at, int64_t count, double bound)
{
    for (int64_t i = 0; i < count; i++)
        net->w[at + i] = (float)(bound * (2 * lab_unit(net->l) - 1));
}

static void fill_normal(lab_net *net, int64_t at, int64_t count)
{
    for (int64_t i = 0; at >= 0 && i < count; i++)
        net->w[at + i] = (float)lab_gauss(net->l);
}

static void ones(lab_net *net, int64_t at, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        net->w[at + i] = 1;
}

static void fresh_weights(lab_net *net)
{
    const lab_net_options *o = &net->o;
    const int64_t d = o->d_model, gates = o->kind == LAB_NET_LSTM ? 4 : 1, qkv = inner(o) * d;
    const double in = sqrt(3.0 / (double)d), inside = qkv ? sqrt(3.0 / (double)inner(o)) : 0; /* variance 1 / inputs */
    fill_normal(net, net->table, o->vocab * d);
    fill_normal(net, net->position, o->seq * d);
    fill_normal(net, net->type, o->n_types * d);
    fill(net, net->readout, o->readouts * o->classes * d, 1 / sqrt((double)d));
    ones(net, net->final_norm, d);
    if (o->kind == LAB_NET_ELMAN || o->kind == LAB_NET_LSTM) {
        fill(net, net->recurrent, gates * d * d, 1 / sqrt((double)d));
        fill(net, net->recurrent_hidden, gates * d * d, 1 / sqrt((double)d));
        if (o->kind == LAB_NET_LSTM)
            ones(net, net->recurrent_bias + d, d); /* the forget gate starts open (Jozefowicz et al. 2015) */
        return;
    }
    for (int64_t i = 0; i < o->n_layers; i++) {
        const block_places *b = &net->blocks[i];
        fill(net, b->wq, qkv, in), fill(net, b->wk, qkv, in), fill(net, b->wv, qkv, in), fill(net, b->wo, qkv, inside);
        if (o->kind == LAB_NET_MHA)
            continue;
        ones(net, b->norm1, d), ones(net, b->norm2, d);
        fill(net, b->up, 4 * d * d, in), fill(net, b->down, 4 * d * d, in / 2);
    }
}

/* ---- Arguments of the layers' calls ---- */

static attn_embedding_args embedding_of(lab_net *net, const lab_batch *b)
{
    const lab_net_options *o = &net->o;
    attn_embedding_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = ATTN_F32, a.rows = net->rows, a.seq = o->seq, a.d_model = o->d_model, a.vocab = o->vocab;
    a.ids = b->ids, a.table = net->w + net->table, a.y = net->x[0];
    if (o->positions)
        a.position_table = net->w + net->position, a.n_positions = net->n_positions;
    if (o->n_types)
        a.type_table = net->w + net->type, a.n_types = o->n_types, a.type_ids = b->types;
    return a;
}

static attn_rnn_args recurrent_of(lab_net *net)
{
    const lab_net_options *o = &net->o;
    attn_rnn_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = ATTN_F32, a.kind = o->kind == LAB_NET_LSTM ? ATTN_RNN_LSTM : ATTN_RNN_ELMAN;
    a.batch = o->batch, a.seq = o->seq, a.d_in = a.d_hidden = o->d_model;
    a.x = net->x[0], a.out = net->x[1], a.saved = net->saved[0];
    a.weights.w_input = net->w + net->recurrent, a.weights.w_hidden = net->w + net->recurrent_hidden;
    a.weights.b_input = net->w + net->recurrent_bias;
    return a;
}

static attn_mha_args mha_of(lab_net *net)
{
    const lab_net_options *o = &net->o;
    const block_places *b = &net->blocks[0];
    attn_mha_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = ATTN_F32, a.batch = o->batch, a.seq_q = o->seq, a.d_query = o->d_model, a.n_heads = o->n_heads;
    a.head_dim = o->head_dim, a.query = net->x[0], a.out = net->x[1], a.saved = net->saved[0];
    a.mask.flags = o->causal ? ATTN_MASK_CAUSAL : 0;
    a.weights.w_query = net->w + b->wq, a.weights.w_key = net->w + b->wk, a.weights.w_value = net->w + b->wv;
    a.weights.w_out = net->w + b->wo;
    if (o->scale != 0)
        a.scale = o->scale, a.flags = ATTN_SCALE_GIVEN;
    return a;
}

static attn_block_args block_of(lab_net *net, int64_t layer)
{
    const lab_net_options *o = &net->o;
    const block_places *b = &net->blocks[layer];
    attn_block_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = ATTN_F32, a.place = o->place, a.norm_kind = ATTN_NORM_LAYER, a.act = ATTN_ACT_GELU_TANH;
    a.batch = o->batch, a.seq = o->seq, a.d_model = o->d_model, a.d_ff = 4 * o->d_model;
    a.n_heads = o->n_heads, a.head_dim = o->head_dim, a.x = net->x[layer], a.y = net->x[layer + 1];
    a.mask.flags = o->causal ? ATTN_MASK_CAUSAL : 0, a.saved = net->saved[layer];
    a.weights.norm1_weight = net->w + b->norm1, a.weights.norm2_weight = net->w + b->norm2;
    a.weights.attention.w_query = net->w + b->wq, a.weights.attention.w_key = net->w + b->wk;
    a.weights.attention.w_value = net->w + b->wv, a.weights.attention.w_out = net->w + b->wo;
    a.weights.ffn.w_up = net->w + b->up, a.weights.ffn.b_up = net->w + b->up_bias;
    a.weights.ffn.w_down = net->w + b->down, a.weights.ffn.b_down = net->w + b->down_bias;
    return a;
}

static attn_norm_args norm_of(lab_net *net) /* pre-norm stacks end with one */
{
    attn_norm_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = ATTN_F32, a.kind = ATTN_NORM_LAYER, a.rows = net->rows, a.n = net->o.d_model, a.eps = 1e-5;
    a.x = net->x[net->o.n_layers], a.weight = net->w + net->final_norm, a.y = net->x[net->o.n_layers + 1];
    return a;
}

static bool ends_with_norm(const lab_net *net)
{
    return net->o.kind == LAB_NET_BLOCKS && net->o.place == ATTN_BLOCK_PRE_NORM;
}

static float *read_out_rows(const lab_net *net)
{
    return net->x[net->o.n_layers + ends_with_norm(net)];
}

/* ---- Making one ---- */

static void make_rows(lab_net *net)
{
    const lab_net_options *o = &net->o;
    const size_t bytes = (size_t)(net->rows * o->d_model) * sizeof(float);
    for (int64_t i = 0; i < o->n_layers + 2; i++)
        net->x[i] = lab_new(net->l, bytes);
    net->d = lab_new(net->l, bytes), net->d2 = lab_new(net->l, bytes);
    for (int64_t i = 0; i < o->n_layers && !net->l->failed; i++) {
        size_t saved = 0;
        attn_layers *layers = net->l->layers;
        if (o->kind == LAB_NET_BLOCKS) {
            const attn_block_args a = block_of(net, i);
            lab_ok(net->l, attn_block_saved_bytes(layers, &a, &saved));
        } else if (o->kind == LAB_NET_MHA) {
            const attn_mha_args a = mha_of(net);
            lab_ok(net->l, attn_mha_saved_bytes(layers, &a, &saved));
        } else {
            const attn_rnn_args a = recurrent_of(net);
            lab_ok(net->l, attn_rnn_saved_bytes(layers, &a, &saved));
        }
        net->saved[i] = net->l->failed ? NULL : lab_new(net->l, saved);
    }
}

lab_net *lab_net_new(lab *l, const lab_net_options *options)
{
    lab_net *net = lab_new(l, sizeof *net);
    if (!net)
        return NULL;
    net->l = l;
    net->o = *options;
    net->o.readouts = options->readouts ? options->readouts : 1;
    net->o.n_layers = options->kind == LAB_NET_BLOCKS ? options->n_layers : 1;
    net->rows = options->batch * options->seq;
    net->n_positions = options->seq;
    lay_out(net);
    const size_t bytes = (size_t)net->n * sizeof(float);
    net->w = lab_new(l, bytes), net->g = lab_new(l, bytes), net->m = lab_new(l, bytes), net->v = lab_new(l, bytes);
    if (l->failed)
        return NULL;
    fresh_weights(net);
    make_rows(net);
    return l->failed ? NULL : net;
}

int64_t lab_net_parameters(const lab_net *net)
{
    return net->end_layers - net->first_layer;
}

/* ---- Forward and backward ---- */

static bool forward(lab_net *net, const lab_batch *b)
{
    attn_layers *layers = net->l->layers;
    const attn_embedding_args e = embedding_of(net, b);
    if (!lab_ok(net->l, attn_embedding_forward(layers, &e)))
        return false;
    if (net->o.kind == LAB_NET_BLOCKS) {
        for (int64_t i = 0; i < net->o.n_layers; i++) {
            const attn_block_args a = block_of(net, i);
            if (!lab_ok(net->l, attn_block_forward(layers, &a)))
                return false;
        }
        const attn_norm_args norm = norm_of(net);
        return !ends_with_norm(net) || lab_ok(net->l, attn_norm_forward(layers, &norm));
    }
    if (net->o.kind != LAB_NET_MHA) {
        const attn_rnn_args a = recurrent_of(net);
        return lab_ok(net->l, attn_rnn_forward(layers, &a));
    }
    const attn_mha_args a = mha_of(net);
    if (!lab_ok(net->l, attn_mha_forward(layers, &a)))
        return false;
    for (int64_t i = 0; i < net->rows * net->o.d_model; i++)
        net->x[1][i] += net->x[0][i];
    return true;
}

/* From net->d, the gradient of what is read out, to net->d, that of the embedded rows; weights' gradients are added. */
static bool backward_layers(lab_net *net)
{
    attn_layers *layers = net->l->layers;
    float *g = net->g;
    if (ends_with_norm(net)) {
        const attn_norm_args a = norm_of(net);
        attn_norm_gradients n;
        ATTN_ARGS_INIT(&n);
        n.d_y = net->d, n.d_x = net->d, n.weight = g + net->final_norm;
        if (!lab_ok(net->l, attn_norm_backward(layers, &a, &n)))
            return false;
    }
    for (int64_t i = net->o.n_layers - 1; net->o.kind == LAB_NET_BLOCKS && i >= 0; i--) {
        const attn_block_args a = block_of(net, i);
        const block_places *b = &net->blocks[i];
        attn_block_gradients n;
        ATTN_ARGS_INIT(&n);
        n.d_y = net->d, n.d_x = net->d;
        n.weights.norm1_weight = g + b->norm1, n.weights.norm2_weight = g + b->norm2;
        n.weights.attention.w_query = g + b->wq, n.weights.attention.w_key = g + b->wk;
        n.weights.attention.w_value = g + b->wv, n.weights.attention.w_out = g + b->wo;
        n.weights.ffn.w_up = g + b->up, n.weights.ffn.b_up = g + b->up_bias;
        n.weights.ffn.w_down = g + b->down, n.weights.ffn.b_down = g + b->down_bias;
        if (!lab_ok(net->l, attn_block_backward(layers, &a, &n)))
            return false;
    }
    if (net->o.kind == LAB_NET_BLOCKS)
        return true;
    if (net->o.kind == LAB_NET_MHA) {
        const attn_mha_args a = mha_of(net);
        const block_places *b = &net->blocks[0];
        attn_mha_gradients n;
        ATTN_ARGS_INIT(&n);
        n.d_out = net->d, n.d_query = net->d2;
        n.weights.w_query = g + b->wq, n.weights.w_key = g + b->wk, n.weights.w_value = g + b->wv, n.weights.w_out = g + b->wo;
        if (!lab_ok(net->l, attn_mha_backward(layers, &a, &n)))
            return false;
        for (int64_t i = 0; i < net->rows * net->o.d_model; i++)
            net->d[i] += net->d2[i];
        return true;
    }
    const attn_rnn_args a = recurrent_of(net);
    attn_rnn_gradients n;
    ATTN_ARGS_INIT(&n);
    n.d_out = net->d, n.d_x = net->d2, n.weights.w_input = g + net->recurrent, n.weights.w_hidden = g + net->recurrent_hidden;
    n.weights.b_input = g + net->recurrent_bias;
    if (!lab_ok(net->l, attn_rnn_backward(layers, &a, &n)))
        return false;
    memcpy(net->d, net->d2, (size_t)(net->rows * net->o.d_model) * sizeof *net->d);
    return true;
}

/* Mean loss over all targets of all read-outs; with `gradient` also net->d and the read-outs' gradients. */
static double read_out(lab_net *net, const lab_batch *b, bool gradient, double *accuracy)
{
    const lab_net_options *o = &net->o;
    double loss = 0;
    int64_t counted = 0, correct = 0;
    for (int64_t i = 0; i < o->readouts * net->rows; i++)
        counted += b->targets[i] >= 0;
    for (int64_t r = 0; r < o->readouts; r++) {
        attn_cross_entropy_args a;
        attn_cross_entropy_gradients n;
        double sum = 0;
        int64_t right = 0;
        ATTN_ARGS_INIT(&a), ATTN_ARGS_INIT(&n);
        a.dtype = ATTN_F32, a.rows = net->rows, a.d_model = o->d_model, a.vocab = o->classes, a.x = read_out_rows(net);
        a.weight = net->w + net->readout + r * o->classes * o->d_model;
        a.targets = b->targets + r * net->rows, a.ignore_index = -1, a.gradient_scale = 1 / (double)counted;
        a.loss = &sum, a.n_correct = &right;
        n.d_x = net->d, n.flags = r ? ATTN_GRAD_ACCUMULATE : 0;
        n.weight = net->g + net->readout + r * o->classes * o->d_model;
        if (!lab_ok(net->l, attn_cross_entropy(net->l->layers, &a, gradient ? &n : NULL)))
            return NAN;
        loss += sum, correct += right;
    }
    if (accuracy)
        *accuracy = (double)correct / (double)counted;
    return loss / (double)counted;
}

static bool adam(lab_net *net, double rate)
{
    attn_train_adamw_args a;
    ATTN_ARGS_INIT(&a);
    a.n = net->n, a.weights = net->w, a.gradient = net->g, a.m = net->m, a.v = net->v;
    a.learning_rate = rate, a.beta1 = 0.9, a.beta2 = 0.999, a.epsilon = 1e-8, a.step = net->step;
    return lab_ok(net->l, attn_train_adamw(&a));
}

double lab_net_train(lab_net *net, const lab_batch *batch, double learning_rate)
{
    attn_embedding_gradients e;
    memset(net->g, 0, (size_t)net->n * sizeof *net->g);
    if (!forward(net, batch))
        return NAN;
    const double loss = read_out(net, batch, true, NULL);
    if (net->l->failed || !backward_layers(net))
        return NAN;
    const attn_embedding_args a = embedding_of(net, batch);
    ATTN_ARGS_INIT(&e);
    e.d_y = net->d, e.table = net->g + net->table;
    e.position_table = net->o.positions ? net->g + net->position : NULL;
    e.type_table = net->o.n_types ? net->g + net->type : NULL;
    if (!lab_ok(net->l, attn_embedding_backward(net->l->layers, &a, &e)))
        return NAN;
    net->step++;
    return adam(net, learning_rate) ? loss : NAN;
}

double lab_net_loss(lab_net *net, const lab_batch *batch, double *accuracy)
{
    return forward(net, batch) ? read_out(net, batch, false, accuracy) : NAN;
}

void lab_net_set_length(lab_net *net, int64_t seq)
{
    net->o.seq = seq;
    net->rows = net->o.batch * seq;
}

bool lab_net_logits(lab_net *net, const int32_t *ids, float *logits)
{
    const lab_batch b = {ids, NULL, NULL};
    attn_linear_args a;
    if (!forward(net, &b))
        return false;
    ATTN_ARGS_INIT(&a);
    a.dtype = ATTN_F32, a.rows = net->rows, a.n_in = net->o.d_model, a.n_out = net->o.classes, a.x = read_out_rows(net);
    a.weight = net->w + net->readout, a.y = logits;
    return lab_ok(net->l, attn_linear_forward(net->l->layers, &a));
}

double lab_net_reach(lab_net *net, const lab_batch *batch)
{
    const int64_t d = net->o.d_model, seq = net->o.seq;
    double sum = 0;
    if (!forward(net, batch))
        return NAN;
    for (int64_t out = 0; out < d; out++) { /* one row of every sequence's Jacobian at a time */
        memset(net->d, 0, (size_t)(net->rows * d) * sizeof *net->d);
        for (int64_t b = 0; b < net->o.batch; b++)
            net->d[(b * seq + seq - 1) * d + out] = 1;
        if (!backward_layers(net))
            return NAN;
        for (int64_t b = 0; b < net->o.batch; b++)
            for (int64_t i = 0; i < d; i++)
                sum += (double)net->d[b * seq * d + i] * (double)net->d[b * seq * d + i];
    }
    return sqrt(sum / (double)net->o.batch);
}

double lab_net_query_key_gradient(const lab_net *net)
{
    const int64_t count = inner(&net->o) * net->o.d_model;
    double square = 0;
    for (int64_t i = 0; i < count; i++) {
        const double q = (double)net->g[net->blocks[0].wq + i], k = (double)net->g[net->blocks[0].wk + i];
        square += q * q + k * k;
    }
    return sqrt(square);
}
