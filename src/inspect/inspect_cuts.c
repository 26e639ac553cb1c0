/* inspect_cuts.c - single readings cut in the model: which ones, and what moved. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "inspect/inspect_run.h"

#define N_AT           12   /* heads whose largest reading of `at` is cut */
#define MOST_TOKENS    8192 /* that all cuts together may run through a decoder */
#define MOST_WHOLE     65536 /* the same of models that are run whole for each cut */
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

/* ---- the weight of any reading ---- */

static float weight_of(const attn_inspect_map *map, int64_t layer, int64_t head, int64_t query, int64_t key)
{
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

static float estimate_of(const attn_inspect_run *run, int32_t m, int64_t layer, int64_t head, int64_t query, int64_t key)
{
    const attn_inspect_map *map = &run->out->maps[m];
    const attn_inspect_site *site = &run->sites[m];
    if (site->estimates)
        return site->estimates[attn_estimate_at(run, site, layer, head, query, key)];
    if (!map->value_directs || query != site->n_queries - 1 || (run->out->n_maps > 1 && m == 0))
        return NAN;
    return weight_of(map, layer, head, query, key) * map->value_directs[(layer * map->n_heads + head) * map->n_keys + key];
}

/* ---- choosing ---- */

typedef struct reading {
    int32_t map;
    int64_t layer, head, query, key;
} reading;

static bool same_reading(const attn_inspect_edge *e, const reading *r)
{
    return e->map == r->map && e->layer == r->layer && e->head == r->head && e->query == r->query && e->key == r->key;
}

static void add_edge(attn_inspect_run *run, int64_t most, reading r, int32_t why)
{
    attn_inspection *out = run->out;
    const attn_inspect_map *map = &out->maps[r.map];
    const int64_t at = (r.layer * map->n_heads + r.head) * map->n_keys + r.key;
    for (int64_t i = 0; i < out->n_edges; i++)
        if (same_reading(&out->edges[i], &r)) {
            out->edges[i].why |= why;
            return;
        }
    if (out->n_edges == most)
        return;
    attn_inspect_edge *e = &out->edges[out->n_edges++];
    *e = (attn_inspect_edge){.map = r.map, .layer = r.layer, .head = r.head, .query = r.query, .key = r.key, .why = why};
    e->weight = weight_of(map, r.layer, r.head, r.query, r.key);
    e->moved = e->weight * map->value_norms[at];
    e->direct = !map->value_directs ? NAN : r.query == map->n_queries - 1 ? e->weight * map->value_directs[at] : 0;
    e->estimate = estimate_of(run, r.map, r.layer, r.head, r.query, r.key);
}

/* Tokens that one cut of a reading by `query` runs. */
static int64_t cost_of(const attn_inspect_run *run, int64_t query)
{
    const int64_t passes = run->a.pair ? 4 : 3;
    return passes * (run->model->d.kind == ATTN_MODEL_DECODER ? run->a.n_tokens - query : run->a.n_tokens + run->a.n_target);
}

static int64_t budget_of(const attn_inspect_run *run)
{
    return run->model->d.kind == ATTN_MODEL_DECODER ? MOST_TOKENS : MOST_WHOLE;
}

/* Mass of a head's row of `at` that lies neither on the first token nor, in self attention, on itself. */
static double elsewhere(const attn_inspect_map *map, int64_t head, int64_t at, int64_t *largest)
{
    const float *row = map->at_rows + head * map->n_keys;
    double sum = 0;
    *largest = -1;
    for (int64_t j = 1; j < map->n_keys; j++) {
        if (map->attention == ATTN_ATTENTION_SELF && j == at)
            continue;
        sum += (double)row[j];
        if (row[j] > 0 && (*largest < 0 || row[j] > row[*largest]))
            *largest = j;
    }
    return sum;
}

/* The heads that read most elsewhere, each with its largest such reading; of both kinds where there is cross attention. */
static void add_at(attn_inspect_run *run, int64_t most)
{
    const int64_t at = run->a.at, room = budget_of(run) / 4 / cost_of(run, at);
    for (int32_t m = run->out->outcome_map; m < run->out->n_maps; m++) {
        const attn_inspect_map *map = &run->out->maps[m];
        double limit = INFINITY;
        for (int64_t i = 0; i < N_AT && i < room; i++) {
            int64_t best = -1, key = -1, largest;
            double most_elsewhere = 0;
            for (int64_t h = 0; h < map->n_layers * map->n_heads; h++) {
                const double sum = elsewhere(map, h, at, &largest);
                if (sum < limit && sum > most_elsewhere) {
                    most_elsewhere = sum;
                    best = h;
                    key = largest;
                }
            }
            if (best < 0)
                break;
            limit = most_elsewhere;
            add_edge(run, most, (reading){m, best / map->n_heads, best % map->n_heads, at, key}, ATTN_EDGE_AT);
        }
    }
}

/* Queries from here on are drawn from and screened; those before move nothing or cost too much. */
static int64_t first_query(const attn_inspect_run *run, int32_t m)
{
    const attn_inspect_site *site = &run->sites[m];
    if (!site->causal)
        return 0;
    return run->model->d.kind == ATTN_MODEL_DECODER && site->n_queries > ATTN_INSPECT_WHOLE
               ? site->n_queries - ATTN_INSPECT_TAIL
               : 1; /* the first token has nothing else to read */
}

static int64_t keys_of(const attn_inspect_site *site, int64_t query)
{
    return site->causal ? query + 1 : site->n_keys;
}

/* Uniform over all readings of the positions in all maps. */
static void add_sample(attn_inspect_run *run, int64_t most)
{
    const attn_inspection *out = run->out;
    int64_t tokens = budget_of(run) / 2, pairs[3] = {0}, all = 0;
    for (int32_t m = 0; m < out->n_maps; m++) {
        for (int64_t q = first_query(run, m); q < run->sites[m].n_queries; q++)
            pairs[m] += keys_of(&run->sites[m], q);
        all += pairs[m] * out->maps[m].n_layers * out->maps[m].n_heads;
    }
    for (int64_t i = 0; i < run->a.n_sample && all > 0; i++) {
        int64_t which = (int64_t)(attn_inspect_random(&run->random) % (uint64_t)all);
        reading r = {0};
        for (; which >= pairs[r.map] * out->maps[r.map].n_layers * out->maps[r.map].n_heads; r.map++)
            which -= pairs[r.map] * out->maps[r.map].n_layers * out->maps[r.map].n_heads;
        r.layer = which / pairs[r.map] / out->maps[r.map].n_heads;
        r.head = which / pairs[r.map] % out->maps[r.map].n_heads;
        r.key = which % pairs[r.map];
        for (r.query = first_query(run, r.map); r.key >= keys_of(&run->sites[r.map], r.query); r.query++)
            r.key -= keys_of(&run->sites[r.map], r.query);
        tokens -= cost_of(run, r.query);
        if (tokens < 0)
            break;
        add_edge(run, most, r, ATTN_EDGE_SAMPLE);
    }
}

typedef struct candidate {
    float size;
    int32_t map, head, query, key;
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

static int by_size(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return (x->size < y->size) - (x->size > y->size);
}

/* Weights and sizes of an even sample of the screened readings, for the rank correlation. */
typedef struct screen {
    candidate *heap;
    int64_t count;                /* in the heap */
    float *weights, *sizes;
    bool *first_key;
    int64_t step, room, seen, kept;
} screen;

static void screen_map(attn_inspect_run *run, int32_t m, screen *s)
{
    const attn_inspect_map *map = &run->out->maps[m];
    const attn_inspect_site *site = &run->sites[m];
    const int64_t first = site->estimates ? first_query(run, m) : site->n_queries - 1;
    for (int64_t h = 0; h < map->n_layers * map->n_heads; h++)
        for (int64_t q = first; q < site->n_queries; q++)
            for (int64_t j = 0; j < keys_of(site, q); j++, s->seen++) {
                const float size = fabsf(estimate_of(run, m, h / map->n_heads, h % map->n_heads, q, j));
                if (size != size)
                    continue;
                run->out->n_screened++;
                offer(s->heap, &s->count, run->a.n_exact, (candidate){size, m, (int32_t)h, (int32_t)q, (int32_t)j});
                if (s->seen % s->step == 0 && s->kept < s->room) {
                    s->weights[s->kept] = weight_of(map, h / map->n_heads, h % map->n_heads, q, j);
                    s->first_key[s->kept] = j == 0;
                    s->sizes[s->kept++] = size;
                }
            }
}

static void correlate_screened(attn_inspection *out, screen *s)
{
    int64_t others = 0;
    out->estimated.n = s->kept;
    out->estimated.all = attn_rank_correlation(s->weights, s->sizes, s->kept);
    for (int64_t i = 0; i < s->kept; i++)
        if (!s->first_key[i]) {
            s->weights[others] = s->weights[i];
            s->sizes[others++] = s->sizes[i];
        }
    out->estimated.n_without_first = others;
    out->estimated.without_first = attn_rank_correlation(s->weights, s->sizes, others);
}

/* Offers every screened reading; as many are cut as the budget holds. */
static attn_status add_largest(attn_inspect_run *run, int64_t most)
{
    const attn_inspection *out = run->out;
    screen s = {0};
    int64_t all = 0, tokens = budget_of(run);
    for (int32_t m = 0; m < out->n_maps; m++)
        for (int64_t q = first_query(run, m); q < run->sites[m].n_queries; q++)
            all += keys_of(&run->sites[m], q) * out->maps[m].n_layers * out->maps[m].n_heads;
    s.step = all / MOST_CORRELATED + 1;
    s.room = all / s.step + 2;
    s.heap = malloc((size_t)(run->a.n_exact + 1) * sizeof *s.heap);
    s.weights = malloc((size_t)s.room * sizeof *s.weights);
    s.sizes = malloc((size_t)s.room * sizeof *s.sizes);
    s.first_key = malloc((size_t)s.room * sizeof *s.first_key);
    const bool enough = s.heap && s.weights && s.sizes && s.first_key;
    for (int32_t m = 0; enough && m < out->n_maps; m++)
        screen_map(run, m, &s);
    if (enough)
        qsort(s.heap, (size_t)s.count, sizeof *s.heap, by_size);
    for (int64_t i = 0; enough && i < s.count; i++) {
        const candidate *c = &s.heap[i];
        const int64_t heads = out->maps[c->map].n_heads;
        tokens -= cost_of(run, c->query);
        if (tokens < 0)
            break;
        add_edge(run, most, (reading){c->map, c->head / heads, c->head % heads, c->query, c->key}, ATTN_EDGE_LARGEST);
    }
    if (enough)
        correlate_screened(run->out, &s);
    free(s.heap);
    free(s.weights);
    free(s.sizes);
    free(s.first_key);
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

/* Largest first, so that a reading that qualifies twice is one edge; then in order of position, so that the uncut pass
 * is run once for each position. */
static attn_status choose(attn_inspect_run *run)
{
    const int64_t most = run->a.n_exact + run->a.n_sample + 2 * N_AT;
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
    const int32_t m = out->n_maps - 1; /* the windows': cross attention where there is one */
    const bool causal = run->sites[m].causal, reads = causal ? run->a.at >= 1 : out->maps[m].n_keys > 1;
    const bool windows = reads && cost_of(run, run->a.at) / 3 * out->maps[m].n_layers <= budget_of(run);
    float *mean = malloc((size_t)run->model->d.head_dim * sizeof *mean);
    attn_status status = mean ? ATTN_OK : attn_inspect_no_memory();
    run->all_passes += out->n_edges * (run->a.pair ? 4 : 3) + (windows ? out->maps[m].n_layers : 0);
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
        status = attn_inspect_cut_heads(run); /* first: it runs the pair, too */
    if (status == ATTN_OK)
        status = choose(run);
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
