/* cmd_info.c - `attn info`: what a model file holds, and what it needs. */
#include "model_use.h"

#include <getopt.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct info_options {
    const char *model;
    int64_t context; /* tokens; 0: the model's */
    int32_t kv_type;
    bool json, tensors;
} info_options;

static int64_t decoder_cache_bytes(const attn_model_info *i, int64_t tokens, int32_t kv_type)
{
    int64_t numbers = i->cache_bytes_per_token / 4; /* keys and values of a token, all layers */
    switch (kv_type) {
    case ATTN_F32:
        return tokens * numbers * 4;
    case ATTN_I8: /* and one f32 scale for each key and each value of a head */
        return tokens * (numbers + i->n_layers * i->n_kv_heads * 2 * 4);
    default:
        return tokens * numbers * 2;
    }
}

/* At so many tokens; of an encoder-decoder on either side: those of the encoder's output are kept as f32. */
static int64_t cache_bytes(const attn_model_info *i, int64_t tokens, int32_t kv_type)
{
    if (i->kind == ATTN_MODEL_ENCODER)
        return 0;
    return decoder_cache_bytes(i, tokens, kv_type) +
           (i->kind == ATTN_MODEL_ENCODER_DECODER ? decoder_cache_bytes(i, tokens, ATTN_F32) : 0);
}

static const char *kind_name(int32_t kind)
{
    static const char *const names[] = {"decoder", "encoder", "encoder-decoder"};
    return kind >= 0 && kind < 3 ? names[kind] : "unknown";
}

static void shape_text(const attn_tensor_info *t, char out[96])
{
    int at = 0;
    for (int d = 0; d < t->n_dims && d < 4; d++)
        at += snprintf(out + at, 96 - (size_t)at, "%s%lld", d ? " x " : "", (long long)t->shape[d]);
    if (t->n_dims == 0)
        snprintf(out, 96, "1");
}

/* ---- For people ------------------------------------------------------------------------------ */

static void line(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void line(const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("  %-12s ", name);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

static void show_info(const cli_term *term, const cli_model *m, const info_options *o)
{
    const attn_model_info *i = &m->info;
    char a[32], b[32], c[32];
    int64_t context = o->context ? o->context : i->context_length;
    cli_title(term, "%s", m->path);
    line("model", "%s (%s, %s, %s)", i->name, i->family, kind_name(i->kind), i->file_format);
    cli_count_text(i->n_parameters, a);
    cli_grouped_text(i->n_parameters, b);
    line("parameters", "%s (%s)", a, b);
    if (i->n_encoder_layers > 0 && i->kind == ATTN_MODEL_ENCODER_DECODER)
        line("layers", "%lld encoder, %lld decoder", (long long)i->n_encoder_layers,
             (long long)i->n_layers);
    else
        line("layers", "%lld", (long long)i->n_layers);
    line("heads", "%lld of size %lld; %lld for keys and values", (long long)i->n_heads,
         (long long)i->head_dim, (long long)i->n_kv_heads);
    line("width", "%lld; feed-forward %lld", (long long)i->d_model, (long long)i->d_ff);
    cli_grouped_text(i->vocab_size, a);
    cli_grouped_text(i->context_length, b);
    line("vocabulary", "%s", a);
    line("context", "%s tokens", b);
    if (i->window > 0)
        line("window", "%lld tokens", (long long)i->window);
    if (i->rope_base > 0)
        line("positions", "rotary, base %g", i->rope_base);
    line("weights", "%s", i->weights);
    cli_bytes_text(i->weight_bytes, a);
    if (i->kind != ATTN_MODEL_ENCODER) {
        int64_t cache = cache_bytes(i, context, o->kv_type);
        cli_bytes_text(cache, b);
        cli_bytes_text(cache + i->weight_bytes, c);
        line("memory", "%s: weights %s, cache of keys and values %s at %lld tokens%s", c, a, b, (long long)context,
             i->kind == ATTN_MODEL_ENCODER_DECODER ? " in and out" : "");
    } else {
        line("memory", "weights %s", a);
    }
}

static int show_tensors(const cli_term *term, const attn_tensor_file *file)
{
    int64_t count = attn_tensor_file_count(file);
    cli_title(term, "%lld tensors", (long long)count);
    for (int64_t t = 0; t < count; t++) {
        attn_tensor_info info;
        char shape[96], bytes[32];
        attn_status status = attn_tensor_file_get(file, t, &info);
        if (status != ATTN_OK)
            return cli_model_failed("info", "tensor", status);
        shape_text(&info, shape);
        cli_bytes_text(info.n_bytes, bytes);
        printf("  %-6s %16s  %9s  ", info.dtype, shape, bytes);
        cli_print_safe(info.name, strlen(info.name));
        putchar('\n');
    }
    return CLI_OK;
}

/* ---- For programs ---------------------------------------------------------------------------- */

static json_t *tensors_json(const attn_tensor_file *file)
{
    json_t *list = json_array();
    for (int64_t t = 0; t < attn_tensor_file_count(file); t++) {
        attn_tensor_info info;
        json_t *shape = json_array();
        if (attn_tensor_file_get(file, t, &info) != ATTN_OK) {
            json_decref(shape);
            break;
        }
        for (int d = 0; d < info.n_dims; d++)
            json_array_append_new(shape, json_integer(info.shape[d]));
        json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:I}", "name", info.name, "dtype",
                                              info.dtype, "shape", shape, "bytes",
                                              (json_int_t)info.n_bytes));
    }
    return list;
}

static json_t *info_json(const cli_model *m, const attn_tensor_file *file, const info_options *o)
{
    const attn_model_info *i = &m->info;
    int64_t context = o->context ? o->context : i->context_length;
    json_t *root = json_object();
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"parameters", i->n_parameters},
        {"layers", i->n_layers},
        {"encoder_layers", i->n_encoder_layers},
        {"d_model", i->d_model},
        {"d_ff", i->d_ff},
        {"heads", i->n_heads},
        {"kv_heads", i->n_kv_heads},
        {"head_dim", i->head_dim},
        {"value_dim", i->value_dim},
        {"vocab_size", i->vocab_size},
        {"context_length", i->context_length},
        {"window", i->window},
        {"weight_bytes", i->weight_bytes},
        {"context", context},
        {"cache_bytes", cache_bytes(i, context, o->kv_type)},
    };
    json_object_set_new(root, "path", cli_text_json(m->path, strlen(m->path)));
    json_object_set_new(root, "name", json_string(i->name));
    json_object_set_new(root, "family", json_string(i->family));
    json_object_set_new(root, "kind", json_string(kind_name(i->kind)));
    json_object_set_new(root, "file_format", json_string(i->file_format));
    json_object_set_new(root, "weights", json_string(i->weights));
    json_object_set_new(root, "rope_base", json_real(i->rope_base));
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        json_object_set_new(root, numbers[n].name, json_integer(numbers[n].value));
    if (file)
        json_object_set_new(root, "tensors", tensors_json(file));
    return root;
}

/* ---- The command ----------------------------------------------------------------------------- */

static int parse(int argc, char **argv, info_options *o)
{
    enum { OPT_MODEL = 256, OPT_TENSORS, OPT_CTX, OPT_KV, OPT_JSON };
    static const struct option options[] = {
        {"model", required_argument, NULL, OPT_MODEL}, {"tensors", no_argument, NULL, OPT_TENSORS},
        {"ctx", required_argument, NULL, OPT_CTX},     {"kv-type", required_argument, NULL, OPT_KV},
        {"json", no_argument, NULL, OPT_JSON},         {NULL, 0, NULL, 0}};
    int option;
    bool good = true;
    memset(o, 0, sizeof *o);
    opterr = 0;
    while (good && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == OPT_MODEL)
            o->model = optarg;
        else if (option == OPT_TENSORS)
            o->tensors = true;
        else if (option == OPT_CTX)
            good = cli_parse_int("info", "--ctx", optarg, 1, 1000000000, &o->context);
        else if (option == OPT_KV)
            good = cli_parse_kv_type("info", optarg, &o->kv_type);
        else if (option == OPT_JSON)
            o->json = true;
        else
            return cli_bad_option("info", argv);
    }
    if (good && optind < argc && !o->model)
        o->model = argv[optind++];
    if (good && optind < argc) {
        cli_error("info", "one model at a time; '%s' is one too many", argv[optind]);
        return CLI_USAGE;
    }
    return good ? CLI_OK : CLI_USAGE;
}

/* Is there path[0 .. n) followed by tail? */
static bool exists(const char *path, size_t n, const char *tail)
{
    char name[4096 + 16];
    const int written = snprintf(name, sizeof name, "%.*s%s", (int)n, path, tail);
    return written > 0 && (size_t)written < sizeof name && access(name, R_OK) == 0;
}

/* Safetensors with no configuration beside them. */
static bool is_tensors_alone(const char *path)
{
    const size_t n = strlen(path), end = strlen(".safetensors");
    const char *slash = strrchr(path, '/');
    if (exists(path, n, "/.")) /* a folder */
        return !exists(path, n, "/config.json");
    const bool single = n > end && strcmp(path + n - end, ".safetensors") == 0;
    if (!single && (n < 5 || strcmp(path + n - 5, ".json") != 0))
        return false;
    return !(single && exists(path, n - end, ".config.json")) &&
           !exists(path, slash ? (size_t)(slash - path) + 1 : 0, "config.json");
}

/* A file of tensors without a configuration is no model, but what it holds can be said. */
static int tensors_alone(const char *path, const info_options *o)
{
    attn_tensor_file *file;
    cli_term term = cli_term_of(stdout);
    attn_status status = attn_tensor_file_open(path, &file);
    if (status != ATTN_OK)
        return cli_model_failed("info", "", status);
    int code;
    if (o->json) {
        const char *key, *text;
        json_t *metadata = json_object();
        for (int64_t i = 0; (text = attn_tensor_file_metadata(file, i, &key)); i++)
            json_object_set_new(metadata, key, json_string(text));
        code = cli_print_json(json_pack("{s:o, s:o, s:o}", "path", cli_text_json(path, strlen(path)), "metadata", metadata,
                                        "tensors", tensors_json(file)), 17);
    } else {
        code = show_tensors(&term, file);
    }
    attn_tensor_file_close(file);
    return code;
}

static int show_model(const cli_model *m, const info_options *o)
{
    cli_term term = cli_term_of(stdout);
    attn_tensor_file *file = NULL;
    attn_status status = o->tensors ? attn_tensor_file_open(m->path, &file) : ATTN_OK;
    int code = CLI_OK;
    if (status != ATTN_OK)
        return cli_model_failed("info", "", status);
    if (o->json) {
        code = cli_print_json(info_json(m, file, o), 17);
    } else {
        show_info(&term, m, o);
        if (file)
            putchar('\n');
        if (file)
            code = show_tensors(&term, file);
    }
    attn_tensor_file_close(file);
    return code;
}

static int info(int argc, char **argv)
{
    info_options o;
    cli_model m;
    int code = parse(argc, argv, &o);
    if (code == CLI_OK)
        code = cli_model_find("info", o.model, CLI_DEFAULT_MODEL, m.path, sizeof m.path);
    if (code != CLI_OK)
        return code;
    if (is_tensors_alone(m.path))
        return tensors_alone(m.path, &o);
    code = cli_model_load("info", o.model, CLI_DEFAULT_MODEL, 0, ATTN_WEIGHTS_AS_STORED, &m);
    if (code != CLI_OK && o.tensors) /* a model that cannot be run still has them */
        tensors_alone(m.path, &o);
    if (code != CLI_OK)
        return code;
    code = show_model(&m, &o);
    cli_model_close(&m);
    return code;
}

const cli_command cli_info = {
    "info",
    "what a model file holds, and the memory that it needs",
    "attn info - what a model file holds, and the memory that it needs\n"
    "\n"
    "usage: attn info [OPTIONS] [MODEL]\n"
    "\n"
    "MODEL is a GGUF or safetensors file (or the index of shards), a model folder, or a name in the cache\n"
    "folder; without it the default model of attn run. Of safetensors without a config.json the tensors\n"
    "are listed.\n"
    "\n"
    "options:\n"
    "  --tensors        every tensor: type, shape, bytes, name\n"
    "  --ctx N          memory for N tokens (default: the model's context)\n"
    "  --kv-type TYPE   type of the cache: f32 (default), bf16, f16, int8\n"
    "  --json           the same for programs\n"
    "\n"
    "example:\n"
    "  attn info --ctx 4096 --kv-type bf16\n",
    info,
};
