/* What attn_inspect screens of a text of several blocks, against the same numbers put together densely: the largest estimates,
 * those of readings chosen otherwise, and the rank correlation of weight and estimate. The gradients come from the library, where
 * test_inspect.c holds them against central differences: attn_screen_layer is wrapped by the linker. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "inspect/inspect_screen.h"

#define N      270 /* more than a block of rows and a chunk of keys */
#define TARGET 140
#define VOCAB  90 /* the smallest has 97 */

/* A reading, and by how much an estimate in f32 may be off. */
typedef struct dense {
    attn_reading r;
    float bound;
} dense;

static dense *all; /* every reading, as the layers go by */
static int64_t n_all, room;

attn_status __real_attn_screen_layer(attn_screen *s, int32_t m, int64_t layer, const attn_backward *b);
attn_status __wrap_attn_screen_layer(attn_screen *s, int32_t m, int64_t layer, const attn_backward *b);

/* a / (1 - a) <g, y - v>, over several directions the root of its mean square. Screening takes <g, y> - <g, v>: two sums of dim
 * products in f32, times weights off by the rounding of lse (|lse| < 32: 2e-6), which 1 / (1 - a) makes larger. */
static void estimate(const attn_screen *s, const attn_backward *b, dense *to)
{
    const attn_description *d = &s->run->model->d;
    const attn_reading *r = &to->r;
    const attn_inspect_site *site = &s->run->sites[r->map];
    const int64_t dim = d->head_dim, width = d->n_heads * dim, directions = attn_backward_directions(s->run);
    const float *v = attn_inspect_value(s->run, site, site->values, r->layer, r->head, r->key);
    const float *y = b->heads + r->query * width + r->head * dim;
    const double a = (double)r->weight, left = 1 - fmin(a, 0.99), factor = a / left;
    double squares = 0, along = 0, bounds = 0;
    for (int64_t u = 0; u < directions; u++) {
        const float *g = b->all_d_heads + (u * (directions > 1 ? s->run->a.n_tokens : 0) + r->query) * width + r->head * dim;
        double sizes = 0;
        along = 0;
        for (int64_t i = 0; i < dim; i++) {
            along += factor * (double)g[i] * ((double)y[i] - (double)v[i]);
            sizes += factor * fabs((double)g[i]) * (fabs((double)y[i]) + fabs((double)v[i]));
        }
        squares += along * along / (double)directions;
        bounds += (double)(dim + 4) * 0x1p-24 * sizes + 2e-6 / left * fabs(along);
    }
    to->r.estimate = (float)(directions > 1 ? sqrt(squares) : along);
    to->bound = (float)bounds;
}

attn_status __wrap_attn_screen_layer(attn_screen *s, int32_t m, int64_t layer, const attn_backward *b)
{
    const attn_inspect_site *site = &s->run->sites[m];
    attn_sdpa_args call = attn_backward_call(s->run, site, layer, b);
    float weights[N];
    call.lse = NULL;
    for (int64_t h = 0; h < s->run->model->d.n_heads; h++)
        for (int64_t q = site->causal ? 1 : 0; q < site->n_queries; q++) {
            const attn_row row = {0, h, q};
            const attn_view view = attn_view_of(weights, ATTN_F32, 1, 1, 1, site->n_keys);
            assert_int_equal(attn_sdpa_rows(s->run->s->ctx, &call, &row, 1, &view), ATTN_OK);
            for (int64_t j = 0; j < (site->causal ? q + 1 : site->n_keys); j++) {
                assert_true(n_all < room);
                all[n_all].r = (attn_reading){m, weights[j], 0, layer, h, q, j};
                estimate(s, b, &all[n_all++]);
            }
        }
    return __real_attn_screen_layer(s, m, layer, b);
}

static int in_order(const void *a, const void *b)
{
    const attn_reading *x = &((const dense *)a)->r, *y = &((const dense *)b)->r;
    const int64_t p[] = {x->map, x->layer, x->head, x->query, x->key}, q[] = {y->map, y->layer, y->head, y->query, y->key};
    for (int i = 0; i < 5; i++)
        if (p[i] != q[i])
            return p[i] > q[i] ? 1 : -1;
    return 0;
}

static void check_edges(const char *name, const attn_inspection *in)
{
    float least = INFINITY;
    int64_t largest = 0;
    for (int64_t i = 0; i < in->n_edges; i++) {
        const attn_inspect_edge *e = &in->edges[i];
        const dense key = {.r = {.map = e->map, .layer = e->layer, .head = e->head, .query = e->query, .key = e->key}};
        dense *found = bsearch(&key, all, (size_t)n_all, sizeof *all, in_order);
        assert_non_null(found);
        const double off = fabs((double)e->estimate - (double)found->r.estimate);
        if (!(off <= (double)found->bound) || !(fabsf(e->weight - found->r.weight) <= 2e-6f * found->r.weight))
            fail_msg("%s map %d layer %lld head %lld %lld <- %lld: %g of %g, not %g (+- %g) of %g", name, e->map,
                     (long long)e->layer, (long long)e->head, (long long)e->query, (long long)e->key, (double)e->estimate,
                     (double)e->weight, (double)found->r.estimate, (double)found->bound, (double)found->r.weight);
        if (e->why & ATTN_EDGE_LARGEST) {
            largest++;
            least = fminf(least, fabsf(e->estimate));
            found->bound = INFINITY; /* taken */
        }
    }
    if (largest != 8)
        fail_msg("%s: %lld of 8 largest", name, (long long)largest);
    for (int64_t i = 0; i < n_all; i++)
        if (fabsf(all[i].r.estimate) - all[i].bound > least)
            fail_msg("%s: %g is not among those down to %g", name, (double)all[i].r.estimate, (double)least);
}

/* Over every step-th of all readings in order. */
static void check_correlation(const char *name, const attn_inspection *in)
{
    const int64_t step = n_all / 200000 + 1;
    float *weights = malloc((size_t)n_all * sizeof *weights), *sizes = malloc((size_t)n_all * sizeof *sizes);
    assert_true(weights && sizes);
    for (int without = 0; without < 2; without++) {
        const int64_t n = without ? in->estimated.n_without_first : in->estimated.n;
        const double got = without ? in->estimated.without_first : in->estimated.all;
        int64_t count = 0;
        for (int64_t i = 0; i < n_all; i += step)
            if (!without || all[i].r.key > 0) {
                weights[count] = all[i].r.weight;
                sizes[count++] = fabsf(all[i].r.estimate);
            }
        const double want = attn_rank_correlation(weights, sizes, count);
        if (count != n || !(fabs(got - want) <= 1e-4))
            fail_msg("%s: %g of %lld, not %g of %lld", name, got, (long long)n, want, (long long)count);
    }
    free(weights);
    free(sizes);
}

static void check(const char *name, int64_t n, int32_t kind)
{
    static int32_t text[N];
    char path[600];
    attn_model *model;
    attn_session *session;
    attn_inspection *in;
    attn_inspect_args args;
    for (int i = 0; i < N; i++)
        text[i] = (i * 37 + i * i) % VOCAB;
    snprintf(path, sizeof path, "%s/tests/data/families/%s.safetensors", ATTN_SOURCE_DIR, name);
    if (attn_model_load(path, NULL, &model) != ATTN_OK)
        fail_msg("%s: %s", name, attn_model_error(NULL));
    if (model->d.position == ATTN_POSITION_ROPE) /* positions are computed: any number will do */
        model->d.context_length = N;
    assert_int_equal(attn_session_create(model, NULL, &session), ATTN_OK);
    ATTN_ARGS_INIT(&args);
    args.tokens = text;
    args.n_tokens = n;
    args.target = model->d.kind == ATTN_MODEL_ENCODER_DECODER ? text + 7 : NULL;
    args.n_target = args.target ? TARGET : 0;
    args.at = -1;
    args.layer = args.head = -1;
    args.n_exact = 8;
    args.n_sample = 6;
    n_all = 0;
    room = 3 * (int64_t)model->d.n_layers * model->d.n_heads * n * n;
    all = malloc((size_t)room * sizeof *all);
    assert_non_null(all);
    if (attn_inspect(session, &args, &in) != ATTN_OK)
        fail_msg("%s: %s", name, attn_model_error(NULL));
    assert_int_equal(in->estimate, kind);
    assert_int_equal(in->n_screened, n_all);
    qsort(all, (size_t)n_all, sizeof *all, in_order);
    check_edges(name, in);
    check_correlation(name, in);
    free(all);
    attn_inspection_destroy(in);
    attn_session_destroy(session);
    attn_model_destroy(model);
}

static void test_decoders(void **state)
{
    (void)state;
    check("llama3_rope", N, ATTN_ESTIMATE_GRADIENT);
    check("gpt_oss", N, ATTN_ESTIMATE_GRADIENT); /* windows, sinks, a mixture */
    check("gpt_neox", 9, ATTN_ESTIMATE_GRADIENT); /* parallel; the same way for a short text */
}

static void test_encoders(void **state)
{
    (void)state;
    check("modernbert", N, ATTN_ESTIMATE_GRADIENT);
    check("bert", 128, ATTN_ESTIMATE_DISTANCE);
}

static void test_both(void **state)
{
    (void)state;
    check("t5", N, ATTN_ESTIMATE_GRADIENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_decoders), cmocka_unit_test(test_encoders),
                                       cmocka_unit_test(test_both)};
    return cmocka_run_group_tests_name("screen", tests, NULL, NULL);
}
