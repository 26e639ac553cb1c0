/* cmd_train.c - `attn train`: a fresh run or the rest of an old one; the dry run. */
#include "model_use.h"
#include "train_cli.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- What the library says, in the words of the command line ---- */

static void say_in_options(const char *error)
{
    static const char *const words[][2] = {{"d_model", "--width"},       {"n_heads", "--heads"},   {"n_kv_heads", "--kv-heads"},
                                           {"n_layers", "--layers"},     {"d_ff", "--ff"},         {"context", "--context"},
                                           {"vocab_size", "--vocab"},    {"LLAMA", "--arch llama"}};
    char said[1024] = "";
    size_t n = 0;
    while (*error && n + 32 < sizeof said) {
        const size_t length = strspn(error, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
        const char *word = NULL;
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (strlen(words[i][0]) == length && strncmp(words[i][0], error, length) == 0)
                word = words[i][1];
        const size_t taken = length ? length : 1;
        n += (size_t)snprintf(said + n, sizeof said - n, "%.*s", word ? 32 : (int)taken, word ? word : error);
        error += taken;
        n = n < sizeof said ? n : sizeof said - 1;
    }
    cli_error("train", "%s", said);
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
        say_in_options(attn_train_error());
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
    if (run->log && flock(fileno(run->log), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        cli_error("train", "another process is training in %s", run->s.folder);
        free(path);
        return false;
    }
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

/* The rates of the checkpoint, unless others are given; a last one that is not keeps its share of the peak. */
static void rates_from(train_settings *s, const json_t *state)
{
    const double peak = json_number_value(json_object_get(state, "learning_rate"));
    const double last = json_number_value(json_object_get(state, "last_learning_rate"));
    if (!s->lr_given)
        s->schedule.peak = peak;
    if (!s->min_lr_given)
        s->schedule.last = !s->lr_given ? last : s->schedule.peak * (peak > 0 ? last / peak : 0.1);
}

static void take_digest(char digest[17], const json_t *state, const char *key)
{
    const char *text = json_string_value(json_object_get(state, key));
    snprintf(digest, 17, "%s", text ? text : "");
}

/* Settings of the run as its checkpoint has them; --steps, --threads, --lr, --min-lr and --clip win. */
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
    rates_from(s, state);
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
    take_digest(s->pairs_digest, state, "pairs");
    take_digest(s->tokens_digest, state, "tokens_digest");
    take_digest(s->tokenizer_digest, state, "tokenizer_digest");
    run->seconds = json_number_value(json_object_get(state, "seconds"));
    const double loss = json_number_value(json_object_get(state, "last_validation"));
    const json_t *whole = json_object_get(state, "last_validation_all");
    run->validation.loss = loss < 0 ? NAN : loss;
    run->whole.loss = json_is_real(whole) ? json_real_value(whole) : NAN;
    run->pending = json_is_true(json_object_get(state, "validation_pending"));
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
    if (run->s.clip_given)
        attn_trainer_set_clip(run->trainer, run->s.model.clip);
    run->info.struct_size = sizeof run->info;
    if (!get_info(run) || !train_rates_suit(&run->s))
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

static double machine_memory(void)
{
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

/* Sizes that cannot be are named before anything is written. */
static bool sizes_are_possible(train_run *run)
{
    attn_trainer_options o = run->s.model;
    o.vocab_size = run->s.chars ? 100 : run->s.vocab_size;
    ATTN_ARGS_INIT(&run->info);
    if (attn_train_plan(&o, run->s.batch, run->s.length, &run->info) != ATTN_OK) {
        say_in_options(attn_train_error());
        return false;
    }
    const double needed = train_memory(run);
    const double there = machine_memory();
    if (there <= 0 || needed <= there)
        return true;
    cli_error("train", "width %lld, context %lld and batch %lld need %.1f GB of memory (%.4g million parameters; activations "
              "%.1f GB); this machine has %.1f GB", (long long)o.d_model, (long long)o.context, (long long)run->s.batch,
              needed / 1e9, (double)run->info.n_parameters / 1e6,
              (double)(run->info.activation_bytes + run->info.scratch_bytes) / 1e9, there / 1e9);
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

/* Files that a killed run was writing: NAME.PID-TIME-N.tmp of our own names. Called where the folder's log is locked. */
static void remove_half_written(const char *folder)
{
    static const char *const names[] = {"checkpoint.safetensors", "model.safetensors", "config.json", "loss.svg", "loss.png",
                                        "tokenizer.json", "tokenizer_config.json", "tokens.bin"};
    DIR *list = opendir(folder);
    for (const struct dirent *e = list ? readdir(list) : NULL; e; e = readdir(list))
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            const size_t n = strlen(names[i]);
            const char *rest = strncmp(e->d_name, names[i], n) == 0 ? e->d_name + n : "";
            int used = 0;
            if (sscanf(rest, ".%*d-%*x-%*u.tmp%n", &used) == 0 && used > 0 && !rest[used])
                unlinkat(dirfd(list), e->d_name, 0);
        }
    if (list)
        closedir(list);
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
    if (good)
        remove_half_written(run->s.folder);
    else if (!run->s.resume)
        remove_beginnings(run);
    return good;
}

/* ---- Dry run ---- */

/* Sequences of the batch that are timed: as many as take some seconds. */
static int64_t timed_sequences(const train_run *run)
{
    int64_t n = run->s.batch;
    while (n > 1 && run->info.flops_per_token * (double)(n * run->s.length) > 3e11)
        n = (n + 1) / 2;
    return n;
}

/* Seconds of a step, from a real one on made-up ids, the second of two; 0: not measured, because this machine has not the memory. */
static double time_step(train_run *run)
{
    const int64_t sequences = timed_sequences(run), n = sequences * run->s.length;
    attn_train_batch batch;
    attn_train_update u;
    attn_trainer_info part;
    double begin_time = 0, update_time = 0;
    run->tokens = malloc((size_t)n * sizeof *run->tokens);
    ATTN_ARGS_INIT(&part);
    if (!run->tokens || attn_train_plan(&run->info.options, sequences, run->s.length, &part) != ATTN_OK ||
        (double)(part.state_bytes + part.activation_bytes + part.scratch_bytes) > 0.9 * machine_memory() ||
        attn_trainer_create(&run->info.options, &run->trainer) != ATTN_OK)
        return 0;
    for (int64_t i = 0; i < n; i++)
        run->tokens[i] = (int32_t)((uint64_t)i * 2654435761u % (uint64_t)run->info.options.vocab_size);
    ATTN_ARGS_INIT(&batch);
    batch.batch = sequences;
    batch.length = run->s.length;
    batch.tokens = batch.targets = run->tokens;
    batch.source = run->s.model.arch == ATTN_TRAIN_ENCDEC ? run->tokens : NULL;
    batch.source_length = batch.source ? run->s.length : 0;
    for (int i = 0; i < 2; i++) {
        begin_time = train_now();
        ATTN_ARGS_INIT(&u);
        if (attn_trainer_accumulate(run->trainer, &batch, NULL) != ATTN_OK)
            return 0;
        update_time = train_now();
        if (attn_trainer_update(run->trainer, 0, &u) != ATTN_OK)
            return 0;
    }
    return (update_time - begin_time) * (double)(run->s.accumulate * run->s.batch) / (double)sequences +
           train_now() - update_time;
}

/* Sizes of the model that --from names, as far as a plan needs them; whether it can be trained is found out when it is taken. */
static bool sizes_from_model(train_settings *s)
{
    char path[4096];
    attn_model *model;
    attn_model_info info;
    if (cli_model_find("train", s->from, "", path, sizeof path) != CLI_OK)
        return false;
    if (attn_model_load(path, NULL, &model) != ATTN_OK) {
        cli_error("train", "%s: %s", path, attn_model_error(NULL));
        return false;
    }
    ATTN_ARGS_INIT(&info);
    attn_model_get_info(model, &info);
    const bool gpt2 = !strcmp(info.family, "gpt2"), good = gpt2 || !strcmp(info.family, "llama");
    if (!good)
        cli_error("train", "%s is a model of the family %s; training goes on from gpt2 and llama", path, info.family);
    attn_trainer_options *o = &s->model;
    o->arch = gpt2 ? ATTN_TRAIN_GPT2 : ATTN_TRAIN_LLAMA;
    o->n_layers = info.n_layers;
    o->n_heads = info.n_heads;
    o->n_kv_heads = gpt2 ? 0 : info.n_kv_heads;
    o->d_model = info.d_model;
    o->d_ff = info.d_ff;
    o->context = info.context_length;
    s->vocab_size = info.vocab_size;
    attn_model_destroy(model);
    if (good && s->length > o->context) {
        cli_error("train", "--context is %lld; the model has %lld positions", (long long)s->length, (long long)o->context);
        return false;
    }
    return good;
}

static int dry_run(train_run *run)
{
    const int64_t bytes = train_text_bytes(&run->s);
    if (bytes < 0 || (run->s.from && !sizes_from_model(&run->s)))
        return CLI_FAILED;
    attn_trainer_options o = run->s.model;
    o.vocab_size = run->s.chars ? 100 : run->s.vocab_size; /* characters are counted only when they are learnt */
    ATTN_ARGS_INIT(&run->info);
    if (attn_train_plan(&o, run->s.batch, run->s.length, &run->info) != ATTN_OK) {
        say_in_options(attn_train_error());
        return CLI_FAILED;
    }
    run->rate = attn_train_product_rate(o.dtype, o.n_threads);
    const double seconds = time_step(run);
    train_show_plan(run, seconds);
    if (seconds <= 0)
        printf("time        not measured: this machine has %.0f MB of memory\n", machine_memory() / 1e6);
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
    const double bits = train_bits_per_byte(run, run->whole.loss);
    printf("%lld steps in %.0f s", (long long)run->s.schedule.steps, run->seconds);
    if (isfinite(run->whole.loss))
        printf("; validation loss %.4f", run->whole.loss);
    if (isfinite(bits))
        printf(" (%.3f bits per byte)", bits);
    if (isfinite(run->whole.exact))
        printf("; %.2f %% of the held-out pairs exact", 100 * run->whole.exact);
    printf("\n%s holds the model, log.jsonl, loss.svg and loss.png\n", run->s.folder);
}

/* A resumed run that has made its steps. It may have been killed behind its last checkpoint: the model is written again. */
static int nothing_left(train_run *run)
{
    if (run->pending && run->info.step == run->s.schedule.steps) {
        if (!train_make_up_validation(run))
            return CLI_FAILED;
        show_end(run);
    } else if (attn_trainer_export(run->trainer, run->s.folder, run->s.export_dtype) != ATTN_OK) {
        cli_error("train", "cannot save: %s", attn_train_error());
        return CLI_FAILED;
    }
    train_draw(run);
    printf("%s: all %lld steps are done; to go on: attn train --resume -o %s --steps N\n", run->s.folder,
           (long long)run->info.step, run->s.folder);
    return CLI_OK;
}

int train_one(const train_settings *settings, bool *finished)
{
    train_run run = {.s = *settings, .validation = {NAN, NAN}, .whole = {NAN, NAN}, .validated_at = -1};
    json_t *state = NULL;
    run.interactive = isatty(fileno(stdout)) != 0;
    int code = CLI_FAILED;
    *finished = false;
    if (run.s.dry_run) {
        code = dry_run(&run);
    } else if (!begin(&run, &state)) {
        code = CLI_FAILED;
    } else if (run.info.step >= run.s.schedule.steps) {
        code = nothing_left(&run);
        *finished = code == CLI_OK;
    } else {
        run.rate = attn_train_product_rate(run.s.model.dtype, run.s.model.n_threads);
        train_show_plan(&run, 0);
        code = train_loop(&run);
        ATTN_ARGS_INIT(&run.info);
        attn_trainer_get_info(run.trainer, run.s.batch, run.s.length, &run.info);
        *finished = code == CLI_OK && run.info.step >= run.s.schedule.steps && !run.pending;
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
    if (!train_read_settings(&s, argc, argv))
        return CLI_USAGE;
    return s.task ? train_task(&s) : train_one(&s, &finished);
}

const cli_command cli_train = {
    "train", "train a small model on your own text",
    "attn train - learns a vocabulary and a model from texts\n\n"
    "usage: attn train TEXT... -o DIR [OPTIONS]\n"
    "       attn train --resume -o DIR [--steps N] [--lr R] [--min-lr R] [--clip R] [--threads N]\n"
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
    "  --dtype f32|bf16    bf16: products of numbers rounded to bf16; sums and weights f32\n"
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
