/* cmd_search.c - `attn search`: the lines nearest in meaning to a query, by exact cosine over saved
 * vectors. */
#include "embedder.h"
#include "lines.h"
#include "npy.h"

#include "attn/viz.h"

#include <getopt.h>
#include <stdlib.h>

typedef struct search_options {
    embedder_options model;
    char *texts;
    int64_t k;
    bool json;
} search_options;

typedef struct hit {
    int64_t row;
    double cosine;
} hit;

/* The k rows with the largest cosines, descending, equal ones by row. */
static int64_t nearest(const float *query, const float *rows, int64_t n, int64_t dim, hit *hits,
                       int64_t k)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        double cosine = embedder_cosine(query, rows + i * dim, dim);
        int64_t at = found;
        if (found == k && !(cosine > hits[k - 1].cosine))
            continue;
        if (found == k)
            at--;
        else
            found++;
        for (; at > 0 && cosine > hits[at - 1].cosine; at--)
            hits[at] = hits[at - 1];
        hits[at].row = i;
        hits[at].cosine = cosine;
    }
    return found;
}

static void show(const cli_term *term, const hit *hits, int64_t n, const line_list *texts)
{
    for (int64_t i = 0; i < n; i++) {
        char text[4096] = "";
        if (texts->n > 0)
            attn_text_visible(texts->lines[hits[i].row].text, texts->lines[hits[i].row].bytes,
                              term->width - 20, text, sizeof text, NULL);
        printf("%s%7.4f%s  line %-6lld %s\n", cli_heat_begin(term, hits[i].cosine), hits[i].cosine,
               cli_reset(term), (long long)hits[i].row + 1, text);
    }
}

static json_t *hits_json(const embedder_text *query, const hit *hits, int64_t n,
                         const line_list *texts)
{
    json_t *root = json_object(), *list = json_array();
    for (int64_t i = 0; i < n; i++) {
        json_t *object =
            json_pack("{s:I, s:f}", "line", (json_int_t)hits[i].row + 1, "cosine", hits[i].cosine);
        if (texts->n > 0)
            json_object_set_new(
                object, "text",
                cli_text_json(texts->lines[hits[i].row].text, texts->lines[hits[i].row].bytes));
        json_array_append_new(list, object);
    }
    json_object_set_new(root, "query", cli_text_json(query->text, query->bytes));
    json_object_set_new(root, "hits", list);
    return root;
}

/* Embeds the query and looks. rows[n, dim] are the saved vectors. */
static int search_rows(const search_options *o, const embedder_text *query, const float *rows,
                       int64_t n, int64_t dim, const line_list *texts)
{
    cli_term term = cli_term_of(stdout);
    int64_t k = o->k < n ? o->k : n;
    float *vector = malloc((size_t)dim * sizeof *vector + 1);
    hit *hits = malloc((size_t)k * sizeof *hits + 1);
    embedder e;
    int code = embedder_open("search", &o->model, &e);
    if (code == CLI_OK && (!vector || !hits)) {
        cli_error("search", "out of memory");
        code = CLI_FAILED;
    }
    if (code == CLI_OK && e.m.info.d_model != dim) {
        cli_error(
            "search",
            "the saved vectors have %lld numbers, the model's %lld; they come from another model",
            (long long)dim, (long long)e.m.info.d_model);
        code = CLI_FAILED;
    }
    if (code == CLI_OK)
        code = embedder_run("search", &e, query, 1, vector, NULL);
    if (code == CLI_OK) {
        k = nearest(vector, rows, n, dim, hits, k);
        if (o->json)
            code = cli_print_json(hits_json(query, hits, k, texts), 9);
        else
            show(&term, hits, k, texts);
    }
    embedder_close(&e);
    free(vector);
    free(hits);
    return code;
}

static int parse(int argc, char **argv, search_options *o)
{
    enum { OPT_JSON = 256, OPT_TEXTS };
    static const struct option options[] = {{"json", no_argument, NULL, OPT_JSON},
                                            {"texts", required_argument, NULL, OPT_TEXTS},
                                            EMBEDDER_OPTIONS,
                                            {NULL, 0, NULL, 0}};
    int option;
    memset(o, 0, sizeof *o);
    o->k = 10;
    o->model.query = true;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "k:", options, NULL)) != -1) {
        if (option == '?')
            return cli_bad_option("search", argv);
        if (embedder_take_option("search", &o->model, option, optarg) < 0)
            return CLI_USAGE;
        if (option == 'k' && !cli_parse_int("search", "-k", optarg, 1, 1000000, &o->k))
            return CLI_USAGE;
        if (option == OPT_TEXTS)
            o->texts = optarg;
        o->json = o->json || option == OPT_JSON;
    }
    if (argc - optind != 2) {
        cli_error("search", "give a query and a .npy file, not %d word%s", argc - optind,
                  argc - optind == 1 ? "" : "s");
        cli_hint("for example: attn search \"how to brew coffee\" notes.npy --texts notes.txt");
        return CLI_USAGE;
    }
    return CLI_OK;
}

static int search(int argc, char **argv)
{
    search_options o;
    embedder_text query;
    line_list texts = {NULL, NULL, 0};
    float *rows;
    int64_t n, dim;
    int code = parse(argc, argv, &o);
    if (code != CLI_OK)
        return code;
    query.text = argv[optind];
    query.bytes = strlen(query.text);
    if (!npy_read("search", argv[optind + 1], &rows, &n, &dim)) {
        cli_hint("attn embed -o FILE.npy makes such a file");
        return CLI_FAILED;
    }
    if (o.texts) {
        if (!lines_read("search", &o.texts, 1, &texts))
            code = CLI_FAILED;
        else if (texts.n != n) {
            cli_error("search", "%s has %lld lines, %s has %lld rows", o.texts, (long long)texts.n,
                      argv[optind + 1], (long long)n);
            code = CLI_FAILED;
        }
    }
    if (code == CLI_OK)
        code = search_rows(&o, &query, rows, n, dim, &texts);
    lines_free(&texts);
    free(rows);
    return code;
}

const cli_command cli_search = {
    "search",
    "the saved lines nearest in meaning to a query",
    "attn search - the saved lines nearest in meaning to a query\n"
    "\n"
    "usage: attn search [OPTIONS] QUERY FILE.npy\n"
    "\n"
    "FILE.npy holds a vector a row, as attn embed -o FILE.npy writes them; every row is compared\n"
    "(exact cosine, no index).\n"
    "\n"
    "options:\n"
    "  --texts FILE       the lines that were embedded, to be shown beside their numbers\n"
    "  -k N               how many to show (default 10)\n"
    "  --json             the same for programs\n" EMBEDDER_HELP "\n"
    "example:\n"
    "  attn search \"how to brew coffee\" notes.npy --texts notes.txt\n",
    search,
};
