/* lab_learning.c - does a saturated softmax stall learning? A lookup by content, learnt with and without division by
 * sqrt(d_k), at growing d_k. And one head against eight with as many parameters: reading one place, reading several. */
#include <math.h>
#include <string.h>
#include "lab/lab_net.h"

/* ---- With and without sqrt(d_k) ---- */

enum { KEYS = 16, VALUES = 8, PAIRS = 8, SEQ = PAIRS + 1, WIDTH = 64, BATCH = 64 };

/* Eight pairs of a key and a value, keys all different; last one of these keys without a value. */
static void draw_pairs(lab *l, int32_t *ids, int32_t *types, int32_t *targets)
{
    for (int b = 0; b < BATCH; b++) {
        int32_t deck[KEYS];
        for (int i = 0; i < KEYS; i++) { /* Fisher and Yates, inside out */
            const int j = (int)lab_below(l, (uint64_t)i + 1);
            deck[i] = deck[j];
            deck[j] = i;
        }
        for (int i = 0; i < PAIRS; i++) {
            ids[b * SEQ + i] = deck[i], types[b * SEQ + i] = (int32_t)lab_below(l, VALUES);
            targets[b * SEQ + i] = -1;
        }
        const int asked = (int)lab_below(l, PAIRS), last = b * SEQ + PAIRS;
        ids[last] = deck[asked], types[last] = VALUES, targets[last] = types[b * SEQ + asked];
    }
}

typedef struct learnt {
    double loss, accuracy, first_gradient;
} learnt;

static bool learn_lookup(lab *l, int64_t d_k, bool scaled, int64_t steps, double rate, learnt *out)
{
    int32_t ids[BATCH * SEQ], types[BATCH * SEQ], targets[BATCH * SEQ];
    const lab_batch b = {ids, types, targets};
    const int n_blocks = l->n_blocks;
    lab_net_options o = {0};
    o.kind = LAB_NET_MHA, o.causal = true, o.vocab = KEYS, o.n_types = VALUES + 1, o.classes = VALUES;
    o.batch = BATCH, o.seq = SEQ, o.d_model = WIDTH, o.n_heads = 1, o.head_dim = d_k, o.scale = scaled ? 0 : 1;
    lab_net *net = lab_net_new(l, &o);
    out->loss = out->accuracy = 0;
    for (int64_t s = 0; s < steps && !l->failed; s++) {
        draw_pairs(l, ids, types, targets);
        lab_net_train(net, &b, rate * (double)(steps - s) / (double)steps);
        out->first_gradient = s == 0 ? lab_net_query_key_gradient(net) : out->first_gradient;
    }
    for (int k = 0; k < 8 && !l->failed; k++) {
        double share = 0;
        draw_pairs(l, ids, types, targets);
        out->loss += lab_net_loss(net, &b, &share) / 8;
        out->accuracy += share / 8;
    }
    lab_release(l, n_blocks);
    return !l->failed;
}

void lab_stall(lab *l)
{
    static const char *const names[] = {"d_k", "found, unscaled", "found, scaled", "loss, unscaled", "loss, scaled",
                                        "first gradient, unscaled", "first gradient, scaled"};
    static const double rates[] = {3e-3, 1e-3, 1e-2};
    static const int64_t quick[] = {4, 64, 256}, full[] = {4, 16, 64, 256, 1024};
    const int last = l->quick ? 3 : 5, tries = l->quick ? 1 : 2;
    const int64_t *sizes = l->quick ? quick : full, steps = l->quick ? 150 : 300;
    double row[7] = {0}, first[7];
    lab_columns(l, 7, names);
    for (int s = 0; s < last; s++) {
        const int64_t d_k = sizes[s];
        row[0] = (double)d_k;
        for (int k = 0; k < 2; k++) {
            row[3 + k] = INFINITY;
            for (int r = 0; r < tries; r++) {
                learnt now;
                if (!learn_lookup(l, d_k, k == 1, steps, rates[r], &now))
                    return;
                if (now.loss < row[3 + k])
                    row[1 + k] = now.accuracy, row[3 + k] = now.loss;
                row[5 + k] = r == 0 ? now.first_gradient : row[5 + k];
            }
        }
        lab_row(l, row);
        for (int c = 0; s == 0 && c < 7; c++)
            first[c] = row[c];
    }
    l->result->log_x = true;
    l->result->drawn = 0x1E;
    l->result->y_label = "share found; loss, nats";
    lab_expect(l, row[2] > 0.9, "with the division the lookup is learnt at the largest d_k");
    lab_expect(l, row[4] < row[3], "without it the loss stays higher at the largest d_k");
    lab_expect(l, row[3] - first[3] > 0.1, "without it the loss is higher at the largest d_k than at the smallest");
    lab_expect(l, row[1] < 0.5, "without it learning stalls: less than half are found at the largest d_k");
    lab_say(l, "Eight pairs of a key (of %d) and a value (of %d), then one of the keys: its value is to be named (chance %.3f). One "
            "head, width %d, %lld steps of %d sequences (Adam%s), the same seed. At d_k = %.0f, unscaled, %.2f are found with loss "
            "%.3f; scaled %.2f with %.3f. At d_k = %.0f it was %.2f (%.3f) and %.2f (%.3f). ", KEYS, VALUES, 1.0 / VALUES, WIDTH,
            (long long)steps, BATCH, tries > 1 ? ", the better of two learning rates for each" : "", row[0], row[1], row[3],
            row[2], row[4], first[0], first[1], first[3], first[2], first[4]);
    lab_say(l, "The gradient of W_Q and W_K at the first step is %.2g unscaled and %.2g scaled at d_k = %.0f: it has not vanished. A "
            "saturated softmax passes little, but what it passes is multiplied by keys and queries and differs from row to row; "
            "what fails is learning, and a small gradient is not the whole reason. That softmax itself passes less is in attn lab "
            "scaling.", row[5], row[6], row[0]);
}

/* ---- One head, eight heads ---- */

enum { PLACES = 16, TOKENS = 8, MOST_READ = 8, TEXTS = 32 };

/* Random tokens; at the last place the tokens of `read` places are to be named, each by a read-out of its own. */
static void draw_places(lab *l, int64_t batch, int64_t read, int32_t *ids, int32_t *targets)
{
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < PLACES; i++)
            ids[b * PLACES + i] = (int32_t)lab_below(l, TOKENS);
    for (int64_t r = 0; r < read; r++)
        for (int64_t b = 0; b < batch; b++)
            for (int64_t i = 0; i < PLACES; i++)
                targets[(r * batch + b) * PLACES + i] = i == PLACES - 1 ? ids[b * PLACES + (5 * r + 2) % (PLACES - 1)] : -1;
}

static double learn_places(lab *l, int64_t heads, int64_t read, int64_t steps, double rate, int64_t *parameters)
{
    static int32_t ids[TEXTS * PLACES], targets[MOST_READ * TEXTS * PLACES];
    const lab_batch b = {ids, NULL, targets};
    const int n_blocks = l->n_blocks;
    lab_net_options o = {0};
    o.kind = LAB_NET_MHA, o.causal = true, o.positions = true, o.vocab = TOKENS, o.classes = TOKENS, o.readouts = read;
    o.batch = TEXTS, o.seq = PLACES, o.d_model = WIDTH, o.n_heads = heads, o.head_dim = WIDTH / heads;
    lab_net *net = lab_net_new(l, &o);
    double found = 0;
    for (int64_t s = 0; s < steps && !l->failed; s++) {
        draw_places(l, TEXTS, read, ids, targets);
        lab_net_train(net, &b, rate * (double)(steps - s) / (double)steps);
    }
    for (int k = 0; k < 8 && !l->failed; k++) {
        double share = 0;
        draw_places(l, TEXTS, read, ids, targets);
        lab_net_loss(net, &b, &share);
        found += share / 8;
    }
    *parameters = l->failed ? 0 : lab_net_parameters(net);
    lab_release(l, n_blocks);
    return found;
}

/* Largest difference of eight heads in one call and eight calls of one head each, joined and passed through W_O. */
static double heads_apart(lab *l)
{
    enum { HEADS = 8, DIM = 64, N = 12, MODEL = HEADS * DIM }; /* the sizes of 2017 */
    double *x = lab_normal(l, N * MODEL, 1), *w[4], *together = lab_new(l, N * MODEL * sizeof *x);
    double *joined = lab_new(l, N * MODEL * sizeof *x), *out = lab_new(l, N * MODEL * sizeof *x);
    attn_mha_args a;
    attn_linear_args last;
    for (int k = 0; k < 4; k++)
        w[k] = lab_normal(l, MODEL * MODEL, 1 / sqrt(MODEL));
    if (l->failed)
        return NAN;
    ATTN_ARGS_INIT(&a), ATTN_ARGS_INIT(&last);
    a.dtype = ATTN_F64, a.batch = 1, a.seq_q = N, a.d_query = MODEL, a.n_heads = HEADS, a.head_dim = DIM, a.query = x;
    a.weights.w_query = w[0], a.weights.w_key = w[1], a.weights.w_value = w[2], a.weights.w_out = w[3];
    a.mask.flags = ATTN_MASK_CAUSAL, a.out = together;
    if (!lab_ok(l, attn_mha_forward(l->layers, &a)))
        return NAN;
    a.n_heads = 1, a.weights.w_out = NULL, a.d_out = DIM, a.ld_out = MODEL;
    for (int h = 0; h < HEADS; h++) { /* head h is rows h * DIM ... of each matrix */
        a.weights.w_query = w[0] + h * DIM * MODEL, a.weights.w_key = w[1] + h * DIM * MODEL;
        a.weights.w_value = w[2] + h * DIM * MODEL, a.out = joined + h * DIM;
        if (!lab_ok(l, attn_mha_forward(l->layers, &a)))
            return NAN;
    }
    last.dtype = ATTN_F64, last.rows = N, last.n_in = last.n_out = MODEL, last.x = joined, last.weight = w[3], last.y = out;
    return lab_ok(l, attn_linear_forward(l->layers, &last)) ? lab_largest_difference(out, together, N * MODEL) : NAN;
}

void lab_heads(lab *l)
{
    static const char *const names[] = {"places read", "found by one head", "by two heads", "by eight heads", "parameters of each"};
    static const int64_t heads[] = {1, 2, 8};
    static const double rates[] = {3e-3, 1e-2};
    const int tries = l->quick ? 1 : 2;
    const int64_t steps = l->quick ? 200 : 500;
    double row[5] = {0}, first[5];
    bool equal = true;
    lab_columns(l, 5, names);
    for (int64_t read = 1; read <= MOST_READ; read *= l->quick ? 8 : 2) {
        row[0] = (double)read;
        for (int k = 0; k < 3; k++) {
            int64_t parameters = 0;
            row[1 + k] = 0;
            for (int r = 0; r < tries; r++)
                row[1 + k] = fmax(row[1 + k], learn_places(l, heads[k], read, steps, rates[r], &parameters));
            equal = equal && parameters == 4 * WIDTH * WIDTH;
            row[4] = (double)parameters;
        }
        if (l->failed)
            return;
        lab_row(l, row);
        for (int c = 0; read == 1 && c < 5; c++)
            first[c] = row[c];
    }
    const double apart = heads_apart(l);
    if (l->failed)
        return;
    l->result->drawn = 0xE;
    l->result->y_label = "share named (chance: 1/8)";
    lab_expect(l, equal, "all have the same number of parameters, 4 x 64 x 64");
    lab_expect(l, apart < 1e-12, "many heads are heads of their own, joined and passed through W_O");
    lab_expect(l, first[1] > 0.95 && first[3] > 0.95, "one place: one head is enough, and eight do as well");
    lab_expect(l, row[3] > row[1] + 0.2, "eight places: eight heads name far more than one head");
    lab_expect(l, row[3] > 0.9, "eight heads name nearly all");
    lab_say(l, "%d random tokens (of %d); at the last position the tokens of 1 to %d fixed places are to be named, each by a "
            "read-out of its own. One attention layer of width %d without a feed-forward part, cut into one head of %d, two of %d "
            "or eight of %d, so that all have %d parameters; %lld steps of %d sequences. One place: %.2f, %.2f and %.2f are "
            "named. Eight places: one head names %.2f, two %.2f, eight %.2f. ", PLACES, TOKENS, MOST_READ, WIDTH, WIDTH, WIDTH / 2,
            WIDTH / 8, 4 * WIDTH * WIDTH, (long long)steps, TEXTS, first[1], first[2], first[3], row[1], row[2], row[3]);
    lab_say(l, "A head gives one weighted mean for all read-outs, and in a mean it is partly lost which token stood where; several heads "
            "give several means. That is what \"several patterns at once\" buys, and all: the task was made to need it. Where "
            "one pattern is enough, eight heads are no better. Joined by hand, eight single heads of 64 and W_O differ from the layer "
            "of 8 x 64 by %.1g.", apart);
}
