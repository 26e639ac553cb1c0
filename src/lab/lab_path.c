/* lab_path.c - the whole Jacobian of the last output with respect to the first input, for recurrent networks and attention
 * with untrained weights. A batch of d copies of one sequence, copy k with the gradient of output feature k, makes one
 * backward call give all of its rows. */
#include <math.h>
#include "lab/lab.h"

enum { D = 32, NETS = 4 };

/* Frobenius norm of the first rows of d copies. */
static double norm_of_first(const double *d_x, int64_t n)
{
    double square = 0;
    for (int64_t k = 0; k < D; k++)
        for (int64_t i = 0; i < D; i++)
            square += d_x[k * n * D + i] * d_x[k * n * D + i];
    return sqrt(square);
}

static double recurrent(lab *l, int32_t kind, double forget_bias, int64_t n, const double *x, const double *d_out)
{
    const int64_t gates = kind == ATTN_RNN_LSTM ? 4 : 1;
    const double bound = 1 / sqrt((double)D); /* PyTorch's initial weights */
    attn_rnn_args a;
    attn_rnn_gradients g;
    size_t bytes = 0;
    double *bias = lab_new(l, (size_t)(gates * D) * sizeof *bias);
    ATTN_ARGS_INIT(&a), ATTN_ARGS_INIT(&g);
    a.dtype = ATTN_F64, a.kind = kind, a.batch = D, a.seq = n, a.d_in = D, a.d_hidden = D, a.x = x;
    a.weights.w_input = lab_uniform(l, gates * D * D, bound);
    a.weights.w_hidden = lab_uniform(l, gates * D * D, bound);
    for (int64_t i = D; bias && i < 2 * D && gates == 4; i++)
        bias[i] = forget_bias;
    a.weights.b_input = bias;
    a.out = lab_new(l, (size_t)(D * n * D) * sizeof(double));
    g.d_out = d_out;
    g.d_x = lab_new(l, (size_t)(D * n * D) * sizeof(double));
    if (!lab_ok(l, attn_rnn_saved_bytes(l->layers, &a, &bytes)))
        return NAN;
    a.saved = lab_new(l, bytes);
    if (l->failed || !lab_ok(l, attn_rnn_forward(l->layers, &a)) || !lab_ok(l, attn_rnn_backward(l->layers, &a, &g)))
        return NAN;
    return norm_of_first(g.d_x, n);
}

static double attention(lab *l, int64_t n, const double *x, const double *d_out)
{
    attn_mha_args a;
    attn_mha_gradients g;
    size_t bytes = 0;
    ATTN_ARGS_INIT(&a), ATTN_ARGS_INIT(&g);
    a.dtype = ATTN_F64, a.batch = D, a.seq_q = n, a.d_query = D, a.n_heads = 1, a.head_dim = D, a.query = x;
    a.mask.flags = ATTN_MASK_CAUSAL;
    a.weights.w_query = lab_uniform(l, D * D, 1 / sqrt((double)D));
    a.weights.w_key = lab_uniform(l, D * D, 1 / sqrt((double)D));
    a.weights.w_value = lab_uniform(l, D * D, 1 / sqrt((double)D));
    a.out = lab_new(l, (size_t)(D * n * D) * sizeof(double));
    g.d_out = d_out;
    g.d_query = lab_new(l, (size_t)(D * n * D) * sizeof(double));
    if (!lab_ok(l, attn_mha_saved_bytes(l->layers, &a, &bytes)))
        return NAN;
    a.saved = lab_new(l, bytes);
    if (l->failed || !lab_ok(l, attn_mha_forward(l->layers, &a)) || !lab_ok(l, attn_mha_backward(l->layers, &a, &g)))
        return NAN;
    return norm_of_first(g.d_query, n);
}

/* Means of ln |J| over seeds, made norms again. */
static void measure(lab *l, int64_t n, int seeds, double norms[NETS])
{
    double sums[NETS] = {0};
    for (int s = 0; s < seeds && !l->failed; s++) {
        double *one = lab_normal(l, n * D, 1);
        double *x = lab_new(l, (size_t)(D * n * D) * sizeof *x), *d_out = lab_new(l, (size_t)(D * n * D) * sizeof *d_out);
        if (l->failed)
            return;
        for (int64_t k = 0; k < D; k++) {
            for (int64_t i = 0; i < n * D; i++)
                x[k * n * D + i] = one[i];
            d_out[(k * n + n - 1) * D + k] = 1;
        }
        sums[0] += log(recurrent(l, ATTN_RNN_ELMAN, 0, n, x, d_out));
        sums[1] += log(recurrent(l, ATTN_RNN_LSTM, 0, n, x, d_out));
        sums[2] += log(recurrent(l, ATTN_RNN_LSTM, 3, n, x, d_out));
        sums[3] += log(attention(l, n, x, d_out));
    }
    for (int k = 0; k < NETS; k++)
        norms[k] = exp(sums[k] / seeds);
}

void lab_path(lab *l)
{
    static const char *const names[] = {"n", "Elman RNN", "LSTM", "LSTM, forget bias 3", "attention"};
    const int last = l->quick ? 6 : 8, seeds = 2;
    double row[5] = {0}, near[5] = {0};
    lab_columns(l, 5, names);
    for (int p = 1; p <= last && !l->failed; p++) {
        const int64_t n = (int64_t)1 << p;
        row[0] = (double)n;
        measure(l, n, seeds, row + 1);
        lab_row(l, row);
        for (int c = 0; p == 1 && c < 5; c++)
            near[c] = row[c];
    }
    if (l->failed)
        return;
    l->result->log_x = l->result->log_y = true;
    l->result->drawn = 0x1E;
    l->result->y_label = "norm of d output n / d input 1";
    const double steps = row[0] - near[0];
    double factor[5];
    for (int c = 1; c < 5; c++)
        factor[c] = pow(row[c] / near[c], 1 / steps);
    const double power = log(row[4] / near[4]) / log(row[0] / near[0]);
    lab_expect(l, factor[1] < 0.9, "the Elman network's gradient falls by a constant factor a step");
    lab_expect(l, factor[2] < 0.9, "so does the LSTM's with its usual initial weights");
    lab_expect(l, factor[3] > factor[1],
               "with a forget gate that starts open the LSTM's falls more slowly than the Elman network's");
    lab_expect(l, factor[2] > factor[1], "even the usual LSTM's falls more slowly than the Elman network's");
    lab_expect(l, row[3] < near[3] / 10, "with the open forget gate it still fades to a tenth");
    lab_expect(l, row[4] > 1e3 * row[1] && power > -2, "attention's falls no faster than a power of n, far slower");
    lab_expect(l, row[4] > 0.5 * near[4], "attention's does not depend on the distance");
    lab_say(l, "From n = %.0f to n = %.0f the norm falls from %.3g to %.3g in the Elman network (a factor %.3f a step), from %.3g "
            "to %.3g in the LSTM (%.3f), from %.3g to %.3g in an LSTM whose forget bias is 3 (%.3f), and from %.3g to %.3g in "
            "causal attention, about n^%.2f. ", near[0], row[0], near[1], row[1], factor[1], near[2], row[2], factor[2], near[3],
            row[3], factor[3], near[4], row[4], power);
    lab_say(l, "So the gradients of the Elman network and of the usual LSTM vanish with distance and attention's falls only as a "
            "power of it; whether the LSTM is slower than the plain network depends on its forget gate, here %s with the usual "
            "initial weights. That the path has length 1 does not make the gradient constant: an untrained head spreads its weight "
            "over all n positions, and each gets about 1/n of it. Weights are untrained (uniform, width %d, %d seeds); a trained "
            "head can put its weight where it is needed, as attn lab recall shows. Where the forget gate starts open the "
            "untrained LSTM %s: besides the cell's own path, whose factor is the gate, the gradient runs through the gates, and "
            "the cell's growing sums probably make that path strong (not measured apart).",
            factor[2] > factor[1] ? "it is slower" : "it is not slower", D, seeds,
            row[3] < near[3] / 10 ? "fades, too" : "hardly fades at these lengths");
}
