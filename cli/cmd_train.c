/* cmd_train.c - `attn train`: options, presets, a fresh run or the rest of an old one. */
#include "model_use.h"
#include "train_cli.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Options ---- */

enum {
    OPT_ARCH = 256, OPT_PRESET, OPT_LAYERS, OPT_HEADS, OPT_KV_HEADS, OPT_WIDTH, OPT_FF, OPT_CONTEXT, OPT_VOCAB, OPT_CHARS,
    OPT_PRE_NORM, OPT_BATCH, OPT_ACCUMULATE, OPT_STEPS, OPT_LR, OPT_MIN_LR, OPT_WARMUP, OPT_SQRT, OPT_DECAY, OPT_BETA1,
    OPT_BETA2, OPT_CLIP, OPT_DROPOUT, OPT_SEED, OPT_DTYPE, OPT_RECOMPUTE, OPT_THREADS, OPT_VAL, OPT_VAL_SHARE,
    OPT_EVAL_EVERY, OPT_EVAL_BATCHES, OPT_SAVE_EVERY, OPT_SAMPLE_EVERY, OPT_PROMPT, OPT_EXPORT, OPT_DRY_RUN, OPT_RESUME,
    OPT_TASK, OPT_FROM, OPT_REPEAT
};

static const struct option long_options[] = {
    {"arch", 1, NULL, OPT_ARCH},           {"preset", 1, NULL, OPT_PRESET},
    {"layers", 1, NULL, OPT_LAYERS},       {"heads", 1, NULL, OPT_HEADS},
    {"kv-heads", 1, NULL, OPT_KV_HEADS},   {"width", 1, NULL, OPT_WIDTH},
    {"ff", 1, NULL, OPT_FF},               {"context", 1, NULL, OPT_CONTEXT},
    {"vocab", 1, NULL, OPT_VOCAB},         {"chars", 0, NULL, OPT_CHARS},
    {"pre-norm", 0, NULL, OPT_PRE_NORM},   {"batch", 1, NULL, OPT_BATCH},
    {"accumulate", 1, NULL, OPT_ACCUMULATE}, {"steps", 1, NULL, OPT_STEPS},
    {"lr", 1, NULL, OPT_LR},               {"min-lr", 1, NULL, OPT_MIN_LR},
    {"warmup", 1, NULL, OPT_WARMUP},       {"inverse-sqrt", 0, NULL, OPT_SQRT},
    {"decay", 1, NULL, OPT_DECAY},         {"beta1", 1, NULL, OPT_BETA1},
    {"beta2", 1, NULL, OPT_BETA2},         {"clip", 1, NULL, OPT_CLIP},
    {"dropout", 1, NULL, OPT_DROPOUT},     {"seed", 1, NULL, OPT_SEED},
    {"dtype", 1, NULL, OPT_DTYPE},         {"recompute", 0, NULL, OPT_RECOMPUTE},
    {"threads", 1, NULL, OPT_THREADS},     {"val", 1, NULL, OPT_VAL},
    {"val-share", 1, NULL, OPT_VAL_SHARE}, {"eval-every", 1, NULL, OPT_EVAL_EVERY},
    {"eval-batches", 1, NULL, OPT_EVAL_BATCHES}, {"save-every", 1, NULL, OPT_SAVE_EVERY},
    {"sample-every", 1, NULL, OPT_SAMPLE_EVERY}, {"prompt", 1, NULL, OPT_PROMPT},
    {"export", 1, NULL, OPT_EXPORT},       {"dry-run", 0, NULL, OPT_DRY_RUN},
    {"resume", 0, NULL, OPT_RESUME},       {"task", 1, NULL, OPT_TASK},
    {"from", 1, NULL, OPT_FROM},           {"repeat", 1, NULL, OPT_REPEAT},
    {NULL, 0, NULL, 0}};

static const struct whole_option {
    int code;
    const char *name;
    size_t at;
    int64_t low, high;
} whole_options[] = {
    {OPT_LAYERS, "--layers", offsetof(train_settings, model.n_layers), 1, 1024},
    {OPT_HEADS, "--heads", offsetof(train_settings, model.n_heads), 1, 1024},
    {OPT_KV_HEADS, "--kv-heads", offsetof(train_settings, model.n_kv_heads), 1, 1024},
    {OPT_WIDTH, "--width", offsetof(train_settings, model.d_model), 1, 65536},
    {OPT_FF, "--ff", offsetof(train_settings, model.d_ff), 1, 1 << 20},
    {OPT_CONTEXT, "--context", offsetof(train_settings, model.context), 1, 1 << 24},
    {OPT_VOCAB, "--vocab", offsetof(train_settings, vocab_size), 260, 1 << 24},
    {OPT_BATCH, "--batch", offsetof(train_settings, batch), 1, 1 << 16},
    {OPT_ACCUMULATE, "--accumulate", offsetof(train_settings, accumulate), 1, 1 << 16},
    {OPT_STEPS, "--steps", offsetof(train_settings, schedule.steps), 1, INT64_C(1) << 40},
    {OPT_WARMUP, "--warmup", offsetof(train_settings, schedule.warmup), 0, INT64_C(1) << 40},
    {OPT_EVAL_EVERY, "--eval-every", offsetof(train_settings, eval_every), 0, INT64_C(1) << 40},
    {OPT_EVAL_BATCHES, "--eval-batches", offsetof(train_settings, eval_batches), 1, INT64_C(1) << 40},
    {OPT_SAVE_EVERY, "--save-every", offsetof(train_settings, save_every), 0, INT64_C(1) << 40},
    {OPT_SAMPLE_EVERY, "--sample-every", offsetof(train_settings, sample_every), 0, INT64_C(1) << 40}};

static const struct real_option {
    int code;
    const char *name;
    size_t at;
    double low, high;
} real_options[] = {{OPT_LR, "--lr", offsetof(train_settings, schedule.peak), 0, 1e6},
                    {OPT_MIN_LR, "--min-lr", offsetof(train_settings, schedule.last), 0, 1e6},
                    {OPT_DECAY, "--decay", offsetof(train_settings, model.weight_decay), 0, 1000},
                    {OPT_BETA1, "--beta1", offsetof(train_settings, model.beta1), 1e-9, 0.999999},
                    {OPT_BETA2, "--beta2", offsetof(train_settings, model.beta2), 1e-9, 0.999999},
                    {OPT_CLIP, "--clip", offsetof(train_settings, model.clip), 0, 1e30},
                    {OPT_DROPOUT, "--dropout", offsetof(train_settings, model.dropout), 0, 0.9},
                    {OPT_VAL_SHARE, "--val-share", offsetof(train_settings, validation_share), 0, 0.5},
                    {OPT_REPEAT, "--repeat", offsetof(train_settings, repeat), 0, 1}};

/* ---- Presets ---- */

static const struct preset {
    const char *name;
    int64_t layers, heads, width, context, vocab, batch, accumulate, steps;
    double rate, dropout;
} presets[] = {{"nano", 4, 4, 128, 64, 1024, 12, 1, 2000, 1e-3, 0},
               {"small", 6, 6, 384, 256, 4096, 12, 1, 5000, 1e-3, 0.1},
               {"base", 12, 12, 768, 1024, 16384, 4, 8, 20000, 6e-4, 0}};

static bool apply_preset(train_settings *s, const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        const struct preset *p = &presets[i];
        if (strcmp(p->name, name) != 0)
            continue;
        s->model.n_layers = p->layers;
        s->model.n_heads = p->heads;
        s->model.d_model = p->width;
        s->model.context = p->context;
        s->model.dropout = p->dropout;
        s->vocab_size = p->vocab;
        s->batch = p->batch;
        s->accumulate = p->accumulate;
        s->schedule.steps = p->steps;
        s->schedule.peak = p->rate;
        return true;
    }
    cli_error("train", "--preset is '%s'; there are nano, small and base", name);
    return false;
}

static int index_of(const char *option, const char *text, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    char list[64] = "";
    for (int i = 0; names[i]; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", names[i]);
    cli_error("train", "%s is '%s'; it must be one of %s", option, text, list);
    return -1;
}

/* ---- Reading the command line ---- */

static bool add_path(const char **list, int64_t *n, const char *path)
{
    if (*n == TRAIN_MOST_TEXTS) {
        cli_error("train", "more than %d texts", TRAIN_MOST_TEXTS);
        return false;
    }
    list[(*n)++] = path;
    return true;
}

static bool take_word(train_settings *s, int code)
{
    static const char *const archs[] = {"gpt2", "llama", "bert", "encdec", NULL};
    static const char *const types[] = {"f32", "bf16", NULL}, *const files[] = {"f32", "bf16", "f16", NULL};
    static const int32_t dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_F16};
    int64_t number = 0;
    int found;
    switch (code) {
    case OPT_ARCH:
        return (s->model.arch = index_of("--arch", optarg, archs)) >= 0;
    case OPT_DTYPE:
        found = index_of("--dtype", optarg, types);
        s->model.dtype = found >= 0 ? dtypes[found] : 0;
        return found >= 0;
    case OPT_EXPORT:
        found = index_of("--export", optarg, files);
        s->export_dtype = found >= 0 ? dtypes[found] : 0;
        return found >= 0;
    case OPT_PRESET:
    case OPT_TASK:
    case OPT_FROM:
        return true; /* taken before all others */
    case OPT_VAL:
        return add_path(s->validation, &s->n_validation, optarg);
    case OPT_SEED:
        if (!cli_parse_int("train", "--seed", optarg, 0, INT64_MAX, &number))
            return false;
        s->model.seed = s->order_seed = (uint64_t)number;
        return true;
    case OPT_THREADS:
        if (!cli_parse_int("train", "--threads", optarg, 1, 1024, &number))
            return false;
        s->model.n_threads = (int32_t)number;
        return true;
    default:
        break;
    }
    s->chars |= code == OPT_CHARS;
    s->dry_run |= code == OPT_DRY_RUN;
    s->resume |= code == OPT_RESUME;
    s->schedule.inverse_square_root |= code == OPT_SQRT;
    s->model.flags |= code == OPT_PRE_NORM ? ATTN_TRAIN_PRE_NORM : code == OPT_RECOMPUTE ? ATTN_TRAIN_RECOMPUTE : 0u;
    s->prompt = code == OPT_PROMPT ? optarg : s->prompt;
    s->folder = code == 'o' ? optarg : s->folder;
    return true;
}

static bool take_option(train_settings *s, int code)
{
    s->steps_given |= code == OPT_STEPS;
    s->vocab_given |= code == OPT_VOCAB;
    static const int sizes[] = {OPT_ARCH, OPT_PRESET, OPT_LAYERS, OPT_HEADS, OPT_KV_HEADS, OPT_WIDTH, OPT_FF, OPT_VOCAB,
                                OPT_CHARS, OPT_PRE_NORM, OPT_TASK};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        s->given[i] |= code == sizes[i];
    if (code != OPT_STEPS && code != OPT_THREADS && code != OPT_RESUME && code != OPT_DRY_RUN && code != 'o')
        for (const struct option *o = long_options; o->name; o++)
            s->kept_option = o->val == code ? o->name : s->kept_option;
    for (size_t i = 0; i < sizeof whole_options / sizeof *whole_options; i++)
        if (whole_options[i].code == code)
            return cli_parse_int("train", whole_options[i].name, optarg, whole_options[i].low, whole_options[i].high,
                                 (int64_t *)(void *)((char *)s + whole_options[i].at));
    for (size_t i = 0; i < sizeof real_options / sizeof *real_options; i++)
        if (real_options[i].code == code)
            return cli_parse_real("train", real_options[i].name, optarg, real_options[i].low, real_options[i].high,
                                  (double *)(void *)((char *)s + real_options[i].at));
    return take_word(s, code);
}

static void set_defaults(train_settings *s)
{
    memset(s, 0, sizeof *s);
    ATTN_ARGS_INIT(&s->model);
    apply_preset(s, "nano");
    s->model.weight_decay = 0.1;
    s->model.clip = 1;
    s->model.beta1 = 0.9;
    s->model.beta2 = 0.99;
    s->model.seed = s->order_seed = 1337;
    s->model.pad_id = s->model.bos_id = s->model.eos_id = s->model.mask_id = -1;
    s->schedule.last = -1;
    s->schedule.warmup = -1;
    s->eval_every = s->save_every = s->sample_every = -1;
    s->eval_batches = 20;
    s->validation_share = 0.1;
}

/* What follows from the rest. */
static void finish_settings(train_settings *s)
{
    const int64_t steps = s->schedule.steps;
    s->schedule.last = s->schedule.last < 0 ? s->schedule.peak / 10 : s->schedule.last;
    s->schedule.warmup = s->schedule.warmup < 0 ? (steps / 20 < 100 ? steps / 20 : 100) : s->schedule.warmup;
    s->eval_every = s->eval_every < 0 ? (steps / 20 > 1 ? steps / 20 : 1) : s->eval_every;
    s->save_every = s->save_every < 0 ? s->eval_every : s->save_every;
    s->sample_every = s->sample_every < 0 ? (steps / 5 > 1 ? steps / 5 : 1) : s->sample_every;
    s->length = s->model.context;
}

/* The checkpoint has all the rest, and would win silently. */
static bool resume_is_bare(const train_settings *s)
{
    if (!s->resume || (!s->kept_option && s->n_texts == 0 && !s->dry_run))
        return true;
    if (s->kept_option)
        cli_error("train", "--%s is kept as it was by --resume; only --steps and --threads may change", s->kept_option);
    else if (s->n_texts > 0)
        cli_error("train", "%s: --resume goes on with the texts of the run; name none", s->texts[0]);
    else
        cli_error("train", "--dry-run and --resume exclude each other");
    return false;
}

/* The checkpoint keeps them as JSON. */
static bool names_are_utf8(const train_settings *s)
{
    const char *bad = NULL;
    for (int64_t i = 0; i < s->n_texts + s->n_validation + 1; i++) {
        const char *text = i < s->n_texts                     ? s->texts[i]
                           : i < s->n_texts + s->n_validation ? s->validation[i - s->n_texts]
                                                              : s->prompt;
        json_t *kept = text ? json_string(text) : NULL;
        bad = text && !kept ? text : bad;
        json_decref(kept);
    }
    if (bad)
        cli_error("train", "%s is not UTF-8", bad == s->prompt ? "--prompt" : "the name of a text");
    return !bad;
}

/* The value of "--name value" or "--name=value" at argv[i]; NULL: it is another word. */
static const char *value_of(int argc, char **argv, int i, const char *name)
{
    const size_t n = strlen(name);
    if (strncmp(argv[i], name, n) != 0)
        return NULL;
    return argv[i][n] == '=' ? argv[i] + n + 1 : !argv[i][n] && i + 1 < argc ? argv[i + 1] : NULL;
}

/* --preset and --task set many defaults at once, wherever they stand. */
static bool take_presets(train_settings *s, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *preset = value_of(argc, argv, i, "--preset"), *task = value_of(argc, argv, i, "--task");
        const char *from = value_of(argc, argv, i, "--from");
        if (from) { /* fine-tuning: few steps at a small rate */
            s->from = from;
            s->model.context = 128;
            s->batch = 4;
            s->schedule.steps = 200;
            s->schedule.peak = 3e-5;
        }
        if (preset && !apply_preset(s, preset))
            return false;
        if (task && strcmp(task, "numbers") != 0) {
            cli_error("train", "--task is '%s'; there is numbers", task);
            return false;
        }
        if (task) {
            s->task = true;
            train_task_settings(s);
        }
    }
    return true;
}

/* --task brings texts, architecture and norms of its own. */
static bool task_is_alone(const train_settings *s)
{
    const char *other = s->n_texts                                   ? s->texts[0]
                        : s->n_validation                            ? "--val"
                        : s->dry_run                                 ? "--dry-run"
                        : s->resume                                  ? "--resume"
                        : s->model.arch != ATTN_TRAIN_ENCDEC         ? "--arch"
                        : s->model.flags & ATTN_TRAIN_PRE_NORM       ? "--pre-norm"
                                                                     : NULL;
    if (!s->task || !other)
        return true;
    cli_error("train", "%s and --task exclude each other", other);
    return false;
}

/* An encoder sees what follows: it has nothing to copy from behind. */
static bool repeats_suit(const train_settings *s)
{
    if (s->repeat == 0 || s->model.arch == ATTN_TRAIN_GPT2 || s->model.arch == ATTN_TRAIN_LLAMA)
        return true;
    cli_error("train", "--repeat is for gpt2 and llama, which read from the left; --arch is %s",
              s->model.arch == ATTN_TRAIN_BERT ? "bert" : "encdec");
    return false;
}

/* --from brings architecture, sizes and vocabulary. */
static bool sizes_are_the_models(const train_settings *s)
{
    static const char *const own[] = {"arch", "preset", "layers", "heads", "kv-heads", "width", "ff", "vocab", "chars",
                                      "pre-norm", "task"};
    for (size_t i = 0; s->from && i < sizeof own / sizeof *own; i++)
        if (s->given[i]) {
            cli_error("train", "--%s and --from exclude each other: the model brings its own", own[i]);
            return false;
        }
    if (!s->from || (!s->dry_run && !s->resume))
        return true;
    cli_error("train", "--%s and --from exclude each other", s->dry_run ? "dry-run" : "resume");
    return false;
}

static bool read_settings(train_settings *s, int argc, char **argv)
{
    int code;
    set_defaults(s);
    if (!take_presets(s, argc, argv))
        return false;
    opterr = 0;
    optind = 1;
    while ((code = getopt_long(argc, argv, "o:", long_options, NULL)) != -1)
        if (code == '?') {
            cli_bad_option("train", argv);
            return false;
        } else if (!take_option(s, code)) {
            return false;
        }
    for (int i = optind; i < argc; i++)
        if (!add_path(s->texts, &s->n_texts, argv[i]))
            return false;
    finish_settings(s);
    if (!s->folder && !s->dry_run) {
        cli_error("train", "where to? -o DIR is missing");
        return false;
    }
    if (!task_is_alone(s) || !sizes_are_the_models(s) || !repeats_suit(s))
        return false;
    if (s->n_texts == 0 && !s->resume && !s->task) {
        cli_error("train", "no text given");
        cli_hint("for example: attn train book.txt -o my-model");
        return false;
    }
    return resume_is_bare(s) && names_are_utf8(s);
}

/* ---- A run ---- */

static bool allocate_batch(train_run *run)
{
    const bool pairs = run->info.options.arch == ATTN_TRAIN_ENCDEC;
    const int64_t length = pairs ? run->pairs.longest_target + 1 : run->s.length;
    const size_t n = (size_t)(run->s.batch * length);
    run->tokens = malloc(n * sizeof *run->tokens);
    run->targets = malloc(n * sizeof *run->targets);
    run->source = malloc((size_t)(run->s.batch * (run->pairs.longest_source + 1)) * sizeof *run->source);
    run->source_lengths = malloc((size_t)run->s.batch * sizeof *run->source_lengths);
    if (!run->tokens || !run->targets || !run->source || !run->source_lengths) {
        cli_error("train", "out of memory");
        return false;
    }
    if (pairs && (run->pairs.longest_source > run->s.model.context || length > run->s.model.context)) {
        cli_error("train", "--context is %lld; the longest source has %lld tokens, the longest target %lld",
                  (long long)run->s.model.context, (long long)run->pairs.longest_source, (long long)length);
        return false;
    }
    if (pairs)
        run->s.length = length;
    return true;
}

static bool create_trainer(train_run *run)
{
    attn_trainer_options o = run->s.model;
    const attn_tokenizer *t = run->tokenizer;
    const bool pairs = o.arch == ATTN_TRAIN_ENCDEC;
    o.vocab_size = run->vocab_size;
    o.bos_id = pairs ? attn_tokenizer_id(t, "<s>", 3) : attn_tokenizer_id(t, "<|endoftext|>", 13);
    o.eos_id = pairs ? attn_tokenizer_id(t, "</s>", 4) : o.bos_id;
    o.pad_id = pairs ? attn_tokenizer_id(t, "<pad>", 5) : attn_tokenizer_id(t, "[PAD]", 5);
    o.mask_id = attn_tokenizer_id(t, "[MASK]", 6);
    const attn_status status = run->s.from ? attn_trainer_import(run->s.folder, &o, &run->trainer)
                                           : attn_trainer_create(&o, &run->trainer);
    if (status == ATTN_OK && run->s.from) {
        ATTN_ARGS_INIT(&run->info);
        attn_trainer_get_info(run->trainer, 1, 1, &run->info);
        run->s.model = run->info.options;
    }
    if (status == ATTN_OK && run->s.length <= run->s.model.context)
        return true;
    if (status == ATTN_OK)
        cli_error("train", "--context is %lld; the model has %lld positions", (long long)run->s.length,
                  (long long)run->s.model.context);
    else
        cli_error("train", "%s", attn_train_error());
    return false;
}

/* The model that --from names, as f32 in the run's folder, where training begins. */
static bool take_model(const train_settings *s)
{
    char path[4096];
    if (!s->from)
        return true;
    if (cli_model_find("train", s->from, "", path, sizeof path) != CLI_OK)
        return false;
    attn_model_converted made;
    ATTN_ARGS_INIT(&made);
    if (attn_model_convert(path, s->folder, ATTN_F32, NULL, NULL, &made) != ATTN_OK)
        cli_error("train", "%s: %s", path, attn_model_error(NULL));
    else if (!made.has_config || !made.has_tokenizer)
        cli_error("train", "%s: no %s: %s", path, made.has_config ? "tokenizer" : "config.json", made.note);
    else
        return true;
    return false;
}

static bool get_info(train_run *run)
{
    ATTN_ARGS_INIT(&run->info);
    if (attn_trainer_get_info(run->trainer, run->s.batch, run->s.length, &run->info) == ATTN_OK)
        return true;
    cli_error("train", "%s", attn_train_error());
    return false;
}

static bool open_log(train_run *run, int64_t keep)
{
    char *path = train_path(&run->s, "log.jsonl");
    struct stat there;
    keep = path && stat(path, &there) == 0 ? (keep < there.st_size ? keep : there.st_size) : 0; /* lost: begins anew */
    run->log = path ? fopen(path, keep > 0 ? "r+" : "w") : NULL;
    if (run->log)
        setvbuf(run->log, NULL, _IOLBF, 0); /* for those who watch it */
    bool good = run->log && (keep == 0 || (ftruncate(fileno(run->log), keep) == 0 && fseek(run->log, 0, SEEK_END) == 0));
    if (!good)
        cli_error("train", "cannot write %s: %s", path ? path : "log.jsonl", strerror(errno));
    free(path);
    return good;
}

static int64_t whole_of(const json_t *state, const char *key)
{
    return json_integer_value(json_object_get(state, key));
}

/* Settings of the run as its checkpoint has them; the command line's --steps and --threads win. */
static void settings_from(train_run *run, const json_t *state)
{
    train_settings *s = &run->s;
    const json_t *texts = json_object_get(state, "texts"), *validation = json_object_get(state, "validation");
    s->n_texts = s->n_validation = 0;
    for (size_t i = 0; i < json_array_size(texts) && i < TRAIN_MOST_TEXTS; i++)
        s->texts[s->n_texts++] = json_string_value(json_array_get(texts, i));
    for (size_t i = 0; i < json_array_size(validation) && i < TRAIN_MOST_TEXTS; i++)
        s->validation[s->n_validation++] = json_string_value(json_array_get(validation, i));
    s->prompt = json_string_value(json_object_get(state, "prompt"));
    s->schedule.steps = s->steps_given ? s->schedule.steps : whole_of(state, "steps");
    s->schedule.warmup = whole_of(state, "warmup");
    s->schedule.inverse_square_root = (int32_t)whole_of(state, "inverse_square_root");
    s->schedule.peak = json_number_value(json_object_get(state, "learning_rate"));
    s->schedule.last = json_number_value(json_object_get(state, "last_learning_rate"));
    s->validation_share = json_number_value(json_object_get(state, "validation_share"));
    s->repeat = json_number_value(json_object_get(state, "repeat"));
    s->batch = whole_of(state, "batch");
    s->accumulate = whole_of(state, "accumulate");
    s->length = whole_of(state, "length");
    s->eval_every = whole_of(state, "eval_every");
    s->eval_batches = whole_of(state, "eval_batches");
    s->save_every = whole_of(state, "save_every");
    s->sample_every = whole_of(state, "sample_every");
    s->export_dtype = (int32_t)whole_of(state, "export_dtype");
    snprintf(s->pairs_digest, sizeof s->pairs_digest, "%s",
             json_is_string(json_object_get(state, "pairs")) ? json_string_value(json_object_get(state, "pairs")) : "");
    run->seconds = json_number_value(json_object_get(state, "seconds"));
    run->validation = json_number_value(json_object_get(state, "last_validation"));
    if (run->validation < 0)
        run->validation = NAN;
}

static bool settings_are_ours(const train_settings *s, const json_t *state)
{
    for (int64_t i = 0; i < s->n_texts; i++)
        if (!s->texts[i])
            return false;
    for (int64_t i = 0; i < s->n_validation; i++)
        if (!s->validation[i])
            return false;
    return s->batch >= 1 && s->accumulate >= 1 && s->accumulate <= 1 << 16 && s->length >= 1 && s->schedule.steps >= 1 &&
           s->schedule.warmup >= 0 && s->eval_batches >= 1 && whole_of(state, "log_bytes") >= 0;
}

static bool resume_trainer(train_run *run, json_t **state)
{
    char *path = train_path(&run->s, "checkpoint.safetensors");
    bool good = path && attn_trainer_load(path, run->s.model.n_threads, &run->trainer) == ATTN_OK;
    free(path);
    if (!good) {
        cli_error("train", "cannot resume: %s", attn_train_error());
        return false;
    }
    *state = json_loads(attn_trainer_user_data(run->trainer), JSON_REJECT_DUPLICATES, NULL);
    settings_from(run, *state);
    if (!settings_are_ours(&run->s, *state)) {
        cli_error("train", "the checkpoint in %s was not written by attn train", run->s.folder);
        return false;
    }
    run->info.struct_size = sizeof run->info;
    if (!get_info(run))
        return false;
    run->s.model = run->info.options;
    run->s.order_seed = run->info.options.seed;
    return true;
}

static bool make_folder(const char *folder, bool *made)
{
    *made = mkdir(folder, 0777) == 0;
    if (*made || errno == EEXIST)
        return true;
    cli_error("train", "cannot make %s: %s", folder, strerror(errno));
    return false;
}

/* Sizes that cannot be are named before anything is written. */
static bool sizes_are_possible(train_run *run)
{
    attn_trainer_options o = run->s.model;
    o.vocab_size = run->s.chars ? 100 : run->s.vocab_size;
    ATTN_ARGS_INIT(&run->info);
    if (attn_train_plan(&o, run->s.batch, run->s.length, &run->info) != ATTN_OK) {
        cli_error("train", "%s", attn_train_error());
        return false;
    }
    const double needed = (double)run->info.state_bytes + (double)run->info.activation_bytes;
    const double there = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (there <= 0 || needed <= there)
        return true;
    cli_error("train", "width %lld, context %lld and batch %lld need %.1f GB of memory (%.4g million parameters; activations "
              "%.1f GB); this machine has %.1f GB", (long long)o.d_model, (long long)o.context, (long long)run->s.batch,
              needed / 1e9, (double)run->info.n_parameters / 1e6, (double)run->info.activation_bytes / 1e9, there / 1e9);
    cli_hint("smaller sizes, a smaller --batch, or --recompute; --dry-run says what they need");
    return false;
}

static bool texts_are_long_enough(const train_run *run)
{
    attn_train_data_info info;
    if (!run->data)
        return true;
    ATTN_ARGS_INIT(&info);
    attn_train_data_get_info(run->data, &info);
    if (info.n_train <= run->s.length) {
        cli_error("train", "--context is %lld, but the texts give %lld training tokens; one more than the context is needed",
                  (long long)run->s.length, (long long)info.n_train);
        return false;
    }
    if (!run->s.chars && run->s.vocab_given && run->vocab_size < run->s.vocab_size)
        fprintf(stderr, "attn train: --vocab is %lld; the texts give %lld ids, then no pair comes twice\n",
                (long long)run->s.vocab_size, (long long)run->vocab_size);
    if (info.n_validation > run->s.length)
        return true;
    if (run->s.n_validation > 0)
        cli_error("train", "--context is %lld, but --val %s gives %lld tokens; one more than the context is needed",
                  (long long)run->s.length, run->s.validation[0], (long long)info.n_validation);
    else if (run->s.validation_share > 0)
        fprintf(stderr, "attn train: no validation: %g of the texts is %lld tokens, fewer than the context\n",
                run->s.validation_share, (long long)info.n_validation);
    return run->s.n_validation == 0;
}

/* What a run that has no checkpoint leaves behind: nothing. */
static void remove_beginnings(const train_run *run)
{
    static const char *const names[] = {"tokenizer.json", "tokens.bin", "log.jsonl", "model.safetensors", "config.json",
                                        "tokenizer_config.json", "special_tokens_map.json", "generation_config.json"};
    char *checkpoint = train_path(&run->s, "checkpoint.safetensors");
    const bool begun = !checkpoint || access(checkpoint, F_OK) == 0;
    free(checkpoint);
    for (size_t i = 0; !begun && i < sizeof names / sizeof *names; i++) {
        char *path = train_path(&run->s, names[i]);
        if (path)
            remove(path);
        free(path);
    }
    if (!begun && run->made_folder)
        rmdir(run->s.folder);
}

/* A fresh run writes over nothing that is not its own. */
static bool folder_is_free(const train_settings *s)
{
    static const char *const names[] = {"checkpoint.safetensors", "model.safetensors", "config.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = train_path(s, names[i]);
        const bool there = path && access(path, F_OK) == 0;
        free(path);
        if (!there)
            continue;
        cli_error("train", i == 0 ? "%s holds a run already" : "%s holds a model already (%s)", s->folder, names[i]);
        if (i == 0)
            cli_hint("to go on with it: attn train --resume -o %s", s->folder);
        return false;
    }
    return true;
}

static bool begin(train_run *run, json_t **state)
{
    bool good;
    if (run->s.resume) {
        good = resume_trainer(run, state) && train_prepare_data(run);
    } else {
        good = folder_is_free(&run->s);
        if (!good)
            return false;
        good = (run->s.from || sizes_are_possible(run)) && make_folder(run->s.folder, &run->made_folder) &&
               take_model(&run->s) && train_prepare_data(run) &&
               texts_are_long_enough(run) && create_trainer(run);
        run->info.options = run->s.model;
    }
    good = good && allocate_batch(run) && get_info(run) && open_log(run, *state ? whole_of(*state, "log_bytes") : 0);
    if (!good && !run->s.resume)
        remove_beginnings(run);
    return good;
}

/* ---- Dry run ---- */

/* Seconds of one real step on made-up ids, the second of two; 0: not measured, because the memory is more than 2 GB. */
static double time_step(train_run *run)
{
    const int64_t n = run->s.batch * run->s.length;
    attn_train_batch batch;
    attn_train_update u;
    double begin_time = 0;
    run->tokens = malloc((size_t)n * sizeof *run->tokens);
    if (!run->tokens || run->info.state_bytes + run->info.activation_bytes > 2000000000 ||
        attn_trainer_create(&run->info.options, &run->trainer) != ATTN_OK)
        return 0;
    for (int64_t i = 0; i < n; i++)
        run->tokens[i] = (int32_t)((uint64_t)i * 2654435761u % (uint64_t)run->info.options.vocab_size);
    ATTN_ARGS_INIT(&batch);
    batch.batch = run->s.batch;
    batch.length = run->s.length;
    batch.tokens = batch.targets = run->tokens;
    batch.source = run->s.model.arch == ATTN_TRAIN_ENCDEC ? run->tokens : NULL;
    batch.source_length = batch.source ? run->s.length : 0;
    for (int i = 0; i < 2; i++) {
        begin_time = train_now();
        ATTN_ARGS_INIT(&u);
        if (attn_trainer_accumulate(run->trainer, &batch, NULL) != ATTN_OK ||
            attn_trainer_update(run->trainer, 0, &u) != ATTN_OK)
            return 0;
    }
    return (train_now() - begin_time) * (double)run->s.accumulate;
}

static int dry_run(train_run *run)
{
    attn_trainer_options o = run->s.model;
    const int64_t bytes = train_text_bytes(&run->s);
    if (bytes < 0)
        return CLI_FAILED;
    o.vocab_size = run->s.chars ? 100 : run->s.vocab_size; /* characters are counted only when they are learnt */
    ATTN_ARGS_INIT(&run->info);
    if (attn_train_plan(&o, run->s.batch, run->s.length, &run->info) != ATTN_OK) {
        cli_error("train", "%s", attn_train_error());
        return CLI_FAILED;
    }
    run->rate = train_product_rate(o.n_threads);
    const double seconds = time_step(run);
    train_show_plan(run, seconds);
    printf("text        %.2f MB; nothing was written\n", (double)bytes / 1e6);
    return CLI_OK;
}

static void free_run(train_run *run)
{
    if (run->log)
        fclose(run->log);
    attn_trainer_destroy(run->trainer);
    train_free_data(run);
    free(run->tokens);
    free(run->targets);
    free(run->source);
    free(run->source_lengths);
}

static void show_end(const train_run *run)
{
    char spent[64] = "";
    snprintf(spent, sizeof spent, "%.0f s", run->seconds);
    printf("%lld steps in %s", (long long)run->s.schedule.steps, spent);
    if (isfinite(run->validation))
        printf("; validation loss %.4f", run->validation);
    if (isfinite(run->validation) && run->data)
        printf(" (%.3f bits per byte)", run->bits_per_byte);
    if (isfinite(run->exact))
        printf("; %.2f %% of the held-out pairs exact", 100 * run->exact);
    printf("\n%s holds the model, log.jsonl, loss.svg and loss.png\n", run->s.folder);
}

int train_one(const train_settings *settings, bool *finished)
{
    train_run run = {.s = *settings, .validation = NAN, .exact = NAN};
    json_t *state = NULL;
    run.interactive = isatty(fileno(stdout)) != 0;
    int code = CLI_FAILED;
    *finished = false;
    if (run.s.dry_run) {
        code = dry_run(&run);
    } else if (begin(&run, &state)) {
        run.rate = train_product_rate(run.s.model.n_threads);
        train_show_plan(&run, 0);
        code = train_loop(&run);
        ATTN_ARGS_INIT(&run.info);
        attn_trainer_get_info(run.trainer, run.s.batch, run.s.length, &run.info);
        *finished = code == CLI_OK && run.info.step >= run.s.schedule.steps;
        if (*finished)
            show_end(&run);
        if (code != CLI_OK && !run.s.resume)
            remove_beginnings(&run);
    }
    free_run(&run);
    json_decref(state);
    return code;
}

static int train(int argc, char **argv)
{
    train_settings s;
    bool finished;
    if (!read_settings(&s, argc, argv))
        return CLI_USAGE;
    return s.task ? train_task(&s) : train_one(&s, &finished);
}

const cli_command cli_train = {
    "train", "train a small model on your own text",
    "attn train - learns a vocabulary and a model from texts\n\n"
    "usage: attn train TEXT... -o DIR [OPTIONS]\n"
    "       attn train --resume -o DIR [--steps N] [--threads N]\n"
    "       attn train TEXT... --from MODEL -o DIR [OPTIONS]\n"
    "       attn train --task numbers -o DIR [OPTIONS]\n"
    "\n"
    "Learns a vocabulary from the texts, trains a model, and leaves DIR as a model that `attn run --model\n"
    "DIR`, `attn generate --model DIR` and Hugging Face Transformers load. Ctrl-C saves and stops.\n"
    "\n"
    "  -o DIR              where everything goes; log.jsonl there has every figure, for programs\n"
    "  --preset NAME       nano (4 layers, width 128; default), small (6, 384), base (12, 768)\n"
    "  --arch NAME         gpt2 (default), llama, bert (masked words), encdec (lines \"source<TAB>target\")\n"
    "  --layers, --heads, --kv-heads, --width, --ff, --context N   explicit sizes\n"
    "  --vocab N           ids of the byte-level BPE; --chars: single characters instead\n"
    "  --pre-norm          encdec: norms in front instead of behind\n"
    "  --val FILE          held-out text (may be repeated); else --val-share S of the texts' end (0.1)\n"
    "  --steps, --batch, --accumulate N    updates, sequences of a batch, batches of an update\n"
    "  --lr R --min-lr R --warmup N        peak and last learning rate, steps of warm-up (cosine between)\n"
    "  --inverse-sqrt      the schedule of 2017 instead of the cosine\n"
    "  --decay R --beta1 R --beta2 R --clip R --dropout R   AdamW 0.1, 0.9, 0.99; clip 1; dropout 0\n"
    "  --repeat S          share S of the sequences are random ids, said again and again (0): heads copy\n"
    "  --dtype f32|bf16    bf16: weights and states rounded to bf16, sums and master weights f32\n"
    "  --recompute         keep less, compute again in the backward pass\n"
    "  --seed N --threads N                the same seed gives the same bits on any number of threads\n"
    "  --eval-every, --eval-batches, --save-every, --sample-every N   0: never; --prompt TEXT for samples\n"
    "  --export f32|bf16|f16               numbers of model.safetensors (f32)\n"
    "  --dry-run           say parameters, memory and time, and write nothing\n"
    "  --resume            go on where DIR was stopped or killed\n"
    "  --from MODEL        go on from a trained Llama or GPT-2 (GGUF, folder or name in the cache): 200\n"
    "                      steps of 4 x 128 tokens at 3e-5 unless said otherwise\n"
    "  --task numbers      numbers in words to digits by the model of 2017: post-norm with warm-up in\n"
    "                      DIR/post-norm, pre-norm without in DIR/pre-norm, both losses in DIR/curves.svg\n"
    "\n"
    "example: attn train book.txt -o my-model --steps 500 && attn generate --model my-model \"It was\"\n",
    train};
