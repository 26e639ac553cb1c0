/* inspect.c - attn_inspect: checks, the passes that look, and what is freed in the end. */
#include "attn/inspect.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inspect/inspect_run.h"

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
    ATTN_MODEL_REQUIRE(!a->pair || d->kind == ATTN_MODEL_DECODER, "pair is given, but the model is no decoder");
    ATTN_MODEL_REQUIRE((a->flags & ~(uint32_t)(ATTN_INSPECT_NO_MEASURES | ATTN_INSPECT_HEADS)) == 0, "flags is %u",
                       a->flags);
    const int64_t n = two ? a->n_target : a->n_tokens;
    ATTN_MODEL_REQUIRE(a->at >= -n && a->at < n, "at is %lld, the text has %lld tokens", (long long)a->at, (long long)n);
    a->at += a->at < 0 ? n : 0;
    const int64_t layers = d->n_layers;
    ATTN_MODEL_REQUIRE(a->layer >= -1 && a->layer < layers && a->head >= -1 && a->head < d->n_heads,
                       "layer %lld of %lld, head %lld of %lld", (long long)a->layer, (long long)layers,
                       (long long)a->head, (long long)d->n_heads);
    for (int side = 0; a->answers && side < 2; side++)
        ATTN_MODEL_REQUIRE(a->answers[side] >= 0 && a->answers[side] < d->vocab_size,
                           "answers[%d] is %d, the vocabulary has %lld", side, a->answers[side],
                           (long long)d->vocab_size);
    ATTN_MODEL_REQUIRE(a->most_weights >= 0 && a->most_pairs >= 0 && a->n_exact >= -1 && a->n_sample >= -1 &&
                           a->window >= 0 && a->window <= layers,
                       "most_weights %lld, most_pairs %lld, n_exact %lld, n_sample %lld, window %lld of %lld layers",
                       (long long)a->most_weights, (long long)a->most_pairs, (long long)a->n_exact,
                       (long long)a->n_sample, (long long)a->window, (long long)layers);
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

static void capture(attn_inspect_run *run, const attn_layer_view *view)
{
    const attn_description *d = &run->model->d;
    const int64_t n = view->head_out.shape[2], width = d->n_heads * d->head_dim, layer = view->layer;
    const attn_cview *value = &view->attention->value, *query = &view->attention->query;
    copy_rows(&view->head_out, run->first_kept, run->heads + layer * (n - run->first_kept) * width);
    for (int64_t h = 0; h < d->n_kv_heads; h++)
        for (int64_t j = 0; j < n; j++)
            memcpy(run->values + ((layer * d->n_kv_heads + h) * n + j) * d->head_dim,
                   (const float *)value->data + h * value->stride[1] + j * value->stride[2],
                   (size_t)d->head_dim * sizeof(float));
    if (run->first_kept)
        return;
    run->attention[layer] = *view->attention;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t h = 0; h < d->n_heads; h++)
            memcpy(run->queries + (layer * n + i) * width + h * d->head_dim,
                   (const float *)query->data + h * query->stride[1] + i * query->stride[2],
                   (size_t)d->head_dim * sizeof(float));
        memcpy(run->stream + (layer * n + i) * d->d_model,
               (const float *)view->residual.data + i * view->residual.stride[2], (size_t)d->d_model * sizeof(float));
    }
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
    ATTN_TRY(attn_inspect_values(run->model, cross ? &w->cross : &w->self, view,
                                 map->value_norms + view->layer * map->n_heads * map->n_keys));
    ATTN_TRY(attn_collect_layer(c, view));
    if (run->focus.map && !cross)
        ATTN_TRY(attn_collect_layer(&run->focus, view));
    if (run->capture)
        capture(run, view);
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
    return attn_collect_start(&run->collectors[slot], map, at, run->a.most_weights, run->a.most_pairs);
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
    ATTN_TRY(attn_collect_start(&run->focus, map, run->a.at, run->a.most_weights, INT64_MAX));
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

static attn_status encoder_pass(attn_inspect_run *run)
{
    const bool two = run->out->kind == ATTN_MODEL_ENCODER_DECODER;
    attn_forward_args args;
    ATTN_ARGS_INIT(&args);
    args.tokens = run->a.tokens;
    args.n_tokens = run->a.n_tokens;
    args.hook = look;
    args.hook_user = run;
    run->encoder_pass = two;
    ATTN_TRY(start_map(run, 0, ATTN_ATTENTION_SELF, 1, args.n_tokens, args.n_tokens, two ? -1 : run->a.at));
    if (!two)
        ATTN_TRY(start_focus(run));
    attn_status status = two ? attn_model_forward_encoder(run->s, &args) : attn_model_forward(run->s, &args);
    finish_maps(run);
    run->encoder_pass = false;
    return status;
}

static attn_status make_room(attn_inspect_run *run)
{
    const attn_description *d = &run->model->d;
    const int64_t n = run->a.n_tokens, width = d->n_heads * d->head_dim;
    const bool whole = n <= ATTN_INSPECT_WHOLE || (run->a.flags & ATTN_INSPECT_HEADS) || run->a.pair;
    run->first_kept = whole ? 0 : n - 1;
    run->heads = calloc((size_t)(d->n_layers * (n - run->first_kept) * width), sizeof(float));
    run->values = calloc((size_t)(d->n_layers * d->n_kv_heads * n * d->head_dim), sizeof(float));
    run->queries = whole ? calloc((size_t)(d->n_layers * n * width), sizeof(float)) : NULL;
    run->stream = whole ? calloc((size_t)(d->n_layers * n * d->d_model), sizeof(float)) : NULL;
    run->attention = whole ? calloc((size_t)d->n_layers, sizeof *run->attention) : NULL;
    run->final_residual = calloc((size_t)(n * d->d_model), sizeof(float));
    if (!run->heads || !run->values || (whole && (!run->queries || !run->stream || !run->attention)) || !run->final_residual)
        return attn_inspect_no_memory();
    run->capture = true;
    return ATTN_OK;
}

static void likeliest(attn_inspect_run *run)
{
    attn_inspection *out = run->out;
    const int64_t vocab = run->model->d.vocab_size;
    run->log_sum = attn_inspect_log_sum(run->logits, vocab);
    for (int64_t id = 0; id < vocab; id++) {
        int at = out->n_top;
        if (at == 10 && !(run->logits[id] > out->top_logits[at - 1]))
            continue;
        out->n_top += at < 10;
        at -= at == 10;
        for (; at > 0 && run->logits[id] > out->top_logits[at - 1]; at--) {
            out->top_logits[at] = out->top_logits[at - 1];
            out->top_ids[at] = out->top_ids[at - 1];
        }
        out->top_logits[at] = run->logits[id];
        out->top_ids[at] = (int32_t)id;
    }
    for (int i = 0; i < out->n_top; i++)
        out->top_probabilities[i] = (float)exp((double)out->top_logits[i] - run->log_sum);
    for (int side = 0; side < 2; side++)
        out->answers[side] = run->a.answers ? run->a.answers[side] : out->top_ids[side < out->n_top ? side : 0];
    out->outcome = run->logits[out->answers[0]] - run->logits[out->answers[1]];
}

static attn_status decoder_pass(attn_inspect_run *run, bool measures)
{
    const bool two = run->out->kind == ATTN_MODEL_ENCODER_DECODER;
    const int64_t n = two ? run->a.n_target : run->a.n_tokens;
    attn_forward_args args;
    ATTN_ARGS_INIT(&args);
    args.tokens = two ? run->a.target : run->a.tokens;
    args.n_tokens = n;
    args.hook = look;
    args.hook_user = run;
    if (run->model->d.has_logits) {
        run->logits = malloc((size_t)run->model->d.vocab_size * sizeof *run->logits);
        if (!run->logits)
            return attn_inspect_no_memory();
        args.logits = run->logits;
    }
    ATTN_TRY(start_map(run, 0, ATTN_ATTENTION_SELF, 0, n, n, run->a.at));
    ATTN_TRY(start_focus(run));
    if (two)
        ATTN_TRY(start_map(run, 1, ATTN_ATTENTION_CROSS, 0, n, run->a.n_tokens, run->a.at));
    if (measures) {
        ATTN_TRY(make_room(run));
        args.final_residual = run->final_residual;
    }
    if (!two)
        ATTN_TRY(attn_session_truncate(run->s, -1, 0));
    attn_status status = attn_model_forward(run->s, &args);
    finish_maps(run);
    run->capture = false;
    if (status == ATTN_OK && run->logits)
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
    const bool measures = d->kind == ATTN_MODEL_DECODER && d->has_logits && !(run->a.flags & ATTN_INSPECT_NO_MEASURES);
    out->struct_size = sizeof *out;
    out->kind = d->kind;
    out->n_tokens = run->a.n_tokens;
    out->n_target = run->a.n_target;
    out->at = run->a.at;
    out->layer = run->a.layer;
    out->head = run->a.head;
    out->pair_outcome = NAN;
    run->random = run->a.seed;
    ATTN_TRY(copy_ids(run->a.tokens, run->a.n_tokens, &out->tokens));
    ATTN_TRY(copy_ids(run->a.target, run->a.n_target, &out->target));
    ATTN_TRY(copy_ids(run->a.pair, run->a.n_tokens, &out->pair));
    out->maps = calloc(3, sizeof *out->maps);
    if (!out->maps)
        return attn_inspect_no_memory();
    if (d->kind != ATTN_MODEL_DECODER)
        ATTN_TRY(encoder_pass(run));
    if (d->kind != ATTN_MODEL_ENCODER)
        ATTN_TRY(decoder_pass(run, measures));
    if (!measures) {
        if (!(run->a.flags & ATTN_INSPECT_NO_MEASURES))
            snprintf(out->note, sizeof out->note, "effects are measured for decoders with next-token logits; a %s model has "
                     "only weights and the sizes of what they move here", d->family);
        return ATTN_OK;
    }
    out->measured = 1;
    ATTN_TRY(attn_inspect_outcome_direction(run));
    ATTN_TRY(attn_inspect_directs(run));
    ATTN_TRY(attn_inspect_gradient(run));
    return attn_inspect_cuts(run);
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
    free(run.heads);
    free(run.values);
    free(run.queries);
    free(run.stream);
    free(run.attention);
    free(run.final_residual);
    free(run.logits);
    free(run.to_outcome);
    free(run.head_directs);
    free(run.estimates);
    free(run.pair_heads);
    free(run.pair_values);
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
