/* family_bert.c - BERT, MiniLM, RoBERTa and DistilBERT: bidirectional, LayerNorm behind, learned positions, a pooler or
 * a masked-LM head where the file has one. */
#include <string.h>
#include "models/family.h"

static const char *const model_types[] = {"bert", "roberta", "xlm-roberta", "camembert", NULL};
static const char *const architectures[] = {"bert", NULL};
static const char *const prefixes[] = {"bert.", "roberta.", "", NULL};

static const attn_weight_name names[] = {
    {ATTN_SLOT_EMBEDDING, "embeddings.word_embeddings", 0},
    {ATTN_SLOT_POSITIONS, "embeddings.position_embeddings", 0},
    {ATTN_SLOT_TYPES, "embeddings.token_type_embeddings", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_EMBEDDING_NORM, "embeddings.LayerNorm", 0},
    {ATTN_SLOT_Q, "encoder.layer.%d.attention.self.query", 0},
    {ATTN_SLOT_K, "encoder.layer.%d.attention.self.key", 0},
    {ATTN_SLOT_V, "encoder.layer.%d.attention.self.value", 0},
    {ATTN_SLOT_O, "encoder.layer.%d.attention.output.dense", 0},
    {ATTN_SLOT_NORM1, "encoder.layer.%d.attention.output.LayerNorm", 0},
    {ATTN_SLOT_UP, "encoder.layer.%d.intermediate.dense", 0},
    {ATTN_SLOT_DOWN, "encoder.layer.%d.output.dense", 0},
    {ATTN_SLOT_NORM2, "encoder.layer.%d.output.LayerNorm", 0},
    {ATTN_SLOT_POOLER, "pooler.dense", ATTN_NAME_OPTIONAL},
    /* BERT's masked-LM head, then RoBERTa's */
    {ATTN_SLOT_TRANSFORM, "cls.predictions.transform.dense", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_TRANSFORM_NORM, "cls.predictions.transform.LayerNorm", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_HEAD_BIAS, "cls.predictions.bias", ATTN_NAME_OPTIONAL | ATTN_NAME_BARE},
    {ATTN_SLOT_HEAD, "cls.predictions.decoder", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_TRANSFORM, "lm_head.dense", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_TRANSFORM_NORM, "lm_head.layer_norm", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_HEAD_BIAS, "lm_head.bias", ATTN_NAME_OPTIONAL | ATTN_NAME_BARE},
    {ATTN_SLOT_HEAD, "lm_head.decoder", ATTN_NAME_OPTIONAL},
    {0, NULL, 0}};

static const attn_weight_name gguf_names[] = {
    {ATTN_SLOT_EMBEDDING, "token_embd", 0},
    {ATTN_SLOT_POSITIONS, "position_embd", 0},
    {ATTN_SLOT_TYPES, "token_types", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_EMBEDDING_NORM, "token_embd_norm", 0},
    {ATTN_SLOT_Q, "blk.%d.attn_q", 0},
    {ATTN_SLOT_K, "blk.%d.attn_k", 0},
    {ATTN_SLOT_V, "blk.%d.attn_v", 0},
    {ATTN_SLOT_O, "blk.%d.attn_output", 0},
    {ATTN_SLOT_NORM1, "blk.%d.attn_output_norm", 0},
    {ATTN_SLOT_UP, "blk.%d.ffn_up", 0},
    {ATTN_SLOT_DOWN, "blk.%d.ffn_down", 0},
    {ATTN_SLOT_NORM2, "blk.%d.layer_output_norm", 0},
    {0, NULL, 0}};

static attn_status describe(const attn_model_source *source, attn_description *d, char *error, size_t error_size)
{
    attn_config c = attn_config_open(source, error, error_size);
    attn_source_tensor t;
    c.gguf_prefix = d->family;
    attn_config_decoder_sizes(&c, d);
    attn_config_refuse(&c, "add_cross_attention");
    d->kind = attn_config_bool(&c, "is_decoder", false) ? ATTN_MODEL_DECODER : ATTN_MODEL_ENCODER;
    d->norm.kind = ATTN_NORM_LAYER;
    d->place = ATTN_NORM_POST;
    d->norm.eps = attn_config_number(&c, "layer_norm_eps|@attention.layer_norm_epsilon", 1e-12);
    d->mlp.act = d->transform_act = attn_config_act(&c, "hidden_act", "gelu");
    d->n_types = attn_config_int(&c, "type_vocab_size", 1, 4096, 1);
    if (source->gguf && attn_source_find(source, "token_types.weight", &t))
        d->n_types = t.n_dims == 2 ? t.shape[0] : 1;
    const char *kind = attn_config_text(&c, "position_embedding_type", "absolute");
    if (strcmp(kind, "absolute"))
        attn_config_fail(&c, ATTN_ERR_UNSUPPORTED, "position_embedding_type \"%.40s\" is not served", kind);
    d->position = ATTN_POSITION_LEARNED;
    d->position_rows = d->context_length;
    if (strcmp(d->family, "bert") && !source->gguf) { /* RoBERTa: positions begin behind the padding's id */
        d->position_offset = d->pad_id >= 0 ? d->pad_id + 1 : 2;
        d->context_length -= d->position_offset;
        d->transform_act = ATTN_ACT_GELU_ERF;
        if (d->context_length < 1)
            attn_config_fail(&c, ATTN_ERR_FORMAT, "max_position_embeddings is %lld", (long long)d->position_rows);
    }
    d->tied = attn_config_bool(&c, "tie_word_embeddings", true);
    d->has_logits = attn_source_find(source, "cls.predictions.transform.dense.weight", &t) ||
                    attn_source_find(source, "lm_head.dense.weight", &t);
    return c.status;
}

const attn_family attn_family_bert = {model_types, architectures, describe, names, gguf_names, prefixes};

/* ---- DistilBERT ---- */

static const char *const distil_types[] = {"distilbert", NULL};
static const char *const distil_prefixes[] = {"distilbert.", "", NULL};

static const attn_weight_name distil_names[] = {
    {ATTN_SLOT_EMBEDDING, "embeddings.word_embeddings", 0},
    {ATTN_SLOT_POSITIONS, "embeddings.position_embeddings", 0},
    {ATTN_SLOT_EMBEDDING_NORM, "embeddings.LayerNorm", 0},
    {ATTN_SLOT_Q, "transformer.layer.%d.attention.q_lin", 0},
    {ATTN_SLOT_K, "transformer.layer.%d.attention.k_lin", 0},
    {ATTN_SLOT_V, "transformer.layer.%d.attention.v_lin", 0},
    {ATTN_SLOT_O, "transformer.layer.%d.attention.out_lin", 0},
    {ATTN_SLOT_NORM1, "transformer.layer.%d.sa_layer_norm", 0},
    {ATTN_SLOT_UP, "transformer.layer.%d.ffn.lin1", 0},
    {ATTN_SLOT_DOWN, "transformer.layer.%d.ffn.lin2", 0},
    {ATTN_SLOT_NORM2, "transformer.layer.%d.output_layer_norm", 0},
    {ATTN_SLOT_TRANSFORM, "vocab_transform", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_TRANSFORM_NORM, "vocab_layer_norm", ATTN_NAME_OPTIONAL},
    {ATTN_SLOT_HEAD_BIAS, "vocab_projector.bias", ATTN_NAME_OPTIONAL | ATTN_NAME_BARE},
    {ATTN_SLOT_HEAD, "vocab_projector", ATTN_NAME_OPTIONAL},
    {0, NULL, 0}};

static attn_status describe_distil(const attn_model_source *source, attn_description *d, char *error,
                                   size_t error_size)
{
    attn_config c = attn_config_open(source, error, error_size);
    attn_source_tensor t;
    d->kind = ATTN_MODEL_ENCODER;
    d->n_layers = attn_config_need(&c, "n_layers", 1, 4096);
    d->d_model = attn_config_need(&c, "dim", 1, 1 << 20);
    d->n_heads = d->n_kv_heads = attn_config_need(&c, "n_heads", 1, 1 << 16);
    d->d_ff = attn_config_need(&c, "hidden_dim", 1, 1 << 24);
    d->head_dim = d->d_model / d->n_heads;
    d->vocab_size = attn_config_need(&c, "vocab_size", 1, 1 << 28);
    d->context_length = d->position_rows = attn_config_need(&c, "max_position_embeddings", 1, INT32_MAX);
    d->norm.kind = ATTN_NORM_LAYER;
    d->place = ATTN_NORM_POST;
    d->norm.eps = 1e-12;
    d->mlp.act = d->transform_act = attn_config_act(&c, "activation", "gelu");
    d->position = ATTN_POSITION_LEARNED; /* sinusoidal ones, too, are stored as a table */
    d->tied = attn_config_bool(&c, "tie_word_embeddings", true);
    d->has_logits = attn_source_find(source, "vocab_transform.weight", &t);
    attn_config_ids(&c, d);
    return c.status;
}

const attn_family attn_family_distilbert = {distil_types, NULL, describe_distil, distil_names, NULL, distil_prefixes};
