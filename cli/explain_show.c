/* explain_show.c - the steps of one example as tables for a person, in the order of the lessons. */
#include "explain.h"

#include "attn/viz.h"

#include <math.h>
#include <stdlib.h>

enum { NAME_BYTES = 64, CELL_BYTES = 32, MOST_INPUT_ROWS = 24, MOST_SHOWN = 4 };

static int columns_of(const char *text)
{
    return (int)attn_text_columns(text, strlen(text));
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* 3 decimals as in the lessons, or scientific where they would not say anything. */
static void number_text(double x, char out[CELL_BYTES])
{
    if (x == 0.0)
        x = 0.0; /* no minus zero */
    if (!isfinite(x) || (fabs(x) < 1e6 && (x == 0.0 || fabs(x) >= 5e-4)))
        snprintf(out, CELL_BYTES, "%.3f", fabs(x) < 5e-4 ? 0.0 : x);
    else
        snprintf(out, CELL_BYTES, "%.2e", x);
}

static void cell_text(double x, bool masked, char out[CELL_BYTES])
{
    if (masked)
        strcpy(out, "—");
    else
        number_text(x, out);
}

/* "(1, 0.5)"; long vectors end in an ellipsis. exact: as given; else 3 decimals. */
static void print_vector(const double *x, int64_t n, bool exact, char *out, size_t capacity)
{
    size_t at = 0;
    int64_t shown = n <= MOST_SHOWN + 1 ? n : MOST_SHOWN;
    for (int64_t d = 0; d < shown && at < capacity; d++) {
        char number[CELL_BYTES];
        if (exact)
            snprintf(number, sizeof number, "%.4g", x[d] == 0.0 ? 0.0 : x[d]);
        else
            number_text(x[d], number);
        at += (size_t)snprintf(out + at, capacity - at, "%s%s", d ? ", " : "(", number);
    }
    if (at < capacity)
        snprintf(out + at, capacity - at, "%s", shown < n ? ", …)" : ")");
}

/* ---- matrices -------------------------------------------------------------------------------- */

typedef struct table {
    const cli_term *term;
    const explain_input *input;
    const double *matrix, *masked;
    bool heat;
    int name_columns;
} table;

static bool is_masked(const table *t, int64_t i, int64_t j)
{
    return t->masked && t->masked[i * t->input->n_key + j] == -INFINITY;
}

static int column_width(const table *t, int64_t j)
{
    char name[NAME_BYTES], cell[CELL_BYTES];
    explain_key_name(t->input, j, name);
    int width = columns_of(name);
    for (int64_t i = 0; i < t->input->n_query; i++) {
        cell_text(t->matrix[i * t->input->n_key + j], is_masked(t, i, j), cell);
        width = larger(width, columns_of(cell));
    }
    return larger(width, 6) + 2;
}

static void print_block(const table *t, int64_t from, int64_t to)
{
    char name[NAME_BYTES], cell[CELL_BYTES];
    printf("  %*s", t->name_columns, "");
    for (int64_t j = from; j < to; j++) {
        explain_key_name(t->input, j, name);
        fputs(cli_dim(t->term), stdout);
        cli_pad(name, -column_width(t, j));
        fputs(cli_reset(t->term), stdout);
    }
    putchar('\n');
    for (int64_t i = 0; i < t->input->n_query; i++) {
        explain_query_name(t->input, i, name);
        fputs("  ", stdout);
        cli_pad(name, t->name_columns);
        for (int64_t j = from; j < to; j++) {
            double x = t->matrix[i * t->input->n_key + j];
            bool masked = is_masked(t, i, j);
            cell_text(x, masked, cell);
            putchar(' ');
            fputs(masked ? cli_dim(t->term) : t->heat ? cli_heat_begin(t->term, x) : "", stdout);
            cli_pad(cell, 1 - column_width(t, j));
            fputs(masked || t->heat ? cli_reset(t->term) : "", stdout);
        }
        putchar('\n');
    }
}

void explain_matrix(const cli_term *term, const explain_input *input, const double *matrix,
                    const double *masked, bool heat)
{
    table t = {term, input, matrix, masked, heat, 0};
    char name[NAME_BYTES];
    for (int64_t i = 0; i < input->n_query; i++) {
        explain_query_name(input, i, name);
        t.name_columns = larger(t.name_columns, columns_of(name));
    }
    for (int64_t from = 0, to; from < input->n_key; from = to) {
        int width = 2 + t.name_columns;
        for (to = from; to < input->n_key; to++) {
            width += column_width(&t, to);
            if (width > term->width && to > from)
                break;
        }
        if (from > 0)
            printf("  keys %lld to %lld\n", (long long)from + 1, (long long)to);
        print_block(&t, from, to);
    }
}

/* ---- the steps ------------------------------------------------------------------------------- */

static void show_inputs(const cli_term *term, const explain_input *input)
{
    char name[NAME_BYTES], q[160], k[160], v[160];
    int width[3] = {0, 0, 0};
    int64_t rows = input->n_key < MOST_INPUT_ROWS ? input->n_key : MOST_INPUT_ROWS;
    for (int pass = 0; pass < 2; pass++) {
        if (pass) {
            printf("  %s%*s", cli_dim(term), width[0], "");
            printf("  %-*s  %-*s  value%s\n", width[1], "query", width[2], "key", cli_reset(term));
        }
        for (int64_t j = 0; j < rows; j++) {
            int64_t i = j - input->offset;
            bool asks = i >= 0 && i < input->n_query;
            if (input->names)
                explain_key_name(input, j, name);
            else
                snprintf(name, sizeof name, "position %lld", (long long)j + 1);
            q[0] = '\0';
            if (asks)
                print_vector(input->query + i * input->head_dim, input->head_dim, true, q,
                             sizeof q);
            print_vector(input->key + j * input->head_dim, input->head_dim, true, k, sizeof k);
            print_vector(input->value + j * input->value_dim, input->value_dim, true, v, sizeof v);
            if (!pass) {
                width[0] = larger(width[0], columns_of(name));
                width[1] = larger(larger(width[1], columns_of(q)), 5);
                width[2] = larger(larger(width[2], columns_of(k)), 3);
                continue;
            }
            fputs("  ", stdout);
            cli_pad(name, width[0] + 2);
            cli_pad(q, width[1] + 2);
            cli_pad(k, width[2] + 2);
            puts(v);
        }
    }
    if (rows < input->n_key)
        printf("  ... and %lld more\n", (long long)(input->n_key - rows));
}

/* y = 0.196 (2, 0) + 0.804 (0, 2) = (0.391, 1.609); the terms only where they are few. */
void explain_show_outputs(const explain_input *input, const explain_steps *steps)
{
    char text[160], name[NAME_BYTES];
    int name_columns = 0;
    for (int64_t i = 0; i < input->n_query; i++) {
        explain_query_name(input, i, name);
        name_columns = larger(name_columns, columns_of(name));
    }
    for (int64_t i = 0; i < input->n_query; i++) {
        const double *weight = steps->weight + i * input->n_key,
                     *scaled = steps->scaled + i * input->n_key;
        bool first = true;
        explain_query_name(input, i, name);
        if (!input->names)
            name[0] = 'y';
        fputs("  ", stdout);
        cli_pad(name, name_columns);
        fputs(input->names ? "  " : " = ", stdout);
        for (int64_t j = 0; j < input->n_key && input->n_key <= MOST_SHOWN && input->value_dim <= 3;
             j++) {
            if (scaled[j] == -INFINITY)
                continue;
            print_vector(input->value + j * input->value_dim, input->value_dim, true, text,
                         sizeof text);
            printf("%s%.3f %s", first ? "" : " + ", weight[j], text);
            first = false;
        }
        print_vector(steps->out + i * input->value_dim, input->value_dim, false, text, sizeof text);
        printf("%s%s\n", first ? "" : " = ", text);
    }
}

static int64_t count_masked(const explain_input *input, const explain_steps *steps)
{
    int64_t count = 0;
    for (int64_t p = 0; p < input->n_query * input->n_key; p++)
        count += steps->scaled[p] == -INFINITY;
    return count;
}

static void show_scaling_line(const explain_input *input, int64_t masked)
{
    if (input->scale_given)
        printf("2  scale: times %g, as given\n", input->scale);
    else
        printf("2  scale: divided by sqrt(d_k) = sqrt(%lld) = %.3f\n", (long long)input->head_dim,
               sqrt((double)input->head_dim));
    if (masked)
        puts("   and mask: — is a later position, set to minus infinity");
    else if (input->causal)
        puts("   and mask: nothing here lies later than the query");
}

static bool show_variants(const cli_term *term, attn_ctx *ctx, const explain_input *input,
                          int64_t masked)
{
    explain_steps steps;
    if (!explain_compute(ctx, input, EXPLAIN_UNSCALED, input->causal, &steps))
        return false;
    puts("\n   without the scaling, the weights would be");
    explain_matrix(term, input, steps.weight, steps.scaled, true);
    explain_steps_free(&steps);
    if (masked == 0)
        return true;
    if (!explain_compute(ctx, input, EXPLAIN_SCALED, false, &steps))
        return false;
    puts("\n   without the mask (an encoder reads in both directions)");
    explain_matrix(term, input, steps.weight, steps.scaled, true);
    explain_steps_free(&steps);
    return true;
}

bool explain_show(const cli_term *term, attn_ctx *ctx, const explain_input *input)
{
    explain_steps steps;
    int64_t masked;
    if (!explain_compute(ctx, input, EXPLAIN_SCALED, input->causal, &steps))
        return false;
    masked = count_masked(input, &steps);
    cli_title(term, "%s", input->title);
    show_inputs(term, input);
    puts("\n1  score: the dot product of each query with each key");
    explain_matrix(term, input, steps.score, NULL, false);
    show_scaling_line(input, masked);
    explain_matrix(term, input, steps.scaled, steps.scaled, false);
    puts("3  softmax: exponentiate, and divide by the row's sum: weights that add up to 1");
    explain_matrix(term, input, steps.weight, steps.scaled, true);
    puts("4  output: the sum of the values, each times its weight");
    explain_show_outputs(input, &steps);
    explain_steps_free(&steps);
    return show_variants(term, ctx, input, masked);
}
