/* lab_lookback.c - attention as it came into recurrent networks: a decoder that weighs all states of the encoder at every
 * step (Bahdanau et al. 2015). Untrained weights: what holds is the mechanism, not what it finds. */
#include <math.h>
#include <string.h>
#include "lab/lab.h"

enum { D = 16, STATES = 8, STEPS = 4 };

static bool decode(lab *l, attn_decoder_rnn_args *a, const double *states, double *out, double *align)
{
    a->states = states, a->out = out, a->align = align;
    return lab_ok(l, attn_decoder_rnn_forward(l->layers, a));
}

void lab_lookback(lab *l)
{
    static const char *const names[] = {"encoder state", "weight at step 1", "at step 2", "at step 3", "at step 4"};
    const double deviation = 1 / sqrt(D);
    double *states = lab_normal(l, STATES * D, 1), *out = lab_new(l, STEPS * D * sizeof *out);
    double *again = lab_new(l, STEPS * D * sizeof *out), *align = lab_new(l, STEPS * STATES * sizeof *align);
    bool sums = true, positive = true, all = true;
    attn_decoder_rnn_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = ATTN_F64, a.kind = ATTN_RNN_ELMAN, a.batch = 1, a.seq = STEPS, a.seq_states = STATES;
    a.d_in = a.d_hidden = a.d_state = a.d_align = D, a.x = lab_normal(l, STEPS * D, 1);
    a.weights.w_align_query = lab_normal(l, D * D, deviation), a.weights.w_align_key = lab_normal(l, D * D, deviation);
    a.weights.v_align = lab_normal(l, D, 1), a.weights.rnn.w_input = lab_normal(l, 2 * D * D, deviation);
    a.weights.rnn.w_hidden = lab_normal(l, D * D, deviation);
    if (l->failed || !decode(l, &a, states, out, align))
        return;
    lab_columns(l, 1 + STEPS, names);
    for (int j = 0; j < STATES; j++) {
        const double row[1 + STEPS] = {j + 1, align[j], align[STATES + j], align[2 * STATES + j], align[3 * STATES + j]};
        lab_row(l, row);
        states[j * D] += 1; /* one feature of one state moves */
        if (!decode(l, &a, states, again, NULL))
            return;
        states[j * D] -= 1;
        for (int t = 0; t < STEPS; t++) {
            positive = positive && align[t * STATES + j] > 0;
            all = all && memcmp(out + t * D, again + t * D, D * sizeof *out) != 0;
        }
    }
    for (int t = 0; t < STEPS; t++) {
        double sum = 0;
        for (int j = 0; j < STATES; j++)
            sum += align[t * STATES + j];
        sums = sums && fabs(sum - 1) < 1e-12;
    }
    l->result->drawn = 0x1E;
    l->result->y_label = "weight";
    lab_expect(l, positive && sums, "at every step every encoder state has a weight, and they sum to one");
    lab_expect(l, all, "any one state, changed, changes what the decoder gives at every step");
    lab_say(l, "A recurrent decoder of %d steps over %d encoder states, weights v . tanh(W h + U s) with random W, U and v. Each step's last "
            "state asks all states of the encoder, near and far alike; self-attention does the same inside one sequence. The weights "
            "are those of an untrained network and mean nothing else.", STEPS, STATES);
}
