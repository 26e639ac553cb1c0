/* family_llama.c - Llama and what differs from it by options: Mistral (window), Qwen2 (biases), Qwen3 (QK norms). */
#include <string.h>
#include "models/family.h"

static const char *const model_types[] = {"llama", "mistral", "qwen2", "qwen3", NULL};
static const char *const architectures[] = {"llama", "qwen2", "qwen3", NULL};
static const char *const prefixes[] = {"model.", "language_model.model.", "model.language_model.", "", NULL};

static const attn_weight_name names[] = {
    {ATTN_SLOT_EMBEDDING, "embed_tokens", 0},
    {ATTN_SLOT_FINAL_NORM, "norm", 0},
    {ATTN_SLOT_HEAD, "lm_head", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_NORM1, "layers.%d.input_layernorm", 0},
    {ATTN_SLOT_Q, "layers.%d.self_attn.q_proj", 0},
    {ATTN_SLOT_K, "layers.%d.self_attn.k_proj", 0},
    {ATTN_SLOT_V, "layers.%d.self_attn.v_proj", 0},
    {ATTN_SLOT_O, "layers.%d.self_attn.o_proj", 0},
    {ATTN_SLOT_Q_NORM, "layers.%d.self_attn.q_norm", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_K_NORM, "layers.%d.self_attn.k_norm", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_NORM2, "layers.%d.post_attention_layernorm", 0},
    {ATTN_SLOT_GATE, "layers.%d.mlp.gate_proj", 0},
    {ATTN_SLOT_UP, "layers.%d.mlp.up_proj", 0},
    {ATTN_SLOT_DOWN, "layers.%d.mlp.down_proj", 0},
    {0, NULL, 0}};

static const attn_weight_name gguf_names[] = {
    {ATTN_SLOT_EMBEDDING, "token_embd", 0},
    {ATTN_SLOT_FINAL_NORM, "output_norm", 0},
    {ATTN_SLOT_HEAD, "output", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_NORM1, "blk.%d.attn_norm", 0},
    {ATTN_SLOT_Q, "blk.%d.attn_q", 0},
    {ATTN_SLOT_K, "blk.%d.attn_k", 0},
    {ATTN_SLOT_V, "blk.%d.attn_v", 0},
    {ATTN_SLOT_O, "blk.%d.attn_output", 0},
    {ATTN_SLOT_Q_NORM, "blk.%d.attn_q_norm", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_K_NORM, "blk.%d.attn_k_norm", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_NORM2, "blk.%d.ffn_norm", 0},
    {ATTN_SLOT_GATE, "blk.%d.ffn_gate", 0},
    {ATTN_SLOT_UP, "blk.%d.ffn_up", 0},
    {ATTN_SLOT_DOWN, "blk.%d.ffn_down", 0},
    {0, NULL, 0}};

static attn_status describe(const attn_model_source *source, attn_description *d, char *error, size_t error_size)
{
    attn_config c = attn_config_open(source, error, error_size);
    c.gguf_prefix = d->family;
    if (!strcmp(d->family, "qwen3"))
        d->head_dim = 128;
    attn_config_decoder_sizes(&c, d);
    d->norm.kind = ATTN_NORM_RMS;
    d->place = ATTN_NORM_PRE;
    d->norm.eps = attn_config_number(&c, "rms_norm_eps|@attention.layer_norm_rms_epsilon", 1e-6);
    d->mlp.gated = true;
    d->mlp.act = attn_config_act(&c, "hidden_act", "silu");
    attn_config_rope(&c, d, 0);
    /* GGUF keeps Llama's q and k rows in the order of interleaved pairs, and the others' as halves */
    d->rope.interleaved = source->gguf && !strcmp(d->family, "llama");
    d->tied = attn_config_bool(&c, "tie_word_embeddings", false);
    /* GGUF has Mistral as Llama: the window itself says that there is one */
    if (source->gguf || !strcmp(d->family, "mistral") || attn_config_bool(&c, "use_sliding_window", false)) {
        d->window = attn_config_window(&c, 4096);
        attn_config_layer_types(&c, d);
        if (!source->gguf && strcmp(d->family, "mistral")) /* files from before layer_types: from that layer on */
            attn_config_windowed(&c, d, attn_config_int(&c, "max_window_layers", 0, INT32_MAX, 28), 0, 0);
    }
    return c.status;
}

const attn_family attn_family_llama = {model_types, architectures, describe, names, gguf_names, prefixes};
