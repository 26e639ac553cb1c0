/* gguf_config.c - config.json from GGUF metadata: one table of fields for each architecture. */
#include "io/gguf_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/dequant.h"
#include "io/io_error.h"
#include "io/rope_divisors.h"

#define SHOWN 96

enum field_kind { INTEGER, REAL, OPTIONAL_INTEGER, OPTIONAL_REAL, BOOLEAN, TEXT };

typedef struct field {
    const char *key;  /* in the file, behind "ARCHITECTURE."; NULL: a constant */
    const char *name; /* in config.json */
    enum field_kind kind;
    const char *text; /* of a TEXT; "1" or "" of a BOOLEAN */
} field;

typedef struct architecture {
    const char *gguf, *model_type, *class_name;
    const field *fields; /* the last has name NULL */
    bool rope;
} architecture;

static const field llama_fields[] = {
    {"context_length", "max_position_embeddings", INTEGER, NULL},
    {"embedding_length", "hidden_size", INTEGER, NULL},
    {"block_count", "num_hidden_layers", INTEGER, NULL},
    {"feed_forward_length", "intermediate_size", INTEGER, NULL},
    {"attention.head_count", "num_attention_heads", INTEGER, NULL},
    {"attention.head_count_kv", "num_key_value_heads", OPTIONAL_INTEGER, NULL},
    {"attention.key_length", "head_dim", OPTIONAL_INTEGER, NULL},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", REAL, NULL},
    {"attention.sliding_window", "sliding_window", OPTIONAL_INTEGER, NULL},
    {NULL, "hidden_act", TEXT, "silu"},
    {NULL, "mlp_bias", BOOLEAN, ""},
    {NULL, NULL, TEXT, NULL},
};

static const field gpt2_fields[] = {
    {"context_length", "n_positions", INTEGER, NULL},
    {"embedding_length", "n_embd", INTEGER, NULL},
    {"block_count", "n_layer", INTEGER, NULL},
    {"feed_forward_length", "n_inner", INTEGER, NULL},
    {"attention.head_count", "n_head", INTEGER, NULL},
    {"attention.layer_norm_epsilon", "layer_norm_epsilon", REAL, NULL},
    {NULL, "activation_function", TEXT, "gelu_new"},
    {NULL, NULL, TEXT, NULL},
};

static const field bert_fields[] = {
    {"context_length", "max_position_embeddings", INTEGER, NULL},
    {"embedding_length", "hidden_size", INTEGER, NULL},
    {"block_count", "num_hidden_layers", INTEGER, NULL},
    {"feed_forward_length", "intermediate_size", INTEGER, NULL},
    {"attention.head_count", "num_attention_heads", INTEGER, NULL},
    {"attention.layer_norm_epsilon", "layer_norm_eps", REAL, NULL},
    {NULL, "hidden_act", TEXT, "gelu"},
    {NULL, NULL, TEXT, NULL},
};

static const architecture architectures[] = {
    {"llama", "llama", "LlamaForCausalLM", llama_fields, true},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", llama_fields, true},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", llama_fields, true},
    {"gpt2", "gpt2", "GPT2LMHeadModel", gpt2_fields, false},
    {"bert", "bert", "BertModel", bert_fields, false},
};

typedef struct build {
    const attn_gguf *gguf;
    const architecture *kind;
    json_t *config;
    char *error;
    size_t error_size;
} build;

static attn_status set(const build *b, const char *name, json_t *value)
{
    if (json_object_set_new(b->config, name, value)) /* a NULL value fails too */
        return attn_io_no_memory(b->error, b->error_size, "config.json");
    return ATTN_OK;
}

/* A number as f64; one that is stored as f32 becomes the shortest decimal that rounds to the same
 * f32. */
static attn_status get_real(const build *b, const char *key, double *out)
{
    const attn_gguf_value *value = attn_gguf_find(b->gguf, key);
    attn_status status = attn_gguf_get_f64(b->gguf, key, out, b->error, b->error_size);
    if (status != ATTN_OK || value->type != ATTN_GGUF_F32)
        return status;
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, *out);
        double shorter = strtod(text, NULL);
        if ((float)shorter == (float)*out) {
            *out = shorter;
            break;
        }
    }
    return ATTN_OK;
}

static const char *full_key(const build *b, const char *key, char *room, size_t size)
{
    snprintf(room, size, "%s.%s", b->kind->gguf, key);
    return room;
}

static attn_status set_field(const build *b, const field *f)
{
    char room[128];
    int64_t integer;
    double real;
    if (f->kind == TEXT)
        return set(b, f->name, json_string(f->text));
    if (f->kind == BOOLEAN)
        return set(b, f->name, json_boolean(f->text[0]));
    const char *key = full_key(b, f->key, room, sizeof room);
    bool optional = f->kind == OPTIONAL_INTEGER || f->kind == OPTIONAL_REAL;
    if (optional && !attn_gguf_find(b->gguf, key))
        return ATTN_OK;
    if (f->kind == REAL || f->kind == OPTIONAL_REAL) {
        attn_status status = get_real(b, key, &real);
        return status == ATTN_OK ? set(b, f->name, json_real(real)) : status;
    }
    attn_status status = attn_gguf_get_i64(b->gguf, key, &integer, b->error, b->error_size);
    return status == ATTN_OK ? set(b, f->name, json_integer(integer)) : status;
}

/* What GGUF leaves out where the number of heads says it; in config.json each family has a default of its own. */
static attn_status set_heads(const build *b)
{
    const json_int_t heads = json_integer_value(json_object_get(b->config, "num_attention_heads"));
    const json_int_t width = json_integer_value(json_object_get(b->config, "hidden_size"));
    attn_status status = ATTN_OK;
    if (!json_object_get(b->config, "num_key_value_heads"))
        status = set(b, "num_key_value_heads", json_integer(heads));
    if (status == ATTN_OK && heads > 0 && !json_object_get(b->config, "head_dim"))
        status = set(b, "head_dim", json_integer(width / heads));
    return status;
}

static attn_status find_architecture(build *b)
{
    attn_gguf_string name;
    char shown[SHOWN];
    attn_status status =
        attn_gguf_get_string(b->gguf, "general.architecture", &name, b->error, b->error_size);
    if (status != ATTN_OK)
        return status;
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (name.length == strlen(architectures[i].gguf) &&
            !memcmp(name.text, architectures[i].gguf, name.length)) {
            b->kind = &architectures[i];
            return ATTN_OK;
        }
    return attn_io_fail(b->error, b->error_size, ATTN_ERR_UNSUPPORTED,
                        "general.architecture: '%s' cannot be written as config.json",
                        attn_io_printable(name.text, name.length, shown, sizeof shown));
}

/* ---- What the tensors say ------------------------------------------------------------------- */

static attn_status set_from_tensors(const build *b)
{
    const attn_gguf_tensor *embedding = attn_gguf_find_tensor(b->gguf, "token_embd.weight");
    const attn_gguf_tensor *types = attn_gguf_find_tensor(b->gguf, "token_types.weight");
    if (!embedding)
        return attn_io_fail(b->error, b->error_size, ATTN_ERR_FORMAT,
                            "tensor 'token_embd.weight': missing");
    attn_status status = set(b, "vocab_size", json_integer(embedding->shape[1]));
    if (status == ATTN_OK && types)
        status = set(b, "type_vocab_size", json_integer(types->shape[1]));
    if (status == ATTN_OK && strcmp(b->kind->gguf, "bert"))
        status = set(b, "tie_word_embeddings",
                     json_boolean(!attn_gguf_find_tensor(b->gguf, "output.weight")));
    if (status == ATTN_OK && b->kind->rope && strcmp(b->kind->gguf, "qwen2"))
        status = set(b, "attention_bias",
                     json_boolean(attn_gguf_find_tensor(b->gguf, "blk.0.attn_q.bias") != NULL));
    return status;
}

/* ---- RoPE ----------------------------------------------------------------------------------- */

/* Llama 3's scaling, which the file holds as the divisors of frequencies. */
static attn_status set_llama3_scaling(const build *b, const attn_gguf_tensor *t, double base)
{
    double factor = 0;
    int64_t length = 0;
    float *divisors = t->elements > 0 && t->elements <= 4096 ? malloc((size_t)t->elements * sizeof *divisors) : NULL;
    const bool found = divisors && attn_dequant(t->type, t->data, t->bytes, 0, t->elements, divisors, NULL, 0) == ATTN_OK &&
                       attn_rope_llama3_rule(divisors, t->elements, base, &factor, &length);
    free(divisors);
    if (!found)
        return attn_io_fail(b->error, b->error_size, ATTN_ERR_UNSUPPORTED,
                            "tensor 'rope_freqs.weight': config.json cannot say these RoPE frequencies");
    return set(b, "rope_scaling",
               json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", factor, "low_freq_factor",
                         ATTN_LLAMA3_LOW_FREQ, "high_freq_factor", ATTN_LLAMA3_HIGH_FREQ,
                         "original_max_position_embeddings", (json_int_t)length));
}

/* What a file of YaRN may say beside its factor. */
static attn_status set_yarn(const build *b, json_t *scaling, double factor)
{
    static const char *const fields[][2] = {{"rope.scaling.yarn_beta_fast", "beta_fast"},
                                            {"rope.scaling.yarn_beta_slow", "beta_slow"},
                                            {"rope.scaling.attn_factor", "attention_factor"}};
    char room[128];
    attn_status status = ATTN_OK;
    for (size_t i = 0; status == ATTN_OK && i < sizeof fields / sizeof *fields; i++) {
        double value;
        const char *key = full_key(b, fields[i][0], room, sizeof room);
        if (!attn_gguf_find(b->gguf, key))
            continue;
        status = get_real(b, key, &value);
        if (i == 2) /* there it is all of it, here it goes on top of YaRN's own */
            value *= 0.1 * log(factor) + 1;
        if (status == ATTN_OK && json_object_set_new(scaling, fields[i][1], json_real(value)))
            status = attn_io_no_memory(b->error, b->error_size, "config.json");
    }
    return status;
}

static attn_status set_scaling(const build *b, double base)
{
    char room[128], shown[SHOWN];
    const char *key = full_key(b, "rope.scaling.type", room, sizeof room);
    attn_gguf_string type;
    double factor;
    int64_t original;
    const attn_gguf_tensor *divisors = attn_gguf_find_tensor(b->gguf, "rope_freqs.weight");
    if (divisors)
        return set_llama3_scaling(b, divisors, base);
    if (!attn_gguf_find(b->gguf, key))
        return ATTN_OK;
    attn_status status = attn_gguf_get_string(b->gguf, key, &type, b->error, b->error_size);
    if (status != ATTN_OK)
        return status;
    attn_io_printable(type.text, type.length, shown, sizeof shown);
    if (!strcmp(shown, "none"))
        return ATTN_OK;
    if (strcmp(shown, "linear") && strcmp(shown, "yarn"))
        return attn_io_fail(b->error, b->error_size, ATTN_ERR_UNSUPPORTED,
                            "%s: '%s' cannot be written as config.json", key, shown);
    status = get_real(b, full_key(b, "rope.scaling.factor", room, sizeof room), &factor);
    if (status != ATTN_OK)
        return status;
    json_t *scaling = json_pack("{s:s, s:f}", "rope_type", shown, "factor", factor);
    status = set(b, "rope_scaling", scaling);
    if (status == ATTN_OK && !strcmp(shown, "yarn"))
        status = set_yarn(b, scaling, factor);
    key = full_key(b, "rope.scaling.original_context_length", room, sizeof room);
    if (status != ATTN_OK || !attn_gguf_find(b->gguf, key))
        return status;
    status = attn_gguf_get_i64(b->gguf, key, &original, b->error, b->error_size);
    if (status == ATTN_OK &&
        json_object_set_new(scaling, "original_max_position_embeddings", json_integer(original)))
        return attn_io_no_memory(b->error, b->error_size, "config.json");
    return status;
}

static attn_status set_rope(const build *b)
{
    char room[128];
    double base = 10000;
    attn_status status = ATTN_OK;
    const char *key = full_key(b, "rope.freq_base", room, sizeof room);
    if (attn_gguf_find(b->gguf, key))
        status = get_real(b, key, &base);
    if (status == ATTN_OK)
        status = set(b, "rope_theta", json_real(base));
    return status == ATTN_OK ? set_scaling(b, base) : status;
}

/* ---- Names and ids -------------------------------------------------------------------------- */

static attn_status set_kind(const build *b, const char *dtype)
{
    char room[128];
    bool mistral =
        !strcmp(b->kind->gguf, "llama") &&
        attn_gguf_find(b->gguf, full_key(b, "attention.sliding_window", room, sizeof room));
    attn_status status =
        set(b, "model_type", json_string(mistral ? "mistral" : b->kind->model_type));
    if (status == ATTN_OK)
        status = set(b, "architectures",
                     json_pack("[s]", mistral ? "MistralForCausalLM" : b->kind->class_name));
    return status == ATTN_OK ? set(b, "torch_dtype", json_string(dtype)) : status;
}

static attn_status set_ids(const build *b)
{
    static const char *const ids[][2] = {{"tokenizer.ggml.bos_token_id", "bos_token_id"},
                                         {"tokenizer.ggml.eos_token_id", "eos_token_id"},
                                         {"tokenizer.ggml.padding_token_id", "pad_token_id"}};
    attn_status status = ATTN_OK;
    for (size_t i = 0; status == ATTN_OK && i < sizeof ids / sizeof *ids; i++) {
        int64_t id;
        if (!attn_gguf_find(b->gguf, ids[i][0]))
            continue;
        status = attn_gguf_get_i64(b->gguf, ids[i][0], &id, b->error, b->error_size);
        if (status == ATTN_OK)
            status = set(b, ids[i][1], json_integer(id));
    }
    return status;
}

attn_status attn_gguf_config_json(const attn_gguf *gguf, const char *dtype, json_t **config,
                                  char *error, size_t error_size)
{
    build b = {.gguf = gguf, .config = json_object(), .error = error, .error_size = error_size};
    attn_status status =
        b.config ? find_architecture(&b) : attn_io_no_memory(error, error_size, "config.json");
    if (status == ATTN_OK)
        status = set_kind(&b, dtype);
    for (const field *f = status == ATTN_OK ? b.kind->fields : NULL; status == ATTN_OK && f->name;
         f++)
        status = set_field(&b, f);
    if (status == ATTN_OK)
        status = set_from_tensors(&b);
    if (status == ATTN_OK && b.kind->rope)
        status = set_heads(&b);
    if (status == ATTN_OK && b.kind->rope)
        status = set_rope(&b);
    if (status == ATTN_OK)
        status = set_ids(&b);
    if (status != ATTN_OK) {
        json_decref(b.config);
        return status;
    }
    *config = b.config;
    return ATTN_OK;
}
