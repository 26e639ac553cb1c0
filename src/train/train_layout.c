/* train_layout.c - options checked and filled in, and the list of parameters of each architecture. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "train/mix.h"
#include "train/train_error.h"
#include "train/train_net.h"

/* ---- Options ---- */

static attn_status check_sizes(const attn_trainer_options *o)
{
    ATTN_TRAIN_REQUIRE(o->arch >= ATTN_TRAIN_GPT2 && o->arch <= ATTN_TRAIN_ENCDEC, "arch is %d", o->arch);
    ATTN_TRAIN_REQUIRE(o->vocab_size >= 2 && o->vocab_size <= 1 << 24,
                       "vocab_size is %lld; it must lie in 2 .. %d", (long long)o->vocab_size, 1 << 24);
    ATTN_TRAIN_REQUIRE(o->context >= 1 && o->context <= 1 << 24, "context is %lld", (long long)o->context);
    ATTN_TRAIN_REQUIRE(o->n_layers >= 1 && o->n_layers <= 1024, "n_layers is %lld; it must lie in 1 .. 1024",
                       (long long)o->n_layers);
    ATTN_TRAIN_REQUIRE(o->n_heads >= 1 && o->n_heads <= 1024, "n_heads is %lld; it must lie in 1 .. 1024",
                       (long long)o->n_heads);
    ATTN_TRAIN_REQUIRE(o->d_model >= 1 && o->d_model <= 1 << 16 && o->d_model % o->n_heads == 0,
                       "d_model is %lld; it must be a multiple of n_heads %lld, at most 65536",
                       (long long)o->d_model, (long long)o->n_heads);
    ATTN_TRAIN_REQUIRE(o->arch != ATTN_TRAIN_LLAMA || o->d_model % (2 * o->n_heads) == 0,
                       "d_model is %lld; rotary positions need a multiple of 2 n_heads = %lld",
                       (long long)o->d_model, (long long)(2 * o->n_heads));
    ATTN_TRAIN_REQUIRE(o->n_kv_heads >= 0 && (!o->n_kv_heads || o->n_heads % o->n_kv_heads == 0),
                       "n_kv_heads is %lld; it must divide n_heads %lld", (long long)o->n_kv_heads,
                       (long long)o->n_heads);
    ATTN_TRAIN_REQUIRE(!o->n_kv_heads || o->n_kv_heads == o->n_heads || o->arch == ATTN_TRAIN_LLAMA,
                       "n_kv_heads is %lld; only LLAMA has fewer than n_heads", (long long)o->n_kv_heads);
    ATTN_TRAIN_REQUIRE(o->d_ff >= 0 && o->d_ff <= 1 << 20, "d_ff is %lld", (long long)o->d_ff);
    return ATTN_OK;
}

static attn_status check_numbers(const attn_trainer_options *o)
{
    const uint32_t flags = ATTN_TRAIN_PRE_NORM | ATTN_TRAIN_RECOMPUTE;
    ATTN_TRAIN_REQUIRE(o->dtype == ATTN_F32 || o->dtype == ATTN_BF16, "dtype is %d; ATTN_F32 and ATTN_BF16 are served",
                       o->dtype);
    ATTN_TRAIN_REQUIRE(!(o->flags & ~flags), "flags is 0x%x; bits 0x%x are not known", o->flags, o->flags & ~flags);
    ATTN_TRAIN_REQUIRE(!(o->flags & ATTN_TRAIN_PRE_NORM) || o->arch == ATTN_TRAIN_ENCDEC,
                       "flags holds ATTN_TRAIN_PRE_NORM; only ENCDEC has the choice");
    ATTN_TRAIN_REQUIRE(o->n_threads >= 0 && o->n_threads <= 1024, "n_threads is %d", o->n_threads);
    ATTN_TRAIN_REQUIRE(o->dropout >= 0 && o->dropout <= 0.9, "dropout is %g; it must lie in 0 .. 0.9", o->dropout);
    ATTN_TRAIN_REQUIRE(o->beta1 >= 0 && o->beta1 < 1, "beta1 is %g; it must lie in 0 .. 1", o->beta1);
    ATTN_TRAIN_REQUIRE(o->beta2 >= 0 && o->beta2 < 1, "beta2 is %g; it must lie in 0 .. 1", o->beta2);
    ATTN_TRAIN_REQUIRE(o->epsilon >= 0 && o->epsilon < 1, "epsilon is %g; it must lie in 0 .. 1", o->epsilon);
    ATTN_TRAIN_REQUIRE(o->weight_decay >= 0 && o->weight_decay <= 1000, "weight_decay is %g", o->weight_decay);
    ATTN_TRAIN_REQUIRE(o->norm_eps >= 0 && o->norm_eps < 1, "norm_eps is %g; it must lie in 0 .. 1", o->norm_eps);
    ATTN_TRAIN_REQUIRE(o->rope_base >= 0 && o->rope_base <= 1e12, "rope_base is %g", o->rope_base);
    ATTN_TRAIN_REQUIRE(o->clip >= 0 && o->clip <= 1e30, "clip is %g; it must be 0 or more", o->clip);
    const int32_t ids[] = {o->pad_id, o->bos_id, o->eos_id, o->mask_id};
    static const char *const names[] = {"pad_id", "bos_id", "eos_id", "mask_id"};
    for (int i = 0; i < 4; i++)
        ATTN_TRAIN_REQUIRE(ids[i] >= -1 && ids[i] < o->vocab_size, "%s is %d; the vocabulary has %lld", names[i], ids[i],
                           (long long)o->vocab_size);
    return ATTN_OK;
}

static void fill_in(attn_trainer_options *o)
{
    o->struct_size = sizeof *o;
    o->n_kv_heads = o->n_kv_heads ? o->n_kv_heads : o->n_heads;
    if (!o->d_ff)
        o->d_ff = o->arch == ATTN_TRAIN_LLAMA ? (8 * o->d_model / 3 + 31) / 32 * 32 : 4 * o->d_model;
    o->beta1 = o->beta1 > 0 ? o->beta1 : 0.9;
    o->beta2 = o->beta2 > 0 ? o->beta2 : 0.99;
    o->epsilon = o->epsilon > 0 ? o->epsilon : 1e-8;
    if (o->norm_eps <= 0)
        o->norm_eps = o->arch == ATTN_TRAIN_BERT ? 1e-12 : o->arch == ATTN_TRAIN_LLAMA ? 1e-6 : 1e-5;
    o->rope_base = o->rope_base > 0 ? o->rope_base : 10000;
}

/* ---- Parameters ---- */

typedef struct layout {
    attn_net *net;
    bool failed; /* out of memory */
    bool biases, glorot;
    double residual_spread;
} layout;

static int64_t add_param(layout *l, const char *name, int64_t rows, int64_t columns, enum attn_net_init init,
                         double spread)
{
    attn_net *net = l->net;
    if (net->n_params == net->params_capacity) {
        int64_t capacity = net->params_capacity ? 2 * net->params_capacity : 64;
        attn_net_param *params = realloc(net->params, (size_t)capacity * sizeof *params);
        if (!params) {
            l->failed = true;
            return -1;
        }
        net->params = params;
        net->params_capacity = capacity;
    }
    attn_net_param *p = &net->params[net->n_params++];
    *p = (attn_net_param){.rows = rows, .columns = columns, .offset = net->n_elements, .init = init, .spread = spread};
    p->decays = rows > 1; /* matrices; norms and biases are vectors */
    snprintf(p->name, sizeof p->name, "%s", name);
    net->n_elements += rows * columns;
    return p->offset;
}

/* prefix and name, one behind the other; names are ours and fit. */
static const char *joined(char out[56], const char *prefix, const char *name)
{
    const size_t n = strnlen(prefix, 55), m = strnlen(name, 55 - n);
    memmove(out, prefix, n);
    memcpy(out + n, name, m);
    out[n + m] = '\0';
    return out;
}

static attn_net_pair no_pair(void)
{
    return (attn_net_pair){-1, -1};
}

static attn_net_pair add_norm(layout *l, const char *prefix, const char *name, bool bias)
{
    char text[56], full[56];
    attn_net_pair pair = no_pair();
    const int64_t d = l->net->options.d_model;
    joined(full, prefix, name);
    pair.weight = add_param(l, joined(text, full, ".weight"), 1, d, ATTN_INIT_ONE, 0);
    if (bias)
        pair.bias = add_param(l, joined(text, full, ".bias"), 1, d, ATTN_INIT_ZERO, 0);
    return pair;
}

static int64_t add_matrix(layout *l, const char *prefix, const char *name, int64_t n_out, int64_t n_in, bool residual)
{
    char text[56];
    if (l->glorot)
        return add_param(l, joined(text, prefix, name), n_out, n_in, ATTN_INIT_UNIFORM, sqrt(6.0 / (double)(n_in + n_out)));
    return add_param(l, joined(text, prefix, name), n_out, n_in, ATTN_INIT_NORMAL, residual ? l->residual_spread : 0.02);
}

static int64_t add_bias(layout *l, const char *prefix, const char *name, int64_t n)
{
    char text[56];
    return l->biases ? add_param(l, joined(text, prefix, name), 1, n, ATTN_INIT_ZERO, 0) : -1;
}

/* query, key and value follow one another, and so do their biases: layers then take them as one matrix. */
static attn_net_attention add_attention(layout *l, const char *prefix)
{
    const attn_trainer_options *o = &l->net->options;
    const int64_t d = o->d_model, kv = d / o->n_heads * o->n_kv_heads;
    attn_net_attention a;
    a.q.weight = add_matrix(l, prefix, "query.weight", d, d, false);
    a.k.weight = add_matrix(l, prefix, "key.weight", kv, d, false);
    a.v.weight = add_matrix(l, prefix, "value.weight", kv, d, false);
    a.q.bias = add_bias(l, prefix, "query.bias", d);
    a.k.bias = add_bias(l, prefix, "key.bias", kv);
    a.v.bias = add_bias(l, prefix, "value.bias", kv);
    a.o.weight = add_matrix(l, prefix, "out.weight", d, d, true);
    a.o.bias = add_bias(l, prefix, "out.bias", d);
    return a;
}

static attn_net_pair add_linear(layout *l, const char *prefix, const char *name, int64_t n_out, int64_t n_in,
                                bool residual)
{
    char full[56];
    attn_net_pair pair;
    joined(full, prefix, name);
    pair.weight = add_matrix(l, full, ".weight", n_out, n_in, residual);
    pair.bias = add_bias(l, full, ".bias", n_out);
    return pair;
}

static attn_net_block add_block(layout *l, const char *stack, int64_t layer, bool cross)
{
    const attn_trainer_options *o = &l->net->options;
    const bool gated = o->arch == ATTN_TRAIN_LLAMA, bias = o->arch != ATTN_TRAIN_LLAMA;
    const attn_net_attention none = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
    char prefix[56], part[56];
    attn_net_block b;
    snprintf(prefix, sizeof prefix, "%s.%lld.", stack, (long long)layer);
    b.norm1 = add_norm(l, prefix, "norm1", bias);
    b.self = add_attention(l, joined(part, prefix, "attention."));
    b.norm_cross = cross ? add_norm(l, prefix, "norm_cross", bias) : no_pair();
    b.cross = cross ? add_attention(l, joined(part, prefix, "cross.")) : none;
    b.norm2 = add_norm(l, prefix, "norm2", bias);
    b.gate = gated ? add_linear(l, prefix, "gate", o->d_ff, o->d_model, false) : no_pair();
    b.up = add_linear(l, prefix, "up", o->d_ff, o->d_model, false);
    b.down = add_linear(l, prefix, "down", o->d_model, o->d_ff, true);
    return b;
}

static void add_embeddings(layout *l)
{
    attn_net *net = l->net;
    const attn_trainer_options *o = &net->options;
    const double spread = l->glorot ? 1 / sqrt((double)o->d_model) : 0.02;
    net->embedding = (attn_net_pair){
        add_param(l, "embedding.weight", o->vocab_size, o->d_model, ATTN_INIT_NORMAL, spread), -1};
    if (o->arch == ATTN_TRAIN_GPT2 || o->arch == ATTN_TRAIN_BERT)
        net->positions.weight = add_param(l, "positions.weight", o->context, o->d_model, ATTN_INIT_NORMAL, 0.02);
    if (o->arch == ATTN_TRAIN_BERT) {
        net->types.weight = add_param(l, "types.weight", 2, o->d_model, ATTN_INIT_NORMAL, 0.02);
        net->embedding_norm = add_norm(l, "", "embedding_norm", true);
    }
}

static void add_ends(layout *l)
{
    attn_net *net = l->net;
    const attn_trainer_options *o = &net->options;
    if (net->place == ATTN_BLOCK_PRE_NORM)
        net->final_norm = add_norm(l, "", "final_norm", o->arch != ATTN_TRAIN_LLAMA);
    if (o->arch == ATTN_TRAIN_BERT) {
        net->transform = add_linear(l, "", "transform", o->d_model, o->d_model, false);
        net->transform_norm = add_norm(l, "", "transform_norm", true);
        net->head.bias = add_bias(l, "", "head.bias", o->vocab_size);
    }
}

static attn_status add_all(attn_net *net)
{
    const attn_trainer_options *o = &net->options;
    layout l = {.net = net,
                .biases = o->arch != ATTN_TRAIN_LLAMA,
                .glorot = o->arch == ATTN_TRAIN_ENCDEC,
                .residual_spread = o->arch == ATTN_TRAIN_BERT ? 0.02 : 0.02 / sqrt(2.0 * (double)o->n_layers)};
    net->blocks = calloc((size_t)o->n_layers, sizeof *net->blocks);
    net->encoder = o->arch == ATTN_TRAIN_ENCDEC ? calloc((size_t)o->n_layers, sizeof *net->encoder) : NULL;
    if (!net->blocks || (o->arch == ATTN_TRAIN_ENCDEC && !net->encoder))
        return attn_train_no_memory();
    add_embeddings(&l);
    for (int64_t i = 0; net->encoder && i < o->n_layers; i++)
        net->encoder[i] = add_block(&l, "encoder", i, false);
    if (net->encoder && net->place == ATTN_BLOCK_PRE_NORM)
        net->encoder_norm = add_norm(&l, "", "encoder_norm", true);
    for (int64_t i = 0; i < o->n_layers; i++)
        net->blocks[i] = add_block(&l, "layers", i, net->encoder != NULL);
    add_ends(&l);
    return l.failed ? attn_train_no_memory() : ATTN_OK;
}

static void choose(attn_net *net)
{
    const attn_trainer_options *o = &net->options;
    const bool llama = o->arch == ATTN_TRAIN_LLAMA;
    const bool pre = o->arch == ATTN_TRAIN_GPT2 || llama || o->flags & ATTN_TRAIN_PRE_NORM;
    static const int32_t acts[] = {ATTN_ACT_GELU_TANH, ATTN_ACT_SILU, ATTN_ACT_GELU_ERF, ATTN_ACT_RELU};
    net->norm_kind = llama ? ATTN_NORM_RMS : ATTN_NORM_LAYER;
    net->place = pre ? ATTN_BLOCK_PRE_NORM : ATTN_BLOCK_POST_NORM;
    net->act = acts[o->arch];
    net->norm_eps = o->norm_eps;
    net->dtype = ATTN_F32;
    ATTN_ARGS_INIT(&net->rope);
    net->rope.base = o->rope_base;
    net->positions = net->types = net->embedding_norm = net->final_norm = net->encoder_norm = no_pair();
    net->transform = net->transform_norm = net->head = no_pair();
}

attn_status attn_net_create(attn_net *net, const attn_trainer_options *options)
{
    memset(net, 0, sizeof *net);
    ATTN_TRAIN_TRY(check_sizes(options));
    ATTN_TRAIN_TRY(check_numbers(options));
    net->options = *options;
    fill_in(&net->options);
    choose(net);
    attn_status status = add_all(net);
    if (status == ATTN_OK && net->n_elements > (int64_t)1 << 40)
        status = attn_train_fail(ATTN_ERR_UNSUPPORTED, "%lld parameters are too many", (long long)net->n_elements);
    if (status != ATTN_OK)
        attn_net_destroy(net);
    return status;
}

void attn_net_destroy(attn_net *net)
{
    free(net->params);
    free(net->blocks);
    free(net->encoder);
    memset(net, 0, sizeof *net);
}

/* ---- Fresh weights ---- */

/* Element i of a tensor depends on the seed, the tensor's number and i alone (Box and Muller 1958, one half of each pair). */
void attn_net_initialise(const attn_net *net, float *weights)
{
    const double turn = 6.28318530717958647692;
    for (int64_t p = 0; p < net->n_params; p++) {
        const attn_net_param *param = &net->params[p];
        const uint64_t key = attn_mix(net->options.seed, (uint64_t)p);
        float *w = weights + param->offset;
        for (int64_t i = 0; i < param->rows * param->columns; i++) {
            const double u = attn_mix_unit(key, 2 * (uint64_t)i), v = attn_mix_unit(key, 2 * (uint64_t)i + 1);
            switch (param->init) {
            case ATTN_INIT_ZERO:
                w[i] = 0;
                break;
            case ATTN_INIT_ONE:
                w[i] = 1;
                break;
            case ATTN_INIT_NORMAL:
                w[i] = (float)(param->spread * sqrt(-2 * log(1 - u)) * cos(turn * v));
                break;
            case ATTN_INIT_UNIFORM:
                w[i] = (float)(param->spread * (2 * u - 1));
                break;
            }
        }
    }
}
