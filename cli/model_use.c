/* model_use.c - finding and loading a model, its tokens, and progress. */
#include "model_use.h"
#include "fetch.h"

#include "attn/viz.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- Finding ------------------------------------------------------------------------------- */

/* The folder of the cache; false when neither XDG_CACHE_HOME nor HOME is set or it is too long. */
static bool cache_folder(char *out, size_t capacity)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (cache && cache[0] == '/')
        n = snprintf(out, capacity, "%s/attn", cache);
    else if (home && *home)
        n = snprintf(out, capacity, "%s/.cache/attn", home);
    else
        return false;
    return n > 0 && (size_t)n < capacity;
}

static bool readable(const char *path)
{
    return access(path, R_OK) == 0;
}

/* Gets a default model that is missing into the cache. */
static bool fetched(const char *command, const char *folder, const char *name)
{
    static const char *const known[] = {CLI_DEFAULT_MODEL, CLI_DEFAULT_EMBEDDER};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i]) == 0)
            return cli_fetch_model(command, name, folder);
    return false;
}

/* The small model of the repository, beside the build or where it was installed: what `attn run` and `attn generate` show
 * where the real one cannot be had. */
static bool shipped_model(const char *command, char *path, size_t capacity)
{
    static const char *const places[] = {"../models/austen", "../share/attn/austen"};
    char program[2048];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(program, '/');
    if (!slash || (strcmp(command, "run") != 0 && strcmp(command, "generate") != 0))
        return false;
    *slash = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char weights[4096];
        int used = snprintf(path, capacity, "%s/%s", program, places[i]);
        if (used <= 0 || (size_t)used >= capacity)
            continue;
        snprintf(weights, sizeof weights, "%s/model.safetensors", path);
        if (!readable(weights))
            continue;
        fprintf(stderr, "attn %s: no %s at hand; using the small model that comes with attn, which knows little (%s)\n",
                command, CLI_DEFAULT_MODEL, path);
        return true;
    }
    return false;
}

int cli_model_find(const char *command, const char *name, const char *default_name, char *path,
                   size_t capacity)
{
    static const char *const endings[] = {"", ".gguf", ".safetensors"};
    char folder[2048];
    const char *wanted = name ? name : default_name;
    bool have_folder = cache_folder(folder, sizeof folder);
    if (name && readable(name) && strlen(name) < capacity) {
        strcpy(path, name);
        return CLI_OK;
    }
    for (size_t i = 0; have_folder && !strchr(wanted, '/') && i < sizeof endings / sizeof *endings;
         i++) {
        int n = snprintf(path, capacity, "%s/%s%s", folder, wanted, endings[i]);
        if (n > 0 && (size_t)n < capacity && readable(path))
            return CLI_OK;
    }
    if (have_folder && !strchr(wanted, '/') && fetched(command, folder, wanted)) {
        int n = snprintf(path, capacity, "%s/%s", folder, wanted);
        if (n > 0 && (size_t)n < capacity && readable(path))
            return CLI_OK;
    }
    if (!name && strcmp(wanted, CLI_DEFAULT_MODEL) == 0 && shipped_model(command, path, capacity))
        return CLI_OK;
    if (name)
        cli_error(command,
                  "no model '%s' here or in %s; give a file, a folder, or a name from there", name,
                  have_folder ? folder : "a cache folder (HOME is not set)");
    else
        cli_error(command, "no model %s/%s; './dev model %s' fetches it, or name one: --model PATH",
                  have_folder ? folder : "~/.cache/attn", default_name, default_name);
    return CLI_NO_MODEL;
}

/* ---- Loading ------------------------------------------------------------------------------- */

static volatile sig_atomic_t asked_to_stop; /* the signal; 0: none */

int cli_model_failed(const char *command, const char *what, attn_status status)
{
    const char *why = asked_to_stop ? "stopped" : attn_model_error(NULL);
    cli_error(command, "%s%s%s", what, what[0] ? ": " : "",
              why[0] ? why : attn_status_string(status));
    return CLI_FAILED;
}

bool cli_parse_weights(const char *command, const char *text, int32_t *weights)
{
    static const char *const names[] = {[ATTN_WEIGHTS_AS_STORED] = "stored",
                                        [ATTN_WEIGHTS_F32] = "f32",
                                        [ATTN_WEIGHTS_BF16] = "bf16",
                                        [ATTN_WEIGHTS_I8] = "int8"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0) {
            *weights = (*weights & (CLI_ACT_I8 | CLI_ACT_BF16)) | (int32_t)i;
            return true;
        }
    cli_error(command, "--weights is '%s'; it must be stored, f32, bf16 or int8", text);
    return false;
}

int cli_model_load(const char *command, const char *name, const char *default_name,
                   int32_t n_threads, int32_t weights, cli_model *m)
{
    attn_model_options options;
    attn_status status;
    cli_progress progress;
    int code;
    memset(m, 0, sizeof *m);
    code = cli_model_find(command, name, default_name, m->path, sizeof m->path);
    if (code != CLI_OK)
        return code;
    progress = cli_progress_start("loading the model", NULL);
    ATTN_ARGS_INIT(&options);
    options.n_threads = n_threads;
    options.weights = weights & ~(CLI_ACT_I8 | CLI_ACT_BF16);
    options.flags = (weights & CLI_ACT_I8 ? (uint32_t)ATTN_LOAD_ACT_I8 : 0) |
                    (weights & CLI_ACT_BF16 ? (uint32_t)ATTN_LOAD_ACT_BF16 : 0);
    options.progress = cli_progress_step;
    options.progress_user = &progress;
    status = attn_model_load(m->path, &options, &m->model);
    cli_progress_end(&progress);
    if (status != ATTN_OK)
        return cli_model_failed(command, "", status);
    ATTN_ARGS_INIT(&m->info);
    status = attn_model_get_info(m->model, &m->info);
    if (status != ATTN_OK) {
        code = cli_model_failed(command, m->path, status);
        cli_model_close(m);
        return code;
    }
    return CLI_OK;
}

int cli_model_session(const char *command, cli_model *m, const attn_session_options *options)
{
    attn_status status = attn_session_create(m->model, options, &m->session);
    return status == ATTN_OK ? CLI_OK : cli_model_failed(command, "session", status);
}

void cli_model_close(cli_model *m)
{
    attn_session_destroy(m->session);
    attn_model_destroy(m->model);
    m->session = NULL;
    m->model = NULL;
}

/* ---- Tokens -------------------------------------------------------------------------------- */

bool cli_tokenize(const char *command, const cli_model *m, const char *text, size_t bytes,
                  uint32_t flags, int32_t **ids, int64_t *n_ids)
{
    return cli_tokenize_named(command, "text", m, text, bytes, flags, ids, n_ids);
}

bool cli_tokenize_named(const char *command, const char *name, const cli_model *m, const char *text, size_t bytes,
                        uint32_t flags, int32_t **ids, int64_t *n_ids)
{
    int64_t capacity = (int64_t)bytes + 16; /* nearly always enough: a token is a byte or more */
    attn_status status = ATTN_ERR_OUT_OF_MEMORY;
    *n_ids = 0;
    *ids = malloc((size_t)capacity * sizeof **ids);
    if (*ids)
        status = attn_model_tokenize(m->model, text, bytes, flags, *ids, capacity, n_ids);
    if (status == ATTN_OK && *n_ids > capacity) {
        free(*ids);
        capacity = *n_ids;
        *ids = malloc((size_t)capacity * sizeof **ids);
        status = *ids ? attn_model_tokenize(m->model, text, bytes, flags, *ids, capacity, n_ids)
                      : ATTN_ERR_OUT_OF_MEMORY;
    }
    if (status == ATTN_OK)
        return true;
    cli_model_failed(command, name, status);
    free(*ids);
    *ids = NULL;
    return false;
}

char *cli_token_text(const cli_model *m, int32_t id, size_t *bytes)
{
    char *text;
    *bytes = 0;
    if (attn_model_detokenize(m->model, &id, 1, 0, NULL, 0, bytes) != ATTN_OK)
        *bytes = 0;
    text = calloc(*bytes + 1, 1);
    if (text && *bytes > 0 &&
        attn_model_detokenize(m->model, &id, 1, 0, text, *bytes, bytes) != ATTN_OK)
        *bytes = 0;
    return text;
}

/* The byte that a character of a byte-level vocabulary stands for (GPT-2's table: printable Latin-1
 * stands for itself, the other bytes, in order, for U+0100 and up); -1: none. */
static int byte_of(uint32_t code)
{
    uint32_t next = 0x100;
    if ((code >= 33 && code <= 126) || (code >= 161 && code <= 172) || (code >= 174 && code <= 255))
        return (int)code;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        if (!itself && next++ == code)
            return (int)byte;
    }
    return -1;
}

/* The bytes of a token whose text alone is no whole character, from the vocabulary's spelling;
 * false where the vocabulary is not byte-level. Spellings use code points below U+0800: one or two
 * bytes each. */
static bool bytes_of_spelling(const char *spelling, char *out, size_t *n)
{
    *n = 0;
    for (const unsigned char *s = (const unsigned char *)spelling; *s;) {
        uint32_t code = *s++;
        int byte;
        if (code >= 0x80) {
            if ((code & 0xE0) != 0xC0 || (*s & 0xC0) != 0x80)
                return false;
            code = (code & 0x1F) << 6 | (*s++ & 0x3Fu);
        }
        byte = byte_of(code);
        if (byte < 0)
            return false;
        out[(*n)++] = (char)byte;
    }
    return true;
}

char *cli_token_bytes(const cli_model *m, int32_t id, size_t *bytes)
{
    const char *spelling = attn_model_token(m->model, id);
    char *text = cli_token_text(m, id, bytes), *raw;
    size_t n;
    if (!text || !spelling || !strstr(text, "\xEF\xBF\xBD"))
        return text;
    raw = calloc(strlen(spelling) + 1, 1);
    if (!raw || !bytes_of_spelling(spelling, raw, &n)) {
        free(raw);
        return text;
    }
    free(text);
    *bytes = n;
    return raw;
}

void cli_token_visible(const cli_model *m, int32_t id, int max_columns, char *out, size_t capacity)
{
    size_t bytes;
    char *text = cli_token_bytes(m, id, &bytes);
    attn_text_visible(text ? text : "", text ? bytes : 0, max_columns, out, capacity, NULL);
    free(text);
}

char *cli_words(const char *command, int argc, char **argv, int first, size_t *bytes)
{
    size_t needed = 1;
    char *text;
    *bytes = 0;
    if (first == argc - 1 && strcmp(argv[first], "-") == 0) {
        if (!cli_read_all(command, "-", &text, bytes))
            return NULL;
        if (*bytes > 0 && text[*bytes - 1] == '\n')
            text[--*bytes] = '\0';
        if (*bytes > 0 && text[*bytes - 1] == '\r')
            text[--*bytes] = '\0';
        return text;
    }
    for (int i = first; i < argc; i++)
        needed += strlen(argv[i]) + 1;
    text = calloc(needed, 1);
    if (!text)
        cli_error(command, "out of memory");
    for (int i = first; text && i < argc; i++) {
        strcat(strcat(text, i > first ? " " : ""), argv[i]);
        *bytes = strlen(text);
    }
    return text;
}

/* ---- Log-probabilities ------------------------------------------------------------------- */

double cli_log_sum_exp(const float *logits, int64_t n)
{
    double largest = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, logits[i]);
    for (int64_t i = 0; i < n; i++)
        sum += exp(logits[i] - largest);
    return largest + log(sum);
}

attn_status cli_logprobs(cli_model *m, const int32_t *ids, int64_t n, int64_t from,
                         double *logprobs)
{
    enum { CHUNK = 32 };
    int64_t vocab = m->info.vocab_size;
    float *logits = malloc((size_t)(CHUNK * vocab) * sizeof *logits);
    attn_status status = logits ? attn_session_truncate(m->session, 0, 0) : ATTN_ERR_OUT_OF_MEMORY;
    for (int64_t first = 0; status == ATTN_OK && first < n - 1;) {
        attn_forward_args args;
        bool wanted = first >= from - 1;
        int64_t end =
            wanted ? first + CHUNK : from - 1; /* tokens that are context only: one pass */
        end = end < n - 1 ? end : n - 1;
        ATTN_ARGS_INIT(&args);
        args.tokens = ids + first;
        args.n_tokens = end - first;
        args.logits = wanted ? logits : NULL;
        args.logits_rows = ATTN_LOGITS_ALL;
        status = attn_model_forward(m->session, &args);
        for (int64_t i = first; wanted && status == ATTN_OK && i < end; i++) {
            const float *row = logits + (i - first) * vocab;
            logprobs[i + 1 - from] = row[ids[i + 1]] - cli_log_sum_exp(row, vocab);
        }
        first = end;
    }
    free(logits);
    return status;
}

/* ---- Options and names that several commands share ------------------------------------------ */

bool cli_parse_kv_type(const char *command, const char *text, int32_t *dtype)
{
    static const struct {
        const char *name;
        int32_t dtype;
    } types[] = {{"f32", ATTN_F32}, {"bf16", ATTN_BF16}, {"f16", ATTN_F16}, {"int8", ATTN_I8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(text, types[i].name) == 0) {
            *dtype = types[i].dtype;
            return true;
        }
    cli_error(command, "--kv-type is '%s'; it must be f32, bf16, f16 or int8", text);
    return false;
}

const char *cli_stop_name(int32_t reason)
{
    static const char *const names[] = {"length", "end", "context", "callback", "text"};
    return reason >= 0 && reason < 5 ? names[reason] : "unknown";
}

int cli_take_sampling(const char *command, cli_sampling *s, int option, const char *value)
{
    int64_t seed = 0;
    bool good = true;
    attn_sampling *o = &s->options;
    s->temperature_given = s->temperature_given || option == CLI_OPT_TEMP;
    s->sampled = s->sampled || option == CLI_OPT_TOP_K || option == CLI_OPT_TOP_P ||
                 option == CLI_OPT_MIN_P || option == CLI_OPT_SEED;
    switch (option) {
    case CLI_OPT_TEMP:
        good = cli_parse_real(command, "--temp", value, 0.0, 1000.0, &o->temperature);
        break;
    case CLI_OPT_TOP_K:
        good = cli_parse_int(command, "--top-k", value, 0, 1000000000, &o->top_k);
        break;
    case CLI_OPT_TOP_P:
        o->flags |= ATTN_SAMPLING_TOP_P_GIVEN;
        good = cli_parse_real(command, "--top-p", value, 0.0, 1.0, &o->top_p);
        break;
    case CLI_OPT_MIN_P:
        good = cli_parse_real(command, "--min-p", value, 0.0, 1.0, &o->min_p);
        break;
    case CLI_OPT_PENALTY:
        o->flags |= ATTN_SAMPLING_PENALTY_GIVEN;
        good = cli_parse_real(command, "--repetition-penalty", value, 1e-3, 1e3,
                              &o->repetition_penalty);
        break;
    case CLI_OPT_SEED:
        good = cli_parse_int(command, "--seed", value, 0, INT64_MAX, &seed);
        o->seed = (uint64_t)seed;
        break;
    default:
        return 0;
    }
    return good ? 1 : -1;
}

void cli_finish_sampling(cli_sampling *s)
{
    if (s->sampled && !s->temperature_given)
        s->options.temperature = 1.0;
}

/* Decoded text may be part of a character: what is not UTF-8 becomes U+FFFD, since JSON holds text.
 */
json_t *cli_text_json(const char *text, size_t bytes)
{
    json_t *whole = json_stringn(text, bytes);
    if (!whole) {
        size_t used = 0;
        char *clean = malloc(3 * bytes + 1);
        for (size_t i = 0; clean && i < bytes;) {
            size_t take = 1;
            json_t *probe = NULL;
            for (; take <= 4 && i + take <= bytes && !probe; take++)
                probe = json_stringn(text + i, take);
            memcpy(clean + used, probe ? text + i : "\xEF\xBF\xBD", probe ? take - 1 : 3);
            used += probe ? take - 1 : 3;
            i += probe ? take - 1 : 1;
            json_decref(probe);
        }
        whole = clean ? json_stringn(clean, used) : NULL;
        free(clean);
    }
    return whole;
}

/* ---- Progress ------------------------------------------------------------------------------ */

double cli_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

cli_progress cli_progress_start(const char *label, const char *unit)
{
    cli_progress p = {label, cli_seconds(), 0.0, isatty(STDERR_FILENO) == 1, false, unit, 0, 0, 0};
    return p;
}

static void on_signal(int number)
{
    asked_to_stop = number;
    signal(number, SIG_DFL); /* a second one ends the process at once */
}

void cli_stop_in_order(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (signal(signals[i], on_signal) == SIG_IGN)
            signal(signals[i], SIG_IGN);
}

int cli_progress_step(void *progress, int64_t done, int64_t total)
{
    enum { COLUMNS = 30 };
    cli_progress *p = progress;
    double now = cli_seconds(), share = total > 0 ? (double)done / (double)total : 0.0,
           units = (double)done;
    if (p->whole > 0) {
        units = (double)p->base + share * (double)p->part;
        share = units / (double)p->whole;
    }
    if (asked_to_stop || !p->terminal || now - p->start < 0.5 || (now - p->last < 0.1 && done < total))
        return asked_to_stop;
    p->last = now;
    p->shown = true;
    fprintf(stderr, "\r%s ", p->label);
    for (int c = 0; c < COLUMNS; c++)
        fputs(share * COLUMNS >= c + 1 ? "█" : share * COLUMNS >= c + 0.5 ? "▌" : "·", stderr);
    fprintf(stderr, " %3.0f %%", 100 * share);
    if (p->unit && units > 0)
        fprintf(stderr, "  %.0f %s/s, %.0f s left ", units / (now - p->start), p->unit,
                (now - p->start) * (1 - share) / (share > 0 ? share : 1));
    fflush(stderr);
    return 0;
}

void cli_progress_end(cli_progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}

/* ---- Numbers for people -------------------------------------------------------------------- */

static void scaled_text(int64_t n, const char *const units[4], char out[32])
{
    double x = (double)n;
    int unit = 0;
    while (x >= 999.5 && unit < 3) {
        x /= 1000;
        unit++;
    }
    if (unit == 0)
        snprintf(out, 32, "%lld%s", (long long)n, units[0]);
    else
        snprintf(out, 32, "%.*f%s", x < 9.995 ? 2 : x < 99.95 ? 1 : 0, x, units[unit]);
}

void cli_count_text(int64_t count, char out[32])
{
    static const char *const units[4] = {"", " k", " M", " G"};
    scaled_text(count, units, out);
}

void cli_bytes_text(int64_t bytes, char out[32])
{
    static const char *const units[4] = {" bytes", " kB", " MB", " GB"};
    scaled_text(bytes, units, out);
}

void cli_grouped_text(int64_t number, char out[32])
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%lld", (long long)number), at = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0 && digits[i - 1] != '-')
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
}
