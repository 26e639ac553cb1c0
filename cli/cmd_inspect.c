/* cmd_inspect.c - `attn inspect`: every head of a model on a text as one HTML page, JSON or SVG, with what the weights
 * can be held against; and tests of heads on repeated random tokens. */
#include "attn/viz.h"
#include "look.h"

#include <getopt.h>
#include <math.h>
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

typedef struct options {
    look_options look;
    const char *page, *pair, *target, *answer, *other, *svg, *png, *json_path;
    bool json, head_tests, no_measures, heads;
    int64_t exact, sample, window, seed;
} options;

typedef struct state {
    options o;
    cli_model m;
    char *text;
    size_t text_bytes;
    int32_t *ids, *pair, *target;
    int64_t n, n_pair, n_target;
    attn_inspection *in;
} state;

static bool take(options *o, int option, const char *value)
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
static int answer_id(state *s, const char *option, const char *word, int32_t *id)
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

/* ---- the terminal ---- */

static void visible(const state *s, int32_t id, int columns, char *out, size_t capacity)
{
    cli_token_visible(&s->m, id, columns, out, capacity);
}

static void show_outcome(const cli_term *term, const state *s)
{
    const attn_inspection *in = s->in;
    char a[96], b[96], where[48] = "";
    if (in->outcome_kind == ATTN_OUTCOME_EMBEDDING) {
        cli_title(term, "Readings cut in the model: how far the text's embedding moves (distance of unit vectors)");
        return;
    }
    if (in->outcome_kind == ATTN_OUTCOME_MASKED)
        snprintf(where, sizeof where, " at position %lld", (long long)in->outcome_position + 1);
    visible(s, in->answers[0], 12, a, sizeof a);
    visible(s, in->answers[1], 12, b, sizeof b);
    cli_title(term, "Readings cut in the model: change of logit(%s) - logit(%s)%s, now %+.2f", a, b, where,
              (double)in->outcome);
}

static void number(int width, double x)
{
    if (x == x)
        printf("%+*.2f", width, x);
    else
        printf("%*s", width, "-");
}

static void show_edge(const state *s, const attn_inspect_edge *e, bool several)
{
    static const char *const names[] = {"encoder", "decoder", "cross"};
    const attn_inspection *in = s->in;
    const int32_t *readers = several && e->map > 0 ? in->target : in->tokens, *read = e->map == 1 ? in->target : in->tokens;
    char reader[96], key[96];
    visible(s, readers[e->query], 8, reader, sizeof reader);
    visible(s, read[e->key], 8, key, sizeof key);
    if (several)
        printf("  %-9s", names[e->map]);
    printf("  %3lld.%-3lld ", (long long)e->layer, (long long)e->head);
    cli_pad(reader, 8);
    putchar(' ');
    cli_pad(key, 8);
    printf(" %6.3f %5.2f", (double)e->weight, (double)e->moved);
    number(7, (double)e->direct);
    number(9, (double)e->estimate);
    number(9, (double)e->knockout.difference);
    number(8, (double)e->removal.difference);
    number(7, (double)e->mean.difference);
    putchar('\n');
}

/* A rank correlation as it is printed; not defined where there are few readings or all are the same. */
static const char *correlation(char text[16], double x)
{
    if (x != x)
        return "undefined";
    snprintf(text, 16, "%.2f", x);
    return text;
}

static void show(const cli_term *term, const state *s)
{
    const attn_inspection *in = s->in;
    const bool several = in->n_maps > 1;
    if (!in->measured) {
        cli_title(term, "%lld tokens, weights of %lld layers of %lld heads", (long long)in->n_tokens,
                  (long long)in->maps[0].n_layers, (long long)in->maps[0].n_heads);
        if (in->note[0])
            cli_paragraph(term, 2, in->note);
        return;
    }
    show_outcome(term, s);
    printf("  %s   head reader   reads    weight moved direct estimate knockout removal   mean\n",
           several ? "attention" : "");
    for (int64_t i = 0; i < in->n_edges && i < 16; i++)
        show_edge(s, &in->edges[i], several);
    char text[600], all[16], without[16];
    int n = 0, early = 0;
    for (int64_t i = 0; i < in->n_edges; i++)
        early += (in->edges[i].why & ATTN_EDGE_NOT_CUT) != 0;
    if (in->n_screened > 0)
        n = snprintf(text, sizeof text,
                     "Rank correlation of weight and effect: %s over %lld of %lld screened readings (estimates, by %s), "
                     "%s without the first token;",
                     correlation(all, in->estimated.all), (long long)in->estimated.n, (long long)in->n_screened,
                     in->estimate == ATTN_ESTIMATE_DIRECT ? "direct effect, of the last position only" : "gradient",
                     correlation(without, in->estimated.without_first));
    else
        n = snprintf(text, sizeof text, "No reading was screened (the gradient takes more than 2 GB or 20 billion readings "
                                        "here). Rank correlation of weight and effect:");
    snprintf(text + n, sizeof text - (size_t)n, " %s over %lld drawn at random and cut (exact), %s without the first token.",
             correlation(all, in->sampled.all), (long long)in->sampled.n, correlation(without, in->sampled.without_first));
    n = (int)strlen(text);
    if (early)
        snprintf(text + n, sizeof text - (size_t)n, " %d large estimate%s (-) too early in a long text to be cut.", early,
                 early == 1 ? " is" : "s are");
    putchar('\n');
    cli_paragraph(term, 2, text);
    putchar('\n');
    cli_paragraph(term, 2, "A weight is a coefficient of one head in one layer at one position: no cause, no explanation. "
                           "One text illustrates; it proves nothing.");
}

typedef attn_status (*picture_maker)(const attn_model *model, const attn_inspection *inspection, int64_t layer,
                                     int64_t head, char **bytes, size_t *n);

static int picture(const state *s, const char *path, const char *kind, picture_maker make)
{
    char *bytes = NULL;
    size_t n = 0;
    if (make(s->m.model, s->in, s->o.look.layer, s->o.look.head, &bytes, &n) != ATTN_OK)
        return cli_model_failed("inspect", kind, ATTN_ERR_OUT_OF_MEMORY);
    const int code = cli_write_all("inspect", path, bytes, n);
    attn_viz_free(bytes);
    return code;
}

static int draw(state *s)
{
    const options *o = &s->o;
    char *text = NULL;
    size_t bytes = 0;
    int code = CLI_OK;
    cli_term term = cli_term_of(stdout);
    if (!o->json || o->json_path)
        show(&term, s);
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
static bool read_target(state *s)
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
static int64_t masked(const state *s, int64_t otherwise)
{
    for (int64_t i = 0; i < s->n; i++) {
        const char *spelling = attn_model_token(s->m.model, s->ids[i]);
        if (spelling && (strcmp(spelling, "[MASK]") == 0 || strcmp(spelling, "<mask>") == 0))
            return i;
    }
    return otherwise;
}

/* --head without --layer names no head. */
static int check_options(const options *o, const attn_model_info *info)
{
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

static int look(state *s)
{
    const options *o = &s->o;
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

static int by_induction(const void *a, const void *b)
{
    const attn_head_score *x = *(const attn_head_score *const *)a, *y = *(const attn_head_score *const *)b;
    return (x->induction < y->induction) - (x->induction > y->induction);
}

static json_t *tests_json(const attn_head_tests_result *r)
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
    return json_pack("{s:I,s:I,s:I,s:f,s:f,s:f,s:f,s:o,s:o,s:o}", "n_random", (json_int_t)r->n_random, "n_sequences",
                     (json_int_t)r->n_sequences, "seed", (json_int_t)r->seed, "loss_first", r->loss_first, "loss_second",
                     r->loss_second, "loss_cut", r->loss_cut, "loss_control", r->loss_control, "cut", cut, "control",
                     control, "heads", heads);
}

static void show_tests(const attn_head_tests_result *r)
{
    cli_term term = cli_term_of(stdout);
    const int64_t n = r->n_layers * r->n_heads;
    const attn_head_score **order = calloc((size_t)n, sizeof *order);
    for (int64_t h = 0; order && h < n; h++)
        order[h] = &r->scores[h];
    cli_title(&term, "Heads on repeated random tokens (%lld sequences of 2 x %lld), by induction score",
              (long long)r->n_sequences, (long long)r->n_random);
    printf("  layer head  previous  duplicate  induction   sink  local  distance\n");
    if (order)
        qsort(order, (size_t)n, sizeof *order, by_induction);
    for (int64_t i = 0; order && i < n; i++) {
        const int64_t h = order[i] - r->scores;
        printf("  %5lld %4lld     %5.2f      %5.2f      %5.2f  %5.2f  %5.2f  %8.1f\n", (long long)(h / r->n_heads),
               (long long)(h % r->n_heads), (double)order[i]->previous, (double)order[i]->duplicate,
               (double)order[i]->induction, (double)order[i]->sink, (double)order[i]->local, (double)order[i]->distance);
    }
    free(order);
    printf("\n  loss per token: first r %.2f, second r %.2f; with the %lld best induction heads replaced by their means "
           "%.2f (%+.2f);\n  with as many random heads of the same layers %.2f (%+.2f)\n", r->loss_first, r->loss_second,
           (long long)r->n_cut, r->loss_cut, r->loss_cut - r->loss_second, r->loss_control,
           r->loss_control - r->loss_second);
}

static int test_heads(state *s)
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
        code = cli_print_json(tests_json(result), 6);
    else
        show_tests(result);
    attn_head_tests_destroy(result);
    return code;
}

static int inspect(int argc, char **argv)
{
    state s;
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
