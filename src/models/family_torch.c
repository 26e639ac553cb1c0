/* family_torch.c - the encoder-decoder of Vaswani et al. 2017 as torch.nn.Transformer keeps it (model_type torch_transformer,
 * fields named as its arguments): norms behind or in front, cross attention, rows instead of tokens. */
#include "models/family.h"

static const char *const model_types[] = {"torch_transformer", NULL};
static const char *const prefixes[] = {"transformer.", "", NULL};

#define E ATTN_NAME_ENCODER
#define U ATTN_NAME_UNDERSCORE

static const attn_weight_name names[] = {
    {ATTN_SLOT_QKV, "encoder.layers.%d.self_attn.in_proj", E | U},
    {ATTN_SLOT_O, "encoder.layers.%d.self_attn.out_proj", E},
    {ATTN_SLOT_NORM1, "encoder.layers.%d.norm1", E},
    {ATTN_SLOT_UP, "encoder.layers.%d.linear1", E},
    {ATTN_SLOT_DOWN, "encoder.layers.%d.linear2", E},
    {ATTN_SLOT_NORM2, "encoder.layers.%d.norm2", E},
    {ATTN_SLOT_FINAL_NORM, "encoder.norm", E | ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_QKV, "decoder.layers.%d.self_attn.in_proj", U},
    {ATTN_SLOT_O, "decoder.layers.%d.self_attn.out_proj", 0},
    {ATTN_SLOT_NORM1, "decoder.layers.%d.norm1", 0},
    {ATTN_SLOT_CROSS_QKV, "decoder.layers.%d.multihead_attn.in_proj", U},
    {ATTN_SLOT_CROSS_O, "decoder.layers.%d.multihead_attn.out_proj", 0},
    {ATTN_SLOT_NORM_CROSS, "decoder.layers.%d.norm2", 0},
    {ATTN_SLOT_UP, "decoder.layers.%d.linear1", 0},
    {ATTN_SLOT_DOWN, "decoder.layers.%d.linear2", 0},
    {ATTN_SLOT_NORM2, "decoder.layers.%d.norm3", 0},
    {ATTN_SLOT_FINAL_NORM, "decoder.norm", ATTN_NAME_OPTIONAL},
    {0, NULL, 0}};

#undef E
#undef U

static attn_status describe(const attn_model_source *source, attn_description *d, char *error, size_t error_size)
{
    attn_config c = attn_config_open(source, error, error_size);
    d->kind = ATTN_MODEL_ENCODER_DECODER;
    d->no_tokens = true;
    d->n_encoder_layers = attn_config_int(&c, "num_encoder_layers", 1, 4096, 6);
    d->n_layers = attn_config_int(&c, "num_decoder_layers", 1, 4096, 6);
    d->d_model = attn_config_int(&c, "d_model", 1, 1 << 20, 512);
    d->n_heads = d->n_kv_heads = attn_config_int(&c, "nhead", 1, 1 << 16, 8);
    d->d_ff = attn_config_int(&c, "dim_feedforward", 1, 1 << 24, 2048);
    d->context_length = attn_config_int(&c, "max_position_embeddings", 1, INT32_MAX, 1 << 20); /* it has no positions */
    if (c.status == ATTN_OK && d->d_model % d->n_heads)
        attn_config_fail(&c, ATTN_ERR_FORMAT, "d_model is %lld, no multiple of nhead %lld", (long long)d->d_model,
                         (long long)d->n_heads);
    d->head_dim = c.status == ATTN_OK ? d->d_model / d->n_heads : 1;
    d->norm.kind = ATTN_NORM_LAYER;
    d->norm.eps = attn_config_number(&c, "layer_norm_eps", 1e-5);
    d->place = attn_config_bool(&c, "norm_first", false) ? ATTN_NORM_PRE : ATTN_NORM_POST;
    d->mlp.act = attn_config_act(&c, "activation", "relu");
    return c.status;
}

const attn_family attn_family_torch = {model_types, NULL, describe, names, NULL, prefixes};
