/* cmd_similar.c - `attn similar`: how close texts are in meaning, by the cosine of their vectors.
 */
#include "embedder.h"

#include "attn/viz.h"

#include <getopt.h>
#include <stdlib.h>

typedef struct similar_result {
    const embedder_text *texts;
    const double *cosines; /* [n, n] */
    int64_t n;
} similar_result;

static void show(const cli_term *term, const similar_result *r)
{
    if (r->n == 2) {
        printf("%.4f\n", r->cosines[1]);
        return;
    }
    for (int64_t i = 0; i < r->n; i++) {
        char text[512];
        printf("%s%3lld%s", cli_dim(term), (long long)i + 1, cli_reset(term));
        for (int64_t j = 0; j < r->n; j++)
            printf(" %s%7.4f%s", cli_heat_begin(term, r->cosines[i * r->n + j]),
                   r->cosines[i * r->n + j], cli_reset(term));
        attn_text_visible(r->texts[i].text, r->texts[i].bytes, 40, text, sizeof text, NULL);
        printf("  %s\n", text);
    }
}

static json_t *result_json(const similar_result *r)
{
    json_t *root = json_object(), *texts = json_array(), *rows = json_array();
    for (int64_t i = 0; i < r->n; i++) {
        json_t *row = json_array();
        for (int64_t j = 0; j < r->n; j++)
            json_array_append_new(row, json_real(r->cosines[i * r->n + j]));
        json_array_append_new(rows, row);
        json_array_append_new(texts, cli_text_json(r->texts[i].text, r->texts[i].bytes));
    }
    json_object_set_new(root, "texts", texts);
    if (r->n == 2)
        json_object_set_new(root, "cosine", json_real(r->cosines[1]));
    json_object_set_new(root, "cosines", rows);
    return root;
}

static int compare(embedder *e, const embedder_text *texts, int64_t n, bool json)
{
    int64_t dim = e->m.info.d_model;
    float *vectors = malloc((size_t)(n * dim) * sizeof *vectors);
    double *cosines = malloc((size_t)(n * n) * sizeof *cosines);
    similar_result result = {texts, cosines, n};
    cli_term term = cli_term_of(stdout);
    int code = CLI_FAILED;
    if (vectors && cosines)
        code = embedder_run("similar", e, texts, n, vectors, NULL);
    else
        cli_error("similar", "out of memory");
    for (int64_t i = 0; code == CLI_OK && i < n; i++)
        for (int64_t j = 0; j < n; j++)
            cosines[i * n + j] = embedder_cosine(vectors + i * dim, vectors + j * dim, dim);
    if (code == CLI_OK && json)
        code = cli_print_json(result_json(&result), 9);
    else if (code == CLI_OK)
        show(&term, &result);
    free(vectors);
    free(cosines);
    return code;
}

static int similar(int argc, char **argv)
{
    enum { OPT_JSON = 256, MOST = 100 };
    static const struct option options[] = {
        {"json", no_argument, NULL, OPT_JSON}, EMBEDDER_OPTIONS, {NULL, 0, NULL, 0}};
    embedder_options o;
    embedder_text texts[MOST];
    embedder e;
    bool json = false;
    int option, code;
    int64_t n;
    memset(&o, 0, sizeof o);
    opterr = 0;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == '?')
            return cli_bad_option("similar", argv);
        if (embedder_take_option("similar", &o, option, optarg) < 0)
            return CLI_USAGE;
        json = json || option == OPT_JSON;
    }
    n = argc - optind;
    if (n < 2 || n > MOST) {
        cli_error("similar", "%lld text%s given; 2 to %d can be compared", (long long)n,
                  n == 1 ? "" : "s", MOST);
        cli_hint("for example: attn similar \"a cup of tea\" \"hot drinks\"");
        return CLI_USAGE;
    }
    for (int64_t i = 0; i < n; i++) {
        texts[i].text = argv[optind + i];
        texts[i].bytes = strlen(texts[i].text);
    }
    code = embedder_open("similar", &o, &e);
    if (code == CLI_OK) {
        code = compare(&e, texts, n, json);
        embedder_close(&e);
    }
    return code;
}

const cli_command cli_similar = {
    "similar",
    "how close texts are in meaning",
    "attn similar - how close texts are in meaning: the cosine of their vectors\n"
    "\n"
    "usage: attn similar [OPTIONS] TEXT TEXT...\n"
    "\n"
    "Two texts: one number from -1 to 1. More: a table, each against each.\n"
    "\n"
    "options:\n"
    "  --json             texts and cosines for programs\n" EMBEDDER_HELP "\n"
    "example:\n"
    "  attn similar \"a cup of tea\" \"hot drinks\"\n",
    similar,
};
