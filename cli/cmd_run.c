/* cmd_run.c - `attn run`: what a model makes of a text, and what it reads. */
#include "run_view.h"

#include "attn/viz.h"

#include <getopt.h>
#include <stdlib.h>
#include <strings.h>

enum { SHOW = 12, NEW = 24 };

enum {
    OPT_SHOW = 256,
    OPT_NO_CUT,
    OPT_JSON,
    OPT_ALL_HEADS,
    OPT_REPLACE,
    OPT_PAGE
};

static const struct option long_options[] = {
    LOOK_OPTIONS,
    CLI_SAMPLING_OPTIONS,
    {"show", required_argument, NULL, OPT_SHOW},
    {"no-cut", no_argument, NULL, OPT_NO_CUT},
    {"json", no_argument, NULL, OPT_JSON},
    {"all-heads", no_argument, NULL, OPT_ALL_HEADS},
    {"replace-invalid", no_argument, NULL, OPT_REPLACE},
    {"page", required_argument, NULL, OPT_PAGE},
    {NULL, 0, NULL, 0},
};

/* One option into o; false after a message. */
static bool take_option(run_options *o, int option, const char *value)
{
    switch (option) {
    case 'n':
        return cli_parse_int("run", "-n", value, 0, 1000000, &o->n_new);
    case OPT_SHOW:
        return cli_parse_int("run", "--show", value, 0, 100000, &o->show);
    case OPT_NO_CUT:
        o->cut = false;
        return true;
    case OPT_JSON:
        o->json = true;
        return true;
    case OPT_PAGE:
        o->page = value;
        return true;
    case OPT_ALL_HEADS:
        o->all_heads = true;
        return true;
    default:
        o->replace_invalid = true;
        return true;
    }
}

/* Fills o; leaves optind at the first word of the text. An exit code. */
static int parse(int argc, char **argv, run_options *o)
{
    cli_sampling sampling;
    int option;
    memset(o, 0, sizeof *o);
    memset(&sampling, 0, sizeof sampling);
    ATTN_ARGS_INIT(&sampling.options);
    o->n_new = NEW;
    look_start(&o->look);
    o->show = SHOW;
    o->cut = true;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "n:", long_options, NULL)) != -1) {
        int taken;
        if (option == '?')
            return cli_bad_option("run", argv);
        taken = cli_take_sampling("run", &sampling, option, optarg);
        taken = taken ? taken : look_take("run", &o->look, option, optarg);
        if (taken < 0 || (taken == 0 && !take_option(o, option, optarg)))
            return CLI_USAGE;
    }
    cli_finish_sampling(&sampling);
    o->sampling = sampling.options;
    if (optind == argc) {
        cli_error("run", "no text given");
        cli_hint("for example: attn run \"The bridge was closed because it\"");
        return CLI_USAGE;
    }
    return CLI_OK;
}

/* Tokens, the pass and the numbers behind all views. An exit code. */
static int prepare(run_state *s)
{
    const run_options *o = s->options;
    int code;
    const bool decodes = s->m.info.kind == ATTN_MODEL_DECODER;
    if (!s->m.info.has_logits) {
        cli_error("run", "%s is no decoder: it gives no next token", s->m.info.name);
        cli_hint("attn info shows what a model is; attn embed uses an encoder");
        return CLI_FAILED;
    }
    if (!decodes && (o->look.at || o->page || o->all_heads)) {
        cli_error("run", "%s is for decoders, which %s is not", o->look.at ? "--at" : o->page ? "--page" : "--all-heads",
                  s->m.info.name);
        cli_hint("attn inspect looks into any model, and writes a page");
        return CLI_USAGE;
    }
    code = look_check("run", &o->look, &s->m.info);
    if (code != CLI_OK)
        return code;
    if (!cli_tokenize("run", &s->m, s->text, s->text_bytes,
                      o->replace_invalid ? ATTN_TEXT_REPLACE_INVALID : 0, &s->ids, &s->n))
        return CLI_FAILED;
    if (s->n == 0) {
        cli_error("run", "the text is empty");
        return CLI_USAGE;
    }
    code = look_position("run", &o->look, &s->m, s->ids, s->n, &s->at);
    if (code == CLI_OK)
        code = cli_model_session("run", &s->m, NULL);
    if (!decodes)
        return code;
    if (code == CLI_OK)
        code = run_pass(s);
    return code == CLI_OK ? run_choose(s) : code;
}

static int for_programs(run_state *s)
{
    run_generated generated;
    int code = run_generate(s, NULL, &generated);
    if (code == CLI_OK && s->options->cut)
        code = run_cut(s);
    if (code == CLI_OK)
        code = cli_print_json(run_json(s, &generated), 9);
    run_generated_free(&generated);
    return code;
}

static const char *stop_text(const run_state *s, const run_generated *generated)
{
    return generated->stop == ATTN_STOP_EOS             ? "; the model ended it"
           : generated->n < s->options->n_new ? "; its context is full"
                                              : "";
}

/* The end of the text in dim letters, then what the model writes, as it comes. */
static int show_continuation(const cli_term *term, run_state *s)
{
    run_generated generated;
    size_t room = (size_t)term->width, from = s->text_bytes > room ? s->text_bytes - room : 0;
    int code;
    while (from < s->text_bytes && from > 0 && ((unsigned char)s->text[from] & 0xC0) == 0x80)
        from++;
    putchar('\n');
    cli_title(term, "Continued, %s",
              s->options->sampling.temperature > 0 ? "sampled" : "always the likeliest token");
    printf("  %s%s", cli_dim(term), from > 0 ? "…" : "");
    cli_print_safe(s->text + from, s->text_bytes - from);
    fputs(cli_reset(term), stdout);
    fflush(stdout);
    code = run_generate(s, term, &generated);
    putchar('\n');
    if (code == CLI_OK && generated.n > 0)
        printf("  %s(%lld token%s read in %.2f s; %lld written at %.0f a second%s)%s\n",
               cli_dim(term), (long long)s->n, s->n == 1 ? "" : "s", s->seconds,
               (long long)generated.n, (double)generated.n / generated.seconds,
               stop_text(s, &generated), cli_reset(term));
    run_generated_free(&generated);
    return code;
}

static int for_people(run_state *s)
{
    cli_term term = cli_term_of(stdout);
    int code = CLI_OK;
    run_show_model(&term, s);
    run_show_tokens(&term, s);
    run_show_top(&term, s);
    fflush(stdout);
    if (s->options->n_new > 0)
        code = show_continuation(&term, s);
    if (code == CLI_OK && s->options->cut)
        code = run_cut(s);
    if (code == CLI_OK)
        run_show_readings(&term, s);
    fflush(stdout);
    return code == CLI_OK && s->options->page ? run_page(s) : code;
}

static int run(int argc, char **argv)
{
    run_options options;
    run_state s;
    int code = parse(argc, argv, &options);
    if (code != CLI_OK)
        return code;
    memset(&s, 0, sizeof s);
    s.options = &options;
    s.text = cli_words("run", argc, argv, optind, &s.text_bytes);
    if (!s.text)
        return CLI_FAILED;
    code = cli_model_load("run", options.look.model, CLI_DEFAULT_MODEL, options.look.n_threads,
                          ATTN_WEIGHTS_AS_STORED, &s.m);
    if (code == CLI_OK)
        code = prepare(&s);
    if (code == CLI_OK && s.m.info.kind == ATTN_MODEL_ENCODER_DECODER)
        code = run_translate(&s);
    else if (code == CLI_OK && s.m.info.kind == ATTN_MODEL_ENCODER)
        code = run_masked(&s);
    else if (code == CLI_OK)
        code = options.json ? for_programs(&s) : for_people(&s);
    cli_model_close(&s.m);
    free(s.text);
    free(s.ids);
    free(s.logits);
    free(s.logprobs);
    free(s.rows);
    free(s.readings);
    return code;
}

const cli_command cli_run = {
    "run",
    "what a model makes of a text: next tokens, a continuation, what each head reads",
    "attn run - what a model makes of a text, and which earlier words it reads\n"
    "\n"
    "usage: attn [run] [OPTIONS] TEXT...     several words are joined; - reads standard input\n"
    "\n"
    "prints the model and its shape, the tokens, the ten likeliest next tokens, a continuation, "
    "and\n"
    "the heads that read most from elsewhere at one position, as a heat map over the tokens.\n"
    "An encoder-decoder answers instead, and shows which source tokens each written token reads;\n"
    "a masked language model says what it would put in the place of each mask.\n"
    "\n"
    "options:\n"
    "  --model PATH       a GGUF or safetensors file, a model folder, or a name in the cache "
    "folder\n"
    "                     (default SmolLM2-135M-Instruct, which ./dev run fetches)\n"
    "  --threads N        default: ATTN_NUM_THREADS, else as many as the process may use\n"
    "  -n N               tokens to write (default 24; 0: none)\n"
    "  --temp T           sampling temperature; 0 (default): always the likeliest token\n"
    "  --top-k K  --top-p P  --min-p P  --seed S  --repetition-penalty R\n"
    "                     sample among the likeliest only; the first four imply --temp 1\n"
    "  --at WHERE         the position looked at: a number from 1, -1 for the last (default), or "
    "a\n"
    "                     token of the text (its last occurrence)\n"
    "  --layer L --head H only these, counted from 0 (default: the 12 heads that read most)\n"
    "  --show N           how many heads to show\n"
    "  --no-cut           do not measure what cutting a reading moves\n"
    "  --json             all of it for programs: ids, tokens, top_ids, top_logits, greedy_ids, "
    "...\n"
    "  --all-heads        with --json: the weights of every layer and head (last_row_attention)\n"
    "  --page FILE        write the same, and all heads, as an HTML page (see attn inspect)\n"
    "  --replace-invalid  read bytes that are not UTF-8 as U+FFFD instead of refusing them\n"
    "\n"
    "example:\n"
    "  attn run \"The bridge was closed because it\"\n"
    "  attn run --at bridge -n 0 \"The bridge was closed because it\"\n",
    run,
};
