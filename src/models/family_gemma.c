/* family_gemma.c - Gemma 1, 2 and 3: norm scales 1 + w, embeddings times sqrt(d_model), gated tanh GELU; from 2 on norms
 * behind both halves, capped scores and logits, windows on alternate layers; 3 has QK norms and a base for each kind. */
#include <math.h>
#include <string.h>
#include "models/family.h"

static const char *const model_types[] = {"gemma", "gemma2", "gemma3_text", NULL};
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
    /* 2 and 3: this name is behind attention, and the feed-forward layer has a pair of its own. Gemma 1 has none of
     * those, and this name is the norm before the feed-forward layer */
    {ATTN_SLOT_POST1, "layers.%d.post_attention_layernorm", 0},
    {ATTN_SLOT_NORM2, "layers.%d.pre_feedforward_layernorm", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_POST2, "layers.%d.post_feedforward_layernorm", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_GATE, "layers.%d.mlp.gate_proj", 0},
    {ATTN_SLOT_UP, "layers.%d.mlp.up_proj", 0},
    {ATTN_SLOT_DOWN, "layers.%d.mlp.down_proj", 0},
    {0, NULL, 0}};

static attn_status describe(const attn_model_source *source, attn_description *d, char *error, size_t error_size)
{
    attn_config c = attn_config_open(source, error, error_size);
    const bool first = !strcmp(d->family, "gemma"), third = !strcmp(d->family, "gemma3_text");
    d->head_dim = 256;
    if (third) { /* what files of the larger ones leave out */
        d->n_heads = 8;
        d->n_kv_heads = 4;
        d->rope.base = 1e6;
        d->local_rope.base = 10000;
    }
    attn_config_decoder_sizes(&c, d);
    d->norm.kind = ATTN_NORM_RMS;
    d->norm.offset = 1;
    d->norm.eps = attn_config_number(&c, "rms_norm_eps", 1e-6);
    d->place = ATTN_NORM_PRE;
    d->mlp.gated = true;
    d->mlp.act = attn_config_act(&c, first ? "hidden_act|hidden_activation" : "hidden_activation", "gelu_pytorch_tanh");
    if (first && !strcmp(attn_config_text(&c, "hidden_act", ""), "gelu"))
        d->mlp.act = ATTN_ACT_GELU_TANH; /* what Gemma 1's files mean by it */
    d->embedding_scale = (double)sqrtf((float)d->d_model);
    attn_config_rope(&c, d, 0);
    d->tied = attn_config_bool(&c, "tie_word_embeddings", true);
    if (first) {
        d->post_norm_first = true;
        return c.status;
    }
    const double scalar = attn_config_number(&c, "query_pre_attn_scalar", 256);
    if (!(scalar > 0))
        attn_config_fail(&c, ATTN_ERR_FORMAT, "query_pre_attn_scalar is %g, not above 0", scalar);
    d->scale = 1 / sqrt(scalar);
    if (!third) /* 3 has the field, and no code that reads it */
        d->softcap = attn_config_number_or_null(&c, "attn_logit_softcapping", 50);
    d->final_softcap = attn_config_number_or_null(&c, "final_logit_softcapping", third ? 0 : 30);
    d->window = attn_config_window(&c, 4096);
    if (third && attn_config_bool(&c, "use_bidirectional_attention", false)) { /* EmbeddingGemma: half of the window on each side */
        d->kind = ATTN_MODEL_ENCODER;
        d->window_two_sided = true;
        d->window /= 2;
        if (!d->window)
            attn_config_fail(&c, ATTN_ERR_UNSUPPORTED, "sliding_window is below 2, with use_bidirectional_attention");
    }
    attn_config_layer_types(&c, d);
    if (d->window) /* files without layer_types: by the family's rule */
        attn_config_windowed(&c, d, 0, !third ? 2 : attn_config_int(&c, "sliding_window_pattern", 1, 4096, 6), 1);
    return c.status;
}

const attn_family attn_family_gemma = {model_types, NULL, describe, names, NULL, prefixes};
