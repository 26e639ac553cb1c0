/* cmd_generate.c - `attn generate`: texts continued by a model, one or many at once. */
#include "model_use.h"

#include "chat.h"

#include <getopt.h>
#include <stdlib.h>

enum { MOST_STOPS = 16, MOST_PROMPTS = 4096 };

typedef struct generate_options {
    const char *model, *lines, *system;
    int32_t n_threads, kv_type, weights;
    int64_t n_new, context;
    cli_sampling sampling;
    const char *stops[MOST_STOPS];
    int64_t n_stops;
    bool json, chat, ignore_end, replace_invalid;
} generate_options;

/* One prompt and what came of it. */
typedef struct generate_entry {
    char *prompt;
    size_t prompt_bytes;
    int32_t *ids;
    int64_t n_ids;
    int32_t *new_ids;
    double *logprobs;
    int64_t n_new, capacity;
    char *text;
    size_t text_bytes, text_capacity;
} generate_entry;

typedef struct generate_state {
    const generate_options *options;
    cli_model m;
    generate_entry *entries;
    int64_t n_entries;
    bool streaming, failed;
    int64_t *lengths, *n_generated;
    int32_t *stop_reasons, *prompts;
    uint64_t *seeds;
    double seconds;
} generate_state;

/* ---- Prompts --------------------------------------------------------------------------------- */

static bool add_prompt(generate_state *s, const char *text, size_t bytes)
{
    generate_entry *e;
    if (s->n_entries == MOST_PROMPTS) {
        cli_error("generate", "more than %d prompts", MOST_PROMPTS);
        return false;
    }
    e = &s->entries[s->n_entries];
    e->prompt = malloc(bytes + 1);
    if (!e->prompt) {
        cli_error("generate", "out of memory");
        return false;
    }
    memcpy(e->prompt, text, bytes);
    e->prompt[bytes] = '\0';
    e->prompt_bytes = bytes;
    s->n_entries++;
    return true;
}

/* Each word of the command line is a prompt, "-" is standard input; --lines FILE: each line of it. An exit code. */
static int read_prompts(generate_state *s, int argc, char **argv)
{
    bool good = true;
    for (int i = optind; good && i < argc; i++) {
        size_t bytes;
        char *text = cli_words("generate", i + 1, argv, i, &bytes);
        good = text && add_prompt(s, text, bytes);
        free(text);
    }
    if (good && s->options->lines) {
        char *text;
        size_t bytes;
        good = cli_read_all("generate", s->options->lines, &text, &bytes);
        for (size_t at = 0; good && at < bytes;) {
            const char *end = memchr(text + at, '\n', bytes - at);
            size_t length = end ? (size_t)(end - text) - at : bytes - at;
            size_t next = at + length + 1;
            if (length > 0 && text[at + length - 1] == '\r')
                length--;
            good = length == 0 || add_prompt(s, text + at, length);
            at = next;
        }
        free(text);
    }
    if (good && s->n_entries == 0) {
        cli_error("generate", "no prompt given");
        cli_hint("for example: attn generate \"Once upon a time\"");
        return CLI_USAGE;
    }
    return good ? CLI_OK : CLI_FAILED;
}

static bool tokenize_entry(generate_state *s, generate_entry *e)
{
    uint32_t flags = s->options->replace_invalid ? ATTN_TEXT_REPLACE_INVALID : 0;
    const char *text = e->prompt;
    size_t bytes = e->prompt_bytes;
    char *wrapped = NULL;
    bool good;
    if (s->options->chat) {
        wrapped =
            chat_prompt("generate", &s->m, s->options->system, e->prompt, e->prompt_bytes, &bytes, &flags);
        if (!wrapped)
            return false;
        text = wrapped;
    }
    good = cli_tokenize("generate", &s->m, text, bytes, flags, &e->ids, &e->n_ids);
    free(wrapped);
    if (good && e->n_ids == 0) {
        cli_error("generate", "a prompt is empty");
        return false;
    }
    return good;
}

/* ---- Tokens as they come --------------------------------------------------------------------- */

static bool grow(generate_entry *e)
{
    int64_t capacity = e->capacity ? 2 * e->capacity : 256;
    int32_t *ids = realloc(e->new_ids, (size_t)capacity * sizeof *ids);
    double *logprobs = ids ? realloc(e->logprobs, (size_t)capacity * sizeof *logprobs) : NULL;
    e->new_ids = ids ? ids : e->new_ids;
    e->logprobs = logprobs ? logprobs : e->logprobs;
    e->capacity = logprobs ? capacity : e->capacity;
    return logprobs != NULL;
}

static bool append_text(generate_entry *e, const char *text, size_t bytes)
{
    if (e->text_bytes + bytes > e->text_capacity) {
        size_t capacity = 2 * (e->text_bytes + bytes) + 256;
        char *larger = realloc(e->text, capacity);
        if (!larger)
            return false;
        e->text = larger;
        e->text_capacity = capacity;
    }
    if (bytes > 0)
        memcpy(e->text + e->text_bytes, text, bytes);
    e->text_bytes += bytes;
    return true;
}

static int on_token(void *user, const attn_generated *t)
{
    generate_state *s = user;
    generate_entry *e = &s->entries[t->entry];
    if ((e->n_new == e->capacity && !grow(e)) ||
        (t->text && !append_text(e, t->text, t->n_bytes))) {
        s->failed = true;
        return 1;
    }
    if (t->token >= 0) {
        e->new_ids[e->n_new] = t->token;
        e->logprobs[e->n_new] = t->logprob;
        e->n_new++;
    }
    if (s->streaming && t->text && t->n_bytes > 0) {
        cli_print_safe(t->text, t->n_bytes);
        fflush(stdout);
    }
    return 0;
}

/* ---- The run --------------------------------------------------------------------------------- */

static attn_status generate_all(generate_state *s)
{
    const generate_options *o = s->options;
    attn_generate_args args;
    int64_t total = 0, at = 0;
    double start;
    attn_status status;
    for (int64_t i = 0; i < s->n_entries; i++)
        total += s->entries[i].n_ids;
    s->lengths = calloc((size_t)s->n_entries, sizeof *s->lengths);
    s->n_generated = calloc((size_t)s->n_entries, sizeof *s->n_generated);
    s->stop_reasons = calloc((size_t)s->n_entries, sizeof *s->stop_reasons);
    s->prompts = calloc((size_t)total, sizeof *s->prompts);
    if (!s->lengths || !s->n_generated || !s->stop_reasons || !s->prompts)
        return ATTN_ERR_OUT_OF_MEMORY;
    for (int64_t i = 0; i < s->n_entries; i++) {
        s->lengths[i] = s->entries[i].n_ids;
        memcpy(s->prompts + at, s->entries[i].ids, (size_t)s->lengths[i] * sizeof *s->prompts);
        at += s->lengths[i];
    }
    ATTN_ARGS_INIT(&args);
    args.prompts = s->prompts;
    args.prompt_lengths = s->lengths;
    args.max_new = o->n_new;
    args.sampling = o->sampling.options;
    args.stop_texts = o->stops;
    args.n_stop_texts = o->n_stops;
    args.flags = (o->ignore_end ? ATTN_GENERATE_IGNORE_EOS : 0u) |
                 (s->m.info.kind == ATTN_MODEL_ENCODER_DECODER ? ATTN_GENERATE_ENCODE : 0u);
    args.callback = on_token;
    args.callback_user = s;
    args.n_generated = s->n_generated;
    args.stop_reasons = s->stop_reasons;
    start = cli_seconds();
    status = attn_generate(s->m.session, &args);
    s->seconds = cli_seconds() - start;
    return s->failed ? ATTN_ERR_OUT_OF_MEMORY : status;
}

static json_t *entries_json(const generate_state *s)
{
    json_t *list = json_array(), *root = json_object();
    for (int64_t i = 0; i < s->n_entries; i++) {
        const generate_entry *e = &s->entries[i];
        json_t *ids = json_array(), *new_ids = json_array(), *logprobs = json_array();
        for (int64_t t = 0; t < e->n_ids; t++)
            json_array_append_new(ids, json_integer(e->ids[t]));
        for (int64_t t = 0; t < e->n_new; t++) {
            json_array_append_new(new_ids, json_integer(e->new_ids[t]));
            json_array_append_new(logprobs, json_real(e->logprobs[t]));
        }
        json_array_append_new(list, json_pack("{s:o, s:o, s:o, s:o, s:o, s:s}", "text",
                                              cli_text_json(e->prompt, e->prompt_bytes), "ids", ids,
                                              "generated_ids", new_ids, "generated_text",
                                              cli_text_json(e->text ? e->text : "", e->text_bytes),
                                              "logprobs", logprobs, "stop",
                                              cli_stop_name(s->stop_reasons[i])));
    }
    json_object_set_new(root, "model", json_string(s->m.info.name));
    json_object_set_new(root, "results", list);
    return root;
}

/* A decoder goes on where the prompt ends; an encoder-decoder answers it. */
static const char *between(const generate_state *s)
{
    return s->m.info.kind == ATTN_MODEL_ENCODER_DECODER ? " → " : "";
}

/* Several prompts at once: each under its number, when all are done. */
static void show_entries(const cli_term *term, const generate_state *s)
{
    for (int64_t i = 0; i < s->n_entries; i++) {
        const generate_entry *e = &s->entries[i];
        printf("%s%s[%lld]%s ", i ? "\n" : "", cli_bold(term), (long long)i + 1, cli_reset(term));
        fputs(cli_dim(term), stdout);
        cli_print_safe(e->prompt, e->prompt_bytes);
        fputs(between(s), stdout);
        fputs(cli_reset(term), stdout);
        cli_print_safe(e->text ? e->text : "", e->text_bytes);
        putchar('\n');
    }
}

static void tell_rate(const generate_state *s)
{
    cli_term term = cli_term_of(stderr);
    int64_t tokens = 0;
    for (int64_t i = 0; i < s->n_entries; i++)
        tokens += s->entries[i].n_new;
    if (term.colour)
        fprintf(stderr, "%s(%lld tokens in %.2f s)%s\n", cli_dim(&term), (long long)tokens, s->seconds,
                cli_reset(&term));
}

/* A text that is shorter than -n asked for, because no more fits, says so. */
static void tell_full_context(const generate_state *s)
{
    int64_t full = 0;
    for (int64_t i = 0; i < s->n_entries; i++)
        full += s->stop_reasons[i] == ATTN_STOP_CONTEXT;
    if (full == 0)
        return;
    const int64_t most = s->options->context ? s->options->context : s->m.info.context_length;
    fflush(stdout);
    if (s->n_entries == 1)
        fprintf(stderr, "attn generate: the context of %lld tokens is full after %lld of %lld tokens (-n)\n", (long long)most,
                (long long)s->entries[0].n_new, (long long)s->options->n_new);
    else
        fprintf(stderr, "attn generate: the context of %lld tokens is full before %lld tokens (-n) in %lld of %lld texts\n",
                (long long)most, (long long)s->options->n_new, (long long)full, (long long)s->n_entries);
}

static int generate_and_show(generate_state *s)
{
    cli_term term = cli_term_of(stdout);
    attn_status status;
    s->streaming = s->n_entries == 1 && !s->options->json;
    if (s->streaming && term.colour && !s->options->chat) {
        fputs(cli_dim(&term), stdout);
        cli_print_safe(s->entries[0].prompt, s->entries[0].prompt_bytes);
        fputs(between(s), stdout);
        fputs(cli_reset(&term), stdout);
        fflush(stdout);
    }
    status = generate_all(s);
    if (status != ATTN_OK) {
        if (s->streaming && s->entries[0].n_new > 0)
            putchar('\n');
        return cli_model_failed("generate", "", status);
    }
    if (s->options->json) {
        tell_full_context(s);
        return cli_print_json(entries_json(s), 9);
    }
    if (s->streaming)
        putchar('\n');
    else
        show_entries(&term, s);
    fflush(stdout);
    tell_rate(s);
    tell_full_context(s);
    return CLI_OK;
}

static bool fits_context(const generate_state *s, const generate_entry *e)
{
    int64_t most = s->options->context ? s->options->context : s->m.info.context_length;
    if (most <= 0 || e->n_ids <= most)
        return true;
    cli_error("generate", "a prompt has %lld tokens; %s holds %lld", (long long)e->n_ids,
              s->options->context ? "the cache that --ctx asks for" : "the model's context",
              (long long)most);
    return false;
}

static int with_model(generate_state *s)
{
    const generate_options *o = s->options;
    attn_session_options session;
    int code;
    if (s->m.info.kind == ATTN_MODEL_ENCODER || !s->m.info.has_logits) {
        cli_error("generate", "%s is no decoder: it gives no next token", s->m.info.name);
        return CLI_FAILED;
    }
    if (o->context > s->m.info.context_length && s->m.info.context_length > 0) {
        cli_error("generate", "--ctx is %lld; the model's context is %lld", (long long)o->context,
                  (long long)s->m.info.context_length);
        return CLI_USAGE;
    }
    for (int64_t i = 0; i < s->n_entries; i++)
        if (!tokenize_entry(s, &s->entries[i]) || !fits_context(s, &s->entries[i]))
            return CLI_FAILED;
    ATTN_ARGS_INIT(&session);
    session.batch = s->n_entries;
    session.capacity = o->context;
    session.kv_dtype = o->kv_type;
    code = cli_model_session("generate", &s->m, &session);
    return code == CLI_OK ? generate_and_show(s) : code;
}

/* ---- Options --------------------------------------------------------------------------------- */

enum {
    OPT_MODEL = 256,
    OPT_THREADS,
    OPT_WEIGHTS,
    OPT_LINES,
    OPT_STOP,
    OPT_CTX,
    OPT_KV,
    OPT_CHAT,
    OPT_SYSTEM,
    OPT_IGNORE_END,
    OPT_REPLACE,
    OPT_ACT_I8,
    OPT_ACT_BF16,
    OPT_JSON
};

static bool take_option(generate_options *o, int option, const char *value)
{
    int64_t number = 0;
    bool good = true;
    if (option == OPT_MODEL)
        o->model = value;
    else if (option == OPT_THREADS) {
        good = cli_parse_int("generate", "--threads", value, 1, 1024, &number);
        o->n_threads = (int32_t)number;
    } else if (option == OPT_WEIGHTS)
        good = cli_parse_weights("generate", value, &o->weights);
    else if (option == OPT_ACT_I8)
        o->weights |= CLI_ACT_I8;
    else if (option == OPT_ACT_BF16)
        o->weights |= CLI_ACT_BF16;
    else if (option == OPT_LINES)
        o->lines = value;
    else if (option == OPT_STOP && (o->n_stops == MOST_STOPS || !*value)) {
        cli_error("generate",
                  *value ? "more than %d --stop texts" : "--stop is empty (%d are allowed)",
                  MOST_STOPS);
        good = false;
    } else if (option == OPT_STOP)
        o->stops[o->n_stops++] = value;
    else if (option == OPT_CTX)
        good = cli_parse_int("generate", "--ctx", value, 1, 1 << 30, &o->context);
    else if (option == OPT_KV)
        good = cli_parse_kv_type("generate", value, &o->kv_type);
    else if (option == OPT_SYSTEM)
        o->system = value;
    else if (option == 'n')
        good = cli_parse_int("generate", "-n", value, 1, 1 << 30, &o->n_new);
    o->chat = o->chat || option == OPT_CHAT || option == OPT_SYSTEM;
    o->ignore_end = o->ignore_end || option == OPT_IGNORE_END;
    o->replace_invalid = o->replace_invalid || option == OPT_REPLACE;
    o->json = o->json || option == OPT_JSON;
    return good;
}

static int parse(int argc, char **argv, generate_options *o)
{
    static const struct option options[] = {{"model", required_argument, NULL, OPT_MODEL},
                                            {"threads", required_argument, NULL, OPT_THREADS},
                                            {"weights", required_argument, NULL, OPT_WEIGHTS},
                                            {"act-int8", no_argument, NULL, OPT_ACT_I8},
                                            {"act-bf16", no_argument, NULL, OPT_ACT_BF16},
                                            {"lines", required_argument, NULL, OPT_LINES},
                                            {"stop", required_argument, NULL, OPT_STOP},
                                            {"ctx", required_argument, NULL, OPT_CTX},
                                            {"kv-type", required_argument, NULL, OPT_KV},
                                            {"chat", no_argument, NULL, OPT_CHAT},
                                            {"system", required_argument, NULL, OPT_SYSTEM},
                                            {"ignore-end", no_argument, NULL, OPT_IGNORE_END},
                                            {"replace-invalid", no_argument, NULL, OPT_REPLACE},
                                            {"json", no_argument, NULL, OPT_JSON},
                                            CLI_SAMPLING_OPTIONS,
                                            {NULL, 0, NULL, 0}};
    int option;
    memset(o, 0, sizeof *o);
    ATTN_ARGS_INIT(&o->sampling.options);
    o->n_new = 128;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "n:", options, NULL)) != -1) {
        int taken;
        if (option == '?')
            return cli_bad_option("generate", argv);
        taken = cli_take_sampling("generate", &o->sampling, option, optarg);
        if (taken < 0 || (taken == 0 && !take_option(o, option, optarg)))
            return CLI_USAGE;
    }
    cli_finish_sampling(&o->sampling);
    return CLI_OK;
}

static void free_state(generate_state *s)
{
    cli_model_close(&s->m);
    for (int64_t i = 0; s->entries && i < s->n_entries; i++) {
        free(s->entries[i].prompt);
        free(s->entries[i].ids);
        free(s->entries[i].new_ids);
        free(s->entries[i].logprobs);
        free(s->entries[i].text);
    }
    free(s->entries);
    free(s->lengths);
    free(s->n_generated);
    free(s->stop_reasons);
    free(s->prompts);
}

static int generate(int argc, char **argv)
{
    generate_options options;
    generate_state s;
    int code = parse(argc, argv, &options);
    if (code != CLI_OK)
        return code;
    memset(&s, 0, sizeof s);
    s.options = &options;
    s.entries = calloc(MOST_PROMPTS, sizeof *s.entries);
    code = s.entries ? read_prompts(&s, argc, argv) : CLI_FAILED;
    if (code == CLI_OK)
        code =
            cli_model_load("generate", options.model, CLI_DEFAULT_MODEL, options.n_threads,
                           options.weights, &s.m);
    if (code == CLI_OK)
        code = with_model(&s);
    free_state(&s);
    return code;
}

const cli_command cli_generate = {
    "generate",
    "continue one or many texts",
    "attn generate - continue one or many texts\n"
    "\n"
    "usage: attn generate [OPTIONS] PROMPT...\n"
    "\n"
    "Each argument is a prompt of its own; - is standard input. One prompt is written as it "
    "comes;\n"
    "several run as one batch, and each gets the same tokens as alone. Only the new text goes to\n"
    "standard output (on a terminal, and for several prompts, behind the prompt).\n"
    "\n"
    "options:\n"
    "  --model PATH       default: the model of attn run\n"
    "  --lines FILE       each line of FILE is a prompt too\n"
    "  -n N               at most N new tokens for each prompt (default 128)\n"
    "  --temp T           sampling temperature; 0 (default): always the likeliest token\n"
    "  --top-k K  --top-p P  --min-p P  --seed S  --repetition-penalty R\n"
    "                     sample among the likeliest only; the first four imply --temp 1\n"
    "  --stop TEXT        end before TEXT (up to 16 of them)\n"
    "  --ignore-end       go on past the model's end token\n"
    "  --chat             the prompt is a message: apply the model's chat template\n"
    "  --system TEXT      with --chat: the system message\n"
    "  --ctx N            tokens that the cache holds, prompt included (default: as needed)\n"
    "  --kv-type TYPE     type of the cache: f32 (default), bf16, f16, int8\n" CLI_WEIGHTS_HELP
    "  --threads N        default: ATTN_NUM_THREADS, else as many as the process may use\n"
    "  --replace-invalid  read bytes that are not UTF-8 as U+FFFD instead of refusing them\n"
    "  --json             prompts, ids, new ids, texts, log-probabilities, why each ended\n"
    "\n"
    "example:\n"
    "  attn generate --chat -n 60 \"Why does a bridge need expansion joints?\"\n"
    "  attn generate --temp 0.8 --top-p 0.95 --seed 7 \"Once upon a time\"\n",
    generate,
};
