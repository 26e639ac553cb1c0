/* inspect_cuts.c - single readings cut in the model: which ones, and what moved. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "inspect/inspect_run.h"

double attn_inspect_log_sum(const float *logits, int64_t n)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        largest = (double)logits[i] > largest ? (double)logits[i] : largest;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - largest);
    return largest + log(sum);
}

attn_inspect_effect attn_inspect_compare(const attn_inspect_run *run, const float *before, double before_sum,
                                         const float *after)
{
    const int64_t vocab = run->model->d.vocab_size;
    if (run->out->outcome_kind == ATTN_OUTCOME_EMBEDDING) {
        double square = 0;
        for (int64_t i = 0; i < run->n_results; i++)
            square += ((double)after[i] - (double)before[i]) * ((double)after[i] - (double)before[i]);
        return (attn_inspect_effect){(float)sqrt(square), NAN};
    }
    const int32_t *answers = run->out->answers;
    const double after_sum = attn_inspect_log_sum(after, vocab);
    double kl = 0;
    for (int64_t i = 0; i < vocab; i++) {
        const double log_p = (double)before[i] - before_sum;
        if (log_p > -40) /* what is left out weighs less than 1e-12 together */
            kl += exp(log_p) * (log_p - ((double)after[i] - after_sum));
    }
    return (attn_inspect_effect){(after[answers[0]] - after[answers[1]]) - (before[answers[0]] - before[answers[1]]),
                                 kl > 0 ? (float)kl : 0};
}

/* ---- passes from a position on ---- */

typedef struct cutter {
    attn_inspect_run *run;
    bool whole;         /* no decoder: each pass runs the whole text; before is the clean pass */
    int64_t from;       /* the uncut pass below ran tokens from .. n - 1; -1: none yet */
    int64_t clean;      /* cached tokens before any that a cut has changed */
    float *before, *after;
    double before_sum;
} cutter;

/* Runs `count` of the text's tokens from `from` on over the cached ones. */
static attn_status run_tokens(attn_inspect_run *run, int64_t from, int64_t count, const attn_edit *edits,
                              int32_t n_edits, float *logits)
{
    attn_forward_args args;
    ATTN_ARGS_INIT(&args);
    args.tokens = run->a.tokens + from;
    args.n_tokens = count;
    args.logits = logits;
    args.edits = edits;
    args.n_edits = n_edits;
    ATTN_TRY(attn_session_truncate(run->s, 0, from));
    return attn_model_forward(run->s, &args);
}

static attn_status run_from(attn_inspect_run *run, int64_t from, const attn_edit *edits, int32_t n_edits, float *logits)
{
    return run_tokens(run, from, run->a.n_tokens - from, edits, n_edits, logits);
}

static attn_status effect_whole(cutter *c, int32_t map, const attn_edit *edits, int32_t n_edits, attn_inspect_effect *effect)
{
    attn_inspect_run *run = c->run;
    attn_inspect_pass pass = {.map = map, .edits = edits, .n_edits = n_edits};
    ATTN_TRY(attn_inspect_whole(run, run->s, &pass, c->after));
    *effect = attn_inspect_compare(run, run->results, run->log_sum, c->after);
    return attn_inspect_progress(run);
}

/* The effect of edits of readings by position `query` of a map, against the same pass without them (another number of
 * tokens in a pass rounds otherwise). */
static attn_status effect_of(cutter *c, int32_t map, int64_t query, const attn_edit *edits, int32_t n_edits,
                             attn_inspect_effect *effect)
{
    if (c->whole)
        return effect_whole(c, map, edits, n_edits, effect);
    if (c->from != query) {
        if (c->clean < query) /* what an earlier cut has left in the cache goes */
            ATTN_TRY(run_tokens(c->run, c->clean, query - c->clean, NULL, 0, NULL));
        ATTN_TRY(run_from(c->run, query, NULL, 0, c->before));
        c->clean = query;
        c->before_sum = attn_inspect_log_sum(c->before, c->run->model->d.vocab_size);
        c->from = query;
    }
    ATTN_TRY(run_from(c->run, query, edits, n_edits, c->after));
    *effect = attn_inspect_compare(c->run, c->before, c->before_sum, c->after);
    return attn_inspect_progress(c->run);
}

static attn_status cut_edge(cutter *c, attn_inspect_edge *e, float *mean)
{
    attn_inspect_run *run = c->run;
    const attn_inspect_site *site = &run->sites[e->map];
    const int64_t dim = run->model->d.head_dim;
    attn_edit edit = {.layer = e->layer, .entry = 0, .head = e->head, .query = e->query, .key = e->key};
    edit.attention = site->cross ? ATTN_ATTENTION_CROSS : ATTN_ATTENTION_SELF;
    edit.kind = ATTN_EDIT_KNOCKOUT;
    if (e->why & ATTN_EDGE_NOT_CUT) {
        e->knockout = e->removal = e->mean = e->pair = (attn_inspect_effect){NAN, NAN};
        return ATTN_OK;
    }
    if (e->weight < 1) /* a row of one key cannot be renormalised */
        ATTN_TRY(effect_of(c, e->map, e->query, &edit, 1, &e->knockout));
    else
        e->knockout = (attn_inspect_effect){NAN, NAN};
    edit.kind = ATTN_EDIT_REMOVE;
    ATTN_TRY(effect_of(c, e->map, e->query, &edit, 1, &e->removal));
    memset(mean, 0, (size_t)dim * sizeof *mean);
    for (int64_t j = 0; j < site->n_keys; j++)
        for (int64_t i = 0; i < dim; i++)
            mean[i] += attn_inspect_value(run, site, site->values, e->layer, e->head, j)[i] / (float)site->n_keys;
    edit.kind = ATTN_EDIT_REPLACE;
    edit.value = mean;
    ATTN_TRY(effect_of(c, e->map, e->query, &edit, 1, &e->mean));
    e->pair = (attn_inspect_effect){NAN, NAN};
    if (site->pair_values) {
        edit.value = attn_inspect_value(run, site, site->pair_values, e->layer, e->head, e->key);
        ATTN_TRY(effect_of(c, e->map, e->query, &edit, 1, &e->pair));
    }
    return ATTN_OK;
}

/* ---- measuring ---- */

static int by_estimate(const void *a, const void *b)
{
    const attn_inspect_edge *x = a, *y = b;
    const float s = x->estimate == x->estimate ? fabsf(x->estimate) : -1;
    const float t = y->estimate == y->estimate ? fabsf(y->estimate) : -1;
    if (s != t)
        return s > t ? -1 : 1;
    return (x->layer > y->layer) - (x->layer < y->layer);
}

/* The key that all heads together read most of from `at`, the first token and the own one aside. */
static int64_t most_read(const attn_inspect_map *map, int64_t at)
{
    int64_t best = map->n_keys > 1 ? 1 : 0;
    double most = 0;
    for (int64_t j = 1; j < map->n_keys; j++) {
        double mass = 0;
        for (int64_t h = 0; h < map->n_layers * map->n_heads && !(map->attention == ATTN_ATTENTION_SELF && j == at); h++)
            mass += (double)map->at_rows[h * map->n_keys + j];
        if (mass > most) {
            most = mass;
            best = j;
        }
    }
    return best;
}

/* That reading, cut in every head of a window of layers: single cuts are often repaired by later layers. Of an
 * encoder-decoder it is one of cross attention. */
static attn_status cut_windows(cutter *c, int32_t m)
{
    attn_inspect_run *run = c->run;
    attn_inspection *out = run->out;
    const attn_inspect_map *map = &out->maps[m];
    const int64_t layers = map->n_layers, at = run->a.at;
    attn_edit *edits = malloc((size_t)run->a.window * sizeof *edits);
    out->windows = calloc((size_t)layers, sizeof *out->windows);
    out->window = (int32_t)run->a.window;
    out->window_map = m;
    out->window_query = at;
    out->window_key = most_read(map, at);
    attn_status status = edits && out->windows ? ATTN_OK : attn_inspect_no_memory();
    for (int64_t l = 0; status == ATTN_OK && l < layers; l++) {
        int32_t n_edits = 0;
        for (int64_t i = 0; i < run->a.window; i++)
            if (l - run->a.window / 2 + i >= 0 && l - run->a.window / 2 + i < layers)
                edits[n_edits++] = (attn_edit){.layer = l - run->a.window / 2 + i, .entry = 0, .head = -1, .query = at,
                                               .key = out->window_key, .kind = ATTN_EDIT_KNOCKOUT,
                                               .attention = map->attention};
        status = effect_of(c, m, at, edits, n_edits, &out->windows[l]);
    }
    free(edits);
    return status;
}

static attn_status correlate_sample(attn_inspection *out)
{
    float *weights = malloc((size_t)(out->n_edges + 1) * sizeof *weights);
    float *sizes = malloc((size_t)(out->n_edges + 1) * sizeof *sizes);
    attn_inspect_correlation *c = &out->sampled;
    for (int part = 0; weights && sizes && part < 2; part++) {
        int64_t n = 0;
        for (int64_t i = 0; i < out->n_edges; i++) {
            const attn_inspect_edge *e = &out->edges[i];
            if (!(e->why & ATTN_EDGE_SAMPLE) || (part && e->key == 0) || e->knockout.difference != e->knockout.difference)
                continue;
            weights[n] = e->weight;
            sizes[n++] = fabsf(e->knockout.difference);
        }
        *(part ? &c->n_without_first : &c->n) = n;
        *(part ? &c->without_first : &c->all) = attn_rank_correlation(weights, sizes, n);
    }
    free(weights);
    free(sizes);
    return weights && sizes ? ATTN_OK : attn_inspect_no_memory();
}

static attn_status measure(cutter *c)
{
    attn_inspect_run *run = c->run;
    attn_inspection *out = run->out;
    const int32_t m = out->n_maps - 1; /* the windows': cross attention where there is one */
    const bool causal = run->sites[m].causal, reads = causal ? run->a.at >= 1 : out->maps[m].n_keys > 1;
    const bool windows = reads && attn_inspect_cost(run, run->a.at) / 3 * out->maps[m].n_layers <= attn_inspect_budget(run);
    float *mean = malloc((size_t)run->model->d.head_dim * sizeof *mean);
    attn_status status = mean ? ATTN_OK : attn_inspect_no_memory();
    for (int64_t i = 0; i < out->n_edges; i++)
        run->all_passes += out->edges[i].why & ATTN_EDGE_NOT_CUT ? 0 : run->a.pair ? 4 : 3;
    run->all_passes += windows ? out->maps[m].n_layers : 0;
    for (int64_t i = 0; status == ATTN_OK && i < out->n_edges; i++)
        status = cut_edge(c, &out->edges[i], mean);
    free(mean);
    if (status == ATTN_OK && windows)
        status = cut_windows(c, m);
    return status;
}

/* The session ends with the whole text, uncut. */
static attn_status leave_clean(cutter *c)
{
    attn_inspect_pass pass = {.map = 0};
    if (!c->whole)
        return run_from(c->run, c->clean, NULL, 0, NULL);
    return c->run->model->d.kind == ATTN_MODEL_ENCODER ? ATTN_OK : attn_inspect_whole(c->run, c->run->s, &pass, c->after);
}

attn_status attn_inspect_cuts(attn_inspect_run *run)
{
    const size_t bytes = (size_t)run->n_results * sizeof(float);
    cutter c = {.run = run, .whole = run->model->d.kind != ATTN_MODEL_DECODER, .from = -1, .clean = run->a.n_tokens,
                .before = malloc(bytes), .after = malloc(bytes)};
    attn_status status = c.before && c.after ? ATTN_OK : attn_inspect_no_memory();
    if (status == ATTN_OK)
        status = measure(&c);
    if (status == ATTN_OK)
        status = leave_clean(&c);
    free(c.before);
    free(c.after);
    if (status != ATTN_OK)
        return status;
    qsort(run->out->edges, (size_t)run->out->n_edges, sizeof *run->out->edges, by_estimate);
    return correlate_sample(run->out);
}
