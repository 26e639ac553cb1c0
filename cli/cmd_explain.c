/* cmd_explain.c - `attn explain`: one attention step, number by number. */
#include "explain.h"

#include <getopt.h>
#include <stdlib.h>

typedef struct topic {
    const char *name;
    bool (*input)(explain_input *input);                             /* a worked example, or */
    bool (*show)(const cli_term *term, attn_ctx *ctx, json_t *into); /* something of its own */
} topic;

static const topic topics[] = {
    {"bridge", explain_input_bridge, NULL},   {"trace", explain_input_trace, NULL},
    {"saturation", NULL, explain_saturation}, {"mask", NULL, explain_mask},
    {"paths", NULL, explain_paths},
};
enum { N_TOPICS = sizeof topics / sizeof *topics };

static bool show_example(const cli_term *term, attn_ctx *ctx, explain_input *input,
                         const char *name, json_t *into)
{
    bool good;
    if (into) {
        json_t *object = explain_json(ctx, input);
        good = object != NULL;
        if (good)
            json_object_set_new(into, name, object);
    } else {
        good = explain_show(term, ctx, input);
    }
    explain_input_free(input);
    return good;
}

static bool show_topic(const topic *t, const cli_term *term, attn_ctx *ctx, json_t *into)
{
    explain_input input;
    if (t->show)
        return t->show(term, ctx, into);
    return t->input(&input) && show_example(term, ctx, &input, t->name, into);
}

/* A topic's name, else a file; a word that is neither is explained. */
static bool show_word(const char *word, const cli_term *term, attn_ctx *ctx, json_t *into)
{
    explain_input input;
    for (int i = 0; i < N_TOPICS; i++)
        if (strcmp(word, topics[i].name) == 0)
            return show_topic(&topics[i], term, ctx, into);
    if (!strpbrk(word, "./-")) {
        cli_error("explain", "'%s' is neither a topic nor a file", word);
        cli_hint("topics: bridge, trace, saturation, mask, paths; a file's name ends in .json");
        return false;
    }
    return explain_input_file(word, &input) && show_example(term, ctx, &input, "file", into);
}

static int explain(int argc, char **argv)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"figures", required_argument, NULL, 'f'},
                                            {NULL, 0, NULL, 0}};
    const char *folder = NULL;
    cli_term term = cli_term_of(stdout);
    json_t *into = NULL;
    attn_ctx *ctx;
    bool good = true;
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "j", options, NULL)) != -1) {
        if (option == 'f')
            folder = optarg;
        else if (option == 'j')
            into = into ? into : json_object();
        else
            return cli_bad_option("explain", argv);
    }
    if (attn_ctx_create(NULL, &ctx) != ATTN_OK) {
        cli_error("explain", "%s", attn_ctx_error(NULL));
        json_decref(into);
        return CLI_FAILED;
    }
    if (folder)
        good = explain_figures(ctx, folder);
    if (optind == argc && !folder)
        for (int i = 0; good && i < N_TOPICS; i++) {
            if (i > 0 && !into)
                putchar('\n');
            good = show_topic(&topics[i], &term, ctx, into);
        }
    for (int i = optind; good && i < argc; i++) {
        if (i > optind && !into)
            putchar('\n');
        good = show_word(argv[i], &term, ctx, into);
    }
    attn_ctx_destroy(ctx);
    if (good && into)
        return cli_print_json(into, 12);
    json_decref(into);
    return good ? CLI_OK : CLI_FAILED;
}

const cli_command cli_explain = {
    "explain",
    "one attention step, number by number",
    "attn explain - one attention step, number by number\n"
    "\n"
    "usage: attn explain [TOPIC | FILE.json | -]...\n"
    "\n"
    "topics (default: all of them):\n"
    "  bridge      three tokens of a sentence through one causal head: scores, weights, outputs\n"
    "  trace       one output vector, step by step\n"
    "  saturation  why scores are divided by sqrt(d_k), and the gradient that vanishes otherwise\n"
    "  mask        causal or bidirectional: the same numbers with the mask on and off\n"
    "  paths       how many hops lie between two tokens, in an RNN and in self-attention\n"
    "\n"
    "Every number is computed on the spot by libattn's own operator, in double precision.\n"
    "\n"
    "your own numbers: a JSON file (or - for standard input) with\n"
    "  q, k, v        lists of rows; q and k rows of one length, as many v rows as k rows\n"
    "  causal         true: position i sees positions up to i (default false)\n"
    "  tokens         names of the rows of k (optional)\n"
    "  scale          factor for the scores (default 1/sqrt(d_k); 1: no scaling)\n"
    "  query_offset   query i stands at position i + query_offset (needed by causal when q has\n"
    "                 not as many rows as k)\n"
    "  title          a heading (optional)\n"
    "\n"
    "options:\n"
    "  --json            all numbers as one JSON object\n"
    "  --figures FOLDER  the first lesson's six figures as SVG, drawn from computed numbers\n"
    "\n"
    "example:\n"
    "  echo '{\"q\": [[1, 1]], \"k\": [[1, 0], [0, 1]], \"v\": [[1, 0], [0, 2]]}' > my.json\n"
    "  attn explain my.json\n",
    explain,
};
