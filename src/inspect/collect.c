/* collect.c - rows of weights out of a forward pass, one block at a time, kept as their largest. */
#include "inspect/collect.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/context.h"
#include "ops/nn/nn_parallel.h"

/* A row of at most this many keys is kept whole; of a longer one no weight below LEAST: the page's smallest step. */
#define WHOLE_KEYS 64
#define LEAST 0.001f
#define FEWEST_KEPT 4

static attn_status no_memory(void)
{
    return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "no memory for the weights of an inspection");
}

void attn_inspect_map_free(attn_inspect_map *map)
{
    free(map->queries);
    free(map->starts);
    free(map->keys);
    free(map->weights);
    free(map->at_rows);
    free(map->at_columns);
    free(map->value_norms);
    free(map->value_directs);
    free(map->stats);
    memset(map, 0, sizeof *map);
}

/* All queries where the pairs allow it, else evenly spaced ones, `at` and the last among them. */
static attn_status choose_rows(attn_inspect_map *map, int64_t at, int64_t most_pairs)
{
    const int64_t n = map->n_queries, heads = map->n_layers * map->n_heads;
    const double pairs_per_row = (double)map->n_keys * (double)heads;
    double rows = (double)most_pairs / (pairs_per_row > 0 ? pairs_per_row : 1);
    if (!map->encoder && map->attention == ATTN_ATTENTION_SELF)
        rows *= 2; /* half of the pairs are excluded */
    const int64_t step = rows >= (double)n ? 1 : (int64_t)ceil((double)n / fmax(rows, 16));
    map->queries = malloc((size_t)(n + 1) * sizeof *map->queries);
    if (!map->queries)
        return no_memory();
    for (int64_t i = 0; i < n; i++)
        if (i % step == step - 1 || i == at || i == n - 1)
            map->queries[map->n_rows++] = (int32_t)i;
    return ATTN_OK;
}

int64_t attn_collect_rows(int64_t n_keys)
{
    const int64_t rows = (4 << 20) / (n_keys > 0 ? n_keys : 1);
    return rows < 16 ? 16 : rows > ATTN_COLLECT_ROWS ? ATTN_COLLECT_ROWS : rows;
}

attn_status attn_collect_start(attn_collector *c, attn_inspect_map *map, int64_t at, int64_t most_weights,
                               int64_t most_pairs, int32_t n_threads)
{
    const int64_t heads = map->n_layers * map->n_heads;
    memset(c, 0, sizeof *c);
    c->map = map;
    c->at = at;
    c->n_threads = n_threads;
    c->most_rows = attn_collect_rows(map->n_keys);
    c->only_layer = c->only_head = -1;
    ATTN_TRY(choose_rows(map, at, most_pairs));
    const int64_t rows = heads * map->n_rows, most = most_weights / (rows ? rows : 1);
    map->most_kept = map->n_keys <= WHOLE_KEYS || most >= map->n_keys ? map->n_keys : most;
    map->most_kept = map->most_kept < FEWEST_KEPT && map->n_keys >= FEWEST_KEPT ? FEWEST_KEPT : map->most_kept;
    map->least_kept = map->n_keys <= WHOLE_KEYS ? 0 : LEAST;
    map->starts = calloc((size_t)(rows + 1), sizeof *map->starts);
    map->stats = calloc((size_t)heads, sizeof *map->stats);
    map->at_rows = at >= 0 ? calloc((size_t)(heads * map->n_keys), sizeof(float)) : NULL;
    const bool columns = at >= 0 && map->attention == ATTN_ATTENTION_SELF;
    map->at_columns = columns ? malloc((size_t)(heads * map->n_queries) * sizeof(float)) : NULL;
    c->block = malloc((size_t)(c->most_rows * (map->n_keys + 1)) * sizeof *c->block);
    c->order = malloc((size_t)(c->most_rows * (map->most_kept + 1)) * sizeof *c->order);
    if (!map->starts || !map->stats || (at >= 0 && !map->at_rows) || (columns && !map->at_columns) || !c->block ||
        !c->order)
        return no_memory();
    for (int64_t i = 0; columns && i < heads * map->n_queries; i++)
        map->at_columns[i] = -1;
    return ATTN_OK;
}

void attn_collect_finish(attn_collector *c)
{
    free(c->block);
    free(c->order);
    c->block = NULL;
    c->order = NULL;
}

static attn_status reserve(attn_collector *c, int64_t more)
{
    if (c->n_weights + more <= c->capacity)
        return ATTN_OK;
    const int64_t capacity = c->capacity + c->capacity / 2 + more + 1024;
    int32_t *keys = realloc(c->map->keys, (size_t)capacity * sizeof *keys);
    c->map->keys = keys ? keys : c->map->keys;
    float *weights = realloc(c->map->weights, (size_t)capacity * sizeof *weights);
    c->map->weights = weights ? weights : c->map->weights;
    if (!keys || !weights)
        return no_memory();
    c->capacity = capacity;
    return ATTN_OK;
}

/* A heap of the best so far, its smallest on top: linear for the usual row, where few weights are large. */
int64_t attn_inspect_largest(const float *w, int64_t n, int64_t most, float least, int64_t *heap)
{
    int64_t count = 0;
    if (most >= n) {
        for (int64_t j = 0; j < n; j++)
            if (w[j] > 0 && w[j] >= least)
                heap[count++] = j;
        return count;
    }
    for (int64_t j = 0; j < n; j++) {
        if (!(w[j] > 0 && w[j] >= least) || (count == most && w[j] <= w[heap[0]]))
            continue;
        int64_t at = count < most ? count++ : 0;
        heap[at] = j;
        while (at > 0 && w[heap[at]] < w[heap[(at - 1) / 2]]) {
            const int64_t key = heap[at];
            heap[at] = heap[(at - 1) / 2];
            heap[(at - 1) / 2] = key;
            at = (at - 1) / 2;
        }
        for (;;) {
            int64_t least_child = at;
            for (int64_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++)
                least_child = w[heap[child]] < w[heap[least_child]] ? child : least_child;
            if (least_child == at)
                break;
            const int64_t key = heap[at];
            heap[at] = heap[least_child];
            heap[least_child] = key;
            at = least_child;
        }
    }
    for (int64_t i = 1; i < count; i++) { /* few: insertion */
        const int64_t key = heap[i];
        int64_t j = i;
        for (; j > 0 && heap[j - 1] > key; j--)
            heap[j] = heap[j - 1];
        heap[j] = key;
    }
    return count;
}

/* What a row gives, before it is stored. */
typedef struct row_found {
    double entropy, distance;
    float largest; /* on a key other than 0 and the own one; 0: none */
    int32_t key;
    int64_t kept; /* of its weights, listed in order */
} row_found;

typedef struct block_job {
    attn_collector *c;
    const attn_row *rows;
    row_found *found;
} block_job;

/* Sum of -w ln w over [0, n); a weight below 1e-12 adds less than 3e-11. */
static double entropy_of(const float *w, int64_t n)
{
    double sum = 0;
    for (int64_t j = 0; j < n; j++)
        if (w[j] > 1e-12f)
            sum -= (double)w[j] * (double)logf(w[j]);
    return sum;
}

static double distance_of(const float *w, int64_t n, int64_t query)
{
    double sum = 0;
    for (int64_t j = 0; j < n; j++)
        sum += (double)w[j] * (double)(query > j ? query - j : j - query);
    return sum;
}

static void find_in_row(void *arg, int64_t r)
{
    const block_job *job = arg;
    const attn_inspect_map *map = job->c->map;
    const int64_t query = job->rows[r].query;
    const bool self = map->attention == ATTN_ATTENTION_SELF;
    const float *w = job->c->block + r * map->n_keys;
    const int64_t n = self && !map->encoder ? query + 1 : map->n_keys; /* none behind these */
    row_found found = {.key = -1, .entropy = entropy_of(w, n), .distance = self ? distance_of(w, n, query) : 0};
    for (int64_t j = 1; j < n; j++)
        if (w[j] > found.largest && !(self && j == query)) {
            found.largest = w[j];
            found.key = (int32_t)j;
        }
    found.kept = attn_inspect_largest(w, n, map->most_kept, map->least_kept, job->c->order + r * map->most_kept);
    job->found[r] = found;
}

static void add_to_stat(attn_inspect_stat *stat, int64_t query, const row_found *found, float first)
{
    if (found->largest > stat->largest) {
        stat->largest = found->largest;
        stat->query = (int32_t)query;
        stat->key = found->key;
    }
    stat->entropy += (float)found->entropy;
    stat->distance += (float)found->distance;
    stat->first += first;
}

static attn_status store_row(attn_collector *c, int64_t head, int64_t query, const float *w, const int64_t *order,
                             int64_t kept)
{
    attn_inspect_map *map = c->map;
    ATTN_TRY(reserve(c, kept));
    for (int64_t i = 0; i < kept; i++) {
        map->keys[c->n_weights] = (int32_t)order[i];
        map->weights[c->n_weights++] = w[order[i]];
    }
    map->starts[++c->next_row] = c->n_weights;
    if (query == c->at)
        memcpy(map->at_rows + head * map->n_keys, w, (size_t)map->n_keys * sizeof *w);
    if (map->at_columns)
        map->at_columns[head * map->n_queries + query] = w[c->at];
    return ATTN_OK;
}

static attn_status collect_head(attn_collector *c, const attn_layer_view *view, int64_t from_head, int64_t head)
{
    attn_inspect_map *map = c->map;
    attn_inspect_stat *stat = &map->stats[head];
    attn_row rows[ATTN_COLLECT_ROWS];
    row_found found[ATTN_COLLECT_ROWS];
    block_job job = {c, rows, found};
    int64_t counted = 0;
    stat->query = stat->key = -1;
    for (int64_t first = 0; first < map->n_rows; first += c->most_rows) {
        const int64_t n = map->n_rows - first < c->most_rows ? map->n_rows - first : c->most_rows;
        const attn_view block = attn_view_of(c->block, ATTN_F32, 1, 1, n, map->n_keys);
        for (int64_t r = 0; r < n; r++)
            rows[r] = (attn_row){0, from_head, map->queries[first + r]};
        attn_status status = attn_sdpa_rows(view->ctx, view->attention, rows, n, &block);
        if (status != ATTN_OK)
            return attn_model_fail(status, "rows of attention: %s", attn_ctx_error(view->ctx));
        attn_nn_for(n * map->n_keys > 10000 ? c->n_threads : 1, n, find_in_row, &job);
        for (int64_t r = 0; r < n; r++) {
            const float *w = c->block + r * map->n_keys;
            ATTN_TRY(store_row(c, head, rows[r].query, w, c->order + r * map->most_kept, found[r].kept));
            if (rows[r].query > 0 || map->encoder || map->attention == ATTN_ATTENTION_CROSS) {
                add_to_stat(stat, rows[r].query, &found[r], w[0]);
                counted++;
            }
        }
    }
    if (counted) {
        stat->entropy /= (float)counted;
        stat->distance /= (float)counted;
        stat->first /= (float)counted;
    }
    return ATTN_OK;
}

attn_status attn_collect_layer(attn_collector *c, const attn_layer_view *view)
{
    const int64_t heads = view->attention->query.shape[1];
    if (c->only_layer >= 0)
        return view->layer == c->only_layer ? collect_head(c, view, c->only_head, 0) : ATTN_OK;
    for (int64_t h = 0; h < heads; h++)
        ATTN_TRY(collect_head(c, view, h, view->layer * heads + h));
    return ATTN_OK;
}
