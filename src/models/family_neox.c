/* family_neox.c - GPT-NeoX (Pythia): attention and feed-forward side by side, rotation of a part of each head. */
#include "models/family.h"

static const char *const model_types[] = {"gpt_neox", NULL};
static const char *const prefixes[] = {"gpt_neox.", "", NULL};

static const attn_weight_name names[] = {
    {ATTN_SLOT_EMBEDDING, "embed_in", 0},
    {ATTN_SLOT_FINAL_NORM, "final_layer_norm", 0},
    {ATTN_SLOT_HEAD, "embed_out", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_NORM1, "layers.%d.input_layernorm", 0},
    {ATTN_SLOT_QKV_HEADS, "layers.%d.attention.query_key_value", 0},
    {ATTN_SLOT_O, "layers.%d.attention.dense", 0},
    {ATTN_SLOT_NORM2, "layers.%d.post_attention_layernorm", 0},
    {ATTN_SLOT_UP, "layers.%d.mlp.dense_h_to_4h", 0},
    {ATTN_SLOT_DOWN, "layers.%d.mlp.dense_4h_to_h", 0},
    {0, NULL, 0}};

static attn_status describe(const attn_model_source *source, attn_description *d, char *error, size_t error_size)
{
    attn_config c = attn_config_open(source, error, error_size);
    attn_config_decoder_sizes(&c, d);
    d->norm.kind = ATTN_NORM_LAYER;
    d->norm.eps = attn_config_number(&c, "layer_norm_eps", 1e-5);
    d->place = attn_config_bool(&c, "use_parallel_residual", true) ? ATTN_NORM_PARALLEL : ATTN_NORM_PRE;
    d->mlp.act = attn_config_act(&c, "hidden_act", "gelu");
    attn_config_rope(&c, d, 0.25);
    d->tied = attn_config_bool(&c, "tie_word_embeddings", false);
    return c.status;
}

const attn_family attn_family_gpt_neox = {model_types, NULL, describe, names, NULL, prefixes};
