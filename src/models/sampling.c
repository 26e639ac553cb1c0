/* sampling.c - from logits to a token. All arithmetic is in double; the only randomness is Philox at (seed, step). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/context.h"
#include "models/model_internal.h"

typedef struct candidate {
    double logit, prob;
    int32_t id;
} candidate;

/* Likeliest first, ties by lowest id. */
static int by_logit(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static attn_status check_sampling(const attn_sampling *given, attn_sampling *s)
{
    ATTN_ARGS_INIT(s);
    if (given && given->struct_size)
        ATTN_TRY(attn_model_args(s, sizeof *s, given, "sampling"));
    ATTN_MODEL_REQUIRE(isfinite(s->temperature) && s->temperature >= 0, "sampling.temperature is %g", s->temperature);
    ATTN_MODEL_REQUIRE(s->top_k >= 0, "sampling.top_k is %lld", (long long)s->top_k);
    ATTN_MODEL_REQUIRE(s->top_p >= 0 && s->top_p <= 1, "sampling.top_p is %g, not in 0..1", s->top_p);
    ATTN_MODEL_REQUIRE(s->min_p >= 0 && s->min_p <= 1, "sampling.min_p is %g, not in 0..1", s->min_p);
    if (s->flags & ~(uint32_t)(ATTN_SAMPLING_TOP_P_GIVEN | ATTN_SAMPLING_PENALTY_GIVEN))
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "sampling.flags is 0x%x", s->flags);
    if (s->repetition_penalty == 0 && !(s->flags & ATTN_SAMPLING_PENALTY_GIVEN))
        s->repetition_penalty = 1;
    if (s->top_p == 0 && !(s->flags & ATTN_SAMPLING_TOP_P_GIVEN))
        s->top_p = 1;
    ATTN_MODEL_REQUIRE(isfinite(s->repetition_penalty) && s->repetition_penalty > 0,
                       "sampling.repetition_penalty is %g, not above 0", s->repetition_penalty);
    return ATTN_OK;
}

static attn_status read_logits(const float *logits, int64_t n, candidate *c)
{
    bool finite = false;
    for (int64_t i = 0; i < n; i++) {
        ATTN_MODEL_REQUIRE(!isnan(logits[i]), "logits[%lld] is NaN", (long long)i);
        ATTN_MODEL_REQUIRE(logits[i] < INFINITY, "logits[%lld] is +inf", (long long)i);
        finite |= isfinite(logits[i]);
        c[i] = (candidate){(double)logits[i], 0, (int32_t)i};
    }
    ATTN_MODEL_REQUIRE(finite, "logits: none of %lld is finite", (long long)n);
    return ATTN_OK;
}

/* Each distinct token of the history once: positive logits divided, negative ones multiplied. */
static attn_status penalise(const attn_sampling *s, const int32_t *history, int64_t n_history, int64_t n, candidate *c)
{
    if (s->repetition_penalty == 1)
        return ATTN_OK;
    uint8_t *seen = calloc((size_t)n, 1);
    if (!seen)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    for (int64_t i = 0; i < n_history; i++) {
        const int32_t id = history[i];
        if (id < 0 || id >= n) {
            free(seen);
            return attn_model_fail(ATTN_ERR_INVALID_ARGUMENT, "history[%lld] is %d of %lld", (long long)i, id,
                                   (long long)n);
        }
        if (!seen[id]) /* c is still in the order of ids */
            c[id].logit = c[id].logit > 0 ? c[id].logit / s->repetition_penalty : c[id].logit * s->repetition_penalty;
        seen[id] = 1;
    }
    free(seen);
    return ATTN_OK;
}

/* Probabilities of the first n candidates (sorted), summing to 1. */
static void renormalise(candidate *c, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += c[i].prob;
    for (int64_t i = 0; i < n; i++)
        c[i].prob /= sum;
}

/* Sorts and cuts; returns how many candidates stay, each with its final probability. */
static int64_t reduce(const attn_sampling *s, candidate *c, int64_t n)
{
    qsort(c, (size_t)n, sizeof *c, by_logit);
    if (s->temperature == 0) {
        c[0].prob = 1;
        return 1;
    }
    for (int64_t i = 0; i < n; i++) /* the largest is subtracted first: 1e-30 as temperature is fine */
        c[i].prob = exp((c[i].logit - c[0].logit) / s->temperature);
    renormalise(c, n);
    if (s->top_k > 0 && s->top_k < n) {
        n = s->top_k;
        renormalise(c, n);
    }
    if (s->top_p < 1) {
        double mass = 0;
        int64_t kept = 0;
        while (kept < n && (kept == 0 || mass < s->top_p))
            mass += c[kept++].prob;
        n = kept;
        renormalise(c, n);
    }
    if (s->min_p > 0) {
        int64_t kept = 1;
        while (kept < n && c[kept].prob >= s->min_p * c[0].prob)
            kept++;
        n = kept;
        renormalise(c, n);
    }
    while (n > 1 && c[n - 1].prob == 0)
        n--;
    return n;
}

static attn_status candidates(const attn_sampling *sampling, const float *logits, int64_t n, const int32_t *history,
                              int64_t n_history, candidate **out, int64_t *kept)
{
    attn_sampling s;
    ATTN_TRY(check_sampling(sampling, &s));
    ATTN_MODEL_REQUIRE(logits && n > 0 && n <= INT32_MAX, "logits is NULL or n is %lld", (long long)n);
    ATTN_MODEL_REQUIRE(n_history >= 0 && (history || !n_history), "history is NULL or n_history negative");
    candidate *c = malloc((size_t)n * sizeof *c);
    if (!c)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    attn_status status = read_logits(logits, n, c);
    if (status == ATTN_OK)
        status = penalise(&s, history, n_history, n, c);
    if (status != ATTN_OK) {
        free(c);
        return status;
    }
    *kept = reduce(&s, c, n);
    *out = c;
    return ATTN_OK;
}

attn_status attn_sampling_distribution(const attn_sampling *sampling, const float *logits, int64_t n,
                                       const int32_t *history, int64_t n_history, double *probs)
{
    candidate *c;
    int64_t kept;
    ATTN_MODEL_REQUIRE(probs, "probs is NULL");
    ATTN_TRY(candidates(sampling, logits, n, history, n_history, &c, &kept));
    for (int64_t i = 0; i < n; i++)
        probs[i] = 0;
    for (int64_t i = 0; i < kept; i++)
        probs[c[i].id] = c[i].prob;
    free(c);
    return ATTN_OK;
}

/* Philox 4x32 with 10 rounds (Salmon et al. 2011), key seed, counter step: 53 bits as a number in [0, 1). */
static double uniform_at(uint64_t seed, uint64_t step)
{
    uint32_t x[4] = {(uint32_t)step, (uint32_t)(step >> 32), 0, 0};
    uint32_t k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)x[0] * 0xD2511F53u, b = (uint64_t)x[2] * 0xCD9E8D57u;
        const uint32_t y[4] = {(uint32_t)(b >> 32) ^ x[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ x[3] ^ k[1],
                               (uint32_t)a};
        memcpy(x, y, sizeof x);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    return (double)(((uint64_t)x[0] << 32 | x[1]) >> 11) * 0x1p-53;
}

attn_status attn_sampling_draw(const attn_sampling *sampling, const float *logits, int64_t n, const int32_t *history,
                               int64_t n_history, uint64_t step, int32_t *token)
{
    candidate *c;
    int64_t kept, i = 0;
    ATTN_MODEL_REQUIRE(token, "token is NULL");
    ATTN_TRY(candidates(sampling, logits, n, history, n_history, &c, &kept));
    const double u = uniform_at(sampling && sampling->struct_size ? sampling->seed : 0, step);
    for (double mass = c[0].prob; i + 1 < kept && u >= mass; mass += c[i].prob)
        i++;
    *token = c[i].id;
    free(c);
    return ATTN_OK;
}
