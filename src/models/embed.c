/* embed.c - attn_embed: texts in order of length, packed into passes of about the same size, pooled. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/context.h"
#include "models/pass.h"

/* Tokens of one pass: enough rows for full tiles on every thread, few enough that activations stay in the cache
 * (384 x 1,024 floats are 1.5 MB). */
#define PASS_TOKENS 1024

typedef struct text_order {
    int64_t length, index, first; /* first: where its tokens begin */
} text_order;

/* Longest first: a pass that does not fit memory fails before work is done. */
static int by_length(const void *a, const void *b)
{
    const text_order *x = a, *y = b;
    if (x->length != y->length)
        return x->length > y->length ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static attn_status check_args(const attn_session *s, const attn_embed_args *a, text_order *order)
{
    const attn_description *d = &s->model->d;
    int64_t first = 0;
    for (int64_t i = 0; i < a->n_texts; i++) {
        const int64_t n = a->lengths[i];
        ATTN_MODEL_REQUIRE(n >= 1 && n <= d->context_length, "lengths[%lld] is %lld, not in 1..%lld", (long long)i,
                           (long long)n, (long long)d->context_length);
        for (int64_t t = first; t < first + n; t++)
            ATTN_MODEL_REQUIRE(a->tokens[t] >= 0 && a->tokens[t] < d->vocab_size,
                               "tokens[%lld] is %d, the vocabulary has %lld", (long long)t, a->tokens[t],
                               (long long)d->vocab_size);
        order[i] = (text_order){n, i, first};
        first += n;
    }
    return ATTN_OK;
}

/* Which share token t of n has in a sum; the mean and the mean over positions 1 .. n divide by the sum of shares. */
static float share(int32_t pooling, int64_t t)
{
    return pooling == ATTN_POOL_WEIGHTED ? (float)(t + 1) : 1.0f;
}

static void sum_rows(const float *rows, int64_t n, int64_t d_model, int32_t pooling, float *out)
{
    float shares = share(pooling, 0);
    memcpy(out, rows, (size_t)d_model * sizeof *out);
    for (int64_t t = 1; t < n; t++) {
        const float w = share(pooling, t);
        shares += w;
        for (int64_t i = 0; i < d_model; i++)
            out[i] += w * rows[t * d_model + i];
    }
    for (int64_t i = 0; i < d_model; i++)
        out[i] /= pooling == ATTN_POOL_SQRT ? sqrtf((float)n) : shares;
}

static void largest_of_rows(const float *rows, int64_t n, int64_t d_model, float *out)
{
    memcpy(out, rows, (size_t)d_model * sizeof *out);
    for (int64_t t = 1; t < n; t++)
        for (int64_t i = 0; i < d_model; i++)
            out[i] = rows[t * d_model + i] > out[i] ? rows[t * d_model + i] : out[i];
}

static void pool_text(const attn_embed_args *a, const float *rows, int64_t n, int64_t d_model, int32_t pooling,
                      float *out)
{
    double squares = 0;
    if (pooling == ATTN_POOL_FIRST || pooling == ATTN_POOL_LAST)
        memcpy(out, rows + (pooling == ATTN_POOL_LAST ? n - 1 : 0) * d_model, (size_t)d_model * sizeof *out);
    else if (pooling == ATTN_POOL_MAX)
        largest_of_rows(rows, n, d_model, out);
    else
        sum_rows(rows, n, d_model, pooling, out);
    for (int64_t i = 0; i < d_model; i++)
        squares += (double)out[i] * (double)out[i];
    if (a->no_normalize || squares == 0)
        return;
    const double scale = 1.0 / sqrt(squares);
    for (int64_t i = 0; i < d_model; i++)
        out[i] = (float)((double)out[i] * scale);
}

/* One pass over texts of `order`, the first of which is the longest. */
static attn_status embed_pass(attn_session *s, const attn_embed_args *a, const text_order *order, int64_t n_texts)
{
    const int64_t longest = order[0].length, dm = s->model->d.d_model;
    int32_t *tokens = calloc((size_t)(n_texts * longest), sizeof *tokens);
    uint8_t *keep = calloc((size_t)(n_texts * longest), 1);
    attn_forward_args f;
    attn_pass pass;
    ATTN_ARGS_INIT(&f);
    for (int64_t i = 0; tokens && keep && i < n_texts; i++) {
        memcpy(tokens + i * longest, a->tokens + order[i].first, (size_t)order[i].length * sizeof *tokens);
        memset(keep + i * longest, 1, (size_t)order[i].length);
    }
    f.tokens = tokens;
    f.keep = keep;
    f.n_tokens = longest;
    s->batch = n_texts; /* nothing is cached; attn_embed restores it */
    attn_status status = tokens && keep ? attn_pass_start(&pass, s, &f, true)
                                        : attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    if (status == ATTN_OK)
        status = attn_pass_hidden(&pass);
    const int32_t pooling = a->pooling == ATTN_POOL_DEFAULT ? s->model->card.pooling : a->pooling;
    for (int64_t i = 0; status == ATTN_OK && i < n_texts; i++)
        pool_text(a, pass.h + pass.first[i] * dm, order[i].length, dm, pooling, a->embeddings + order[i].index * dm);
    if (tokens && keep)
        attn_pass_finish(&pass);
    free(tokens);
    free(keep);
    return status;
}

static attn_status embed_all(attn_session *s, const attn_embed_args *a, text_order *order)
{
    ATTN_TRY(check_args(s, a, order));
    qsort(order, (size_t)a->n_texts, sizeof *order, by_length);
    for (int64_t i = 0; i < a->n_texts;) {
        int64_t n = 1, tokens = order[i].length;
        while (i + n < a->n_texts && tokens + order[i + n].length <= PASS_TOKENS)
            tokens += order[i + n++].length;
        ATTN_TRY(embed_pass(s, a, order + i, n));
        i += n;
        if (a->progress && a->progress(a->progress_user, i, a->n_texts))
            return attn_model_fail(ATTN_ERR_CANCELLED, "the progress callback asked to stop");
    }
    return ATTN_OK;
}

attn_status attn_embed(attn_session *session, const attn_embed_args *args)
{
    attn_embed_args a;
    ATTN_MODEL_REQUIRE(session, "session is NULL");
    ATTN_TRY(attn_model_args(&a, sizeof a, args, "args"));
    if (session->model->d.kind == ATTN_MODEL_ENCODER_DECODER || session->model->d.no_tokens)
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "a %s model gives no vector of a text", session->model->d.family);
    ATTN_MODEL_REQUIRE(a.n_texts >= 0, "n_texts is %lld", (long long)a.n_texts);
    ATTN_MODEL_REQUIRE(!a.n_texts || (a.tokens && a.lengths && a.embeddings),
                       "tokens, lengths or embeddings is NULL");
    ATTN_MODEL_REQUIRE(a.pooling >= ATTN_POOL_DEFAULT && a.pooling <= ATTN_POOL_SQRT, "pooling is %d", a.pooling);
    if (a.pooling == ATTN_POOL_DEFAULT && *session->model->card.refused)
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "%s is not served; a pooling that is given goes without it",
                               session->model->card.refused);
    text_order *order = malloc((size_t)(a.n_texts + 1) * sizeof *order);
    if (!order)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    const int64_t batch = session->batch;
    attn_status status = embed_all(session, &a, order);
    session->batch = batch;
    free(order);
    return status;
}
