/* lab_recall.c - a task that only the far end of the path decides: name at the end the letter that came first. Networks are
 * trained for it at growing distance; then the gradient along the path is taken of the trained ones. */
#include <math.h>
#include "lab/lab_net.h"

enum { LETTERS = 8, NOISE = 8, MARK = LETTERS + NOISE, VOCAB = MARK + 1, D = 32, BATCH = 32, TEST = 8, NETS = 3 };

/* A letter, n - 2 of noise, the mark: at the mark the letter is to be named. */
static void draw(lab *l, int64_t n, int32_t *ids, int32_t *targets)
{
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = b * n + i;
            ids[at] = (int32_t)(i == 0 ? lab_below(l, LETTERS) : i == n - 1 ? MARK : LETTERS + lab_below(l, NOISE));
            targets[at] = i == n - 1 ? ids[b * n] : -1;
        }
}

typedef struct trained {
    double accuracy, before, after; /* of fresh sequences; norms of the path's gradient */
} trained;

static bool train(lab *l, int32_t kind, int64_t n, int64_t steps, double rate, trained *t)
{
    lab_net_options o = {0};
    o.kind = kind, o.causal = true, o.vocab = VOCAB, o.classes = LETTERS, o.batch = BATCH, o.seq = n, o.d_model = D;
    o.n_heads = 1, o.head_dim = D;
    const int n_blocks = l->n_blocks;
    lab_net *net = lab_net_new(l, &o);
    int32_t *ids = lab_new(l, (size_t)(BATCH * n) * sizeof *ids), *targets = lab_new(l, (size_t)(BATCH * n) * sizeof *targets);
    const lab_batch b = {ids, NULL, targets};
    if (l->failed)
        return false;
    draw(l, n, ids, targets);
    t->before = lab_net_reach(net, &b);
    for (int64_t s = 0; s < steps && !l->failed; s++) {
        draw(l, n, ids, targets);
        lab_net_train(net, &b, rate * (double)(steps - s) / (double)steps);
    }
    t->accuracy = 0;
    for (int k = 0; k < TEST && !l->failed; k++) {
        double share = 0;
        draw(l, n, ids, targets);
        lab_net_loss(net, &b, &share);
        t->accuracy += share / TEST;
    }
    t->after = lab_net_reach(net, &b);
    lab_release(l, n_blocks);
    return !l->failed;
}

void lab_recall(lab *l)
{
    static const char *const names[] = {"n", "Elman RNN, recalled", "LSTM, recalled", "attention, recalled", "Elman RNN, gradient",
                                        "LSTM, gradient", "attention, gradient", "attention untrained, gradient"};
    static const int32_t kinds[NETS] = {LAB_NET_ELMAN, LAB_NET_LSTM, LAB_NET_MHA};
    static const double rates[] = {1e-2, 3e-3};
    static const int64_t quick[] = {4, 16, 48}, full[] = {4, 8, 16, 32, 64, 128};
    const int64_t *sizes = l->quick ? quick : full, n_sizes = l->quick ? 3 : 6, steps = l->quick ? 300 : 500;
    const int tries = l->quick ? 1 : 2;
    double row[8] = {0}, first[8];
    lab_columns(l, 8, names);
    for (int64_t s = 0; s < n_sizes; s++) {
        row[0] = (double)sizes[s];
        for (int k = 0; k < NETS; k++) {
            row[1 + k] = -1;
            for (int r = 0; r < tries; r++) {
                trained t;
                if (!train(l, kinds[k], sizes[s], steps, rates[r], &t))
                    return;
                if (t.accuracy > row[1 + k])
                    row[1 + k] = t.accuracy, row[4 + k] = t.after;
                row[7] = kinds[k] == LAB_NET_MHA && r == 0 ? t.before : row[7];
            }
        }
        lab_row(l, row);
        for (int c = 0; s == 0 && c < 8; c++)
            first[c] = row[c];
    }
    l->result->log_x = true;
    l->result->drawn = 0xE;
    l->result->y_label = "share recalled (chance: 1/8)";
    lab_expect(l, first[1] > 0.95 && first[2] > 0.95 && first[3] > 0.95, "at the shortest distance all three recall");
    lab_expect(l, row[1] < 0.5, "at the longest distance the Elman network does not");
    lab_expect(l, row[3] > 0.7, "attention still does (over 0.7; chance is 0.125)");
    lab_expect(l, row[2] < 0.5, "nor does the LSTM");
    lab_expect(l, row[6] > 0.25 * first[6], "trained attention's gradient to the first input does not fall with the distance");
    lab_expect(l, row[6] > 2 * row[7], "training has raised it above the untrained head's");
    lab_say(l, "Sequences of n tokens: one of %d letters, n - 2 tokens of noise, a mark; at the mark the letter is to be named "
            "(chance %.3f). Width %d, one layer, %lld steps of %d sequences (Adam%s). At n = %.0f the Elman network recalls %.2f "
            "of new sequences, the LSTM (forget bias 1) %.2f, attention %.2f; at n = %.0f it is %.2f, %.2f and %.2f. ", LETTERS,
            1.0 / LETTERS, D, (long long)steps, BATCH, tries > 1 ? ", the better of two learning rates for each" : "", first[0],
            first[1], first[2], first[3], row[0], row[1], row[2], row[3]);
    lab_say(l, "The gradient of the last output with respect to the first input, in the trained networks at n = %.0f: Elman %.2g, "
            "LSTM %.2g, attention %.2g, where the untrained head had %.2g. A head that has learnt where to look puts its weight "
            "there, and the path of length 1 then carries the gradient whatever the distance; an untrained head spreads it. "
            "The LSTM's gates carry it further than the plain network, and at the longest length it has %s: slowed down, not ended, "
            "as the lessons say. These are lengths and steps of training of this experiment; longer training moves the borders.",
            row[0], row[4], row[5], row[6], row[7], row[2] < 0.5 ? "lost it, too" : "not lost it yet");
}
