/* inspect_cuts.c - single readings cut in the model: which ones, and what moved. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "inspect/inspect_run.h"

#define N_AT           12   /* heads whose largest reading of `at` is cut */
#define MOST_TOKENS    8192 /* that all cuts together may run through the model */
#define MOST_CORRELATED 200000 /* readings that enter the rank correlation of weight and estimate */

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

/* The effect of edits of readings by position `query`, against the same pass without them (another number of tokens in
 * a pass rounds otherwise). */
static attn_status effect_of(cutter *c, int64_t query, const attn_edit *edits, int32_t n_edits,
                             attn_inspect_effect *effect)
{
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
    const int64_t dim = run->model->d.head_dim, n = run->a.n_tokens;
    attn_edit edit = {.layer = e->layer, .entry = 0, .head = e->head, .query = e->query, .key = e->key};
    edit.kind = ATTN_EDIT_KNOCKOUT;
    if (e->weight < 1) /* a row of one key cannot be renormalised */
        ATTN_TRY(effect_of(c, e->query, &edit, 1, &e->knockout));
    else
        e->knockout = (attn_inspect_effect){NAN, NAN};
    edit.kind = ATTN_EDIT_REMOVE;
    ATTN_TRY(effect_of(c, e->query, &edit, 1, &e->removal));
    memset(mean, 0, (size_t)dim * sizeof *mean);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < dim; i++)
            mean[i] += attn_inspect_value(run, run->values, e->layer, e->head, j)[i] / (float)n;
    edit.kind = ATTN_EDIT_REPLACE;
    edit.value = mean;
    ATTN_TRY(effect_of(c, e->query, &edit, 1, &e->mean));
    e->pair = (attn_inspect_effect){NAN, NAN};
    if (run->pair_values) {
        edit.value = attn_inspect_value(run, run->pair_values, e->layer, e->head, e->key);
        ATTN_TRY(effect_of(c, e->query, &edit, 1, &e->pair));
    }
    return ATTN_OK;
}

/* ---- the weight of any reading ---- */

static float weight_of(const attn_inspect_run *run, int64_t layer, int64_t head, int64_t query, int64_t key)
{
    const attn_inspect_map *map = &run->out->maps[0];
    const int64_t at = layer * map->n_heads + head;
    int64_t low = 0, high = map->n_rows - 1;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (map->queries[middle] < query)
            low = middle + 1;
        else
            high = middle;
    }
    if (map->queries[low] != query)
        return 0;
    for (int64_t i = map->starts[at * map->n_rows + low]; i < map->starts[at * map->n_rows + low + 1]; i++)
        if (map->keys[i] == key)
            return map->weights[i];
    return 0;
}

static float estimate_of(const attn_inspect_run *run, int64_t layer, int64_t head, int64_t query, int64_t key)
{
    const attn_inspect_map *map = &run->out->maps[0];
    if (run->estimates)
        return query < run->first_screened ? NAN : run->estimates[attn_estimate_at(run, layer, head, query, key)];
    if (!map->value_directs || query != run->a.n_tokens - 1)
        return NAN;
    return weight_of(run, layer, head, query, key) * map->value_directs[(layer * map->n_heads + head) * map->n_keys + key];
}

/* ---- choosing ---- */

static bool add_edge(attn_inspect_run *run, int64_t most, int64_t layer, int64_t head, int64_t query, int64_t key,
                     int32_t why)
{
    attn_inspection *out = run->out;
    const attn_inspect_map *map = &out->maps[0];
    const int64_t at = layer * map->n_heads + head;
    for (int64_t i = 0; i < out->n_edges; i++) {
        attn_inspect_edge *e = &out->edges[i];
        if (e->layer == layer && e->head == head && e->query == query && e->key == key) {
            e->why |= why;
            return true;
        }
    }
    if (out->n_edges == most)
        return false;
    attn_inspect_edge *e = &out->edges[out->n_edges++];
    *e = (attn_inspect_edge){.layer = layer, .head = head, .query = query, .key = key, .why = why};
    e->weight = weight_of(run, layer, head, query, key);
    e->moved = e->weight * map->value_norms[at * map->n_keys + key];
    e->direct = !map->value_directs                 ? NAN
                : query == run->a.n_tokens - 1 ? e->weight * map->value_directs[at * map->n_keys + key]
                                                    : 0;
    e->estimate = estimate_of(run, layer, head, query, key);
    return true;
}

/* The heads that read most elsewhere (neither the first token nor themselves), each with its largest such reading. */
static void add_at(attn_inspect_run *run, int64_t most)
{
    const attn_inspect_map *map = &run->out->maps[0];
    const int64_t n = map->n_keys, at = run->a.at, heads = map->n_layers * map->n_heads;
    const int64_t room = MOST_TOKENS / 4 / (4 * (n - at));
    double limit = INFINITY;
    for (int64_t i = 0; i < N_AT && i < room && at > 1; i++) {
        int64_t best = -1;
        double most_elsewhere = 0;
        for (int64_t h = 0; h < heads; h++) {
            double elsewhere = 0;
            for (int64_t j = 1; j < at; j++)
                elsewhere += (double)map->at_rows[h * n + j];
            if (elsewhere < limit && elsewhere > most_elsewhere) {
                most_elsewhere = elsewhere;
                best = h;
            }
        }
        if (best < 0)
            break;
        limit = most_elsewhere;
        int64_t key = 1;
        for (int64_t j = 1; j < at; j++)
            key = map->at_rows[best * n + j] > map->at_rows[best * n + key] ? j : key;
        add_edge(run, most, best / map->n_heads, best % map->n_heads, at, key, ATTN_EDGE_AT);
    }
}

static void add_sample(attn_inspect_run *run, int64_t most)
{
    const attn_inspect_map *map = &run->out->maps[0];
    const int64_t n = run->a.n_tokens, first = n > ATTN_INSPECT_WHOLE ? n - ATTN_INSPECT_TAIL : 1;
    int64_t tokens = MOST_TOKENS / 2, readings = 0;
    for (int64_t q = first; q < n; q++)
        readings += q + 1;
    for (int64_t i = 0; i < run->a.n_sample && readings > 0; i++) {
        const int64_t head = (int64_t)(attn_inspect_random(&run->random) % (uint64_t)(map->n_layers * map->n_heads));
        int64_t which = (int64_t)(attn_inspect_random(&run->random) % (uint64_t)readings), query = first;
        for (; which > query; query++) /* uniform over all readings of the positions */
            which -= query + 1;
        tokens -= 4 * (n - query);
        if (tokens < 0)
            break;
        add_edge(run, most, head / map->n_heads, head % map->n_heads, query, which, ATTN_EDGE_SAMPLE);
    }
}

typedef struct candidate {
    float size;
    int32_t head, query, key;
} candidate;

/* A heap of the n_exact largest |estimates|, the smallest on top. */
static void offer(candidate *heap, int64_t *count, int64_t most, candidate c)
{
    int64_t at;
    if (!(c.size > 0) || most == 0 || (*count == most && c.size <= heap[0].size))
        return;
    if (*count < most) {
        for (at = (*count)++; at > 0 && c.size < heap[(at - 1) / 2].size; at = (at - 1) / 2)
            heap[at] = heap[(at - 1) / 2];
        heap[at] = c;
        return;
    }
    for (at = 0;;) {
        int64_t child = 2 * at + 1;
        if (child + 1 < most && heap[child + 1].size < heap[child].size)
            child++;
        if (child >= most || heap[child].size >= c.size)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = c;
}

/* Offers every screened reading; collects weights and sizes of an even sample of them for the correlation. */
static attn_status add_largest(attn_inspect_run *run, int64_t most)
{
    attn_inspection *out = run->out;
    const attn_inspect_map *map = &out->maps[0];
    const int64_t n = run->a.n_tokens, heads = map->n_layers * map->n_heads;
    const int64_t first = run->estimates ? (run->first_screened > 1 ? run->first_screened : 1) : n - 1;
    int64_t all = 0, count = 0, seen = 0, kept = 0;
    for (int64_t q = first; q < n; q++)
        all += (q + 1) * heads;
    const int64_t step = (all + MOST_CORRELATED - 1) / MOST_CORRELATED;
    const int64_t room = all / (step ? step : 1) + 2;
    candidate *heap = malloc((size_t)(run->a.n_exact + 1) * sizeof *heap);
    float *weights = malloc((size_t)room * sizeof *weights), *sizes = malloc((size_t)room * sizeof *sizes);
    bool *first_key = malloc((size_t)room * sizeof *first_key);
    const bool enough = heap && weights && sizes && first_key;
    for (int64_t h = 0; enough && h < heads; h++)
        for (int64_t q = first; q < n; q++)
            for (int64_t j = 0; j <= q; j++, seen++) {
                const float size = fabsf(estimate_of(run, h / map->n_heads, h % map->n_heads, q, j));
                if (size != size)
                    continue;
                out->n_screened++;
                offer(heap, &count, run->a.n_exact, (candidate){size, (int32_t)h, (int32_t)q, (int32_t)j});
                if (seen % step == 0 && kept < room) {
                    weights[kept] = weight_of(run, h / map->n_heads, h % map->n_heads, q, j);
                    first_key[kept] = j == 0;
                    sizes[kept++] = size;
                }
            }
    if (enough) {
        for (int64_t i = 0; i < count; i++)
            add_edge(run, most, heap[i].head / map->n_heads, heap[i].head % map->n_heads, heap[i].query, heap[i].key,
                     ATTN_EDGE_LARGEST);
        out->estimated.n = kept;
        out->estimated.all = attn_rank_correlation(weights, sizes, kept);
        int64_t others = 0;
        for (int64_t i = 0; i < kept; i++)
            if (!first_key[i]) {
                weights[others] = weights[i];
                sizes[others++] = sizes[i];
            }
        out->estimated.n_without_first = others;
        out->estimated.without_first = attn_rank_correlation(weights, sizes, others);
    }
    free(heap);
    free(weights);
    free(sizes);
    free(first_key);
    return enough ? ATTN_OK : attn_inspect_no_memory();
}

/* ---- measuring ---- */

static int by_query(const void *a, const void *b)
{
    const attn_inspect_edge *x = a, *y = b;
    return (x->query > y->query) - (x->query < y->query);
}

static int by_estimate(const void *a, const void *b)
{
    const attn_inspect_edge *x = a, *y = b;
    const float s = x->estimate == x->estimate ? fabsf(x->estimate) : -1;
    const float t = y->estimate == y->estimate ? fabsf(y->estimate) : -1;
    if (s != t)
        return s > t ? -1 : 1;
    return (x->layer > y->layer) - (x->layer < y->layer);
}

/* The reading of the largest moved size by `at`, cut in every head of a window of layers: single cuts are often repaired
 * by later layers. */
static attn_status cut_windows(cutter *c)
{
    attn_inspect_run *run = c->run;
    attn_inspection *out = run->out;
    const attn_inspect_map *map = &out->maps[0];
    const int64_t n = map->n_keys, layers = map->n_layers, at = run->a.at;
    attn_edit *edits = malloc((size_t)run->a.window * sizeof *edits);
    out->windows = calloc((size_t)layers, sizeof *out->windows);
    out->window = (int32_t)run->a.window;
    out->window_query = at;
    out->window_key = at > 1 ? 1 : 0;
    attn_status status = edits && out->windows ? ATTN_OK : attn_inspect_no_memory();
    double most = 0; /* the key that all heads together read most of, the first token and the own one aside */
    for (int64_t j = 1; j < at; j++) {
        double mass = 0;
        for (int64_t h = 0; h < layers * map->n_heads; h++)
            mass += (double)map->at_rows[h * n + j];
        if (mass > most) {
            most = mass;
            out->window_key = j;
        }
    }
    for (int64_t l = 0; status == ATTN_OK && l < layers; l++) {
        int32_t n_edits = 0;
        for (int64_t i = 0; i < run->a.window; i++)
            if (l - run->a.window / 2 + i >= 0 && l - run->a.window / 2 + i < layers)
                edits[n_edits++] = (attn_edit){.layer = l - run->a.window / 2 + i, .entry = 0, .head = -1, .query = at,
                                               .key = out->window_key, .kind = ATTN_EDIT_KNOCKOUT};
        status = effect_of(c, at, edits, n_edits, &out->windows[l]);
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

/* Largest first, so that a reading that qualifies twice is one edge; then in order of position, so that the uncut pass
 * is run once for each position. */
static attn_status choose(attn_inspect_run *run)
{
    const int64_t most = run->a.n_exact + run->a.n_sample + N_AT;
    run->out->edges = calloc((size_t)most, sizeof *run->out->edges);
    if (!run->out->edges)
        return attn_inspect_no_memory();
    ATTN_TRY(add_largest(run, most));
    add_at(run, most);
    add_sample(run, most);
    qsort(run->out->edges, (size_t)run->out->n_edges, sizeof *run->out->edges, by_query);
    return ATTN_OK;
}

static attn_status measure(cutter *c)
{
    attn_inspect_run *run = c->run;
    attn_inspection *out = run->out;
    const bool windows = run->a.at >= 1 && (run->a.n_tokens - run->a.at) * out->maps[0].n_layers <= MOST_TOKENS;
    float *mean = malloc((size_t)run->model->d.head_dim * sizeof *mean);
    attn_status status = mean ? ATTN_OK : attn_inspect_no_memory();
    run->all_passes += out->n_edges * (run->pair_values ? 4 : 3) + (windows ? out->maps[0].n_layers : 0);
    for (int64_t i = 0; status == ATTN_OK && i < out->n_edges; i++)
        status = cut_edge(c, &out->edges[i], mean);
    free(mean);
    if (status == ATTN_OK && windows)
        status = cut_windows(c);
    return status;
}

attn_status attn_inspect_cuts(attn_inspect_run *run)
{
    const size_t bytes = (size_t)run->model->d.vocab_size * sizeof(float);
    cutter c = {.run = run, .from = -1, .clean = run->a.n_tokens, .before = malloc(bytes), .after = malloc(bytes)};
    attn_status status = c.before && c.after ? ATTN_OK : attn_inspect_no_memory();
    if (status == ATTN_OK)
        status = attn_inspect_cut_heads(run); /* first: it runs the pair, too */
    if (status == ATTN_OK)
        status = choose(run);
    if (status == ATTN_OK)
        status = measure(&c);
    free(c.before);
    free(c.after);
    if (status != ATTN_OK)
        return status;
    qsort(run->out->edges, (size_t)run->out->n_edges, sizeof *run->out->edges, by_estimate);
    ATTN_TRY(correlate_sample(run->out));
    return run_from(run, c.clean, NULL, 0, NULL); /* the session ends with the whole text, uncut */
}
