/* attn/inspect.h by brute force on tiny checkpoints: rows, sizes of what is moved, direct effects, the gradient behind the
 * estimates, single and joint cuts, whole heads, paired prompts, long texts, head tests. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "attn/inspect.h"
#include "inspect/inspect_run.h"

#define N 9
#define VOCAB 160
#define WIDTH 64
#define DIM 32    /* at most */
#define HEADS 4
#define LAYERS 4  /* at most */

static const char *const names[] = {"bert",           "gemma2", "gpt2",  "gpt_neox", "gpt_oss", "llama3_rope",
                                    "mistral_window", "opt",    "qwen2", "qwen3",    "t5"};
static const int32_t ids[N] = {5, 17, 80, 17, 3, 99, 150, 42, 80}, other_ids[N] = {5, 17, 31, 17, 3, 12, 150, 42, 80};

typedef struct world {
    attn_model *model;
    attn_session *session;
    attn_model_info info;
    attn_inspection *seen;
    /* what a hook keeps of the layer looked at */
    int64_t layer;
    float out[N][HEADS][DIM], value[HEADS][N][DIM], weight[HEADS][N][N];
    /* what it changes: the output of (layer, head) at query becomes this */
    int64_t change_layer, change_head, change_query;
    const float *change;
} world;

static world open_world(const char *name)
{
    world w = {0};
    char path[600];
    snprintf(path, sizeof path, "%s/tests/data/families/%s.safetensors", ATTN_SOURCE_DIR, name);
    if (attn_model_load(path, NULL, &w.model) != ATTN_OK ||
        attn_session_create(w.model, NULL, &w.session) != ATTN_OK)
        fail_msg("%s: %s", name, attn_model_error(NULL));
    ATTN_ARGS_INIT(&w.info);
    attn_model_get_info(w.model, &w.info);
    return w;
}

static void close_world(world *w)
{
    attn_inspection_destroy(w->seen);
    attn_session_destroy(w->session);
    attn_model_destroy(w->model);
}

static attn_inspect_args args_of(void)
{
    attn_inspect_args args;
    ATTN_ARGS_INIT(&args);
    args.tokens = ids;
    args.n_tokens = N;
    args.at = -1;
    args.layer = args.head = -1;
    args.n_exact = 20;
    args.n_sample = 10;
    return args;
}

static void inspect(world *w, const attn_inspect_args *args)
{
    if (attn_inspect(w->session, args, &w->seen) != ATTN_OK)
        fail_msg("%s", attn_model_error(NULL));
}

static attn_status keep(void *user, const attn_layer_view *view)
{
    world *w = user;
    const attn_sdpa_args *a = view->attention;
    const int64_t group = a->query.shape[1] / a->key.shape[1], dim = a->value.shape[3];
    for (int64_t h = 0; h < HEADS && view->layer == w->layer; h++)
        for (int64_t i = 0; i < N; i++) {
            const attn_row row = {0, h, i};
            const attn_view rows = attn_view_of(w->weight[h][i], ATTN_F32, 1, 1, 1, N);
            assert_int_equal(attn_sdpa_rows(view->ctx, a, &row, 1, &rows), ATTN_OK);
            memcpy(w->out[i][h], (float *)view->head_out.data + h * view->head_out.stride[1] + i * view->head_out.stride[2],
                   (size_t)dim * sizeof(float));
            memcpy(w->value[h][i], (const float *)a->value.data + h / group * a->value.stride[1] + i * a->value.stride[2],
                   (size_t)dim * sizeof(float));
        }
    if (w->change && view->layer == w->change_layer)
        memcpy((float *)view->head_out.data + w->change_head * view->head_out.stride[1] +
                   w->change_query * view->head_out.stride[2],
               w->change, (size_t)dim * sizeof(float));
    return ATTN_OK;
}

/* A whole pass of a decoder under the hook; logits after the last token. */
static void pass(world *w, float *logits, float *residual)
{
    attn_forward_args args;
    ATTN_ARGS_INIT(&args);
    args.tokens = ids;
    args.n_tokens = N;
    args.logits = logits;
    args.final_residual = residual;
    args.hook = keep;
    args.hook_user = w;
    if (w->info.kind == ATTN_MODEL_DECODER)
        attn_session_truncate(w->session, -1, 0);
    if (attn_model_forward(w->session, &args) != ATTN_OK)
        fail_msg("%s", attn_model_error(NULL));
}

static double outcome(const world *w, const float *logits)
{
    return (double)logits[w->seen->answers[0]] - (double)logits[w->seen->answers[1]];
}

/* ---- weights ---- */

static void test_weights_of_every_family(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof names / sizeof *names; f++) {
        world w = open_world(names[f]);
        attn_inspect_args args = args_of();
        const bool two = w.info.kind == ATTN_MODEL_ENCODER_DECODER;
        args.target = two ? other_ids : NULL;
        args.n_target = two ? 5 : 0;
        inspect(&w, &args);
        assert_int_equal(w.seen->n_maps, two ? 3 : 1);
        for (int32_t m = 0; m < w.seen->n_maps; m++) {
            const attn_inspect_map *map = &w.seen->maps[m];
            assert_int_equal(map->n_rows, map->n_queries);
            for (int64_t h = 0; h < map->n_layers * map->n_heads; h++)
                for (int64_t q = 0; q < map->n_queries; q++) {
                    const int64_t row = h * map->n_rows + q;
                    double sum = 0;
                    for (int64_t i = map->starts[row]; i < map->starts[row + 1]; i++)
                        sum += (double)map->weights[i];
                    if (strcmp(names[f], "gpt_oss")) /* its sinks take a share */
                        assert_true(fabs(sum - 1) < 1e-5);
                }
        }
        if (w.info.kind == ATTN_MODEL_DECODER)
            for (w.layer = 0; w.layer < w.info.n_layers; w.layer++) {
                const attn_inspect_map *map = &w.seen->maps[0];
                pass(&w, NULL, NULL);
                for (int64_t h = 0; h < HEADS; h++)
                    for (int64_t q = 0; q < N; q++) {
                        const int64_t row = (w.layer * HEADS + h) * N + q;
                        float all[N] = {0};
                        for (int64_t i = map->starts[row]; i < map->starts[row + 1]; i++)
                            all[map->keys[i]] = map->weights[i];
                        assert_memory_equal(all, w.weight[h][q], sizeof all);
                        assert_true(map->at_columns[row] == w.weight[h][q][N - 1]);
                    }
            }
        close_world(&w);
    }
}

static void test_sizes_of_what_is_moved(void **state)
{
    (void)state;
    static float o[WIDTH * HEADS * DIM];
    for (size_t f = 0; f < sizeof names / sizeof *names; f++) {
        world w = open_world(names[f]);
        if (w.info.kind == ATTN_MODEL_ENCODER_DECODER) {
            close_world(&w);
            continue;
        }
        attn_inspect_args args = args_of();
        inspect(&w, &args);
        w.layer = 1;
        pass(&w, NULL, NULL);
        const int64_t dim = w.info.head_dim, width = HEADS * dim;
        assert_int_equal(attn_model_weight_rows(w.model, ATTN_WEIGHT_O, 1, 0, WIDTH, o), ATTN_OK);
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t j = 0; j < N; j++) {
                double square = 0;
                for (int64_t r = 0; r < WIDTH; r++) {
                    double y = 0;
                    for (int64_t d = 0; d < dim; d++)
                        y += (double)o[r * width + h * dim + d] * (double)w.value[h][j][d];
                    square += y * y;
                }
                const float got = w.seen->maps[0].value_norms[(HEADS + h) * N + j];
                assert_true(fabs((double)got - sqrt(square)) <= 1e-5 * sqrt(square));
            }
        close_world(&w);
    }
}

/* ---- effects ---- */

/* The norm's scale frozen: what is taken from the stream is normed as the whole was. */
static void test_direct_effects(void **state)
{
    (void)state;
    static const char *const some[] = {"llama3_rope", "gpt2", "gpt_neox"};
    static float o[WIDTH * HEADS * DIM], residual[N * WIDTH], logits[VOCAB], gain[WIDTH], u[2 * WIDTH];
    for (size_t f = 0; f < 3; f++) {
        world w = open_world(some[f]);
        attn_inspect_args args = args_of();
        inspect(&w, &args);
        w.layer = 0;
        pass(&w, logits, residual);
        const int64_t dim = w.info.head_dim, width = HEADS * dim;
        double mean = 0, square = 0;
        const float *x = residual + (N - 1) * WIDTH;
        const bool layer_norm = f > 0;
        for (int64_t i = 0; i < WIDTH; i++)
            mean += layer_norm ? (double)x[i] / WIDTH : 0;
        for (int64_t i = 0; i < WIDTH; i++)
            square += ((double)x[i] - mean) * ((double)x[i] - mean) / WIDTH;
        const double sigma = sqrt(square + (layer_norm ? 1e-5 : 1e-6));
        attn_model_weight_rows(w.model, ATTN_WEIGHT_O, 0, 0, WIDTH, o);
        attn_model_weight_rows(w.model, ATTN_WEIGHT_FINAL_NORM, 0, 0, 1, gain);
        for (int side = 0; side < 2; side++)
            attn_model_weight_rows(w.model, ATTN_WEIGHT_LM_HEAD, 0, w.seen->answers[side], 1, u + side * WIDTH);
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t j = 0; j < N; j++) {
                double moved[WIDTH], middle = 0, want = 0;
                for (int64_t r = 0; r < WIDTH; r++) {
                    moved[r] = 0;
                    for (int64_t d = 0; d < dim; d++)
                        moved[r] += (double)o[r * width + h * dim + d] * (double)w.value[h][j][d];
                    middle += layer_norm ? moved[r] / WIDTH : 0;
                }
                for (int64_t r = 0; r < WIDTH; r++)
                    want += (moved[r] - middle) / sigma * (double)gain[r] * ((double)u[r] - (double)u[WIDTH + r]);
                const double got = (double)w.seen->maps[0].value_directs[h * N + j];
                if (!(fabs(got - want) <= 1e-5 * (1 + fabs(want))))
                    fail_msg("%s head %lld key %lld: %g, not %g", some[f], (long long)h, (long long)j, got, want);
            }
        close_world(&w);
    }
}

/* Every estimate against central differences of the outcome along the knockout's change of the row. */
static void test_estimates_are_gradients(void **state)
{
    (void)state;
    static const char *const some[] = {"llama3_rope", "mistral_window", "gpt2", "qwen2", "qwen3"};
    /* not OPT: at the kinks of its ReLU a difference over a finite step is no slope */
    static float up[VOCAB], down[VOCAB];
    for (size_t f = 0; f < sizeof some / sizeof *some; f++) {
        world w = open_world(some[f]);
        attn_inspect_args args = args_of();
        args.n_exact = 40;
        inspect(&w, &args);
        assert_int_equal(w.seen->estimate, ATTN_ESTIMATE_GRADIENT);
        double largest = 0;
        for (int64_t i = 0; i < w.seen->n_edges; i++)
            largest = fmax(largest, fabs((double)w.seen->edges[i].estimate));
        assert_true(largest > 1e-4);
        for (int64_t i = 0; i < w.seen->n_edges; i++) {
            const attn_inspect_edge *e = &w.seen->edges[i];
            float changed[DIM];
            w.change = NULL;
            w.layer = e->layer;
            pass(&w, up, NULL);
            const double a = fmin((double)e->weight, 0.99), factor = (double)e->weight / (1 - a);
            double y[DIM], along[DIM];
            for (int64_t d = 0; d < w.info.head_dim; d++) {
                y[d] = (double)w.out[e->query][e->head][d];
                along[d] = factor * (y[d] - (double)w.value[e->head][e->key][d]);
            }
            w.layer = -1;
            w.change = changed;
            w.change_layer = e->layer, w.change_head = e->head, w.change_query = e->query;
            /* steps that move the outcome by some 0.01: above rounding, far below its curvature */
            const double step = fmax(0.01, fmin(0.125, 0.01 / fmax(fabs((double)e->estimate), 1e-6)));
            double slopes[2]; /* over two steps: Richardson's extrapolation takes the curvature of third order out */
            for (int wide = 0; wide < 2; wide++) {
                const double h = step * (1 + wide);
                for (int64_t d = 0; d < w.info.head_dim; d++)
                    changed[d] = (float)(y[d] + h * along[d]);
                pass(&w, up, NULL);
                for (int64_t d = 0; d < w.info.head_dim; d++)
                    changed[d] = (float)(y[d] - h * along[d]);
                pass(&w, down, NULL);
                slopes[wide] = (outcome(&w, up) - outcome(&w, down)) / (2 * h);
            }
            w.change = NULL;
            const double want = (4 * slopes[0] - slopes[1]) / 3;
            /* four f32 logits, each off by some 4e-6, divided by the step; what Richardson leaves */
            if (!(fabs((double)e->estimate - want) <= 5e-5 + 0.01 * fabs(want)))
                fail_msg("%s layer %lld head %lld %lld <- %lld (weight %g): %g, not %g", some[f], (long long)e->layer,
                         (long long)e->head, (long long)e->query, (long long)e->key, (double)e->weight,
                         (double)e->estimate, want);
        }
        close_world(&w);
    }
}

/* Knockout, removal and replacement by rows put together by hand in one whole pass. */
static void test_cuts(void **state)
{
    (void)state;
    static float before[VOCAB], after[VOCAB];
    static const char *const some[] = {"llama3_rope", "gpt2", "gemma2", "gpt_oss"};
    for (size_t f = 0; f < sizeof some / sizeof *some; f++) {
        world w = open_world(some[f]);
        attn_inspect_args args = args_of();
        inspect(&w, &args);
        assert_true(w.seen->n_edges > 0);
        for (int64_t i = 0; i < w.seen->n_edges; i++) {
            const attn_inspect_edge *e = &w.seen->edges[i];
            const attn_inspect_effect *got[3] = {&e->knockout, &e->removal, &e->mean};
            w.layer = e->layer;
            pass(&w, before, NULL);
            w.layer = -1;
            for (int kind = 0; kind < 3; kind++) {
                float changed[DIM];
                const double a = (double)e->weight;
                if (kind == 0 && a > 0.9)
                    continue;
                assert_true(e->weight == w.weight[e->head][e->query][e->key]);
                for (int64_t d = 0; d < w.info.head_dim; d++) {
                    const double y = (double)w.out[e->query][e->head][d], v = (double)w.value[e->head][e->key][d];
                    double mean = 0;
                    for (int64_t j = 0; j < N; j++)
                        mean += (double)w.value[e->head][j][d] / N;
                    changed[d] = (float)(kind == 0 ? (y - a * v) / (1 - a) : y - a * v + (kind == 2 ? a * mean : 0));
                }
                w.change = changed;
                w.change_layer = e->layer, w.change_head = e->head, w.change_query = e->query;
                pass(&w, after, NULL);
                w.change = NULL;
                const double want = outcome(&w, after) - outcome(&w, before);
                double kl = 0, p_sum = 0, q_sum = 0;
                for (int64_t t = 0; t < VOCAB; t++) {
                    p_sum += exp((double)before[t]);
                    q_sum += exp((double)after[t]);
                }
                for (int64_t t = 0; t < VOCAB; t++)
                    kl += exp((double)before[t]) / p_sum *
                          ((double)before[t] - log(p_sum) - (double)after[t] + log(q_sum));
                if (!(fabs((double)got[kind]->difference - want) <= 2e-5 + 1e-4 * fabs(want)) ||
                    !(fabs((double)got[kind]->kl - kl) <= 1e-6 + 1e-3 * kl))
                    fail_msg("%s edge %lld (weight %g) kind %d: %g (KL %g), not %g (%g)", some[f], (long long)i, a, kind,
                             (double)got[kind]->difference, (double)got[kind]->kl, want, kl);
            }
        }
        close_world(&w);
    }
}

/* ---- whole heads and pairs ---- */

typedef struct replaced {
    int64_t layer, head;
    bool freeze;               /* every other head holds what it was */
    float (*clean)[N][HEADS][DIM], (*from)[N][HEADS][DIM]; /* [layers] */
    bool record;
    int64_t dim;
} replaced;

static attn_status replace(void *user, const attn_layer_view *view)
{
    replaced *r = user;
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t i = 0; i < N; i++) {
            float *y = (float *)view->head_out.data + h * view->head_out.stride[1] + i * view->head_out.stride[2];
            const size_t bytes = (size_t)r->dim * sizeof *y;
            if (r->record)
                memcpy(r->clean[view->layer][i][h], y, bytes);
            else if (view->layer == r->layer && h == r->head)
                memcpy(y, r->from[view->layer][i][h], bytes);
            else if (r->freeze)
                memcpy(y, r->clean[view->layer][i][h], bytes);
        }
    return ATTN_OK;
}

static void replaced_pass(world *w, replaced *r, const int32_t *tokens, float *logits)
{
    attn_forward_args args;
    ATTN_ARGS_INIT(&args);
    args.tokens = tokens;
    args.n_tokens = N;
    args.logits = logits;
    args.hook = replace;
    args.hook_user = r;
    attn_session_truncate(w->session, -1, 0);
    if (attn_model_forward(w->session, &args) != ATTN_OK)
        fail_msg("%s", attn_model_error(NULL));
}

static void test_heads_and_pairs(void **state)
{
    (void)state;
    static float clean[LAYERS][N][HEADS][DIM], pair[LAYERS][N][HEADS][DIM], mean[LAYERS][N][HEADS][DIM];
    static float zero[LAYERS][N][HEADS][DIM], before[VOCAB], after[VOCAB], of_pair[VOCAB];
    world w = open_world("llama3_rope");
    attn_inspect_args args = args_of();
    args.pair = other_ids;
    args.flags = ATTN_INSPECT_HEADS;
    inspect(&w, &args);
    const int64_t dim = w.info.head_dim;
    replaced r = {.clean = clean, .record = true, .dim = dim};
    replaced_pass(&w, &r, ids, before);
    r.clean = pair;
    replaced_pass(&w, &r, other_ids, of_pair);
    assert_true(fabs((double)w.seen->pair_outcome - outcome(&w, of_pair)) < 1e-5);
    for (int64_t l = 0; l < w.info.n_layers; l++)
        for (int64_t i = 0; i < N; i++)
            for (int64_t h = 0; h < HEADS; h++)
                for (int64_t d = 0; d < dim; d++)
                    for (int64_t j = 0; j < N; j++)
                        mean[l][i][h][d] += clean[l][j][h][d] / N;
    r = (replaced){.clean = clean, .dim = dim};
    for (r.layer = 0; r.layer < w.info.n_layers; r.layer++)
        for (r.head = 0; r.head < HEADS; r.head++) {
            const attn_inspect_head *head = &w.seen->heads[r.layer * HEADS + r.head];
            const float got[4] = {head->mean.difference, head->zero.difference, head->patch.difference,
                                  head->path.difference};
            float (*const from[4])[N][HEADS][DIM] = {mean, zero, pair, pair};
            for (int kind = 0; kind < 4; kind++) {
                r.from = from[kind];
                r.freeze = kind == 3;
                replaced_pass(&w, &r, ids, after);
                const double want = outcome(&w, after) - outcome(&w, before);
                if (!(fabs((double)got[kind] - want) <= 1e-5))
                    fail_msg("head %lld.%lld kind %d: %g, not %g", (long long)r.layer, (long long)r.head, kind,
                             (double)got[kind], want);
            }
            assert_true(head->resample.kl > 0);
        }
    for (int64_t i = 0; i < w.seen->n_edges; i++)
        assert_true(w.seen->edges[i].pair.kl >= 0);
    close_world(&w);
}

/* A window of every layer cuts the reading in all heads of all layers. */
static void test_windows(void **state)
{
    (void)state;
    static float before[VOCAB], after[VOCAB];
    world w = open_world("llama3_rope");
    attn_inspect_args args = args_of();
    args.window = 2;
    inspect(&w, &args);
    assert_true(w.info.n_layers == 2 && w.seen->window_query == N - 1 && w.seen->window_key > 0);
    pass(&w, before, NULL);
    const attn_edit edit = {.layer = -1, .entry = 0, .head = -1,   .query = N - 1, .key = w.seen->window_key,
                            .kind = ATTN_EDIT_KNOCKOUT};
    attn_forward_args forward;
    ATTN_ARGS_INIT(&forward);
    forward.tokens = ids;
    forward.n_tokens = N;
    forward.logits = after;
    forward.edits = &edit;
    forward.n_edits = 1;
    attn_session_truncate(w.session, -1, 0);
    assert_int_equal(attn_model_forward(w.session, &forward), ATTN_OK);
    const double want = outcome(&w, after) - outcome(&w, before);
    if (!(fabs((double)w.seen->windows[1].difference - want) <= 1e-5 + 1e-4 * fabs(want)))
        fail_msg("%g, not %g", (double)w.seen->windows[1].difference, want);
    assert_true(w.seen->windows[0].difference != w.seen->windows[1].difference);
    close_world(&w);
}

/* ---- long texts ---- */

static void test_long_text(void **state)
{
    (void)state;
    static int32_t text[100];
    for (int i = 0; i < 100; i++)
        text[i] = (i * 37 + i * i) % VOCAB;
    world w = open_world("llama3_rope");
    attn_inspect_args args = args_of();
    args.tokens = text;
    args.n_tokens = 100;
    args.at = 50;
    args.most_pairs = 100 * 100 * 8 / 8; /* a quarter of the rows, half of the pairs being masked */
    args.most_weights = 8 * 26 * 6;
    args.layer = 1;
    args.head = 2;
    args.flags = ATTN_INSPECT_NO_MEASURES;
    inspect(&w, &args);
    const attn_inspect_map *map = &w.seen->maps[0], *focus = w.seen->focus;
    assert_true(map->n_rows < 40 && map->n_rows >= 25 && map->most_kept == 6 && focus && focus->n_rows == 100);
    bool has_at = false;
    for (int64_t r = 0; r < map->n_rows; r++) {
        const int64_t row = 6 * map->n_rows + r, q = map->queries[r];
        has_at |= q == 50;
        assert_true(map->starts[row + 1] - map->starts[row] <= 6);
        for (int64_t i = map->starts[row]; i < map->starts[row + 1]; i++) {
            bool found = false;
            assert_true(map->keys[i] <= q && map->weights[i] >= 0.001f);
            for (int64_t k = focus->starts[q]; k < focus->starts[q + 1]; k++)
                found |= focus->keys[k] == map->keys[i] && focus->weights[k] == map->weights[i];
            assert_true(found);
        }
        if (q != 50)
            continue;
        float least = 1; /* the kept ones are the largest of the whole row */
        int64_t larger = 0, kept = map->starts[row + 1] - map->starts[row];
        for (int64_t i = map->starts[row]; i < map->starts[row + 1]; i++)
            least = fminf(least, map->weights[i]);
        for (int64_t j = 0; j < 100; j++)
            larger += map->at_rows[6 * 100 + j] > least;
        assert_true(larger < kept);
    }
    assert_true(has_at);
    close_world(&w);
}

static void test_rank_correlation(void **state)
{
    (void)state;
    const float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {2, 1, 4, 3, 6, 5}, down[6] = {9, 7, 5, 3, 2, 1};
    const float tied[5] = {1, 2, 2, 3, 4}, other[5] = {1, 3, 2, 2, 5}, same[5] = {7, 7, 7, 7, 7};
    assert_true(fabs(attn_rank_correlation(a, b, 6) - (1 - 6.0 * 6 / (6 * 35))) < 1e-12); /* 1 - 6 sum d^2 / n(n^2-1) */
    assert_true(fabs(attn_rank_correlation(a, down, 6) + 1) < 1e-12);
    /* ranks 1 2.5 2.5 4 5 and 1 4 2.5 2.5 5, mean 3: sums of products 6.75 / 9.5 */
    assert_true(fabs(attn_rank_correlation(tied, other, 5) - 7.25 / 9.5) < 1e-12);
    assert_true(isnan(attn_rank_correlation(tied, same, 5)));
    assert_true(isnan(attn_rank_correlation(a, b, 2)));
}

/* ---- head tests ---- */

static void test_head_scores(void **state)
{
    (void)state;
    world w = open_world("llama3_rope");
    attn_head_tests_args args;
    attn_head_tests_result *result, *again;
    ATTN_ARGS_INIT(&args);
    args.n_random = 12;
    args.n_sequences = 3;
    args.n_cut = 2;
    args.seed = 5;
    assert_int_equal(attn_head_tests(w.session, &args, &result), ATTN_OK);
    assert_int_equal(attn_head_tests(w.session, &args, &again), ATTN_OK);
    assert_memory_equal(result->scores, again->scores, 8 * sizeof *again->scores);
    assert_true(result->loss_cut == again->loss_cut && result->loss_second > 0);
    for (int64_t h = 0; h < 8; h++) {
        const attn_head_score *s = &result->scores[h];
        assert_true(s->previous > 0 && s->previous < 1 && s->sink > 0 && s->sink < 1 && s->local > 0 && s->local <= 1);
        assert_true(s->induction > 0 && s->duplicate > 0 && s->distance > 0 && s->distance < 25);
        assert_true(result->scores[result->cut[0]].induction >= s->induction);
    }
    for (int64_t i = 0; i < 2; i++)
        assert_true(result->cut[i] != result->control[0] && result->cut[i] != result->control[1]);
    attn_head_tests_destroy(result);
    attn_head_tests_destroy(again);
    close_world(&w);
}

/* ---- refusals ---- */

static void refuse(world *w, const attn_inspect_args *args, const char *text)
{
    attn_inspection *none = (attn_inspection *)1;
    assert_int_equal(attn_inspect(w->session, args, &none), ATTN_ERR_INVALID_ARGUMENT);
    assert_null(none);
    if (!strstr(attn_model_error(NULL), text))
        fail_msg("\"%s\" does not name %s", attn_model_error(NULL), text);
}

static void test_refusals(void **state)
{
    (void)state;
    world w = open_world("gpt2");
    attn_inspect_args args = args_of();
    args.at = N;
    refuse(&w, &args, "at is 9");
    args.at = -N - 1;
    refuse(&w, &args, "at is -10");
    args = args_of();
    args.layer = 99;
    refuse(&w, &args, "layer 99");
    args = args_of();
    args.answers = (const int32_t[2]){1, VOCAB};
    refuse(&w, &args, "answers[1] is 160");
    args = args_of();
    args.target = ids;
    args.n_target = 2;
    refuse(&w, &args, "target");
    args = args_of();
    args.flags = 4;
    refuse(&w, &args, "flags is 4");
    args = args_of();
    args.n_tokens = 0;
    refuse(&w, &args, "n_tokens is 0");
    args = args_of();
    args.tokens = (const int32_t[N]){1, 2, 3, VOCAB};
    refuse(&w, &args, "tokens[3] is 160");
    attn_inspection_destroy(NULL);
    attn_head_tests_destroy(NULL);
    close_world(&w);
}

/* One token reads itself and nothing else. */
static void test_one_token(void **state)
{
    (void)state;
    world w = open_world("llama3_rope");
    attn_inspect_args args = args_of();
    args.n_tokens = 1;
    inspect(&w, &args);
    assert_true(w.seen->maps[0].weights[0] == 1 && w.seen->measured && w.seen->n_edges <= 24);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_of_every_family), cmocka_unit_test(test_sizes_of_what_is_moved),
        cmocka_unit_test(test_direct_effects),          cmocka_unit_test(test_estimates_are_gradients),
        cmocka_unit_test(test_cuts),                    cmocka_unit_test(test_heads_and_pairs),
        cmocka_unit_test(test_windows),                 cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_rank_correlation),        cmocka_unit_test(test_head_scores),
        cmocka_unit_test(test_refusals),                cmocka_unit_test(test_one_token)};
    return cmocka_run_group_tests_name("inspect", tests, NULL, NULL);
}
