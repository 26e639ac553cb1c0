/* session.c - sessions: the cache of keys and values, scratch memory, threads. */
#include <stdlib.h>
#include <string.h>
#include "core/context.h"
#include "core/cpu.h"
#include "models/model_internal.h"
#include "models/relative.h"
#include "ops/nn/nn_parallel.h"

/* Tokens that a growing cache starts with. */
#define FIRST_CAPACITY 256

static attn_status create_context(attn_session *s, const attn_session_options *o)
{
    attn_ctx_options options;
    ATTN_ARGS_INIT(&options);
    options.n_threads = o->n_threads ? o->n_threads : s->model->n_threads;
    options.max_isa = o->max_isa;
    options.parallel_for = attn_nn_parallel_for;
    options.parallel_for_user = &s->n_threads;
    attn_status status = attn_ctx_create(&options, &s->ctx);
    if (status != ATTN_OK)
        return attn_model_fail(status, "%s", attn_ctx_error(NULL));
    s->n_threads = attn_ctx_threads(s->ctx);
    s->worker.n_threads = s->n_threads;
    s->worker.kernels = attn_nn_kernels_for(attn_isa_from_name(attn_ctx_isa(s->ctx)));
    return ATTN_OK;
}

static attn_status create(attn_session *s, const attn_session_options *o)
{
    const attn_description *d = &s->model->d;
    s->batch = o->batch ? o->batch : 1;
    s->max_capacity = o->capacity ? o->capacity : d->context_length;
    s->kv_dtype = o->kv_dtype;
    ATTN_TRY(create_context(s, o));
    s->lengths = calloc((size_t)s->batch, sizeof *s->lengths);
    s->cross_lengths = calloc((size_t)s->batch, sizeof *s->cross_lengths);
    s->cache_key = calloc((size_t)d->n_layers, sizeof *s->cache_key);
    s->cache_value = calloc((size_t)d->n_layers, sizeof *s->cache_value);
    s->cross_key = calloc((size_t)d->n_layers, sizeof *s->cross_key);
    s->cross_value = calloc((size_t)d->n_layers, sizeof *s->cross_value);
    if (!s->lengths || !s->cross_lengths || !s->cache_key || !s->cache_value || !s->cross_key || !s->cross_value)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    if (d->position == ATTN_POSITION_RELATIVE) {
        s->relative = attn_relative_table(d, &s->model->w.stack, d->kind != ATTN_MODEL_ENCODER);
        s->relative_encoder =
            d->kind == ATTN_MODEL_ENCODER_DECODER ? attn_relative_table(d, &s->model->w.encoder, false) : NULL;
        if (!s->relative || (d->kind == ATTN_MODEL_ENCODER_DECODER && !s->relative_encoder))
            return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    }
    /* a capacity that was asked for is there from the start; else the cache grows */
    return d->kind == ATTN_MODEL_ENCODER || !o->capacity ? ATTN_OK : attn_session_reserve(s, o->capacity);
}

attn_status attn_session_create(const attn_model *model, const attn_session_options *options, attn_session **session)
{
    attn_session_options given;
    ATTN_ARGS_INIT(&given);
    ATTN_MODEL_REQUIRE(session, "session is NULL");
    *session = NULL;
    ATTN_MODEL_REQUIRE(model, "model is NULL");
    if (options)
        ATTN_TRY(attn_model_args(&given, sizeof given, options, "options"));
    ATTN_MODEL_REQUIRE(given.batch >= 0 && given.batch <= 1 << 20, "options.batch is %lld", (long long)given.batch);
    ATTN_MODEL_REQUIRE(given.capacity >= 0 && given.capacity <= INT32_MAX, "options.capacity is %lld",
                       (long long)given.capacity);
    if (given.kv_dtype != ATTN_F32)
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "options.kv_dtype is %d: only ATTN_F32 is served",
                               given.kv_dtype);
    if (model->d.position == ATTN_POSITION_LEARNED)
        ATTN_MODEL_REQUIRE(given.capacity <= model->d.context_length,
                           "options.capacity is %lld, the model has %lld positions", (long long)given.capacity,
                           (long long)model->d.context_length);
    attn_session *s = calloc(1, sizeof *s);
    if (!s)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    s->model = model;
    attn_status status = create(s, &given);
    if (status != ATTN_OK)
        attn_session_destroy(s);
    else
        *session = s;
    return status;
}

void attn_session_destroy(attn_session *s)
{
    if (!s)
        return;
    for (int64_t l = 0; l < s->model->d.n_layers; l++) {
        float **caches[] = {s->cache_key, s->cache_value, s->cross_key, s->cross_value};
        for (int i = 0; i < 4; i++)
            if (caches[i])
                free(caches[i][l]);
    }
    free(s->cache_key);
    free(s->cache_value);
    free(s->cross_key);
    free(s->cross_value);
    free(s->lengths);
    free(s->cross_lengths);
    free(s->cross_slots);
    free(s->rope_table);
    free(s->relative);
    free(s->relative_encoder);
    free(s->scratch);
    attn_ctx_destroy(s->ctx);
    free(s);
}

int64_t attn_session_length(const attn_session *session, int64_t entry)
{
    return session && entry >= 0 && entry < session->batch ? session->lengths[entry] : -1;
}

attn_status attn_session_truncate(attn_session *session, int64_t entry, int64_t length)
{
    ATTN_MODEL_REQUIRE(session, "session is NULL");
    ATTN_MODEL_REQUIRE(entry >= -1 && entry < session->batch, "entry is %lld of %lld", (long long)entry,
                       (long long)session->batch);
    const int64_t first = entry < 0 ? 0 : entry, end = entry < 0 ? session->batch : entry + 1;
    for (int64_t b = first; b < end; b++)
        ATTN_MODEL_REQUIRE(length >= 0 && length <= session->lengths[b], "length is %lld, sequence %lld has %lld",
                           (long long)length, (long long)b, (long long)session->lengths[b]);
    for (int64_t b = first; b < end; b++)
        session->lengths[b] = length;
    return ATTN_OK;
}

attn_ctx *attn_session_ctx(attn_session *session)
{
    return session ? session->ctx : NULL;
}

/* Copies the used rows of every sequence and head into an array of another capacity. */
static void move_cache(const attn_session *s, const float *from, float *to, int64_t capacity)
{
    const attn_description *d = &s->model->d;
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < d->n_kv_heads; h++)
            memcpy(to + (b * d->n_kv_heads + h) * capacity * d->head_dim,
                   from + (b * d->n_kv_heads + h) * s->capacity * d->head_dim,
                   (size_t)(s->lengths[b] * d->head_dim) * sizeof *to);
}

attn_status attn_session_reserve(attn_session *s, int64_t tokens)
{
    const attn_description *d = &s->model->d;
    if (tokens <= s->capacity)
        return ATTN_OK;
    int64_t capacity = s->capacity ? 2 * s->capacity : FIRST_CAPACITY;
    capacity = capacity > s->max_capacity ? s->max_capacity : capacity;
    capacity = capacity < tokens ? tokens : capacity;
    const double bytes = (double)s->batch * (double)d->n_kv_heads * (double)capacity * (double)d->head_dim * 4;
    if (bytes > 0x1p46)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "a cache of %lld tokens is too large", (long long)capacity);
    float **grown = calloc((size_t)(2 * d->n_layers), sizeof *grown);
    bool enough = grown != NULL;
    for (int64_t l = 0; enough && l < 2 * d->n_layers; l++)
        enough = (grown[l] = malloc((size_t)bytes)) != NULL;
    for (int64_t l = 0; grown && l < 2 * d->n_layers; l++) {
        float **cache = l % 2 ? &s->cache_value[l / 2] : &s->cache_key[l / 2];
        if (!enough) {
            free(grown[l]);
            continue;
        }
        if (*cache)
            move_cache(s, *cache, grown[l], capacity);
        free(*cache);
        *cache = grown[l];
    }
    free(grown);
    if (!enough)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "no memory for a cache of %lld tokens", (long long)capacity);
    s->capacity = capacity;
    return ATTN_OK;
}
