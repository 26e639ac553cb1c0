/* family_bart.c - BART, mBART, Pegasus and Marian: the encoder-decoder of Vaswani et al. 2017 with one matrix for both embeddings
 * and the head, a bias on logits; norms behind, or in front with one behind each stack (mBART, Pegasus). */
#include <math.h>
#include <string.h>
#include "models/family.h"

static const char *const model_types[] = {"bart", "mbart", "pegasus", "marian", NULL};
static const char *const prefixes[] = {"model.", "", NULL};

#define STACK(stack, flags)                                                                                            \
    {ATTN_SLOT_POSITIONS, stack ".embed_positions", flags},                                                            \
        {ATTN_SLOT_EMBEDDING_NORM, stack ".layernorm_embedding", (flags) | ATTN_NAME_OPTIONAL},                        \
        {ATTN_SLOT_FINAL_NORM, stack ".layer_norm", flags},                                                            \
        {ATTN_SLOT_Q, stack ".layers.%d.self_attn.q_proj", flags},                                                     \
        {ATTN_SLOT_K, stack ".layers.%d.self_attn.k_proj", flags},                                                     \
        {ATTN_SLOT_V, stack ".layers.%d.self_attn.v_proj", flags},                                                     \
        {ATTN_SLOT_O, stack ".layers.%d.self_attn.out_proj", flags},                                                   \
        {ATTN_SLOT_NORM1, stack ".layers.%d.self_attn_layer_norm", flags},                                             \
        {ATTN_SLOT_UP, stack ".layers.%d.fc1", flags}, {ATTN_SLOT_DOWN, stack ".layers.%d.fc2", flags},                \
        {ATTN_SLOT_NORM2, stack ".layers.%d.final_layer_norm", flags}

static const attn_weight_name names[] = {
    {ATTN_SLOT_EMBEDDING, "shared", ATTN_NAME_OPTIONAL}, /* or under one of the names of its users */
    {ATTN_SLOT_EMBEDDING, "encoder.embed_tokens", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_EMBEDDING, "decoder.embed_tokens", 0},
    {ATTN_SLOT_HEAD_BIAS, "final_logits_bias", ATTN_NAME_OPTIONAL | ATTN_NAME_BARE},
    STACK("encoder", ATTN_NAME_ENCODER),
    STACK("decoder", 0),
    {ATTN_SLOT_CROSS_Q, "decoder.layers.%d.encoder_attn.q_proj", 0},
    {ATTN_SLOT_CROSS_K, "decoder.layers.%d.encoder_attn.k_proj", 0},
    {ATTN_SLOT_CROSS_V, "decoder.layers.%d.encoder_attn.v_proj", 0},
    {ATTN_SLOT_CROSS_O, "decoder.layers.%d.encoder_attn.out_proj", 0},
    {ATTN_SLOT_NORM_CROSS, "decoder.layers.%d.encoder_attn_layer_norm", 0},
    {0, NULL, 0}};

/* A size that both stacks have; they share one field of the description. */
static int64_t same_size(attn_config *c, const char *encoder, const char *decoder)
{
    const int64_t size = attn_config_need(c, encoder, 1, 1 << 24), other = attn_config_need(c, decoder, 1, 1 << 24);
    if (size != other)
        attn_config_fail(c, ATTN_ERR_UNSUPPORTED, "%s is %lld and %s %lld; other sizes in the decoder are not served", encoder,
                         (long long)size, decoder, (long long)other);
    return size;
}

/* Sines that the file holds, perhaps rounded to 16 bits, go before computed ones. */
static bool has_table(const attn_model_source *source)
{
    static const char *const tables[] = {"model.decoder.embed_positions.weight", "decoder.embed_positions.weight"};
    attn_source_tensor t;
    return attn_source_find(source, tables[0], &t) || attn_source_find(source, tables[1], &t);
}

static attn_status describe(const attn_model_source *source, attn_description *d, char *error, size_t error_size)
{
    attn_config c = attn_config_open(source, error, error_size);
    const bool learned = !strcmp(d->family, "bart") || !strcmp(d->family, "mbart"); /* the others add sines */
    d->kind = ATTN_MODEL_ENCODER_DECODER;
    d->has_logits = true;
    d->n_encoder_layers = attn_config_need(&c, "encoder_layers", 1, 4096);
    d->n_layers = attn_config_need(&c, "decoder_layers", 1, 4096);
    d->d_model = attn_config_need(&c, "d_model", 1, 1 << 20);
    d->n_heads = d->n_kv_heads = same_size(&c, "encoder_attention_heads", "decoder_attention_heads");
    d->d_ff = same_size(&c, "encoder_ffn_dim", "decoder_ffn_dim");
    d->head_dim = d->d_model / d->n_heads;
    if (c.status == ATTN_OK && d->d_model % d->n_heads)
        attn_config_fail(&c, ATTN_ERR_FORMAT, "d_model is %lld, no multiple of %lld heads", (long long)d->d_model,
                         (long long)d->n_heads);
    if (!attn_config_bool(&c, "share_encoder_decoder_embeddings", true) || !attn_config_bool(&c, "tie_word_embeddings", true))
        attn_config_fail(&c, ATTN_ERR_UNSUPPORTED, "share_encoder_decoder_embeddings or tie_word_embeddings is false: an "
                                                   "embedding for each stack is not served");
    d->vocab_size = attn_config_need(&c, "vocab_size", 1, 1 << 28);
    d->context_length = attn_config_int(&c, "max_position_embeddings", 1, INT32_MAX - 2, 1024);
    d->position = learned || has_table(source) ? ATTN_POSITION_LEARNED : ATTN_POSITION_HALVES;
    d->position_offset = learned ? 2 : 0;
    d->position_rows = d->context_length + d->position_offset;
    d->embedding_scale = attn_config_bool(&c, "scale_embedding", false) ? sqrt((double)d->d_model) : 0;
    d->norm.kind = ATTN_NORM_LAYER;
    d->norm.eps = 1e-5;
    d->place = !strcmp(d->family, "bart") || !strcmp(d->family, "marian") ? ATTN_NORM_POST : ATTN_NORM_PRE;
    d->no_final_norm = d->place == ATTN_NORM_POST;
    d->mlp.act = attn_config_act(&c, "activation_function", "gelu");
    d->tied = true;
    attn_config_ids(&c, d);
    return c.status;
}

const attn_family attn_family_bart = {model_types, NULL, describe, names, NULL, prefixes};
