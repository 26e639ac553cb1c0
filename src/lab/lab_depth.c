/* lab_depth.c - post-norm and pre-norm stacks by depth, with and without warm-up, on a task that takes two layers: after a
 * token that came before, its successor then comes again (the copying of Olsson et al. 2022). */
#include <math.h>
#include <string.h>
#include "lab/lab_net.h"

enum { TOKENS = 12, HALF = 8, SEQ = 2 * HALF - 1, BATCH = 16, D = 32 };

/* r r without the last token; what follows is to be named in the second half, where it can be known. */
static void draw(lab *l, int32_t *ids, int32_t *targets)
{
    for (int b = 0; b < BATCH; b++) {
        int32_t deck[TOKENS], r[2 * HALF];
        for (int i = 0; i < TOKENS; i++) {
            const int j = (int)lab_below(l, (uint64_t)i + 1);
            deck[i] = deck[j];
            deck[j] = i;
        }
        for (int i = 0; i < 2 * HALF; i++)
            r[i] = deck[i % HALF];
        for (int i = 0; i < SEQ; i++)
            ids[b * SEQ + i] = r[i], targets[b * SEQ + i] = i >= HALF ? r[i + 1] : -1;
    }
}

static double train(lab *l, int32_t place, int64_t depth, int64_t warmup, int64_t steps, double rate)
{
    int32_t ids[BATCH * SEQ], targets[BATCH * SEQ];
    const lab_batch b = {ids, NULL, targets};
    const int n_blocks = l->n_blocks;
    lab_net_options o = {0};
    o.kind = LAB_NET_BLOCKS, o.place = place, o.causal = true, o.positions = true, o.vocab = o.classes = TOKENS;
    o.batch = BATCH, o.seq = SEQ, o.d_model = D, o.n_layers = depth, o.n_heads = 4, o.head_dim = D / 4;
    lab_net *net = lab_net_new(l, &o);
    double loss = 0;
    for (int64_t s = 0; s < steps && !l->failed; s++) {
        const double up = warmup ? fmin(1, (double)(s + 1) / (double)warmup) : 1;
        draw(l, ids, targets);
        lab_net_train(net, &b, rate * up);
    }
    for (int k = 0; k < 8 && !l->failed; k++) {
        draw(l, ids, targets);
        loss += lab_net_loss(net, &b, NULL) / 8;
    }
    lab_release(l, n_blocks);
    return l->failed ? NAN : isfinite(loss) ? loss : log(TOKENS); /* what does not end in numbers has learnt nothing */
}

/* A block whose two parts are zero: what the residual connection alone makes of x. */
static bool update_only(lab *l, int32_t place, bool *as_said)
{
    enum { ROWS = 5 };
    double *x = lab_normal(l, ROWS * D, 1), *y = lab_new(l, ROWS * D * sizeof *y), *normed = lab_new(l, ROWS * D * sizeof *y);
    double *zero = lab_new(l, 4 * D * D * sizeof *zero);
    attn_block_args a;
    attn_norm_args n;
    if (l->failed)
        return false;
    ATTN_ARGS_INIT(&a), ATTN_ARGS_INIT(&n);
    a.dtype = ATTN_F64, a.place = place, a.norm_kind = ATTN_NORM_LAYER, a.act = ATTN_ACT_GELU_TANH, a.batch = 1, a.seq = ROWS;
    a.d_model = D, a.d_ff = 4 * D, a.n_heads = 4, a.x = x, a.y = y, a.mask.flags = ATTN_MASK_CAUSAL;
    a.weights.attention.w_query = a.weights.attention.w_key = a.weights.attention.w_value = zero;
    a.weights.attention.w_out = a.weights.ffn.w_up = a.weights.ffn.w_down = zero;
    n.dtype = ATTN_F64, n.kind = ATTN_NORM_LAYER, n.rows = ROWS, n.n = D, n.eps = 1e-5, n.x = x, n.y = normed;
    if (!lab_ok(l, attn_block_forward(l->layers, &a)) || !lab_ok(l, attn_norm_forward(l->layers, &n)))
        return false;
    *as_said = place == ATTN_BLOCK_PRE_NORM ? memcmp(x, y, ROWS * D * sizeof *x) == 0
                                            : lab_largest_difference(y, normed, ROWS * D) < 1e-4; /* normed twice: eps twice */
    return true;
}

void lab_depth(lab *l)
{
    static const char *const names[] = {"layers", "post-norm", "post-norm, warm-up", "pre-norm", "pre-norm, warm-up"};
    static const int64_t quick[] = {2, 8}, full[] = {2, 4, 8, 12, 18};
    const int64_t *depths = l->quick ? quick : full, n_depths = l->quick ? 2 : 5, steps = l->quick ? 120 : 600;
    const double rate = l->quick ? 3e-3 : 1e-3;
    double row[5] = {0}, first[5];
    bool pre = false, post = false;
    lab_columns(l, 5, names);
    if (!update_only(l, ATTN_BLOCK_PRE_NORM, &pre) || !update_only(l, ATTN_BLOCK_POST_NORM, &post))
        return;
    for (int64_t s = 0; s < n_depths; s++) {
        row[0] = (double)depths[s];
        for (int c = 0; c < 4; c++) {
            row[1 + c] = train(l, c < 2 ? ATTN_BLOCK_POST_NORM : ATTN_BLOCK_PRE_NORM, depths[s], c & 1 ? steps / 3 : 0, steps, rate);
            if (l->failed)
                return;
        }
        lab_row(l, row);
        for (int c = 0; s == 0 && c < 5; c++)
            first[c] = row[c];
    }
    l->result->drawn = 0x1E;
    l->result->y_label = "loss after training, nats";
    lab_expect(l, pre && post, "with empty parts a pre-norm block gives its input, a post-norm block its normalised input");
    lab_expect(l, first[1] < 0.3 && first[3] < 0.3, "two layers learn it, whichever way and without warm-up");
    lab_expect(l, row[1] > row[3] + 0.5, "at the largest depth without warm-up post-norm ends far behind pre-norm");
    lab_expect(l, row[2] < row[1] - 0.5, "warm-up helps post-norm there");
    lab_expect(l, fabs(row[4] - row[3]) < 0.3, "pre-norm does not need it");
    lab_say(l, "Causal stacks of width %d on %d random tokens and the same again; the loss is that of the second half, chance is ln %d "
            "= %.2f. %lld steps of %d sequences at one learning rate (Adam, %g); warm-up: the first third of the steps. At %.0f "
            "layers: post-norm %.2f, with warm-up %.2f; pre-norm %.2f, with warm-up %.2f. At %.0f layers: %.2f, %.2f, %.2f, %.2f. "
            "One learning rate and one task: that post-norm fails there is not that it must fail; a smaller rate or a longer "
            "warm-up can train it.", D, HALF, TOKENS, log(TOKENS), (long long)steps, BATCH,
            rate, row[0], row[1], row[2], row[3], row[4], first[0], first[1], first[2], first[3],
            first[4]);
}
