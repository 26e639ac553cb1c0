/* family_vit.c - ViT (Dosovitskiy et al. 2021): patches of an image behind a class token, learned positions, LayerNorm in
 * front, bidirectional attention; a classifier over the class token where the file has one. */
#include "models/family.h"

static const char *const model_types[] = {"vit", NULL};
static const char *const prefixes[] = {"vit.", "", NULL};

static const attn_weight_name names[] = {
    {ATTN_SLOT_CLASS_TOKEN, "embeddings.cls_token", ATTN_NAME_BARE},
    {ATTN_SLOT_POSITIONS, "embeddings.position_embeddings", ATTN_NAME_BARE},
    {ATTN_SLOT_PATCHES, "embeddings.patch_embeddings.projection", 0},
    {ATTN_SLOT_NORM1, "encoder.layer.%d.layernorm_before", 0},
    {ATTN_SLOT_Q, "encoder.layer.%d.attention.attention.query", 0},
    {ATTN_SLOT_K, "encoder.layer.%d.attention.attention.key", 0},
    {ATTN_SLOT_V, "encoder.layer.%d.attention.attention.value", 0},
    {ATTN_SLOT_O, "encoder.layer.%d.attention.output.dense", 0},
    {ATTN_SLOT_NORM2, "encoder.layer.%d.layernorm_after", 0},
    {ATTN_SLOT_UP, "encoder.layer.%d.intermediate.dense", 0},
    {ATTN_SLOT_DOWN, "encoder.layer.%d.output.dense", 0},
    {ATTN_SLOT_FINAL_NORM, "layernorm", 0},
    {ATTN_SLOT_POOLER, "pooler.dense", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_HEAD, "classifier", ATTN_NAME_OPTIONAL},
    {0, NULL, 0}};

static attn_status describe(const attn_model_source *source, attn_description *d, char *error, size_t error_size)
{
    attn_config c = attn_config_open(source, error, error_size);
    attn_source_tensor t;
    attn_config_decoder_sizes(&c, d);
    d->kind = ATTN_MODEL_ENCODER;
    d->no_tokens = true;
    d->norm.kind = ATTN_NORM_LAYER;
    d->norm.eps = attn_config_number(&c, "layer_norm_eps", 1e-12);
    d->place = ATTN_NORM_PRE;
    d->mlp.act = attn_config_act(&c, "hidden_act", "gelu");
    if (attn_config_act(&c, "pooler_act", "tanh") != ATTN_ACT_TANH)
        attn_config_fail(&c, ATTN_ERR_UNSUPPORTED, "pooler_act is not \"tanh\"");
    d->image_size = attn_config_int(&c, "image_size", 1, 1 << 16, 224);
    d->patch_size = attn_config_int(&c, "patch_size", 1, 1 << 16, 16);
    d->n_channels = attn_config_int(&c, "num_channels", 1, 1 << 10, 3);
    if (c.status == ATTN_OK && d->image_size % d->patch_size)
        attn_config_fail(&c, ATTN_ERR_UNSUPPORTED, "image_size %lld is no multiple of patch_size %lld",
                         (long long)d->image_size, (long long)d->patch_size);
    if (c.status != ATTN_OK)
        return c.status;
    d->position = ATTN_POSITION_LEARNED;
    d->position_rows = d->context_length = 1 + d->image_size / d->patch_size * (d->image_size / d->patch_size);
    d->has_logits = attn_source_find(source, "classifier.weight", &t);
    d->vocab_size = d->has_logits ? t.shape[0] : 0; /* classes */
    return c.status;
}

const attn_family attn_family_vit = {model_types, NULL, describe, names, NULL, prefixes};
