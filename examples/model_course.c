/* The steps of docs/course, one function each: what the pages show as "the C call" is cut from here, and what they show as its
 * output is what this prints. Run in the repository's root (the last but one step looks into models/austen). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attn/inspect.h"
#include "attn/layers.h"
#include "attn/train.h"

static attn_layers *layers;

static void need(attn_status status)
{
    if (status == ATTN_OK)
        return;
    fprintf(stderr, "%s %s %s\n", attn_status_string(status), attn_layers_error(layers), attn_model_error(NULL));
    exit(1);
}

static void step(const char *name) { printf("== %s\n", name); }

static void show(const char *name, const double *x, int rows, int columns)
{
    for (int i = 0; i < rows; i++) {
        printf("%s%d = (", name, i + 1);
        for (int d = 0; d < columns; d++)
            printf("%s%.3f", d ? ", " : "", fabs(x[i * columns + d]) < 5e-4 ? 0 : x[i * columns + d]);
        printf(")\n");
    }
}

/* Numbers in -amplitude .. amplitude from a small generator, for weights. */
static double *numbers(int n, double amplitude)
{
    static unsigned state = 1;
    double *x = malloc((size_t)n * sizeof *x);
    for (int i = 0; i < n; i++)
        x[i] = amplitude * ((double)((state = state * 1664525u + 1013904223u) >> 8) / 8388608.0 - 1.0);
    return x;
}

static const double x3[6] = {1, 0, 0, 1, 1, 1}; /* three tokens, two features */

static void lookup(void)
{
    step("lookup");
    /* [lookup */
    double weights[9], y[6];
    attn_mha_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = ATTN_F64, a.batch = 1, a.seq_q = 3, a.d_query = 2, a.n_heads = 1, a.head_dim = 2;
    a.query = x3;                       /* [3, 2]; no weights: rows are queries, keys and values at once */
    a.scale = 1, a.flags = ATTN_SCALE_GIVEN;
    a.mask.flags = ATTN_MASK_CAUSAL;    /* j <= i */
    a.out = y, a.row_weights = weights;
    need(attn_mha_forward(layers, &a));
    /* ] */
    show("weights ", weights, 3, 3);
    show("y", y, 3, 2);
}

static void roles(void)
{
    step("qkv");
    /* [qkv */
    const double w_query[4] = {1, 0, 1, 1}, w_key[4] = {0, 1, 1, 0}, w_value[4] = {2, 0, 0, 1};
    double y[6], q[6];
    attn_mha_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = ATTN_F64, a.batch = 1, a.seq_q = 3, a.d_query = 2, a.n_heads = 1, a.head_dim = 2;
    a.weights.w_query = w_query, a.weights.w_key = w_key, a.weights.w_value = w_value; /* [d_k, d_model] each */
    a.mask.flags = ATTN_MASK_CAUSAL, a.query = x3, a.out = y;
    need(attn_mha_forward(layers, &a));
    /* ] */
    const double *const w[3] = {w_query, w_key, w_value};
    for (int k = 0; k < 3; k++) {
        attn_linear_args l;
        ATTN_ARGS_INIT(&l);
        l.dtype = ATTN_F64, l.rows = 3, l.n_in = l.n_out = 2, l.x = x3, l.weight = w[k], l.y = q;
        need(attn_linear_forward(layers, &l));
        show(k == 0 ? "q" : k == 1 ? "k" : "v", q, 3, 2);
    }
    show("y", y, 3, 2);
}

static double winner(int64_t d_k, int scaled)
{
    double *query = malloc((size_t)d_k * sizeof *query), *keys = calloc((size_t)d_k * 2, sizeof *keys), weights[2];
    for (int64_t d = 0; d < d_k; d++)
        query[d] = 1, keys[d] = 1 / sqrt((double)d_k);
    /* [scaling */
    attn_sdpa_args a;
    ATTN_ARGS_INIT(&a);
    a.query = attn_cview_of(query, ATTN_F64, 1, 1, 1, d_k);
    a.key = attn_cview_of(keys, ATTN_F64, 1, 1, 2, d_k);
    if (!scaled)
        a.scale = 1, a.flags = ATTN_SCALE_GIVEN; /* else the scale is 1 / sqrt(d_k) */
    const attn_row row = {0, 0, 0};
    const attn_view view = attn_view_of(weights, ATTN_F64, 1, 1, 1, 2);
    need(attn_sdpa_rows(attn_layers_ctx(layers), &a, &row, 1, &view));
    /* ] */
    free(query), free(keys);
    return weights[0];
}

static void scaling(void)
{
    step("scaling");
    for (int64_t d_k = 4; d_k <= 1024; d_k *= 16)
        printf("d_k = %4lld: the winner takes %.4f unscaled, %.4f scaled\n", (long long)d_k, winner(d_k, 0), winner(d_k, 1));
}

static void trace(void)
{
    step("trace");
    /* [trace */
    const double query[2] = {1, 1}, keys[6] = {1, 0, 0, 1, 1, 1}, values[6] = {1, 0, 0, 2, 2, 2};
    double out[2], lse;
    attn_sdpa_args a;
    ATTN_ARGS_INIT(&a);
    a.query = attn_cview_of(query, ATTN_F64, 1, 1, 1, 2);   /* [batch, heads, seq, dim] */
    a.key = attn_cview_of(keys, ATTN_F64, 1, 1, 3, 2);
    a.value = attn_cview_of(values, ATTN_F64, 1, 1, 3, 2);
    a.out = attn_view_of(out, ATTN_F64, 1, 1, 1, 2), a.lse = &lse;
    need(attn_sdpa_forward(attn_layers_ctx(layers), &a, NULL, 0));
    /* ] */
    for (int j = 0; j < 3; j++) {
        const double score = (query[0] * keys[2 * j] + query[1] * keys[2 * j + 1]) / sqrt(2);
        printf("scaled score %.3f, weight exp(score - lse) = %.3f\n", score, exp(score - lse));
    }
    printf("y3 = (%.3f, %.3f)\n", out[0], out[1]);
}

static const double bridge_q[6] = {1, 0, 0, 2, 2, 1}, bridge_k[6] = {1, 0, 0, 1, 1, 1}, bridge_v[6] = {2, 0, 0, 2, 1, 1};

static void matrix(void)
{
    step("matrix");
    /* [matrix */
    double all[6], one[2];
    attn_sdpa_args a;
    ATTN_ARGS_INIT(&a);
    a.query = attn_cview_of(bridge_q, ATTN_F64, 1, 1, 3, 2); /* all rows in one call */
    a.key = attn_cview_of(bridge_k, ATTN_F64, 1, 1, 3, 2);
    a.value = attn_cview_of(bridge_v, ATTN_F64, 1, 1, 3, 2);
    a.out = attn_view_of(all, ATTN_F64, 1, 1, 3, 2);
    a.mask.flags = ATTN_MASK_CAUSAL;
    need(attn_sdpa_forward(attn_layers_ctx(layers), &a, NULL, 0));
    /* ] */
    double apart = 0;
    a.mask.flags = 0;
    for (int i = 0; i < 3; i++) { /* one row, and the keys up to it */
        a.query = attn_cview_of(bridge_q + 2 * i, ATTN_F64, 1, 1, 1, 2);
        a.key = attn_cview_of(bridge_k, ATTN_F64, 1, 1, i + 1, 2), a.value = attn_cview_of(bridge_v, ATTN_F64, 1, 1, i + 1, 2);
        a.out = attn_view_of(one, ATTN_F64, 1, 1, 1, 2);
        need(attn_sdpa_forward(attn_layers_ctx(layers), &a, NULL, 0));
        apart = fmax(apart, fmax(fabs(one[0] - all[2 * i]), fabs(one[1] - all[2 * i + 1])));
    }
    show("y", all, 3, 2);
    printf("row by row they differ by less than 1e-12: %s\n", apart < 1e-12 ? "yes" : "no");
}

static void mask(void)
{
    step("mask");
    /* [mask */
    double weights[9];
    const attn_row rows[3] = {{0, 0, 0}, {0, 0, 1}, {0, 0, 2}};    /* batch, head, query */
    const attn_view view = attn_view_of(weights, ATTN_F64, 1, 1, 3, 3);
    attn_sdpa_args a;
    ATTN_ARGS_INIT(&a);
    a.query = attn_cview_of(bridge_q, ATTN_F64, 1, 1, 3, 2);
    a.key = attn_cview_of(bridge_k, ATTN_F64, 1, 1, 3, 2);
    a.mask.flags = ATTN_MASK_CAUSAL;                               /* 0: bidirectional, an encoder */
    need(attn_sdpa_rows(attn_layers_ctx(layers), &a, rows, 3, &view));
    /* ] */
    show("causal ", weights, 3, 3);
    a.mask.flags = 0;
    need(attn_sdpa_rows(attn_layers_ctx(layers), &a, rows, 3, &view));
    show("bidirectional ", weights, 3, 3);
}

static void heads(void)
{
    enum { D = 8 };
    double *x = numbers(3 * D, 1), *w[4], y[3 * D], weights[18];
    step("heads");
    for (int k = 0; k < 4; k++)
        w[k] = numbers(D * D, 1);
    /* [heads */
    attn_mha_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = ATTN_F64, a.batch = 1, a.seq_q = 3, a.d_query = D, a.n_heads = 2, a.head_dim = D / 2;
    a.query = x, a.mask.flags = ATTN_MASK_CAUSAL, a.out = y;
    a.weights.w_query = w[0], a.weights.w_key = w[1], a.weights.w_value = w[2]; /* head h: rows h * head_dim ... */
    a.weights.w_out = w[3];
    a.row_weights = weights;                                                  /* [heads, 3, 3] */
    need(attn_mha_forward(layers, &a));
    /* ] */
    show("head 1, position ", weights, 3, 3);
    show("head 2, position ", weights + 9, 3, 3);
    for (int k = 0; k < 4; k++)
        free(w[k]);
    free(x);
}

enum { BLOCK_D = 8 };

/* A pre-norm or post-norm block with weights of its own. */
static attn_block_args block_of(int32_t place, double *w[6], const double *x, int64_t n, double *y)
{
    /* [block */
    attn_block_args a;
    ATTN_ARGS_INIT(&a);
    a.dtype = ATTN_F64, a.place = place, a.norm_kind = ATTN_NORM_LAYER, a.act = ATTN_ACT_GELU_TANH;
    a.batch = 1, a.seq = n, a.d_model = BLOCK_D, a.d_ff = 4 * BLOCK_D, a.n_heads = 2;
    a.mask.flags = ATTN_MASK_CAUSAL;
    a.weights.attention.w_query = w[0], a.weights.attention.w_key = w[1];
    a.weights.attention.w_value = w[2], a.weights.attention.w_out = w[3];
    a.weights.ffn.w_up = w[4], a.weights.ffn.w_down = w[5];
    a.x = x, a.y = y; /* attn_block_forward(layers, &a) */
    /* ] */
    return a;
}

static double length(const double *x)
{
    double sum = 0;
    for (int d = 0; d < BLOCK_D; d++)
        sum += x[d] * x[d];
    return sqrt(sum);
}

static void block(void)
{
    double *x = numbers(3 * BLOCK_D, 1), *w[6], y[3 * BLOCK_D], rest[3];
    static const char *const names[2] = {"pre-norm", "post-norm"};
    step("block");
    for (int k = 0; k < 6; k++)
        w[k] = numbers(k < 4 ? BLOCK_D * BLOCK_D : 4 * BLOCK_D * BLOCK_D, 0.4);
    for (int place = 0; place < 2; place++) {
        const attn_block_args a = block_of(place ? ATTN_BLOCK_POST_NORM : ATTN_BLOCK_PRE_NORM, w, x, 3, y);
        need(attn_block_forward(layers, &a));
        for (int i = 0; i < 3; i++)
            rest[i] = length(y + i * BLOCK_D);
        printf("%s: lengths of the three outputs %.3f, %.3f, %.3f\n", names[place], rest[0], rest[1], rest[2]);
    }
    for (int k = 0; k < 6; k++)
        free(w[k]);
    free(x);
}

static void stack(void)
{
    double *x = numbers(3 * BLOCK_D, 1), *w[2][6], once[3][3 * BLOCK_D], steps[3][3 * BLOCK_D], apart = 0;
    step("stack");
    for (int i = 0; i < 12; i++)
        w[i / 6][i % 6] = numbers(i % 6 < 4 ? BLOCK_D * BLOCK_D : 4 * BLOCK_D * BLOCK_D, 0.4);
    for (int64_t n = 1; n <= 3; n++) /* texts of one, two and three tokens: the last is the whole */
        for (int layer = 0; layer < 2; layer++) {
            double (*out)[3 * BLOCK_D] = n == 3 ? once : steps;
            const attn_block_args a = block_of(ATTN_BLOCK_PRE_NORM, w[layer], layer ? out[0] : x, n, out[layer]);
            need(attn_block_forward(layers, &a));
            for (int d = 0; n < 3 && layer == 1 && d < BLOCK_D; d++) /* the newest position's output, kept for comparison */
                steps[2][(n - 1) * BLOCK_D + d] = out[1][(n - 1) * BLOCK_D + d];
        }
    for (int i = 0; i < 2 * BLOCK_D; i++)
        apart = fmax(apart, fabs(steps[2][i] - once[1][i]));
    printf("position 1 behind two blocks begins %.3f, %.3f, %.3f\n", once[1][0], once[1][1], once[1][2]);
    printf("grown token by token the same, to 1e-12: %s\n", apart < 1e-12 ? "yes" : "no");
    for (int i = 0; i < 12; i++)
        free(w[i / 6][i % 6]);
    free(x);
}

static void training(void)
{
    static const int32_t text[12] = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4};
    step("training");
    /* [training */
    attn_trainer_options o;
    attn_train_batch b;
    attn_trainer *trainer;
    ATTN_ARGS_INIT(&o), ATTN_ARGS_INIT(&b);
    o.arch = ATTN_TRAIN_GPT2, o.vocab_size = 5, o.context = 11, o.n_layers = 1, o.n_heads = 2, o.d_model = 16, o.seed = 1;
    o.n_threads = 1, o.bos_id = o.eos_id = o.pad_id = o.mask_id = -1;
    need(attn_trainer_create(&o, &trainer));
    b.batch = 1, b.length = 11, b.tokens = text, b.targets = text + 1; /* each position's target is the next token */
    for (int s = 0; s <= 40; s++) {
        double loss;
        need(attn_trainer_accumulate(trainer, &b, &loss));             /* forward and backward, all positions at once */
        if (s % 20 == 0)
            printf("step %2d: loss %.2f nats a token\n", s, loss);
        need(attn_trainer_update(trainer, 0.01, NULL));                /* AdamW */
    }
    attn_trainer_destroy(trainer);
    /* ] */
}

static void meaning(void)
{
    static const char text[] = "She was very happy that he had been so good to her";
    attn_model *model;
    attn_session *session;
    int32_t ids[64];
    int64_t n;
    step("meaning");
    need(attn_model_load("models/austen", NULL, &model));
    need(attn_session_create(model, NULL, &session));
    need(attn_model_tokenize(model, text, sizeof text - 1, 0, ids, 64, &n));
    /* [meaning */
    attn_inspect_args a;
    attn_inspection *found;
    ATTN_ARGS_INIT(&a);
    a.tokens = ids, a.n_tokens = n, a.at = a.layer = a.head = -1;
    a.n_exact = 6, a.n_sample = 120;
    need(attn_inspect(session, &a, &found));
    /* ] */
    int heavy = 0;
    double least = INFINITY, most = 0;
    for (int64_t e = 0; e < found->n_edges; e++) {
        const double moved = fabs((double)found->edges[e].knockout.difference);
        if (found->edges[e].weight > 0.5f && found->edges[e].key != found->edges[e].query)
            heavy++, least = fmin(least, moved), most = fmax(most, moved);
    }
    printf("%lld readings screened\n", (long long)found->n_screened);
    printf("knockouts of weights above one half: the logit difference moves by %.2f to %.2f\n", heavy ? least : NAN, most);
    printf("the largest effect of all that were cut: %.2f, of a weight of %.2f\n", fabs((double)found->edges[0].knockout.difference),
           (double)found->edges[0].weight);
    printf("rank correlation of weight and effect: %.2f over a random sample, %.2f without the first token\n",
           found->sampled.all, found->sampled.without_first);
    attn_inspection_destroy(found);
    attn_session_destroy(session);
    attn_model_destroy(model);
}

static void cost(void)
{
    step("cost");
    for (int64_t n = 1024; n <= 65536; n *= 8) {
        static float one[64];
        size_t bytes;
        /* [cost */
        attn_sdpa_args a;
        ATTN_ARGS_INIT(&a);
        a.query = a.key = a.value = attn_cview_of(one, ATTN_F32, 1, 1, n, 64); /* sizes only: data is not read here */
        a.out = attn_view_of(one, ATTN_F32, 1, 1, n, 64);
        need(attn_sdpa_workspace(attn_layers_ctx(layers), &a, &bytes));
        /* ] */
        const double full = 4.0 * (double)n * (double)n;
        printf("n = %5lld: %11.0f dot products; the matrix would take %.0f MiB, the workspace less than a tenth of it: %s\n",
               (long long)n, (double)n * (double)n, full / 1048576, (double)bytes < full / 10 ? "yes" : "no");
    }
}

int main(void)
{
    static void (*const steps[])(void) = {lookup, roles, scaling, trace, matrix, mask, heads, block, stack, training, meaning, cost};
    attn_ctx_options options;
    ATTN_ARGS_INIT(&options);
    options.n_threads = 1;
    need(attn_layers_create(&options, &layers));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        steps[i]();
    attn_layers_destroy(layers);
    return 0;
}
