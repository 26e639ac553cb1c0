/* lab_positions.c - what depends on what: all positions at once, order, and single changes, compared bit by bit where the
 * claim is exact. */
#include <math.h>
#include <string.h>
#include "lab/lab.h"

/* ---- All at once, one at a time ---- */

enum { DIM = 32 };

/* Largest difference of causal attention over n positions and of n calls with one query each. */
static double one_by_one(lab *l, int32_t dtype, int64_t n, const void *query, const void *key, const void *value)
{
    const size_t size = dtype == ATTN_F64 ? sizeof(double) : sizeof(float);
    char *all = lab_new(l, (size_t)(n * DIM) * size), *single = lab_new(l, (size_t)(n * DIM) * size);
    attn_sdpa_args a;
    double largest = 0;
    if (l->failed)
        return NAN;
    ATTN_ARGS_INIT(&a);
    a.query = attn_cview_of(query, dtype, 1, 1, n, DIM);
    a.key = attn_cview_of(key, dtype, 1, 1, n, DIM);
    a.value = attn_cview_of(value, dtype, 1, 1, n, DIM);
    a.out = attn_view_of(all, dtype, 1, 1, n, DIM);
    a.mask.flags = ATTN_MASK_CAUSAL;
    if (!lab_ok(l, attn_sdpa_forward(l->ctx, &a, NULL, 0)))
        return NAN;
    a.mask.flags = 0; /* the keys that exist so far, and no mask: what comes later is not there */
    for (int64_t i = 0; i < n; i++) {
        a.query = attn_cview_of((const char *)query + (size_t)(i * DIM) * size, dtype, 1, 1, 1, DIM);
        a.key = attn_cview_of(key, dtype, 1, 1, i + 1, DIM);
        a.value = attn_cview_of(value, dtype, 1, 1, i + 1, DIM);
        a.out = attn_view_of(single + (size_t)(i * DIM) * size, dtype, 1, 1, 1, DIM);
        if (!lab_ok(l, attn_sdpa_forward(l->ctx, &a, NULL, 0)))
            return NAN;
    }
    for (int64_t i = 0; i < n * DIM; i++)
        largest = fmax(largest, dtype == ATTN_F64 ? fabs(((double *)(void *)all)[i] - ((double *)(void *)single)[i])
                                                  : fabs((double)((float *)(void *)all)[i] - (double)((float *)(void *)single)[i]));
    return largest;
}

/* Twice the bound that attn.h gives for one result, over all rows. */
static double allowed(int64_t n, const float *query, const float *key, const float *value, double unit)
{
    double score = 0, largest = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = 0;
            for (int64_t d = 0; d < DIM; d++)
                sum += fabs((double)query[i * DIM + d] * (double)key[j * DIM + d]);
            score = fmax(score, sum / sqrt((double)DIM));
        }
    for (int64_t i = 0; i < n * DIM; i++)
        largest = fmax(largest, fabs((double)value[i]));
    return 2 * (2 * (DIM + 8) * unit * score + (2 * (double)n + 24) * unit + unit) * largest;
}

void lab_at_once(lab *l)
{
    static const char *const names[] = {"n", "difference, f32", "allowed, f32", "difference, f64", "allowed, f64"};
    const int last = l->quick ? 4 : 5;
    double row[5], worst[2] = {0, 0};
    bool within = true;
    lab_columns(l, 5, names);
    for (int p = 0; p < last && !l->failed; p++) {
        const int64_t n = (int64_t)8 << 2 * p;
        float *x[3];
        double *y[3];
        for (int k = 0; k < 3; k++) {
            x[k] = lab_normal_f32(l, n * DIM, 1);
            y[k] = lab_new(l, (size_t)(n * DIM) * sizeof(double));
            for (int64_t i = 0; !l->failed && i < n * DIM; i++)
                y[k][i] = (double)x[k][i];
        }
        if (l->failed)
            return;
        row[0] = (double)n;
        row[1] = one_by_one(l, ATTN_F32, n, x[0], x[1], x[2]);
        row[2] = allowed(n, x[0], x[1], x[2], 0x1p-24);
        row[3] = one_by_one(l, ATTN_F64, n, y[0], y[1], y[2]);
        row[4] = allowed(n, x[0], x[1], x[2], 0x1p-53);
        within = within && row[1] <= row[2] && row[3] <= row[4];
        worst[0] = fmax(worst[0], row[1]), worst[1] = fmax(worst[1], row[3]);
        lab_row(l, row);
    }
    if (l->failed)
        return;
    l->result->log_x = l->result->log_y = true;
    l->result->drawn = 0x1E;
    l->result->y_label = "largest difference of an output";
    lab_expect(l, within, "one pass and one position at a time agree within the operator's error bound");
    lab_say(l, "Causal attention over all positions in one call, against one call for each position that was given only the keys "
            "and values up to it: no output differs by more than %.2g in f32 and %.2g in f64, rounding alone. The later "
            "positions are masked in the first and absent in the second, so this also shows that a masked key has no part in "
            "any output. Sums are taken in another order, so the bits are not promised to be the same.", worst[0], worst[1]);
}

/* ---- Order ---- */

enum { WIDTH = 32 };

static bool block(lab *l, const attn_mha_weights *w, int64_t n, const double *x, uint32_t mask, double *y)
{
    attn_mha_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = ATTN_F64, a.batch = 1, a.seq_q = n, a.d_query = WIDTH, a.n_heads = 4, a.head_dim = WIDTH / 4;
    a.query = x, a.weights = *w, a.mask.flags = mask, a.out = y;
    return lab_ok(l, attn_mha_forward(l->layers, &a));
}

/* Adds sinusoidal positions: tokens are looked up from a table, with or without them. */
static bool embed(lab *l, const double *table, int64_t vocab, const int32_t *ids, int64_t n, int32_t sinusoidal, double *y)
{
    attn_embedding_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = ATTN_F64, a.sinusoidal = sinusoidal, a.rows = n, a.d_model = WIDTH, a.ids = ids, a.vocab = vocab, a.table = table;
    a.y = y;
    return lab_ok(l, attn_embedding_forward(l->layers, &a));
}

/* Largest difference of output i of the permuted tokens and output order[i] of the tokens as they were. */
static double permuted_difference(lab *l, const attn_mha_weights *w, const double *table, int64_t n, const int32_t *order,
                                  int32_t sinusoidal, uint32_t mask)
{
    double *x = lab_new(l, (size_t)(n * WIDTH) * sizeof *x), *y = lab_new(l, (size_t)(n * WIDTH) * sizeof *y);
    double *moved = lab_new(l, (size_t)(n * WIDTH) * sizeof *moved), largest = 0;
    int32_t *ids = lab_new(l, (size_t)n * sizeof *ids);
    if (l->failed)
        return NAN;
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)i;
    if (!embed(l, table, n, ids, n, sinusoidal, x) || !block(l, w, n, x, mask, y) ||
        !embed(l, table, n, order, n, sinusoidal, x) || !block(l, w, n, x, mask, moved))
        return NAN;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, lab_largest_difference(moved + i * WIDTH, y + order[i] * WIDTH, WIDTH));
    return largest;
}

void lab_order(lab *l)
{
    static const char *const names[] = {"n", "no positions", "sinusoidal positions", "causal, no positions"};
    const int last = l->quick ? 4 : 7;
    double row[4], worst = 0, least = INFINITY, least_causal = INFINITY;
    attn_mha_weights w;
    memset(&w, 0, sizeof w);
    w.w_query = lab_normal(l, WIDTH * WIDTH, 1 / sqrt(WIDTH)), w.w_key = lab_normal(l, WIDTH * WIDTH, 1 / sqrt(WIDTH));
    w.w_value = lab_normal(l, WIDTH * WIDTH, 1 / sqrt(WIDTH)), w.w_out = lab_normal(l, WIDTH * WIDTH, 1 / sqrt(WIDTH));
    lab_columns(l, 4, names);
    for (int p = 0; p < last && !l->failed; p++) {
        const int64_t n = (int64_t)8 << p;
        double *table = lab_normal(l, n * WIDTH, 1);
        int32_t *order = lab_new(l, (size_t)n * sizeof *order);
        if (l->failed)
            return;
        for (int64_t i = 0; i < n; i++) { /* Fisher and Yates, inside out */
            const int64_t j = (int64_t)lab_below(l, (uint64_t)i + 1);
            order[i] = order[j];
            order[j] = (int32_t)i;
        }
        row[0] = (double)n;
        row[1] = permuted_difference(l, &w, table, n, order, 0, 0);
        row[2] = permuted_difference(l, &w, table, n, order, 1, 0);
        row[3] = permuted_difference(l, &w, table, n, order, 0, ATTN_MASK_CAUSAL);
        worst = fmax(worst, row[1]), least = fmin(least, row[2]), least_causal = fmin(least_causal, row[3]);
        lab_row(l, row);
    }
    if (l->failed)
        return;
    l->result->log_x = l->result->log_y = true;
    l->result->drawn = 0xE;
    l->result->y_label = "largest difference from the permuted output";
    lab_expect(l, worst < 1e-12, "without positions the permuted input gives the permuted output");
    lab_expect(l, least > 1e-3, "with positions it does not");
    lab_expect(l, least_causal > 1e-3, "under the causal mask it does not either, even without positions");
    lab_say(l, "Bidirectional attention of four heads (f64, random weights) on a random permutation of its tokens: without "
            "position information every output is that of the same token before, to %.2g, so the layer cannot tell orders apart. "
            "Sinusoidal positions change some output by at least %.2g. A causal mask alone also does (%.2g): which tokens come "
            "before is itself information about order.", worst, least, least_causal);
}

/* ---- One change ---- */

enum { N = 16 };

/* Changes row p of one of the three and counts the outputs whose bits change; *as_said: exactly those of from..to. */
static int changed(lab *l, double *x[3], int which, int64_t p, const double *before, int64_t from, int64_t to, bool *as_said)
{
    double *row = x[which] + p * DIM, kept[DIM], *after = lab_new(l, N * DIM * sizeof *after);
    int count = 0;
    attn_sdpa_args a;
    if (l->failed)
        return -1;
    memcpy(kept, row, sizeof kept);
    for (int d = 0; d < DIM; d++)
        row[d] = -2 * kept[d] + 0.5;
    ATTN_ARGS_INIT(&a);
    a.query = attn_cview_of(x[0], ATTN_F64, 1, 1, N, DIM);
    a.key = attn_cview_of(x[1], ATTN_F64, 1, 1, N, DIM);
    a.value = attn_cview_of(x[2], ATTN_F64, 1, 1, N, DIM);
    a.out = attn_view_of(after, ATTN_F64, 1, 1, N, DIM);
    a.mask.flags = ATTN_MASK_CAUSAL;
    const bool good = lab_ok(l, attn_sdpa_forward(l->ctx, &a, NULL, 0));
    memcpy(row, kept, sizeof kept);
    for (int64_t i = 0; good && before && i < N; i++) {
        const bool differs = memcmp(after + i * DIM, before + i * DIM, DIM * sizeof *after) != 0;
        count += differs;
        *as_said = *as_said && differs == (i >= from && i < to);
    }
    return count;
}

/* |q . k| against lengths and angle: the score is |q| |k| cos, so doubling a key doubles it exactly. */
static bool doubles_exactly(lab *l, const float *query, const float *key)
{
    float twice[DIM];
    double lse[2];
    for (int d = 0; d < DIM; d++)
        twice[d] = 2 * key[d];
    for (int k = 0; k < 2; k++) { /* over one key the log-sum-exp is the score */
        float one = 0, out;
        float score;
        attn_sdpa_args a;
        ATTN_ARGS_INIT(&a);
        a.query = attn_cview_of(query, ATTN_F32, 1, 1, 1, DIM);
        a.key = attn_cview_of(k ? twice : key, ATTN_F32, 1, 1, 1, DIM);
        a.value = attn_cview_of(&one, ATTN_F32, 1, 1, 1, 1);
        a.out = attn_view_of(&out, ATTN_F32, 1, 1, 1, 1);
        a.lse = &score;
        if (!lab_ok(l, attn_sdpa_forward(l->ctx, &a, NULL, 0)))
            return false;
        lse[k] = (double)score;
    }
    return lse[1] == 2 * lse[0] && lse[0] != 0;
}

void lab_change(lab *l)
{
    static const char *const names[] = {"position changed", "outputs changed by its query", "by its key", "by its value"};
    double *x[3], *before = lab_new(l, N * DIM * sizeof *before);
    const float *query, *key;
    bool query_said = true, key_said = true, value_said = true;
    double row[4];
    attn_sdpa_args a;
    for (int k = 0; k < 3; k++)
        x[k] = lab_normal(l, N * DIM, 1);
    query = lab_normal_f32(l, DIM, 1), key = lab_normal_f32(l, DIM, 1);
    if (l->failed)
        return;
    ATTN_ARGS_INIT(&a);
    a.query = attn_cview_of(x[0], ATTN_F64, 1, 1, N, DIM);
    a.key = attn_cview_of(x[1], ATTN_F64, 1, 1, N, DIM);
    a.value = attn_cview_of(x[2], ATTN_F64, 1, 1, N, DIM);
    a.out = attn_view_of(before, ATTN_F64, 1, 1, N, DIM);
    a.mask.flags = ATTN_MASK_CAUSAL;
    lab_columns(l, 4, names);
    if (!lab_ok(l, attn_sdpa_forward(l->ctx, &a, NULL, 0)))
        return;
    for (int64_t p = 0; p < N; p++) { /* output 0 has one key alone: weight 1, whatever query and key say */
        row[0] = (double)p + 1;
        row[1] = changed(l, x, 0, p, before, p, p == 0 ? p : p + 1, &query_said);
        row[2] = changed(l, x, 1, p, before, p == 0 ? 1 : p, N, &key_said);
        row[3] = changed(l, x, 2, p, before, p, N, &value_said);
        lab_row(l, row);
    }
    const bool doubled = doubles_exactly(l, query, key);
    if (l->failed)
        return;
    l->result->drawn = 0xE;
    l->result->y_label = "outputs whose bits change";
    lab_expect(l, query_said, "a query changes the output of its own position and no other (the first: none, it has one key)");
    lab_expect(l, key_said, "a key changes every output that can see it (but not the first, which has one key)");
    lab_expect(l, value_said, "a value changes every output that can see it, and no earlier one");
    lab_expect(l, doubled, "twice the key at the same angle is exactly twice the score");
    lab_say(l, "One causal head over %d positions, f64, compared bit by bit. Changing query i changes output i alone; changing key "
            "or value i changes exactly the outputs i to %d. The first position is the exception the lesson's example shows, too: "
            "it sees one key, whose weight is 1 whatever the score, so its query and key change nothing there. A score is "
            "alignment times magnitude: a key of twice the length at the same angle has %s twice the score.", N, N,
            doubled ? "exactly" : "not exactly");
}
