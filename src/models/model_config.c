/* model_config.c - fields of config.json and of GGUF metadata, checked one by one. In a list of names those of GGUF
 * begin with '@'. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "io/io_error.h"
#include "io/rope_divisors.h"
#include "layers/rare_act.h"
#include "models/family.h"

#define NAME_BYTES 128

void attn_config_fail(attn_config *c, attn_status status, const char *format, ...)
{
    if (c->status != ATTN_OK)
        return;
    c->status = status;
    char text[400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    attn_io_fail(c->error, c->error_size, status, "%s: %s", c->json ? "config.json" : "GGUF metadata", text);
}

attn_config attn_config_open(const attn_model_source *source, char *error, size_t error_size)
{
    attn_config c = {.source = source, .json = source->config, .error = error, .error_size = error_size};
    return c;
}

/* The next name of the list that belongs to this file's format, with GGUF's prefix; false at the end. */
static bool next_name(const attn_config *c, const char **list, char *name)
{
    while (**list) {
        const char *start = *list, *end = strchr(start, '|');
        size_t n = end ? (size_t)(end - start) : strlen(start);
        *list = end ? end + 1 : start + n;
        const bool gguf = *start == '@';
        if (gguf == (c->json != NULL) || n >= 64)
            continue;
        if (gguf)
            snprintf(name, NAME_BYTES, "%s.%.*s", c->gguf_prefix, (int)(n - 1), start + 1);
        else
            snprintf(name, NAME_BYTES, "%.*s", (int)n, start);
        return true;
    }
    return false;
}

/* A JSON value that is there and not null. */
static const json_t *find_json(const attn_config *c, const char *names, char *name)
{
    while (c->json && next_name(c, &names, name)) {
        const json_t *value = json_object_get(c->json, name);
        if (value && !json_is_null(value))
            return value;
    }
    return NULL;
}

static const attn_gguf_value *find_gguf(const attn_config *c, const char *names, char *name)
{
    while (!c->json && next_name(c, &names, name)) {
        const attn_gguf_value *value = attn_gguf_find(c->source->gguf, name);
        if (value)
            return value;
    }
    return NULL;
}

bool attn_config_has(attn_config *c, const char *names)
{
    char name[NAME_BYTES];
    return find_json(c, names, name) || find_gguf(c, names, name);
}

/* A field of another type than it must have: its name and what is there instead. */
static void fail_type(attn_config *c, const char *name, const json_t *json, const char *wanted)
{
    char *text = json_dumps(json, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    attn_config_fail(c, ATTN_ERR_FORMAT, "%s is %.60s, not %s", name, text ? text : "?", wanted);
    free(text);
}

static bool read_int(attn_config *c, const char *names, int64_t low, int64_t high, int64_t *out)
{
    char name[NAME_BYTES], error[256];
    int64_t value;
    const json_t *json = find_json(c, names, name);
    if (json) {
        if (!json_is_integer(json)) {
            fail_type(c, name, json, "an integer");
            return true;
        }
        value = json_integer_value(json);
    } else if (find_gguf(c, names, name)) {
        if (attn_gguf_get_i64(c->source->gguf, name, &value, error, sizeof error) != ATTN_OK) {
            attn_config_fail(c, ATTN_ERR_FORMAT, "%s", error);
            return true;
        }
    } else {
        return false;
    }
    if (value < low || value > high)
        attn_config_fail(c, ATTN_ERR_FORMAT, "%s is %lld, not in %lld..%lld", name, (long long)value, (long long)low,
                         (long long)high);
    *out = value;
    return true;
}

int64_t attn_config_int(attn_config *c, const char *names, int64_t low, int64_t high, int64_t fallback)
{
    int64_t value = fallback;
    if (c->status == ATTN_OK)
        read_int(c, names, low, high, &value);
    return c->status == ATTN_OK ? value : fallback;
}

int64_t attn_config_need(attn_config *c, const char *names, int64_t low, int64_t high)
{
    int64_t value = low;
    if (c->status == ATTN_OK && !read_int(c, names, low, high, &value)) {
        const char *list = names;
        char name[NAME_BYTES] = "a field";
        next_name(c, &list, name);
        attn_config_fail(c, ATTN_ERR_FORMAT, "%s is missing", name);
    }
    return c->status == ATTN_OK ? value : low;
}

double attn_config_number(attn_config *c, const char *names, double fallback)
{
    char name[NAME_BYTES], error[256];
    double value = fallback;
    if (c->status != ATTN_OK)
        return fallback;
    const json_t *json = find_json(c, names, name);
    if (json) {
        if (!json_is_number(json))
            fail_type(c, name, json, "a number");
        else
            value = json_number_value(json);
    } else if (find_gguf(c, names, name)) {
        if (attn_gguf_get_f64(c->source->gguf, name, &value, error, sizeof error) != ATTN_OK)
            attn_config_fail(c, ATTN_ERR_FORMAT, "%s", error);
    }
    if (!isfinite(value))
        attn_config_fail(c, ATTN_ERR_FORMAT, "%s is not finite", name);
    return c->status == ATTN_OK ? value : fallback;
}

bool attn_config_bool(attn_config *c, const char *names, bool fallback)
{
    char name[NAME_BYTES], error[256];
    bool value = fallback;
    if (c->status != ATTN_OK)
        return fallback;
    const json_t *json = find_json(c, names, name);
    if (json) {
        if (!json_is_boolean(json))
            fail_type(c, name, json, "true or false");
        else
            value = json_is_true(json);
    } else if (find_gguf(c, names, name)) {
        if (attn_gguf_get_bool(c->source->gguf, name, &value, error, sizeof error) != ATTN_OK)
            attn_config_fail(c, ATTN_ERR_FORMAT, "%s", error);
    }
    return c->status == ATTN_OK ? value : fallback;
}

const char *attn_config_text(attn_config *c, const char *names, const char *fallback)
{
    char name[NAME_BYTES];
    if (c->status != ATTN_OK)
        return fallback;
    const json_t *json = find_json(c, names, name);
    if (json && !json_is_string(json))
        fail_type(c, name, json, "a text");
    return json && json_is_string(json) ? json_string_value(json) : fallback;
}

int32_t attn_config_act(attn_config *c, const char *names, const char *fallback)
{
    static const struct {
        const char *name;
        int32_t act;
    } acts[] = {{"relu", ATTN_ACT_RELU},           {"silu", ATTN_ACT_SILU},
                {"swish", ATTN_ACT_SILU},          {"gelu", ATTN_ACT_GELU_ERF},
                {"gelu_new", ATTN_ACT_GELU_TANH},  {"gelu_pytorch_tanh", ATTN_ACT_GELU_TANH},
                {"gelu_fast", ATTN_ACT_GELU_TANH}, {"gelu_accurate", ATTN_ACT_GELU_TANH},
                {"gelu_python", ATTN_ACT_GELU_ERF}, {"gelu_python_tanh", ATTN_ACT_GELU_TANH},
                {"quick_gelu", ATTN_ACT_GELU_QUICK},
                {"tanh", ATTN_ACT_TANH},           {"linear", ATTN_ACT_NONE},
                {"relu2", ATTN_ACT_RELU2},         {"relu6", ATTN_ACT_RELU6},
                {"leaky_relu", ATTN_ACT_LEAKY_RELU}, {"sigmoid", ATTN_ACT_SIGMOID},
                {"mish", ATTN_ACT_MISH},           {"gelu_10", ATTN_ACT_GELU_10},
                {"laplace", ATTN_ACT_LAPLACE}};
    const char *text = attn_config_text(c, names, fallback);
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (!strcmp(text, acts[i].name))
            return acts[i].act;
    attn_config_fail(c, ATTN_ERR_UNSUPPORTED, "activation \"%.40s\" is not served", text);
    return ATTN_ACT_NONE;
}

static void rope_type(attn_config *c, attn_rope_desc *rope, const char *type)
{
    static const struct {
        const char *name;
        int32_t scaling;
    } types[] = {{"default", ATTN_ROPE_PLAIN}, {"none", ATTN_ROPE_PLAIN},    {"linear", ATTN_ROPE_LINEAR},
                 {"llama3", ATTN_ROPE_LLAMA3}, {"yarn", ATTN_ROPE_YARN},     {"ntk", ATTN_ROPE_NTK},
                 {"longrope", ATTN_ROPE_LONG}, {"su", ATTN_ROPE_LONG},       {"dynamic", ATTN_ROPE_DYNAMIC}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(type, types[i].name)) {
            rope->scaling = types[i].scaling;
            return;
        }
    attn_config_fail(c, ATTN_ERR_UNSUPPORTED, "rope_type \"%.40s\" is not served", type);
}

/* YaRN's factor on cosines and sines from DeepSeek's pair of numbers. */
static double yarn_amplitude(double factor, double mscale, double mscale_all_dim)
{
    const double length = factor > 1 ? 0.1 * log(factor) : 0;
    return (mscale * length + 1) / (mscale_all_dim * length + 1);
}

/* LongRoPE (Ding et al. 2024): a divisor for each frequency, one list for short texts and one for long ones; scores grow with
 * the factor. */
static void read_longrope(attn_config *c, attn_description *d, attn_rope_desc *rope)
{
    static const char *const names[] = {"short_factor", "long_factor"};
    const int64_t n = rope->rotary_dim / 2;
    rope->divisors = c->status == ATTN_OK ? malloc((size_t)(2 * n) * sizeof *rope->divisors) : NULL;
    if (!rope->divisors) {
        attn_config_fail(c, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
        return;
    }
    for (int64_t i = 0; i < 2 * n; i++) {
        const json_t *list = json_object_get(c->json, names[i / n]), *x = json_array_get(list, (size_t)(i % n));
        rope->divisors[i] = json_number_value(x);
        if ((int64_t)json_array_size(list) != n || !json_is_number(x) || !(rope->divisors[i] > 0))
            attn_config_fail(c, ATTN_ERR_FORMAT, "%s is not a list of %lld numbers above 0", names[i / n], (long long)n);
    }
    if (!attn_config_has(c, "factor"))
        rope->factor = (double)d->context_length / (double)rope->original_length;
    if (!attn_config_has(c, "attention_factor"))
        rope->attention_factor =
            rope->factor <= 1 || rope->original_length < 2 ? 1 : sqrt(1 + log(rope->factor) / log((double)rope->original_length));
}

/* One set of parameters; fallback: the base where it has none. */
static void read_rope(attn_config *c, attn_description *d, attn_rope_desc *rope, double fallback, double partial,
                      int64_t original)
{
    rope_type(c, rope, attn_config_text(c, "rope_type|type", "default"));
    rope->base = attn_config_number(c, "rope_theta", fallback);
    rope->factor = attn_config_number(c, "factor", 1);
    if (rope->factor < 1)
        attn_config_fail(c, ATTN_ERR_FORMAT, "rope factor is %g, below 1", rope->factor);
    rope->low_freq_factor = attn_config_number(c, "low_freq_factor", 1);
    rope->high_freq_factor = attn_config_number(c, "high_freq_factor", 4);
    rope->beta_fast = attn_config_number(c, "beta_fast", 32);
    rope->beta_slow = attn_config_number(c, "beta_slow", 1);
    rope->attention_factor = attn_config_number(c, "attention_factor", 0);
    const double mscale = attn_config_number(c, "mscale", 0), all_dim = attn_config_number(c, "mscale_all_dim", 0);
    if (rope->scaling == ATTN_ROPE_YARN && rope->attention_factor == 0 && mscale != 0 && all_dim != 0)
        rope->attention_factor = yarn_amplitude(rope->factor, mscale, all_dim);
    rope->original_length = attn_config_int(c, "original_max_position_embeddings", 1, INT32_MAX, d->context_length);
    if (original > 0) /* where Phi-3 keeps it, which goes first */
        rope->original_length = original;
    if (rope->scaling == ATTN_ROPE_DYNAMIC) /* it reads max_position_embeddings alone */
        rope->original_length = d->context_length;
    if (rope->scaling == ATTN_ROPE_YARN && !attn_config_has(c, "factor"))
        rope->factor = fmax(1, (double)d->context_length / (double)rope->original_length);
    rope->no_truncate = !attn_config_bool(c, "truncate", true);
    if (partial > 0)
        partial = attn_config_number(c, "partial_rotary_factor", partial);
    rope->rotary_dim = (int64_t)((partial > 0 && partial < 1 ? partial : 1) * (double)d->head_dim);
    if (rope->rotary_dim < 2 || rope->rotary_dim % 2)
        attn_config_fail(c, ATTN_ERR_UNSUPPORTED, "%lld of %lld numbers of a head rotate, which are no pairs",
                         (long long)rope->rotary_dim, (long long)d->head_dim);
    if (!(rope->base > 0))
        attn_config_fail(c, ATTN_ERR_FORMAT, "rope_theta is %g, not above 0", rope->base);
    if (rope->scaling == ATTN_ROPE_LONG)
        read_longrope(c, d, rope);
}

/* GGUF keeps Llama 3's scaling as one divisor for each frequency: the rule that gives them is looked for. */
static void read_rope_divisors(attn_config *c, attn_description *d)
{
    attn_rope_desc *rope = &d->rope;
    attn_source_tensor t;
    const int64_t n = rope->rotary_dim / 2;
    if (!attn_source_find(c->source, "rope_freqs.weight", &t))
        return;
    float *divisors = t.elements == n ? malloc((size_t)n * sizeof *divisors) : NULL;
    bool same = false;
    if (divisors && attn_source_read(&t, 0, n, divisors, NULL, 0) == ATTN_OK) {
        double factor;
        int64_t length;
        same = attn_rope_llama3_rule(divisors, n, rope->base, &factor, &length);
        if (same)
            *rope = (attn_rope_desc){.rotary_dim = rope->rotary_dim, .base = rope->base, .scaling = ATTN_ROPE_LLAMA3,
                                     .factor = factor, .low_freq_factor = ATTN_LLAMA3_LOW_FREQ,
                                     .high_freq_factor = ATTN_LLAMA3_HIGH_FREQ, .original_length = length};
    }
    free(divisors);
    if (!same)
        attn_config_fail(c, ATTN_ERR_UNSUPPORTED, "tensor rope_freqs.weight holds other frequencies than Llama 3's scaling gives");
}

static void read_rope_gguf(attn_config *c, attn_description *d)
{
    attn_rope_desc *rope = &d->rope;
    attn_gguf_string type;
    char key[NAME_BYTES], text[32] = "";
    rope->base = attn_config_number(c, "@rope.freq_base", 10000);
    rope->rotary_dim = attn_config_int(c, "@rope.dimension_count", 2, d->head_dim, d->head_dim) / 2 * 2;
    if (!(rope->base > 0))
        attn_config_fail(c, ATTN_ERR_FORMAT, "rope.freq_base is %g, not above 0", rope->base);
    if (c->status == ATTN_OK)
        read_rope_divisors(c, d);
    const double factor = attn_config_number(c, "@rope.scaling.factor", 0);
    snprintf(key, sizeof key, "%s.rope.scaling.type", c->gguf_prefix);
    if (!(factor > 1) || attn_gguf_get_string(c->source->gguf, key, &type, NULL, 0) != ATTN_OK)
        return;
    attn_io_printable(type.text, type.length, text, sizeof text);
    rope_type(c, rope, text);
    if (rope->scaling != ATTN_ROPE_PLAIN && rope->scaling != ATTN_ROPE_LINEAR && rope->scaling != ATTN_ROPE_YARN)
        attn_config_fail(c, ATTN_ERR_UNSUPPORTED, "%s \"%s\" is not served", key, text);
    const double amplitude = attn_config_number(c, "@rope.scaling.attn_factor", 1);
    if (amplitude != 1 && rope->scaling != ATTN_ROPE_YARN)
        attn_config_fail(c, ATTN_ERR_UNSUPPORTED, "rope.scaling.attn_factor is %g, of a scaling that is not yarn", amplitude);
    if (amplitude != 1)
        rope->attention_factor = amplitude * (0.1 * log(factor) + 1);
    rope->factor = factor;
    rope->low_freq_factor = 1;
    rope->high_freq_factor = 4;
    rope->beta_fast = attn_config_number(c, "@rope.scaling.yarn_beta_fast", 32);
    rope->beta_slow = attn_config_number(c, "@rope.scaling.yarn_beta_slow", 1);
    rope->original_length = attn_config_int(c, "@rope.scaling.original_context_length", 1, INT32_MAX, d->context_length);
}

void attn_config_rope(attn_config *c, attn_description *d, double partial)
{
    d->position = ATTN_POSITION_ROPE;
    if (!c->json) {
        read_rope_gguf(c, d);
        return;
    }
    const double base = attn_config_number(c, "rope_theta|rotary_emb_base|global_rope_theta", d->rope.base > 0 ? d->rope.base : 10000);
    const double local_base = attn_config_number(c, "rope_local_base_freq|local_rope_theta", d->local_rope.base);
    if (partial > 0)
        partial = attn_config_number(c, "partial_rotary_factor|rotary_pct", partial);
    char name[NAME_BYTES];
    attn_config full = *c, local = *c;
    const json_t *sets = find_json(c, "rope_parameters|rope_scaling", name), *none = json_null();
    if (sets && !json_is_object(sets))
        fail_type(c, name, sets, "an object");
    const json_t *of_full = json_object_get(sets, "full_attention"), *of_local = json_object_get(sets, "sliding_attention");
    full.json = json_is_object(of_full) ? of_full : sets ? sets : none;
    const int64_t original = attn_config_int(c, "original_max_position_embeddings", 1, INT32_MAX, 0);
    read_rope(&full, d, &d->rope, base, partial, original);
    d->has_local_rope = json_is_object(of_local) || local_base > 0;
    if (d->has_local_rope) { /* older files scale full layers alone */
        local.json = json_is_object(of_local) ? of_local : none;
        read_rope(&local, d, &d->local_rope, local_base > 0 ? local_base : base, partial, original);
    }
    if (c->status == ATTN_OK)
        c->status = full.status != ATTN_OK ? full.status : local.status;
    if (d->rope.scaling == ATTN_ROPE_DYNAMIC) /* what it stretches to */
        d->context_length = (int64_t)fmin((double)d->context_length * d->rope.factor, INT32_MAX);
}

void attn_config_layer_types(attn_config *c, attn_description *d)
{
    char name[NAME_BYTES];
    const json_t *types = find_json(c, "layer_types", name);
    if (!types || c->status != ATTN_OK)
        return;
    if (!json_is_array(types) || (int64_t)json_array_size(types) < d->n_layers) {
        attn_config_fail(c, ATTN_ERR_FORMAT, "layer_types is not an array with an entry for each of %lld layers",
                         (long long)d->n_layers);
        return;
    }
    d->windowed = calloc((size_t)d->n_layers, 1);
    if (!d->windowed) {
        attn_config_fail(c, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
        return;
    }
    for (int64_t l = 0; l < d->n_layers; l++) {
        const char *type = json_string_value(json_array_get(types, (size_t)l));
        if (type && !strcmp(type, "sliding_attention"))
            d->windowed[l] = 1;
        else if (!type || strcmp(type, "full_attention"))
            attn_config_fail(c, ATTN_ERR_UNSUPPORTED, "layer_types[%lld] is \"%.40s\"", (long long)l,
                             type ? type : "?");
    }
}

void attn_config_windowed(attn_config *c, attn_description *d, int64_t first, int64_t every, int64_t phase)
{
    if (d->windowed || c->status != ATTN_OK)
        return;
    d->windowed = calloc((size_t)d->n_layers, 1);
    if (!d->windowed)
        attn_config_fail(c, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    for (int64_t l = first; d->windowed && l < d->n_layers; l++)
        d->windowed[l] = !every || (l + phase) % every != 0;
}

double attn_config_number_or_null(attn_config *c, const char *name, double fallback)
{
    return json_is_null(json_object_get(c->json, name)) ? 0 : attn_config_number(c, name, fallback);
}

int64_t attn_config_window(attn_config *c, int64_t fallback)
{
    const bool none = json_is_null(json_object_get(c->json, "sliding_window"));
    return none ? 0 : attn_config_int(c, "sliding_window|@attention.sliding_window", c->json ? 1 : 0, INT32_MAX, c->json ? fallback : 0);
}

void attn_config_refuse(attn_config *c, const char *name)
{
    if (attn_config_bool(c, name, false))
        attn_config_fail(c, ATTN_ERR_UNSUPPORTED, "%s true is not served", name);
}

/* An id, or a list of them, that is not there yet. */
static void add_ids(int32_t ids[ATTN_MAX_STOP_IDS], int32_t *n, const json_t *more)
{
    for (size_t i = 0; i < json_array_size(more); i++)
        if (!json_is_array(json_array_get(more, i)))
            add_ids(ids, n, json_array_get(more, i));
    const json_int_t id = json_is_integer(more) ? json_integer_value(more) : -1;
    for (int32_t i = 0; i < *n; i++)
        if (ids[i] == id)
            return;
    if (id >= 0 && id <= INT32_MAX && *n < ATTN_MAX_STOP_IDS)
        ids[(*n)++] = (int32_t)id;
}

/* What one file says about the tokens of a generation. Marian's bad_words_ids are lists of one id, the padding; longer ones,
 * which forbid the last id behind the others, are not looked at. */
static void read_generation(attn_description *d, const json_t *file)
{
    const json_t *words = json_object_get(file, "bad_words_ids"), *forced = json_object_get(file, "forced_bos_token_id");
    add_ids(d->stop_ids, &d->n_stop_ids, json_object_get(file, "eos_token_id"));
    add_ids(d->never_ids, &d->n_never_ids, json_object_get(file, "suppress_tokens"));
    for (size_t i = 0; i < json_array_size(words); i++)
        if (json_array_size(json_array_get(words, i)) == 1)
            add_ids(d->never_ids, &d->n_never_ids, json_array_get(words, i));
    if (json_is_integer(forced) && json_integer_value(forced) >= 0 && json_integer_value(forced) <= INT32_MAX)
        d->forced_bos_id = (int32_t)json_integer_value(forced);
}

void attn_config_ids(attn_config *c, attn_description *d)
{
    d->bos_id = (int32_t)attn_config_int(c, "bos_token_id", -1, INT32_MAX, -1);
    d->pad_id = (int32_t)attn_config_int(c, "pad_token_id", -1, INT32_MAX, -1);
    d->decoder_start_id = (int32_t)attn_config_int(c, "decoder_start_token_id", -1, INT32_MAX, -1);
    read_generation(d, c->json);
    json_t *generation = attn_source_side_file(c->source, "generation_config.json"); /* chat models end their turns by its ids */
    read_generation(d, generation);
    json_decref(generation);
    if (!c->json) { /* GGUF keeps them with the tokenizer */
        attn_config tokenizer = *c;
        tokenizer.gguf_prefix = "tokenizer.ggml";
        d->bos_id = (int32_t)attn_config_int(&tokenizer, "@bos_token_id", -1, INT32_MAX, -1);
        d->pad_id = (int32_t)attn_config_int(&tokenizer, "@padding_token_id", -1, INT32_MAX, -1);
        int64_t id = attn_config_int(&tokenizer, "@eos_token_id", -1, INT32_MAX, -1);
        if (id >= 0)
            d->stop_ids[d->n_stop_ids++] = (int32_t)id;
        id = attn_config_int(&tokenizer, "@eot_token_id", -1, INT32_MAX, -1);
        if (id >= 0)
            d->stop_ids[d->n_stop_ids++] = (int32_t)id;
        if (c->status == ATTN_OK)
            c->status = tokenizer.status;
    }
}

void attn_config_decoder_sizes(attn_config *c, attn_description *d)
{
    d->kind = ATTN_MODEL_DECODER;
    d->has_logits = true;
    d->n_layers = attn_config_need(c, "num_hidden_layers|n_layer|num_layers|@block_count", 1, 4096);
    d->d_model = attn_config_need(c, "hidden_size|n_embd|d_model|@embedding_length", 1, 1 << 20);
    if (!d->n_heads || attn_config_has(c, "num_attention_heads"))
        d->n_heads = attn_config_need(c, "num_attention_heads|n_head|num_heads|@attention.head_count", 1, 1 << 16);
    d->n_kv_heads = attn_config_int(c, "num_key_value_heads|@attention.head_count_kv", 1, 1 << 16,
                                    d->n_kv_heads ? d->n_kv_heads : d->n_heads);
    d->head_dim = attn_config_int(c, "head_dim|@attention.key_length", 1, 1 << 16,
                                  d->head_dim && c->json ? d->head_dim : d->d_model / d->n_heads);
    d->d_ff = attn_config_int(c, "intermediate_size|n_inner|ffn_dim|@feed_forward_length", 1, 1 << 24, 4 * d->d_model);
    d->context_length =
        attn_config_int(c, "max_position_embeddings|n_positions|n_ctx|@context_length", 1, INT32_MAX, 2048);
    d->vocab_size = attn_config_int(c, "vocab_size|@vocab_size", 1, 1 << 28, 0); /* 0: the embedding's rows */
    if (c->status == ATTN_OK && (d->head_dim < 1 || d->n_heads % d->n_kv_heads))
        attn_config_fail(c, ATTN_ERR_FORMAT, "%lld heads do not go with %lld key/value heads of %lld",
                         (long long)d->n_heads, (long long)d->n_kv_heads, (long long)d->head_dim);
    attn_config_ids(c, d);
}
