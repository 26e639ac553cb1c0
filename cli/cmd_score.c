/* cmd_score.c - `attn score`: how well a model predicts a text: perplexity and bits per byte.
 *
 * Sliding evaluation: windows of --ctx tokens, each --stride further; a window scores only the
 * tokens that the one before has not, so that every token but the first is scored once, with at
 * least ctx - stride tokens before it. */
#include "model_use.h"

#include <getopt.h>
#include <math.h>
#include <stdlib.h>

typedef struct score_options {
    const char *model;
    int32_t n_threads, kv_type, weights;
    int64_t context, stride;
    bool json, replace_invalid;
} score_options;

typedef struct score_result {
    int64_t tokens, scored, scored_bytes, windows;
    double nll; /* sum over scored tokens, nats */
} score_result;

/* Scores all of ids[n]. Window w covers begin .. end - 1 and scores tokens `from` .. end - 1. */
static attn_status score_windows(cli_model *m, const int32_t *ids, int64_t n,
                                 const score_options *o, double *logprobs, score_result *result)
{
    cli_progress progress = cli_progress_start("scoring", "tokens");
    attn_status status = ATTN_OK;
    int64_t scored_to = 1; /* the first token has nothing before it */
    for (int64_t begin = 0; status == ATTN_OK && scored_to < n; begin += o->stride) {
        int64_t end = begin + o->context < n ? begin + o->context : n;
        if (end > scored_to) {
            status = cli_logprobs(m, ids + begin, end - begin, scored_to - begin, logprobs);
            for (int64_t i = 0; status == ATTN_OK && i < end - scored_to; i++)
                result->nll -= logprobs[i];
            scored_to = end;
            result->windows++;
            cli_progress_step(&progress, scored_to, n);
        }
    }
    cli_progress_end(&progress);
    result->scored = scored_to - 1;
    return status;
}

static int score_text(cli_model *m, const char *text, size_t bytes, const score_options *o,
                      score_result *result)
{
    int32_t *ids;
    int64_t n;
    size_t first_bytes = 0;
    double *logprobs;
    attn_status status = ATTN_ERR_OUT_OF_MEMORY;
    if (!cli_tokenize("score", m, text, bytes, o->replace_invalid ? ATTN_TEXT_REPLACE_INVALID : 0,
                      &ids, &n))
        return CLI_FAILED;
    if (n < 2) {
        cli_error("score", "the text has %lld token%s; a score needs at least 2", (long long)n,
                  n == 1 ? "" : "s");
        free(ids);
        return CLI_FAILED;
    }
    result->tokens = n;
    logprobs = malloc((size_t)o->context * sizeof *logprobs);
    if (logprobs)
        status = score_windows(m, ids, n, o, logprobs, result);
    if (status == ATTN_OK)
        status =
            attn_model_detokenize(m->model, ids, 1, ATTN_TEXT_SKIP_SPECIAL, NULL, 0, &first_bytes);
    result->scored_bytes = (int64_t)(bytes - (first_bytes < bytes ? first_bytes : 0));
    free(logprobs);
    free(ids);
    return status == ATTN_OK ? CLI_OK : cli_model_failed("score", "scoring", status);
}

static void show(const score_result *r, const score_options *o)
{
    double mean = r->nll / (double)r->scored;
    if (o->json) {
        json_t *root = json_object();
        json_object_set_new(root, "perplexity",
                            isfinite(exp(mean)) ? json_real(exp(mean)) : json_null());
        json_object_set_new(root, "bits_per_byte",
                            json_real(r->nll / log(2.0) / (double)r->scored_bytes));
        json_object_set_new(root, "nll", json_real(r->nll));
        json_object_set_new(root, "nll_per_token", json_real(mean));
        json_object_set_new(root, "tokens", json_integer(r->tokens));
        json_object_set_new(root, "scored_tokens", json_integer(r->scored));
        json_object_set_new(root, "scored_bytes", json_integer(r->scored_bytes));
        json_object_set_new(root, "context", json_integer(o->context));
        json_object_set_new(root, "stride", json_integer(o->stride));
        cli_print_json(root, 12);
        return;
    }
    printf("perplexity     %.4f  (per token)\n", exp(mean));
    printf("bits per byte  %.4f\n", r->nll / log(2.0) / (double)r->scored_bytes);
    printf("%lld of %lld tokens scored, %lld bytes, in %lld window%s of %lld, stride %lld\n",
           (long long)r->scored, (long long)r->tokens, (long long)r->scored_bytes,
           (long long)r->windows, r->windows == 1 ? "" : "s", (long long)o->context,
           (long long)o->stride);
}

/* Context and stride against the model's. */
static int settle(const cli_model *m, score_options *o)
{
    int64_t most = m->info.context_length > 0 ? m->info.context_length : 1 << 20;
    if (m->info.kind != ATTN_MODEL_DECODER || !m->info.has_logits) {
        cli_error("score", "%s is no decoder: it predicts no next token", m->info.name);
        return CLI_FAILED;
    }
    if (o->context > most) {
        cli_error("score", "--ctx is %lld; the model's context is %lld", (long long)o->context,
                  (long long)most);
        return CLI_USAGE;
    }
    if (o->context == 0)
        o->context = most < 2048 ? most : 2048;
    if (o->stride == 0)
        o->stride = o->context / 2;
    if (o->stride >= o->context) {
        cli_error(
            "score",
            "--stride is %lld; it must be below the context, %lld, or a token would have none",
            (long long)o->stride, (long long)o->context);
        return CLI_USAGE;
    }
    return CLI_OK;
}

static int parse(int argc, char **argv, score_options *o)
{
    enum { OPT_MODEL = 256, OPT_THREADS, OPT_WEIGHTS, OPT_ACT_I8, OPT_ACT_BF16, OPT_CTX, OPT_STRIDE, OPT_KV, OPT_REPLACE, OPT_JSON };
    static const struct option options[] = {{"model", required_argument, NULL, OPT_MODEL},
                                            {"threads", required_argument, NULL, OPT_THREADS},
                                            {"weights", required_argument, NULL, OPT_WEIGHTS},
                                            {"act-int8", no_argument, NULL, OPT_ACT_I8},
                                            {"act-bf16", no_argument, NULL, OPT_ACT_BF16},
                                            {"ctx", required_argument, NULL, OPT_CTX},
                                            {"stride", required_argument, NULL, OPT_STRIDE},
                                            {"kv-type", required_argument, NULL, OPT_KV},
                                            {"json", no_argument, NULL, OPT_JSON},
                                            {"replace-invalid", no_argument, NULL, OPT_REPLACE},
                                            {NULL, 0, NULL, 0}};
    int64_t threads = 0;
    int option;
    bool good = true;
    memset(o, 0, sizeof *o);
    opterr = 0;
    while (good && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == OPT_MODEL)
            o->model = optarg;
        else if (option == OPT_THREADS)
            good = cli_parse_int("score", "--threads", optarg, 1, 1024, &threads);
        else if (option == OPT_WEIGHTS)
            good = cli_parse_weights("score", optarg, &o->weights);
        else if (option == OPT_ACT_I8)
            o->weights |= CLI_ACT_I8;
        else if (option == OPT_ACT_BF16)
            o->weights |= CLI_ACT_BF16;
        else if (option == OPT_CTX)
            good = cli_parse_int("score", "--ctx", optarg, 2, 1 << 30, &o->context);
        else if (option == OPT_STRIDE)
            good = cli_parse_int("score", "--stride", optarg, 1, 1 << 30, &o->stride);
        else if (option == OPT_KV)
            good = cli_parse_kv_type("score", optarg, &o->kv_type);
        else if (option == OPT_REPLACE)
            o->replace_invalid = true;
        else if (option == OPT_JSON)
            o->json = true;
        else
            return cli_bad_option("score", argv);
    }
    o->n_threads = (int32_t)threads;
    if (good && optind + 1 != argc) {
        cli_error("score", "give one file, or - for standard input");
        return CLI_USAGE;
    }
    return good ? CLI_OK : CLI_USAGE;
}

static int score(int argc, char **argv)
{
    score_options o;
    score_result result = {0};
    attn_session_options session;
    cli_model m;
    char *text;
    size_t bytes;
    int code = parse(argc, argv, &o);
    if (code != CLI_OK)
        return code;
    if (!cli_read_all("score", argv[optind], &text, &bytes))
        return CLI_FAILED;
    code = cli_model_load("score", o.model, CLI_DEFAULT_MODEL, o.n_threads, o.weights, &m);
    if (code == CLI_OK)
        code = settle(&m, &o);
    ATTN_ARGS_INIT(&session);
    session.kv_dtype = o.kv_type;
    session.capacity = o.context;
    if (code == CLI_OK)
        code = cli_model_session("score", &m, &session);
    if (code == CLI_OK)
        code = score_text(&m, text, bytes, &o, &result);
    if (code == CLI_OK)
        show(&result, &o);
    cli_model_close(&m);
    free(text);
    return code;
}

const cli_command cli_score = {
    "score",
    "perplexity and bits per byte of a text",
    "attn score - how well a model predicts a text: perplexity and bits per byte\n"
    "\n"
    "usage: attn score [OPTIONS] FILE      - reads standard input\n"
    "\n"
    "Every token but the first is scored once. Texts longer than the context are read in windows,\n"
    "each --stride tokens further, which score only what the one before has not.\n"
    "\n"
    "options:\n"
    "  --model PATH       default: the model of attn run\n"
    "  --ctx N            tokens in a window (default 2048, or the model's context if that is "
    "less)\n"
    "  --stride N         default: half the window\n"
    "  --kv-type TYPE     type of the cache: f32 (default), bf16, f16, int8\n" CLI_WEIGHTS_HELP
    "  --threads N        default: ATTN_NUM_THREADS, else as many as the process may use\n"
    "  --replace-invalid  read bytes that are not UTF-8 as U+FFFD instead of refusing them\n"
    "  --json             the same for programs\n"
    "\n"
    "example:\n"
    "  attn score --ctx 1024 --stride 512 README.md\n",
    score,
};
