/* train_show.c - what `attn train` prints and writes beside the model: plan, progress, samples, log, curve. */
#include "train_cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

double train_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

char *train_path(const train_settings *s, const char *name)
{
    size_t n = strlen(s->folder) + strlen(name) + 2;
    char *path = malloc(n);
    if (path)
        snprintf(path, n, "%s/%s", s->folder, name);
    return path;
}

static const char *duration(double seconds, char out[32])
{
    if (!(seconds < 1e9))
        snprintf(out, 32, "?");
    else if (seconds < 100)
        snprintf(out, 32, "%.0f s", seconds);
    else if (seconds < 6000)
        snprintf(out, 32, "%.0f min", seconds / 60);
    else if (seconds < 360000)
        snprintf(out, 32, "%.1f h", seconds / 3600);
    else
        snprintf(out, 32, "%.1f days", seconds / 86400);
    return out;
}

/* The process with its libraries and packed operands; what the heap keeps of learning a vocabulary and of encoding, measured: some
 * 20 MB however long the text is (6 for pairs, encoded line by line), less for short ones; and the model that samples are
 * drawn from (an encoder-decoder draws them from the trainer). */
static double program_bytes(const train_run *run)
{
    const bool pairs = run->info.options.arch == ATTN_TRAIN_ENCDEC, sampled = run->s.sample_every > 0 && !pairs;
    double text = 0;
    for (int64_t i = 0; i < run->s.n_texts; i++) {
        struct stat file;
        text += stat(run->s.texts[i], &file) == 0 ? (double)file.st_size : 0;
    }
    return 14e6 + fmin(16 * text, pairs ? 6e6 : 20e6) + (sampled ? 4.0 * (double)run->info.n_parameters : 0);
}

double train_memory(const train_run *run)
{
    const attn_trainer_info *i = &run->info;
    return (double)(i->state_bytes + i->activation_bytes + i->scratch_bytes) + program_bytes(run);
}

void train_show_plan(const train_run *run, double seconds_per_step)
{
    static const char *const names[] = {"gpt2", "llama", "bert", "encdec"};
    const attn_trainer_info *i = &run->info;
    const train_settings *s = &run->s;
    const double tokens = (double)(s->batch * s->length * s->accumulate);
    char time_left[32];
    printf("model       %s, %lld layers, %lld heads, width %lld, feed-forward %lld, context %lld, vocabulary %lld\n",
           names[i->options.arch], (long long)i->options.n_layers, (long long)i->options.n_heads,
           (long long)i->options.d_model, (long long)i->options.d_ff, (long long)i->options.context,
           (long long)i->options.vocab_size);
    printf("parameters  %.2f million\n", (double)i->n_parameters / 1e6);
    printf("memory      %.0f MB: weights, gradient and moments %.0f, activations %.0f, program %.0f\n", train_memory(run) / 1e6,
           (double)i->state_bytes / 1e6, (double)(i->activation_bytes + i->scratch_bytes) / 1e6, program_bytes(run) / 1e6);
    printf("steps       %lld of %.0f tokens; learning rate %g after %lld steps, %g at the end\n",
           (long long)s->schedule.steps, tokens, s->schedule.peak, (long long)s->schedule.warmup, s->schedule.last);
    if (seconds_per_step > 0)
        printf("time        about %s here (%.0f tokens/s, %.0f %% of the rate of large products, measured now)\n",
               duration(seconds_per_step * (double)s->schedule.steps, time_left), tokens / seconds_per_step,
               100 * i->flops_per_token * tokens / seconds_per_step / run->rate);
}

/* ---- Progress ---- */

/* Two blanks become one. */
static void squeeze(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++)
        if (from[0] != ' ' || from[1] != ' ')
            *to++ = *from;
    *to = '\0';
}

/* The bar with the rest of its way, in at most `columns`. */
static void show_bar(const cli_term *term, double share, int columns)
{
    enum { MOST = 16 };
    const int n = columns < MOST ? columns : MOST;
    if (n < 4)
        return;
    cli_bar(term, share, n);
    fputs(cli_dim(term), stdout);
    for (int i = (int)ceil((double)lround(share * n * 8) / 8); i < n; i++)
        fputs("\xc2\xb7", stdout);
    printf("%s ", cli_reset(term));
}

/* One line, on a terminal never longer than it: a line that wraps could not be written over. */
void train_show_progress(const train_run *run, int64_t step, double loss, double tokens_per_second)
{
    const cli_term term = cli_term_of(stdout);
    const int64_t last = run->s.schedule.steps;
    const double tokens = (double)((last - step) * run->s.batch * run->s.length * run->s.accumulate);
    char left[32], validation[64] = "", share[32], line[256];
    const int room = run->interactive ? term.width - 1 : (int)sizeof line - 1;
    if (isfinite(run->validation.loss))
        snprintf(validation, sizeof validation, isfinite(run->validation.exact) ? "  val %.4f  exact %.1f %%" : "  val %.4f",
                 run->validation.loss, 100 * run->validation.exact);
    snprintf(share, sizeof share, "  %.0f %% of GEMM", 100 * run->info.flops_per_token * tokens_per_second / run->rate);
    for (int shorter = 0; shorter < 3; shorter++) {
        const int n = snprintf(line, sizeof line, "step %lld/%lld  loss %.4f%s  %.0f tok/s%s  %s left", (long long)step,
                               (long long)last, loss, validation, tokens_per_second, shorter > 1 ? "" : share,
                               duration(tokens / tokens_per_second, left));
        if (shorter)
            squeeze(line);
        if (n <= room || (int)strlen(line) <= room)
            break;
    }
    if (run->interactive) {
        printf("\r\033[K");
        show_bar(&term, (double)step / (double)last, room - (int)strlen(line) - 1);
    }
    printf("%.*s", room, line);
    if (!run->interactive)
        putchar('\n');
    fflush(stdout);
}

void train_end_progress(const train_run *run)
{
    if (run->interactive)
        printf("\r\033[K");
    fflush(stdout);
}

/* ---- Log and curve ---- */

void train_log(train_run *run, json_t *line)
{
    char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(7));
    if (text && run->log)
        fprintf(run->log, "%s\n", text);
    free(text);
    json_decref(line);
}

static double number_of(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

attn_train_point *train_points(const train_settings *s, int64_t *n)
{
    char *log = train_path(s, "log.jsonl"), text[1024];
    attn_train_point *points = NULL;
    int64_t capacity = 0;
    FILE *file = log ? fopen(log, "r") : NULL;
    *n = 0;
    while (file && fgets(text, sizeof text, file)) {
        json_t *line = json_loads(text, 0, NULL);
        const json_t *step = json_object_get(line, "step");
        if (*n == capacity) {
            capacity = 2 * capacity + 1024;
            attn_train_point *more = realloc(points, (size_t)capacity * sizeof *more);
            if (!more) {
                json_decref(line);
                break;
            }
            points = more;
        }
        if (json_is_integer(step) && *n > 0 && json_integer_value(step) == points[*n - 1].step) {
            const double late = number_of(line, "validation"); /* made up for when resumed */
            points[*n - 1].validation = isfinite(late) ? late : points[*n - 1].validation;
        }
        if (json_is_integer(step) && (*n == 0 || json_integer_value(step) > points[*n - 1].step))
            points[(*n)++] = (attn_train_point){json_integer_value(step), number_of(line, "loss"),
                                                number_of(line, "validation")};
        json_decref(line);
    }
    if (file)
        fclose(file);
    free(log);
    if (*n > 0)
        return points;
    free(points);
    return NULL;
}

void train_draw(const train_run *run)
{
    char *svg = train_path(&run->s, "loss.svg"), *png = train_path(&run->s, "loss.png"), title[96];
    int64_t n = 0;
    if (run->log)
        fflush(run->log);
    attn_train_point *points = train_points(&run->s, &n);
    int used = snprintf(title, sizeof title, "%.2f M parameters", (double)run->info.n_parameters / 1e6);
    if (isfinite(run->whole.loss)) /* over other text than the curve: not a point of it */
        snprintf(title + used, sizeof title - (size_t)used, "; whole validation %.4f", run->whole.loss);
    if (points && svg && png && attn_train_draw_curve(points, n, title, svg, png) != ATTN_OK)
        cli_error("train", "no curve: %s", attn_model_error(NULL));
    free(points);
    free(svg);
    free(png);
}

/* ---- Samples ---- */

enum { SAMPLE_TOKENS = 60 };

static void print_ids(const attn_tokenizer *tokenizer, const int32_t *ids, int64_t n)
{
    char text[4096];
    size_t bytes = 0;
    if (attn_tokenizer_decode(tokenizer, ids, n, ATTN_DECODE_SKIP_SPECIAL, text, sizeof text, &bytes) == ATTN_OK)
        cli_print_safe(text, bytes < sizeof text ? bytes : sizeof text);
}

/* A decoder: how it continues the prompt. */
static void show_continuation(const train_run *run, attn_session *session, int64_t step)
{
    const char *prompt = run->s.prompt && run->s.prompt[0] ? run->s.prompt : "The ";
    int32_t tokens[SAMPLE_TOKENS];
    int64_t made = 0, n;
    attn_encoding *encoding;
    attn_generate_args a;
    if (attn_encoding_create(&encoding) != ATTN_OK)
        return;
    ATTN_ARGS_INIT(&a);
    ATTN_ARGS_INIT(&a.sampling);
    const bool encoded =
        attn_tokenizer_encode(run->tokenizer, prompt, strlen(prompt), NULL, 0, NULL, encoding) == ATTN_OK;
    n = encoded ? attn_encoding_length(encoding) : 0;
    a.prompts = attn_encoding_ids(encoding);
    a.prompt_lengths = &n;
    a.max_new = SAMPLE_TOKENS;
    a.sampling.temperature = 0.8;
    a.sampling.top_k = 50;
    a.sampling.seed = run->s.order_seed;
    a.tokens = tokens;
    a.token_stride = SAMPLE_TOKENS;
    a.n_generated = &made;
    if (n > 0 && attn_generate(session, &a) == ATTN_OK) {
        train_end_progress(run);
        printf("sample after step %lld:\n", (long long)step);
        print_ids(run->tokenizer, a.prompts, n);
        print_ids(run->tokenizer, tokens, made);
        putchar('\n');
    }
    attn_encoding_destroy(encoding);
}

/* Encoder-decoder: what becomes of the first held-out pairs. */
static void show_pairs(train_run *run, int64_t step)
{
    attn_train_batch batch;
    const int64_t n = run->pairs.n - run->pairs.n_train, shown = n < 3 ? n : 3;
    if (n == 0 || !train_fill_batch(run, true, 0, &batch, NULL))
        return;
    batch.batch = shown < batch.batch ? shown : batch.batch;
    int32_t *out = malloc((size_t)(batch.batch * batch.length) * sizeof *out);
    int64_t *lengths = malloc((size_t)batch.batch * sizeof *lengths);
    if (out && lengths && attn_trainer_translate(run->trainer, &batch, batch.length, out, lengths) == ATTN_OK) {
        train_end_progress(run);
        printf("samples after step %lld:\n", (long long)step);
        for (int64_t b = 0; b < batch.batch; b++) {
            fputs("  ", stdout);
            print_ids(run->tokenizer, run->source + b * batch.source_length, run->source_lengths[b]);
            fputs(" -> ", stdout);
            print_ids(run->tokenizer, out + b * batch.length, lengths[b]);
            putchar('\n');
        }
    }
    free(out);
    free(lengths);
}

/* A masked model: the held-out text's beginning, with its likeliest token where one was hidden. */
static void show_guesses(train_run *run, attn_session *session, int64_t step)
{
    const int64_t n = run->s.length < SAMPLE_TOKENS ? run->s.length : SAMPLE_TOKENS, vocab = run->vocab_size;
    attn_train_batch batch;
    attn_forward_args a;
    attn_train_data_info info;
    float *logits = malloc((size_t)(n * vocab) * sizeof *logits);
    ATTN_ARGS_INIT(&a);
    ATTN_ARGS_INIT(&info);
    attn_train_data_get_info(run->data, &info);
    a.tokens = run->tokens;
    a.n_tokens = n;
    a.logits = logits;
    a.logits_rows = ATTN_LOGITS_ALL;
    if (logits && train_fill_batch(run, info.n_validation > run->s.length, 0, &batch, NULL) &&
        attn_model_forward(session, &a) == ATTN_OK) {
        train_end_progress(run);
        printf("sample after step %lld ({guess/hidden token}):\n", (long long)step);
        for (int64_t i = 0; i < n; i++) {
            const float *here = logits + i * vocab;
            int32_t best = 0;
            for (int32_t v = 1; v < vocab; v++)
                best = here[v] > here[best] ? v : best;
            if (run->targets[i] < 0) {
                print_ids(run->tokenizer, run->tokens + i, 1);
                continue;
            }
            putchar('{');
            print_ids(run->tokenizer, &best, 1);
            if (best != run->targets[i]) {
                putchar('/');
                print_ids(run->tokenizer, run->targets + i, 1);
            }
            putchar('}');
        }
        putchar('\n');
    }
    free(logits);
}

/* The exported model is loaded as any other would be: what is shown is what users get. */
void train_show_sample(train_run *run, int64_t step)
{
    attn_model *model;
    attn_session *session = NULL;
    if (run->info.options.arch == ATTN_TRAIN_ENCDEC) {
        show_pairs(run, step);
        return;
    }
    if (attn_model_load(run->s.folder, NULL, &model) != ATTN_OK)
        return;
    if (attn_session_create(model, NULL, &session) == ATTN_OK) {
        if (run->info.options.arch == ATTN_TRAIN_BERT)
            show_guesses(run, session, step);
        else
            show_continuation(run, session, step);
    }
    attn_session_destroy(session);
    attn_model_destroy(model);
}
