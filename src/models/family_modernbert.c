/* family_modernbert.c - ModernBERT: bidirectional, norms in front, RoPE of two bases, a window on most layers, gated
 * feed-forward, a masked-LM head where the file has one. */
#include "models/family.h"

static const char *const model_types[] = {"modernbert", NULL};
static const char *const prefixes[] = {"model.", "", NULL};

static const attn_weight_name names[] = {
    {ATTN_SLOT_EMBEDDING, "embeddings.tok_embeddings", 0},
    {ATTN_SLOT_EMBEDDING_NORM, "embeddings.norm", 0},
    {ATTN_SLOT_NORM1, "layers.%d.attn_norm", ATTN_NAME_OPTIONAL}, /* layer 0 has none: the embeddings' stands in */
    {ATTN_SLOT_QKV, "layers.%d.attn.Wqkv", 0},
    {ATTN_SLOT_O, "layers.%d.attn.Wo", 0},
    {ATTN_SLOT_NORM2, "layers.%d.mlp_norm", 0},
    {ATTN_SLOT_GATE_UP, "layers.%d.mlp.Wi", 0},
    {ATTN_SLOT_DOWN, "layers.%d.mlp.Wo", 0},
    {ATTN_SLOT_FINAL_NORM, "final_norm", 0},
    {ATTN_SLOT_TRANSFORM, "head.dense", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_TRANSFORM_NORM, "head.norm", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_HEAD_BIAS, "decoder.bias", ATTN_NAME_OPTIONAL | ATTN_NAME_BARE},
    {ATTN_SLOT_HEAD, "decoder", ATTN_NAME_OPTIONAL},
    {0, NULL, 0}};

static attn_status describe(const attn_model_source *source, attn_description *d, char *error, size_t error_size)
{
    attn_config c = attn_config_open(source, error, error_size);
    attn_source_tensor t;
    attn_config_decoder_sizes(&c, d);
    d->kind = ATTN_MODEL_ENCODER;
    d->norm.kind = ATTN_NORM_LAYER;
    d->norm.eps = attn_config_number(&c, "norm_eps", 1e-5);
    d->place = ATTN_NORM_PRE;
    d->mlp.gated = true;
    d->mlp.act = attn_config_act(&c, "hidden_activation", "gelu");
    d->transform_act = attn_config_act(&c, "classifier_activation", "gelu");
    d->rope.base = 160000;
    d->local_rope.base = 10000;
    attn_config_rope(&c, d, 0);
    d->window = attn_config_int(&c, "local_attention", 2, INT32_MAX, 128) / 2;
    d->window_two_sided = true;
    attn_config_layer_types(&c, d);
    attn_config_windowed(&c, d, 0, attn_config_int(&c, "global_attn_every_n_layers", 1, 4096, 3), 0);
    d->tied = attn_config_bool(&c, "tie_word_embeddings", true);
    d->has_logits = attn_source_find(source, "head.dense.weight", &t) && !attn_source_find(source, "classifier.weight", &t);
    return c.status;
}

const attn_family attn_family_modernbert = {model_types, NULL, describe, names, NULL, prefixes};
