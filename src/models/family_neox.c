/* family_neox.c - GPT-NeoX (Pythia): attention and feed-forward side by side, rotation of a part of each head; and OPT:
 * learned positions from row 2 on, ReLU. */
#include <math.h>
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
    attn_config_rope(&c, d);
    if (!attn_config_has(&c, "rope_parameters|rotary_pct|partial_rotary_factor"))
        d->rope.rotary_dim = d->head_dim / 4 / 2 * 2;
    d->tied = attn_config_bool(&c, "tie_word_embeddings", false);
    return c.status;
}

const attn_family attn_family_gpt_neox = {model_types, NULL, describe, names, NULL, prefixes};

/* ---- OPT ---- */

static const char *const opt_types[] = {"opt", NULL};
static const char *const opt_prefixes[] = {"model.decoder.", "decoder.", "", NULL};

static const attn_weight_name opt_names[] = {
    {ATTN_SLOT_EMBEDDING, "embed_tokens", 0},
    {ATTN_SLOT_POSITIONS, "embed_positions", 0},
    {ATTN_SLOT_FINAL_NORM, "final_layer_norm", 0},
    {ATTN_SLOT_HEAD, "lm_head", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_NORM1, "layers.%d.self_attn_layer_norm", 0},
    {ATTN_SLOT_Q, "layers.%d.self_attn.q_proj", 0},
    {ATTN_SLOT_K, "layers.%d.self_attn.k_proj", 0},
    {ATTN_SLOT_V, "layers.%d.self_attn.v_proj", 0},
    {ATTN_SLOT_O, "layers.%d.self_attn.out_proj", 0},
    {ATTN_SLOT_NORM2, "layers.%d.final_layer_norm", 0},
    {ATTN_SLOT_UP, "layers.%d.fc1", 0},
    {ATTN_SLOT_DOWN, "layers.%d.fc2", 0},
    {0, NULL, 0}};

static attn_status describe_opt(const attn_model_source *source, attn_description *d, char *error, size_t error_size)
{
    attn_config c = attn_config_open(source, error, error_size);
    attn_config_decoder_sizes(&c, d);
    d->norm.kind = ATTN_NORM_LAYER;
    d->norm.eps = 1e-5;
    d->place = ATTN_NORM_PRE;
    if (!attn_config_bool(&c, "do_layer_norm_before", true))
        attn_config_fail(&c, ATTN_ERR_UNSUPPORTED, "do_layer_norm_before false is not served");
    if (attn_config_int(&c, "word_embed_proj_dim", 1, 1 << 20, d->d_model) != d->d_model)
        attn_config_fail(&c, ATTN_ERR_UNSUPPORTED, "word_embed_proj_dim other than hidden_size is not served");
    d->mlp.act = attn_config_act(&c, "activation_function", "relu");
    d->position = ATTN_POSITION_LEARNED;
    d->position_offset = 2;
    d->position_rows = d->context_length + 2;
    d->tied = attn_config_bool(&c, "tie_word_embeddings", true);
    return c.status;
}

const attn_family attn_family_opt = {opt_types, NULL, describe_opt, opt_names, NULL, opt_prefixes};
