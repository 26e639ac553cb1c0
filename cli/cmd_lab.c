/* cmd_lab.c - `attn lab`: the lessons' claims as experiments; tables in the terminal, figures and a report as files. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lab/lab.h"

typedef struct outcome { /* of one experiment */
    const lab_experiment *experiment;
    lab_result result;
    char *svg; /* the figure; malloc'd by open_memstream */
    size_t svg_bytes;
} outcome;

/* Significant digits of a cell: counts whole, measurements in four. */
static int digits_of(double x)
{
    return x == floor(x) && fabs(x) < 1e9 ? 10 : 4;
}

/* ---- Terminal ---- */

static int width_of(const char *name)
{
    const int n = (int)strlen(name);
    return n < 10 ? 10 : n;
}

static void print_cell(double x, int width) /* NaN: there is no such measurement */
{
    if (isnan(x))
        printf("  %*s", width, "-");
    else
        printf("  %*.*g", width, digits_of(x), x);
}

static void print_result(const cli_term *term, const outcome *o)
{
    const lab_result *r = &o->result;
    cli_title(term, "%s: %s", o->experiment->name, o->experiment->title);
    cli_paragraph(term, 2, o->experiment->claim);
    putchar('\n');
    if (r->skipped[0]) {
        printf("  skipped: %s\n", r->skipped);
        return;
    }
    for (int c = 0; c < r->n_columns; c++)
        printf("  %*s", width_of(r->columns[c]), r->columns[c]);
    putchar('\n');
    for (int i = 0; i < r->n_rows; i++) {
        for (int c = 0; c < r->n_columns; c++)
            print_cell(r->cells[i][c], width_of(r->columns[c]));
        putchar('\n');
    }
    putchar('\n');
    for (int i = 0; i < r->n_checks; i++)
        printf("  %s %s\n", r->checks[i].holds ? "seen    " : "NOT seen", r->checks[i].text);
    putchar('\n');
    cli_paragraph(term, 2, r->finding);
}

/* ---- Files ---- */

static FILE *create(const char *folder, const char *name, const char *ending, char *path, size_t capacity)
{
    FILE *file = NULL;
    if ((size_t)snprintf(path, capacity, "%s/%s%s", folder, name, ending) < capacity)
        file = fopen(path, "w");
    if (!file)
        cli_error("lab", "cannot write %s: %s", path, strerror(errno));
    return file;
}

static bool finish(FILE *file, const char *path)
{
    const bool good = !ferror(file);
    if (fclose(file) == 0 && good)
        return true;
    cli_error("lab", "cannot write %s: %s", path, strerror(errno));
    return false;
}

static void html_text(FILE *to, const char *text)
{
    for (; *text; text++)
        if (*text == '<' || *text == '>' || *text == '&')
            fprintf(to, "&#%d;", *text);
        else
            fputc(*text, to);
}

static void html_result(FILE *to, const outcome *o)
{
    const lab_result *r = &o->result;
    fprintf(to, "<section id=\"%s\"><h2>", o->experiment->name);
    html_text(to, o->experiment->title);
    fprintf(to, "</h2>\n<p class=\"claim\">The lessons: ");
    html_text(to, o->experiment->claim);
    if (r->skipped[0]) {
        fprintf(to, "</p>\n<p>Skipped: ");
        html_text(to, r->skipped);
        fprintf(to, "</p></section>\n");
        return;
    }
    fprintf(to, "</p>\n<figure>%.*s</figure>\n<ul>\n", (int)o->svg_bytes, o->svg);
    for (int i = 0; i < r->n_checks; i++) {
        fprintf(to, "<li class=\"%s\"><b>%s</b> ", r->checks[i].holds ? "seen" : "unseen",
                r->checks[i].holds ? "seen:" : "not seen:");
        html_text(to, r->checks[i].text);
        fprintf(to, "</li>\n");
    }
    fprintf(to, "</ul>\n<p>");
    html_text(to, r->finding);
    fprintf(to, "</p>\n<div class=\"wide\"><table><tr>");
    for (int c = 0; c < r->n_columns; c++) {
        fprintf(to, "<th>");
        html_text(to, r->columns[c]);
        fprintf(to, "</th>");
    }
    fprintf(to, "</tr>\n");
    for (int i = 0; i < r->n_rows; i++) {
        fprintf(to, "<tr>");
        for (int c = 0; c < r->n_columns; c++)
            if (isnan(r->cells[i][c]))
                fprintf(to, "<td>&ndash;</td>");
            else
                fprintf(to, "<td>%.*g</td>", digits_of(r->cells[i][c]), r->cells[i][c]);
        fprintf(to, "</tr>\n");
    }
    fprintf(to, "</table></div>\n");
    for (int i = 0; i < r->n_numbers; i++)
        fprintf(to, "%s%s <b>%.*g</b>", i ? "; " : "<p class=\"more\">", r->numbers[i].name, digits_of(r->numbers[i].value),
                r->numbers[i].value);
    fprintf(to, "%s<p>Again: <code>attn lab %s</code> (%.0f s)</p></section>\n", r->n_numbers ? "</p>\n" : "", o->experiment->name,
            r->seconds);
}

static const char style[] =
    ":root{color-scheme:light dark}body{font:16px/1.5 sans-serif;max-width:48rem;margin:2rem auto;padding:0 1rem}"
    ".claim{font-style:italic}figure{margin:1rem 0}svg{max-width:100%;height:auto}.wide{overflow-x:auto}"
    "table{border-collapse:collapse;font-size:.85rem}th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #8886}"
    ".more{font-size:.85rem}.unseen{color:#c0392b}li{margin:.2rem 0}"
    "@media(prefers-color-scheme:dark){.unseen{color:#ff9a8c}}";

static bool write_html(const char *folder, const outcome *outcomes, int n, bool quick)
{
    char path[4096];
    FILE *to = create(folder, "index", ".html", path, sizeof path);
    if (!to)
        return false;
    fprintf(to, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n"
            "<title>attn lab</title>\n<style>%s</style>\n<h1>What the lessons claim, measured</h1>\n"
            "<p>Made by <code>attn lab all%s</code>, attn %s, instruction set %s. Every number was computed when this page was "
            "made; random numbers have a fixed seed. \xe2\x80\x9cNot seen\xe2\x80\x9d marks what a lesson says, or what one might "
            "conclude from it, that these measurements do not show.</p>\n<ol>\n", style, quick ? " --quick" : "", attn_version(),
            attn_ctx_isa(NULL));
    for (int i = 0; i < n; i++) {
        fprintf(to, "<li><a href=\"#%s\">", outcomes[i].experiment->name);
        html_text(to, outcomes[i].experiment->title);
        fprintf(to, "</a></li>\n");
    }
    fprintf(to, "</ol>\n");
    for (int i = 0; i < n; i++)
        html_result(to, &outcomes[i]);
    fprintf(to, "</html>\n");
    return finish(to, path);
}

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *json_of(const outcome *o)
{
    const lab_result *r = &o->result;
    if (r->skipped[0])
        return json_pack("{s:s, s:s, s:s, s:s}", "name", o->experiment->name, "title", o->experiment->title, "claim",
                         o->experiment->claim, "skipped", r->skipped);
    json_t *columns = json_array(), *rows = json_array(), *checks = json_array(), *numbers = json_object();
    for (int c = 0; c < r->n_columns; c++)
        json_array_append_new(columns, json_string(r->columns[c]));
    for (int i = 0; i < r->n_rows; i++) {
        json_t *row = json_array();
        for (int c = 0; c < r->n_columns; c++)
            json_array_append_new(row, number(r->cells[i][c]));
        json_array_append_new(rows, row);
    }
    for (int i = 0; i < r->n_checks; i++)
        json_array_append_new(checks, json_pack("{s:s, s:b}", "text", r->checks[i].text, "holds", (int)r->checks[i].holds));
    for (int i = 0; i < r->n_numbers; i++)
        json_object_set_new(numbers, r->numbers[i].name, number(r->numbers[i].value));
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:s, s:f}", "name", o->experiment->name, "title", o->experiment->title,
                     "claim", o->experiment->claim, "columns", columns, "rows", rows, "numbers", numbers, "checks", checks,
                     "finding", r->finding, "seconds", r->seconds);
}

static json_t *json_all(const outcome *outcomes, int n, bool all, const lab_options *o)
{
    char command[9000];
    snprintf(command, sizeof command, "attn lab %s%s%s%s%s%s", all ? "all" : outcomes[0].experiment->name,
             o->quick ? " --quick" : "", o->model ? " --model " : "", o->model ? o->model : "",
             o->small_model ? " --small " : "", o->small_model ? o->small_model : "");
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_of(&outcomes[i]));
    return json_pack("{s:s, s:s, s:s, s:I, s:b, s:o}", "command", command, "version", attn_version(), "isa", attn_ctx_isa(NULL),
                     "seed", (json_int_t)LAB_SEED, "quick", (int)o->quick, "experiments", list);
}

/* Before the experiments, which may take minutes. */
static bool make_folder(const char *folder)
{
    struct stat there;
    if (mkdir(folder, 0777) != 0 && (errno != EEXIST || stat(folder, &there) != 0 || !S_ISDIR(there.st_mode))) {
        cli_error("lab", "cannot make the folder %s: %s", folder, strerror(errno));
        return false;
    }
    return true;
}

static bool write_files(const char *folder, const outcome *outcomes, int n, bool all, const lab_options *options)
{
    char path[4096];
    for (int i = 0; i < n; i++) {
        if (outcomes[i].result.skipped[0])
            continue;
        FILE *to = create(folder, outcomes[i].experiment->name, ".svg", path, sizeof path);
        if (!to)
            return false;
        fwrite(outcomes[i].svg, 1, outcomes[i].svg_bytes, to);
        if (!finish(to, path))
            return false;
    }
    if (all && !write_html(folder, outcomes, n, options->quick))
        return false;
    FILE *to = create(folder, "results", ".json", path, sizeof path);
    json_t *json = to ? json_all(outcomes, n, all, options) : NULL;
    if (!to)
        return false;
    if (!json || json_dumpf(json, to, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) != 0) {
        cli_error("lab", "cannot write %s", path);
        fclose(to);
        json_decref(json);
        return false;
    }
    json_decref(json);
    return finish(to, path);
}

/* ---- The command ---- */

static bool run_one(const lab_experiment *e, const lab_options *options, outcome *o)
{
    o->experiment = e;
    if (!lab_run(e, options, &o->result)) {
        cli_error("lab", "%s: %s", e->name, o->result.error);
        return false;
    }
    if (o->result.skipped[0])
        return true;
    FILE *to = open_memstream(&o->svg, &o->svg_bytes);
    if (to) {
        lab_draw(to, e->title, &o->result);
        fclose(to);
    }
    if (!to || !o->svg) {
        cli_error("lab", "%s: no memory for the figure", e->name);
        return false;
    }
    return true;
}

static int unknown(const char *name)
{
    cli_error("lab", "there is no experiment '%s'", name);
    char names[512] = "";
    for (const lab_experiment *e = lab_experiments; e->name; e++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s, ", e->name);
    cli_hint("experiments: %sall", names);
    return CLI_USAGE;
}

static int run_list(const lab_experiment *from, int n, bool all, const lab_options *options, bool as_json, const char *folder)
{
    const cli_term term = cli_term_of(stdout);
    if (folder && !make_folder(folder))
        return CLI_FAILED;
    outcome *outcomes = calloc((size_t)n, sizeof *outcomes);
    bool good = outcomes != NULL;
    if (!good)
        cli_error("lab", "no memory");
    for (int i = 0; good && i < n; i++) {
        good = run_one(&from[i], options, &outcomes[i]);
        if (good && !as_json) {
            if (i > 0)
                putchar('\n');
            print_result(&term, &outcomes[i]);
            fflush(stdout);
        }
    }
    if (good && as_json)
        good = cli_print_json(json_all(outcomes, n, all, options), 12) == CLI_OK;
    good = good && (!folder || write_files(folder, outcomes, n, all, options));
    if (good && folder && !as_json)
        printf("\n  written to %s: %sresults.json and the figures\n", folder, all ? "index.html, " : "");
    for (int i = 0; outcomes && i < n; i++)
        free(outcomes[i].svg);
    free(outcomes);
    return good ? CLI_OK : CLI_FAILED;
}

static int lab_command(int argc, char **argv)
{
    static const struct option options[] = {{"quick", no_argument, NULL, 'q'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"model", required_argument, NULL, 'm'},
                                            {"small", required_argument, NULL, 's'},
                                            {NULL, 0, NULL, 0}};
    lab_options chosen = {false, 0, NULL, NULL};
    bool as_json = false;
    const char *folder = NULL;
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "o:", options, NULL)) != -1) {
        if (option == 'q')
            chosen.quick = true;
        else if (option == 'j')
            as_json = true;
        else if (option == 'o')
            folder = optarg;
        else if (option == 'm')
            chosen.model = optarg;
        else if (option == 's')
            chosen.small_model = optarg;
        else
            return cli_bad_option("lab", argv);
    }
    if (optind + 1 != argc) {
        cli_error("lab", optind == argc ? "no experiment named" : "one experiment at a time, or all");
        cli_hint("for example: attn lab scaling; attn lab all --quick -o report");
        return CLI_USAGE;
    }
    int n = 0;
    for (; lab_experiments[n].name; n++)
        if (strcmp(argv[optind], lab_experiments[n].name) == 0)
            return run_list(&lab_experiments[n], 1, false, &chosen, as_json, folder);
    if (strcmp(argv[optind], "all") != 0)
        return unknown(argv[optind]);
    return run_list(lab_experiments, n, true, &chosen, as_json, folder);
}

const cli_command cli_lab = {
    "lab", "what the lessons claim, as experiments",
    "attn lab - what the lessons claim, as experiments with a table, a figure and what was found\n"
    "\n"
    "usage: attn lab NAME|all [--quick] [--json] [-o FOLDER] [--model FILE] [--small FOLDER]\n"
    "\n"
    "  scaling     winner's probability and softmax gradient against d_k, scaled and unscaled\n"
    "  path        gradient of output n with respect to input 1: recurrent networks and attention\n"
    "  recall      name at the end what came first, trained at growing distance, and that gradient again\n"
    "  stall       a lookup learnt with and without division by sqrt(d_k)\n"
    "  heads       one head, two and eight with as many parameters\n"
    "  depth       post-norm and pre-norm by depth, with and without warm-up\n"
    "  mask        a language learnt with the causal mask and without: the loss, and what is written\n"
    "  lookback    a recurrent decoder that weighs all states of its encoder\n"
    "  at-once     all positions in one pass against one at a time\n"
    "  order       a permuted input, without and with positions\n"
    "  change      which outputs change when one query, key or value does\n"
    "  counts      parameters, comparisons, and which parts exchange information\n"
    "  cost        time and memory against length, fused and n x n\n"
    "  serial      time of a training token, recurrent network and attention, 1 and 2 threads\n"
    "  bridge      what \"it\" reads in one sentence (*)\n"
    "  evidence    does \"it\" read what it can refer to: minimal pairs, held-out nouns, cuts (*)\n"
    "  occurrences one token in many contexts, layer by layer (*, and the small model)\n"
    "  induction   heads that copy repeated tokens, and the loss without them (*, and shipped ones)\n"
    "  (*) on SmolLM2-135M; left out where that is not here\n"
    "\n"
    "  --quick      smaller sizes, fewer repetitions: seconds instead of minutes\n"
    "  --json       everything as one JSON object\n"
    "  -o FOLDER    figures as SVG and results.json; of all also index.html, one page\n"
    "  --model FILE the real model (default: SmolLM2-135M-Instruct in the cache folder)\n"
    "  --small DIR  the small model (default: models/austen, where that is here)\n"
    "\n"
    "A line \"NOT seen\" is a result, too: the exit code is 0 whatever was found.\n"
    "\n"
    "example: attn lab all --quick -o report\n",
    lab_command};
