/* lab_induction.c - head tests on the real and on the shipped models: are there heads that look behind the earlier occurrence
 * of the token, and what does the loss on repeated tokens cost without the best of them? */
#include <math.h>
#include <string.h>
#include "attn/inspect.h"
#include "lab/lab_model.h"

enum { COUNTS = 5, MODELS = 3 };

typedef struct cost { /* of one model */
    double induction, previous; /* best scores */
    double first, second, cut[COUNTS], control[COUNTS];
    int64_t layer, head, heads;
    int last; /* place of the most heads that were cut: a quarter of them at most, else random ones are the same */
} cost;

static bool measure(lab *l, int which, const int64_t *cuts, int n_cuts, int64_t n_sequences, cost *c)
{
    lab_model m;
    memset(c, 0, sizeof *c);
    if (!lab_model_open(l, which, &m))
        return false;
    for (int k = 0; k < n_cuts && !l->failed; k++) {
        attn_head_tests_args args;
        attn_head_tests_result *found = NULL;
        ATTN_ARGS_INIT(&args);
        args.n_cut = cuts[k], args.n_sequences = n_sequences, args.n_random = 40, args.seed = 7;
        if (!lab_model_ok(l, attn_head_tests(m.session, &args, &found)))
            break;
        c->heads = found->n_layers * found->n_heads;
        for (int64_t h = 0; h < c->heads; h++) {
            if ((double)found->scores[h].induction > c->induction)
                c->induction = (double)found->scores[h].induction, c->layer = h / found->n_heads, c->head = h % found->n_heads;
            c->previous = fmax(c->previous, (double)found->scores[h].previous);
        }
        c->first = found->loss_first, c->second = found->loss_second;
        const bool enough = cuts[k] <= c->heads / 4;
        c->cut[k] = enough ? found->loss_cut : NAN;
        c->control[k] = enough ? found->loss_control : NAN;
        c->last = enough ? k : c->last;
        attn_head_tests_destroy(found);
    }
    lab_model_close(&m);
    return !l->failed;
}

static void describe(lab *l, const char *name, const cost *c, const int64_t *cuts)
{
    const int last = c->last;
    const double rise = c->cut[last] - c->second, control = c->control[last] - c->second;
    lab_expect(l, c->induction > 0.3, "%s: a head puts over 0.3 on the token behind the earlier occurrence", name);
    lab_expect(l, c->second < c->first - 1, "%s: the repeated half costs at least a nat less than the first", name);
    lab_expect(l, rise > 0.2 && rise > 2 * control, "%s: without its best induction heads that rises, more than without others",
               name);
    lab_say(l, "%s (%lld heads): the best induction score is %.3f (layer %lld, head %lld), the best previous-token score %.3f. The "
            "first half costs %.2f nats a token, its repetition %.2f; with the %lld best induction heads replaced by their means "
            "%.2f, with as many random ones %.2f. ", name, (long long)c->heads, c->induction, (long long)c->layer,
            (long long)c->head, c->previous, c->first, c->second, (long long)cuts[last], c->cut[last], c->control[last]);
    if (c->second > c->first - 1)
        lab_say(l, "So this model does not copy: there is nothing for induction heads to do, and none is claimed. ");
}

void lab_induction(lab *l)
{
    const bool given = l->options->model != NULL;
    const char *const names[] = {"heads cut", given ? "--model, best" : "SmolLM2, best",
                                 given ? "--model, random" : "SmolLM2, random", "copying, best", "copying, random",
                                 "small, best", "small, random"};
    const char *const called[MODELS] = {lab_model_name(l), "The copying model", "The small model"};
    static const int which[MODELS] = {LAB_REAL, LAB_COPYING, LAB_SMALL};
    static const int64_t quick[] = {2}, full[COUNTS] = {1, 2, 4, 8, 12};
    const int64_t *cuts = l->quick ? quick : full;
    const int n_cuts = l->quick ? 1 : COUNTS;
    cost costs[MODELS];
    bool there[MODELS] = {false}, any = false;
    for (int m = 0; m < MODELS && !l->failed; m++)
        any |= there[m] = measure(l, which[m], cuts, n_cuts, m > 0 ? 8 : l->quick ? 1 : 4, &costs[m]);
    if (l->failed)
        return;
    if (!any) {
        lab_model_skip(l, LAB_SMALL);
        return;
    }
    lab_columns(l, 1 + 2 * MODELS, names);
    for (int k = -1; k < n_cuts; k++) {
        double row[1 + 2 * MODELS] = {k < 0 ? 0 : (double)cuts[k]};
        for (int m = 0; m < MODELS; m++) {
            row[1 + 2 * m] = !there[m] ? NAN : k < 0 ? costs[m].second : costs[m].cut[k];
            row[2 + 2 * m] = !there[m] ? NAN : k < 0 ? costs[m].second : costs[m].control[k];
        }
        lab_row(l, row);
    }
    l->result->y_label = "loss of the repetition, nats a token";
    l->result->drawn = 0;
    for (int m = 0; m < MODELS; m++)
        if (there[m]) {
            l->result->drawn |= 0x6u << 2 * m;
            describe(l, called[m], &costs[m], cuts);
        }
    lab_say(l, "The columns are the loss of the repetition without the best induction heads and without random ones. Sequences are 40 random "
            "tokens and the same again, from a fixed seed; a head's induction score is the mean weight of "
            "the second half on the token behind the one that came before. The copying model (models/copying) is two layers over "
            "characters that this project's attn train --repeat taught to copy. The scores name what was tested and no more. "
            "attn inspect --head-tests prints every head's.");
}
