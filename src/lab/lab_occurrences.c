/* lab_occurrences.c - one token in several sentences: the same row of the table at the bottom, and what layers make of it.
 * Sentences end with the word, so that all the context there is stands before it. */
#include <math.h>
#include <string.h>
#include "lab/lab_model.h"

enum { WORDS = 3, SENSES = 2, EACH = 4, ALL = SENSES * EACH, MOST_TOKENS = 40 };

static const char *const sentences[WORDS][ALL] = {
    {"He paid his wages into an account at the bank", "She asked for a loan, and the money came from the bank",
     "The cashier locked the safe and closed the bank", "Interest on savings was raised by the bank",
     "They tied the rowing boat to a tree on the bank", "The river rose in the night and flooded the bank",
     "Otters had dug their holes in the muddy bank", "We sat fishing in the reeds along the bank"},
    {"After the long winter snow the birds came back in spring", "The cherry trees are in flower every spring",
     "Farmers sow their wheat and lambs are born in spring", "March and April are the months of spring",
     "The mattress creaked on every worn metal spring", "He wound up the clock and broke its steel spring",
     "The door closes by itself because of a coiled spring", "Each wheel of the cart hangs on a heavy iron spring"},
    {"She wrote her name and sealed the envelope of the letter", "The postman brought him a long handwritten letter",
     "Every week my aunt sent us a friendly letter", "He put a stamp on it and posted the letter",
     "The alphabet begins with this capital letter", "A vowel is written here with a single letter",
     "The child could not yet spell it and left out a letter", "In this word the third is a silent letter"}};

typedef struct spread { /* of one layer: mean distances of hidden states, in units of their mean length */
    double same, other, largest;
} spread;

/* Hidden states of the last token: states[layer][sentence][d]. */
static bool states_of(lab_model *m, int word, float *states)
{
    const int64_t d = m->info.d_model, layers = m->info.n_layers + 1;
    const int n_blocks = m->l->n_blocks;
    int32_t ids[MOST_TOKENS], last = -1;
    for (int s = 0; s < ALL; s++) {
        attn_forward_args args;
        const int64_t n = lab_model_tokens(m, sentences[word][s], ids, MOST_TOKENS);
        float *hidden = n > 0 ? lab_new(m->l, (size_t)(layers * n * d) * sizeof *hidden) : NULL;
        if (!hidden || (s > 0 && ids[n - 1] != last)) {
            if (hidden)
                snprintf(m->l->result->error, sizeof m->l->result->error, "'%s' ends with another token", sentences[word][s]);
            m->l->failed = true;
            return false;
        }
        last = ids[n - 1];
        ATTN_ARGS_INIT(&args);
        args.hidden_states = hidden;
        if (!lab_model_run(m, ids, n, &args))
            return false;
        for (int64_t layer = 0; layer < layers; layer++)
            memcpy(states + (layer * ALL + s) * d, hidden + (layer * n + n - 1) * d, (size_t)d * sizeof *states);
        lab_release(m->l, n_blocks);
    }
    return true;
}

static spread spread_of(const float *states, int64_t d)
{
    double sums[2] = {0, 0}, length = 0, largest = 0;
    int counts[2] = {0, 0};
    for (int a = 0; a < ALL; a++) {
        double square = 0;
        for (int64_t i = 0; i < d; i++)
            square += (double)states[a * d + i] * (double)states[a * d + i];
        length += sqrt(square) / ALL;
        for (int b = 0; b < a; b++) {
            double apart = 0;
            for (int64_t i = 0; i < d; i++)
                apart += pow((double)states[a * d + i] - (double)states[b * d + i], 2);
            const int other = a / EACH != b / EACH;
            sums[other] += sqrt(apart), counts[other]++;
            largest = fmax(largest, sqrt(apart));
        }
    }
    return (spread){sums[0] / counts[0] / length, sums[1] / counts[1] / length, largest};
}

/* spreads[layer], means over the words. */
static bool measure(lab *l, int which, spread *spreads, int64_t most, int64_t *layers)
{
    lab_model m;
    if (!lab_model_open(l, which, &m))
        return false;
    *layers = m.info.n_layers + 1 < most ? m.info.n_layers + 1 : most;
    float *states = lab_new(l, (size_t)((m.info.n_layers + 1) * ALL * m.info.d_model) * sizeof *states);
    const int n_blocks = l->n_blocks;
    for (int w = 0; w < WORDS && !l->failed; w++) {
        if (!states_of(&m, w, states))
            break;
        for (int64_t i = 0; i < *layers; i++) {
            const spread s = spread_of(states + i * ALL * m.info.d_model, m.info.d_model);
            spreads[i].same += s.same / WORDS, spreads[i].other += s.other / WORDS;
            spreads[i].largest = fmax(spreads[i].largest, s.largest);
        }
        lab_release(l, n_blocks);
    }
    lab_model_close(&m);
    return !l->failed;
}

void lab_occurrences(lab *l)
{
    const bool given = l->options->model != NULL;
    const char *const names[] = {"layer", given ? "--model, same sense" : "SmolLM2, same sense",
                                 given ? "--model, other sense" : "SmolLM2, other sense", "small model, same sense",
                                 "small model, other sense"};
    spread spreads[2][LAB_ROWS] = {{{0, 0, 0}}};
    int64_t layers[2] = {0, 0};
    const bool real = measure(l, LAB_REAL, spreads[0], LAB_ROWS, &layers[0]);
    const bool small = !l->failed && measure(l, LAB_SMALL, spreads[1], LAB_ROWS, &layers[1]);
    if (l->failed)
        return;
    if (!real && !small) {
        lab_model_skip(l, LAB_SMALL);
        return;
    }
    const int64_t most = layers[0] > layers[1] ? layers[0] : layers[1];
    double best = 0, best_small = 0;
    int64_t at = 0;
    lab_columns(l, 5, names);
    for (int64_t i = 0; i < most; i++) {
        const bool here[2] = {i < layers[0], i < layers[1]};
        const double row[5] = {(double)i, here[0] ? spreads[0][i].same : NAN, here[0] ? spreads[0][i].other : NAN,
                               here[1] ? spreads[1][i].same : NAN, here[1] ? spreads[1][i].other : NAN};
        lab_row(l, row);
        if (i > 0 && here[0] && row[2] / row[1] > best)
            best = row[2] / row[1], at = i;
        if (i > 0 && here[1])
            best_small = fmax(best_small, row[4] / row[3]);
    }
    l->result->drawn = (real ? 0x6u : 0) | (small ? 0x18u : 0);
    l->result->y_label = "distance / length of the states";
    lab_expect(l, (!real || spreads[0][0].largest == 0) && (!small || spreads[1][0].largest == 0),
               "before the first layer every occurrence has the same vector, bit for bit");
    lab_expect(l, (!real || spreads[0][1].same > 0) && (!small || spreads[1][1].same > 0),
               "behind the first layer they differ");
    if (real)
        lab_expect(l, best > 1.1, "%s: in some layer occurrences of another sense lie over a tenth further apart than of the same",
                   lab_model_name(l));
    if (small)
        lab_expect(l, best_small > 1.1, "the small model: too");
    lab_say(l, "\"bank\", \"spring\" and \"letter\", each at the end of %d sentences in one sense and %d in another; distances of the "
            "hidden states there, divided by their mean length, means over the words. Layer 0 is the embedding. ", EACH, EACH);
    if (real)
        lab_say(l, "%s: in layer %lld, where senses part most, states of another sense are %.2f times as far apart as of "
                "the same (%.2f and %.2f); behind the last layer %.2f times. ", lab_model_name(l), (long long)at, best, spreads[0][at].other,
                spreads[0][at].same, spreads[0][layers[0] - 1].other / spreads[0][layers[0] - 1].same);
    if (small)
        lab_say(l, "The small model%s: at most %.2f times. ",
                l->options->small_model ? "" : " shipped here, which has seen six million tokens of novels", best_small);
    lab_say(l, "The lessons' two halves are both there: one row of a table for every occurrence, and representations that differ by "
            "context. Sense is a part of that: occurrences in one sense differ, too. Three words and 24 sentences show how layers "
            "part occurrences; they do not measure how well.");
}
