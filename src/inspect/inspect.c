/* inspect.c - attn_inspect: checks, the passes that look, and what is freed in the end. */
#include "attn/inspect.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inspect/inspect_backward.h"

#define MOST_WEIGHTS 2000000
#define MOST_PAIRS   600000000
#define N_EXACT      24
#define N_SAMPLE     48

uint64_t attn_inspect_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

attn_status attn_inspect_progress(attn_inspect_run *run)
{
    run->passes++;
    if (run->a.progress && run->a.progress(run->a.progress_user, run->passes, run->all_passes))
        return attn_model_fail(ATTN_ERR_CANCELLED, "the progress callback asked to stop");
    return ATTN_OK;
}

/* ---- checks ---- */

static attn_status check(attn_session *session, const attn_inspect_args *args, attn_inspect_run *run)
{
    memset(run, 0, sizeof *run);
    ATTN_MODEL_REQUIRE(session, "session is NULL");
    ATTN_TRY(attn_model_args(&run->a, sizeof run->a, args, "args"));
    attn_inspect_args *a = &run->a;
    run->s = session;
    run->model = session->model;
    const attn_description *d = &run->model->d;
    const bool two = d->kind == ATTN_MODEL_ENCODER_DECODER;
    ATTN_MODEL_REQUIRE(session->batch == 1, "the session's batch is %lld, must be 1", (long long)session->batch);
    ATTN_MODEL_REQUIRE(a->tokens && a->n_tokens >= 1, "tokens is NULL or n_tokens is %lld", (long long)a->n_tokens);
    ATTN_MODEL_REQUIRE(a->n_tokens <= INT32_MAX, "n_tokens is %lld", (long long)a->n_tokens);
    ATTN_MODEL_REQUIRE(two == (a->target != NULL) && (!two || (a->n_target >= 1 && a->n_target <= INT32_MAX)),
                       "target is %s, n_target %lld: the %s family %s", a->target ? "given" : "NULL",
                       (long long)a->n_target, d->family, two ? "needs it" : "has no encoder beside its decoder");
    if (run->model->short_acts)
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "the model was loaded for activations of 8 bits or of bf16");
    ATTN_MODEL_REQUIRE((a->flags & ~(uint32_t)(ATTN_INSPECT_NO_MEASURES | ATTN_INSPECT_HEADS)) == 0, "flags is %u",
                       a->flags);
    const int64_t n = two ? a->n_target : a->n_tokens;
    ATTN_MODEL_REQUIRE(a->at >= -n && a->at < n, "at is %lld, the text has %lld tokens", (long long)a->at, (long long)n);
    a->at += a->at < 0 ? n : 0;
    const int64_t layers = d->n_layers;
    ATTN_MODEL_REQUIRE(a->layer >= -1 && a->layer < layers, "layer is %lld, must be 0 to %lld, or -1 for none",
                       (long long)a->layer, (long long)layers - 1);
    ATTN_MODEL_REQUIRE(a->head >= -1 && a->head < d->n_heads, "head is %lld, must be 0 to %lld, or -1 for none",
                       (long long)a->head, (long long)d->n_heads - 1);
    ATTN_MODEL_REQUIRE(a->head < 0 || a->layer >= 0, "head is %lld, but layer is -1: name both", (long long)a->head);
    for (int side = 0; a->answers && side < 2; side++)
        ATTN_MODEL_REQUIRE(a->answers[side] >= 0 && a->answers[side] < d->vocab_size,
                           "answers[%d] is %d, the vocabulary has %lld", side, a->answers[side],
                           (long long)d->vocab_size);
    const struct {
        const char *name;
        int64_t value, least;
    } counts[] = {{"most_weights", a->most_weights, 0}, {"most_pairs", a->most_pairs, 0}, {"n_exact", a->n_exact, -1},
                  {"n_sample", a->n_sample, -1},        {"window", a->window, 0}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        ATTN_MODEL_REQUIRE(counts[i].value >= counts[i].least, "%s is %lld, must be at least %lld", counts[i].name,
                           (long long)counts[i].value, (long long)counts[i].least);
    ATTN_MODEL_REQUIRE(a->window <= layers, "window is %lld, the model has %lld layers", (long long)a->window,
                       (long long)layers);
    a->most_weights = a->most_weights ? a->most_weights : MOST_WEIGHTS;
    a->most_pairs = a->most_pairs ? a->most_pairs : MOST_PAIRS;
    a->n_exact = a->n_exact ? (a->n_exact < 0 ? 0 : a->n_exact) : N_EXACT;
    a->n_sample = a->n_sample ? (a->n_sample < 0 ? 0 : a->n_sample) : N_SAMPLE;
    a->window = a->window ? a->window : (layers + 4) / 5;
    return ATTN_OK;
}

/* ---- the hook ---- */

/* Rows [n][heads * dim] of a view [1, heads, n, dim] from row `first` on. */
static void copy_rows(const attn_view *view, int64_t first, float *to)
{
    const int64_t heads = view->shape[1], n = view->shape[2], dim = view->shape[3];
    for (int64_t i = first; i < n; i++)
        for (int64_t h = 0; h < heads; h++)
            memcpy(to + ((i - first) * heads + h) * dim,
                   (const float *)view->data + h * view->stride[1] + i * view->stride[2], (size_t)dim * sizeof *to);
}

/* [1, heads, rows, dim] of a view as rows [rows][heads * dim]. */
static void copy_view_rows(const attn_cview *view, int64_t rows, float *to)
{
    const int64_t heads = view->shape[1], dim = view->shape[3];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t h = 0; h < heads; h++)
            memcpy(to + (i * heads + h) * dim, (const float *)view->data + h * view->stride[1] + i * view->stride[2],
                   (size_t)dim * sizeof *to);
}

static void capture(attn_inspect_run *run, attn_inspect_site *site, const attn_layer_view *view)
{
    const attn_description *d = &run->model->d;
    const int64_t n = site->n_queries, width = d->n_heads * d->head_dim, kv_width = d->n_kv_heads * d->head_dim;
    const int64_t layer = view->layer;
    const attn_sdpa_args *args = view->attention;
    const attn_cview *value = &args->value;
    copy_rows(&view->head_out, site->first_kept, site->heads + layer * (n - site->first_kept) * width);
    for (int64_t h = 0; h < d->n_kv_heads; h++)
        for (int64_t j = 0; j < site->n_keys; j++)
            memcpy(site->values + ((layer * d->n_kv_heads + h) * site->n_keys + j) * d->head_dim,
                   (const float *)value->data + h * value->stride[1] + j * value->stride[2],
                   (size_t)d->head_dim * sizeof(float));
    if (!run->gradient)
        return;
    site->attention[layer] = *args;
    copy_view_rows(&args->key, site->n_keys, site->keys + layer * site->n_keys * kv_width);
    copy_view_rows(&view->residual, n, site->stream + layer * n * d->d_model);
}

static attn_status look(void *user, const attn_layer_view *view)
{
    attn_inspect_run *run = user;
    const bool cross = view->kind == ATTN_ATTENTION_CROSS;
    const attn_stack_weights *stack = run->encoder_pass ? &run->model->w.encoder : &run->model->w.stack;
    const attn_layer_weights *w = &stack->layers[view->layer];
    attn_collector *c = &run->collectors[cross];
    attn_inspect_map *map = c->map;
    if (!map)
        return ATTN_OK;
    if (view->attention->value.dtype != ATTN_F32)
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "the session's kv_dtype must be f32 for an inspection");
    ATTN_TRY(attn_inspect_values(run, cross ? &w->cross : &w->self, view,
                                 map->value_norms + view->layer * map->n_heads * map->n_keys));
    ATTN_TRY(attn_collect_layer(c, view));
    if (run->focus.map && !cross)
        ATTN_TRY(attn_collect_layer(&run->focus, view));
    if (run->capture)
        capture(run, &run->sites[attn_inspect_map_of(run, run->encoder_pass, view)], view);
    return ATTN_OK;
}

/* ---- maps ---- */

static attn_status start_map(attn_inspect_run *run, int slot, int32_t attention, int32_t encoder, int64_t n_queries,
                             int64_t n_keys, int64_t at)
{
    attn_inspect_map *map = &run->out->maps[run->out->n_maps++];
    map->attention = attention;
    map->encoder = encoder;
    map->n_layers = encoder && run->out->kind == ATTN_MODEL_ENCODER_DECODER ? run->model->w.encoder.n_layers
                                                                            : run->model->d.n_layers;
    map->n_heads = run->model->d.n_heads;
    map->n_queries = n_queries;
    map->n_keys = n_keys;
    map->value_norms = calloc((size_t)(map->n_layers * map->n_heads * n_keys), sizeof(float));
    if (!map->value_norms)
        return attn_inspect_no_memory();
    return attn_collect_start(&run->collectors[slot], map, at, run->a.most_weights, run->a.most_pairs,
                              run->s->worker.n_threads);
}

/* A map of one head with every row, where the text is too long for all rows of all heads. */
static attn_status start_focus(attn_inspect_run *run)
{
    const attn_inspect_map *base = run->collectors[0].map;
    if (run->a.layer < 0 || run->a.head < 0 || (base->n_rows == base->n_queries && base->most_kept == base->n_keys))
        return ATTN_OK;
    attn_inspect_map *map = run->out->focus = calloc(1, sizeof *map);
    if (!map)
        return attn_inspect_no_memory();
    map->attention = base->attention;
    map->encoder = base->encoder;
    map->n_layers = map->n_heads = 1;
    map->n_queries = base->n_queries;
    map->n_keys = base->n_keys;
    ATTN_TRY(attn_collect_start(&run->focus, map, run->a.at, run->a.most_weights, INT64_MAX, run->s->worker.n_threads));
    run->focus.only_layer = run->a.layer;
    run->focus.only_head = run->a.head;
    return ATTN_OK;
}

static void finish_maps(attn_inspect_run *run)
{
    attn_collect_finish(&run->collectors[0]);
    attn_collect_finish(&run->collectors[1]);
    attn_collect_finish(&run->focus);
    memset(run->collectors, 0, sizeof run->collectors);
    memset(&run->focus, 0, sizeof run->focus);
}

/* ---- the passes ---- */

/* Whether the gradient stays in its bounds. It keeps keys, values and streams of all layers; all heads' outputs may be kept, too. */
static bool gradient_fits(const attn_inspect_run *run)
{
    const attn_description *d = &run->model->d;
    const bool two = d->kind == ATTN_MODEL_ENCODER_DECODER;
    const double width = (double)(d->n_heads * d->head_dim), kv = 2.0 * (double)(d->n_kv_heads * d->head_dim);
    const double heads = run->a.flags & ATTN_INSPECT_HEADS ? width : 0, own = (double)d->d_model + heads;
    const double n = (double)run->a.n_tokens, target = (double)run->a.n_target, layers = (double)d->n_layers;
    const double floats = two ? (double)run->model->w.encoder.n_layers * n * (own + kv) + layers * (2 * target * own + (target + n) * kv)
                              : layers * n * (own + kv);
    const double decoder = d->kind == ATTN_MODEL_ENCODER ? n * n : two ? target * (target / 2 + n) : n * n / 2;
    const double readings = (double)d->n_heads * (layers * decoder + (two ? (double)run->model->w.encoder.n_layers * n * n : 0));
    return 4 * floats + (double)attn_backward_bytes(run) <= ATTN_INSPECT_MOST_BYTES && readings <= ATTN_INSPECT_MOST_READINGS;
}

/* Room for what measures need of the map that was started last. */
static attn_status start_site(attn_inspect_run *run, bool cross)
{
    const attn_description *d = &run->model->d;
    const int32_t id = run->out->n_maps - 1;
    const attn_inspect_map *map = &run->out->maps[id];
    attn_inspect_site *site = &run->sites[id];
    const int64_t nq = map->n_queries, nk = map->n_keys, layers = map->n_layers, width = d->n_heads * d->head_dim;
    site->stack = run->encoder_pass ? &run->model->w.encoder : &run->model->w.stack;
    site->cross = cross;
    site->causal = !map->encoder && !cross;
    site->n_queries = nq;
    site->n_keys = nk;
    site->first_kept = run->a.flags & ATTN_INSPECT_HEADS ? 0 : nq - 1;
    site->heads = calloc((size_t)(layers * (nq - site->first_kept) * width), sizeof(float));
    site->values = calloc((size_t)(layers * d->n_kv_heads * nk * d->head_dim), sizeof(float));
    if (!site->heads || !site->values)
        return attn_inspect_no_memory();
    if (!run->gradient)
        return ATTN_OK;
    site->keys = calloc((size_t)(layers * nk * d->n_kv_heads * d->head_dim), sizeof(float));
    site->stream = calloc((size_t)(layers * nq * d->d_model), sizeof(float));
    site->attention = calloc((size_t)layers, sizeof *site->attention);
    return site->keys && site->stream && site->attention ? ATTN_OK : attn_inspect_no_memory();
}

static attn_status residual_room(const attn_inspect_run *run, int64_t n, float **residual)
{
    *residual = calloc((size_t)(n * run->model->d.d_model), sizeof(float));
    return *residual ? ATTN_OK : attn_inspect_no_memory();
}

/* The likeliest tokens at the outcome, its answers and value. */
static void likeliest(attn_inspect_run *run)
{
    attn_inspection *out = run->out;
    const int64_t vocab = run->model->d.vocab_size;
    const float *logits = run->results;
    run->log_sum = attn_inspect_log_sum(logits, vocab);
    for (int64_t id = 0; id < vocab; id++) {
        int at = out->n_top;
        if (at == 10 && !(logits[id] > out->top_logits[at - 1]))
            continue;
        out->n_top += at < 10;
        at -= at == 10;
        for (; at > 0 && logits[id] > out->top_logits[at - 1]; at--) {
            out->top_logits[at] = out->top_logits[at - 1];
            out->top_ids[at] = out->top_ids[at - 1];
        }
        out->top_logits[at] = logits[id];
        out->top_ids[at] = (int32_t)id;
    }
    for (int i = 0; i < out->n_top; i++)
        out->top_probabilities[i] = (float)exp((double)out->top_logits[i] - run->log_sum);
    for (int side = 0; side < 2; side++)
        out->answers[side] = run->a.answers ? run->a.answers[side] : out->top_ids[side < out->n_top ? side : 0];
    out->outcome = logits[out->answers[0]] - logits[out->answers[1]];
}

static attn_status result_room(attn_inspect_run *run)
{
    const attn_description *d = &run->model->d;
    attn_inspection *out = run->out;
    out->outcome_kind = d->kind != ATTN_MODEL_ENCODER ? ATTN_OUTCOME_NEXT
                        : d->has_logits               ? ATTN_OUTCOME_MASKED
                                                      : ATTN_OUTCOME_EMBEDDING;
    out->outcome_position = d->kind == ATTN_MODEL_ENCODER ? run->a.at : attn_inspect_length(run) - 1;
    out->outcome_map = d->kind == ATTN_MODEL_ENCODER_DECODER ? 1 : 0;
    run->n_results = out->outcome_kind == ATTN_OUTCOME_EMBEDDING ? d->d_model : d->vocab_size;
    run->results = malloc((size_t)run->n_results * sizeof *run->results);
    return run->results ? ATTN_OK : attn_inspect_no_memory();
}

/* An encoder alone: its hidden states make the outcome. */
static attn_status encoder_results(attn_inspect_run *run, attn_forward_args *args)
{
    const int64_t dm = run->model->d.d_model;
    float *hidden = malloc((size_t)(run->a.n_tokens * dm) * sizeof *hidden);
    args->last_hidden = hidden;
    attn_status status = hidden ? attn_model_forward(run->s, args) : attn_inspect_no_memory();
    if (status == ATTN_OK && run->out->outcome_kind == ATTN_OUTCOME_MASKED)
        status = attn_pass_logits(run->s, hidden + run->out->outcome_position * dm, 1, run->results);
    else if (status == ATTN_OK)
        attn_inspect_embedding(run, hidden, run->results);
    free(hidden);
    return status;
}

static attn_status encoder_pass(attn_inspect_run *run, bool measures)
{
    const bool two = run->out->kind == ATTN_MODEL_ENCODER_DECODER;
    attn_forward_args args;
    ATTN_ARGS_INIT(&args);
    args.tokens = run->a.tokens;
    args.n_tokens = run->a.n_tokens;
    args.hook = look;
    args.hook_user = run;
    run->encoder_pass = two;
    run->capture = measures;
    ATTN_TRY(start_map(run, 0, ATTN_ATTENTION_SELF, 1, args.n_tokens, args.n_tokens, two ? -1 : run->a.at));
    if (!two)
        ATTN_TRY(start_focus(run));
    if (measures) {
        ATTN_TRY(start_site(run, false));
        ATTN_TRY(residual_room(run, args.n_tokens, two ? &run->encoder_residual : &run->final_residual));
        args.final_residual = two ? run->encoder_residual : run->final_residual;
    }
    attn_status status = two ? attn_model_forward_encoder(run->s, &args) : encoder_results(run, &args);
    finish_maps(run);
    run->encoder_pass = run->capture = false;
    if (status == ATTN_OK && run->out->outcome_kind == ATTN_OUTCOME_MASKED)
        likeliest(run);
    return status;
}

static attn_status decoder_pass(attn_inspect_run *run, bool measures)
{
    const bool two = run->out->kind == ATTN_MODEL_ENCODER_DECODER;
    const int64_t n = attn_inspect_length(run);
    attn_forward_args args;
    ATTN_ARGS_INIT(&args);
    args.tokens = two ? run->a.target : run->a.tokens;
    args.n_tokens = n;
    args.hook = look;
    args.hook_user = run;
    args.logits = run->model->d.has_logits ? run->results : NULL;
    run->capture = measures;
    ATTN_TRY(start_map(run, 0, ATTN_ATTENTION_SELF, 0, n, n, run->a.at));
    ATTN_TRY(start_focus(run));
    if (measures)
        ATTN_TRY(start_site(run, false));
    if (two) {
        ATTN_TRY(start_map(run, 1, ATTN_ATTENTION_CROSS, 0, n, run->a.n_tokens, run->a.at));
        if (measures)
            ATTN_TRY(start_site(run, true));
    }
    if (measures) {
        ATTN_TRY(residual_room(run, n, &run->final_residual));
        args.final_residual = run->final_residual;
    }
    ATTN_TRY(attn_session_truncate(run->s, -1, 0));
    attn_status status = attn_model_forward(run->s, &args);
    finish_maps(run);
    run->capture = false;
    if (status == ATTN_OK && run->model->d.has_logits)
        likeliest(run);
    return status;
}

static attn_status copy_ids(const int32_t *ids, int64_t n, int32_t **copy)
{
    if (!ids)
        return ATTN_OK;
    *copy = malloc((size_t)n * sizeof **copy);
    if (!*copy)
        return attn_inspect_no_memory();
    memcpy(*copy, ids, (size_t)n * sizeof **copy);
    return ATTN_OK;
}

static attn_status run_all(attn_inspect_run *run)
{
    attn_inspection *out = run->out;
    const attn_description *d = &run->model->d;
    const bool measures = (d->kind == ATTN_MODEL_ENCODER || d->has_logits) && !(run->a.flags & ATTN_INSPECT_NO_MEASURES);
    out->struct_size = sizeof *out;
    out->kind = d->kind;
    out->n_tokens = run->a.n_tokens;
    out->n_target = run->a.n_target;
    out->at = run->a.at;
    out->layer = run->a.layer;
    out->head = run->a.head;
    out->pair_outcome = NAN;
    out->seed = run->a.seed;
    out->n_exact = run->a.n_exact;
    out->n_sample = run->a.n_sample;
    run->random = run->a.seed;
    ATTN_TRY(copy_ids(run->a.tokens, run->a.n_tokens, &out->tokens));
    ATTN_TRY(copy_ids(run->a.target, run->a.n_target, &out->target));
    ATTN_TRY(copy_ids(run->a.pair, run->a.n_tokens, &out->pair));
    out->maps = calloc(3, sizeof *out->maps);
    if (!out->maps)
        return attn_inspect_no_memory();
    ATTN_TRY(result_room(run));
    const int32_t pooling = run->model->card.pooling;
    if (measures && out->outcome_kind == ATTN_OUTCOME_EMBEDDING && (pooling == ATTN_POOL_MAX || pooling == ATTN_POOL_WEIGHTED))
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "measures are of embeddings by mean, first or last token, not by %s",
                               pooling == ATTN_POOL_MAX ? "the largest" : "growing weights");
    run->gradient = measures && gradient_fits(run);
    if (d->kind != ATTN_MODEL_DECODER)
        ATTN_TRY(encoder_pass(run, measures));
    if (d->kind != ATTN_MODEL_ENCODER)
        ATTN_TRY(decoder_pass(run, measures));
    if (!measures) {
        if (!(run->a.flags & ATTN_INSPECT_NO_MEASURES))
            snprintf(out->note, sizeof out->note, "this %s model has no logits: there is no outcome that a cut could move",
                     d->family);
        return ATTN_OK;
    }
    out->measured = 1;
    ATTN_TRY(attn_inspect_outcome_direction(run));
    ATTN_TRY(attn_inspect_directs(run));
    ATTN_TRY(attn_inspect_cut_heads(run));
    ATTN_TRY(attn_inspect_choose(run));
    return attn_inspect_cuts(run);
}

static void site_free(attn_inspect_site *site)
{
    float *arrays[] = {site->heads,        site->keys,       site->values,     site->stream,
                       site->head_directs, site->pair_heads, site->pair_values};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]);
    free(site->attention);
}

attn_status attn_inspect(attn_session *session, const attn_inspect_args *args, attn_inspection **inspection)
{
    attn_inspect_run run;
    ATTN_MODEL_REQUIRE(inspection, "inspection is NULL");
    *inspection = NULL;
    ATTN_TRY(check(session, args, &run));
    run.out = calloc(1, sizeof *run.out);
    attn_status status = run.out ? run_all(&run) : attn_inspect_no_memory();
    finish_maps(&run);
    for (int m = 0; m < 3; m++)
        site_free(&run.sites[m]);
    free(run.final_residual);
    free(run.encoder_residual);
    free(run.results);
    free(run.to_outcome);
    if (status != ATTN_OK)
        attn_inspection_destroy(run.out);
    else
        *inspection = run.out;
    return status;
}

void attn_inspection_destroy(attn_inspection *inspection)
{
    if (!inspection)
        return;
    for (int m = 0; inspection->maps && m < 3; m++)
        attn_inspect_map_free(&inspection->maps[m]);
    if (inspection->focus)
        attn_inspect_map_free(inspection->focus);
    free(inspection->focus);
    free(inspection->maps);
    free(inspection->tokens);
    free(inspection->target);
    free(inspection->pair);
    free(inspection->edges);
    free(inspection->windows);
    free(inspection->heads);
    free(inspection);
}
