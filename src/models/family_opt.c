/* family_opt.c - OPT: learned positions from row 2 on, ReLU; norms behind and a narrower embedding in one of its sizes. */
#include "models/family.h"

static const char *const model_types[] = {"opt", NULL};
static const char *const prefixes[] = {"model.decoder.", "decoder.", "", NULL};

static const attn_weight_name names[] = {
    {ATTN_SLOT_EMBEDDING, "embed_tokens", 0},
    {ATTN_SLOT_POSITIONS, "embed_positions", 0},
    {ATTN_SLOT_PROJECT_IN, "project_in", 0},
    {ATTN_SLOT_PROJECT_OUT, "project_out", 0},
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

static attn_status describe(const attn_model_source *source, attn_description *d, char *error, size_t error_size)
{
    attn_config c = attn_config_open(source, error, error_size);
    attn_config_decoder_sizes(&c, d);
    d->norm.kind = ATTN_NORM_LAYER;
    d->norm.eps = 1e-5;
    d->place = attn_config_bool(&c, "do_layer_norm_before", true) ? ATTN_NORM_PRE : ATTN_NORM_POST;
    d->plain_norms = !attn_config_bool(&c, "layer_norm_elementwise_affine", true);
    d->no_final_norm = d->place == ATTN_NORM_POST || attn_config_bool(&c, "_remove_final_layer_norm", false);
    d->embedding_dim = attn_config_int(&c, "word_embed_proj_dim", 1, 1 << 20, d->d_model);
    if (d->embedding_dim == d->d_model)
        d->embedding_dim = 0;
    d->mlp.act = attn_config_act(&c, "activation_function", "relu");
    d->position = ATTN_POSITION_LEARNED;
    d->position_offset = 2;
    d->position_rows = d->context_length + 2;
    d->tied = attn_config_bool(&c, "tie_word_embeddings", true);
    return c.status;
}

const attn_family attn_family_opt = {model_types, NULL, describe, names, NULL, prefixes};
