/* inspect_screen.c - the first-order effect of every knockout, a block of rows at a time, never N x N:
 *
 *     y' - y = (y - a v) / (1 - a) - y = a / (1 - a) (y - v)      estimate = <g, y' - y>,  g = d outcome / d y
 *
 * Weights a of the rows come from the operator, <g, v> of all keys from one product for each block. */
#include "inspect/inspect_screen.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ops/nn/nn_parallel.h"

/* Beyond this weight the division by 1 - a is held at 1 - MOST_WEIGHT: a first-order estimate says nothing there. */
#define MOST_WEIGHT     0.99f
#define MOST_CORRELATED 200000 /* readings that enter the rank correlation of weight and estimate */
#define CHUNK           256    /* keys that an inner loop takes */

/* ---- numbers of readings ---- */

/* The first token of a decoder has nothing else to read. */
static int64_t first_query(const attn_inspect_site *site)
{
    return site->causal ? 1 : 0;
}

/* Readings of a head by the queries before this one. */
static int64_t pairs_before(const attn_inspect_site *site, int64_t query)
{
    return site->causal ? query * (query + 1) / 2 - 1 : query * site->n_keys;
}

static int64_t number_of(const attn_screen *s, int32_t m, int64_t layer, int64_t head, int64_t query)
{
    const attn_inspect_site *site = &s->run->sites[m];
    return s->first[m] + (layer * s->run->model->d.n_heads + head) * s->pairs[m] + pairs_before(site, query);
}

attn_status attn_screen_start(attn_screen *s, attn_inspect_run *run)
{
    const attn_inspection *out = run->out;
    const int64_t directions = attn_backward_directions(run);
    int64_t all = 0, keys = 0;
    memset(s, 0, sizeof *s);
    s->run = run;
    for (int32_t m = 0; m < out->n_maps; m++) {
        const attn_inspect_site *site = &run->sites[m];
        const bool direct = out->maps[m].value_directs && !(out->n_maps > 1 && m == 0);
        s->pairs[m] = run->gradient ? pairs_before(site, site->n_queries) : direct ? site->n_keys : 0;
        s->first[m] = all;
        all += s->pairs[m] * out->maps[m].n_layers * out->maps[m].n_heads;
        keys = site->n_keys > keys ? site->n_keys : keys;
    }
    run->out->n_screened = all;
    s->step = all / MOST_CORRELATED + 1;
    s->room = (all + s->step - 1) / s->step;
    s->most_stride = (keys + CHUNK - 1) / CHUNK * CHUNK;
    s->most_rows = run->gradient ? attn_collect_rows(s->most_stride * directions) : 0;
    s->heaps = malloc((size_t)(ATTN_SCREEN_PARTS * run->a.n_exact + 1) * sizeof *s->heaps);
    s->weights = malloc((size_t)(s->room + 1) * sizeof *s->weights);
    s->sizes = malloc((size_t)(s->room + 1) * sizeof *s->sizes);
    s->first_key = malloc((size_t)(s->room + 1) * sizeof *s->first_key);
    s->rows = calloc((size_t)(s->most_rows * s->most_stride + 1), sizeof *s->rows);
    s->along = calloc((size_t)(directions * s->most_rows * s->most_stride + 1), sizeof *s->along);
    const bool enough = s->heaps && s->weights && s->sizes && s->first_key && s->rows && s->along;
    return enough ? ATTN_OK : attn_inspect_no_memory();
}

void attn_screen_free(attn_screen *s)
{
    free(s->heaps);
    free(s->weights);
    free(s->sizes);
    free(s->first_key);
    free(s->rows);
    free(s->along);
}

/* ---- the largest ---- */

static float size_of(const attn_reading *r)
{
    return fabsf(r->estimate);
}

/* Smaller, or as large and later: the order is total, so that the order of offers does not show. */
static bool goes_behind(const attn_reading *a, const attn_reading *b)
{
    const int64_t x[] = {a->map, a->layer, a->head, a->query, a->key}, y[] = {b->map, b->layer, b->head, b->query, b->key};
    if (size_of(a) != size_of(b))
        return size_of(a) < size_of(b);
    for (int i = 0; i < 5; i++)
        if (x[i] != y[i])
            return x[i] > y[i];
    return false;
}

static void offer(attn_reading *heap, int64_t *count, int64_t most, attn_reading c)
{
    int64_t at;
    if (!(size_of(&c) > 0) || most == 0 || (*count == most && !goes_behind(&heap[0], &c)))
        return;
    if (*count < most) {
        for (at = (*count)++; at > 0 && goes_behind(&c, &heap[(at - 1) / 2]); at = (at - 1) / 2)
            heap[at] = heap[(at - 1) / 2];
        heap[at] = c;
        return;
    }
    for (at = 0;;) {
        int64_t child = 2 * at + 1;
        if (child + 1 < most && goes_behind(&heap[child + 1], &heap[child]))
            child++;
        if (child >= most || !goes_behind(&heap[child], &c))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = c;
}

static int largest_first(const void *a, const void *b)
{
    return goes_behind(a, b) ? 1 : goes_behind(b, a) ? -1 : 0;
}

static void keep(attn_screen *s, int64_t number, float weight, float size, bool first_key)
{
    s->weights[number / s->step] = weight;
    s->sizes[number / s->step] = size;
    s->first_key[number / s->step] = first_key;
}

/* ---- rows ---- */

/* Queries first .. first + n - 1 of one head. */
typedef struct block {
    attn_screen *s;
    const attn_inspect_site *site;
    const attn_backward *b;
    int32_t map;
    int64_t layer, head, first, n;
    int64_t directions, stride;
} block;

/* <g, y> of a row in each direction. */
static void own_parts(const block *k, int64_t r, float *own)
{
    const attn_description *d = &k->s->run->model->d;
    const int64_t dim = d->head_dim, width = d->n_heads * dim, at = (k->first + r) * width + k->head * dim;
    const int64_t apart = k->directions > 1 ? (k->s->run->a.n_tokens * width) : 0;
    for (int64_t u = 0; u < k->directions; u++) {
        double sum = 0;
        for (int64_t i = 0; i < dim; i++)
            sum += (double)k->b->all_d_heads[u * apart + at + i] * (double)k->b->heads[at + i];
        own[u] = (float)sum;
    }
}

static const float *along_of(const block *k, int64_t direction, int64_t r)
{
    return k->s->along + (direction * k->s->most_rows + r) * k->stride;
}

/* Estimates of a chunk of keys; of an embedding the distance that it moves, since the mean of (u J delta)^2 over random
 * directions u is |J delta|^2. */
static void estimate_chunk(const block *k, int64_t r, int64_t from, const float *own, float *estimate)
{
    const float *w = k->s->rows + r * k->stride + from;
    float factor[CHUNK];
    for (int i = 0; i < CHUNK; i++)
        factor[i] = w[i] / (1 - (w[i] > MOST_WEIGHT ? MOST_WEIGHT : w[i]));
    if (k->directions == 1) {
        const float *along = along_of(k, 0, r) + from;
        for (int i = 0; i < CHUNK; i++)
            estimate[i] = factor[i] * (own[0] - along[i]);
        return;
    }
    memset(estimate, 0, CHUNK * sizeof *estimate);
    for (int64_t u = 0; u < k->directions; u++) {
        const float *along = along_of(k, u, r) + from;
        for (int i = 0; i < CHUNK; i++)
            estimate[i] += factor[i] * (own[u] - along[i]) * (factor[i] * (own[u] - along[i]));
    }
    for (int i = 0; i < CHUNK; i++)
        estimate[i] = sqrtf(estimate[i] / (float)k->directions);
}

static void screen_row(const block *k, int64_t part, int64_t r)
{
    attn_screen *s = k->s;
    const int64_t most = s->run->a.n_exact, query = k->first + r, keys = k->site->causal ? query + 1 : k->site->n_keys;
    attn_reading *heap = s->heaps + part * most, reading = {.map = k->map, .layer = k->layer, .head = k->head, .query = query};
    int64_t *count = &s->counts[part];
    const float *w = s->rows + r * k->stride;
    float own[ATTN_INSPECT_DIRECTIONS], estimate[CHUNK];
    own_parts(k, r, own);
    for (int64_t from = 0; from < keys; from += CHUNK) {
        const int64_t n = keys - from < CHUNK ? keys - from : CHUNK, number = number_of(s, k->map, k->layer, k->head, query) + from;
        const float least = *count == most && most > 0 ? size_of(&heap[0]) : 0;
        int any = 0;
        estimate_chunk(k, r, from, own, estimate);
        for (int i = 0; i < CHUNK; i++)
            any |= fabsf(estimate[i]) >= least;
        for (int64_t i = 0; any && i < n; i++) {
            if (fabsf(estimate[i]) < least)
                continue;
            reading.key = from + i;
            reading.weight = w[from + i];
            reading.estimate = estimate[i];
            offer(heap, count, most, reading);
        }
        for (int64_t i = (s->step - number % s->step) % s->step; i < n; i += s->step)
            keep(s, number + i, w[from + i], fabsf(estimate[i]), from + i == 0);
    }
}

static void screen_part(void *arg, int64_t part)
{
    const block *k = arg;
    for (int64_t r = part; r < k->n; r += ATTN_SCREEN_PARTS)
        screen_row(k, part, r);
}

/* Readings chosen beforehand get their weight and estimate. */
static void fill_chosen(const block *k)
{
    attn_inspection *out = k->s->run->out;
    for (int64_t i = 0; i < out->n_edges; i++) {
        attn_inspect_edge *e = &out->edges[i];
        float own[ATTN_INSPECT_DIRECTIONS], estimate[CHUNK];
        if (e->map != k->map || e->layer != k->layer || e->head != k->head || e->query < k->first || e->query >= k->first + k->n)
            continue;
        own_parts(k, e->query - k->first, own);
        estimate_chunk(k, e->query - k->first, e->key / CHUNK * CHUNK, own, estimate);
        attn_edge_weigh(k->s->run, e, k->s->rows[(e->query - k->first) * k->stride + e->key], estimate[e->key % CHUNK]);
    }
}

/* Weights of the block's rows, and <g, v> of each for the keys that some row of it may read. */
static attn_status look_at_block(const block *k, const attn_sdpa_args *call, const attn_linear *values)
{
    attn_screen *s = k->s;
    const attn_description *d = &s->run->model->d;
    const int64_t width = d->n_heads * d->head_dim, last = k->first + k->n;
    attn_linear read = *values;
    attn_row rows[ATTN_COLLECT_ROWS];
    attn_view view = attn_view_of(s->rows, ATTN_F32, 1, 1, k->n, k->site->n_keys);
    view.stride[2] = k->stride;
    for (int64_t r = 0; r < k->n; r++)
        rows[r] = (attn_row){0, k->head, k->first + r};
    const attn_status status = attn_sdpa_rows(s->run->s->ctx, call, rows, k->n, &view);
    if (status != ATTN_OK)
        return attn_model_fail(status, "rows of attention: %s", attn_ctx_error(s->run->s->ctx));
    if (k->site->causal)
        read.w.n_out = last;
    for (int64_t u = 0; u < k->directions; u++) {
        const attn_linear_job job = {.linear = &read, .ldx = width, .ldy = k->stride,
                                     .x = k->b->all_d_heads + (u * s->run->a.n_tokens + k->first) * width + k->head * d->head_dim,
                                     .y = s->along + u * s->most_rows * k->stride};
        attn_linear_run(&s->run->s->worker, &job, 1, k->n);
    }
    return ATTN_OK;
}

typedef struct value_rows {
    const float *values;
    int64_t dim;
} value_rows;

static void value_row(void *arg, int64_t row, float *out)
{
    const value_rows *v = arg;
    memcpy(out, v->values + row * v->dim, (size_t)v->dim * sizeof *out);
}

/* The values of a head as a matrix whose product with g is <g, v> of every key. */
static attn_status pack_values(const block *k, attn_linear *packed)
{
    const attn_inspect_run *run = k->s->run;
    const attn_linear_format f32 = {.format = ATTN_PANEL_F32};
    value_rows rows = {attn_inspect_value(run, k->site, k->site->values, k->layer, k->head, 0), run->model->d.head_dim};
    float *scratch = malloc((size_t)rows.dim * sizeof *scratch);
    const attn_status status = scratch ? attn_linear_create(packed, f32, rows.dim, k->site->n_keys) : attn_inspect_no_memory();
    if (status == ATTN_OK)
        attn_linear_pack_rows(packed, 0, attn_panel_count(&packed->w), value_row, &rows, scratch);
    free(scratch);
    return status;
}

static attn_status screen_head(block *k, const attn_sdpa_args *call)
{
    attn_screen *s = k->s;
    attn_linear values = {0};
    attn_status status = pack_values(k, &values);
    for (k->first = first_query(k->site); status == ATTN_OK && k->first < k->site->n_queries; k->first += k->n) {
        const int64_t left = k->site->n_queries - k->first;
        k->n = left < s->most_rows ? left : s->most_rows;
        status = look_at_block(k, call, &values);
        if (status != ATTN_OK)
            break;
        attn_nn_for(k->n * k->stride > 10000 ? s->run->s->worker.n_threads : 1, ATTN_SCREEN_PARTS, screen_part, k);
        fill_chosen(k);
    }
    attn_linear_destroy(&values);
    return status;
}

attn_status attn_screen_layer(attn_screen *s, int32_t m, int64_t layer, const attn_backward *b)
{
    const attn_inspect_site *site = &s->run->sites[m];
    block k = {.s = s, .site = site, .b = b, .map = m, .layer = layer, .directions = attn_backward_directions(s->run)};
    const attn_sdpa_args call = attn_backward_call(s->run, site, layer, b);
    k.stride = (site->n_keys + CHUNK - 1) / CHUNK * CHUNK;
    for (k.head = 0; k.head < s->run->model->d.n_heads; k.head++)
        ATTN_TRY(screen_head(&k, &call));
    return ATTN_OK;
}

/* ---- without a gradient ---- */

/* Those whose weights the maps keep: the others, below a thousandth or not among a row's largest, count as not screened. */
void attn_screen_directs(attn_screen *s)
{
    const attn_inspect_run *run = s->run;
    int64_t kept = 0;
    run->out->n_screened = 0;
    for (int32_t m = 0; m < run->out->n_maps; m++) {
        const attn_inspect_map *map = &run->out->maps[m];
        attn_reading r = {.map = m, .query = map->n_queries - 1};
        for (int64_t h = 0; h < map->n_layers * map->n_heads && s->pairs[m] > 0; h++) {
            r.layer = h / map->n_heads;
            r.head = h % map->n_heads;
            for (r.key = 0; r.key < map->n_keys; r.key++) {
                r.weight = attn_inspect_weight(map, &r);
                if (!(r.weight > 0))
                    continue;
                r.estimate = r.weight * map->value_directs[h * map->n_keys + r.key];
                offer(s->heaps, &s->counts[0], run->a.n_exact, r);
                if (run->out->n_screened++ % s->step == 0)
                    keep(s, s->step * kept++, r.weight, size_of(&r), r.key == 0);
            }
        }
    }
    s->room = kept;
}

/* ---- the end ---- */

void attn_screen_end(attn_screen *s)
{
    const int64_t most = s->run->a.n_exact;
    attn_inspect_correlation *c = &s->run->out->estimated;
    int64_t others = 0;
    for (int64_t part = 1; part < ATTN_SCREEN_PARTS; part++)
        for (int64_t i = 0; i < s->counts[part]; i++)
            offer(s->heaps, &s->counts[0], most, s->heaps[part * most + i]);
    qsort(s->heaps, (size_t)s->counts[0], sizeof *s->heaps, largest_first);
    c->n = s->room;
    c->all = attn_rank_correlation(s->weights, s->sizes, s->room);
    for (int64_t i = 0; i < s->room; i++)
        if (!s->first_key[i]) {
            s->weights[others] = s->weights[i];
            s->sizes[others++] = s->sizes[i];
        }
    c->n_without_first = others;
    c->without_first = attn_rank_correlation(s->weights, s->sizes, others);
}
