/* lab_mask.c - what the causal mask is for: a small language whose entropy is known, learnt with the mask and without it. A
 * loss below the entropy is not skill: the answer was read. */
#include <math.h>
#include <string.h>
#include "lab/lab_net.h"

enum { SENTENCE = 9, SENTENCES = 2, SEQ = SENTENCE * SENTENCES, BATCH = 32, D = 32, CLASSES = 3, EACH = 4 };
enum { THE, WAS, BECAUSE, IT, STOP, NOUNS, STATES = NOUNS + CLASSES * EACH, REASONS = STATES + CLASSES * EACH,
       VOCAB = REASONS + CLASSES * EACH };

static const char *const words[VOCAB] = {
    "the", "was", "because", "it", ".",
    "bridge", "road", "tower", "station", "horse", "dog", "bird", "cat", "engine", "clock", "radio", "pump",
    "closed", "painted", "built", "crowded", "fed", "tame", "asleep", "chased", "stopped", "noisy", "wound", "sold",
    "narrow", "icy", "historic", "flooded", "hungry", "tired", "young", "frightened", "rusty", "broken", "oiled", "obsolete"};

/* the NOUN was STATE because it was REASON . : state and reason are of the noun's class. */
static void draw(lab *l, int32_t *ids)
{
    for (int s = 0; s < BATCH * SENTENCES; s++) {
        const int32_t noun = (int32_t)lab_below(l, CLASSES * EACH), of_class = noun / EACH * EACH;
        const int32_t text[SENTENCE] = {THE, NOUNS + noun, WAS, STATES + of_class + (int32_t)lab_below(l, EACH), BECAUSE, IT, WAS,
                                        REASONS + of_class + (int32_t)lab_below(l, EACH), STOP};
        memcpy(ids + s * SENTENCE, text, sizeof text);
    }
}

static bool of_language(const int32_t *t)
{
    const int32_t noun = t[1] - NOUNS, state = t[3] - STATES, reason = t[7] - REASONS, all = CLASSES * EACH;
    return t[0] == THE && t[2] == WAS && t[4] == BECAUSE && t[5] == IT && t[6] == WAS && t[8] == STOP && noun >= 0 && noun < all &&
           state >= 0 && state < all && reason >= 0 && reason < all && noun / EACH == state / EACH &&
           noun / EACH == reason / EACH;
}

static void targets_of(const int32_t *ids, int32_t *targets)
{
    for (int i = 0; i < BATCH * SEQ; i++)
        targets[i] = (i + 1) % SEQ ? ids[i + 1] : -1;
}

/* Mean loss when each token is predicted with nothing behind it: prefixes of every length. */
static double loss_of_prefixes(lab *l, lab_net *net, const int32_t *ids)
{
    int32_t part[BATCH * SEQ], targets[BATCH * SEQ];
    const lab_batch b = {part, NULL, targets};
    double sum = 0;
    for (int n = 1; n < SEQ && !l->failed; n++) {
        lab_net_set_length(net, n);
        for (int s = 0; s < BATCH; s++)
            for (int i = 0; i < n; i++) {
                part[s * n + i] = ids[s * SEQ + i];
                targets[s * n + i] = i == n - 1 ? ids[s * SEQ + n] : -1;
            }
        sum += lab_net_loss(net, &b, NULL) / (SEQ - 1);
    }
    lab_net_set_length(net, SEQ);
    return sum;
}

static int32_t sample(lab *l, const float *logits)
{
    double largest = -INFINITY, sum = 0, at = lab_unit(l);
    for (int v = 0; v < VOCAB; v++)
        largest = fmax(largest, (double)logits[v]);
    for (int v = 0; v < VOCAB; v++)
        sum += exp((double)logits[v] - largest);
    for (int v = 0; v < VOCAB; v++)
        if ((at -= exp((double)logits[v] - largest) / sum) <= 0)
            return v;
    return VOCAB - 1;
}

/* Texts written token by token after "the": ids [BATCH, SEQ]. */
static bool write_texts(lab *l, lab_net *net, int32_t *ids)
{
    static float logits[BATCH * SEQ * VOCAB];
    int32_t part[BATCH * SEQ];
    for (int s = 0; s < BATCH; s++)
        ids[s * SEQ] = THE;
    for (int n = 1; n < SEQ && !l->failed; n++) {
        lab_net_set_length(net, n);
        for (int s = 0; s < BATCH; s++)
            memcpy(part + s * n, ids + s * SEQ, (size_t)n * sizeof *part);
        if (!lab_net_logits(net, part, logits))
            return false;
        for (int s = 0; s < BATCH; s++)
            ids[s * SEQ + n] = sample(l, logits + (s * n + n - 1) * VOCAB);
    }
    lab_net_set_length(net, SEQ);
    return !l->failed;
}

static double share_of_language(const int32_t *ids)
{
    int good = 0;
    for (int s = 0; s < BATCH * SENTENCES; s++)
        good += of_language(ids + s * SENTENCE);
    return (double)good / (BATCH * SENTENCES);
}

static void spell(const int32_t *ids, char *text, size_t capacity)
{
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < SENTENCE && n < capacity; i++)
        n += (size_t)snprintf(text + n, capacity - n, "%s%s", i ? " " : "", words[ids[i]]);
}

void lab_mask(lab *l)
{
    static const char *const names[] = {"step", "training loss, mask", "training loss, no mask", "token by token, mask",
                                        "token by token, no mask", "entropy of the language"};
    const int64_t steps = l->quick ? 200 : 400, points = l->quick ? 5 : 8;
    const double entropy = SENTENCES * (log(CLASSES * EACH) + 2 * log(EACH)) / (SEQ - 1);
    int32_t ids[BATCH * SEQ], targets[BATCH * SEQ], test[BATCH * SEQ], made[2][BATCH * SEQ];
    const lab_batch b = {ids, NULL, targets};
    lab_net_options o = {0};
    lab_net *nets[2];
    double row[6] = {0};
    char text[2][200];
    o.kind = LAB_NET_BLOCKS, o.place = ATTN_BLOCK_PRE_NORM, o.positions = true, o.vocab = o.classes = VOCAB, o.batch = BATCH;
    o.seq = SEQ, o.d_model = D, o.n_layers = 2, o.n_heads = 4, o.head_dim = D / 4;
    for (int k = 0; k < 2; k++) {
        o.causal = k == 0;
        nets[k] = lab_net_new(l, &o);
    }
    draw(l, test);
    lab_columns(l, 6, names);
    for (int64_t s = 1; s <= steps && !l->failed; s++) {
        draw(l, ids);
        targets_of(ids, targets);
        for (int k = 0; k < 2; k++)
            row[1 + k] = lab_net_train(nets[k], &b, 1e-2 * (1 - 0.9 * (double)s / (double)steps));
        if (s * points % steps >= points)
            continue;
        row[0] = (double)s, row[5] = entropy;
        for (int k = 0; k < 2; k++)
            row[3 + k] = loss_of_prefixes(l, nets[k], test);
        lab_row(l, row);
    }
    if (l->failed || !write_texts(l, nets[0], made[0]) || !write_texts(l, nets[1], made[1]))
        return;
    const double right[2] = {share_of_language(made[0]), share_of_language(made[1])};
    for (int k = 0; k < 2; k++)
        spell(made[k], text[k], sizeof text[k]);
    l->result->drawn = 0x3E;
    l->result->y_label = "loss, nats a token";
    lab_measured(l, "sentences of the language, mask", right[0]);
    lab_measured(l, "sentences of the language, no mask", right[1]);
    lab_expect(l, fabs(row[1] - entropy) < 0.15, "with the mask the training loss ends near the entropy");
    lab_expect(l, row[2] < 0.5 * entropy, "without it the training loss ends far below the entropy, where no honest predictor can be");
    lab_expect(l, fabs(row[3] - row[1]) < 0.2, "with the mask, predicting token by token costs what the training loss says");
    lab_expect(l, row[4] > row[2] + 1, "without it, it costs over a nat more: the training loss has lied");
    lab_expect(l, right[0] > 0.7 && right[1] < 0.1, "with the mask most sentences written are of the language, without it hardly any");
    lab_say(l, "A language of %d words: \"the NOUN was STATE because it was REASON .\", state and reason of the noun's class; its entropy "
            "is %.3f nats a token. Two equal stacks (two pre-norm blocks, width %d) learn it for %lld steps, one with the causal mask, "
            "one without. The training loss ends at %.3f with the mask and at %.3f without: the second looks better than any honest "
            "predictor can be, because position i reads the token it is to name at position i + 1. ", VOCAB, entropy, D,
            (long long)steps, row[1], row[2]);
    lab_say(l, "When nothing stands behind a token, as when text is written, the loss is %.3f and %.3f. Of the sentences written token "
            "by token, %.0f %% are of the language with the mask and %.0f %% without. The first ones: with the mask \"%s\"; without "
            "\"%s\".", row[3], row[4], 100 * right[0], 100 * right[1], text[0], text[1]);
}
