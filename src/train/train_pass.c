/* train_pass.c - forward and backward of a whole model over attn/layers.h.
 *
 *     ids -> embedding (+ positions) [-> norm: BERT] -> dropout -> blocks [-> final norm: pre-norm] -> head -> loss
 *
 * The states between blocks are kept, so that recomputation needs no more, and so that a state which is not finite can be
 * named afterwards. An encoder-decoder runs its encoder first; the decoder's blocks read the encoder's last states. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/pages.h"
#include "train/mix.h"
#include "train/train_error.h"
#include "train/train_net.h"

enum { SEED_EMBEDDING = 0, SEED_SOURCE = 1, SEED_LAYERS = 1 << 16, SEED_ENCODER = 1 << 20 };

/* One stack of blocks while it runs. */
typedef struct stack {
    const attn_net_block *blocks;
    bool encoder;
    int64_t seq, rows;
    char *states; /* [n_layers + 1][rows * d] */
    char *raw;    /* BERT: embeddings before their norm */
    char *saved;  /* one for each block, or one for all when recomputing */
    char *final;  /* after the final norm; where there is none, the last state */
    size_t saved_bytes;
} stack;

typedef struct run {
    const attn_net *net;
    attn_net_pass *pass;
    const attn_train_batch *batch;
    stack decoder, encoder;
    char *dense, *active, *transformed;           /* BERT's head */
    char *d_a, *d_b, *d_memory, *d_part;
    size_t element;
    bool backward;
} run;

#define LAYERS_TRY(run_, expression)                                                               \
    do {                                                                                           \
        attn_status layers_status_ = (expression);                                                 \
        if (layers_status_ != ATTN_OK)                                                             \
            return attn_train_fail(layers_status_, "%s", attn_layers_error((run_)->pass->layers)); \
    } while (0)

/* ---- Parameters as layers want them ---- */

static const void *weight_at(const run *r, int64_t offset)
{
    return offset < 0 ? NULL : (const char *)r->pass->weights + (size_t)offset * r->element;
}

static void *gradient_at(const run *r, int64_t offset)
{
    return offset < 0 ? NULL : (char *)r->pass->gradients + (size_t)offset * r->element;
}

static attn_mha_weights mha_weights(const run *r, const attn_net_attention *a)
{
    return (attn_mha_weights){.w_query = weight_at(r, a->q.weight), .w_key = weight_at(r, a->k.weight),
                              .w_value = weight_at(r, a->v.weight), .w_out = weight_at(r, a->o.weight),
                              .b_query = weight_at(r, a->q.bias),   .b_key = weight_at(r, a->k.bias),
                              .b_value = weight_at(r, a->v.bias),   .b_out = weight_at(r, a->o.bias)};
}

static attn_mha_weight_gradients mha_gradients(const run *r, const attn_net_attention *a)
{
    return (attn_mha_weight_gradients){.w_query = gradient_at(r, a->q.weight), .w_key = gradient_at(r, a->k.weight),
                                       .w_value = gradient_at(r, a->v.weight), .w_out = gradient_at(r, a->o.weight),
                                       .b_query = gradient_at(r, a->q.bias),   .b_key = gradient_at(r, a->k.bias),
                                       .b_value = gradient_at(r, a->v.bias),   .b_out = gradient_at(r, a->o.bias)};
}

static attn_block_weights block_weights(const run *r, const attn_net_block *b)
{
    return (attn_block_weights){.norm1_weight = weight_at(r, b->norm1.weight), .norm1_bias = weight_at(r, b->norm1.bias),
                                .norm_cross_weight = weight_at(r, b->norm_cross.weight),
                                .norm_cross_bias = weight_at(r, b->norm_cross.bias),
                                .norm2_weight = weight_at(r, b->norm2.weight), .norm2_bias = weight_at(r, b->norm2.bias),
                                .attention = mha_weights(r, &b->self),         .cross = mha_weights(r, &b->cross),
                                .ffn = {.w_gate = weight_at(r, b->gate.weight), .b_gate = weight_at(r, b->gate.bias),
                                        .w_up = weight_at(r, b->up.weight),     .b_up = weight_at(r, b->up.bias),
                                        .w_down = weight_at(r, b->down.weight), .b_down = weight_at(r, b->down.bias)}};
}

static attn_block_weight_gradients block_gradients(const run *r, const attn_net_block *b)
{
    return (attn_block_weight_gradients){
        .norm1_weight = gradient_at(r, b->norm1.weight), .norm1_bias = gradient_at(r, b->norm1.bias),
        .norm_cross_weight = gradient_at(r, b->norm_cross.weight), .norm_cross_bias = gradient_at(r, b->norm_cross.bias),
        .norm2_weight = gradient_at(r, b->norm2.weight), .norm2_bias = gradient_at(r, b->norm2.bias),
        .attention = mha_gradients(r, &b->self),         .cross = mha_gradients(r, &b->cross),
        .ffn = {.w_gate = gradient_at(r, b->gate.weight), .b_gate = gradient_at(r, b->gate.bias),
                .w_up = gradient_at(r, b->up.weight),     .b_up = gradient_at(r, b->up.bias),
                .w_down = gradient_at(r, b->down.weight), .b_down = gradient_at(r, b->down.bias)}};
}

/* ---- Blocks ---- */

static char *state(const run *r, const stack *s, int64_t layer)
{
    return s->states + (size_t)(layer * s->rows * r->net->options.d_model) * r->element;
}

static attn_block_args block_args(const run *r, const stack *s, int64_t layer)
{
    const attn_net *net = r->net;
    const attn_trainer_options *o = &net->options;
    attn_block_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = net->dtype;
    a.place = net->place;
    a.norm_kind = net->norm_kind;
    a.act = net->act;
    a.eps = net->norm_eps;
    a.batch = r->batch->batch;
    a.seq = s->seq;
    a.d_model = o->d_model;
    a.d_ff = o->d_ff;
    a.n_heads = o->n_heads;
    a.n_kv_heads = o->n_kv_heads;
    a.rope = o->arch == ATTN_TRAIN_LLAMA ? &net->rope : NULL;
    if (!s->encoder && o->arch != ATTN_TRAIN_BERT)
        a.mask.flags = ATTN_MASK_CAUSAL;
    if (s->encoder)
        a.mask.kv_len = r->batch->source_lengths;
    if (!s->encoder && o->arch == ATTN_TRAIN_ENCDEC) {
        a.memory = r->encoder.final ? r->encoder.final : r->pass->weights; /* while sizes are counted: any */
        a.seq_memory = r->encoder.seq;
        a.memory_mask.kv_len = r->batch->source_lengths;
    }
    a.weights = block_weights(r, &s->blocks[layer]);
    if (r->backward) {
        a.dropout_p = a.attention_dropout_p = o->dropout;
        a.dropout_seed = attn_mix(r->pass->seed, (uint64_t)((s->encoder ? SEED_ENCODER : SEED_LAYERS) + layer));
        a.saved = s->saved + (o->flags & ATTN_TRAIN_RECOMPUTE ? 0 : (size_t)layer * s->saved_bytes);
    }
    a.x = state(r, s, layer);
    a.y = state(r, s, layer + 1);
    return a;
}

static attn_norm_args norm_args(const run *r, attn_net_pair pair, int64_t rows, const void *x, void *y)
{
    attn_norm_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = r->net->dtype;
    a.kind = r->net->norm_kind;
    a.rows = rows;
    a.n = r->net->options.d_model;
    a.eps = r->net->norm_eps;
    a.x = x;
    a.weight = weight_at(r, pair.weight);
    a.bias = weight_at(r, pair.bias);
    a.y = y;
    return a;
}

static attn_status norm_backward(const run *r, attn_net_pair pair, int64_t rows, const void *x, void *d)
{
    attn_norm_args a = norm_args(r, pair, rows, x, NULL);
    attn_norm_gradients g;
    ATTN_ARGS_INIT(&g);
    g.d_y = g.d_x = d;
    g.weight = gradient_at(r, pair.weight);
    g.bias = gradient_at(r, pair.bias);
    LAYERS_TRY(r, attn_norm_backward(r->pass->layers, &a, &g));
    return ATTN_OK;
}

static attn_residual_args dropout_args(const run *r, const stack *s, void *x)
{
    attn_residual_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = r->net->dtype;
    a.n = s->rows * r->net->options.d_model;
    a.x = a.y = x;
    a.dropout_p = r->net->options.dropout;
    a.dropout_seed = attn_mix(r->pass->seed, s->encoder ? SEED_SOURCE : SEED_EMBEDDING);
    return a;
}

/* ---- Embeddings ---- */

static attn_embedding_args embedding_args(const run *r, const stack *s)
{
    const attn_trainer_options *o = &r->net->options;
    attn_embedding_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = r->net->dtype;
    a.rows = s->rows;
    a.seq = s->seq;
    a.d_model = o->d_model;
    a.ids = s->encoder ? r->batch->source : r->batch->tokens;
    a.vocab = o->vocab_size;
    a.table = weight_at(r, r->net->embedding.weight);
    a.position_table = weight_at(r, r->net->positions.weight);
    a.n_positions = a.position_table ? o->context : 0;
    a.type_table = weight_at(r, r->net->types.weight);
    a.n_types = a.type_table ? 2 : 0;
    if (o->arch == ATTN_TRAIN_ENCDEC) {
        a.sinusoidal = 1;
        a.scale = sqrt((double)o->d_model);
    }
    a.y = s->raw ? s->raw : s->states;
    return a;
}

static attn_status embed_forward(const run *r, const stack *s)
{
    attn_embedding_args a = embedding_args(r, s);
    LAYERS_TRY(r, attn_embedding_forward(r->pass->layers, &a));
    if (s->raw) {
        attn_norm_args n = norm_args(r, r->net->embedding_norm, s->rows, s->raw, s->states);
        LAYERS_TRY(r, attn_norm_forward(r->pass->layers, &n));
    }
    if (r->backward && r->net->options.dropout > 0) {
        attn_residual_args drop = dropout_args(r, s, s->states);
        LAYERS_TRY(r, attn_residual_forward(r->pass->layers, &drop));
    }
    return ATTN_OK;
}

static attn_status embed_backward(const run *r, const stack *s, char *d)
{
    attn_embedding_args a = embedding_args(r, s);
    attn_embedding_gradients g;
    if (r->net->options.dropout > 0) {
        attn_residual_args drop = dropout_args(r, s, d);
        LAYERS_TRY(r, attn_residual_backward(r->pass->layers, &drop, d, d, 0));
    }
    if (s->raw)
        ATTN_TRAIN_TRY(norm_backward(r, r->net->embedding_norm, s->rows, s->raw, d));
    ATTN_ARGS_INIT(&g);
    g.d_y = d;
    g.table = gradient_at(r, r->net->embedding.weight);
    g.position_table = gradient_at(r, r->net->positions.weight);
    g.type_table = gradient_at(r, r->net->types.weight);
    LAYERS_TRY(r, attn_embedding_backward(r->pass->layers, &a, &g));
    return ATTN_OK;
}

/* ---- A stack ---- */

static attn_status stack_forward(const run *r, const stack *s)
{
    const attn_net_pair last = s->encoder ? r->net->encoder_norm : r->net->final_norm;
    ATTN_TRAIN_TRY(embed_forward(r, s));
    for (int64_t layer = 0; layer < r->net->options.n_layers; layer++) {
        attn_block_args a = block_args(r, s, layer);
        if (r->net->options.flags & ATTN_TRAIN_RECOMPUTE)
            a.saved = NULL;
        LAYERS_TRY(r, attn_block_forward(r->pass->layers, &a));
    }
    if (last.weight >= 0) {
        attn_norm_args a = norm_args(r, last, s->rows, state(r, s, r->net->options.n_layers), s->final);
        LAYERS_TRY(r, attn_norm_forward(r->pass->layers, &a));
    }
    return ATTN_OK;
}

/* d: the gradient of the stack's output, overwritten. */
static attn_status stack_backward(const run *r, const stack *s, char *d)
{
    const attn_net_pair last = s->encoder ? r->net->encoder_norm : r->net->final_norm;
    const int64_t n_layers = r->net->options.n_layers;
    if (last.weight >= 0)
        ATTN_TRAIN_TRY(norm_backward(r, last, s->rows, state(r, s, n_layers), d));
    for (int64_t layer = n_layers - 1; layer >= 0; layer--) {
        attn_block_args a = block_args(r, s, layer);
        attn_block_gradients g;
        if (r->net->options.flags & ATTN_TRAIN_RECOMPUTE) {
            a.y = r->d_b; /* the state itself is there already */
            LAYERS_TRY(r, attn_block_forward(r->pass->layers, &a));
        }
        ATTN_ARGS_INIT(&g);
        g.d_y = g.d_x = d;
        g.d_memory = a.memory ? r->d_part : NULL;
        g.weights = block_gradients(r, &s->blocks[layer]);
        LAYERS_TRY(r, attn_block_backward(r->pass->layers, &a, &g));
        if (a.memory) {
            attn_residual_args add;
            ATTN_ARGS_INIT(&add);
            add.dtype = r->net->dtype;
            add.n = r->encoder.rows * r->net->options.d_model;
            add.x = r->d_part;
            add.residual = layer == n_layers - 1 ? NULL : r->d_memory;
            add.y = r->d_memory;
            LAYERS_TRY(r, attn_residual_forward(r->pass->layers, &add));
        }
    }
    return embed_backward(r, s, d);
}

/* ---- The head and the loss ---- */

static attn_linear_args transform_args(const run *r)
{
    attn_linear_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = r->net->dtype;
    a.rows = r->decoder.rows;
    a.n_in = a.n_out = r->net->options.d_model;
    a.x = r->decoder.final;
    a.weight = weight_at(r, r->net->transform.weight);
    a.bias = weight_at(r, r->net->transform.bias);
    a.y = r->dense;
    return a;
}

static attn_activation_args transform_act(const run *r)
{
    attn_activation_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = r->net->dtype;
    a.act = ATTN_ACT_GELU_ERF;
    a.n = r->decoder.rows * r->net->options.d_model;
    a.x = r->dense;
    a.y = r->active;
    return a;
}

/* BERT: dense, GELU, norm in front of the output projection. */
static attn_status transform_forward(const run *r)
{
    attn_linear_args dense = transform_args(r);
    attn_activation_args act = transform_act(r);
    attn_norm_args norm = norm_args(r, r->net->transform_norm, r->decoder.rows, r->active, r->transformed);
    LAYERS_TRY(r, attn_linear_forward(r->pass->layers, &dense));
    LAYERS_TRY(r, attn_activation_forward(r->pass->layers, &act));
    LAYERS_TRY(r, attn_norm_forward(r->pass->layers, &norm));
    return ATTN_OK;
}

/* d -> r->d_b */
static attn_status transform_backward(const run *r, char *d)
{
    attn_linear_args dense = transform_args(r);
    attn_activation_args act = transform_act(r);
    attn_activation_gradients act_g;
    attn_linear_gradients g;
    ATTN_TRAIN_TRY(norm_backward(r, r->net->transform_norm, r->decoder.rows, r->active, d));
    ATTN_ARGS_INIT(&act_g);
    act_g.d_y = act_g.d_x = d;
    LAYERS_TRY(r, attn_activation_backward(r->pass->layers, &act, &act_g));
    ATTN_ARGS_INIT(&g);
    g.d_y = d;
    g.d_x = r->d_b;
    g.weight = gradient_at(r, r->net->transform.weight);
    g.bias = gradient_at(r, r->net->transform.bias);
    LAYERS_TRY(r, attn_linear_backward(r->pass->layers, &dense, &g));
    return ATTN_OK;
}

static int64_t count_targets(const attn_train_batch *batch)
{
    int64_t n = 0;
    for (int64_t i = 0; i < batch->batch * batch->length; i++)
        n += batch->targets[i] >= 0;
    return n;
}

/* The loss; its gradient with respect to the head's input goes to r->d_a. */
static attn_status head_loss(const run *r)
{
    attn_cross_entropy_args a;
    attn_cross_entropy_gradients g;
    double sum = 0;
    const int64_t n = count_targets(r->batch);
    ATTN_ARGS_INIT(&a);
    a.dtype = r->net->dtype;
    a.rows = r->decoder.rows;
    a.d_model = r->net->options.d_model;
    a.vocab = r->net->options.vocab_size;
    a.x = r->transformed ? r->transformed : r->decoder.final;
    a.weight = weight_at(r, r->net->embedding.weight);
    a.bias = weight_at(r, r->net->head.bias);
    a.targets = r->batch->targets;
    a.ignore_index = -1;
    a.gradient_scale = r->pass->scale / (double)n;
    a.loss = &sum;
    ATTN_ARGS_INIT(&g);
    if (r->backward) {
        g.d_x = r->d_a;
        g.weight = gradient_at(r, r->net->embedding.weight);
        g.bias = gradient_at(r, r->net->head.bias);
    }
    LAYERS_TRY(r, attn_cross_entropy(r->pass->layers, &a, r->backward ? &g : NULL));
    r->pass->n_targets = n;
    r->pass->loss = sum / (double)n;
    return ATTN_OK;
}

/* ---- Memory ---- */

/* Hands out `bytes` at *at and moves it; base NULL: only counts. */
static char *take(char *base, size_t *at, size_t bytes)
{
    char *p = base ? base + *at : NULL;
    *at += (bytes + 63) / 64 * 64;
    return p;
}

static attn_status lay_stack(run *r, stack *s, char *base, size_t *at)
{
    const attn_trainer_options *o = &r->net->options;
    const size_t width = (size_t)(s->rows * o->d_model) * r->element;
    const bool norm = (s->encoder ? r->net->encoder_norm.weight : r->net->final_norm.weight) >= 0;
    s->states = take(base, at, width * (size_t)(o->n_layers + 1));
    s->final = norm ? take(base, at, width) : base ? state(r, s, o->n_layers) : NULL;
    s->raw = r->net->embedding_norm.weight >= 0 ? take(base, at, width) : NULL;
    if (r->backward) {
        attn_block_args a = block_args(r, s, 0);
        LAYERS_TRY(r, attn_block_saved_bytes(r->pass->layers, &a, &s->saved_bytes));
        s->saved_bytes = (s->saved_bytes + 63) / 64 * 64;
        s->saved = take(base, at, s->saved_bytes * (size_t)(o->flags & ATTN_TRAIN_RECOMPUTE ? 1 : o->n_layers));
    }
    return ATTN_OK;
}

/* Places every buffer from base (NULL: counts alone); *size is what they take. */
static attn_status lay_out(run *r, char *base, size_t *size)
{
    const attn_net *net = r->net;
    const size_t width = (size_t)(r->decoder.rows * net->options.d_model) * r->element;
    const size_t source = (size_t)(r->encoder.rows * net->options.d_model) * r->element;
    size_t at = 0;
    if (net->encoder)
        ATTN_TRAIN_TRY(lay_stack(r, &r->encoder, base, &at));
    ATTN_TRAIN_TRY(lay_stack(r, &r->decoder, base, &at));
    if (net->transform.weight >= 0) {
        r->dense = take(base, &at, width);
        r->active = take(base, &at, width);
        r->transformed = take(base, &at, width);
    }
    if (r->backward) {
        r->d_a = take(base, &at, width);
        r->d_b = take(base, &at, width > source ? width : source);
        r->d_memory = net->encoder ? take(base, &at, source) : NULL;
        r->d_part = net->encoder ? take(base, &at, source) : NULL;
    }
    *size = at;
    return ATTN_OK;
}

static void start(run *r, const attn_net *net, attn_net_pass *pass, const attn_train_batch *batch)
{
    *r = (run){.net = net, .pass = pass, .batch = batch, .element = net->dtype == ATTN_F64 ? 8 : 4};
    r->backward = pass->gradients != NULL;
    r->decoder = (stack){.blocks = net->blocks, .seq = batch->length, .rows = batch->batch * batch->length};
    r->encoder = (stack){.blocks = net->encoder, .encoder = true, .seq = batch->source_length};
    r->encoder.rows = batch->batch * batch->source_length;
}

/* Makes memory large enough and places the buffers. */
static attn_status prepare(run *r, attn_net_memory *memory)
{
    size_t size;
    ATTN_TRAIN_TRY(lay_out(r, NULL, &size));
    if (size > memory->size) {
        free(memory->bytes);
        memory->bytes = NULL;
        memory->size = 0;
        void *bytes = attn_pages_allocate(size);
        if (!bytes)
            return attn_train_fail(ATTN_ERR_OUT_OF_MEMORY, "no memory for the activations of a batch (%.1f GB)",
                                   (double)size / 1e9);
        memory->bytes = bytes;
        memory->size = size;
    }
    return lay_out(r, memory->bytes, &size);
}

attn_status attn_net_memory_bytes(const attn_net *net, attn_layers *layers, int64_t batch, int64_t length,
                                  int64_t source_length, size_t *bytes)
{
    static const float nothing[1] = {0};
    static float gradients[1];
    attn_net_pass pass = {.layers = layers, .weights = nothing, .gradients = gradients};
    attn_train_batch b = {.batch = batch, .length = length, .source_length = source_length};
    run r;
    start(&r, net, &pass, &b);
    return lay_out(&r, NULL, bytes);
}

/* A block's gradients of states (two of its own; heads, queries, keys and values) and of hidden units, and these units again; what a
 * first pass has taken for one part it does not give to the next. Logits come in pieces of 32 MB. */
int64_t attn_net_scratch_bytes(const attn_net *net, int64_t batch, int64_t length, int64_t source_length)
{
    enum { STATES = 6, PIECE = 32 << 20 };
    const attn_trainer_options *o = &net->options;
    const int64_t element = net->dtype == ATTN_F64 ? 8 : 4, hidden = o->arch == ATTN_TRAIN_LLAMA ? 3 : 2;
    const int64_t rows = batch * (source_length > length ? source_length : length);
    const int64_t block = rows * (STATES * o->d_model + hidden * o->d_ff) * element;
    const int64_t logits = batch * length * o->vocab_size * element, piece = logits < PIECE ? logits : PIECE;
    return block > piece ? block : piece;
}

/* ---- Passes ---- */

static bool all_finite(const run *r, const char *x, int64_t n)
{
    const float *f = (const float *)(const void *)x;
    const double *g = (const double *)(const void *)x;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(r->element == 8 ? g[i] : (double)f[i]))
            return false;
    return true;
}

static bool find_fault(const run *r, const stack *s)
{
    const int64_t n = s->rows * r->net->options.d_model;
    for (int64_t layer = 0; layer <= r->net->options.n_layers; layer++) {
        if (all_finite(r, state(r, s, layer), n))
            continue;
        if (layer == 0)
            snprintf(r->pass->fault, sizeof r->pass->fault, "the %sembeddings", s->encoder ? "encoder's " : "");
        else
            snprintf(r->pass->fault, sizeof r->pass->fault, "the output of %s.%lld", s->encoder ? "encoder" : "layers",
                     (long long)(layer - 1));
        return true;
    }
    return false;
}

attn_status attn_net_run(const attn_net *net, attn_net_memory *memory, attn_net_pass *pass,
                         const attn_train_batch *batch)
{
    run r;
    pass->fault[0] = '\0';
    start(&r, net, pass, batch);
    ATTN_TRAIN_TRY(prepare(&r, memory));
    if (net->encoder)
        ATTN_TRAIN_TRY(stack_forward(&r, &r.encoder));
    ATTN_TRAIN_TRY(stack_forward(&r, &r.decoder));
    if (r.transformed)
        ATTN_TRAIN_TRY(transform_forward(&r));
    ATTN_TRAIN_TRY(head_loss(&r));
    if (!isfinite(pass->loss)) {
        if (!(net->encoder && find_fault(&r, &r.encoder)) && !find_fault(&r, &r.decoder))
            snprintf(pass->fault, sizeof pass->fault, "the logits");
        return ATTN_OK;
    }
    if (!r.backward)
        return ATTN_OK;
    char *d = r.d_a;
    if (r.transformed) {
        ATTN_TRAIN_TRY(transform_backward(&r, d));
        r.d_a = r.d_b; /* recomputation writes to d_b: the gradient takes the other's place */
        r.d_b = d;
        d = r.d_a;
    }
    ATTN_TRAIN_TRY(stack_backward(&r, &r.decoder, d));
    return net->encoder ? stack_backward(&r, &r.encoder, r.d_memory) : ATTN_OK;
}

attn_status attn_net_encode(const attn_net *net, attn_net_memory *memory, attn_net_pass *pass,
                            const attn_train_batch *batch, const void **states)
{
    run r;
    start(&r, net, pass, batch);
    ATTN_TRAIN_TRY(prepare(&r, memory));
    ATTN_TRAIN_TRY(stack_forward(&r, &r.encoder));
    *states = r.encoder.final;
    return ATTN_OK;
}

attn_status attn_net_decode(const attn_net *net, attn_net_memory *memory, attn_net_pass *pass,
                            const attn_train_batch *batch, const void **hidden)
{
    run r;
    start(&r, net, pass, batch);
    ATTN_TRAIN_TRY(prepare(&r, memory));
    ATTN_TRAIN_TRY(stack_forward(&r, &r.decoder));
    *hidden = r.decoder.final;
    return ATTN_OK;
}

/* ---- Counting ---- */

double attn_net_flops_per_token(const attn_net *net, int64_t length)
{
    const attn_trainer_options *o = &net->options;
    const bool bidirectional = o->arch == ATTN_TRAIN_BERT;
    double products = 0;
    for (int64_t i = 0; i < net->n_params; i++)
        if (net->params[i].rows > 1 && net->params[i].offset != net->positions.weight &&
            net->params[i].offset != net->types.weight)
            products += (double)(net->params[i].rows * net->params[i].columns); /* the embedding: as the head */
    /* scores and values: 4 d T for all pairs, half of them where causal; three times that with backward. ENCDEC: full, causal, full */
    const double pairs = (double)(o->n_layers * o->d_model * length) * (bidirectional ? 12 : 6);
    return 6 * products + pairs * (net->encoder ? 5 : 1);
}
