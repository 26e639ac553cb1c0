/* train_loop.c - the steps of `attn train`: batches, validation, checkpoints, and stopping in good order. */
#include "train_cli.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t asked_to_stop;

/* The first Ctrl-C asks; a second one ends the process as usual (the last checkpoint is whole in any case). */
static void on_signal(int number)
{
    asked_to_stop = 1;
    signal(number, SIG_DFL);
}

/* ---- Batches ---- */

/* Pairs as padded rows: source, decoder input <s> target, and what it should say: target </s>. */
static void fill_pairs(train_run *run, bool validation, int64_t index, attn_train_batch *batch)
{
    const train_pairs *p = &run->pairs;
    const attn_trainer_options *o = &run->info.options;
    const int64_t n = validation ? p->n - p->n_train : p->n_train;
    const int64_t source_length = p->longest_source, length = p->longest_target + 1;
    for (int64_t b = 0; b < run->s.batch; b++) {
        const int64_t number = index * run->s.batch + b;
        const int64_t item = validation ? p->n_train + number % n : attn_train_order(run->s.order_seed, number, n);
        const int64_t *starts = p->starts + 2 * item;
        const int64_t n_source = starts[1] - starts[0], n_target = starts[2] - starts[1];
        for (int64_t i = 0; i < source_length; i++)
            run->source[b * source_length + i] = i < n_source ? p->ids[starts[0] + i] : o->pad_id;
        run->source_lengths[b] = n_source;
        for (int64_t i = 0; i < length; i++) {
            run->tokens[b * length + i] = i == 0 ? o->bos_id : i <= n_target ? p->ids[starts[1] + i - 1] : o->pad_id;
            run->targets[b * length + i] = i < n_target ? p->ids[starts[1] + i] : i == n_target ? o->eos_id : -1;
        }
    }
    batch->length = length;
    batch->source = run->source;
    batch->source_length = source_length;
    batch->source_lengths = run->source_lengths;
}

bool train_fill_batch(train_run *run, bool validation, int64_t index, attn_train_batch *batch, int64_t *n_batches)
{
    attn_status status = ATTN_OK;
    const train_settings *s = &run->s;
    const attn_trainer_options *o = &run->info.options;
    ATTN_ARGS_INIT(batch);
    batch->batch = s->batch;
    batch->length = s->length;
    batch->tokens = run->tokens;
    batch->targets = run->targets;
    if (o->arch == ATTN_TRAIN_ENCDEC) {
        const int64_t n = run->pairs.n - run->pairs.n_train;
        fill_pairs(run, validation, index, batch);
        if (n_batches)
            *n_batches = (n + s->batch - 1) / s->batch;
        return true;
    }
    if (validation)
        status = attn_train_data_validation(run->data, index, s->batch, s->length, run->tokens, run->targets, n_batches);
    else
        status = attn_train_data_batch(run->data, s->order_seed, index, s->batch, s->length, run->tokens, run->targets);
    if (status == ATTN_OK && !validation && s->repeat > 0)
        status = attn_train_repeat(run->tokens, run->targets, s->batch, s->length, o->vocab_size, s->repeat, s->order_seed + 2,
                                   index);
    if (status == ATTN_OK && o->arch == ATTN_TRAIN_BERT)
        status = attn_train_mask_tokens(run->tokens, run->targets, s->batch * s->length, o->vocab_size, o->mask_id, 0,
                                        s->order_seed + (validation ? 1 : 0), index);
    if (status != ATTN_OK)
        cli_error("train", "%s", attn_train_error());
    return status == ATTN_OK;
}

/* ---- Validation ---- */

static int64_t validation_items(const train_run *run)
{
    attn_train_data_info info;
    if (run->info.options.arch == ATTN_TRAIN_ENCDEC)
        return run->pairs.n - run->pairs.n_train;
    ATTN_ARGS_INIT(&info);
    attn_train_data_get_info(run->data, &info);
    return info.n_validation > run->s.length ? info.n_validation : 0;
}

/* How many of the pairs in the run's arrays come out exactly. */
static int64_t count_exact(train_run *run, attn_train_batch *batch, int64_t n)
{
    const int64_t length = batch->length;
    int32_t *out = malloc((size_t)(batch->batch * length) * sizeof *out);
    int64_t *lengths = malloc((size_t)batch->batch * sizeof *lengths), exact = 0;
    if (out && lengths && attn_trainer_translate(run->trainer, batch, length, out, lengths) == ATTN_OK)
        for (int64_t b = 0; b < n; b++) {
            int64_t want = 0;
            while (want < length && run->targets[b * length + want] != run->info.options.eos_id)
                want++;
            exact += lengths[b] == want && memcmp(out + b * length, run->targets + b * length,
                                                  (size_t)want * sizeof *out) == 0;
        }
    free(out);
    free(lengths);
    return exact;
}

/* Sums over validation batches. */
typedef struct tally {
    double loss, n_targets;
    int64_t exact, tried;
} tally;

static bool add_batch(train_run *run, int64_t index, int64_t items, int64_t *n_batches, tally *t)
{
    attn_train_batch batch;
    double loss;
    int64_t n;
    if (!train_fill_batch(run, true, index, &batch, n_batches))
        return false;
    if (attn_trainer_evaluate(run->trainer, &batch, &loss, &n) != ATTN_OK) {
        cli_error("train", "%s", attn_train_error());
        return false;
    }
    t->loss += loss * (double)n;
    t->n_targets += (double)n;
    if (run->info.options.arch == ATTN_TRAIN_ENCDEC) {
        const int64_t left = items - index * run->s.batch, count = left < run->s.batch ? left : run->s.batch;
        t->exact += count_exact(run, &batch, count);
        t->tried += count;
    }
    return true;
}

static train_score score_of(const tally *t)
{
    return (train_score){.loss = t->n_targets > 0 ? t->loss / t->n_targets : NAN,
                         .exact = t->tried ? (double)t->exact / (double)t->tried : NAN};
}

/* The first eval_batches batches, the same after every step, so that their losses make a curve; and on with the whole set, where
 * that is asked for. What a signal cuts short is no measurement: the run keeps its last. */
static bool validate(train_run *run, int64_t step, bool whole)
{
    const int64_t items = validation_items(run);
    int64_t n_batches = 1;
    tally t = {0};
    for (int64_t i = 0; items > 0 && i < n_batches && (whole || i < run->s.eval_batches); i++) {
        if (asked_to_stop)
            return true;
        if (!add_batch(run, i, items, &n_batches, &t))
            return false;
        if (i + 1 == run->s.eval_batches || (i + 1 == n_batches && i < run->s.eval_batches)) {
            run->validation = score_of(&t);
            run->validated_at = step;
        }
        if (i + 1 == n_batches)
            run->whole = score_of(&t);
    }
    return true;
}

double train_bits_per_byte(const train_run *run, double loss)
{
    attn_train_data_info info;
    if (!run->data)
        return NAN;
    ATTN_ARGS_INIT(&info);
    attn_train_data_get_info(run->data, &info);
    return loss / log(2.0) / info.validation_bytes_per_token;
}

/* ---- Checkpoints ---- */

/* The message is the library's: the step, and what was not finite first. */
static void diverged(const train_run *run)
{
    train_end_progress(run);
    cli_error("train", "%s", attn_train_error());
    if (run->s.schedule.peak > 0 && run->info.options.clip > 0)
        cli_hint("the last good checkpoint is in %s; to go on from it: attn train --resume -o %s --lr %g", run->s.folder,
                 run->s.folder, run->s.schedule.peak / 10);
    else
        cli_hint("the last good checkpoint is in %s; to go on from it: attn train --resume -o %s --lr %g --clip 1",
                 run->s.folder, run->s.folder, run->s.schedule.peak / 10);
}

static json_t *state_of(const train_run *run)
{
    const train_settings *s = &run->s;
    json_t *texts = json_array(), *validation = json_array();
    for (int64_t i = 0; i < s->n_texts; i++)
        json_array_append_new(texts, json_string(s->texts[i]));
    for (int64_t i = 0; i < s->n_validation; i++)
        json_array_append_new(validation, json_string(s->validation[i]));
    return json_pack("{s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:i, s:i, s:f, s:f, s:f, "
                     "s:s, s:s, s:s, s:b, s:o}",
                     "texts", texts, "validation", validation, "prompt", s->prompt ? s->prompt : "", "steps",
                     (json_int_t)s->schedule.steps, "warmup", (json_int_t)s->schedule.warmup, "batch", (json_int_t)s->batch,
                     "accumulate", (json_int_t)s->accumulate, "length", (json_int_t)s->length, "eval_every",
                     (json_int_t)s->eval_every, "eval_batches", (json_int_t)s->eval_batches, "save_every",
                     (json_int_t)s->save_every, "sample_every", (json_int_t)s->sample_every, "log_bytes",
                     (json_int_t)(run->log ? ftell(run->log) : 0), "learning_rate", s->schedule.peak, "last_learning_rate",
                     s->schedule.last, "validation_share", s->validation_share, "inverse_square_root",
                     s->schedule.inverse_square_root, "export_dtype", s->export_dtype, "seconds", run->seconds,
                     "repeat", s->repeat, "last_validation", isfinite(run->validation.loss) ? run->validation.loss : -1.0, "pairs",
                     run->pairs_digest, "tokens_digest", run->tokens_digest, "tokenizer_digest", run->tokenizer_digest,
                     "validation_pending", run->pending, "last_validation_all",
                     isfinite(run->whole.loss) ? json_real(run->whole.loss) : json_null());
}

/* Weights that the next step would refuse must not take the place of good ones. */
static bool weights_are_sound(train_run *run, int64_t step)
{
    attn_train_batch batch;
    if (!train_fill_batch(run, false, step * run->s.accumulate, &batch, NULL))
        return false;
    if (attn_trainer_check(run->trainer, &batch) == ATTN_OK)
        return true;
    diverged(run);
    return false;
}

static bool export_model(const train_run *run)
{
    if (attn_trainer_export(run->trainer, run->s.folder, run->s.export_dtype) == ATTN_OK)
        return true;
    cli_error("train", "cannot save: %s", attn_train_error());
    return false;
}

/* The checkpoint first: it alone is what a run is resumed from. */
static bool save(train_run *run, int64_t step)
{
    if (step > 0 && !weights_are_sound(run, step))
        return false;
    if (run->log)
        fflush(run->log);
    char *path = train_path(&run->s, "checkpoint.safetensors");
    json_t *state = state_of(run);
    char *text = state ? json_dumps(state, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    bool good = path && text && attn_trainer_save(run->trainer, path, text) == ATTN_OK;
    if (!good)
        cli_error("train", "cannot save: %s", path && text ? attn_train_error() : "out of memory");
    json_decref(state);
    free(text);
    free(path);
    good = good && export_model(run);
    run->saved_at = good ? step : run->saved_at;
    return good;
}

/* ---- Steps ---- */

static bool one_step(train_run *run, int64_t step, attn_train_update *result)
{
    attn_train_batch batch;
    for (int64_t i = 0; i < run->s.accumulate; i++) {
        if (!train_fill_batch(run, false, step * run->s.accumulate + i, &batch, NULL))
            return false;
        if (attn_trainer_accumulate(run->trainer, &batch, NULL) != ATTN_OK) {
            cli_error("train", "%s", attn_train_error());
            return false;
        }
    }
    ATTN_ARGS_INIT(result);
    if (attn_trainer_update(run->trainer, attn_train_learning_rate(&run->s.schedule, step), result) == ATTN_OK)
        return true;
    diverged(run);
    return false;
}

static bool due(int64_t every, int64_t step, int64_t last)
{
    return (every > 0 && step % every == 0) || step == last;
}

/* Keys of a score, in the log: of eval_batches batches, and of all. */
static void add_score(json_t *line, const train_run *run, const train_score *score, bool whole)
{
    const double bits = train_bits_per_byte(run, score->loss);
    if (isfinite(score->loss))
        json_object_set_new(line, whole ? "validation_all" : "validation", json_real(score->loss));
    if (isfinite(bits))
        json_object_set_new(line, whole ? "bits_per_byte_all" : "bits_per_byte", json_real(bits));
    if (isfinite(score->exact))
        json_object_set_new(line, whole ? "exact_all" : "exact", json_real(score->exact));
}

static void log_scores(json_t *line, const train_run *run, int64_t step)
{
    if (run->validated_at == step)
        add_score(line, run, &run->validation, false);
    if (step == run->s.schedule.steps)
        add_score(line, run, &run->whole, true);
}

static void log_step(train_run *run, const attn_train_update *u, double rate, double tokens_per_second)
{
    json_t *line = json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "step", (json_int_t)u->step, "loss", u->loss, "lr", rate,
                             "gradient_norm", u->gradient_norm, "tokens_per_second", tokens_per_second, "seconds",
                             run->seconds);
    log_scores(line, run, u->step);
    train_log(run, line);
}

/* What follows a step: validation, log, progress, checkpoint, sample. A signal may come within any of them; what is left to save
 * then, train_loop saves. */
static bool after_step(train_run *run, const attn_train_update *u, double rate, double tokens_per_second)
{
    const train_settings *s = &run->s;
    const int64_t last = s->schedule.steps;
    const bool eval = due(s->eval_every, u->step, last);
    /* faster than "large products": other work slowed the machine while those were measured */
    run->rate = fmax(run->rate, run->info.flops_per_token * tokens_per_second);
    run->whole = (train_score){NAN, NAN};
    if (eval && !validate(run, u->step, u->step == last))
        return false;
    run->pending = u->step == last && validation_items(run) > 0 && isnan(run->whole.loss);
    log_step(run, u, rate, tokens_per_second);
    if (run->interactive || eval || asked_to_stop)
        train_show_progress(run, u->step, u->loss, tokens_per_second);
    if (due(s->save_every, u->step, last)) {
        if (!save(run, u->step))
            return false;
        train_draw(run);
    }
    if (asked_to_stop || s->sample_every == 0 || !due(s->sample_every, u->step, last))
        return true;
    /* a sample is made by the model in the folder: it must be this step's */
    if (run->saved_at != u->step && !export_model(run))
        return false;
    train_show_sample(run, u->step);
    return true;
}

/* After a signal: the steps made are saved, and what is said is so. */
static bool stop_in_order(train_run *run)
{
    attn_trainer_get_info(run->trainer, run->s.batch, run->s.length, &run->info);
    const long long step = run->info.step;
    if (run->saved_at != step) {
        if (!save(run, step))
            return false;
        train_draw(run);
    }
    if (step < run->s.schedule.steps)
        printf("stopped after step %lld and saved; to go on: attn train --resume -o %s\n", step, run->s.folder);
    else if (run->pending)
        printf("all %lld steps are made and saved; the validation was cut short, to make up for it: attn train --resume -o %s\n",
               step, run->s.folder);
    return true;
}

bool train_make_up_validation(train_run *run)
{
    const int64_t step = run->info.step;
    if (!validate(run, step, true))
        return false;
    json_t *line = json_pack("{s:I}", "step", (json_int_t)step);
    log_scores(line, run, step);
    train_log(run, line);
    run->pending = false;
    return save(run, step);
}

int train_loop(train_run *run)
{
    const int64_t first = run->info.step, last = run->s.schedule.steps;
    const double tokens = (double)(run->s.batch * run->s.length * run->s.accumulate);
    bool good = first > 0 || save(run, 0); /* so that there is always something to resume */
    double smooth = 0;
    struct sigaction action = {.sa_handler = on_signal};
    run->saved_at = first;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    for (int64_t step = first; good && step < last && !asked_to_stop; step++) {
        attn_train_update u;
        const double begin = train_now();
        good = one_step(run, step, &u);
        const double spent = train_now() - begin;
        run->seconds += spent;
        smooth = smooth > 0 ? 0.9 * smooth + 0.1 * spent : spent;
        good = good && after_step(run, &u, attn_train_learning_rate(&run->s.schedule, step), tokens / smooth);
    }
    train_end_progress(run);
    if (good && asked_to_stop)
        good = stop_in_order(run);
    return good ? CLI_OK : CLI_FAILED;
}
