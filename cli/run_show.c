/* run_show.c - `attn run` for a person: the model, the tokens, what comes next, who reads what. */
#include "run_view.h"

#include "attn/viz.h"

#include <math.h>
#include <stdlib.h>

enum { LABEL_BYTES = 96, LABEL_COLUMNS = 14, LEFT = 18, RIGHT = 18 };

static int columns_of(const char *text)
{
    return (int)attn_text_columns(text, strlen(text));
}

void run_label(const run_state *s, int32_t id, int max_columns, char *out, size_t capacity)
{
    size_t bytes, skip;
    char *text = cli_token_bytes(&s->m, id, &bytes);
    skip = text && bytes > 1 && text[0] == ' ';
    attn_text_visible(text ? text + skip : "", text ? bytes - skip : 0, max_columns, out, capacity,
                      NULL);
    free(text);
}

static void label(const run_state *s, int32_t id, int max_columns, char out[LABEL_BYTES])
{
    run_label(s, id, max_columns, out, LABEL_BYTES);
}

int run_label_columns(const run_state *s, int32_t id, int max_columns)
{
    char text[LABEL_BYTES];
    label(s, id, max_columns, text);
    int width = columns_of(text);
    return (width > 4 ? width : 4) + 2;
}

/* ---- Model, tokens, next tokens ------------------------------------------------------------ */

void run_show_model(const cli_term *term, const run_state *s)
{
    const attn_model_info *i = &s->m.info;
    char parameters[32], vocabulary[32], context[32], text[512];
    cli_count_text(i->n_parameters, parameters);
    cli_grouped_text(i->vocab_size, vocabulary);
    cli_grouped_text(i->context_length, context);
    const char *slash = strrchr(s->m.path, '/');
    cli_title(term, "%s", slash && slash[1] ? slash + 1 : s->m.path);
    snprintf(text, sizeof text,
             "%s, %s parameters (%s): %lld layers of %lld heads (%lld for keys and values) of size "
             "%lld; "
             "width %lld, vocabulary %s, context %s",
             i->family, parameters, i->weights, (long long)i->n_layers, (long long)i->n_heads,
             (long long)i->n_kv_heads, (long long)i->head_dim, (long long)i->d_model, vocabulary,
             context);
    cli_paragraph(term, 2, text);
}

void run_show_tokens(const cli_term *term, const run_state *s)
{
    enum { MOST_LINES = 8 };
    char text[LABEL_BYTES];
    int at = 2, lines = 1;
    putchar('\n');
    cli_title(term, "%lld token%s", (long long)s->n, s->n == 1 ? "" : "s");
    fputs("  ", stdout);
    for (int64_t i = 0; i < s->n; i++) {
        cli_token_visible(&s->m, s->ids[i], 40, text, sizeof text);
        int columns = columns_of(text) + (i > 0);
        if (i > 0 && at + columns > term->width) {
            if (lines++ == MOST_LINES) {
                printf("\n  ... and %lld more", (long long)(s->n - i));
                break;
            }
            fputs("\n  ", stdout);
            at = 2;
        }
        printf("%s%s%s", i > 0 ? cli_dim(term) : "", i > 0 ? "│" : "",
               i > 0 ? cli_reset(term) : "");
        printf("%s%s%s", i == s->at ? cli_accent(term) : "", text,
               i == s->at ? cli_reset(term) : "");
        at += columns;
    }
    putchar('\n');
}

void run_show_top(const cli_term *term, const run_state *s)
{
    int shown = s->n_top < RUN_SHOWN ? s->n_top : RUN_SHOWN, widest = 0;
    char text[RUN_SHOWN][LABEL_BYTES + 2];
    for (int t = 0; t < shown; t++) {
        char visible[LABEL_BYTES];
        cli_token_visible(&s->m, s->top[t].id, 20, visible, sizeof visible);
        snprintf(text[t], sizeof text[t], "\"%s\"", visible);
        widest = columns_of(text[t]) > widest ? columns_of(text[t]) : widest;
    }
    putchar('\n');
    cli_title(term, "Likeliest next tokens");
    for (int t = 0; t < shown; t++) {
        fputs("  ", stdout);
        cli_pad(text[t], widest + 2);
        printf("%5.1f %%  ", 100 * s->top[t].probability);
        cli_bar(term, s->top[t].probability / s->top[0].probability, 30);
        putchar('\n');
    }
}

/* ---- Readings ------------------------------------------------------------------------------ */

/* ".77"; " ·" for what rounds to nothing; "1.0" for all. */
static void weight_text(double w, char out[8])
{
    if (!(w >= 0.005))
        strcpy(out, "·");
    else if (w >= 0.995)
        strcpy(out, "1.0");
    else
        snprintf(out, 8, ".%02d", (int)lround(100 * w));
}

static void print_weight(double w, int columns)
{
    char text[8];
    weight_text(w, text);
    cli_pad(text, -columns);
}

/* A cell of the heat map: the number on its colour; without colour a block beside the number. */
void run_print_cell(const cli_term *term, double w, int columns, bool own)
{
    char text[8], cell[16];
    weight_text(w, text);
    snprintf(cell, sizeof cell, "%s%s", text, own ? " " : cli_heat_block(w));
    if (term->colour) {
        putchar(' ');
        fputs(own ? cli_dim(term) : cli_heat_begin(term, w), stdout);
        snprintf(cell, sizeof cell, "%s ", text);
        cli_pad(cell, 1 - columns);
        fputs(cli_reset(term), stdout);
    } else {
        cli_pad(cell, -columns);
    }
}

/* No "-0.00". */
static double round_to_cents(double x)
{
    return fabs(x) < 0.005 ? 0.0 : x;
}

/* The columns on the right: the sum elsewhere, and what cutting the largest reading changes. */
static void print_right(const run_state *s, const run_reading *r)
{
    double base = s->n_top > 1 ? s->top[0].logit - s->top[1].logit : 0.0;
    print_weight(r->elsewhere, 9);
    if (r->measured)
        printf("  %+7.2f", round_to_cents(r->difference - base));
    putchar('\n');
}

static void print_left(const cli_term *term, const run_reading *r)
{
    printf("  %4lld  %4lld%s", (long long)r->layer, (long long)r->head, cli_dim(term));
    print_weight(r->first, LEFT - 12);
    fputs(cli_reset(term), stdout);
}

static int column_width(const run_state *s, int64_t j)
{
    return j == s->at ? 8 : run_label_columns(s, s->ids[j], LABEL_COLUMNS);
}

/* The last row: the largest weight that any head of any layer puts on each token. */
static void show_most(const cli_term *term, const run_state *s)
{
    int64_t heads = s->m.info.n_layers * s->m.info.n_heads;
    char text[32];
    snprintf(text, sizeof text, "  any of %lld", (long long)heads);
    cli_pad(text, LEFT);
    for (int64_t j = 1; j < s->at; j++) {
        double most = 0.0;
        for (int64_t h = 0; h < heads; h++)
            most = fmax(most, s->rows[h * s->n + j]);
        run_print_cell(term, most, column_width(s, j), false);
    }
    putchar('\n');
}

/* A column a token: where all of them fit. */
static void show_table(const cli_term *term, const run_state *s)
{
    char text[LABEL_BYTES];
    printf("%s  layer head first", cli_dim(term));
    printf("%*s", LEFT - 18, "");
    for (int64_t j = 1; j <= s->at; j++) {
        label(s, s->ids[j], LABEL_COLUMNS, text);
        cli_pad(j == s->at ? "itself" : text, 1 - column_width(s, j));
        putchar(' ');
    }
    printf(" elsewhere%s%s\n", s->options->cut ? "     cut" : "", cli_reset(term));
    for (int64_t r = 0; r < s->n_readings; r++) {
        print_left(term, &s->readings[r]);
        for (int64_t j = 1; j <= s->at; j++)
            run_print_cell(term, s->readings[r].weights[j], column_width(s, j), j == s->at);
        print_right(s, &s->readings[r]);
    }
    show_most(term, s);
}

/* Three tokens that are read most, with their weights, in `columns` columns. */
static void print_most_read(const run_state *s, const run_reading *r, int columns)
{
    int64_t taken[3] = {-1, -1, -1};
    int used = 0;
    for (int k = 0; k < 3; k++) {
        char name[LABEL_BYTES], weight[8], item[LABEL_BYTES + 16];
        int64_t best = -1;
        for (int64_t j = 1; j < s->at; j++)
            if (j != taken[0] && j != taken[1] && (best < 0 || r->weights[j] > r->weights[best]))
                best = j;
        taken[k] = best;
        if (best < 0 || r->weights[best] < 0.02)
            break;
        label(s, s->ids[best], 10, name);
        weight_text(r->weights[best], weight);
        snprintf(item, sizeof item, "%s%s %s", k ? "  " : "", name, weight);
        if (used + columns_of(item) > columns)
            break;
        fputs(item, stdout);
        used += columns_of(item);
    }
    printf("%*s", columns - used, "");
}

/* A strip over all positions, each cell the largest weight of its share of them. */
static void show_strips(const cli_term *term, const run_state *s)
{
    int names = 32, strip = term->width - LEFT - names - RIGHT - 2;
    int64_t others = s->at - 1; /* positions 1 .. at - 1 */
    if (strip > 60) {
        names += strip - 60;
        strip = 60;
    }
    if (strip < 10)
        strip = 10;
    if (others < strip)
        strip = (int)others;
    printf("%s  layer head first  ", cli_dim(term));
    cli_pad("2", strip > 6 ? strip - 5 : 0);
    printf("%*lld  ", strip > 6 ? 5 : 0, (long long)s->at);
    cli_pad("reads most", names);
    printf(" elsewhere%s%s\n", s->options->cut ? "     cut" : "", cli_reset(term));
    for (int64_t k = 0; k < s->n_readings; k++) {
        const run_reading *r = &s->readings[k];
        print_left(term, r);
        fputs("  ", stdout);
        for (int c = 0; c < strip; c++) {
            int64_t from = 1 + others * c / strip, to = 1 + others * (c + 1) / strip;
            double most = 0.0;
            for (int64_t j = from; j < to; j++)
                most = fmax(most, r->weights[j]);
            if (term->colour)
                printf("%s %s", most >= 0.05 ? cli_heat_begin(term, most) : "", cli_reset(term));
            else
                fputs(cli_heat_block(most), stdout);
        }
        fputs("  ", stdout);
        print_most_read(s, r, names);
        print_right(s, r);
    }
}

static void show_meaning(const cli_term *term, const run_state *s)
{
    puts("\n  A weight is how much of a token's value one head, in one layer, adds in here.");
    puts("  It is no cause, no explanation: all other heads and layers shape the output.");
    if (s->options->cut && s->n_top > 1) {
        char best[LABEL_BYTES], second[LABEL_BYTES], text[512];
        label(s, s->top[0].id, LABEL_COLUMNS, best);
        label(s, s->top[1].id, LABEL_COLUMNS, second);
        snprintf(text, sizeof text,
                 "cut: what moved with it, the change of logit(%s) - logit(%s), now %+.2f, when "
                 "the head's "
                 "largest reading gets weight 0 and the rest is renormalised. Later layers often "
                 "repair a "
                 "single cut, and one text illustrates; it proves nothing.",
                 best, second, (double)(s->top[0].logit - s->top[1].logit));
        cli_paragraph(term, 2, text);
    }
}

/* The sink, named once, so that its column can be read. */
static void show_first(const cli_term *term, const run_state *s)
{
    char name[LABEL_BYTES], text[LABEL_BYTES + 96];
    label(s, s->ids[0], LABEL_COLUMNS, name);
    snprintf(text, sizeof text,
             "first: the weight on \"%s\", set apart: heads park there what they do not use", name);
    fputs(cli_dim(term), stdout);
    cli_paragraph(term, 2, text);
    fputs(cli_reset(term), stdout);
}

void run_show_readings(const cli_term *term, const run_state *s)
{
    char name[LABEL_BYTES];
    int width = LEFT + RIGHT;
    label(s, s->ids[s->at], 30, name);
    putchar('\n');
    if (s->at < 2) {
        cli_title(term, "What \"%s\" (position %lld) reads", name, (long long)s->at + 1);
        cli_paragraph(
            term, 2,
            s->at == 0
                ? "The first token can read only itself."
                : "The second token can read only itself and the first, where heads park what they "
                  "do not use. Choose a later one with --at.");
        return;
    }
    cli_title(term, "What \"%s\" (position %lld) reads: %s", name, (long long)s->at + 1,
              s->options->look.layer >= 0 || s->options->look.head >= 0
                  ? "the chosen heads"
                  : "the heads that read most from elsewhere");
    show_first(term, s);
    for (int64_t j = 1; j <= s->at && width <= term->width; j++)
        width += column_width(s, j);
    if (width <= term->width)
        show_table(term, s);
    else
        show_strips(term, s);
    show_meaning(term, s);
}
