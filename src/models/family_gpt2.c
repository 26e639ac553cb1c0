/* family_gpt2.c - GPT-2: learned positions, LayerNorm in front, fused q, k, v stored [in, out], tied head. */
#include "models/family.h"

static const char *const model_types[] = {"gpt2", NULL};
static const char *const architectures[] = {"gpt2", NULL};
static const char *const prefixes[] = {"transformer.", "", NULL};

static const attn_weight_name names[] = {
    {ATTN_SLOT_EMBEDDING, "wte", 0},
    {ATTN_SLOT_POSITIONS, "wpe", 0},
    {ATTN_SLOT_FINAL_NORM, "ln_f", 0},
    {ATTN_SLOT_HEAD, "lm_head", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_NORM1, "h.%d.ln_1", 0},
    {ATTN_SLOT_QKV, "h.%d.attn.c_attn", ATTN_NAME_TRANSPOSED},
    {ATTN_SLOT_O, "h.%d.attn.c_proj", ATTN_NAME_TRANSPOSED},
    {ATTN_SLOT_NORM2, "h.%d.ln_2", 0},
    {ATTN_SLOT_UP, "h.%d.mlp.c_fc", ATTN_NAME_TRANSPOSED},
    {ATTN_SLOT_DOWN, "h.%d.mlp.c_proj", ATTN_NAME_TRANSPOSED},
    {0, NULL, 0}};

static const attn_weight_name gguf_names[] = {
    {ATTN_SLOT_EMBEDDING, "token_embd", 0},
    {ATTN_SLOT_POSITIONS, "position_embd", 0},
    {ATTN_SLOT_FINAL_NORM, "output_norm", 0},
    {ATTN_SLOT_HEAD, "output", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_NORM1, "blk.%d.attn_norm", 0},
    {ATTN_SLOT_QKV, "blk.%d.attn_qkv", 0},
    {ATTN_SLOT_O, "blk.%d.attn_output", 0},
    {ATTN_SLOT_NORM2, "blk.%d.ffn_norm", 0},
    {ATTN_SLOT_UP, "blk.%d.ffn_up", 0},
    {ATTN_SLOT_DOWN, "blk.%d.ffn_down", 0},
    {0, NULL, 0}};

static attn_status describe(const attn_model_source *source, attn_description *d, char *error, size_t error_size)
{
    attn_config c = attn_config_open(source, error, error_size);
    c.gguf_prefix = d->family;
    attn_config_decoder_sizes(&c, d);
    d->norm.kind = ATTN_NORM_LAYER;
    d->place = ATTN_NORM_PRE;
    d->norm.eps = attn_config_number(&c, "layer_norm_epsilon|@attention.layer_norm_epsilon", 1e-5);
    d->mlp.act = attn_config_act(&c, "activation_function", "gelu_new");
    d->position = ATTN_POSITION_LEARNED;
    d->position_rows = d->context_length;
    d->tied = attn_config_bool(&c, "tie_word_embeddings", true);
    if (!attn_config_bool(&c, "scale_attn_weights", true)) {
        d->scale = 1;
        d->scale_given = true;
    }
    d->scale_by_layer = attn_config_bool(&c, "scale_attn_by_inverse_layer_idx", false);
    attn_config_refuse(&c, "add_cross_attention");
    return c.status;
}

const attn_family attn_family_gpt2 = {model_types, architectures, describe, names, gguf_names, prefixes};
