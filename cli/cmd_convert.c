/* cmd_convert.c - `attn convert`: any model as a folder that Hugging Face Transformers loads. */
#include "model_use.h"

#include <getopt.h>

typedef struct convert_options {
    const char *model;
    int32_t dtype;
    bool json;
} convert_options;

static const char *dtype_name(int32_t dtype)
{
    return dtype == ATTN_BF16 ? "bf16" : dtype == ATTN_F16 ? "f16" : "f32";
}

static bool parse_dtype(const char *text, int32_t *dtype)
{
    for (*dtype = ATTN_F32; *dtype <= ATTN_F16; ++*dtype)
        if (*dtype != ATTN_F64 && strcmp(text, dtype_name(*dtype)) == 0)
            return true;
    cli_error("convert", "--dtype is '%s'; it must be f32, bf16 or f16", text);
    return false;
}

static int parse(int argc, char **argv, convert_options *o)
{
    enum { OPT_MODEL = 256, OPT_DTYPE, OPT_JSON };
    static const struct option options[] = {{"model", required_argument, NULL, OPT_MODEL},
                                            {"dtype", required_argument, NULL, OPT_DTYPE},
                                            {"json", no_argument, NULL, OPT_JSON},
                                            {NULL, 0, NULL, 0}};
    int option;
    memset(o, 0, sizeof *o);
    opterr = 0;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == '?')
            return cli_bad_option("convert", argv);
        if (option == OPT_MODEL)
            o->model = optarg;
        if (option == OPT_DTYPE && !parse_dtype(optarg, &o->dtype))
            return CLI_USAGE;
        o->json = o->json || option == OPT_JSON;
    }
    if (!o->model && argc - optind == 2)
        o->model = argv[optind++];
    if (!o->model || argc - optind != 1) {
        cli_error("convert", "give a model and a folder");
        cli_hint("for example: attn convert --dtype bf16 model.gguf converted");
        return CLI_USAGE;
    }
    return CLI_OK;
}

static json_t *converted_json(const char *model, const char *folder, const convert_options *o,
                              const attn_model_converted *done)
{
    return json_pack(
        "{s:o, s:o, s:s, s:I, s:I, s:I, s:b, s:b, s:s}", "model",
        cli_text_json(model, strlen(model)), "folder", cli_text_json(folder, strlen(folder)),
        "dtype", dtype_name(o->dtype), "tensors", (json_int_t)done->n_tensors, "elements",
        (json_int_t)done->n_elements, "overflows", (json_int_t)done->n_overflows, "has_config",
        done->has_config, "has_tokenizer", done->has_tokenizer, "note", done->note);
}

static void show(const char *folder, const convert_options *o, const attn_model_converted *done)
{
    char elements[32];
    cli_count_text(done->n_elements, elements);
    printf("%s: %lld tensors, %s numbers as %s%s%s\n", folder, (long long)done->n_tensors, elements,
           dtype_name(o->dtype), done->has_config ? ", config.json" : "",
           done->has_tokenizer ? ", tokenizer.json" : "");
    if (done->note[0])
        cli_error("convert", "%s", done->note);
    if (done->n_overflows)
        cli_error("convert",
                  "%llu numbers are too large for %s and became infinite; bf16 has f32's range",
                  (unsigned long long)done->n_overflows, dtype_name(o->dtype));
}

static int convert(int argc, char **argv)
{
    convert_options o;
    cli_progress progress;
    char path[4096];
    attn_model_converted done;
    attn_status status;
    int code = parse(argc, argv, &o);
    if (code == CLI_OK)
        code = cli_model_find("convert", o.model, CLI_DEFAULT_MODEL, path, sizeof path);
    if (code != CLI_OK)
        return code;
    progress = cli_progress_start("converting", NULL);
    cli_stop_in_order();
    ATTN_ARGS_INIT(&done);
    status = attn_model_convert(path, argv[optind], o.dtype, cli_progress_step, &progress, &done);
    cli_progress_end(&progress);
    if (status != ATTN_OK)
        return cli_model_failed("convert", "", status);
    if (o.json)
        return cli_print_json(converted_json(path, argv[optind], &o, &done), 17);
    show(argv[optind], &o, &done);
    return CLI_OK;
}

const cli_command cli_convert = {
    "convert",
    "a model as safetensors, for Hugging Face Transformers",
    "attn convert - a model as safetensors, for Hugging Face Transformers\n"
    "\n"
    "usage: attn convert [OPTIONS] MODEL FOLDER\n"
    "\n"
    "MODEL is a GGUF or safetensors file, a model folder, or a name in the cache folder. FOLDER "
    "is\n"
    "made where it is missing; it receives model.safetensors, config.json and the tokenizer's "
    "files.\n"
    "Block-quantised weights are written as the numbers that they stand for.\n"
    "\n"
    "options:\n"
    "  --dtype TYPE     f32 (default), bf16 or f16; rounded to nearest, ties to even\n"
    "  --json           what was written, for programs\n"
    "\n"
    "example:\n"
    "  attn convert --dtype bf16 SmolLM2-135M-Instruct.Q4_1.gguf smollm2\n",
    convert,
};
