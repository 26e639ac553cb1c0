/* lab_scaling.c - winner's probability and softmax gradient against d_k, with random vectors and with a gap of one standard
 * deviation, scaled and unscaled. */
#include <math.h>
#include "lab/lab.h"

enum { KEYS = 16, SIZES = 5 };

/* Weights of n queries, each over its own keys: weights[n][keys]. */
static bool weights_of(lab *l, const double *query, const double *key, int64_t n, int64_t keys, int64_t d, bool scaled,
                       double *weights)
{
    attn_sdpa_args a;
    attn_row *rows = lab_new(l, (size_t)n * sizeof *rows);
    if (!rows)
        return false;
    for (int64_t i = 0; i < n; i++)
        rows[i].batch = i;
    ATTN_ARGS_INIT(&a);
    a.query = attn_cview_of(query, ATTN_F64, n, 1, 1, d);
    a.key = attn_cview_of(key, ATTN_F64, n, 1, keys, d);
    if (!scaled)
        a.scale = 1, a.flags = ATTN_SCALE_GIVEN;
    const attn_view view = attn_view_of(weights, ATTN_F64, 1, 1, n, keys);
    return lab_ok(l, attn_sdpa_rows(l->ctx, &a, rows, n, &view));
}

/* Means over rows of the largest weight and of the Frobenius norm of softmax's Jacobian, diag(w) - w w^T. */
static void summary(const double *weights, int64_t n, int64_t keys, double *winner, double *gradient)
{
    *winner = *gradient = 0;
    for (int64_t r = 0; r < n; r++) {
        const double *w = weights + r * keys;
        double largest = 0, square = 0;
        for (int64_t i = 0; i < keys; i++) {
            largest = fmax(largest, w[i]);
            for (int64_t j = 0; j < keys; j++) {
                const double entry = (i == j ? w[i] : 0) - w[i] * w[j];
                square += entry * entry;
            }
        }
        *winner += largest / (double)n;
        *gradient += sqrt(square) / (double)n;
    }
}

/* The lesson's pair of keys: raw scores sqrt(d) (query and key of ones, the key divided by sqrt(d)) and 0. */
static double one_deviation(lab *l, int64_t d, bool scaled)
{
    double *query = lab_new(l, (size_t)d * sizeof *query), *key = lab_new(l, 2 * (size_t)d * sizeof *key), weights[2];
    for (int64_t i = 0; query && key && i < d; i++)
        query[i] = 1, key[i] = 1 / sqrt((double)d);
    return query && key && weights_of(l, query, key, 1, 2, d, scaled, weights) ? weights[0] : NAN;
}

void lab_scaling(lab *l)
{
    static const char *const names[] = {"d_k", "winner, unscaled", "winner, scaled", "gradient, unscaled", "gradient, scaled",
                                        "one sigma, unscaled", "one sigma, scaled"};
    const int64_t n = l->quick ? 200 : 2000;
    double row[7] = {0}, first[7] = {0};
    lab_columns(l, 7, names);
    for (int s = 0; s < SIZES && !l->failed; s++) {
        const int64_t d = (int64_t)4 << 2 * s;
        double *query = lab_normal(l, n * d, 1), *key = lab_normal(l, n * KEYS * d, 1);
        double *weights = lab_new(l, (size_t)(n * KEYS) * sizeof *weights);
        row[0] = (double)d;
        for (int scaled = 0; scaled < 2 && !l->failed; scaled++) {
            if (weights_of(l, query, key, n, KEYS, d, scaled, weights))
                summary(weights, n, KEYS, &row[1 + scaled], &row[3 + scaled]);
            row[5 + scaled] = one_deviation(l, d, scaled);
        }
        lab_row(l, row);
        for (int c = 0; s == 0 && c < 7; c++)
            first[c] = row[c];
    }
    if (l->failed)
        return;
    l->result->log_x = true;
    l->result->drawn = 0x7E;
    l->result->y_label = "probability; norm";
    lab_expect(l, row[5] > 0.99995 && fabs(first[5] - 0.8808) < 5e-5,
               "a gap of one standard deviation, unscaled: 0.88 at d_k 4, 1.0000 at d_k 1024");
    lab_expect(l, fabs(first[6] - row[6]) < 1e-12 && fabs(row[6] - 0.7311) < 5e-5, "scaled: 0.73 at every d_k");
    lab_expect(l, row[1] > 0.9 && row[1] > first[1] + 0.2, "random vectors: the unscaled winner's mean probability rises with "
               "d_k above 0.9");
    lab_expect(l, fabs(row[2] - first[2]) < 0.05, "random vectors: the scaled winner stays within 0.05");
    lab_expect(l, row[3] < row[4] / 2, "at d_k 1024 the unscaled softmax passes less than half of the scaled gradient");
    lab_expect(l, row[1] > 0.99995, "random vectors: the unscaled winner, too, takes 1.0000 at d_k 1024");
    lab_say(l, "With two keys one standard deviation apart the winner takes %.4f at d_k 4 and %.6f at d_k 1024 unscaled, and "
            "%.4f at each size scaled: the lesson's numbers. With %lld random queries over %d random keys, all components N(0, 1), "
            "the mean winner goes from %.3f to %.3f unscaled and from %.3f to %.3f scaled, and the norm of softmax's Jacobian "
            "from %.3f to %.3f unscaled and from %.3f to %.3f scaled. ", first[5], row[5], row[6], (long long)n, KEYS, first[1],
            row[1], first[2], row[2], first[3], row[3], first[4], row[4]);
    lab_say(l, "What the lesson does not say: with random keys the collapse is an average. The two best of %d scores often lie "
            "closer than one standard deviation, so the mean does not reach 1.0000 and some rows still pass a gradient; and the "
            "scaled winner's level depends on the number of keys (0.73 belongs to two keys).", KEYS);
}
