/* import_model.c - a trainer that starts from a folder as Transformers has it: export_model.c, backwards. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "io/json.h"
#include "io/mapped_file.h"
#include "io/safetensors.h"
#include "train/export_model.h"
#include "train/train_error.h"

/* ---- config.json ---- */

/* A count of config.json; fallback (0: none) where it is missing. An error is kept in *status. */
static int64_t config_int(const json_t *config, const char *name, int64_t fallback, attn_status *status)
{
    const json_t *value = json_object_get(config, name);
    if ((!value || json_is_null(value)) && fallback > 0)
        return fallback;
    if (json_is_integer(value) && json_integer_value(value) >= 1 && json_integer_value(value) <= INT32_MAX)
        return json_integer_value(value);
    if (*status == ATTN_OK)
        *status = attn_train_fail(ATTN_ERR_FORMAT, "config.json: %s is missing or no number from 1", name);
    return 1;
}

static int32_t config_id(const json_t *config, const char *name)
{
    const json_t *value = json_object_get(config, name);
    if (json_is_array(value))
        value = json_array_get(value, 0);
    return json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) <= INT32_MAX
               ? (int32_t)json_integer_value(value)
               : -1;
}

static double config_real(const json_t *config, const char *name, double fallback)
{
    const json_t *value = json_object_get(config, name);
    return json_is_number(value) ? json_number_value(value) : fallback;
}

static bool text_is(const json_t *config, const char *name, const char *want)
{
    const char *text = json_string_value(json_object_get(config, name));
    return !text || strcmp(text, want) == 0;
}

static attn_status gpt2_options(const json_t *c, attn_trainer_options *o)
{
    attn_status status = ATTN_OK;
    o->arch = ATTN_TRAIN_GPT2;
    o->n_layers = config_int(c, "n_layer", 0, &status);
    o->n_heads = config_int(c, "n_head", 0, &status);
    o->d_model = config_int(c, "n_embd", 0, &status);
    o->d_ff = config_int(c, "n_inner", 4 * o->d_model, &status);
    o->context = config_int(c, "n_positions", 0, &status);
    o->norm_eps = config_real(c, "layer_norm_epsilon", 1e-5);
    if (status == ATTN_OK && (!text_is(c, "activation_function", "gelu_new") ||
                              json_is_true(json_object_get(c, "scale_attn_by_inverse_layer_idx")) ||
                              json_is_false(json_object_get(c, "tie_word_embeddings"))))
        return attn_train_fail(ATTN_ERR_UNSUPPORTED, "config.json: GPT-2 with gelu_new, plain scores and a tied head can be trained");
    return status;
}

static attn_status llama_options(const json_t *c, attn_trainer_options *o)
{
    attn_status status = ATTN_OK;
    const json_t *rope = json_object_get(c, "rope_parameters"), *scaling = json_object_get(c, "rope_scaling");
    o->arch = ATTN_TRAIN_LLAMA;
    o->n_layers = config_int(c, "num_hidden_layers", 0, &status);
    o->n_heads = config_int(c, "num_attention_heads", 0, &status);
    o->n_kv_heads = config_int(c, "num_key_value_heads", o->n_heads, &status);
    o->d_model = config_int(c, "hidden_size", 0, &status);
    o->d_ff = config_int(c, "intermediate_size", 0, &status);
    o->context = config_int(c, "max_position_embeddings", 2048, &status);
    o->norm_eps = config_real(c, "rms_norm_eps", 1e-6);
    o->rope_base = config_real(c, "rope_theta", config_real(rope, "rope_theta", 10000));
    if (status != ATTN_OK)
        return status;
    const int64_t head_dim = config_int(c, "head_dim", o->d_model / o->n_heads, &status);
    if (!text_is(c, "hidden_act", "silu") || json_is_true(json_object_get(c, "attention_bias")) ||
        json_is_true(json_object_get(c, "mlp_bias")) || head_dim * o->n_heads != o->d_model)
        return attn_train_fail(ATTN_ERR_UNSUPPORTED, "config.json: a Llama with silu, without biases, whose heads fill hidden_size "
                                                     "can be trained");
    if (!json_is_true(json_object_get(c, "tie_word_embeddings")))
        return attn_train_fail(ATTN_ERR_UNSUPPORTED, "config.json: tie_word_embeddings is not true; a head of its own is not trained");
    if ((scaling && !json_is_null(scaling)) || !text_is(rope, "rope_type", "default"))
        return attn_train_fail(ATTN_ERR_UNSUPPORTED, "config.json: rotary positions with scaling are not trained");
    return ATTN_OK;
}

/* Fills in what the folder's config.json says. */
static attn_status read_config(const char *folder, attn_trainer_options *o)
{
    char path[4096], why[160];
    attn_mapped_file *file;
    snprintf(path, sizeof path, "%s/config.json", folder);
    attn_status status = attn_mapped_file_open(path, &file, attn_train_error_buffer(), ATTN_TRAIN_ERROR_BYTES);
    if (status != ATTN_OK)
        return status;
    json_t *config = attn_json_parse((const char *)file->data, file->size, why, sizeof why);
    attn_mapped_file_close(file);
    if (!config)
        return attn_train_fail(ATTN_ERR_FORMAT, "%.200s: %s", path, why);
    const char *type = json_string_value(json_object_get(config, "model_type"));
    if (type && strcmp(type, "gpt2") == 0)
        status = gpt2_options(config, o);
    else if (type && strcmp(type, "llama") == 0)
        status = llama_options(config, o);
    else
        status = attn_train_fail(ATTN_ERR_UNSUPPORTED, "config.json: model_type is %.40s; gpt2 and llama can be trained further",
                                 type ? type : "missing");
    o->vocab_size = config_int(config, "vocab_size", 0, &status);
    o->bos_id = config_id(config, "bos_token_id");
    o->eos_id = config_id(config, "eos_token_id");
    o->pad_id = config_id(config, "pad_token_id");
    o->mask_id = -1;
    json_decref(config);
    return status;
}

/* ---- Tensors ---- */

static attn_status read_tensor(const attn_safetensors *st, const attn_exported *e, int64_t n_dims, float *out)
{
    const char *bare = strchr(e->name, '.'); /* GPT-2's own files have no "transformer." in front */
    const int64_t columns = n_dims == 2 ? e->shape[1] : 1, n = e->shape[0] * columns;
    const attn_st_tensor *t = attn_safetensors_find(st, e->name);
    t = t || !bare ? t : attn_safetensors_find(st, bare + 1);
    if (!t || t->n_dims != n_dims || t->shape[0] != e->shape[0] || (n_dims == 2 && t->shape[1] != columns))
        return attn_train_fail(ATTN_ERR_FORMAT, "model.safetensors has no tensor %s of %lld x %lld", e->name,
                               (long long)e->shape[0], (long long)columns);
    if (!e->transposed)
        return attn_st_read_f32(t, 0, n, out, attn_train_error_buffer(), ATTN_TRAIN_ERROR_BYTES);
    float *row = malloc((size_t)columns * sizeof *row);
    attn_status status = row ? ATTN_OK : attn_train_no_memory();
    for (int64_t i = 0; status == ATTN_OK && i < e->shape[0]; i++) {
        status = attn_st_read_f32(t, i * columns, columns, row, attn_train_error_buffer(), ATTN_TRAIN_ERROR_BYTES);
        for (int64_t j = 0; status == ATTN_OK && j < columns; j++)
            out[j * e->shape[0] + i] = row[j];
    }
    free(row);
    return status;
}

static attn_status read_weights(attn_trainer *t, const char *folder)
{
    attn_safetensors *st;
    attn_status status = attn_safetensors_open(folder, &st, attn_train_error_buffer(), ATTN_TRAIN_ERROR_BYTES);
    if (status != ATTN_OK)
        return status;
    for (int64_t p = 0; status == ATTN_OK && p < t->net.n_params; p++) {
        attn_exported e = {0};
        attn_export_tensor tensor;
        if (attn_export_describe(t, &t->net.params[p], &e, &tensor, ATTN_ST_F32))
            status = read_tensor(st, &e, (int64_t)tensor.n_dims, t->weights + t->net.params[p].offset);
    }
    attn_safetensors_close(st);
    return status;
}

attn_status attn_trainer_import(const char *folder, const attn_trainer_options *options, attn_trainer **trainer)
{
    attn_trainer_options o;
    attn_train_clear_error();
    ATTN_TRAIN_REQUIRE(trainer && folder, "%s is NULL", trainer ? "folder" : "trainer");
    *trainer = NULL;
    ATTN_TRAIN_TRY(attn_train_args(&o, sizeof o, options, "attn_trainer_options"));
    ATTN_TRAIN_REQUIRE(strlen(folder) < 4000, "folder has %zu bytes", strlen(folder));
    ATTN_TRAIN_TRY(read_config(folder, &o));
    ATTN_TRAIN_TRY(attn_trainer_allocate(&o, trainer));
    attn_status status = read_weights(*trainer, folder);
    if (status == ATTN_OK)
        return ATTN_OK;
    attn_trainer_destroy(*trainer);
    *trainer = NULL;
    return status;
}
