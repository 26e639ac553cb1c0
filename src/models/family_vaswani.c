/* family_vaswani.c - the encoder-decoder of Vaswani et al. 2017 as `attn train --arch encdec` leaves it: sinusoidal positions,
 * ReLU, one shared matrix for both embeddings and the head; norms behind (2017) or in front with one behind each stack. */
#include <math.h>
#include "models/family.h"

static const char *const model_types[] = {"attn_encoder_decoder", NULL};
static const char *const prefixes[] = {"", NULL};

#define E ATTN_NAME_ENCODER

static const attn_weight_name names[] = {
    {ATTN_SLOT_EMBEDDING, "embedding", 0},
    {ATTN_SLOT_FINAL_NORM, "encoder_norm", E | ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_NORM1, "encoder.%d.norm1", E},
    {ATTN_SLOT_Q, "encoder.%d.attention.query", E},
    {ATTN_SLOT_K, "encoder.%d.attention.key", E},
    {ATTN_SLOT_V, "encoder.%d.attention.value", E},
    {ATTN_SLOT_O, "encoder.%d.attention.out", E},
    {ATTN_SLOT_NORM2, "encoder.%d.norm2", E},
    {ATTN_SLOT_UP, "encoder.%d.up", E},
    {ATTN_SLOT_DOWN, "encoder.%d.down", E},
    {ATTN_SLOT_FINAL_NORM, "final_norm", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_NORM1, "layers.%d.norm1", 0},
    {ATTN_SLOT_Q, "layers.%d.attention.query", 0},
    {ATTN_SLOT_K, "layers.%d.attention.key", 0},
    {ATTN_SLOT_V, "layers.%d.attention.value", 0},
    {ATTN_SLOT_O, "layers.%d.attention.out", 0},
    {ATTN_SLOT_NORM_CROSS, "layers.%d.norm_cross", 0},
    {ATTN_SLOT_CROSS_Q, "layers.%d.cross.query", 0},
    {ATTN_SLOT_CROSS_K, "layers.%d.cross.key", 0},
    {ATTN_SLOT_CROSS_V, "layers.%d.cross.value", 0},
    {ATTN_SLOT_CROSS_O, "layers.%d.cross.out", 0},
    {ATTN_SLOT_NORM2, "layers.%d.norm2", 0},
    {ATTN_SLOT_UP, "layers.%d.up", 0},
    {ATTN_SLOT_DOWN, "layers.%d.down", 0},
    {0, NULL, 0}};

#undef E

static attn_status describe(const attn_model_source *source, attn_description *d, char *error, size_t error_size)
{
    attn_config c = attn_config_open(source, error, error_size);
    d->kind = ATTN_MODEL_ENCODER_DECODER;
    d->has_logits = d->tied = true;
    d->n_layers = d->n_encoder_layers = attn_config_need(&c, "num_layers", 1, 4096);
    d->d_model = attn_config_need(&c, "d_model", 1, 1 << 20);
    d->d_ff = attn_config_need(&c, "d_ff", 1, 1 << 24);
    d->n_heads = d->n_kv_heads = attn_config_need(&c, "num_heads", 1, 1 << 16);
    d->vocab_size = attn_config_need(&c, "vocab_size", 1, 1 << 28);
    d->context_length = attn_config_need(&c, "max_position_embeddings", 1, INT32_MAX);
    d->norm.kind = ATTN_NORM_LAYER;
    d->norm.eps = attn_config_number(&c, "layer_norm_eps", 1e-5);
    d->place = attn_config_bool(&c, "pre_norm", false) ? ATTN_NORM_PRE : ATTN_NORM_POST;
    d->position = ATTN_POSITION_SINUSOIDAL;
    d->mlp.act = attn_config_act(&c, "activation_function", "relu");
    attn_config_ids(&c, d);
    if (c.status != ATTN_OK)
        return c.status;
    if (d->d_model % d->n_heads)
        attn_config_fail(&c, ATTN_ERR_FORMAT, "d_model is %lld, no multiple of num_heads %lld", (long long)d->d_model,
                         (long long)d->n_heads);
    d->head_dim = d->d_model / d->n_heads;
    d->embedding_scale = sqrt((double)d->d_model);
    return c.status;
}

const attn_family attn_family_vaswani = {model_types, NULL, describe, names, NULL, prefixes};
