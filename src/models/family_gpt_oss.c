/* family_gpt_oss.c - gpt-oss: sinks, windows on alternate layers, YaRN, a mixture of experts with clamped SwiGLU. */
#include "models/family.h"

static const char *const model_types[] = {"gpt_oss", NULL};
static const char *const prefixes[] = {"model.", "", NULL};

static const attn_weight_name names[] = {
    {ATTN_SLOT_EMBEDDING, "embed_tokens", 0},
    {ATTN_SLOT_FINAL_NORM, "norm", 0},
    {ATTN_SLOT_HEAD, "lm_head", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_NORM1, "layers.%d.input_layernorm", 0},
    {ATTN_SLOT_Q, "layers.%d.self_attn.q_proj", 0},
    {ATTN_SLOT_K, "layers.%d.self_attn.k_proj", 0},
    {ATTN_SLOT_V, "layers.%d.self_attn.v_proj", 0},
    {ATTN_SLOT_O, "layers.%d.self_attn.o_proj", 0},
    {ATTN_SLOT_SINKS, "layers.%d.self_attn.sinks", ATTN_NAME_BARE},
    {ATTN_SLOT_NORM2, "layers.%d.post_attention_layernorm", 0},
    {ATTN_SLOT_ROUTER, "layers.%d.mlp.router", 0},
    {ATTN_SLOT_EXPERT_GATE_UP, "layers.%d.mlp.experts.gate_up_proj", ATTN_NAME_BARE},
    {ATTN_SLOT_EXPERT_DOWN, "layers.%d.mlp.experts.down_proj", ATTN_NAME_BARE},
    {0, NULL, 0}};

static attn_status describe(const attn_model_source *source, attn_description *d, char *error, size_t error_size)
{
    attn_config c = attn_config_open(source, error, error_size);
    d->head_dim = 64;
    d->rope.base = 150000;
    attn_config_decoder_sizes(&c, d);
    d->norm.kind = ATTN_NORM_RMS;
    d->norm.eps = attn_config_number(&c, "rms_norm_eps", 1e-5);
    d->place = ATTN_NORM_PRE;
    d->mlp.gated = true;
    d->mlp.act = ATTN_ACT_SILU;
    d->mlp.n_experts = attn_config_need(&c, "num_local_experts|num_experts", 1, 4096);
    d->mlp.experts_per_token = attn_config_int(&c, "num_experts_per_tok|experts_per_token", 1, 64, 4);
    d->mlp.swiglu_limit = attn_config_number(&c, "swiglu_limit", 7);
    d->mlp.swiglu_alpha = attn_config_number(&c, "swiglu_alpha", 1.702);
    d->window = attn_config_window(&c, 128);
    attn_config_layer_types(&c, d);
    attn_config_windowed(&c, d, 0, 2, 1); /* files without layer_types */
    attn_config_rope(&c, d, 0);
    d->tied = attn_config_bool(&c, "tie_word_embeddings", false);
    return c.status;
}

const attn_family attn_family_gpt_oss = {model_types, NULL, describe, names, NULL, prefixes};
