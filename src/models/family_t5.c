/* family_t5.c - T5: encoder and decoder with cross attention, RMSNorm in front, no scale, relative bias shared by all
 * layers of a stack. */
#include <math.h>
#include <string.h>
#include "models/family.h"

static const char *const model_types[] = {"t5", "mt5", NULL};
static const char *const prefixes[] = {"", NULL};

#define E ATTN_NAME_ENCODER

static const attn_weight_name names[] = {
    {ATTN_SLOT_EMBEDDING, "shared", 0},
    {ATTN_SLOT_EMBEDDING, "encoder.embed_tokens", ATTN_NAME_OPTIONAL}, /* the same matrix where both are there */
    {ATTN_SLOT_HEAD, "lm_head", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_RELATIVE, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias", E},
    {ATTN_SLOT_FINAL_NORM, "encoder.final_layer_norm", E},
    {ATTN_SLOT_NORM1, "encoder.block.%d.layer.0.layer_norm", E},
    {ATTN_SLOT_Q, "encoder.block.%d.layer.0.SelfAttention.q", E},
    {ATTN_SLOT_K, "encoder.block.%d.layer.0.SelfAttention.k", E},
    {ATTN_SLOT_V, "encoder.block.%d.layer.0.SelfAttention.v", E},
    {ATTN_SLOT_O, "encoder.block.%d.layer.0.SelfAttention.o", E},
    {ATTN_SLOT_NORM2, "encoder.block.%d.layer.1.layer_norm", E},
    {ATTN_SLOT_GATE, "encoder.block.%d.layer.1.DenseReluDense.wi_0", E | ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_UP, "encoder.block.%d.layer.1.DenseReluDense.wi_1", E | ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_UP, "encoder.block.%d.layer.1.DenseReluDense.wi", E},
    {ATTN_SLOT_DOWN, "encoder.block.%d.layer.1.DenseReluDense.wo", E},
    {ATTN_SLOT_RELATIVE, "decoder.block.0.layer.0.SelfAttention.relative_attention_bias", 0},
    {ATTN_SLOT_FINAL_NORM, "decoder.final_layer_norm", 0},
    {ATTN_SLOT_NORM1, "decoder.block.%d.layer.0.layer_norm", 0},
    {ATTN_SLOT_Q, "decoder.block.%d.layer.0.SelfAttention.q", 0},
    {ATTN_SLOT_K, "decoder.block.%d.layer.0.SelfAttention.k", 0},
    {ATTN_SLOT_V, "decoder.block.%d.layer.0.SelfAttention.v", 0},
    {ATTN_SLOT_O, "decoder.block.%d.layer.0.SelfAttention.o", 0},
    {ATTN_SLOT_NORM_CROSS, "decoder.block.%d.layer.1.layer_norm", 0},
    {ATTN_SLOT_CROSS_Q, "decoder.block.%d.layer.1.EncDecAttention.q", 0},
    {ATTN_SLOT_CROSS_K, "decoder.block.%d.layer.1.EncDecAttention.k", 0},
    {ATTN_SLOT_CROSS_V, "decoder.block.%d.layer.1.EncDecAttention.v", 0},
    {ATTN_SLOT_CROSS_O, "decoder.block.%d.layer.1.EncDecAttention.o", 0},
    {ATTN_SLOT_NORM2, "decoder.block.%d.layer.2.layer_norm", 0},
    {ATTN_SLOT_GATE, "decoder.block.%d.layer.2.DenseReluDense.wi_0", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_UP, "decoder.block.%d.layer.2.DenseReluDense.wi_1", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_UP, "decoder.block.%d.layer.2.DenseReluDense.wi", 0},
    {ATTN_SLOT_DOWN, "decoder.block.%d.layer.2.DenseReluDense.wo", 0},
    {0, NULL, 0}};

#undef E

static attn_status describe(const attn_model_source *source, attn_description *d, char *error, size_t error_size)
{
    attn_config c = attn_config_open(source, error, error_size);
    attn_source_tensor t;
    const bool alone = !attn_source_find(source, "decoder.final_layer_norm.weight", &t) && /* T5EncoderModel */
                       !attn_source_find(source, "decoder.block.0.layer.0.SelfAttention.q.weight", &t);
    d->kind = alone ? ATTN_MODEL_ENCODER : ATTN_MODEL_ENCODER_DECODER;
    d->has_logits = !alone;
    d->n_encoder_layers = attn_config_need(&c, "num_layers", 1, 4096);
    d->n_layers = alone ? d->n_encoder_layers : attn_config_int(&c, "num_decoder_layers", 1, 4096, d->n_encoder_layers);
    d->d_model = attn_config_need(&c, "d_model", 1, 1 << 20);
    d->d_ff = attn_config_need(&c, "d_ff", 1, 1 << 24);
    d->n_heads = d->n_kv_heads = attn_config_need(&c, "num_heads", 1, 1 << 16);
    d->head_dim = attn_config_need(&c, "d_kv", 1, 1 << 16);
    d->vocab_size = attn_config_need(&c, "vocab_size", 1, 1 << 28);
    d->context_length = attn_config_int(&c, "n_positions", 1, INT32_MAX, 512);
    d->norm.kind = ATTN_NORM_RMS;
    d->norm.eps = attn_config_number(&c, "layer_norm_epsilon", 1e-6);
    d->place = ATTN_NORM_PRE;
    d->position = ATTN_POSITION_RELATIVE;
    d->relative_buckets = attn_config_int(&c, "relative_attention_num_buckets", 4, 4096, 32);
    d->relative_max_distance = attn_config_int(&c, "relative_attention_max_distance", 2, 1 << 20, 128);
    d->scale = 1;
    d->scale_given = true;
    const char *projection = attn_config_text(&c, "feed_forward_proj", "relu");
    d->mlp.gated = !strncmp(projection, "gated-", 6);
    d->mlp.act = attn_config_act(&c, "dense_act_fn", !d->mlp.gated                        ? projection
                                                       : strcmp(projection, "gated-gelu") ? projection + strlen("gated-")
                                                                                          : "gelu_new");
    /* newer versions of Transformers write true for all, and keep a head of its own in the tensors */
    d->tied = attn_config_bool(&c, "tie_word_embeddings", true) && !attn_source_find(source, "lm_head.weight", &t);
    if (strcmp(d->family, "mt5") && attn_config_bool(&c, "scale_decoder_outputs", d->tied))
        d->logit_scale = 1 / sqrt((double)d->d_model);
    attn_config_ids(&c, d);
    return c.status;
}

const attn_family attn_family_t5 = {model_types, NULL, describe, names, NULL, prefixes};
