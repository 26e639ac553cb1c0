/* explain_topics.c - why the scaling, what the mask switches, how far a signal travels. */
#include "explain.h"

#include <math.h>
#include <stdlib.h>

/* ---- saturation ------------------------------------------------------------------------------ */

typedef struct saturation_side {
    double gap, winner; /* of the scaled scores; the winner's weight */
    double gradient;    /* of the winner's weight by the loser's score; w (w - 1), below 0 */
} saturation_side;

/* Two keys whose raw scores differ by one standard deviation, sqrt(d_k): the query is all ones, the
 * winner's entries are 1/sqrt(d_k) (dot product sqrt(d_k)), the loser's are 0. */
static bool one_sigma(attn_ctx *ctx, int64_t head_dim, explain_scaling scaling,
                      saturation_side *side)
{
    explain_input input;
    explain_steps steps;
    bool good;
    memset(&input, 0, sizeof input);
    input.n_query = 1;
    input.n_key = 2;
    input.head_dim = head_dim;
    input.value_dim = 1;
    input.query = malloc((size_t)head_dim * sizeof(double));
    input.key = calloc((size_t)head_dim * 2, sizeof(double));
    input.value = calloc(2, sizeof(double));
    good = input.query && input.key && input.value;
    if (!good)
        cli_error("explain", "out of memory");
    for (int64_t d = 0; good && d < head_dim; d++) {
        input.query[d] = 1.0;
        input.key[d] = 1.0 / sqrt((double)head_dim);
    }
    good = good && explain_compute(ctx, &input, scaling, false, &steps);
    if (good) {
        side->winner = steps.weight[0];
        side->gap = steps.scaled[0] - steps.scaled[1];
        explain_steps_free(&steps);
        good = explain_gradient(ctx, &input, scaling, 0, 1, &side->gradient);
    }
    explain_input_free(&input);
    return good;
}

bool explain_winner(attn_ctx *ctx, int64_t head_dim, explain_scaling scaling, double *winner)
{
    saturation_side side;
    if (!one_sigma(ctx, head_dim, scaling, &side))
        return false;
    *winner = side.winner;
    return true;
}

static json_t *side_json(const saturation_side *side)
{
    return json_pack("{s:f, s:f, s:f}", "gap", side->gap, "winner", side->winner, "gradient",
                     side->gradient);
}

static void side_columns(const cli_term *term, const saturation_side *side)
{
    printf("  %8.3f   %s%.4f%s  %10.3g", side->gap, cli_heat_begin(term, side->winner),
           side->winner, cli_reset(term), side->gradient);
}

bool explain_saturation(const cli_term *term, attn_ctx *ctx, json_t *into)
{
    static const int64_t dims[] = {4, 16, 64, 256, 1024};
    json_t *rows = into ? json_array() : NULL;
    if (into) {
        json_object_set_new(into, "saturation", rows);
    } else {
        cli_title(term, "Why the scores are divided by sqrt(d_k)");
        cli_paragraph(
            term, 2,
            "Two keys whose raw scores differ by one standard deviation of a dot product, "
            "sqrt(d_k). How sure of the winner does softmax become, and how far can "
            "training still move it? The gradient is that of the winner's weight by "
            "the loser's score.");
        printf("\n        %s  unscaled                        scaled by 1/sqrt(d_k)%s\n",
               cli_dim(term), cli_reset(term));
        printf("  %s d_k       gap   winner   gradient        gap   winner   gradient%s\n",
               cli_dim(term), cli_reset(term));
    }
    for (size_t r = 0; r < sizeof dims / sizeof *dims; r++) {
        saturation_side raw, scaled;
        if (!one_sigma(ctx, dims[r], EXPLAIN_UNSCALED, &raw) ||
            !one_sigma(ctx, dims[r], EXPLAIN_SCALED, &scaled))
            return false;
        if (into) {
            json_array_append_new(rows, json_pack("{s:I, s:o, s:o}", "d_k", (json_int_t)dims[r],
                                                  "unscaled", side_json(&raw), "scaled",
                                                  side_json(&scaled)));
            continue;
        }
        printf("  %4lld", (long long)dims[r]);
        side_columns(term, &raw);
        side_columns(term, &scaled);
        putchar('\n');
    }
    if (!into)
        cli_paragraph(term, 2,
                      "Unscaled, the softmax collapses onto one key as d_k grows, and the gradient "
                      "that would nudge the others vanishes. Scaled, the same gap is 1 at every "
                      "d_k, and the winner stays where it was.");
    return true;
}

/* ---- mask ------------------------------------------------------------------------------------ */

static int64_t count_admitted(const explain_steps *steps, int64_t pairs)
{
    int64_t count = 0;
    for (int64_t p = 0; p < pairs; p++)
        count += steps->scaled[p] != -INFINITY;
    return count;
}

/* The lesson's figure: a grid of scores, the upper triangle set to minus infinity. */
static bool show_grid(const cli_term *term, attn_ctx *ctx)
{
    enum { N = 5 };
    double *admitted = explain_admitted(ctx, N, true, 0);
    if (!admitted)
        return false;
    printf("  %squery i in rows, key j in columns: what the causal mask leaves of the scores%s\n",
           cli_dim(term), cli_reset(term));
    for (int i = 0; i < N; i++) {
        printf("  ");
        for (int j = 0; j < N; j++) {
            if (admitted[i * N + j] > 0)
                printf("  q%dk%d", i + 1, j + 1);
            else
                printf("  %s-inf%s", cli_dim(term), cli_reset(term));
        }
        putchar('\n');
    }
    free(admitted);
    return true;
}

bool explain_mask(const cli_term *term, attn_ctx *ctx, json_t *into)
{
    static const char *const names[] = {"causal", "bidirectional"};
    explain_input input;
    json_t *object = into ? json_object() : NULL;
    bool good = true;
    if (into)
        json_object_set_new(into, "mask", object);
    if (!explain_input_bridge(&input))
        return false;
    if (!into) {
        cli_title(term, "The mask: one switch between a decoder and an encoder");
        good = show_grid(term, ctx);
    }
    for (int bidirectional = 0; good && bidirectional < 2; bidirectional++) {
        explain_steps steps;
        int64_t pairs = input.n_query * input.n_key, admitted;
        good = explain_compute(ctx, &input, EXPLAIN_SCALED, !bidirectional, &steps);
        if (!good)
            break;
        admitted = count_admitted(&steps, pairs);
        if (into) {
            json_object_set_new(
                object, names[bidirectional],
                json_pack("{s:I, s:o, s:o}", "admitted_pairs", (json_int_t)admitted, "weights",
                          explain_json_matrix(steps.weight, input.n_query, input.n_key), "outputs",
                          explain_json_matrix(steps.out, input.n_query, input.value_dim)));
        } else {
            printf("\n  %s: %lld of %lld pairs\n",
                   bidirectional ? "mask off (bidirectional: an encoder)"
                                 : "mask on (causal: a decoder)",
                   (long long)admitted, (long long)pairs);
            explain_matrix(term, &input, steps.weight, steps.scaled, true);
            explain_show_outputs(&input, &steps);
        }
        explain_steps_free(&steps);
    }
    explain_input_free(&input);
    return good;
}

/* ---- paths ----------------------------------------------------------------------------------- */

enum { LENGTH = 50, WINDOW = 8 };

/* Fewest hops from position 0 to each position, over edges "i reads j" (reads[i * n + j] > 0, j !=
 * i), by sweeps in ascending order: hops[i] = 1 + min over j that i reads. */
void explain_hops(const double *reads, int64_t n, int64_t *hops)
{
    for (int64_t i = 0; i < n; i++) {
        hops[i] = i == 0 ? 0 : n;
        for (int64_t j = 0; j < i; j++)
            if (reads[i * n + j] > 0 && hops[j] + 1 < hops[i])
                hops[i] = hops[j] + 1;
    }
}

/* A recurrent layer: position i reads the state of position i - 1 only. */
double *explain_recurrent(int64_t n)
{
    double *reads = calloc((size_t)(n * n), sizeof *reads);
    for (int64_t i = 1; reads && i < n; i++)
        reads[i * n + i - 1] = 1.0;
    return reads;
}

bool explain_paths(const cli_term *term, attn_ctx *ctx, json_t *into)
{
    static const int64_t ends[] = {2, 5, 10, 25, 50};
    int64_t rnn[LENGTH], full[LENGTH], windowed[LENGTH];
    double *reads[3] = {explain_recurrent(LENGTH), NULL, NULL};
    json_t *rows = into ? json_array() : NULL;
    bool good = (reads[1] = explain_admitted(ctx, LENGTH, true, 0)) != NULL &&
                (reads[2] = explain_admitted(ctx, LENGTH, true, WINDOW)) != NULL && reads[0];
    if (into)
        json_object_set_new(into, "paths", rows);
    if (good) {
        explain_hops(reads[0], LENGTH, rnn);
        explain_hops(reads[1], LENGTH, full);
        explain_hops(reads[2], LENGTH, windowed);
    }
    if (good && !into) {
        cli_title(term, "How far a signal travels from one token to another");
        cli_paragraph(
            term, 2,
            "Each hop is a hidden state where information can fade, and a factor that the training "
            "gradient passes through.");
        printf("\n  %sfrom  to     RNN   self-attention   self-attention, window of %d%s\n",
               cli_dim(term), WINDOW, cli_reset(term));
    }
    for (size_t r = 0; good && r < sizeof ends / sizeof *ends; r++) {
        int64_t last = ends[r] - 1;
        if (into)
            json_array_append_new(rows, json_pack("{s:i, s:I, s:I, s:I, s:I}", "from", 1, "to",
                                                  (json_int_t)ends[r], "rnn", (json_int_t)rnn[last],
                                                  "attention", (json_int_t)full[last], "window_8",
                                                  (json_int_t)windowed[last]));
        else
            printf("  %4d  %2lld  %6lld   %14lld   %26lld\n", 1, (long long)ends[r],
                   (long long)rnn[last], (long long)full[last], (long long)windowed[last]);
    }
    if (good && !into)
        cli_paragraph(
            term, 2,
            "In self-attention every earlier token is one dot product away. A window trades "
            "that for cheaper layers: the signal then needs several layers, one for each hop.");
    for (int i = 0; i < 3; i++)
        free(reads[i]);
    return good;
}
