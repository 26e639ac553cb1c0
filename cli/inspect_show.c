/* inspect_show.c - `attn inspect` in the terminal: what the position reads, the readings that were cut in the model, whole
 * heads replaced, head tests. */
#include "inspect_view.h"
#include "run_view.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_READINGS = 8, MOST_HEADS = 12, MATRIX_TOKENS = 16, NAME_COLUMNS = 8, MOST_PARTS = 12 };

static void visible(const inspect_state *s, int32_t id, int columns, char *out, size_t capacity)
{
    cli_token_visible(&s->m, id, columns, out, capacity);
    if (strcmp(out, " ") == 0)
        snprintf(out, capacity, "\xE2\x90\xA3");
}

/* Bytes of UTF-8 that these tokens are together, at most 64; 0: more, or a character is cut at an end. */
static size_t whole(const inspect_state *s, const int32_t *ids, int64_t n, char out[65])
{
    size_t bytes = 0;
    if (attn_model_detokenize(s->m.model, ids, n, 0, out, 64, &bytes) != ATTN_OK || bytes > 64)
        return 0;
    out[bytes] = '\0';
    return strstr(out, "\xEF\xBF\xBD") ? 0 : bytes;
}

/* Token i of n; a part of a character as that and which part it is, as the page has it: "\u6771[1/2]". */
static void visible_at(const inspect_state *s, const int32_t *ids, int64_t n, int64_t i, int columns, char *out, size_t capacity)
{
    char text[65], tail[32];
    for (int64_t first = i < MOST_PARTS ? 0 : i - MOST_PARTS; first <= i;) {
        int64_t parts = 1;
        while (parts < MOST_PARTS && first + parts < n && !whole(s, ids + first, parts, text))
            parts++;
        const size_t bytes = whole(s, ids + first, parts, text);
        if (bytes && parts > 1 && i < first + parts) {
            const int width = snprintf(tail, sizeof tail, "[%d/%d]", (int)(i - first) + 1, (int)parts);
            attn_text_visible(text, bytes, columns > width ? columns - width : 0, out, capacity, NULL);
            const size_t used = strlen(out);
            snprintf(out + used, capacity - used, "%s", tail);
            return;
        }
        first += bytes ? parts : 1;
    }
    visible(s, ids[i], columns, out, capacity);
}

static void number(int width, double x)
{
    if (x == x)
        printf("%+*.2f", width, x);
    else
        printf("%*s", width, "-");
}

static void print_head(int64_t layer, int64_t head)
{
    printf("  %3lld.%-3lld ", (long long)layer, (long long)head);
}

/* ---- What the position reads ---------------------------------------------------------------- */

/* The attention that the position belongs to: the decoder's own where there are three. */
static const attn_inspect_map *main_map(const attn_inspection *in)
{
    return &in->maps[in->n_maps > 1 ? 1 : 0];
}

static const int32_t *main_tokens(const attn_inspection *in)
{
    return in->n_maps > 1 ? in->target : in->tokens;
}

/* One head of a short text: a row for each reader. false: it does not fit here. */
static bool show_matrix(const cli_term *term, const inspect_state *s, int64_t head)
{
    const attn_inspect_map *m = main_map(s->in);
    const int32_t *tokens = main_tokens(s->in);
    int widths[MATRIX_TOKENS], width = 14;
    char name[96];
    if (m->n_queries > MATRIX_TOKENS || m->n_rows != m->n_queries || m->most_kept < m->n_keys)
        return false;
    for (int64_t j = 0; j < m->n_keys; j++) {
        visible_at(s, tokens, m->n_keys, j, NAME_COLUMNS, name, sizeof name);
        const int columns = (int)attn_text_columns(name, strlen(name)) + 1;
        width += widths[j] = columns > 6 ? columns : 6;
    }
    if (width > term->width)
        return false;
    cli_title(term, "Layer %lld, head %lld: readers down, what they read across", (long long)(head / m->n_heads),
              (long long)(head % m->n_heads));
    printf("%14s", "");
    for (int64_t j = 0; j < m->n_keys; j++) {
        visible_at(s, tokens, m->n_keys, j, NAME_COLUMNS, name, sizeof name);
        cli_pad(name, -widths[j]);
    }
    putchar('\n');
    for (int64_t i = 0; i < m->n_queries; i++) {
        const int64_t row = head * m->n_rows + i;
        visible_at(s, tokens, m->n_queries, i, NAME_COLUMNS, name, sizeof name);
        printf("  %s%3lld ", i == s->in->at ? cli_accent(term) : "", (long long)i + 1);
        cli_pad(name, NAME_COLUMNS);
        fputs(cli_reset(term), stdout);
        for (int64_t e = m->starts[row], next = 0; e < m->starts[row + 1]; next = m->keys[e++] + 1) {
            for (; next < m->keys[e]; next++)
                printf("%*s", widths[next], "");
            run_print_cell(term, (double)m->weights[e], widths[m->keys[e]], false);
        }
        putchar('\n');
    }
    putchar('\n');
    return true;
}

/* The next largest weight of `at` behind `last` in the order (weight, place); -1: none. */
static int64_t next_largest(const attn_inspect_map *m, int64_t from, int64_t to, int64_t at, bool apart, int64_t last)
{
    int64_t best = -1;
    for (int64_t i = from * m->n_keys; i < to * m->n_keys; i++) {
        const int64_t key = i % m->n_keys;
        const float w = m->at_rows[i];
        if ((apart && (key == 0 || key == at)) || !(w > 0))
            continue;
        if (last >= 0 && (w > m->at_rows[last] || (w == m->at_rows[last] && i <= last)))
            continue;
        if (best < 0 || w > m->at_rows[best])
            best = i;
    }
    return best;
}

/* The largest readings of the position in one attention: its own, or of cross attention what the encoder read. */
static void show_map_readings(const cli_term *term, const inspect_state *s, const attn_inspect_map *m)
{
    const attn_inspection *in = s->in;
    const bool cross = m->attention == ATTN_ATTENTION_CROSS;
    const int32_t *read = cross ? in->tokens : main_tokens(in);
    const bool layer = in->layer >= 0, one = layer && in->head >= 0;
    const int64_t from = layer ? in->layer * m->n_heads + (one ? in->head : 0) : 0;
    const int64_t to = one ? from + 1 : layer ? from + m->n_heads : m->n_layers * m->n_heads;
    char name[96];
    if (!m->at_rows || (one && !cross && show_matrix(term, s, from)))
        return;
    visible_at(s, main_tokens(in), main_map(in)->n_queries, in->at, 24, name, sizeof name);
    cli_title(term, "What%s%s (position %lld) reads most%s", name[0] == ' ' ? "" : " ", name, (long long)in->at + 1,
              cross ? " of the encoder's text" : one ? "" : ", the first token and itself set apart");
    puts("     head reads    position weight moved direct");
    int64_t i = -1;
    for (int k = 0; k < MOST_READINGS && (i = next_largest(m, from, to, in->at, !one && !cross, i)) >= 0; k++) {
        const float w = m->at_rows[i];
        visible_at(s, read, m->n_keys, i % m->n_keys, NAME_COLUMNS, name, sizeof name);
        print_head(i / m->n_keys / m->n_heads, i / m->n_keys % m->n_heads);
        cli_pad(name, NAME_COLUMNS);
        printf(" %8lld %6.3f ", (long long)(i % m->n_keys) + 1, (double)w);
        if (m->value_norms)
            printf("%5.2f", (double)(w * m->value_norms[i]));
        else
            printf("%5s", "-");
        number(7, m->value_directs && in->at == m->n_queries - 1 ? (double)(w * m->value_directs[i]) : NAN);
        putchar('\n');
    }
    putchar('\n');
}

static void show_readings(const cli_term *term, const inspect_state *s)
{
    show_map_readings(term, s, main_map(s->in));
    if (s->in->n_maps > 2)
        show_map_readings(term, s, &s->in->maps[2]);
}

/* ---- Readings that were cut ------------------------------------------------------------------- */


static void show_outcome(const cli_term *term, const inspect_state *s)
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

static void show_edge(const inspect_state *s, const attn_inspect_edge *e, bool several)
{
    static const char *const names[] = {"encoder", "decoder", "cross"};
    const attn_inspection *in = s->in;
    const int32_t *readers = several && e->map > 0 ? in->target : in->tokens, *read = e->map == 1 ? in->target : in->tokens;
    char reader[96], key[96];
    visible_at(s, readers, in->maps[e->map].n_queries, e->query, 8, reader, sizeof reader);
    visible_at(s, read, in->maps[e->map].n_keys, e->key, 8, key, sizeof key);
    if (several)
        printf("  %-9s", names[e->map]);
    print_head(e->layer, e->head);
    cli_pad(reader, 8);
    putchar(' ');
    cli_pad(key, 8);
    printf(" %6.3f %5.2f", (double)e->weight, (double)e->moved);
    number(7, (double)e->direct);
    number(9, (double)e->estimate);
    number(9, (double)e->knockout.difference);
    number(8, (double)e->removal.difference);
    number(7, (double)e->mean.difference);
    if (in->pair)
        number(7, (double)e->pair.difference);
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

static void show_edges(const cli_term *term, const inspect_state *s)
{
    const attn_inspection *in = s->in;
    const bool several = in->n_maps > 1;
    show_outcome(term, s);
    printf("  %s   head reader   reads    weight moved direct estimate knockout removal   mean%s\n",
           several ? "attention" : "", in->pair ? "   pair" : "");
    for (int64_t i = 0; i < in->n_edges && i < 16; i++)
        show_edge(s, &in->edges[i], several);
    cli_paragraph(term, 2, "estimate: first order, of every reading. knockout, removal, mean value and pair's value: exact, "
                           "the model run again.");
    if (in->pair && in->pair_outcome == in->pair_outcome) {
        char text[96];
        snprintf(text, sizeof text, in->outcome_kind == ATTN_OUTCOME_EMBEDDING ? "The paired prompt's embedding is %.2f away."
                                                                            : "In the paired prompt the outcome is %+.2f.",
                 (double)in->pair_outcome);
        cli_paragraph(term, 2, text);
    }
}

/* ---- Whole heads ------------------------------------------------------------------------------ */

static int by_mean(const void *a, const void *b)
{
    const attn_inspect_head *x = *(const attn_inspect_head *const *)a, *y = *(const attn_inspect_head *const *)b;
    const float left = fabsf(x->mean.difference), right = fabsf(y->mean.difference);
    return (left < right) - (left > right);
}

static void show_heads(const cli_term *term, const inspect_state *s)
{
    static const char *const names[] = {"encoder", "decoder", "cross"};
    const attn_inspection *in = s->in;
    const int64_t n = in->n_cut_heads;
    const attn_inspect_head **order = calloc((size_t)n, sizeof *order);
    if (!order)
        return;
    for (int64_t h = 0; h < n; h++)
        order[h] = &in->heads[h];
    qsort(order, (size_t)n, sizeof *order, by_mean);
    putchar('\n');
    cli_title(term, "Whole heads replaced at every position (the %d of %lld that move most by their mean)",
              (int)(n < MOST_HEADS ? n : MOST_HEADS), (long long)n);
    printf("  %s   head  direct    mean resample    zero%s\n", in->n_maps > 1 ? "attention" : "",
           in->pair ? "   patch    path" : "");
    for (int64_t h = 0; h < n && h < MOST_HEADS; h++) {
        const attn_inspect_head *x = order[h];
        if (in->n_maps > 1)
            printf("  %-9s", names[x->map]);
        print_head(x->layer, x->head);
        number(6, (double)x->direct);
        number(8, (double)x->mean.difference);
        number(9, (double)x->resample.difference);
        number(8, (double)x->zero.difference);
        if (in->pair) {
            number(8, (double)x->patch.difference);
            number(8, (double)x->path.difference);
        }
        putchar('\n');
    }
    free(order);
    cli_paragraph(term, 2, in->pair ? "mean: over the text's positions. resample: by its outputs at other positions. zero: far from "
                                      "anything the model knows, for comparison. patch: by the paired prompt's outputs. path: "
                                      "the same, all other heads held at what they were."
                                    : "mean: over the text's positions. resample: by its outputs at other positions. zero: far from "
                                      "anything the model knows, for comparison.");
}

static void show_correlations(const cli_term *term, const attn_inspection *in)
{
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
}

static void show_caution(const cli_term *term)
{
    cli_paragraph(term, 2, "A weight is a coefficient of one head in one layer at one position: no cause, no explanation. "
                           "One text illustrates; it proves nothing.");
}

void inspect_show(const cli_term *term, const inspect_state *s)
{
    const attn_inspection *in = s->in;
    if (!in->measured) {
        cli_title(term, "%lld tokens, weights of %lld layers of %lld heads", (long long)in->n_tokens,
                  (long long)in->maps[0].n_layers, (long long)in->maps[0].n_heads);
        if (in->note[0])
            cli_paragraph(term, 2, in->note);
        putchar('\n');
        show_readings(term, s);
        show_caution(term);
        return;
    }
    show_readings(term, s);
    show_edges(term, s);
    if (in->heads)
        show_heads(term, s);
    show_correlations(term, in);
    putchar('\n');
    show_caution(term);
}

/* ---- Head tests -------------------------------------------------------------------------------- */

static int by_induction(const void *a, const void *b)
{
    const attn_head_score *x = *(const attn_head_score *const *)a, *y = *(const attn_head_score *const *)b;
    return (x->induction < y->induction) - (x->induction > y->induction);
}

void inspect_show_tests(const attn_head_tests_result *r)
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
           "%.2f (%+.2f);\n  with as many random others, of the same layers where they have some, %.2f (%+.2f)\n", r->loss_first, r->loss_second,
           (long long)r->n_cut, r->loss_cut, r->loss_cut - r->loss_second, r->loss_control,
           r->loss_control - r->loss_second);
}
