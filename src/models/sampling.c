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

/* The candidates of one choice. Few of them matter, so the vocabulary is not sorted: c[0 .. n - ranked) is a heap with
 * the likeliest on top, and behind it stand those that were asked for, the likeliest last. */
typedef struct ranking {
    candidate *c;
    int64_t n, ranked;
} ranking;

/* Likeliest first, ties by lowest id. */
static bool before(const candidate *x, const candidate *y)
{
    return x->logit != y->logit ? x->logit > y->logit : x->id < y->id;
}

static void sift_down(candidate *c, int64_t at, int64_t n)
{
    const candidate moved = c[at];
    for (int64_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        child += child + 1 < n && before(&c[child + 1], &c[child]);
        if (!before(&c[child], &moved))
            break;
        c[at] = c[child];
        at = child;
    }
    c[at] = moved;
}

static void start_ranking(ranking *r)
{
    r->ranked = 0;
    for (int64_t i = r->n / 2; i-- > 0;)
        sift_down(r->c, i, r->n);
}

/* The candidate of rank i, 0 the likeliest. */
static candidate *at_rank(ranking *r, int64_t i)
{
    for (; r->ranked <= i; r->ranked++) {
        const int64_t last = r->n - r->ranked - 1;
        const candidate likeliest = r->c[0];
        r->c[0] = r->c[last];
        sift_down(r->c, 0, last);
        r->c[last] = likeliest;
    }
    return &r->c[r->n - 1 - i];
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

/* Probabilities of the `kept` likeliest, summing to 1. */
static void renormalise(ranking *r, int64_t kept)
{
    double sum = 0;
    for (int64_t i = 0; i < kept; i++)
        sum += at_rank(r, i)->prob;
    for (int64_t i = 0; i < kept; i++)
        at_rank(r, i)->prob /= sum;
}

/* Probabilities of all, summed in the order of ids, before anything is ranked. */
static void all_probabilities(const attn_sampling *s, ranking *r)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < r->n; i++)
        largest = r->c[i].logit > largest ? r->c[i].logit : largest;
    for (int64_t i = 0; i < r->n; i++) { /* the largest is subtracted first: 1e-30 as temperature is fine */
        r->c[i].prob = exp((r->c[i].logit - largest) / s->temperature);
        sum += r->c[i].prob;
    }
    for (int64_t i = 0; i < r->n; i++)
        r->c[i].prob /= sum;
}

/* Cuts; returns how many of the likeliest stay, each with its final probability. */
static int64_t reduce(const attn_sampling *s, ranking *r)
{
    int64_t n = r->n;
    if (s->temperature == 0) {
        start_ranking(r);
        at_rank(r, 0)->prob = 1;
        return 1;
    }
    all_probabilities(s, r);
    start_ranking(r);
    if (s->top_k > 0 && s->top_k < n) {
        n = s->top_k;
        renormalise(r, n);
    }
    if (s->top_p < 1) {
        double mass = 0;
        int64_t kept = 0;
        while (kept < n && (kept == 0 || mass < s->top_p))
            mass += at_rank(r, kept++)->prob;
        n = kept;
        renormalise(r, n);
    }
    if (s->min_p > 0) {
        int64_t kept = 1;
        while (kept < n && at_rank(r, kept)->prob >= s->min_p * at_rank(r, 0)->prob)
            kept++;
        n = kept;
        renormalise(r, n);
    }
    return n;
}

static attn_status candidates(const attn_sampling *s, const float *logits, int64_t n, const int32_t *history,
                              int64_t n_history, ranking *r, int64_t *kept)
{
    ATTN_MODEL_REQUIRE(logits && n > 0 && n <= INT32_MAX, "logits is NULL or n is %lld", (long long)n);
    ATTN_MODEL_REQUIRE(n_history >= 0 && (history || !n_history), "history is NULL or n_history negative");
    *r = (ranking){malloc((size_t)n * sizeof *r->c), n, 0};
    if (!r->c)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    attn_status status = read_logits(logits, n, r->c);
    if (status == ATTN_OK)
        status = penalise(s, history, n_history, n, r->c);
    if (status != ATTN_OK) {
        free(r->c);
        return status;
    }
    *kept = reduce(s, r);
    return ATTN_OK;
}

attn_status attn_sampling_distribution(const attn_sampling *sampling, const float *logits, int64_t n,
                                       const int32_t *history, int64_t n_history, double *probs)
{
    attn_sampling s;
    ranking r;
    int64_t kept;
    ATTN_MODEL_REQUIRE(probs, "probs is NULL");
    ATTN_TRY(check_sampling(sampling, &s));
    ATTN_TRY(candidates(&s, logits, n, history, n_history, &r, &kept));
    for (int64_t i = 0; i < n; i++)
        probs[i] = 0;
    for (int64_t i = 0; i < kept; i++) { /* of all the order is nothing to wait for */
        const candidate *c = kept < n ? at_rank(&r, i) : &r.c[i];
        probs[c->id] = c->prob;
    }
    free(r.c);
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

/* The likeliest token of logits as they are: nothing is copied. */
static attn_status likeliest(const float *logits, int64_t n, int32_t *token)
{
    int64_t best = 0;
    for (int64_t i = 0; i < n; i++) {
        ATTN_MODEL_REQUIRE(!isnan(logits[i]), "logits[%lld] is NaN", (long long)i);
        ATTN_MODEL_REQUIRE(logits[i] < INFINITY, "logits[%lld] is +inf", (long long)i);
        best = logits[i] > logits[best] ? i : best;
    }
    ATTN_MODEL_REQUIRE(isfinite(logits[best]), "logits: none of %lld is finite", (long long)n);
    *token = (int32_t)best;
    return ATTN_OK;
}

attn_status attn_sampling_draw(const attn_sampling *sampling, const float *logits, int64_t n, const int32_t *history,
                               int64_t n_history, uint64_t step, int32_t *token)
{
    attn_sampling s;
    ranking r;
    int64_t kept, i = 0;
    ATTN_MODEL_REQUIRE(token, "token is NULL");
    ATTN_TRY(check_sampling(sampling, &s));
    if (s.temperature == 0 && s.repetition_penalty == 1 && logits && n > 0 && n <= INT32_MAX && n_history >= 0 &&
        (history || !n_history))
        return likeliest(logits, n, token);
    ATTN_TRY(candidates(&s, logits, n, history, n_history, &r, &kept));
    const double u = uniform_at(s.seed, step);
    double mass = at_rank(&r, 0)->prob;
    for (; u >= mass && i + 1 < kept && at_rank(&r, i + 1)->prob > 0; mass += at_rank(&r, i)->prob)
        i++;
    *token = at_rank(&r, i)->id;
    free(r.c);
    return ATTN_OK;
}
