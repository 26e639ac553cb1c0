/* train_options.c - the command line of `attn train`: options, presets, and what excludes what. */
#include "train_cli.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

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
    s->lr_given |= code == OPT_LR;
    s->min_lr_given |= code == OPT_MIN_LR;
    s->clip_given |= code == OPT_CLIP;
    static const int sizes[] = {OPT_ARCH, OPT_PRESET, OPT_LAYERS, OPT_HEADS, OPT_KV_HEADS, OPT_WIDTH, OPT_FF, OPT_VOCAB,
                                OPT_CHARS, OPT_PRE_NORM, OPT_TASK};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        s->given[i] |= code == sizes[i];
    static const int anew[] = {OPT_STEPS, OPT_THREADS, OPT_LR, OPT_MIN_LR, OPT_CLIP, OPT_RESUME, OPT_DRY_RUN, 'o'};
    bool kept = true;
    for (size_t i = 0; i < sizeof anew / sizeof *anew; i++)
        kept = kept && code != anew[i];
    if (kept)
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
        cli_error("train", "--%s is kept as it was by --resume; only --steps, --lr, --min-lr, --clip and --threads may change",
                  s->kept_option);
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

/* The schedule falls from the one to the other. */
bool train_rates_suit(const train_settings *s)
{
    if (s->schedule.inverse_square_root || s->schedule.last <= s->schedule.peak)
        return true;
    cli_error("train", "--min-lr is %g and --lr is %g; the last rate may not be above the peak", s->schedule.last,
              s->schedule.peak);
    return false;
}

/* Only the model of 2017 comes both ways. */
static bool norms_suit(const train_settings *s)
{
    if (!(s->model.flags & ATTN_TRAIN_PRE_NORM) || s->model.arch == ATTN_TRAIN_ENCDEC)
        return true;
    cli_error("train", "--pre-norm is for --arch encdec; in the other architectures the place of norms is given");
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
    if (!s->from || !s->resume)
        return true;
    cli_error("train", "--resume and --from exclude each other");
    return false;
}

bool train_read_settings(train_settings *s, int argc, char **argv)
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
    if (!s->resume && !train_rates_suit(s))
        return false;
    if (!task_is_alone(s) || !sizes_are_the_models(s) || !repeats_suit(s) || !norms_suit(s))
        return false;
    if (s->n_texts == 0 && !s->resume && !s->task) {
        cli_error("train", "no text given");
        cli_hint("for example: attn train book.txt -o my-model");
        return false;
    }
    return resume_is_bare(s) && names_are_utf8(s);
}
