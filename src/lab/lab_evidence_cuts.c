/* lab_evidence_cuts.c - what happens to the next word when "it" cannot read the noun: knockouts (weight 0, the rest
 * renormalised) in the selected heads, and single ones against random readings of the same head and weight decile. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "lab/lab_evidence.h"

enum { WORDS = 4, MOST_READINGS = 60000 };

typedef struct reading { /* of one of the EV_CUT best heads */
    float weight;
    int32_t sentence, query, key;
} reading;

typedef struct cutting {
    ev_work *w;
    int32_t words[2][WORDS]; /* that fit an animal, a machine */
    float *before, *after;   /* logits */
    reading *readings[EV_CUT];
    int64_t n_readings[EV_CUT];
    ev_sentence *sentences;
    int64_t n_sentences;
} cutting;

static bool find_words(cutting *c)
{
    static const char *const texts[2][WORDS] = {{" wanted", " slept", " ate", " loved"}, {" worked", " broke", " needed", " failed"}};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < WORDS; i++) {
            c->words[k][i] = lab_model_token(&c->w->m, texts[k][i]);
            if (c->words[k][i] < 0 && !c->w->m.l->failed) {
                snprintf(c->w->m.l->result->skipped, sizeof c->w->m.l->result->skipped, "'%s' is not one token of this model",
                         texts[k][i]);
                return false;
            }
        }
    return !c->w->m.l->failed;
}

static double outcome(const cutting *c, const float *logits, int kind)
{
    double difference = 0;
    for (int i = 0; i < WORDS; i++)
        difference += ((double)logits[c->words[0][i]] - (double)logits[c->words[1][i]]) / WORDS;
    return kind ? -difference : difference;
}

static double log_sum(const float *x, int64_t n)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, (double)x[i]);
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)x[i] - largest);
    return largest + log(sum);
}

static double divergence(const cutting *c) /* KL(before || after), nats */
{
    const int64_t n = c->w->m.info.vocab_size;
    const double a = log_sum(c->before, n), b = log_sum(c->after, n);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double before = (double)c->before[i] - a;
        sum += exp(before) * (before - ((double)c->after[i] - b));
    }
    return sum;
}

/* The last of n tokens once more, the ones before it cached, with knockouts of what it reads at `key` in some heads. */
static bool cut_last(cutting *c, const int32_t *ids, int64_t n, int64_t key, const int64_t *heads, int n_heads)
{
    attn_edit edits[EV_SELECTED];
    attn_forward_args args;
    lab_model *m = &c->w->m;
    memset(edits, 0, sizeof edits);
    for (int k = 0; k < n_heads; k++) {
        edits[k].layer = heads[k] / m->info.n_heads, edits[k].head = heads[k] % m->info.n_heads;
        edits[k].query = n - 1, edits[k].key = key, edits[k].kind = ATTN_EDIT_KNOCKOUT;
    }
    ATTN_ARGS_INIT(&args);
    args.tokens = ids + n - 1, args.n_tokens = 1, args.logits = c->after, args.edits = edits, args.n_edits = n_heads;
    return lab_model_ok(m->l, attn_session_truncate(m->session, -1, n - 1)) &&
           lab_model_ok(m->l, attn_model_forward(m->session, &args));
}

/* Runs a sentence whole; keeps its logits and all that the best heads read in it. */
static bool read_sentence(cutting *c, int64_t number)
{
    lab_model *m = &c->w->m;
    const ev_sentence *s = &c->sentences[number];
    attn_attention_row rows[EV_CUT * EV_TOKENS];
    float weights[EV_CUT * EV_TOKENS * EV_TOKENS];
    attn_forward_args args;
    memset(rows, 0, sizeof rows);
    for (int64_t r = 0; r < EV_CUT * s->n; r++) {
        const int64_t head = c->w->selected[r / s->n];
        rows[r].layer = head / m->info.n_heads, rows[r].head = head % m->info.n_heads, rows[r].query = r % s->n;
    }
    ATTN_ARGS_INIT(&args);
    args.logits = c->before, args.rows = rows, args.n_rows = EV_CUT * s->n, args.row_weights = weights, args.row_stride = s->n;
    if (!lab_model_run(m, s->ids, s->n, &args))
        return false;
    for (int k = 0; k < EV_CUT; k++)
        for (int64_t q = 1; q < s->n; q++)
            for (int64_t j = 0; j <= q; j++)
                if (c->n_readings[k] < MOST_READINGS)
                    c->readings[k][c->n_readings[k]++] =
                        (reading){weights[(k * s->n + q) * s->n + j], (int32_t)number, (int32_t)q, (int32_t)j};
    return true;
}

static int by_weight(const void *a, const void *b)
{
    const reading *x = a, *y = b;
    return (x->weight > y->weight) - (x->weight < y->weight);
}

static bool is_real(const cutting *c, const reading *r)
{
    const ev_sentence *s = &c->sentences[r->sentence];
    return r->query == s->n - 1 && (r->key == s->at[0] || r->key == s->at[1]);
}

/* A random reading of head k in the weight decile of `r`, other than "it" at a noun. */
static const reading *matched(cutting *c, int k, const reading *r)
{
    const int64_t n = c->n_readings[k], decile = (r - c->readings[k]) * 10 / n, from = (decile * n + 9) / 10;
    const int64_t to = ((decile + 1) * n + 9) / 10;
    const reading *found = r;
    for (int attempt = 0; attempt < 1000 && (found == r || is_real(c, found)); attempt++)
        found = c->readings[k] + from + (int64_t)lab_below(c->w->m.l, (uint64_t)(to - from));
    return found;
}

static bool effect_of(cutting *c, int k, const reading *r, double *kl)
{
    const ev_sentence *s = &c->sentences[r->sentence];
    attn_forward_args args;
    ATTN_ARGS_INIT(&args);
    args.logits = c->before; /* the prefix that ends with the query: its next-token distribution */
    if (!lab_model_run(&c->w->m, s->ids, r->query + 1, &args) ||
        !cut_last(c, s->ids, r->query + 1, r->key, &c->w->selected[k], 1))
        return false;
    *kl = divergence(c);
    return true;
}

/* Single cuts against matched ones, every `stride`-th sentence. */
static bool single_cuts(cutting *c, int64_t stride)
{
    lab *l = c->w->m.l;
    ev_cuts *out = &c->w->cuts;
    double *apart = lab_new(l, (size_t)c->n_sentences * EV_CUT * sizeof *apart);
    int64_t n = 0;
    for (int k = 0; k < EV_CUT && !l->failed; k++) {
        int64_t of_head = 0;
        qsort(c->readings[k], (size_t)c->n_readings[k], sizeof *c->readings[k], by_weight);
        for (int64_t i = 0; i < c->n_readings[k] && !l->failed; i++) {
            const reading *r = &c->readings[k][i];
            const ev_sentence *s = &c->sentences[r->sentence];
            if (r->sentence % stride || r->query != s->n - 1 || r->key != s->at[s->antecedent])
                continue;
            const reading *null = matched(c, k, r);
            double kl[2];
            if (!effect_of(c, k, r, &kl[0]) || !effect_of(c, k, null, &kl[1]))
                return false;
            apart[n++] = kl[0] - kl[1];
            of_head++;
            for (int real = 0; real < 2; real++) {
                out->kl[k][real] += kl[real], out->mean_kl[real] += kl[real];
                out->mean_weight[real] += (double)(real ? null : r)->weight;
            }
        }
        for (int real = 0; real < 2; real++)
            out->kl[k][real] /= (double)of_head;
    }
    for (int real = 0; real < 2; real++)
        out->mean_kl[real] /= (double)n, out->mean_weight[real] /= (double)n;
    out->apart[0] = lab_mean(apart, n, 1);
    lab_bootstrap(l, apart, n, 1, &out->apart[1], &out->apart[2]);
    return !l->failed;
}

/* All selected heads at once, in every sentence of the testing half: means over each cluster, then intervals. */
static bool joint_cuts(cutting *c)
{
    ev_work *w = c->w;
    lab *l = w->m.l;
    double sums[3][EV_CLUSTERS] = {{0}};
    const double each = 1.0 / (double)(w->n_frames * w->n_orders * 2);
    for (int64_t cluster = 0; cluster < EV_CLUSTERS; cluster++)
        for (int part = 0; part < w->n_frames * w->n_orders * 2; part++) {
            ev_sentence *s = &c->sentences[c->n_sentences];
            const int order = w->n_orders == 1 ? (int)(cluster & 1) : part / 2 % 2;
            if (!ev_make(&w->m, 1, cluster, part / 2 / w->n_orders, order, part % 2, s) || !read_sentence(c, c->n_sentences++))
                return false;
            const double before = outcome(c, c->before, s->kind);
            sums[0][cluster] += each * before;
            for (int other = 0; other < 2; other++) {
                if (!cut_last(c, s->ids, s->n, s->at[other ? !s->antecedent : s->antecedent], w->selected, EV_SELECTED))
                    return false;
                sums[1 + other][cluster] += each * (outcome(c, c->after, s->kind) - before);
            }
        }
    double *const out[3] = {w->cuts.outcome, w->cuts.joint, w->cuts.other};
    for (int k = 0; k < 3; k++) {
        out[k][0] = lab_mean(sums[k], EV_CLUSTERS, 1);
        lab_bootstrap(l, sums[k], EV_CLUSTERS, 1, &out[k][1], &out[k][2]);
    }
    return !l->failed;
}

bool ev_cut(ev_work *w)
{
    lab *l = w->m.l;
    cutting c;
    memset(&c, 0, sizeof c);
    c.w = w;
    c.before = lab_new(l, (size_t)w->m.info.vocab_size * sizeof *c.before);
    c.after = lab_new(l, (size_t)w->m.info.vocab_size * sizeof *c.after);
    for (int k = 0; k < EV_CUT; k++)
        c.readings[k] = lab_new(l, MOST_READINGS * sizeof *c.readings[k]);
    c.sentences = lab_new(l, (size_t)w->n_pairs * sizeof *c.sentences); /* of one half: as many sentences as pairs in all */
    return !l->failed && find_words(&c) && joint_cuts(&c) && single_cuts(&c, l->quick ? 8 : 4);
}
