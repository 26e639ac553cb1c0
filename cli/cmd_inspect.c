/* cmd_inspect.c - `attn inspect`: every head of a model on a text as one HTML page, JSON or SVG, with what the weights
 * can be held against; and tests of heads on repeated random tokens. */
#include "inspect_view.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPT_PAIR = 256,
    OPT_TARGET,
    OPT_ANSWER,
    OPT_OTHER,
    OPT_EXACT,
    OPT_SAMPLE,
    OPT_WINDOW,
    OPT_SEED,
    OPT_JSON,
    OPT_SVG,
    OPT_PNG,
    OPT_NO_MEASURES,
    OPT_HEADS,
    OPT_HEAD_TESTS
};

static const struct option long_options[] = {
    LOOK_OPTIONS,
    {"pair", required_argument, NULL, OPT_PAIR},
    {"target", required_argument, NULL, OPT_TARGET},
    {"answer", required_argument, NULL, OPT_ANSWER},
    {"other", required_argument, NULL, OPT_OTHER},
    {"exact", required_argument, NULL, OPT_EXACT},
    {"sample", required_argument, NULL, OPT_SAMPLE},
    {"window", required_argument, NULL, OPT_WINDOW},
    {"seed", required_argument, NULL, OPT_SEED},
    {"json", optional_argument, NULL, OPT_JSON},
    {"svg", required_argument, NULL, OPT_SVG},
    {"png", required_argument, NULL, OPT_PNG},
    {"no-measures", no_argument, NULL, OPT_NO_MEASURES},
    {"heads", no_argument, NULL, OPT_HEADS},
    {"head-tests", no_argument, NULL, OPT_HEAD_TESTS},
    {NULL, 0, NULL, 0},
};

static bool take(inspect_options *o, int option, const char *value)
{
    const struct {
        int option;
        const char *name;
        int64_t low, high, *to;
    } numbers[] = {{OPT_EXACT, "--exact", 0, 10000, &o->exact},
                   {OPT_SAMPLE, "--sample", 0, 10000, &o->sample},
                   {OPT_WINDOW, "--window", 1, 100000, &o->window},
                   {OPT_SEED, "--seed", 0, INT64_MAX, &o->seed}};
    const struct {
        int option;
        const char **to;
    } texts[] = {{OPT_PAIR, &o->pair},   {OPT_TARGET, &o->target}, {OPT_ANSWER, &o->answer}, {OPT_OTHER, &o->other},
                 {OPT_SVG, &o->svg},     {OPT_PNG, &o->png},       {'o', &o->page}};
    const int taken = look_take("inspect", &o->look, option, value);
    if (taken)
        return taken > 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].option == option)
            return cli_parse_int("inspect", numbers[i].name, value, numbers[i].low, numbers[i].high, numbers[i].to);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].option == option) {
            *texts[i].to = value;
            return true;
        }
    o->json |= option == OPT_JSON;
    o->json_path = option == OPT_JSON ? value : o->json_path;
    o->head_tests |= option == OPT_HEAD_TESTS;
    o->no_measures |= option == OPT_NO_MEASURES;
    o->heads |= option == OPT_HEADS;
    return true;
}

/* The first token of a word, with a space in front where that is one token. */
static int answer_id(inspect_state *s, const char *option, const char *word, int32_t *id)
{
    char spaced[256];
    int32_t *ids = NULL;
    int64_t n = 0;
    if (snprintf(spaced, sizeof spaced, " %s", word) >= (int)sizeof spaced)
        spaced[0] = '\0';
    if (!cli_tokenize("inspect", &s->m, spaced, strlen(spaced), ATTN_TEXT_NO_SPECIAL, &ids, &n))
        return CLI_FAILED;
    if (n != 1)
        cli_error("inspect", "%s is '%s', which is %lld tokens; name a word of one token", option, word, (long long)n);
    else
        *id = ids[0];
    free(ids);
    return n == 1 ? CLI_OK : CLI_USAGE;
}

typedef attn_status (*picture_maker)(const attn_model *model, const attn_inspection *inspection, int64_t layer,
                                     int64_t head, char **bytes, size_t *n);

static int picture(const inspect_state *s, const char *path, const char *kind, picture_maker make)
{
    char *bytes = NULL;
    size_t n = 0;
    if (make(s->m.model, s->in, s->o.look.layer, s->o.look.head, &bytes, &n) != ATTN_OK)
        return cli_model_failed("inspect", kind, ATTN_ERR_OUT_OF_MEMORY);
    const int code = cli_write_all("inspect", path, bytes, n);
    attn_viz_free(bytes);
    return code;
}

static int draw(inspect_state *s)
{
    const inspect_options *o = &s->o;
    char *text = NULL;
    size_t bytes = 0;
    int code = CLI_OK;
    cli_term term = cli_term_of(stdout);
    if (!o->json || o->json_path)
        inspect_show(&term, s);
    if (o->json) {
        if (attn_inspect_json(s->m.model, s->in, s->text, &text, &bytes) != ATTN_OK)
            return cli_model_failed("inspect", "JSON", ATTN_ERR_OUT_OF_MEMORY);
        code = cli_write_all("inspect", o->json_path ? o->json_path : "-", text, bytes);
        attn_viz_free(text);
    }
    if (code == CLI_OK && o->svg)
        code = picture(s, o->svg, "SVG", attn_inspect_svg);
    if (code == CLI_OK && o->png)
        code = picture(s, o->png, "PNG", attn_inspect_png);
    if (code == CLI_OK && o->page) {
        if (attn_inspect_html(s->m.model, s->in, s->text, &text, &bytes) != ATTN_OK)
            return cli_model_failed("inspect", "HTML", ATTN_ERR_OUT_OF_MEMORY);
        code = cli_write_all("inspect", o->page, text, bytes);
        if (code == CLI_OK && strcmp(o->page, "-") != 0)
            fprintf(stderr, "attn inspect: %s, %.1f MB\n", o->page, (double)bytes / 1e6);
        attn_viz_free(text);
    }
    return code;
}

/* What the decoder reads: the model's start token, then --target (the text itself where there is none). */
static bool read_target(inspect_state *s)
{
    const char *text = s->o.target ? s->o.target : s->text;
    const int32_t start = attn_model_special(s->m.model, ATTN_TOKEN_DECODER_START);
    if (!cli_tokenize("inspect", &s->m, text, s->o.target ? strlen(text) : s->text_bytes, ATTN_TEXT_NO_SPECIAL, &s->target,
                      &s->n_target))
        return false;
    if (start < 0)
        return true;
    int32_t *longer = realloc(s->target, (size_t)(s->n_target + 1) * sizeof *longer);
    if (!longer) {
        cli_error("inspect", "out of memory");
        return false;
    }
    memmove(longer + 1, longer, (size_t)s->n_target * sizeof *longer);
    longer[0] = start;
    s->target = longer;
    s->n_target++;
    return true;
}

/* Where the text says [MASK] or <mask>, as the vocabulary spells it; else `otherwise`. */
static int64_t masked(const inspect_state *s, int64_t otherwise)
{
    for (int64_t i = 0; i < s->n; i++) {
        const char *spelling = attn_model_token(s->m.model, s->ids[i]);
        if (spelling && (strcmp(spelling, "[MASK]") == 0 || strcmp(spelling, "<mask>") == 0))
            return i;
    }
    return otherwise;
}

/* Each result has its own place: standard output holds one. Head tests take no text and draw nothing. */
static int check_outputs(const inspect_options *o, bool text)
{
    const char *const paths[] = {o->page, o->svg, o->png, o->json ? o->json_path ? o->json_path : "-" : NULL};
    int to_output = 0;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        to_output += paths[i] && strcmp(paths[i], "-") == 0;
    if (to_output > 1)
        cli_error("inspect", "standard output was asked to hold %d of page, SVG, PNG and JSON; give files for the others",
                  to_output);
    else if (o->head_tests && text)
        cli_error("inspect", "--head-tests makes its own random tokens; it takes no text");
    else if (o->head_tests && (o->page || o->svg || o->png || o->json_path))
        cli_error("inspect", "--head-tests writes a table or --json to standard output; it makes no page and no picture");
    else
        return CLI_OK;
    return CLI_USAGE;
}

/* --head without --layer names no head; --target is for a decoder that reads an encoder. */
static int check_options(const inspect_options *o, const attn_model_info *info)
{
    if (o->target && info->kind != ATTN_MODEL_ENCODER_DECODER) {
        cli_error("inspect", "--target is what the decoder of an encoder-decoder reads; %s is none", info->name);
        return CLI_USAGE;
    }
    if (o->look.head >= 0 && o->look.layer < 0) {
        cli_error("inspect", "--head is %lld, but no --layer says of which layer", (long long)o->look.head);
        return CLI_USAGE;
    }
    if (o->window > info->n_layers) {
        cli_error("inspect", "--window is %lld; %s has %lld layers", (long long)o->window, info->name,
                  (long long)info->n_layers);
        return CLI_USAGE;
    }
    if (!o->answer != !o->other) {
        cli_error("inspect", "--answer and --other go together");
        return CLI_USAGE;
    }
    return look_check("inspect", &o->look, info);
}

static int look(inspect_state *s)
{
    const inspect_options *o = &s->o;
    attn_inspect_args args;
    int32_t answers[2];
    int code = CLI_OK;
    const bool two = s->m.info.kind == ATTN_MODEL_ENCODER_DECODER;
    code = check_options(o, &s->m.info);
    if (code != CLI_OK)
        return code;
    if (!cli_tokenize("inspect", &s->m, s->text, s->text_bytes, 0, &s->ids, &s->n))
        return CLI_FAILED;
    if (o->pair && !cli_tokenize("inspect", &s->m, o->pair, strlen(o->pair), 0, &s->pair, &s->n_pair))
        return CLI_FAILED;
    if (two && !read_target(s))
        return CLI_FAILED;
    if (s->n == 0 || (o->pair && s->n_pair != s->n)) {
        if (s->n == 0)
            cli_error("inspect", "the text is empty");
        else
            cli_error("inspect", "--pair has %lld tokens, the text %lld: paired prompts need the same number",
                      (long long)s->n_pair, (long long)s->n);
        return CLI_USAGE;
    }
    if (o->answer) {
        code = answer_id(s, "--answer", o->answer, &answers[0]);
        code = code == CLI_OK ? answer_id(s, "--other", o->other, &answers[1]) : code;
        if (code != CLI_OK)
            return code;
    }
    int64_t at = 0;
    code = look_position("inspect", &o->look, &s->m, s->target ? s->target : s->ids, s->target ? s->n_target : s->n, &at);
    if (code != CLI_OK)
        return code;
    if (!o->look.at && s->m.info.kind == ATTN_MODEL_ENCODER && s->m.info.has_logits)
        at = masked(s, at);
    cli_progress progress = cli_progress_start("cutting readings", NULL);
    ATTN_ARGS_INIT(&args);
    args.tokens = s->ids;
    args.n_tokens = s->n;
    args.target = s->target;
    args.n_target = s->n_target;
    args.pair = s->pair;
    args.at = at;
    args.layer = o->look.layer;
    args.head = o->look.head;
    args.answers = o->answer ? answers : NULL;
    args.n_exact = o->exact ? o->exact : -1;
    args.n_sample = o->sample ? o->sample : -1;
    args.window = o->window;
    args.seed = (uint64_t)o->seed;
    args.flags = (o->no_measures ? ATTN_INSPECT_NO_MEASURES : 0u) | (o->heads ? ATTN_INSPECT_HEADS : 0u);
    args.progress = cli_progress_step;
    args.progress_user = &progress;
    attn_status status = attn_inspect(s->m.session, &args, &s->in);
    cli_progress_end(&progress);
    if (status == ATTN_ERR_INVALID_ARGUMENT) {
        cli_model_failed("inspect", "", status);
        return CLI_USAGE;
    }
    return status == ATTN_OK ? draw(s) : cli_model_failed("inspect", "", status);
}

/* ---- head tests ---- */

static json_t *tests_json(const cli_model *m, const attn_head_tests_result *r)
{
    json_t *heads = json_array(), *cut = json_array(), *control = json_array();
    for (int64_t h = 0; h < r->n_layers * r->n_heads; h++) {
        const attn_head_score *x = &r->scores[h];
        json_array_append_new(heads, json_pack("{s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:f}", "layer", (json_int_t)(h / r->n_heads),
                                               "head", (json_int_t)(h % r->n_heads), "previous", (double)x->previous,
                                               "duplicate", (double)x->duplicate, "induction", (double)x->induction,
                                               "sink", (double)x->sink, "distance", (double)x->distance, "local",
                                               (double)x->local));
    }
    for (int64_t i = 0; i < r->n_cut; i++) {
        json_array_append_new(cut, json_pack("[I,I]", (json_int_t)(r->cut[i] / r->n_heads), (json_int_t)(r->cut[i] % r->n_heads)));
        json_array_append_new(control, json_pack("[I,I]", (json_int_t)(r->control[i] / r->n_heads), (json_int_t)(r->control[i] % r->n_heads)));
    }
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:f,s:f,s:f,s:f,s:o,s:o,s:o}", "format", "attn-head-tests-1", "model", m->info.name, "weights", m->info.weights, "libattn",
                     attn_version(), "isa", attn_ctx_isa(NULL), "n_random", (json_int_t)r->n_random, "n_sequences",
                     (json_int_t)r->n_sequences, "seed", (json_int_t)r->seed, "loss_first", r->loss_first, "loss_second",
                     r->loss_second, "loss_cut", r->loss_cut, "loss_control", r->loss_control, "cut", cut, "control",
                     control, "heads", heads);
}

static int test_heads(inspect_state *s)
{
    attn_head_tests_args args;
    attn_head_tests_result *result;
    ATTN_ARGS_INIT(&args);
    args.seed = (uint64_t)s->o.seed;
    attn_status status = attn_head_tests(s->m.session, &args, &result);
    if (status != ATTN_OK)
        return cli_model_failed("inspect", "", status);
    int code = CLI_OK;
    if (s->o.json)
        code = cli_print_json(tests_json(&s->m, result), 6);
    else
        inspect_show_tests(result);
    attn_head_tests_destroy(result);
    return code;
}

static int inspect(int argc, char **argv)
{
    inspect_state s;
    int option, code;
    memset(&s, 0, sizeof s);
    look_start(&s.o.look);
    s.o.exact = 24;
    s.o.sample = 48;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "o:", long_options, NULL)) != -1) {
        if (option == '?')
            return cli_bad_option("inspect", argv);
        if (!take(&s.o, option, optarg))
            return CLI_USAGE;
    }
    if (optind == argc && !s.o.head_tests) {
        cli_error("inspect", "no text given");
        cli_hint("for example: attn inspect \"The bridge was closed because it\" -o page.html");
        return CLI_USAGE;
    }
    code = check_outputs(&s.o, optind < argc);
    if (code != CLI_OK)
        return code;
    s.text = s.o.head_tests ? NULL : cli_words("inspect", argc, argv, optind, &s.text_bytes);
    if (!s.o.head_tests && !s.text)
        return CLI_FAILED;
    code = cli_model_load("inspect", s.o.look.model, CLI_DEFAULT_MODEL, s.o.look.n_threads, ATTN_WEIGHTS_AS_STORED, &s.m);
    if (code == CLI_OK)
        code = cli_model_session("inspect", &s.m, NULL);
    if (code == CLI_OK)
        code = s.o.head_tests ? test_heads(&s) : look(&s);
    attn_inspection_destroy(s.in);
    free(s.text);
    free(s.ids);
    free(s.pair);
    free(s.target);
    cli_model_close(&s.m);
    return code;
}

const cli_command cli_inspect = {
    "inspect", "every head on a text as an HTML page, with what its weights can be held against",
    "attn inspect - every head of a model on a text, and what a weight can be held against\n"
    "\n"
    "usage: attn inspect TEXT [-o page.html] [options]      TEXT -: standard input\n"
    "       attn inspect --head-tests [--json] [--seed N]\n"
    "\n"
    "  -o FILE           one self-contained HTML page (-: standard output)\n"
    "  --json[=FILE]     the same data as JSON\n"
    "  --svg FILE --png FILE  all heads, or the one of --layer and --head\n"
    "  --model NAME      a file, a folder, or a name in the cache; --threads N\n"
    "  --at WHERE        position looked at: from 1, -1 the last (default), or a token, its last\n"
    "                    occurrence; of a masked-language model by default the masked one\n"
    "  --layer N --head N  the head shown first, counted from 0; of a long text all its rows are kept\n"
    "                    (--layer alone: the head of that layer that reads most from elsewhere)\n"
    "  --answer WORD --other WORD  the outcome, logit(WORD) - logit(WORD); default: the likeliest two\n"
    "  --exact N         readings with the largest estimates that are cut in the model (24)\n"
    "  --sample N        readings drawn at random and cut, for the rank correlation (48); --seed N\n"
    "  --window N        layers cut together (a fifth of them)\n"
    "  --pair TEXT       a paired prompt of as many tokens: values and heads are patched from it\n"
    "  --heads           also replace every whole head: mean, resample, zero (and the pair's)\n"
    "  --target TEXT     what the decoder of an encoder-decoder reads behind its start token\n"
    "  --no-measures     weights only\n"
    "\n"
    "example: attn inspect \"The bridge was closed because it\" -o page.html\n",
    inspect};
