/* inspect_heads.c - whole heads: their output replaced at every position by its mean, by other positions', by zero, or by
 * a paired prompt's, in batches of one head each. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "inspect/inspect_run.h"

#define BATCH_TOKENS 512 /* of one batch of passes */

enum kind { KIND_MEAN, KIND_RESAMPLE, KIND_ZERO, KIND_PATCH, KIND_PATH, N_KINDS };

typedef struct head_cut {
    attn_inspect_run *run;
    attn_inspect_pass pass;
    enum kind kind;
    int64_t first, count;    /* heads first .. first + count - 1 of out->heads, one in each sequence of the batch */
    const int64_t *order[3]; /* for each map: [n_queries] a permutation of positions */
    const float *mean[3];    /* [n_layers][n_heads * head_dim] */
} head_cut;

static int64_t width_of(const attn_inspect_run *run)
{
    return run->model->d.n_heads * run->model->d.head_dim;
}

/* The kept rows of a layer: [n_queries][n_heads * head_dim]. */
static const float *kept(const attn_inspect_run *run, const attn_inspect_site *site, const float *heads, int64_t layer)
{
    return heads + layer * site->n_queries * width_of(run);
}

/* The new output of the head at position i. */
static const float *replacement(const head_cut *c, const attn_inspect_head *head, int64_t i)
{
    const attn_inspect_run *run = c->run;
    const attn_inspect_site *site = &run->sites[head->map];
    const int64_t width = width_of(run), at = head->head * run->model->d.head_dim;
    switch (c->kind) {
    case KIND_MEAN:
        return c->mean[head->map] + head->layer * width + at;
    case KIND_RESAMPLE:
        return kept(run, site, site->heads, head->layer) + c->order[head->map][i] * width + at;
    case KIND_PATCH:
    case KIND_PATH:
        return kept(run, site, site->pair_heads, head->layer) + i * width + at;
    default:
        return NULL;
    }
}

/* When attention of a map's layer runs in a pass. */
static int64_t moment(const attn_inspect_run *run, int32_t map, int64_t layer)
{
    return run->out->n_maps == 1 || map == 0 ? layer : run->out->maps[0].n_layers + 2 * layer + (map == 2);
}

static attn_status replace_head(void *user, const attn_layer_view *view)
{
    const head_cut *c = user;
    const attn_inspect_run *run = c->run;
    const int64_t dim = run->model->d.head_dim, width = width_of(run);
    if (view->entry >= c->count)
        return ATTN_OK;
    const attn_inspect_head *head = &run->out->heads[c->first + view->entry];
    const int32_t map = attn_inspect_map_of(run, c->pass.in_encoder, view);
    const bool here = map == head->map && view->layer == head->layer;
    const bool later = c->kind == KIND_PATH && moment(run, map, view->layer) > moment(run, head->map, head->layer);
    for (int64_t h = 0; (here || later) && h < run->model->d.n_heads; h++)
        for (int64_t i = 0; i < view->head_out.shape[2] && (later || h == head->head); i++) {
            float *y = (float *)view->head_out.data + h * view->head_out.stride[1] + i * view->head_out.stride[2];
            const attn_inspect_site *site = &run->sites[map];
            const float *own = kept(run, site, site->heads, view->layer) + i * width + h * dim;
            const float *new = later ? own : replacement(c, head, i); /* PATH holds all later heads at what they were */
            if (new)
                memcpy(y, new, (size_t)dim * sizeof *y);
            else
                memset(y, 0, (size_t)dim * sizeof *y);
        }
    return ATTN_OK;
}

static attn_inspect_effect *effect_place(attn_inspect_head *head, enum kind kind)
{
    attn_inspect_effect *places[] = {&head->mean, &head->resample, &head->zero, &head->patch, &head->path};
    return places[kind];
}

static attn_status cut_all(head_cut *c, attn_session *session, int64_t batch, float *results)
{
    attn_inspect_run *run = c->run;
    const int64_t heads = run->out->n_cut_heads;
    for (int kind = 0; kind < N_KINDS; kind++) {
        c->kind = (enum kind)kind;
        if (kind >= KIND_PATCH && !run->a.pair) {
            for (int64_t h = 0; h < heads; h++)
                *effect_place(&run->out->heads[h], c->kind) = (attn_inspect_effect){NAN, NAN};
            continue;
        }
        for (c->first = 0; c->first < heads; c->first += batch) {
            c->count = heads - c->first < batch ? heads - c->first : batch;
            ATTN_TRY(attn_inspect_whole(run, session, &c->pass, results));
            for (int64_t b = 0; b < c->count; b++)
                *effect_place(&run->out->heads[c->first + b], c->kind) =
                    attn_inspect_compare(run, run->results, run->log_sum, results + b * run->n_results);
            ATTN_TRY(attn_inspect_progress(run));
        }
    }
    return ATTN_OK;
}

static void means(const attn_inspect_run *run, const attn_inspect_site *site, int64_t layers, float *mean)
{
    const int64_t width = width_of(run), n = site->n_queries;
    for (int64_t l = 0; l < layers; l++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t x = 0; x < width; x++)
                mean[l * width + x] += kept(run, site, site->heads, l)[i * width + x] / (float)n;
}

/* Sattolo's permutation: no position keeps its own output. */
static void shuffle(attn_inspect_run *run, int64_t n, int64_t *order)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = (int64_t)(attn_inspect_random(&run->random) % (uint64_t)i), other = order[i];
        order[i] = order[j];
        order[j] = other;
    }
}

static attn_status cut_with(attn_inspect_run *run, attn_session *session, int64_t batch)
{
    head_cut c = {.run = run, .pass = {.hook = replace_head}};
    float *mean[3] = {0}, *results = malloc((size_t)(batch * run->n_results) * sizeof *results);
    int64_t *order[3] = {0};
    bool enough = results != NULL;
    c.pass.hook_user = &c;
    for (int32_t m = 0; m < run->out->n_maps; m++) {
        const int64_t layers = run->out->maps[m].n_layers;
        mean[m] = calloc((size_t)(layers * width_of(run)), sizeof(float));
        order[m] = malloc((size_t)run->sites[m].n_queries * sizeof(int64_t));
        enough = enough && mean[m] && order[m];
        if (!enough)
            break;
        means(run, &run->sites[m], layers, mean[m]);
        shuffle(run, run->sites[m].n_queries, order[m]);
        c.mean[m] = mean[m];
        c.order[m] = order[m];
    }
    attn_status status = enough ? cut_all(&c, session, batch, results) : attn_inspect_no_memory();
    for (int m = 0; m < 3; m++) {
        free(mean[m]);
        free(order[m]);
    }
    free(results);
    return status;
}

/* ---- the paired prompt ---- */

typedef struct pair_pass {
    attn_inspect_run *run;
    attn_inspect_pass pass;
} pair_pass;

static attn_status keep_pair(void *user, const attn_layer_view *view)
{
    const pair_pass *p = user;
    const attn_description *d = &p->run->model->d;
    const attn_inspect_site *site = &p->run->sites[attn_inspect_map_of(p->run, p->pass.in_encoder, view)];
    const int64_t n = site->n_queries, dim = d->head_dim, width = d->n_heads * dim;
    const attn_cview *value = &view->attention->value;
    for (int64_t i = 0; site->pair_heads && i < n; i++)
        for (int64_t h = 0; h < d->n_heads; h++)
            memcpy(site->pair_heads + (view->layer * n + i) * width + h * dim,
                   (const float *)view->head_out.data + h * view->head_out.stride[1] + i * view->head_out.stride[2],
                   (size_t)dim * sizeof(float));
    for (int64_t h = 0; h < d->n_kv_heads; h++)
        for (int64_t j = 0; j < site->n_keys; j++)
            memcpy(site->pair_values + ((view->layer * d->n_kv_heads + h) * site->n_keys + j) * dim,
                   (const float *)value->data + h * value->stride[1] + j * value->stride[2],
                   (size_t)dim * sizeof(float));
    return ATTN_OK;
}

static attn_status run_pair(attn_inspect_run *run, attn_session *session)
{
    const attn_description *d = &run->model->d;
    pair_pass p = {.run = run, .pass = {.tokens = run->a.pair, .hook = keep_pair}};
    float *results = malloc((size_t)run->n_results * sizeof *results);
    bool enough = results != NULL;
    p.pass.hook_user = &p;
    for (int32_t m = 0; m < run->out->n_maps; m++) {
        attn_inspect_site *site = &run->sites[m];
        const int64_t layers = run->out->maps[m].n_layers;
        const bool heads = run->a.flags & ATTN_INSPECT_HEADS;
        site->pair_heads = heads ? malloc((size_t)(layers * site->n_queries * width_of(run)) * sizeof(float)) : NULL;
        site->pair_values = malloc((size_t)(layers * site->n_keys * d->n_kv_heads * d->head_dim) * sizeof(float));
        enough = enough && (!heads || site->pair_heads) && site->pair_values;
    }
    attn_status status = enough ? attn_inspect_whole(run, session, &p.pass, results) : attn_inspect_no_memory();
    if (status == ATTN_OK && run->out->outcome_kind == ATTN_OUTCOME_EMBEDDING)
        run->out->pair_outcome = attn_inspect_compare(run, run->results, 0, results).difference;
    else if (status == ATTN_OK)
        run->out->pair_outcome = results[run->out->answers[0]] - results[run->out->answers[1]];
    free(results);
    return status;
}

static attn_status session_of(const attn_inspect_run *run, int64_t batch, attn_session **session)
{
    attn_session_options options;
    ATTN_ARGS_INIT(&options);
    options.batch = batch;
    options.capacity = run->model->d.kind == ATTN_MODEL_ENCODER ? 0 : attn_inspect_length(run);
    options.n_threads = run->s->n_threads;
    return attn_session_create(run->model, &options, session);
}

/* One entry for each head of each map. */
static attn_status list_heads(attn_inspect_run *run)
{
    attn_inspection *out = run->out;
    for (int32_t m = 0; m < out->n_maps; m++)
        out->n_cut_heads += out->maps[m].n_layers * out->maps[m].n_heads;
    out->heads = calloc((size_t)out->n_cut_heads, sizeof *out->heads);
    if (!out->heads)
        return attn_inspect_no_memory();
    attn_inspect_head *to = out->heads;
    for (int32_t m = 0; m < out->n_maps; m++)
        for (int64_t h = 0; h < out->maps[m].n_layers * out->maps[m].n_heads; h++, to++) {
            to->map = m;
            to->layer = h / out->maps[m].n_heads;
            to->head = h % out->maps[m].n_heads;
            to->direct = run->sites[m].head_directs ? run->sites[m].head_directs[h] : NAN;
        }
    return ATTN_OK;
}

attn_status attn_inspect_cut_heads(attn_inspect_run *run)
{
    const int64_t tokens = run->a.n_tokens + run->a.n_target, fit = BATCH_TOKENS / tokens;
    attn_session *session;
    if (run->a.pair) {
        ATTN_TRY(session_of(run, 1, &session));
        attn_status status = run_pair(run, session);
        attn_session_destroy(session);
        if (status != ATTN_OK)
            return status;
    }
    if (!(run->a.flags & ATTN_INSPECT_HEADS))
        return ATTN_OK;
    const int64_t batch = fit < 1 ? 1 : fit > 32 ? 32 : fit;
    ATTN_TRY(list_heads(run));
    run->all_passes += (run->a.pair ? 5 : 3) * ((run->out->n_cut_heads + batch - 1) / batch);
    ATTN_TRY(session_of(run, batch, &session));
    attn_status status = cut_with(run, session, batch);
    attn_session_destroy(session);
    return status;
}
