/* lab_counts.c - what there is to learn, how many pairs are compared, and which parts exchange information. All counted in
 * results: gradients that are not zero, weights that are not zero, rows whose bits change. */
#include <math.h>
#include <string.h>
#include "lab/lab.h"

enum { D = 24 };

static int64_t nonzero(const double *x, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += x[i] != 0;
    return count;
}

static int64_t rows_changed(const double *a, const double *b, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += memcmp(a + i * D, b + i * D, D * sizeof *a) != 0;
    return count;
}

/* One head without W_O and biases. Parameters: entries of the three matrices with a gradient. */
static bool head(lab *l, const double *w[3], const double *x, int64_t n, uint32_t mask, double *out, double *weights,
                 int64_t *parameters)
{
    attn_mha_args a;
    attn_mha_gradients g;
    size_t bytes = 0;
    ATTN_ARGS_INIT(&a), ATTN_ARGS_INIT(&g);
    a.dtype = ATTN_F64, a.batch = 1, a.seq_q = n, a.d_query = D, a.n_heads = 1, a.head_dim = D, a.query = x;
    a.weights.w_query = w[0], a.weights.w_key = w[1], a.weights.w_value = w[2];
    a.mask.flags = mask, a.out = out, a.row_weights = weights;
    if (!lab_ok(l, attn_mha_saved_bytes(l->layers, &a, &bytes)))
        return false;
    a.saved = lab_new(l, bytes);
    if (l->failed || !lab_ok(l, attn_mha_forward(l->layers, &a)))
        return false;
    double *gradient[3];
    for (int k = 0; k < 3; k++)
        gradient[k] = lab_new(l, D * D * sizeof(double));
    g.d_out = lab_normal(l, n * D, 1);
    g.weights.w_query = gradient[0], g.weights.w_key = gradient[1], g.weights.w_value = gradient[2];
    if (l->failed || !lab_ok(l, attn_mha_backward(l->layers, &a, &g)))
        return false;
    *parameters = nonzero(gradient[0], D * D) + nonzero(gradient[1], D * D) + nonzero(gradient[2], D * D);
    return true;
}

static bool feed_forward(lab *l, const double *up, const double *down, const double *x, int64_t n, double *y)
{
    attn_ffn_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = ATTN_F64, a.act = ATTN_ACT_RELU, a.rows = n, a.d_model = D, a.d_ff = 4 * D, a.x = x, a.y = y;
    a.weights.w_up = up, a.weights.w_down = down;
    return lab_ok(l, attn_ffn_forward(l->layers, &a));
}

void lab_counts(lab *l)
{
    static const char *const names[] = {"n", "comparisons, full", "comparisons, causal", "parameters of one head",
                                        "rows changed, full", "rows changed, causal", "rows changed, feed-forward"};
    const int last = l->quick ? 5 : 7;
    const double *w[3];
    bool full = true, causal = true, parameters = true, own = true, everyone = true;
    double row[7];
    for (int k = 0; k < 3; k++)
        w[k] = lab_normal(l, D * D, 1 / sqrt(D));
    const double *up = lab_normal(l, 4 * D * D, 1 / sqrt(D)), *down = lab_normal(l, 4 * D * D, 1 / sqrt(D));
    lab_columns(l, 7, names);
    for (int p = 0; p < last && !l->failed; p++) {
        const int64_t n = (int64_t)8 << p, at = n / 2;
        double *x = lab_normal(l, n * D, 1), *out[6], *weights = lab_new(l, (size_t)(n * n) * sizeof *weights);
        int64_t pairs[2], count[2], again;
        for (int k = 0; k < 6; k++)
            out[k] = lab_new(l, (size_t)(n * D) * sizeof(double));
        for (int k = 0; k < 2 && !l->failed; k++) {
            head(l, w, x, n, k ? ATTN_MASK_CAUSAL : 0, out[k], weights, &count[k]);
            pairs[k] = l->failed ? -1 : nonzero(weights, n * n);
        }
        if (l->failed || !feed_forward(l, up, down, x, n, out[2]))
            return;
        x[at * D] += 1; /* one feature of one position moves */
        for (int k = 0; k < 2; k++)
            if (!head(l, w, x, n, k ? ATTN_MASK_CAUSAL : 0, out[3 + k], NULL, &again))
                return;
        if (!feed_forward(l, up, down, x, n, out[5]))
            return;
        row[0] = (double)n, row[1] = (double)pairs[0], row[2] = (double)pairs[1], row[3] = (double)count[0];
        row[4] = (double)rows_changed(out[0], out[3], n), row[5] = (double)rows_changed(out[1], out[4], n);
        row[6] = (double)rows_changed(out[2], out[5], n);
        lab_row(l, row);
        full = full && pairs[0] == n * n;
        causal = causal && pairs[1] == n * (n + 1) / 2;
        parameters = parameters && count[0] == 3 * D * D && count[1] == 3 * D * D;
        everyone = everyone && row[4] == (double)n && row[5] == (double)(n - at);
        own = own && row[6] == 1 && memcmp(out[2] + at * D, out[5] + at * D, D * sizeof(double)) != 0;
    }
    if (l->failed)
        return;
    l->result->log_x = l->result->log_y = true;
    l->result->drawn = 0x7E;
    l->result->y_label = "count";
    lab_expect(l, full, "n^2 comparisons without a mask");
    lab_expect(l, causal, "n (n + 1) / 2 under the causal mask");
    lab_expect(l, parameters, "W_Q, W_K and W_V alone are learned, 3 d^2 numbers at every length");
    lab_expect(l, own, "the feed-forward part: one changed position changes its own output and no other");
    lab_expect(l, everyone, "attention: one changed position changes every output that can see it");
    lab_say(l, "Counted, not computed from formulas: weights that are not zero, entries of the matrices with a gradient that is "
            "not zero, and outputs whose bits change when one feature of position n / 2 + 1 moves. A head of width %d has 3 x %d "
            "x %d = %d parameters at every n; it compares n^2 pairs, and n (n + 1) / 2 of them under the causal mask. The "
            "change reaches all outputs of full attention, the later half of causal attention, and one of the feed-forward "
            "part. (W_O, which joins several heads, is a fourth matrix: \"only\" holds for the single head.)", D, D, D,
            3 * D * D);
}
