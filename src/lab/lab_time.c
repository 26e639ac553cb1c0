/* lab_time.c - what is measured with a clock: attention against length, fused and as an n x n matrix; recurrent networks
 * against attention. Each time is the least of several runs; of fused and n x n, on one thread, by
 * processor time, which other work lengthens less. */
#include <math.h>
#include <string.h>
#include "lab/lab.h"

enum { DIM = 64 };

/* ---- Fused and n x n ---- */

/* The formula as it stands, three loops over a stored matrix of scores [n, n]. */
static void plainly(int64_t n, const float *query, const float *key, const float *value, float *scores, float *out)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t d = 0; d < DIM; d++)
                sum += query[i * DIM + d] * key[j * DIM + d];
            scores[i * n + j] = sum / 8; /* sqrt(64) */
        }
    for (int64_t i = 0; i < n; i++) {
        float largest = -INFINITY, total = 0;
        for (int64_t j = 0; j < n; j++)
            largest = fmaxf(largest, scores[i * n + j]);
        for (int64_t j = 0; j < n; j++)
            total += scores[i * n + j] = expf(scores[i * n + j] - largest);
        for (int64_t j = 0; j < n; j++)
            scores[i * n + j] /= total;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < DIM; d++)
            out[i * DIM + d] = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t d = 0; d < DIM; d++)
                out[i * DIM + d] += scores[i * n + j] * value[j * DIM + d];
}

typedef struct times {
    double fused, plain, difference;
    size_t fused_bytes;
} times;

static bool measure_cost(lab *l, int64_t n, times *t)
{
    float *x[3], *out = lab_new(l, (size_t)(n * DIM) * sizeof *out), *fused = lab_new(l, (size_t)(n * DIM) * sizeof *out);
    float *scores = lab_new(l, (size_t)(n * n) * sizeof *scores);
    attn_sdpa_args a;
    for (int k = 0; k < 3; k++)
        x[k] = lab_normal_f32(l, n * DIM, 1);
    if (l->failed)
        return false;
    ATTN_ARGS_INIT(&a);
    a.query = attn_cview_of(x[0], ATTN_F32, 1, 1, n, DIM);
    a.key = attn_cview_of(x[1], ATTN_F32, 1, 1, n, DIM);
    a.value = attn_cview_of(x[2], ATTN_F32, 1, 1, n, DIM);
    a.out = attn_view_of(fused, ATTN_F32, 1, 1, n, DIM);
    if (!lab_ok(l, attn_sdpa_workspace(l->ctx, &a, &t->fused_bytes)))
        return false;
    void *workspace = lab_new(l, t->fused_bytes);
    t->fused = t->plain = INFINITY;
    const int runs = n <= 256 ? 9 : 3;
    for (int r = 0; r < runs && !l->failed; r++) {
        double start = lab_processor_seconds();
        if (!lab_ok(l, attn_sdpa_forward(l->ctx, &a, workspace, t->fused_bytes)))
            return false;
        t->fused = fmin(t->fused, lab_processor_seconds() - start);
        start = lab_processor_seconds();
        plainly(n, x[0], x[1], x[2], scores, out);
        t->plain = fmin(t->plain, lab_processor_seconds() - start);
    }
    t->difference = 0;
    for (int64_t i = 0; i < n * DIM; i++)
        t->difference = fmax(t->difference, (double)fabsf(out[i] - fused[i]));
    return !l->failed;
}

void lab_cost(lab *l)
{
    static const char *const names[] = {"n", "fused, ms", "n x n, ms", "fused, KiB", "n x n, KiB"};
    const int last = l->quick ? 8 : 10;
    double row[5] = {0}, before[5] = {0}, difference = 0, crossover = NAN;
    times t;
    lab_columns(l, 5, names);
    for (int p = 0; p < last; p++) {
        const int64_t n = (int64_t)8 << p;
        for (int c = 0; c < 5; c++)
            before[c] = row[c];
        if (!measure_cost(l, n, &t))
            return;
        row[0] = (double)n, row[1] = 1e3 * t.fused, row[2] = 1e3 * t.plain;
        row[3] = (double)t.fused_bytes / 1024, row[4] = (double)(n * n) * sizeof(float) / 1024;
        difference = fmax(difference, t.difference);
        crossover = row[1] >= row[2] ? NAN : isnan(crossover) ? row[0] : crossover;
        lab_row(l, row);
    }
    l->result->log_x = l->result->log_y = true;
    l->result->drawn = 0x1E;
    l->result->y_label = "milliseconds, KiB";
    const double fused = log2(row[1] / before[1]), plain = log2(row[2] / before[2]);
    lab_expect(l, fused > 1.5 && fused < 2.5, "time of the fused operator grows with the square of n");
    lab_expect(l, plain > 1.5, "so does that of the n x n form, or faster");
    lab_expect(l, row[4] == 4 * before[4], "the n x n form's memory grows with the square, too");
    lab_expect(l, row[3] <= 2 * before[3] + 64, "the fused operator's memory does not");
    lab_expect(l, difference < 1e-4, "both give the same outputs");
    lab_say(l, "One head of width %d, f32, one thread, processor time, the least of several runs. From n = %.0f to %.0f the fused operator's time "
            "grows by n^%.2f and that of the n x n form by n^%.2f. The matrix takes %.0f KiB at n = %.0f, the operator's "
            "workspace %.0f KiB. ", DIM, before[0], row[0], fused, plain, row[4], row[0], row[3]);
    if (isnan(crossover))
        lab_say(l, "The n x n form is faster even at the longest length. ");
    else
        lab_say(l, "The fused operator is faster from n = %.0f on, at n = %.0f by %.1f times. ", crossover, row[0],
                row[2] / row[1]);
    lab_say(l, "The plain form is C as it stands and the operator has vector kernels, so the distance between the two times says "
            "little about memory; the exponents and the bytes do not depend on that. So the arithmetic is quadratic either way, "
            "and the memory only where the matrix is stored. Largest difference of an output: %.2g.", difference);
}

/* ---- Recurrent and attention ---- */

/* Seconds of one forward and backward pass over one sequence. */
static double recurrent_pass(lab *l, attn_layers *layers, const attn_rnn_args *a, const attn_rnn_gradients *g)
{
    const double start = lab_seconds();
    const attn_status status = attn_rnn_forward(layers, a);
    lab_ok(l, status == ATTN_OK ? attn_rnn_backward(layers, a, g) : status);
    return lab_seconds() - start;
}

static double attention_pass(lab *l, attn_layers *layers, const attn_mha_args *a, const attn_mha_gradients *g)
{
    const double start = lab_seconds();
    const attn_status status = attn_mha_forward(layers, a);
    lab_ok(l, status == ATTN_OK ? attn_mha_backward(layers, a, g) : status);
    return lab_seconds() - start;
}

typedef struct workbench {
    attn_rnn_args rnn;
    attn_rnn_gradients rnn_gradients;
    attn_mha_args mha;
    attn_mha_gradients mha_gradients;
} workbench;

/* Both layers with weights of one size, 4 x 64 x 64, over one sequence. */
static bool set_up(lab *l, int64_t n, workbench *w)
{
    const size_t row_bytes = (size_t)(n * DIM) * sizeof(float), weight_bytes = DIM * DIM * sizeof(float);
    const double deviation = 1 / sqrt(2.0 * DIM);
    size_t bytes = 0;
    ATTN_ARGS_INIT(&w->rnn), ATTN_ARGS_INIT(&w->rnn_gradients), ATTN_ARGS_INIT(&w->mha), ATTN_ARGS_INIT(&w->mha_gradients);
    attn_rnn_args *r = &w->rnn;
    r->dtype = ATTN_F32, r->kind = ATTN_RNN_ELMAN, r->batch = 1, r->seq = n, r->d_in = DIM, r->d_hidden = DIM;
    r->x = lab_normal_f32(l, n * DIM, 1), r->out = lab_new(l, row_bytes);
    r->weights.w_input = lab_normal_f32(l, DIM * DIM, deviation);
    r->weights.w_hidden = lab_normal_f32(l, DIM * DIM, deviation);
    w->rnn_gradients.d_out = lab_normal_f32(l, n * DIM, 1), w->rnn_gradients.d_x = lab_new(l, row_bytes);
    w->rnn_gradients.weights.w_input = lab_new(l, weight_bytes), w->rnn_gradients.weights.w_hidden = lab_new(l, weight_bytes);
    attn_mha_args *m = &w->mha;
    m->dtype = ATTN_F32, m->batch = 1, m->seq_q = n, m->d_query = DIM, m->n_heads = 1, m->head_dim = DIM;
    m->query = r->x, m->out = lab_new(l, row_bytes), m->mask.flags = ATTN_MASK_CAUSAL;
    m->weights.w_query = lab_normal_f32(l, DIM * DIM, deviation), m->weights.w_key = lab_normal_f32(l, DIM * DIM, deviation);
    m->weights.w_value = lab_normal_f32(l, DIM * DIM, deviation), m->weights.w_out = lab_normal_f32(l, DIM * DIM, deviation);
    w->mha_gradients.d_out = w->rnn_gradients.d_out, w->mha_gradients.d_query = lab_new(l, row_bytes);
    w->mha_gradients.weights.w_query = lab_new(l, weight_bytes), w->mha_gradients.weights.w_key = lab_new(l, weight_bytes);
    w->mha_gradients.weights.w_value = lab_new(l, weight_bytes), w->mha_gradients.weights.w_out = lab_new(l, weight_bytes);
    if (!lab_ok(l, attn_rnn_saved_bytes(l->layers, r, &bytes)))
        return false;
    r->saved = lab_new(l, bytes);
    if (!lab_ok(l, attn_mha_saved_bytes(l->layers, m, &bytes)))
        return false;
    m->saved = lab_new(l, bytes);
    return !l->failed;
}

/* The second half of the recurrent network's sequence alone, from the first half's last state or from none. *same: with
 * the state the bits are those of the whole; *needed: without it none of the outputs is. */
static bool halves(lab *l, const attn_rnn_args *whole, bool *same, bool *needed)
{
    const int64_t half = whole->seq / 2;
    const float *out = whole->out;
    float *last = lab_new(l, DIM * sizeof *last), *again = lab_new(l, (size_t)(whole->seq * DIM) * sizeof *again);
    attn_rnn_args a = *whole;
    if (l->failed)
        return false;
    a.saved = NULL, a.out = again, a.seq = half, a.hidden_last = last;
    if (!lab_ok(l, attn_rnn_forward(l->layers, &a)))
        return false;
    a.x = (const float *)whole->x + half * DIM, a.seq = whole->seq - half, a.hidden_last = NULL;
    *needed = true;
    for (int without = 0; without < 2; without++) {
        a.hidden0 = without ? NULL : last;
        if (!lab_ok(l, attn_rnn_forward(l->layers, &a)))
            return false;
        if (!without)
            *same = memcmp(again, out + half * DIM, (size_t)(a.seq * DIM) * sizeof *out) == 0;
        else /* far from the border a network that forgets may come back to the same bits: the first output cannot */
            *needed = memcmp(again, out + half * DIM, DIM * sizeof *out) != 0;
    }
    return true;
}

/* Attention's outputs on one thread and on two, bit for bit. */
static bool threads_agree(lab *l, attn_layers *two, const attn_mha_args *whole, bool *same)
{
    float *out[2];
    for (int k = 0; k < 2; k++) {
        attn_mha_args a = *whole;
        a.saved = NULL, a.out = out[k] = lab_new(l, (size_t)(whole->seq_q * DIM) * sizeof **out);
        if (l->failed || !lab_ok(l, attn_mha_forward(k ? two : l->layers, &a)))
            return false;
    }
    *same = memcmp(out[0], out[1], (size_t)(whole->seq_q * DIM) * sizeof **out) == 0;
    return true;
}

void lab_serial(lab *l)
{
    static const char *const names[] = {"n", "Elman RNN, 1 thread", "Elman RNN, 2 threads", "attention, 1 thread",
                                        "attention, 2 threads"};
    const int last = l->quick ? 5 : 8;
    attn_layers *two = NULL;
    attn_ctx_options options;
    workbench w;
    double row[5] = {0}, first[5] = {0};
    ATTN_ARGS_INIT(&options);
    options.n_threads = 2;
    lab_columns(l, 5, names);
    if (!lab_ok(l, attn_layers_create(&options, &two)))
        return;
    for (int p = 0; p < last && set_up(l, (int64_t)32 << p, &w); p++) {
        const int64_t n = (int64_t)32 << p;
        row[0] = (double)n, row[1] = row[2] = row[3] = row[4] = INFINITY;
        for (int run = 0; run < 5 && !l->failed; run++)
            for (int k = 0; k < 2; k++) {
                attn_layers *layers = k ? two : l->layers;
                row[1 + k] = fmin(row[1 + k], 1e6 * recurrent_pass(l, layers, &w.rnn, &w.rnn_gradients) / (double)n);
                row[3 + k] = fmin(row[3 + k], 1e6 * attention_pass(l, layers, &w.mha, &w.mha_gradients) / (double)n);
            }
        lab_row(l, row);
        for (int c = 0; p == 0 && c < 5; c++)
            first[c] = row[c];
    }
    bool state_same = false, state_needed = false, thread_same = false;
    if (!l->failed && halves(l, &w.rnn, &state_same, &state_needed))
        threads_agree(l, two, &w.mha, &thread_same);
    attn_layers_destroy(two);
    if (l->failed)
        return;
    l->result->log_x = l->result->log_y = true;
    l->result->drawn = 0x1E;
    lab_expect(l, state_same && state_needed, "the recurrent network's next output needs the state before it: with it the bits are "
               "those of the whole pass, without it they are not");
    lab_expect(l, thread_same, "attention's positions can be divided among threads: two give the bits of one");
    l->result->y_label = "microseconds a token, forward and backward";
    lab_expect(l, row[1] < 2 * first[1], "the recurrent network's time of a token does not depend on the length");
    lab_expect(l, row[2] > 0.75 * row[1], "a second thread does not make one recurrent sequence a third faster");
    lab_expect(l, row[4] < 0.75 * row[3], "it makes attention at least a third faster");
    lab_expect(l, row[3] < row[1], "at the longest length a token costs less in attention, on one thread");
    lab_say(l, "One sequence, width %d, forward and backward, the least of 5 runs. At n = %.0f a token takes %.2f us in the Elman "
            "network on one thread and %.2f us on two, in causal attention %.2f and %.2f us; at n = %.0f it was %.2f, %.2f, %.2f "
            "and %.2f. ", DIM, row[0], row[1], row[2], row[3], row[4], first[0], first[1], first[2], first[3], first[4]);
    lab_say(l, "The chain keeps a second thread from helping the recurrent network by more than the part of its work that is "
            "not in the chain (the products with the inputs, the weights' gradients). What attention wins by having no chain "
            "it pays back with length: its work per token grows with n, the recurrent network's does not, and on a CPU with "
            "two threads the lines can cross. Times of a machine that does other work, too, vary; run it alone.");
}
