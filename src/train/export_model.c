/* export_model.c - config.json and model.safetensors with the names that Transformers gives them. */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "train/export_model.h"
#include "train/train_error.h"

/* ---- Names ---- */

enum name_flags {
    NAME_PLAIN = 0,
    NAME_TRANSPOSED = 1, /* GPT-2 keeps matrices as [in, out] */
    NAME_FUSED = 2,      /* query, with key and value behind it */
    NAME_SKIPPED = 4,    /* key and value: with query */
    NAME_BARE = 8        /* `to` is the whole name */
};

/* A part of our name between the layer's number and ".weight" or ".bias", and theirs. */
typedef struct name_pair {
    const char *from, *to;
    int flags;
} name_pair;

static const name_pair gpt2_names[] = {{"embedding", "transformer.wte", 0},
                                       {"positions", "transformer.wpe", 0},
                                       {"final_norm", "transformer.ln_f", 0},
                                       {"layers.norm1", "transformer.h.%lld.ln_1", 0},
                                       {"layers.attention.query", "transformer.h.%lld.attn.c_attn", NAME_TRANSPOSED | NAME_FUSED},
                                       {"layers.attention.key", "", NAME_SKIPPED},
                                       {"layers.attention.value", "", NAME_SKIPPED},
                                       {"layers.attention.out", "transformer.h.%lld.attn.c_proj", NAME_TRANSPOSED},
                                       {"layers.norm2", "transformer.h.%lld.ln_2", 0},
                                       {"layers.up", "transformer.h.%lld.mlp.c_fc", NAME_TRANSPOSED},
                                       {"layers.down", "transformer.h.%lld.mlp.c_proj", NAME_TRANSPOSED},
                                       {NULL, NULL, 0}};

static const name_pair llama_names[] = {{"embedding", "model.embed_tokens", 0},
                                        {"final_norm", "model.norm", 0},
                                        {"layers.norm1", "model.layers.%lld.input_layernorm", 0},
                                        {"layers.attention.query", "model.layers.%lld.self_attn.q_proj", 0},
                                        {"layers.attention.key", "model.layers.%lld.self_attn.k_proj", 0},
                                        {"layers.attention.value", "model.layers.%lld.self_attn.v_proj", 0},
                                        {"layers.attention.out", "model.layers.%lld.self_attn.o_proj", 0},
                                        {"layers.norm2", "model.layers.%lld.post_attention_layernorm", 0},
                                        {"layers.gate", "model.layers.%lld.mlp.gate_proj", 0},
                                        {"layers.up", "model.layers.%lld.mlp.up_proj", 0},
                                        {"layers.down", "model.layers.%lld.mlp.down_proj", 0},
                                        {NULL, NULL, 0}};

static const name_pair bert_names[] = {{"embedding", "bert.embeddings.word_embeddings", 0},
                                       {"positions", "bert.embeddings.position_embeddings", 0},
                                       {"types", "bert.embeddings.token_type_embeddings", 0},
                                       {"embedding_norm", "bert.embeddings.LayerNorm", 0},
                                       {"layers.attention.query", "bert.encoder.layer.%lld.attention.self.query", 0},
                                       {"layers.attention.key", "bert.encoder.layer.%lld.attention.self.key", 0},
                                       {"layers.attention.value", "bert.encoder.layer.%lld.attention.self.value", 0},
                                       {"layers.attention.out", "bert.encoder.layer.%lld.attention.output.dense", 0},
                                       {"layers.norm1", "bert.encoder.layer.%lld.attention.output.LayerNorm", 0},
                                       {"layers.up", "bert.encoder.layer.%lld.intermediate.dense", 0},
                                       {"layers.down", "bert.encoder.layer.%lld.output.dense", 0},
                                       {"layers.norm2", "bert.encoder.layer.%lld.output.LayerNorm", 0},
                                       {"transform", "cls.predictions.transform.dense", 0},
                                       {"transform_norm", "cls.predictions.transform.LayerNorm", 0},
                                       {"head", "cls.predictions.bias", NAME_BARE},
                                       {NULL, NULL, 0}};

static const name_pair *const names_of[] = {gpt2_names, llama_names, bert_names, NULL};

/* Takes "layers.3.norm1.weight" apart: key "layers.norm1", layer 3, suffix ".weight". */
static const char *split_name(const char *name, char key[64], long long *layer)
{
    const char *suffix = strrchr(name, '.');
    const char *rest = name;
    char stack[16] = "";
    *layer = -1;
    if (sscanf(name, "%15[a-z].%lld.", stack, layer) == 2) {
        rest = strchr(strchr(name, '.') + 1, '.') + 1;
        snprintf(key, 64, "%s.%.*s", stack, (int)(suffix - rest), rest);
    } else {
        snprintf(key, 64, "%.*s", (int)(suffix - name), name);
    }
    return suffix;
}

/* ---- Tensors ---- */

static attn_status read_rows(void *user, int64_t first_row, int64_t n_rows, float *out, char *error, size_t error_size)
{
    const attn_exported *e = user;
    (void)error, (void)error_size;
    if (!e->transposed) {
        memcpy(out, e->values + first_row * e->shape[1], (size_t)(n_rows * e->shape[1]) * sizeof *out);
        return ATTN_OK;
    }
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t j = 0; j < e->shape[1]; j++)
            out[i * e->shape[1] + j] = e->values[j * e->shape[0] + first_row + i];
    return ATTN_OK;
}

/* Vectors are read as one row each. */
static attn_status read_vector(void *user, int64_t first_row, int64_t n_rows, float *out, char *error, size_t error_size)
{
    const attn_exported *e = user;
    (void)error, (void)error_size, (void)first_row, (void)n_rows;
    memcpy(out, e->values, (size_t)e->shape[0] * sizeof *out);
    return ATTN_OK;
}

static const name_pair *find_name(const name_pair *names, const char *key)
{
    for (const name_pair *n = names; n && n->from; n++)
        if (strcmp(n->from, key) == 0)
            return n;
    return NULL;
}

bool attn_export_describe(const attn_trainer *t, const attn_net_param *p, attn_exported *e, attn_export_tensor *tensor,
                            attn_st_dtype dtype)
{
    char key[64], pattern[96];
    long long layer;
    const char *suffix = split_name(p->name, key, &layer);
    const name_pair *pair = find_name(names_of[t->net.options.arch], key);
    const int flags = pair ? pair->flags : 0;
    const bool vector = p->rows == 1 && strcmp(suffix, ".bias") == 0;
    const bool norm = strstr(key, "norm") != NULL;
    if (flags & NAME_SKIPPED)
        return false;
    if (!pair) {
        snprintf(e->name, sizeof e->name, "%s", p->name);
    } else {
        const char *number = strstr(pair->to, "%lld");
        if (number)
            snprintf(pattern, sizeof pattern, "%.*s%lld%s", (int)(number - pair->to), pair->to, layer, number + 4);
        else
            snprintf(pattern, sizeof pattern, "%s", pair->to);
        snprintf(e->name, sizeof e->name, "%s%s", pattern, flags & NAME_BARE ? "" : suffix);
    }
    e->values = t->weights + p->offset;
    const int64_t times = flags & NAME_FUSED ? 3 : 1;
    if (vector || norm) {
        e->shape[0] = p->columns * times;
    } else {
        e->transposed = (flags & NAME_TRANSPOSED) != 0;
        e->shape[0] = e->transposed ? p->columns : p->rows * times;
        e->shape[1] = e->transposed ? p->rows * times : p->columns;
    }
    *tensor = (attn_export_tensor){.name = e->name, .dtype = dtype, .n_dims = vector || norm ? 1 : 2, .shape = e->shape,
                                   .read = vector || norm ? read_vector : read_rows, .user = e};
    return true;
}

static attn_status write_weights(const attn_trainer *t, const char *path, attn_st_dtype dtype)
{
    const size_t most = (size_t)t->net.n_params;
    attn_exported *e = calloc(most, sizeof *e);
    attn_export_tensor *tensors = calloc(most, sizeof *tensors);
    size_t n = 0;
    attn_status status = e && tensors ? ATTN_OK : attn_train_no_memory();
    for (size_t p = 0; status == ATTN_OK && p < most; p++)
        n += attn_export_describe(t, &t->net.params[p], &e[n], &tensors[n], dtype);
    if (status == ATTN_OK)
        status = attn_export_safetensors(path, tensors, n, NULL, NULL, NULL, attn_train_error_buffer(),
                                         ATTN_TRAIN_ERROR_BYTES);
    free(tensors);
    free(e);
    return status;
}

/* ---- config.json ---- */

static void set_id(json_t *config, const char *name, int32_t id)
{
    json_object_set_new(config, name, id >= 0 ? json_integer(id) : json_null());
}

static void set_int(json_t *config, const char *name, int64_t value)
{
    json_object_set_new(config, name, json_integer(value));
}

static json_t *gpt2_config(const attn_trainer_options *o)
{
    json_t *c = json_pack("{s:[s], s:s, s:s, s:f, s:f, s:b, s:f, s:f, s:f}", "architectures", "GPT2LMHeadModel", "model_type",
                          "gpt2", "activation_function", "gelu_new", "layer_norm_epsilon", o->norm_eps, "initializer_range", 0.02,
                          "scale_attn_weights", 1, "resid_pdrop", o->dropout, "embd_pdrop", o->dropout, "attn_pdrop",
                          o->dropout);
    set_int(c, "n_positions", o->context);
    set_int(c, "n_ctx", o->context);
    set_int(c, "n_embd", o->d_model);
    set_int(c, "n_layer", o->n_layers);
    set_int(c, "n_head", o->n_heads);
    set_int(c, "n_inner", o->d_ff);
    return c;
}

static json_t *llama_config(const attn_trainer_options *o)
{
    json_t *c = json_pack("{s:[s], s:s, s:s, s:f, s:f, s:f, s:b, s:b}", "architectures", "LlamaForCausalLM", "model_type",
                          "llama", "hidden_act", "silu", "rms_norm_eps", o->norm_eps, "rope_theta", o->rope_base, "initializer_range",
                          0.02, "attention_bias", 0, "mlp_bias", 0);
    set_int(c, "max_position_embeddings", o->context);
    set_int(c, "hidden_size", o->d_model);
    set_int(c, "intermediate_size", o->d_ff);
    set_int(c, "num_hidden_layers", o->n_layers);
    set_int(c, "num_attention_heads", o->n_heads);
    set_int(c, "num_key_value_heads", o->n_kv_heads);
    set_int(c, "head_dim", o->d_model / o->n_heads);
    return c;
}

static json_t *bert_config(const attn_trainer_options *o)
{
    json_t *c = json_pack("{s:[s], s:s, s:s, s:f, s:f, s:f, s:f, s:s}", "architectures", "BertForMaskedLM", "model_type",
                          "bert", "hidden_act", "gelu", "layer_norm_eps", o->norm_eps, "initializer_range", 0.02,
                          "hidden_dropout_prob", o->dropout, "attention_probs_dropout_prob", o->dropout,
                          "position_embedding_type", "absolute");
    set_int(c, "max_position_embeddings", o->context);
    set_int(c, "hidden_size", o->d_model);
    set_int(c, "intermediate_size", o->d_ff);
    set_int(c, "num_hidden_layers", o->n_layers);
    set_int(c, "num_attention_heads", o->n_heads);
    set_int(c, "type_vocab_size", 2);
    return c;
}

static json_t *encdec_config(const attn_trainer_options *o)
{
    json_t *c = json_pack("{s:[s], s:s, s:s, s:f, s:b}", "architectures", "AttnEncoderDecoder", "model_type",
                          "attn_encoder_decoder", "activation_function", "relu", "layer_norm_eps", o->norm_eps, "pre_norm",
                          (o->flags & ATTN_TRAIN_PRE_NORM) != 0);
    set_int(c, "max_position_embeddings", o->context);
    set_int(c, "d_model", o->d_model);
    set_int(c, "d_ff", o->d_ff);
    set_int(c, "num_layers", o->n_layers);
    set_int(c, "num_heads", o->n_heads);
    set_id(c, "decoder_start_token_id", o->bos_id);
    return c;
}

static attn_status write_config(const attn_trainer *t, const char *path, const char *dtype)
{
    static json_t *(*const makers[])(const attn_trainer_options *) = {gpt2_config, llama_config, bert_config,
                                                                      encdec_config};
    const attn_trainer_options *o = &t->net.options;
    json_t *config = makers[o->arch](o);
    if (!config)
        return attn_train_no_memory();
    set_int(config, "vocab_size", o->vocab_size);
    set_id(config, "bos_token_id", o->bos_id);
    set_id(config, "eos_token_id", o->eos_id);
    set_id(config, "pad_token_id", o->pad_id);
    json_object_set_new(config, "tie_word_embeddings", json_true());
    json_object_set_new(config, "torch_dtype", json_string(dtype));
    attn_status status = attn_export_json(path, config, attn_train_error_buffer(), ATTN_TRAIN_ERROR_BYTES);
    json_decref(config);
    return status;
}

attn_status attn_trainer_export(const attn_trainer *t, const char *folder, int32_t dtype)
{
    char path[4096];
    attn_train_clear_error();
    ATTN_TRAIN_REQUIRE(t && folder, "%s is NULL", t ? "folder" : "trainer");
    ATTN_TRAIN_REQUIRE(dtype == ATTN_F32 || dtype == ATTN_BF16 || dtype == ATTN_F16,
                       "dtype is %d; f32, bf16 and f16 can be written", dtype);
    ATTN_TRAIN_REQUIRE(strlen(folder) + 32 < sizeof path, "folder has %zu bytes", strlen(folder));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    ATTN_TRAIN_TRY(write_weights(t, path,
                                 dtype == ATTN_F32    ? ATTN_ST_F32
                                 : dtype == ATTN_BF16 ? ATTN_ST_BF16
                                                      : ATTN_ST_F16));
    snprintf(path, sizeof path, "%s/config.json", folder);
    return write_config(t, path,
                        dtype == ATTN_F32    ? "float32"
                        : dtype == ATTN_BF16 ? "bfloat16"
                                             : "float16");
}
