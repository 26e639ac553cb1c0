/* data_order.c - which pieces of the data a step sees, from the seed and the step alone; BERT's corruption; the schedule. */
#include <math.h>
#include "train/mix.h"
#include "train/token_file.h"
#include "train/train_error.h"

/* ---- Order ---- */

/* A permutation of 0 .. n - 1: four rounds of a Feistel network on the smallest even number of bits that holds n, repeated
 * until the result is below n (cycle walking). */
static int64_t permute(uint64_t key, int64_t n, int64_t at)
{
    int half = 1;
    while (half < 31 && (int64_t)1 << 2 * half < n)
        half++;
    const uint64_t low = ((uint64_t)1 << half) - 1;
    uint64_t x = (uint64_t)at;
    do {
        uint64_t left = x >> half, right = x & low;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = left ^ (attn_mix(key + round, right) & low);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

static void copy_piece(const attn_train_data *data, const uint8_t *ids, int64_t first, int64_t n,
                       int32_t *tokens, int32_t *targets)
{
    for (int64_t t = 0; t < n; t++) {
        tokens[t] = attn_token_at(data, ids, first + t);
        if (targets)
            targets[t] = attn_token_at(data, ids, first + t + 1);
    }
}

static attn_status check_piece(const attn_train_data *data, int64_t index, int64_t batch,
                               int64_t length, const int32_t *tokens, int64_t n, const char *name)
{
    ATTN_TRAIN_REQUIRE(data && tokens, "%s is NULL", data ? "tokens" : "data");
    ATTN_TRAIN_REQUIRE(index >= 0, "index is %lld", (long long)index);
    ATTN_TRAIN_REQUIRE(batch >= 1 && batch <= 1 << 24, "batch is %lld", (long long)batch);
    ATTN_TRAIN_REQUIRE(length >= 1 && length < n,
                       "length is %lld, but there are %lld %s ids (one more than the length is needed)",
                       (long long)length, (long long)n, name);
    return ATTN_OK;
}

static attn_status check_ids(const attn_train_data *data, const int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= data->vocab_size)
            return attn_train_fail(ATTN_ERR_FORMAT, "the data hold id %d; the vocabulary has %lld", ids[i],
                                   (long long)data->vocab_size);
    return ATTN_OK;
}

attn_status attn_train_data_batch(const attn_train_data *data, uint64_t seed, int64_t index,
                                  int64_t batch, int64_t length, int32_t *tokens, int32_t *targets)
{
    attn_train_clear_error();
    ATTN_TRAIN_TRY(check_piece(data, index, batch, length, tokens, data ? data->n_train : 0, "training"));
    ATTN_TRAIN_REQUIRE(index <= INT64_MAX / batch - 1, "index is %lld", (long long)index);
    /* one piece less than would fit, so that the start may move by up to length - 1 */
    const int64_t fit = (data->n_train - 1) / length, n_pieces = fit > 1 ? fit - 1 : 1;
    const int64_t slack = data->n_train - 1 - n_pieces * length;
    for (int64_t b = 0; b < batch; b++) {
        const int64_t number = index * batch + b, epoch = number / n_pieces;
        const uint64_t key = attn_mix(seed, (uint64_t)epoch);
        const int64_t start = slack > 0 ? (int64_t)(attn_mix(key, 0) % (uint64_t)(slack + 1)) : 0;
        const int64_t piece = permute(key, n_pieces, number % n_pieces);
        copy_piece(data, data->train, start + piece * length, length, tokens + b * length,
                   targets ? targets + b * length : NULL);
    }
    return check_ids(data, tokens, batch * length);
}

attn_status attn_train_data_validation(const attn_train_data *data, int64_t index, int64_t batch,
                                       int64_t length, int32_t *tokens, int32_t *targets,
                                       int64_t *n_batches)
{
    attn_train_clear_error();
    ATTN_TRAIN_TRY(
        check_piece(data, index, batch, length, tokens, data ? data->n_validation : 0, "validation"));
    const int64_t n_pieces = (data->n_validation - 1) / length;
    const int64_t batches = (n_pieces + batch - 1) / batch;
    ATTN_TRAIN_REQUIRE(index < batches, "index is %lld of %lld batches", (long long)index,
                       (long long)batches);
    for (int64_t b = 0; b < batch; b++)
        copy_piece(data, data->validation, (index * batch + b) % n_pieces * length, length,
                   tokens + b * length, targets ? targets + b * length : NULL);
    if (n_batches)
        *n_batches = batches;
    return check_ids(data, tokens, batch * length);
}

int64_t attn_train_order(uint64_t seed, int64_t number, int64_t n)
{
    if (n < 1 || number < 0)
        return -1;
    return permute(attn_mix(seed, (uint64_t)(number / n)), n, number % n);
}

/* ---- Ids said again ---- */

attn_status attn_train_repeat(int32_t *tokens, int32_t *targets, int64_t batch, int64_t length, int64_t vocab_size, double share,
                              uint64_t seed, int64_t index)
{
    const int64_t shortest = 4, longest = length / 2;
    attn_train_clear_error();
    ATTN_TRAIN_REQUIRE(tokens && targets, "%s is NULL", tokens ? "targets" : "tokens");
    ATTN_TRAIN_REQUIRE(batch >= 1 && length >= 1, "batch is %lld, length %lld", (long long)batch, (long long)length);
    ATTN_TRAIN_REQUIRE(vocab_size >= 1 && vocab_size <= INT32_MAX, "vocab_size is %lld", (long long)vocab_size);
    ATTN_TRAIN_REQUIRE(share >= 0 && share <= 1, "share is %g; it must lie in 0 .. 1", share);
    for (int64_t b = 0; b < batch && longest >= shortest; b++) {
        const uint64_t key = attn_mix(attn_mix(seed, (uint64_t)index), (uint64_t)b);
        int32_t *own = tokens + b * length, *next = targets + b * length;
        if (attn_mix_unit(key, 0) >= share)
            continue;
        /* short ones as often as long ones, octave by octave */
        const double octaves = log2((double)longest / (double)shortest);
        const int64_t period = (int64_t)((double)shortest * exp2(octaves * attn_mix_unit(key, 1)));
        for (int64_t t = 0; t < length; t++)
            own[t] = t < period ? (int32_t)(attn_mix(key, 2 + (uint64_t)t) % (uint64_t)vocab_size) : own[t - period];
        for (int64_t t = 0; t < length; t++)
            next[t] = t + 1 < period ? -1 : own[(t + 1) % period];
    }
    return ATTN_OK;
}

/* ---- Masked language modelling ---- */

attn_status attn_train_mask_tokens(int32_t *tokens, int32_t *targets, int64_t n, int64_t vocab_size,
                                   int32_t mask_id, double probability, uint64_t seed, int64_t index)
{
    attn_train_clear_error();
    ATTN_TRAIN_REQUIRE(tokens && targets, "%s is NULL", tokens ? "targets" : "tokens");
    ATTN_TRAIN_REQUIRE(probability >= 0 && probability < 1, "probability is %g", probability);
    ATTN_TRAIN_REQUIRE(vocab_size >= 1 && mask_id >= 0 && mask_id < vocab_size,
                       "mask_id is %d; the vocabulary has %lld", mask_id, (long long)vocab_size);
    const double chosen = probability > 0 ? probability : 0.15;
    const uint64_t key = attn_mix(seed, (uint64_t)index);
    for (int64_t i = 0; i < n; i++) {
        const double draw = attn_mix_unit(key, 2 * (uint64_t)i) / chosen; /* below 1: chosen, and uniform */
        targets[i] = draw < 1 ? tokens[i] : -1;
        if (draw < 0.8)
            tokens[i] = mask_id;
        else if (draw < 0.9)
            tokens[i] = (int32_t)(attn_mix(key, 2 * (uint64_t)i + 1) % (uint64_t)vocab_size);
    }
    return ATTN_OK;
}

/* ---- Schedule ---- */

double attn_train_learning_rate(const attn_train_schedule *schedule, int64_t step)
{
    const double pi = 3.14159265358979323846;
    if (!schedule || step < 0)
        return 0;
    const double s = (double)step + 1, warmup = (double)schedule->warmup;
    if (schedule->inverse_square_root)
        return schedule->peak * fmin(s / fmax(warmup, 1), sqrt(fmax(warmup, 1) / s));
    if (step < schedule->warmup)
        return schedule->peak * s / (warmup + 1);
    if (step >= schedule->steps || schedule->steps <= schedule->warmup)
        return schedule->last;
    const double done = (double)(step - schedule->warmup) / (double)(schedule->steps - schedule->warmup);
    return schedule->last + 0.5 * (1 + cos(pi * done)) * (schedule->peak - schedule->last);
}
