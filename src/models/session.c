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
    s->worker.pair = attn_pair_kernels_for(attn_isa_from_name(attn_ctx_isa(s->ctx)));
    s->worker.dot = attn_dot_kernels_for(attn_isa_from_name(attn_ctx_isa(s->ctx)));
    s->worker.kernels = attn_nn_kernels_for(attn_isa_from_name(attn_ctx_isa(s->ctx)));
    s->worker.tiles = aligned_alloc(64, attn_linear_tiles(s->n_threads));
    return s->worker.tiles ? ATTN_OK : attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
}

static attn_status create(attn_session *s, const attn_session_options *o)
{
    const attn_description *d = &s->model->d;
    s->batch = o->batch ? o->batch : 1;
    s->max_capacity = o->capacity ? o->capacity : d->context_length;
    ATTN_TRY(create_context(s, o));
    s->lengths = calloc((size_t)s->batch, sizeof *s->lengths);
    s->cross_lengths = calloc((size_t)s->batch, sizeof *s->cross_lengths);
    s->cross_key = calloc((size_t)d->n_layers, sizeof *s->cross_key);
    s->cross_value = calloc((size_t)d->n_layers, sizeof *s->cross_value);
    const attn_status cache =
        attn_kv_create(&s->cache, o->kv_dtype, d->n_layers, s->batch, d->n_kv_heads, d->head_dim);
    if (cache != ATTN_OK || !s->lengths || !s->cross_lengths || !s->cross_key || !s->cross_value)
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
    if (given.kv_dtype != ATTN_F32 && given.kv_dtype != ATTN_BF16 && given.kv_dtype != ATTN_F16 &&
        given.kv_dtype != ATTN_I8)
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "options.kv_dtype is %d, must be f32, bf16, f16 or i8",
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
        float **caches[] = {s->cross_key, s->cross_value};
        for (int i = 0; i < 2; i++)
            if (caches[i])
                free(caches[i][l]);
    }
    attn_kv_destroy(&s->cache);
    free(s->cross_key);
    free(s->cross_value);
    free(s->lengths);
    free(s->cross_lengths);
    free(s->cross_slots);
    free(s->relative);
    free(s->relative_encoder);
    free(s->scratch);
    free(s->worker.tiles);
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

attn_status attn_session_reserve(attn_session *s, int64_t tokens)
{
    const int64_t held = s->cache.capacity;
    if (tokens <= held)
        return ATTN_OK;
    int64_t capacity = held ? 2 * held : FIRST_CAPACITY;
    capacity = capacity > s->max_capacity ? s->max_capacity : capacity;
    capacity = capacity < tokens ? tokens : capacity;
    if (attn_kv_grow(&s->cache, capacity, s->lengths) != ATTN_OK)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "no memory for a cache of %lld tokens", (long long)capacity);
    return ATTN_OK;
}
