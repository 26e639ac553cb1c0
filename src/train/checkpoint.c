/* checkpoint.c - the whole state of a trainer as one safetensors file: each parameter and its two moments, and in the
 * metadata the options, the step and the caller's text. */
#include <jansson.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "io/json.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "train/train_error.h"
#include "train/trainer.h"

static const char *const prefixes[3] = {"", "m.", "v."}; /* of a parameter and its moments */

/* ---- Options as JSON ---- */

enum field_kind { FIELD_I32, FIELD_U32, FIELD_I64, FIELD_REAL, FIELD_LATER /* a real that older checkpoints lack: 0 */ };

static const struct field {
    const char *name;
    enum field_kind kind;
    size_t at;
} fields[] = {{"arch", FIELD_I32, offsetof(attn_trainer_options, arch)},
              {"dtype", FIELD_I32, offsetof(attn_trainer_options, dtype)},
              {"flags", FIELD_U32, offsetof(attn_trainer_options, flags)},
              {"vocab_size", FIELD_I64, offsetof(attn_trainer_options, vocab_size)},
              {"context", FIELD_I64, offsetof(attn_trainer_options, context)},
              {"n_layers", FIELD_I64, offsetof(attn_trainer_options, n_layers)},
              {"n_heads", FIELD_I64, offsetof(attn_trainer_options, n_heads)},
              {"n_kv_heads", FIELD_I64, offsetof(attn_trainer_options, n_kv_heads)},
              {"d_model", FIELD_I64, offsetof(attn_trainer_options, d_model)},
              {"d_ff", FIELD_I64, offsetof(attn_trainer_options, d_ff)},
              {"dropout", FIELD_REAL, offsetof(attn_trainer_options, dropout)},
              {"beta1", FIELD_REAL, offsetof(attn_trainer_options, beta1)},
              {"beta2", FIELD_REAL, offsetof(attn_trainer_options, beta2)},
              {"epsilon", FIELD_REAL, offsetof(attn_trainer_options, epsilon)},
              {"weight_decay", FIELD_REAL, offsetof(attn_trainer_options, weight_decay)},
              {"clip", FIELD_REAL, offsetof(attn_trainer_options, clip)},
              {"pad_id", FIELD_I32, offsetof(attn_trainer_options, pad_id)},
              {"bos_id", FIELD_I32, offsetof(attn_trainer_options, bos_id)},
              {"eos_id", FIELD_I32, offsetof(attn_trainer_options, eos_id)},
              {"mask_id", FIELD_I32, offsetof(attn_trainer_options, mask_id)},
              {"norm_eps", FIELD_LATER, offsetof(attn_trainer_options, norm_eps)},
              {"rope_base", FIELD_LATER, offsetof(attn_trainer_options, rope_base)}};

enum { N_FIELDS = sizeof fields / sizeof *fields };

static json_t *options_to_json(const attn_trainer_options *o)
{
    json_t *json = json_object();
    char seed[24];
    for (int i = 0; i < N_FIELDS; i++) {
        const char *at = (const char *)o + fields[i].at;
        int32_t i32;
        int64_t i64;
        double real;
        if (fields[i].kind >= FIELD_REAL) {
            memcpy(&real, at, sizeof real);
            json_object_set_new(json, fields[i].name, json_real(real));
        } else if (fields[i].kind == FIELD_I64) {
            memcpy(&i64, at, sizeof i64);
            json_object_set_new(json, fields[i].name, json_integer(i64));
        } else {
            memcpy(&i32, at, sizeof i32);
            json_object_set_new(json, fields[i].name, json_integer(i32));
        }
    }
    snprintf(seed, sizeof seed, "%" PRIu64, o->seed); /* JSON integers are signed */
    json_object_set_new(json, "seed", json_string(seed));
    return json;
}

static attn_status options_from_json(const json_t *json, attn_trainer_options *o)
{
    memset(o, 0, sizeof *o);
    o->struct_size = sizeof *o;
    for (int i = 0; i < N_FIELDS; i++) {
        const json_t *value = json_object_get(json, fields[i].name);
        char *at = (char *)o + fields[i].at;
        if (fields[i].kind == FIELD_LATER && !value)
            continue;
        if (fields[i].kind >= FIELD_REAL ? !json_is_number(value) : !json_is_integer(value))
            return attn_train_fail(ATTN_ERR_FORMAT, "the checkpoint's options have no %s", fields[i].name);
        const double real = json_number_value(value);
        const int64_t i64 = json_integer_value(value);
        const int32_t i32 = (int32_t)i64;
        if (fields[i].kind >= FIELD_REAL)
            memcpy(at, &real, sizeof real);
        else if (fields[i].kind == FIELD_I64)
            memcpy(at, &i64, sizeof i64);
        else if (i32 == i64)
            memcpy(at, &i32, sizeof i32);
        else
            return attn_train_fail(ATTN_ERR_FORMAT, "the checkpoint's option %s is %lld", fields[i].name, (long long)i64);
    }
    const char *seed = json_string_value(json_object_get(json, "seed"));
    if (!seed || sscanf(seed, "%" SCNu64, &o->seed) != 1)
        return attn_train_fail(ATTN_ERR_FORMAT, "the checkpoint's options have no seed");
    return ATTN_OK;
}

/* ---- Saving ---- */

static attn_status declare(const attn_trainer *t, attn_st_writer *w, size_t *indices, char *error)
{
    for (int64_t p = 0; p < t->net.n_params; p++) {
        const attn_net_param *param = &t->net.params[p];
        const int64_t shape[2] = {param->rows, param->columns};
        for (int k = 0; k < 3; k++) {
            char name[64];
            snprintf(name, sizeof name, "%s%s", prefixes[k], param->name);
            attn_status status = attn_st_writer_add(w, name, ATTN_ST_F32, 2, shape, &indices[3 * p + k], error,
                                                    ATTN_TRAIN_ERROR_BYTES);
            if (status != ATTN_OK)
                return status;
        }
    }
    return ATTN_OK;
}

static attn_status put_numbers(const attn_trainer *t, attn_st_writer *w, const size_t *indices, char *error)
{
    const float *const arrays[3] = {t->weights, t->m, t->v};
    for (int64_t p = 0; p < t->net.n_params; p++) {
        const attn_net_param *param = &t->net.params[p];
        for (int k = 0; k < 3; k++) {
            attn_status status = attn_st_writer_put_f32(w, indices[3 * p + k], arrays[k] + param->offset,
                                                        param->rows * param->columns, error, ATTN_TRAIN_ERROR_BYTES);
            if (status != ATTN_OK)
                return status;
        }
    }
    return ATTN_OK;
}

static attn_status put_metadata(const attn_trainer *t, attn_st_writer *w, const char *user_data, char *error)
{
    json_t *options = options_to_json(&t->net.options);
    size_t size;
    char *text = options ? attn_json_text(options, JSON_COMPACT | JSON_REAL_PRECISION(17), &size) : NULL;
    char step[24];
    json_decref(options);
    if (!text)
        return attn_train_no_memory();
    snprintf(step, sizeof step, "%lld", (long long)t->step);
    attn_status status = attn_st_writer_metadata(w, "attn_train_options", text, error, ATTN_TRAIN_ERROR_BYTES);
    free(text);
    if (status == ATTN_OK)
        status = attn_st_writer_metadata(w, "attn_train_step", step, error, ATTN_TRAIN_ERROR_BYTES);
    if (status == ATTN_OK && user_data)
        status = attn_st_writer_metadata(w, "attn_train_user_data", user_data, error, ATTN_TRAIN_ERROR_BYTES);
    return status;
}

attn_status attn_trainer_save(const attn_trainer *t, const char *path, const char *user_data)
{
    attn_st_writer *w = NULL;
    char *error = attn_train_error_buffer();
    attn_train_clear_error();
    ATTN_TRAIN_REQUIRE(t && path, "%s is NULL", t ? "path" : "trainer");
    size_t *indices = malloc((size_t)t->net.n_params * 3 * sizeof *indices);
    if (!indices)
        return attn_train_no_memory();
    attn_status status = attn_st_writer_create(&w, error, ATTN_TRAIN_ERROR_BYTES);
    if (status == ATTN_OK)
        status = put_metadata(t, w, user_data, error);
    if (status == ATTN_OK)
        status = declare(t, w, indices, error);
    if (status == ATTN_OK)
        status = attn_st_writer_begin(w, path, error, ATTN_TRAIN_ERROR_BYTES);
    if (status == ATTN_OK)
        status = put_numbers(t, w, indices, error);
    if (status == ATTN_OK)
        status = attn_st_writer_finish(w, error, ATTN_TRAIN_ERROR_BYTES);
    attn_st_writer_destroy(w);
    free(indices);
    return status;
}

/* ---- Loading ---- */

static attn_status read_options(const attn_safetensors *st, const char *path, attn_trainer_options *o, int64_t *step)
{
    const char *text = attn_safetensors_metadata(st, "attn_train_options");
    const char *count = attn_safetensors_metadata(st, "attn_train_step");
    char error[160];
    long long value = -1;
    if (!text || !count || sscanf(count, "%lld", &value) != 1 || value < 0)
        return attn_train_fail(ATTN_ERR_FORMAT, "%.300s is not a checkpoint of a trainer", path);
    json_t *json = attn_json_parse(text, strlen(text), error, sizeof error);
    if (!json)
        return attn_train_fail(ATTN_ERR_FORMAT, "%.200s: options: %s", path, error);
    attn_status status = options_from_json(json, o);
    json_decref(json);
    *step = value;
    return status;
}

static attn_status read_numbers(const attn_safetensors *st, attn_trainer *t)
{
    float *const arrays[3] = {t->weights, t->m, t->v};
    for (int64_t p = 0; p < t->net.n_params; p++) {
        const attn_net_param *param = &t->net.params[p];
        for (int k = 0; k < 3; k++) {
            char name[64];
            snprintf(name, sizeof name, "%s%s", prefixes[k], param->name);
            const attn_st_tensor *tensor = attn_safetensors_find(st, name);
            if (!tensor || tensor->dtype != ATTN_ST_F32 || tensor->n_dims != 2 || tensor->shape[0] != param->rows ||
                tensor->shape[1] != param->columns)
                return attn_train_fail(ATTN_ERR_FORMAT, "the checkpoint has no f32 tensor %s of %lld x %lld", name,
                                       (long long)param->rows, (long long)param->columns);
            attn_status status = attn_st_read_f32(tensor, 0, tensor->elements, arrays[k] + param->offset,
                                                  attn_train_error_buffer(), ATTN_TRAIN_ERROR_BYTES);
            if (status != ATTN_OK)
                return status;
        }
    }
    return ATTN_OK;
}

attn_status attn_trainer_load(const char *path, int32_t n_threads, attn_trainer **trainer)
{
    attn_safetensors *st;
    attn_trainer_options o;
    int64_t step = 0;
    attn_train_clear_error();
    ATTN_TRAIN_REQUIRE(path && trainer, "%s is NULL", path ? "trainer" : "path");
    *trainer = NULL;
    attn_status status = attn_safetensors_open(path, &st, attn_train_error_buffer(), ATTN_TRAIN_ERROR_BYTES);
    if (status != ATTN_OK)
        return status;
    status = read_options(st, path, &o, &step);
    o.n_threads = n_threads;
    if (status == ATTN_OK)
        status = attn_trainer_allocate(&o, trainer);
    if (status == ATTN_OK)
        status = read_numbers(st, *trainer);
    if (status == ATTN_OK) {
        const char *text = attn_safetensors_metadata(st, "attn_train_user_data");
        (*trainer)->step = step;
        (*trainer)->user_data = text ? strdup(text) : NULL;
        status = text && !(*trainer)->user_data ? attn_train_no_memory() : ATTN_OK;
    }
    if (status != ATTN_OK) {
        attn_trainer_destroy(*trainer);
        *trainer = NULL;
    }
    attn_safetensors_close(st);
    return status;
}
