/* inspect_choose.c - which readings are cut in the model: the heads that read most from `at`, an even draw among all, and those
 * with the largest estimates. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "inspect/inspect_screen.h"

#define N_AT        12    /* heads whose largest reading of `at` is cut */
#define MOST_TOKENS 8192  /* that all cuts of a kind may run through a decoder; a small one may run as many more as MOST_WORK holds */
#define MOST_WORK   2.5e12 /* operations: those of MOST_TOKENS of a model of 135 million weights, half a minute on two Zen 3 cores */
#define MOST_WHOLE  65536 /* tokens of models that are run whole for each cut */

/* Longer texts of decoders are drawn from at their last TAIL positions, so that a cut runs few tokens again. */
#define DRAWN_WHOLE 256
#define DRAWN_TAIL  32

/* ---- a reading's numbers ---- */

float attn_inspect_weight(const attn_inspect_map *map, const attn_reading *r)
{
    const int64_t at = r->layer * map->n_heads + r->head;
    int64_t low = 0, high = map->n_rows - 1;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (map->queries[middle] < r->query)
            low = middle + 1;
        else
            high = middle;
    }
    if (map->queries[low] != r->query)
        return 0;
    for (int64_t i = map->starts[at * map->n_rows + low]; i < map->starts[at * map->n_rows + low + 1]; i++)
        if (map->keys[i] == r->key)
            return map->weights[i];
    return 0;
}

void attn_edge_weigh(const attn_inspect_run *run, attn_inspect_edge *e, float weight, float estimate)
{
    const attn_inspect_map *map = &run->out->maps[e->map];
    const int64_t at = (e->layer * map->n_heads + e->head) * map->n_keys + e->key;
    e->weight = e->weight > 0 ? e->weight : weight; /* what the map keeps is exact; screening rounds the row's lse */
    e->moved = e->weight * map->value_norms[at];
    e->direct = !map->value_directs ? NAN : e->query == map->n_queries - 1 ? e->weight * map->value_directs[at] : 0;
    e->estimate = estimate;
}

/* An edge that a gradient has yet to weigh, or is not to: then its estimate is the direct effect. */
static void weigh_directly(const attn_inspect_run *run, attn_inspect_edge *e, const attn_reading *r)
{
    const attn_inspect_map *map = &run->out->maps[e->map];
    const bool beside = run->out->n_maps > 1 && e->map == 0;
    attn_edge_weigh(run, e, attn_inspect_weight(map, r), NAN);
    if (map->value_directs && e->query == map->n_queries - 1 && !beside)
        e->estimate = e->direct;
}

/* ---- choosing ---- */

static bool same_reading(const attn_inspect_edge *e, const attn_reading *r)
{
    return e->map == r->map && e->layer == r->layer && e->head == r->head && e->query == r->query && e->key == r->key;
}

/* The edge of a reading: a new one unless it has been chosen before. */
static attn_inspect_edge *add_edge(attn_inspect_run *run, const attn_reading *r, int32_t why)
{
    attn_inspection *out = run->out;
    for (int64_t i = 0; i < out->n_edges; i++)
        if (same_reading(&out->edges[i], r)) {
            out->edges[i].why |= why;
            return &out->edges[i];
        }
    attn_inspect_edge *e = &out->edges[out->n_edges++];
    *e = (attn_inspect_edge){.map = r->map, .layer = r->layer, .head = r->head, .query = r->query, .key = r->key, .why = why};
    weigh_directly(run, e, r);
    return e;
}

/* Tokens that one cut of a reading by `query` runs. */
int64_t attn_inspect_cost(const attn_inspect_run *run, int64_t query)
{
    const int64_t passes = run->a.pair ? 4 : 3;
    return passes * (run->model->d.kind == ATTN_MODEL_DECODER ? run->a.n_tokens - query : run->a.n_tokens + run->a.n_target);
}

int64_t attn_inspect_budget(const attn_inspect_run *run)
{
    const attn_description *d = &run->model->d;
    const double width = (double)(d->n_heads * d->head_dim), kv_width = (double)(d->n_kv_heads * d->head_dim);
    const double experts = d->mlp.n_experts ? (double)d->mlp.experts_per_token : 1, matrices = d->mlp.gated ? 3 : 2;
    const double weights = (double)d->d_model * (2 * width + 2 * kv_width + experts * matrices * (double)d->d_ff);
    const double per_token = (double)d->n_layers * (2 * weights + 4 * width * (double)run->a.n_tokens);
    if (d->kind != ATTN_MODEL_DECODER)
        return MOST_WHOLE;
    return MOST_WORK / per_token > MOST_TOKENS ? (int64_t)(MOST_WORK / per_token) : MOST_TOKENS;
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
static void add_at(attn_inspect_run *run)
{
    const int64_t at = run->a.at, room = attn_inspect_budget(run) / 4 / attn_inspect_cost(run, at);
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
            const attn_reading r = {.map = m, .layer = best / map->n_heads, .head = best % map->n_heads, .query = at, .key = key};
            add_edge(run, &r, ATTN_EDGE_AT);
        }
    }
}

/* Queries from here on are drawn from; those before move nothing or cost too much. */
static int64_t first_drawn(const attn_inspect_run *run, int32_t m)
{
    const attn_inspect_site *site = &run->sites[m];
    if (!site->causal)
        return 0;
    return run->model->d.kind == ATTN_MODEL_DECODER && site->n_queries > DRAWN_WHOLE
               ? site->n_queries - DRAWN_TAIL
               : 1; /* the first token has nothing else to read */
}

static int64_t keys_of(const attn_inspect_site *site, int64_t query)
{
    return site->causal ? query + 1 : site->n_keys;
}

/* Uniform over all readings of the positions in all maps. */
static void add_sample(attn_inspect_run *run)
{
    const attn_inspection *out = run->out;
    int64_t tokens = attn_inspect_budget(run) / 2, pairs[3] = {0}, all = 0;
    for (int32_t m = 0; m < out->n_maps; m++) {
        for (int64_t q = first_drawn(run, m); q < run->sites[m].n_queries; q++)
            pairs[m] += keys_of(&run->sites[m], q);
        all += pairs[m] * out->maps[m].n_layers * out->maps[m].n_heads;
    }
    for (int64_t i = 0; i < run->a.n_sample && all > 0; i++) {
        int64_t which = (int64_t)(attn_inspect_random(&run->random) % (uint64_t)all);
        attn_reading r = {0};
        for (; which >= pairs[r.map] * out->maps[r.map].n_layers * out->maps[r.map].n_heads; r.map++)
            which -= pairs[r.map] * out->maps[r.map].n_layers * out->maps[r.map].n_heads;
        r.layer = which / pairs[r.map] / out->maps[r.map].n_heads;
        r.head = which / pairs[r.map] % out->maps[r.map].n_heads;
        r.key = which % pairs[r.map];
        for (r.query = first_drawn(run, r.map); r.key >= keys_of(&run->sites[r.map], r.query); r.query++)
            r.key -= keys_of(&run->sites[r.map], r.query);
        tokens -= attn_inspect_cost(run, r.query);
        if (tokens < 0)
            break;
        add_edge(run, &r, ATTN_EDGE_SAMPLE);
    }
}

/* The largest are cut where the budget holds, and else stand with their estimates alone. */
static void add_largest(attn_inspect_run *run, const attn_screen *s)
{
    int64_t tokens = attn_inspect_budget(run);
    for (int64_t i = 0; i < s->counts[0]; i++) {
        const attn_reading *r = &s->heaps[i];
        attn_inspect_edge *e = add_edge(run, r, ATTN_EDGE_LARGEST);
        const int64_t cost = e->why == ATTN_EDGE_LARGEST ? attn_inspect_cost(run, r->query) : 0; /* others are cut anyway */
        attn_edge_weigh(run, e, r->weight, r->estimate);
        e->why |= cost > tokens ? ATTN_EDGE_NOT_CUT : 0;
        tokens -= cost > tokens ? 0 : cost;
    }
}

static int by_query(const void *a, const void *b)
{
    const attn_inspect_edge *x = a, *y = b;
    return (x->query > y->query) - (x->query < y->query);
}

/* What needs no estimate first: the gradient weighs it as it passes. In the end in order of position, so that the uncut pass is
 * run once for each. */
attn_status attn_inspect_choose(attn_inspect_run *run)
{
    attn_screen s;
    run->out->edges = calloc((size_t)(run->a.n_exact + run->a.n_sample + 2 * N_AT), sizeof *run->out->edges);
    if (!run->out->edges)
        return attn_inspect_no_memory();
    add_at(run);
    add_sample(run);
    attn_status status = attn_screen_start(&s, run);
    if (status == ATTN_OK && run->gradient)
        status = attn_inspect_gradient(run, &s);
    else if (status == ATTN_OK)
        attn_screen_directs(&s);
    if (status == ATTN_OK) {
        attn_screen_end(&s);
        add_largest(run, &s);
        qsort(run->out->edges, (size_t)run->out->n_edges, sizeof *run->out->edges, by_query);
    }
    attn_screen_free(&s);
    return status;
}
