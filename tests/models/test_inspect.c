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
static const int32_t ids[N] = {5, 17, 44, 17, 3, 9, 50, 42, 44}, other_ids[N] = {5, 17, 31, 17, 3, 12, 50, 42, 44};

#define TARGET 5 /* tokens that the decoder of an encoder-decoder reads */

typedef struct world {
    attn_model *model;
    attn_session *session;
    attn_model_info info;
    attn_inspection *seen;
    bool in_encoder; /* of an encoder-decoder */
    /* what a hook keeps of the layer looked at */
    int32_t map;
    int64_t layer;
    float out[N][HEADS][DIM], value[HEADS][N][DIM], weight[HEADS][N][N];
    /* what it changes: the output of (map, layer, head) at query becomes this */
    int32_t change_map;
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

static void inspect(world *w, const attn_inspect_args *given)
{
    attn_inspect_args args = *given;
    if (w->info.kind == ATTN_MODEL_ENCODER_DECODER && !args.target) {
        args.target = other_ids;
        args.n_target = TARGET;
    }
    if (attn_inspect(w->session, &args, &w->seen) != ATTN_OK)
        fail_msg("%s", attn_model_error(NULL));
}

static int32_t map_of(const world *w, bool in_encoder, const attn_layer_view *view)
{
    return w->info.kind != ATTN_MODEL_ENCODER_DECODER || in_encoder ? 0 : view->kind == ATTN_ATTENTION_CROSS ? 2 : 1;
}

static attn_status keep(void *user, const attn_layer_view *view)
{
    world *w = user;
    const attn_sdpa_args *a = view->attention;
    const int64_t group = a->query.shape[1] / a->key.shape[1], dim = a->value.shape[3], keys = a->key.shape[2];
    const int32_t map = map_of(w, w->in_encoder, view);
    for (int64_t h = 0; h < HEADS && view->layer == w->layer && map == w->map; h++) {
        for (int64_t i = 0; i < a->query.shape[2]; i++) {
            const attn_row row = {0, h, i};
            const attn_view rows = attn_view_of(w->weight[h][i], ATTN_F32, 1, 1, 1, keys);
            assert_int_equal(attn_sdpa_rows(view->ctx, a, &row, 1, &rows), ATTN_OK);
            memcpy(w->out[i][h], (float *)view->head_out.data + h * view->head_out.stride[1] + i * view->head_out.stride[2],
                   (size_t)dim * sizeof(float));
        }
        for (int64_t j = 0; j < keys; j++)
            memcpy(w->value[h][j], (const float *)a->value.data + h / group * a->value.stride[1] + j * a->value.stride[2],
                   (size_t)dim * sizeof(float));
    }
    if (w->change && map == w->change_map && view->layer == w->change_layer)
        memcpy((float *)view->head_out.data + w->change_head * view->head_out.stride[1] +
                   w->change_query * view->head_out.stride[2],
               w->change, (size_t)dim * sizeof(float));
    return ATTN_OK;
}

/* The mean of rows, of unit length. */
static void embed(const float *hidden, float *embedding)
{
    double square = 0;
    for (int64_t i = 0; i < WIDTH; i++) {
        double sum = 0;
        for (int64_t t = 0; t < N; t++)
            sum += (double)hidden[t * WIDTH + i] / N;
        embedding[i] = (float)sum;
        square += sum * sum;
    }
    for (int64_t i = 0; i < WIDTH; i++)
        embedding[i] = (float)((double)embedding[i] / sqrt(square));
}

/* A whole pass under a hook (and edits of a map): logits [VOCAB] at the outcome's position, or the embedding [WIDTH]. */
static void any_pass(world *w, const int32_t *tokens, attn_layer_hook hook, void *user, const attn_edit *edit, float *results,
                     float *residual)
{
    static float all[N * VOCAB], hidden[N * WIDTH];
    const bool two = w->info.kind == ATTN_MODEL_ENCODER_DECODER, encoder = w->info.kind == ATTN_MODEL_ENCODER;
    attn_forward_args args;
    ATTN_ARGS_INIT(&args);
    args.tokens = tokens;
    args.n_tokens = N;
    args.hook = hook;
    args.hook_user = user;
    args.edits = edit;
    args.n_edits = edit && !(two && edit->attention == ATTN_ATTENTION_CROSS) ? 1 : 0;
    assert_true(w->info.vocab_size <= VOCAB);
    if (two) {
        w->in_encoder = true;
        args.n_edits = 0;
        assert_int_equal(attn_model_forward_encoder(w->session, &args), ATTN_OK);
        w->in_encoder = false;
        args.tokens = other_ids;
        args.n_tokens = TARGET;
        args.n_edits = edit ? 1 : 0;
    }
    args.final_residual = residual;
    if (encoder && w->info.has_logits) {
        args.logits = all;
        args.logits_rows = ATTN_LOGITS_ALL;
    } else if (encoder) {
        args.last_hidden = hidden;
    } else {
        args.logits = results;
        attn_session_truncate(w->session, -1, 0);
    }
    if (attn_model_forward(w->session, &args) != ATTN_OK)
        fail_msg("%s", attn_model_error(NULL));
    if (encoder && results && w->info.has_logits)
        memcpy(results, all + w->seen->outcome_position * w->info.vocab_size, (size_t)w->info.vocab_size * sizeof *results);
    else if (encoder && results)
        embed(hidden, results);
}

static void pass(world *w, float *results, float *residual)
{
    any_pass(w, ids, keep, w, NULL, results, residual);
}

/* The change of the outcome: of the logits' difference, or how far the embedding has moved. */
static double effect(const world *w, const float *before, const float *after)
{
    const int32_t *answers = w->seen->answers;
    double square = 0;
    if (w->seen->outcome_kind != ATTN_OUTCOME_EMBEDDING)
        return ((double)after[answers[0]] - (double)after[answers[1]]) - ((double)before[answers[0]] - (double)before[answers[1]]);
    for (int64_t i = 0; i < WIDTH; i++)
        square += ((double)after[i] - (double)before[i]) * ((double)after[i] - (double)before[i]);
    return sqrt(square);
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

/* A head's output at the query of a reading, and how the knockout would begin to change it. */
typedef struct direction {
    double output[DIM], along[DIM];
} direction;

static direction aim(world *w, const attn_inspect_edge *e, double factor, float *results)
{
    direction d = {0};
    w->change = NULL;
    w->map = e->map;
    w->layer = e->layer;
    pass(w, results, NULL);
    for (int64_t i = 0; i < w->info.head_dim; i++) {
        d.output[i] = (double)w->out[e->query][e->head][i];
        d.along[i] = factor * (d.output[i] - (double)w->value[e->head][e->key][i]);
    }
    w->layer = -1;
    w->change_map = e->map, w->change_layer = e->layer, w->change_head = e->head, w->change_query = e->query;
    return d;
}

/* The central difference of the outcome over one step. */
static double slope(world *w, const direction *d, double step, float *up, float *down)
{
    float changed[DIM];
    w->change = changed;
    for (int sign = 1; sign >= -1; sign -= 2) {
        for (int64_t i = 0; i < w->info.head_dim; i++)
            changed[i] = (float)(d->output[i] + sign * step * d->along[i]);
        pass(w, sign > 0 ? up : down, NULL);
    }
    w->change = NULL;
    return effect(w, down, up) / (2 * step);
}

/* Every estimate against central differences of the outcome along the knockout's change of the row. */
static void test_estimates_are_gradients(void **state)
{
    (void)state;
    static const char *const some[] = {"llama3_rope",    "mistral_window", "gpt2",        "qwen2",
                                       "qwen3",          "gemma2",         "gpt_neox",    "gpt_oss",
                                       "bert_mlm",       "modernbert",     "bert_untied", "gpt2_inverse_unscaled",
                                       "opt_projection", "opt_post",       "opt",         "t5"};
    static float up[VOCAB], down[VOCAB];
    for (size_t f = 0; f < sizeof some / sizeof *some; f++) {
        world w = open_world(some[f]);
        attn_inspect_args args = args_of();
        args.n_exact = 40;
        inspect(&w, &args);
        assert_int_equal(w.seen->estimate, ATTN_ESTIMATE_GRADIENT);
        /* ReLU: over a finite step some units cross their kinks, and the difference is no slope there. Most readings cross
         * none that matters: a wrong gradient would agree nowhere. */
        const bool kinks = strncmp(some[f], "opt", 3) == 0 || strcmp(some[f], "t5") == 0;
        int64_t off = 0;
        double largest = 0;
        for (int64_t i = 0; i < w.seen->n_edges; i++)
            largest = fmax(largest, fabs((double)w.seen->edges[i].estimate));
        assert_true(largest > 1e-4);
        for (int64_t i = 0; i < w.seen->n_edges; i++) {
            const attn_inspect_edge *e = &w.seen->edges[i];
            const double a = fmin((double)e->weight, 0.99);
            direction d = aim(&w, e, (double)e->weight / (1 - a), up);
            /* steps that move the outcome by some 0.01: above rounding, far below its curvature */
            double step = fmax(0.01, fmin(0.125, 0.01 / fmax(fabs((double)e->estimate), 1e-6)));
            step = kinks ? 0.03 : step;
            double slopes[2]; /* over two steps: Richardson's extrapolation takes the curvature of third order out */
            for (int wide = 0; wide < 2; wide++) {
                const double h = step * (1 + wide);
                slopes[wide] = slope(&w, &d, h, up, down);
                if (wide && step > 0.02 && fabs(slopes[1] - slopes[0]) > 0.1 * fabs(slopes[0])) {
                    step /= 4; /* too curved for what is extrapolated */
                    wide = -1;
                }
            }
            w.change = NULL;
            const double want = (4 * slopes[0] - slopes[1]) / 3;
            /* four f32 logits, each off by some 4e-6: 16e-6 / (2 h) for h of 0.125 and 0.25, (4 x 6.4e-5 + 3.2e-5) / 3
             * extrapolated; and what Richardson leaves */
            const double error = fabs((double)e->estimate - want);
            off += error > 1e-4 + 0.05 * fabs(want);
            if (!(error <= 1e-4 + 0.01 * fabs(want)) && !(kinks && error <= 1e-3 + 0.6 * fabs(want)))
                fail_msg("%s layer %lld head %lld %lld <- %lld (weight %g): %g, not %g", some[f], (long long)e->layer,
                         (long long)e->head, (long long)e->query, (long long)e->key, (double)e->weight,
                         (double)e->estimate, want);
        }
        if (3 * off > w.seen->n_edges)
            fail_msg("%s: %lld of %lld estimates are off", some[f], (long long)off, (long long)w.seen->n_edges);
        close_world(&w);
    }
}

/* Knockout, removal and replacement by rows put together by hand in one whole pass. */
static void test_cuts(void **state)
{
    (void)state;
    static float before[VOCAB], after[VOCAB];
    static const char *const some[] = {"llama3_rope", "gpt2", "gemma2", "gpt_oss", "bert", "bert_mlm", "modernbert", "t5"};
    for (size_t f = 0; f < sizeof some / sizeof *some; f++) {
        world w = open_world(some[f]);
        attn_inspect_args args = args_of();
        inspect(&w, &args);
        assert_true(w.seen->n_edges > 20);
        for (int64_t i = 0; i < w.seen->n_edges; i++) {
            const attn_inspect_edge *e = &w.seen->edges[i];
            const attn_inspect_effect *got[3] = {&e->knockout, &e->removal, &e->mean};
            const int64_t keys = w.seen->maps[e->map].n_keys;
            w.map = e->map;
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
                    for (int64_t j = 0; j < keys; j++)
                        mean += (double)w.value[e->head][j][d] / (double)keys;
                    changed[d] = (float)(kind == 0 ? (y - a * v) / (1 - a) : y - a * v + (kind == 2 ? a * mean : 0));
                }
                w.change = changed;
                w.change_map = e->map, w.change_layer = e->layer, w.change_head = e->head, w.change_query = e->query;
                pass(&w, after, NULL);
                w.change = NULL;
                const double want = effect(&w, before, after);
                const bool distance = w.seen->outcome_kind == ATTN_OUTCOME_EMBEDDING;
                double kl = 0, p_sum = 0, q_sum = 0, most = 0;
                for (int64_t t = 0; t < w.info.vocab_size; t++) {
                    most = fmax(most, fmax(fabs((double)before[t]), fabs((double)after[t])));
                    p_sum += exp((double)before[t]);
                    q_sum += exp((double)after[t]);
                }
                for (int64_t t = 0; t < w.info.vocab_size; t++)
                    kl += exp((double)before[t]) / p_sum *
                          ((double)before[t] - log(p_sum) - (double)after[t] + log(q_sum));
                /* four logits, each a sum of WIDTH terms in f32 that was rounded in another order */
                const double noise = 4 * sqrt(WIDTH) * 0x1p-24 * most;
                if (!(fabs((double)got[kind]->difference - want) <= noise + 1e-4 * fabs(want)) ||
                    (distance ? !isnan(got[kind]->kl) : !(fabs((double)got[kind]->kl - kl) <= 1e-6 + 1e-3 * kl)))
                    fail_msg("%s edge %lld (weight %g) kind %d: %g (KL %g), not %g (%g)", some[f], (long long)i, a, kind,
                             (double)got[kind]->difference, (double)got[kind]->kl, want, kl);
            }
        }
        close_world(&w);
    }
}

/* ---- whole heads and pairs ---- */

typedef float outputs[3][LAYERS][N][HEADS][DIM]; /* of every map */

typedef struct replaced {
    const world *w;
    int32_t map;
    int64_t layer, head, dim;
    bool record, freeze; /* freeze: every other head holds what it was */
    float (*clean)[LAYERS][N][HEADS][DIM], (*from)[LAYERS][N][HEADS][DIM];
} replaced;

static attn_status replace(void *user, const attn_layer_view *view)
{
    replaced *r = user;
    const int32_t map = map_of(r->w, r->w->in_encoder, view);
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t i = 0; i < view->head_out.shape[2]; i++) {
            float *y = (float *)view->head_out.data + h * view->head_out.stride[1] + i * view->head_out.stride[2];
            const size_t bytes = (size_t)r->dim * sizeof *y;
            if (r->record)
                memcpy(r->clean[map][view->layer][i][h], y, bytes);
            else if (map == r->map && view->layer == r->layer && h == r->head)
                memcpy(y, r->from[map][view->layer][i][h], bytes);
            else if (r->freeze)
                memcpy(y, r->clean[map][view->layer][i][h], bytes);
        }
    return ATTN_OK;
}

static void means(const world *w, float (*clean)[LAYERS][N][HEADS][DIM], float (*mean)[LAYERS][N][HEADS][DIM])
{
    memset(mean, 0, sizeof(outputs));
    for (int32_t m = 0; m < w->seen->n_maps; m++) {
        const int64_t n = w->seen->maps[m].n_queries;
        for (int64_t l = 0; l < w->seen->maps[m].n_layers; l++)
            for (int64_t i = 0; i < n; i++)
                for (int64_t h = 0; h < HEADS; h++)
                    for (int64_t d = 0; d < w->info.head_dim; d++)
                        for (int64_t j = 0; j < n; j++)
                            mean[m][l][i][h][d] += clean[m][l][j][h][d] / (float)n;
    }
}

static void test_heads_and_pairs(void **state)
{
    (void)state;
    static const char *const some[] = {"llama3_rope", "bert", "bert_mlm", "t5"};
    static outputs clean, pair, mean, zero;
    static float before[VOCAB], after[VOCAB], of_pair[VOCAB];
    for (size_t f = 0; f < sizeof some / sizeof *some; f++) {
        world w = open_world(some[f]);
        attn_inspect_args args = args_of();
        args.pair = other_ids;
        args.flags = ATTN_INSPECT_HEADS;
        inspect(&w, &args);
        replaced r = {.w = &w, .clean = clean, .record = true, .dim = w.info.head_dim};
        any_pass(&w, ids, replace, &r, NULL, before, NULL);
        r.clean = pair;
        any_pass(&w, other_ids, replace, &r, NULL, of_pair, NULL);
        const double of_own = w.seen->outcome_kind == ATTN_OUTCOME_EMBEDDING ? 0 : (double)w.seen->outcome;
        assert_true(fabs((double)w.seen->pair_outcome - of_own - effect(&w, before, of_pair)) < 1e-4);
        means(&w, clean, mean);
        r = (replaced){.w = &w, .clean = clean, .dim = w.info.head_dim};
        int64_t cut = 0;
        for (int32_t m = 0; m < w.seen->n_maps; m++)
            cut += w.seen->maps[m].n_layers * HEADS;
        assert_int_equal(w.seen->n_cut_heads, cut);
        for (int64_t i = 0; i < cut; i++) {
            const attn_inspect_head *head = &w.seen->heads[i];
            const float got[4] = {head->mean.difference, head->zero.difference, head->patch.difference,
                                  head->path.difference};
            float (*const from[4])[LAYERS][N][HEADS][DIM] = {mean, zero, pair, pair};
            r.map = head->map, r.layer = head->layer, r.head = head->head;
            for (int kind = 0; kind < 4; kind++) {
                r.from = from[kind];
                r.freeze = kind == 3;
                any_pass(&w, ids, replace, &r, NULL, after, NULL);
                const double want = effect(&w, before, after);
                if (!(fabs((double)got[kind] - want) <= 2e-5))
                    fail_msg("%s map %d head %lld.%lld kind %d: %g, not %g", some[f], r.map, (long long)r.layer,
                             (long long)r.head, kind, (double)got[kind], want);
            }
            assert_true(head->resample.difference != 0 || head->resample.kl > 0);
        }
        for (int64_t i = 0; i < w.seen->n_edges; i++)
            assert_true(w.seen->edges[i].pair.difference == w.seen->edges[i].pair.difference);
        close_world(&w);
    }
}

/* An embedding's estimates are distances along 8 random directions: right on average, each by some 25 %. */
static void test_estimated_distances(void **state)
{
    (void)state;
    static float up[WIDTH], down[WIDTH];
    world w = open_world("bert");
    attn_inspect_args args = args_of();
    args.n_exact = 40;
    args.n_sample = 40;
    inspect(&w, &args);
    assert_int_equal(w.seen->estimate, ATTN_ESTIMATE_DISTANCE);
    double sum = 0;
    int64_t counted = 0;
    for (int64_t i = 0; i < w.seen->n_edges; i++) {
        const attn_inspect_edge *e = &w.seen->edges[i];
        direction d = aim(&w, e, (double)e->weight / (1 - (double)e->weight), up);
        const double want = slope(&w, &d, 0.01, up, down), ratio = (double)e->estimate / want;
        if (want < 1e-4) /* rounding of the two passes */
            continue;
        if (!(ratio > 0.2 && ratio < 2.3)) /* outside of these a mean of 8 squares lies once in 30,000 */
            fail_msg("edge %lld: %g, not %g", (long long)i, (double)e->estimate, want);
        sum += ratio;
        counted++;
    }
    if (!(counted >= 30 && sum / (double)counted > 0.75 && sum / (double)counted < 1.25))
        fail_msg("mean ratio %g of %lld", sum / (double)counted, (long long)counted);
    close_world(&w);
}

/* A window of every layer cuts the reading in all heads of all layers: in cross attention where there is one. */
static void test_windows(void **state)
{
    (void)state;
    static const char *const some[] = {"llama3_rope", "bert_mlm", "t5"};
    static float before[VOCAB], after[VOCAB];
    for (size_t f = 0; f < sizeof some / sizeof *some; f++) {
        world w = open_world(some[f]);
        attn_inspect_args args = args_of();
        args.window = 2;
        inspect(&w, &args);
        assert_true(w.info.n_layers == 2 && w.seen->window_query == w.seen->at && w.seen->window_key > 0);
        assert_int_equal(w.seen->window_map, w.seen->n_maps - 1);
        w.layer = -1;
        pass(&w, before, NULL);
        const attn_edit edit = {.layer = -1,
                                .entry = 0,
                                .head = -1,
                                .query = w.seen->window_query,
                                .key = w.seen->window_key,
                                .kind = ATTN_EDIT_KNOCKOUT,
                                .attention = w.seen->n_maps > 1 ? ATTN_ATTENTION_CROSS : ATTN_ATTENTION_SELF};
        any_pass(&w, ids, keep, &w, &edit, after, NULL);
        const double want = effect(&w, before, after);
        if (!(fabs((double)w.seen->windows[1].difference - want) <= 1e-5 + 1e-4 * fabs(want)))
            fail_msg("%s: %g, not %g", some[f], (double)w.seen->windows[1].difference, want);
        assert_true(w.seen->windows[0].difference != w.seen->windows[1].difference);
        close_world(&w);
    }
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
    refuse(&w, &args, "layer is 99");
    args = args_of();
    args.layer = 0;
    args.head = HEADS;
    refuse(&w, &args, "head is 4, must be 0 to 3");
    args.layer = -1;
    args.head = 1;
    refuse(&w, &args, "head is 1, but layer is -1");
    args = args_of();
    args.window = 99;
    refuse(&w, &args, "window is 99");
    args = args_of();
    args.n_sample = -2;
    refuse(&w, &args, "n_sample is -2");
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

/* An encoder's outcome is attn_embed's vector, by the pooling of the model's files: how far a paired prompt's lies from it. Poolings
 * that are no mean of rows are not measured. */
static void test_poolings(void **state)
{
    (void)state;
    world w = open_world("bert");
    for (int32_t pooling = ATTN_POOL_MEAN; pooling <= ATTN_POOL_SQRT; pooling++) {
        static float vectors[2 * WIDTH];
        static const int64_t lengths[2] = {N, N};
        const bool measured = pooling != ATTN_POOL_MAX && pooling != ATTN_POOL_WEIGHTED;
        int32_t both[2 * N];
        double square = 0;
        w.model->card.pooling = pooling;
        memcpy(both, ids, sizeof ids), memcpy(both + N, other_ids, sizeof other_ids);
        attn_embed_args embedded;
        ATTN_ARGS_INIT(&embedded);
        embedded.tokens = both, embedded.lengths = lengths, embedded.n_texts = 2, embedded.embeddings = vectors;
        assert_true(w.info.d_model <= WIDTH);
        assert_int_equal(attn_embed(w.session, &embedded), ATTN_OK);
        const float *first = vectors, *second = vectors + w.info.d_model;
        for (int64_t i = 0; i < w.info.d_model; i++)
            square += ((double)first[i] - (double)second[i]) * ((double)first[i] - (double)second[i]);
        attn_inspect_args args = args_of();
        args.pair = other_ids;
        assert_int_equal(attn_inspect(w.session, &args, &w.seen), measured ? ATTN_OK : ATTN_ERR_UNSUPPORTED);
        if (measured && !(fabs((double)w.seen->pair_outcome - sqrt(square)) < 1e-5))
            fail_msg("pooling %d: %g, not %g", pooling, (double)w.seen->pair_outcome, sqrt(square));
        args.flags = ATTN_INSPECT_NO_MEASURES;
        args.pair = NULL;
        attn_inspection_destroy(w.seen);
        assert_int_equal(attn_inspect(w.session, &args, &w.seen), ATTN_OK);
        attn_inspection_destroy(w.seen);
        w.seen = NULL;
    }
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
        cmocka_unit_test(test_estimated_distances),     cmocka_unit_test(test_windows),
        cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_rank_correlation),        cmocka_unit_test(test_head_scores),
        cmocka_unit_test(test_refusals),                cmocka_unit_test(test_poolings),
        cmocka_unit_test(test_one_token)};
    return cmocka_run_group_tests_name("inspect", tests, NULL, NULL);
}
