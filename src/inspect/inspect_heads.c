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
    enum kind kind;
    int64_t first, count; /* heads first .. first + count - 1, one in each sequence of the batch */
    const int64_t *order; /* [n] a permutation of positions */
    const float *mean;    /* [n_layers][n_heads * head_dim] */
} head_cut;

/* The kept rows of a layer: [n][n_heads * head_dim]. */
static const float *kept(const attn_inspect_run *run, const float *heads, int64_t layer)
{
    return heads + layer * run->a.n_tokens * run->model->d.n_heads * run->model->d.head_dim;
}

/* The new output of the head at position i. */
static const float *replacement(const head_cut *c, int64_t layer, int64_t head, int64_t i)
{
    const attn_inspect_run *run = c->run;
    const int64_t dim = run->model->d.head_dim, width = run->model->d.n_heads * dim;
    switch (c->kind) {
    case KIND_MEAN:
        return c->mean + layer * width + head * dim;
    case KIND_RESAMPLE:
        return kept(run, run->heads, layer) + c->order[i] * width + head * dim;
    case KIND_PATCH:
    case KIND_PATH:
        return kept(run, run->pair_heads, layer) + i * width + head * dim;
    default:
        return NULL;
    }
}

static attn_status replace_head(void *user, const attn_layer_view *view)
{
    const head_cut *c = user;
    const attn_description *d = &c->run->model->d;
    const int64_t which = c->first + view->entry, layer = which / d->n_heads, head = which % d->n_heads;
    const int64_t dim = d->head_dim, width = d->n_heads * dim;
    if (view->entry >= c->count || view->layer < layer || (view->layer > layer && c->kind != KIND_PATH))
        return ATTN_OK;
    for (int64_t h = 0; h < d->n_heads; h++)
        for (int64_t i = 0; i < view->head_out.shape[2]; i++) {
            float *y = (float *)view->head_out.data + h * view->head_out.stride[1] + i * view->head_out.stride[2];
            const float *own = kept(c->run, c->run->heads, view->layer) + i * width + h * dim;
            const float *new = view->layer == layer && h == head ? replacement(c, layer, head, i) : own;
            if (view->layer > layer || h == head) { /* PATH holds all later heads at what they were */
                if (new)
                    memcpy(y, new, (size_t)dim * sizeof *y);
                else
                    memset(y, 0, (size_t)dim * sizeof *y);
            }
        }
    return ATTN_OK;
}

static attn_inspect_effect *effect_place(attn_inspect_head *head, enum kind kind)
{
    attn_inspect_effect *places[] = {&head->mean, &head->resample, &head->zero, &head->patch, &head->path};
    return places[kind];
}

static attn_status cut_batch(head_cut *c, attn_session *session, int64_t batch, const int32_t *tokens, float *logits)
{
    attn_inspect_run *run = c->run;
    attn_forward_args args;
    ATTN_ARGS_INIT(&args);
    args.tokens = tokens;
    args.n_tokens = run->a.n_tokens;
    args.logits = logits;
    args.hook = replace_head;
    args.hook_user = c;
    ATTN_TRY(attn_session_truncate(session, -1, 0));
    ATTN_TRY(attn_model_forward(session, &args));
    for (int64_t b = 0; b < c->count && b < batch; b++)
        *effect_place(&run->out->heads[c->first + b], c->kind) =
            attn_inspect_compare(run, run->logits, run->log_sum, logits + b * run->model->d.vocab_size);
    return attn_inspect_progress(run);
}

static attn_status cut_all(head_cut *c, attn_session *session, int64_t batch, const int32_t *tokens, float *logits)
{
    const attn_description *d = &c->run->model->d;
    const int64_t heads = d->n_layers * d->n_heads;
    for (int kind = 0; kind < N_KINDS; kind++) {
        c->kind = (enum kind)kind;
        if (kind >= KIND_PATCH && !c->run->pair_heads) {
            for (int64_t h = 0; h < heads; h++)
                *effect_place(&c->run->out->heads[h], c->kind) = (attn_inspect_effect){NAN, NAN};
            continue;
        }
        for (c->first = 0; c->first < heads; c->first += batch) {
            c->count = heads - c->first < batch ? heads - c->first : batch;
            ATTN_TRY(cut_batch(c, session, batch, tokens, logits));
        }
    }
    return ATTN_OK;
}

static void means(const attn_inspect_run *run, float *mean)
{
    const attn_description *d = &run->model->d;
    const int64_t width = d->n_heads * d->head_dim, n = run->a.n_tokens;
    memset(mean, 0, (size_t)(d->n_layers * width) * sizeof *mean);
    for (int64_t l = 0; l < d->n_layers; l++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t x = 0; x < width; x++)
                mean[l * width + x] += kept(run, run->heads, l)[i * width + x] / (float)n;
}

static attn_status cut_with(attn_inspect_run *run, attn_session *session, int64_t batch)
{
    const attn_description *d = &run->model->d;
    const int64_t n = run->a.n_tokens;
    float *mean = malloc((size_t)(d->n_layers * d->n_heads * d->head_dim) * sizeof *mean);
    float *logits = malloc((size_t)(batch * d->vocab_size) * sizeof *logits);
    int64_t *order = malloc((size_t)n * sizeof *order);
    int32_t *tokens = malloc((size_t)(batch * n) * sizeof *tokens);
    attn_status status = mean && logits && order && tokens ? ATTN_OK : attn_inspect_no_memory();
    if (status == ATTN_OK) {
        head_cut c = {.run = run, .order = order, .mean = mean};
        means(run, mean);
        for (int64_t i = 0; i < n; i++)
            order[i] = i;
        for (int64_t i = n - 1; i > 0; i--) { /* Sattolo: no position keeps its own output */
            const int64_t j = (int64_t)(attn_inspect_random(&run->random) % (uint64_t)i), other = order[i];
            order[i] = order[j];
            order[j] = other;
        }
        for (int64_t b = 0; b < batch; b++)
            memcpy(tokens + b * n, run->a.tokens, (size_t)n * sizeof *tokens);
        status = cut_all(&c, session, batch, tokens, logits);
    }
    free(mean);
    free(logits);
    free(order);
    free(tokens);
    return status;
}

/* ---- the paired prompt ---- */

static attn_status keep_pair(void *user, const attn_layer_view *view)
{
    attn_inspect_run *run = user;
    const attn_description *d = &run->model->d;
    const int64_t n = run->a.n_tokens, dim = d->head_dim, width = d->n_heads * dim;
    const attn_cview *value = &view->attention->value;
    for (int64_t i = 0; i < n; i++)
        for (int64_t h = 0; h < d->n_heads; h++)
            memcpy(run->pair_heads + (view->layer * n + i) * width + h * dim,
                   (const float *)view->head_out.data + h * view->head_out.stride[1] + i * view->head_out.stride[2],
                   (size_t)dim * sizeof(float));
    for (int64_t h = 0; h < d->n_kv_heads; h++)
        for (int64_t j = 0; j < n; j++)
            memcpy(run->pair_values + ((view->layer * d->n_kv_heads + h) * n + j) * dim,
                   (const float *)value->data + h * value->stride[1] + j * value->stride[2],
                   (size_t)dim * sizeof(float));
    return ATTN_OK;
}

static attn_status run_pair(attn_inspect_run *run, attn_session *session)
{
    const attn_description *d = &run->model->d;
    const int64_t n = run->a.n_tokens;
    run->pair_heads = malloc((size_t)(d->n_layers * n * d->n_heads * d->head_dim) * sizeof(float));
    run->pair_values = malloc((size_t)(d->n_layers * n * d->n_kv_heads * d->head_dim) * sizeof(float));
    float *logits = malloc((size_t)d->vocab_size * sizeof *logits);
    attn_forward_args args;
    ATTN_ARGS_INIT(&args);
    args.tokens = run->a.pair;
    args.n_tokens = n;
    args.logits = logits;
    args.hook = keep_pair;
    args.hook_user = run;
    attn_status status = run->pair_heads && run->pair_values && logits ? ATTN_OK : attn_inspect_no_memory();
    if (status == ATTN_OK)
        status = attn_model_forward(session, &args);
    if (status == ATTN_OK)
        run->out->pair_outcome = logits[run->out->answers[0]] - logits[run->out->answers[1]];
    free(logits);
    return status;
}

static attn_status session_of(const attn_inspect_run *run, int64_t batch, attn_session **session)
{
    attn_session_options options;
    ATTN_ARGS_INIT(&options);
    options.batch = batch;
    options.capacity = run->a.n_tokens;
    options.n_threads = run->s->n_threads;
    return attn_session_create(run->model, &options, session);
}

attn_status attn_inspect_cut_heads(attn_inspect_run *run)
{
    const attn_description *d = &run->model->d;
    const int64_t heads = d->n_layers * d->n_heads, fit = BATCH_TOKENS / run->a.n_tokens;
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
    run->out->heads = calloc((size_t)heads, sizeof *run->out->heads);
    if (!run->out->heads)
        return attn_inspect_no_memory();
    for (int64_t h = 0; h < heads; h++)
        run->out->heads[h].direct = run->head_directs ? run->head_directs[h] : NAN;
    run->all_passes += (run->a.pair ? 5 : 3) * ((heads + batch - 1) / batch);
    ATTN_TRY(session_of(run, batch, &session));
    attn_status status = cut_with(run, session, batch);
    attn_session_destroy(session);
    return status;
}
