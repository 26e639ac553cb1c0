/* lab_evidence.c - does "it" read the noun that it can refer to? Minimal pairs in which only grammatical number decides which
 * of two nouns that is, so that every noun is compared with itself at its own distance:
 *
 *     A  The dog beside the cars had to stay there because it      B  The dogs beside the car had to stay there because it
 *
 * effect of a head = ((w(first | A) - w(first | B)) + (w(second | B) - w(second | A))) / 2, w: what "it" reads. Heads are
 * selected on one half of the nouns and tested on the other. Clusters (one animal with one machine) are the unit of
 * intervals (bootstrap) and of tests (all sign flips, times the number of heads: Bonferroni). The statistics are in
 * lab_statistics.c, what cutting the readings does in lab_evidence_cuts.c. */
#include "lab/lab_evidence.h"

#include <math.h>
#include <string.h>

static const char *const nouns[2][2 * EV_NOUNS][2] = { /* animals, machines: singular and plural, one token each */
    {{"dog", "dogs"}, {"cat", "cats"}, {"horse", "horses"}, {"cow", "cows"}, {"goat", "goats"}, {"bird", "birds"},
     {"pig", "pigs"}, {"bear", "bears"}, {"lion", "lions"}, {"wolf", "wolves"}, {"rabbit", "rabbits"}, {"monkey", "monkeys"},
     {"duck", "ducks"}, {"snake", "snakes"}, {"elephant", "elephants"}, {"tiger", "tigers"}},
    {{"car", "cars"}, {"truck", "trucks"}, {"engine", "engines"}, {"machine", "machines"}, {"clock", "clocks"},
     {"computer", "computers"}, {"phone", "phones"}, {"radio", "radios"}, {"lamp", "lamps"}, {"bus", "buses"},
     {"train", "trains"}, {"robot", "robots"}, {"camera", "cameras"}, {"pump", "pumps"}, {"motor", "motors"},
     {"boat", "boats"}}};

static const char *const frames[EV_FRAMES] = {"The %s beside the %s had to stay there because it",
                                              "The %s near the %s did not move because it",
                                              "We saw the %s behind the %s and thought that it",
                                              "They left the %s with the %s because it"};

/* Referential and, by what comes before it, probably expletive ("it began to rain"); the noun at one distance. */
static const char *const expletives[EV_EXPLETIVES][2] = {
    {"When we looked at the %s, it", "When we arrived at the %s, it"},
    {"As we cleaned off the %s, it", "As we rested near the %s, it"},
    {"While I was drawing the %s, it", "While I was beside the %s, it"}};

static int32_t position_of_last(lab_model *m, const char *text, int64_t bytes)
{
    char part[EV_TEXT];
    int32_t ids[EV_TOKENS];
    snprintf(part, sizeof part, "%.*s", (int)bytes, text);
    return (int32_t)lab_model_tokens(m, part, ids, EV_TOKENS) - 1;
}

/* Tokens of a frame with up to two words in it, and where the words' (last) tokens stand. */
static bool place(lab_model *m, const char *frame, const char *first, const char *second, ev_sentence *s)
{
    const char *gap = strstr(frame, "%s"), *next = second ? strstr(gap + 2, "%s") : NULL;
    char text[EV_TEXT];
    if (next)
        snprintf(text, sizeof text, "%.*s%s%.*s%s%s", (int)(gap - frame), frame, first, (int)(next - gap - 2), gap + 2, second, next + 2);
    else
        snprintf(text, sizeof text, "%.*s%s%s", (int)(gap - frame), frame, first, gap + 2);
    const int64_t end = gap - frame + (int64_t)strlen(first);
    s->n = lab_model_tokens(m, text, s->ids, EV_TOKENS);
    s->at[0] = position_of_last(m, text, end);
    s->at[1] = next ? position_of_last(m, text, end + (next - gap - 2) + (int64_t)strlen(second)) : -1;
    return s->n > 0 && s->at[0] >= 0 && !m->l->failed;
}

bool ev_make(lab_model *m, int64_t half, int64_t cluster, int frame, int order, int version, ev_sentence *s)
{
    const int64_t in_half = cluster % EV_NOUNS, shift = cluster / EV_NOUNS * 3; /* the second round pairs other nouns */
    const int64_t which[2] = {half * EV_NOUNS + in_half, half * EV_NOUNS + (in_half + shift) % EV_NOUNS};
    const char *first = nouns[order][which[order]][version], *second = nouns[!order][which[!order]][!version];
    s->antecedent = version;           /* A: the first noun is singular */
    s->kind = version ? !order : order; /* of the antecedent: 0 an animal, 1 a machine */
    return place(m, frames[frame], first, second, s);
}

/* What the last token reads, of every head: weights[heads][n]. */
static bool last_rows(lab_model *m, const ev_sentence *s, float *weights)
{
    const int64_t heads = m->info.n_layers * m->info.n_heads;
    const int n_blocks = m->l->n_blocks;
    attn_attention_row *rows = lab_new(m->l, (size_t)heads * sizeof *rows);
    attn_forward_args args;
    if (!rows)
        return false;
    for (int64_t h = 0; h < heads; h++)
        rows[h].layer = h / m->info.n_heads, rows[h].head = h % m->info.n_heads, rows[h].query = -1;
    ATTN_ARGS_INIT(&args);
    args.rows = rows, args.n_rows = heads, args.row_weights = weights, args.row_stride = s->n;
    const bool good = lab_model_run(m, s->ids, s->n, &args);
    lab_release(m->l, n_blocks);
    return good;
}

/* Adds sign * (w(first) - w(second)) / 2 / count of a sentence to each head's effect. */
static bool add_effect(lab_model *m, const ev_sentence *s, double factor, float *weights, double *effect)
{
    if (!last_rows(m, s, weights))
        return false;
    for (int64_t h = 0; h < m->info.n_layers * m->info.n_heads; h++)
        effect[h] += factor * ((double)weights[h * s->n + s->at[0]] - (s->at[1] >= 0 ? (double)weights[h * s->n + s->at[1]] : 0));
    return true;
}

/* effects[cluster][head] of a half, means over frames and orders. */
static bool measure_half(ev_work *w, int64_t half, double *effects)
{
    const double each = 1.0 / (double)(w->n_frames * w->n_orders);
    for (int64_t c = 0; c < EV_CLUSTERS; c++)
        for (int f = 0; f < w->n_frames; f++)
            for (int o = 0; o < w->n_orders; o++)
                for (int version = 0; version < 2; version++) {
                    ev_sentence s;
                    if (!ev_make(&w->m, half, c, f, w->n_orders == 1 ? (int)(c & 1) : o, version, &s) ||
                        !add_effect(&w->m, &s, each * (version ? -0.5 : 0.5), w->weights, effects + c * w->heads))
                        return false;
                }
    return true;
}

/* The other control, on the testing half's nouns: referential less expletive. effects[noun of both kinds][head]. */
static bool measure_expletives(ev_work *w, double *effects)
{
    const int n_frames = w->n_frames < EV_EXPLETIVES ? w->n_frames : EV_EXPLETIVES;
    for (int64_t c = 0; c < 2 * EV_NOUNS; c++)
        for (int f = 0; f < n_frames; f++) {
            ev_sentence s[2];
            for (int k = 0; k < 2; k++) {
                if (!place(&w->m, expletives[f][k], nouns[c % 2][EV_NOUNS + c / 2][0], NULL, &s[k]) ||
                    !add_effect(&w->m, &s[k], (k ? -1.0 : 1.0) / n_frames, w->weights, effects + c * w->heads))
                    return false;
                if (s[k].n - s[k].at[0] != s[0].n - s[0].at[0]) {
                    snprintf(w->m.l->result->error, sizeof w->m.l->result->error, "'%s' and its pair differ in distance",
                             expletives[f][0]);
                    return !(w->m.l->failed = true);
                }
            }
        }
    return true;
}

/* The heads with the largest mean effects. */
static void select_heads(ev_work *w, const double *effects)
{
    for (int k = 0; k < EV_SELECTED; k++) {
        double most = -INFINITY;
        for (int64_t h = 0; h < w->heads; h++) {
            bool taken = false;
            for (int i = 0; i < k; i++)
                taken = taken || w->selected[i] == h;
            const double mean = lab_mean(effects + h, EV_CLUSTERS, w->heads);
            if (!taken && mean > most)
                most = mean, w->selected[k] = h;
        }
    }
}

static void report(lab *l, ev_work *w, const double *selecting, const double *testing, const double *expletive)
{
    static const char *const names[] = {"rank", "layer", "head", "selecting half", "testing half", "95 % from", "95 % to",
                                        "p x heads", "less expletive", "knockout KL over matched"};
    int confirmed = 0, of_all = 0, signs = 0;
    lab_columns(l, 10, names);
    for (int64_t h = 0; h < w->heads; h++) {
        const double p = lab_sign_flip_p(testing + h, EV_CLUSTERS, w->heads) * (double)w->heads;
        of_all += p < 0.05 && lab_mean(testing + h, EV_CLUSTERS, w->heads) > 0;
    }
    for (int k = 0; k < EV_SELECTED; k++) {
        const int64_t h = w->selected[k];
        double low, high;
        lab_bootstrap(l, testing + h, EV_CLUSTERS, w->heads, &low, &high);
        const double p = fmin(1, lab_sign_flip_p(testing + h, EV_CLUSTERS, w->heads) * (double)w->heads);
        const double row[10] = {k + 1, (double)(h / w->m.info.n_heads), (double)(h % w->m.info.n_heads),
                                lab_mean(selecting + h, EV_CLUSTERS, w->heads), lab_mean(testing + h, EV_CLUSTERS, w->heads), low,
                                high, p, lab_mean(expletive + h, 2 * EV_NOUNS, w->heads),
                                k < EV_CUT ? w->cuts.kl[k][0] / w->cuts.kl[k][1] : NAN};
        confirmed += p < 0.05 && low > 0;
        signs += row[8] > 0;
        lab_row(l, row);
    }
    const ev_cuts *c = &w->cuts;
    const double *best = l->result->cells[0];
    lab_measured(l, "pairs", (double)w->n_pairs), lab_measured(l, "heads", (double)w->heads);
    lab_measured(l, "selected heads confirmed", confirmed), lab_measured(l, "heads of all that pass", of_all);
    lab_measured(l, "outcome", c->outcome[0]), lab_measured(l, "outcome, from", c->outcome[1]);
    lab_measured(l, "outcome, to", c->outcome[2]), lab_measured(l, "outcome moved by the knockout", c->joint[0]);
    lab_measured(l, "moved, from", c->joint[1]), lab_measured(l, "moved, to", c->joint[2]);
    lab_measured(l, "moved by cutting the other noun", c->other[0]), lab_measured(l, "other, from", c->other[1]);
    lab_measured(l, "other, to", c->other[2]), lab_measured(l, "KL of real cuts less matched", c->apart[0]);
    lab_measured(l, "KL, from", c->apart[1]), lab_measured(l, "KL, to", c->apart[2]);
    l->result->drawn = 0x78;
    l->result->y_label = "effect on the weight";
    lab_expect(l, confirmed > 0, "heads selected on one half of the nouns are confirmed on the other, corrected for all heads");
    lab_expect(l, confirmed == EV_SELECTED, "all %d selected are", EV_SELECTED);
    lab_expect(l, signs == EV_SELECTED, "each also reads a noun more before a referential than before an expletive \"it\"");
    lab_expect(l, c->outcome[1] > 0, "the next word follows the noun that can be meant (animal or machine)");
    lab_expect(l, c->joint[2] < 0, "cutting these heads' readings of it makes the next word follow it less");
    lab_expect(l, c->joint[2] < c->other[1], "and more so than cutting their readings of the other noun");
    lab_expect(l, c->apart[1] > 0, "single cuts of these readings change the prediction more than random cuts of the same head and "
               "weight decile");
    lab_say(l, "%d minimal pairs (%d in each half; %d clusters of one animal and one machine, no noun in both halves) in which number "
            "alone decides which noun \"it\" can mean, each noun compared with itself at its distance. The %d heads with the largest "
            "effects on the selecting half: best is layer %.0f, head %.0f, with %.3f there and %.3f [%.3f, %.3f] on the testing half; "
            "%d of the %d pass there (exact sign flips of clusters, times %lld heads, 0.05), and %d heads pass among all. ",
            (int)w->n_pairs, (int)w->n_pairs / 2, EV_CLUSTERS, EV_SELECTED, best[1], best[2], best[3], best[4], best[5], best[6],
            confirmed, EV_SELECTED, (long long)w->heads, of_all);
    lab_say(l, "Control with an expletive \"it\" (\"when we arrived at the dog, it\"): %d of %d read the noun more where \"it\" is "
            "referential. What cutting does: logit of four words that fit an animal less that of four that fit a machine, signed for "
            "the noun meant, is %.3f [%.3f, %.3f]; with what these heads read there cut it changes by %.3f [%.3f, %.3f], with the "
            "other noun cut by %.3f [%.3f, %.3f]. ", signs, EV_SELECTED, c->outcome[0], c->outcome[1], c->outcome[2], c->joint[0],
            c->joint[1], c->joint[2], c->other[0], c->other[1], c->other[2]);
    lab_say(l, "Single knockouts of the %d best heads move the next-token distribution by %.2g nats (KL; weights %.2f on average), "
            "random readings of the same head and weight decile in these sentences by %.2g (weights %.2f): difference %.2g [%.2g, "
            "%.2g]%s. ", EV_CUT, c->mean_kl[0], c->mean_weight[0], c->mean_kl[1], c->mean_weight[1], c->apart[0], c->apart[1],
            c->apart[2],
            c->apart[1] > 0 ? "; such a reading weighs more than others of its size"
            : c->apart[2] < 0 ? "; others of its size move more, in places of their own: what is special here is where the change "
                                "goes, not how large it is" : "; no difference is seen");
    lab_say(l, "So heads that prefer the noun meant exist, beyond one sentence%s. Templates are narrow, number is a cue of its own, "
            "and one small model is one model. Intervals: 95 %%, bootstrap over clusters.%s",
            c->joint[2] < 0 ? ", and the next word leans on what they read" : "",
            l->quick ? " Quick: one frame instead of four." : "");
}

void lab_evidence(lab *l)
{
    ev_work w;
    memset(&w, 0, sizeof w);
    if (!lab_model_open(l, LAB_REAL, &w.m)) {
        lab_model_skip(l, LAB_REAL);
        return;
    }
    w.heads = w.m.info.n_layers * w.m.info.n_heads;
    w.n_frames = l->quick ? 1 : EV_FRAMES, w.n_orders = l->quick ? 1 : 2;
    w.n_pairs = 2 * (int64_t)EV_CLUSTERS * w.n_frames * w.n_orders;
    w.weights = lab_new(l, (size_t)(w.heads * EV_TOKENS) * sizeof *w.weights);
    double *selecting = lab_new(l, (size_t)(EV_CLUSTERS * w.heads) * sizeof *selecting);
    double *testing = lab_new(l, (size_t)(EV_CLUSTERS * w.heads) * sizeof *testing);
    double *expletive = lab_new(l, (size_t)(2 * EV_NOUNS * w.heads) * sizeof *expletive);
    if (!l->failed && w.heads < EV_SELECTED)
        snprintf(l->result->skipped, sizeof l->result->skipped, "this model has only %lld heads", (long long)w.heads);
    else if (!l->failed && measure_half(&w, 0, selecting)) {
        select_heads(&w, selecting);
        if (measure_half(&w, 1, testing) && measure_expletives(&w, expletive) && ev_cut(&w))
            report(l, &w, selecting, testing, expletive);
    }
    lab_model_close(&w.m);
}
