/* The backward pass at every level against the plain reference: random problems with every mix of options, types and strides,
 * each array right at a guard page and gaps filled with NaN (fwd_world.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/cpu.h"
#include "fwd_world.h"
#include "bwd_world.h"

static const int32_t levels[] = {ATTN_ISA_SCALAR,     ATTN_ISA_AVX2, ATTN_ISA_AVX512,
                                 ATTN_ISA_AVX512BF16, ATTN_ISA_NEON, ATTN_ISA_NEONBF16};
#define N_LEVELS ((int)(sizeof levels / sizeof *levels))

#define N_PROBLEMS 500 /* per level; ATTN_FWD_PROBLEMS in the environment replaces it */

static int64_t n_problems(void)
{
    const char *text = getenv("ATTN_FWD_PROBLEMS");
    return text && atoll(text) > 0 && atoll(text) < N_PROBLEMS ? atoll(text) : N_PROBLEMS;
}

/* Where problems are fewer, of listed cases only each third is run: no list within a level has a length that 3 divides, so all kinds are met. */
static int case_step(void)
{
    return n_problems() < N_PROBLEMS ? 3 : 1;
}

static attn_view gradient_of(world *w, const attn_cview *of, int32_t dtype, bool odd)
{
    attn_view view;
    attn_cview v = world_view(w, dtype, of->shape, odd);
    memcpy(&view, &v, sizeof view);
    return view;
}

/* Gradients of what is added to scores: d_bias in the bias's shape or summed further. */
static void add_tables(world *w, attn_sdpa_backward_args *b, bool odd)
{
    const attn_sdpa_args *a = b->forward;
    const attn_mask *m = &a->mask;
    const int64_t *q = a->query.shape;
    if (m->bias.data) {
        int64_t full[4] = {q[0], q[1], q[2], a->key.shape[2]};
        for (int n = 0; n < 4; n++)
            full[n] = m->bias.shape[n] == 1 || rng_chance(&w->r, 0.2) ? 1 : full[n];
        attn_cview like = attn_cview_of(NULL, ATTN_F32, full[0], full[1], full[2], full[3]);
        b->d_bias = gradient_of(w, &like, a->query.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32, odd);
    }
    if (m->relative)
        b->d_relative = world_memory(w, (size_t)(q[1] * (m->rel_left + m->rel_right + 3)) * 4);
    if (a->sinks)
        b->d_sinks = world_memory(w, (size_t)q[1] * 4);
}

/* False where the backward pass does not serve the forward problem. */
static bool backward_of(world *w, attn_sdpa_backward_args *b)
{
    attn_sdpa_args *a = &w->args;
    bool odd = rng_chance(&w->r, 0.4);
    const int64_t *q = a->query.shape;
    if (a->layout.block_table || a->layout.ring || a->key.dtype != a->query.dtype)
        return false;
    if (!a->lse)
        a->lse = world_memory(w, (size_t)(q[0] * q[1] * q[2]) * 4);
    ATTN_ARGS_INIT(b);
    b->forward = a;
    b->d_out = world_floats(w, rng_chance(&w->r, 0.5) ? a->out.dtype : ATTN_F32, q[0], q[1], q[2], a->value.shape[3], 1, odd);
    if (rng_chance(&w->r, 0.3))
        b->d_lse = world_floats(w, ATTN_F32, 1, q[0], q[1], q[2], 1, false).data;
    int32_t dtype = rng_chance(&w->r, 0.5) ? a->query.dtype : ATTN_F32;
    b->d_query = gradient_of(w, &a->query, dtype, odd);
    b->d_key = gradient_of(w, &a->key, dtype, odd);
    b->d_value = gradient_of(w, &a->value, dtype, odd);
    add_tables(w, b, odd);
    return true;
}

static bool problem_fails(attn_ctx *ctx, uint64_t seed, int64_t max_q, int64_t max_k, int64_t max_dim)
{
    world w;
    attn_sdpa_backward_args args;
    attn_bwd_problem g;
    world_make(&w, seed, max_q, max_k, max_dim);
    bool served = backward_of(&w, &args), failed = false;
    if (served) {
        attn_status status = attn_sdpa_forward(ctx, &w.args, NULL, 0);
        status = status == ATTN_OK ? attn_sdpa_backward(ctx, &args, NULL, 0) : status;
        if (status != ATTN_OK || attn_sdpa_validate_backward(ctx, &args, true, &g) != ATTN_OK)
            fail_msg("seed %llu: %s", (unsigned long long)seed, attn_ctx_error(ctx));
        failed = backward_differs(&g, seed, attn_ctx_isa(ctx));
        if (failed)
            world_print(&g.forward, seed, attn_ctx_isa(ctx), "gradients");
    }
    world_free(&w);
    return failed;
}

static attn_ctx *make_ctx(int32_t isa)
{
    attn_ctx_options options;
    attn_ctx *ctx = NULL;
    ATTN_ARGS_INIT(&options);
    options.max_isa = isa;
    options.n_threads = 2;
    if (attn_cpu_has_isa(isa))
        assert_int_equal(attn_ctx_create(&options, &ctx), ATTN_OK);
    return ctx;
}

static void run_level(int32_t isa)
{
    int64_t problems = n_problems(), failures = 0;
    attn_ctx *ctx = make_ctx(isa);
    if (!ctx) {
        print_message("%s: not on this machine\n", attn_isa_name(isa));
        skip();
    }
    for (int64_t n = 0; n < problems && failures < 5; n++)
        failures += problem_fails(ctx, (uint64_t)(5000 + n), n % 3 ? 20 : 60, n % 5 ? 30 : 90, n % 4 ? 20 : 48);
    for (int64_t n = 0; n < problems / 20 && failures < 5; n++)
        failures += problem_fails(ctx, (uint64_t)(800000 + n), 130, 250, 24);
    attn_ctx_destroy(ctx);
    assert_int_equal(failures, 0);
}

/* Scores that are hard on a softmax (as test_fwd_promises has them), each dtype, few pairs (computed in double) and many. */
enum { HUGE_SCORES, ALL_EQUAL, ONE_GIANT, SUBNORMAL, SINK_HIGH, SINK_LOW, BIAS_LOWEST, HARD_CAP, N_KINDS };

static void set_all(const attn_cview *v, double x)
{
    for (int64_t n = 0; n < v->shape[0] * v->shape[1] * v->shape[2] * v->shape[3]; n++)
        attn_store_element(world_data(v), v->dtype, n, x);
}

static void scale_all(const attn_cview *v, int exponent)
{
    for (int64_t n = 0; n < v->shape[0] * v->shape[1] * v->shape[2] * v->shape[3]; n++)
        attn_store_element(world_data(v), v->dtype, n, ldexp(attn_load_element(v->data, v->dtype, n), exponent));
}

static void make_hard(world *w, attn_sdpa_backward_args *b, int kind, int32_t dtype, bool many)
{
    enum { DIM = 16 };
    attn_sdpa_args *a = &w->args;
    int64_t queries = many ? 50 : 13, keys = many ? 300 : 45, giant = many ? 141 : 7;
    bool narrow = dtype == ATTN_F16, wide = dtype == ATTN_F64;
    memset(w, 0, sizeof *w);
    w->r.state = (uint64_t)(40 + kind);
    ATTN_ARGS_INIT(a);
    a->query = world_floats(w, dtype, 1, 2, queries, DIM, 1, false);
    a->key = world_floats(w, dtype, 1, 1, keys, DIM, 1, false);
    a->value = world_floats(w, dtype, 1, 1, keys, DIM, 1, false);
    a->out = attn_view_of(world_memory(w, (size_t)(2 * queries * DIM) * 8), dtype, 1, 2, queries, DIM);
    if (kind == HUGE_SCORES || kind == HARD_CAP)
        a->flags |= ATTN_SCALE_GIVEN, a->scale = 2500; /* scores of about 1e4, both signs */
    if (kind == HARD_CAP)
        a->softcap = 0.25;
    if (kind == ALL_EQUAL)
        set_all(&a->query, 3), set_all(&a->key, 1);
    for (int64_t d = 0; kind == ONE_GIANT && d < DIM; d++)
        attn_store_element(world_data(&a->key), dtype, giant * DIM + d, (narrow ? 1e4 : 1e6) * attn_load_element(a->query.data, dtype, 7 * DIM + d));
    if (kind == SUBNORMAL) {
        set_all(&a->query, ldexp(1, narrow ? -12 : wide ? -600 : -80));
        scale_all(&a->key, narrow ? -8 : wide ? -440 : -60);
        scale_all(&a->value, narrow ? -18 : wide ? -1050 : -130);
    }
    if (kind == SINK_HIGH || kind == SINK_LOW) {
        attn_cview sinks = world_floats(w, ATTN_F32, 1, 1, 1, 2, 0, false);
        set_all(&sinks, kind == SINK_HIGH ? 100 : -100);
        a->sinks = sinks.data;
    }
    if (kind == BIAS_LOWEST) { /* rows whose keys all have the lowest finite bias: equal weights */
        a->mask.bias = world_floats(w, ATTN_F32, 1, 1, queries, keys, 0, false);
        set_all(&a->mask.bias, -3.4028234663852886e38);
    }
    a->lse = world_memory(w, (size_t)(2 * queries) * 8);
    ATTN_ARGS_INIT(b);
    b->forward = a;
    b->d_out = world_floats(w, dtype, 1, 2, queries, DIM, 1, false);
    b->d_query = gradient_of(w, &a->query, dtype, false);
    b->d_key = gradient_of(w, &a->key, wide ? dtype : ATTN_F32, false);
    b->d_value = gradient_of(w, &a->value, dtype, false);
    add_tables(w, b, false);
}

static void hard_scores(void **state)
{
    static const int32_t dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_F64};
    (void)state;
    for (int n = 0; n < N_LEVELS * 4 * N_KINDS * 2; n += case_step()) {
        world w;
        attn_sdpa_backward_args args;
        attn_bwd_problem g;
        attn_ctx *ctx = make_ctx(levels[n / 8 / N_KINDS]);
        int kind = n / 8 % N_KINDS;
        if (!ctx)
            continue;
        make_hard(&w, &args, kind, dtypes[n / 2 % 4], n % 2);
        assert_int_equal(attn_sdpa_forward(ctx, &w.args, NULL, 0), ATTN_OK);
        assert_int_equal(attn_sdpa_backward(ctx, &args, NULL, 0), ATTN_OK);
        assert_int_equal(attn_sdpa_validate_backward(ctx, &args, true, &g), ATTN_OK);
        if (backward_differs(&g, (uint64_t)kind, attn_ctx_isa(ctx))) {
            world_print(&g.forward, (uint64_t)kind, attn_ctx_isa(ctx), "gradients of hard scores");
            fail();
        }
        world_free(&w);
        attn_ctx_destroy(ctx);
    }
}

/* ---- Masks drawn into arrays, which exclude whole tiles, ends of rows and rows between others ---- */

enum { WINDOW, DOCUMENTS, STRIPES, LEFT_PADDING, TWO_ARRAYS, N_DRAWN };

static bool drawn_admits(int pattern, int64_t i, int64_t j)
{
    switch (pattern) {
    case WINDOW:
        return j <= 2 * i && j > 2 * i - 40;
    case DOCUMENTS: /* rows 100 to 129 belong to none */
        return i / 70 == j / 160 && !(i >= 100 && i < 130);
    case STRIPES: /* far and near, in turns of rows: no range rises with the row */
        return i / 5 % 2 ? j >= 380 && j < 400 : j < 9;
    case LEFT_PADDING:
        return j >= 301;
    default:
        return j % 3 != 0 && j / 200 == i / 100;
    }
}

static void draw_mask(world *w, int pattern, int32_t dtype, bool odd, int64_t queries, int64_t keys)
{
    attn_mask *m = &w->args.mask;
    const int64_t rows = pattern == LEFT_PADDING ? 1 : queries, heads = pattern == WINDOW ? 4 : 1;
    const bool allow = dtype == ATTN_BOOL || pattern == TWO_ARRAYS, bias = dtype != ATTN_BOOL;
    if (allow)
        m->allow = world_bools(w, 1, heads, rows, keys, 1, odd);
    if (bias)
        m->bias = world_floats(w, dtype, 1, heads, rows, keys, 1, odd);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < keys; j++) {
                const bool far = pattern == TWO_ARRAYS && j >= 200; /* one array excludes below, the other above */
                if (drawn_admits(pattern, i, j))
                    continue;
                if (allow && !far)
                    ((uint8_t *)world_data(&m->allow))[attn_offset(m->allow.stride, 0, h, i, j)] = 0;
                else
                    attn_store_element(world_data(&m->bias), dtype, attn_offset(m->bias.stride, 0, h, i, j), -INFINITY);
            }
}

static void drawn_masks(void **state)
{
    static const int32_t types[] = {ATTN_BOOL, ATTN_F32, ATTN_BF16, ATTN_F16};
    enum { QUERIES = 200, KEYS = 420, DIM = 16 };
    (void)state;
    for (int n = 0; n < N_LEVELS * N_DRAWN * 4 * 2; n += case_step()) {
        const int pattern = n / 8 % N_DRAWN;
        const int32_t type = types[n / 2 % 4], dtype = type == ATTN_BOOL ? ATTN_F32 : type;
        if (type == ATTN_BOOL && pattern == TWO_ARRAYS)
            continue;
        attn_ctx *ctx = make_ctx(levels[n / 8 / N_DRAWN]);
        world w;
        attn_sdpa_args *a = &w.args;
        attn_sdpa_backward_args b;
        attn_bwd_problem g;
        if (!ctx)
            continue;
        memset(&w, 0, sizeof w);
        w.r.state = (uint64_t)(900 + n);
        ATTN_ARGS_INIT(a);
        a->query = world_floats(&w, dtype, 1, 4, QUERIES, DIM, 1, false);
        a->key = world_floats(&w, dtype, 1, 2, KEYS, DIM, 1, false);
        a->value = world_floats(&w, dtype, 1, 2, KEYS, DIM, 1, false);
        a->out = attn_view_of(world_memory(&w, 4 * QUERIES * DIM * 4), dtype, 1, 4, QUERIES, DIM);
        a->lse = world_memory(&w, 4 * QUERIES * 4);
        draw_mask(&w, pattern, type, n % 2, QUERIES, KEYS);
        ATTN_ARGS_INIT(&b);
        b.forward = a;
        b.d_out = world_floats(&w, dtype, 1, 4, QUERIES, DIM, 1, false);
        b.d_query = gradient_of(&w, &a->query, dtype, false);
        b.d_key = gradient_of(&w, &a->key, dtype, false);
        b.d_value = gradient_of(&w, &a->value, dtype, false);
        add_tables(&w, &b, false);
        assert_int_equal(attn_sdpa_forward(ctx, a, NULL, 0), ATTN_OK);
        assert_int_equal(attn_sdpa_backward(ctx, &b, NULL, 0), ATTN_OK);
        assert_int_equal(attn_sdpa_validate_backward(ctx, &b, true, &g), ATTN_OK);
        const char *wrong = world_wrong(&g.forward, attn_ctx_isa(ctx));
        if (wrong || backward_differs(&g, (uint64_t)n, attn_ctx_isa(ctx))) {
            world_print(&g.forward, (uint64_t)n, attn_ctx_isa(ctx), wrong ? wrong : "gradients under a drawn mask");
            fail();
        }
        world_free(&w);
        attn_ctx_destroy(ctx);
    }
}

/* ---- One thread and several: the same bits ---- */

static void gradients_with(int32_t isa, int32_t n_threads, int32_t dtype, char *gradients, size_t bytes)
{
    enum { HEADS = 6, KV = 3, SEQ = 333, DIM = 40 };
    attn_ctx_options options;
    attn_ctx *ctx;
    world w;
    attn_sdpa_backward_args b;
    memset(&w, 0, sizeof w);
    w.r.state = 77;
    ATTN_ARGS_INIT(&options);
    options.max_isa = isa;
    options.n_threads = n_threads;
    assert_int_equal(attn_ctx_create(&options, &ctx), ATTN_OK);
    attn_sdpa_args *a = &w.args;
    ATTN_ARGS_INIT(a);
    a->query = world_floats(&w, dtype, 2, HEADS, SEQ, DIM, 1, false);
    a->key = world_floats(&w, dtype, 2, KV, SEQ, DIM, 1, false);
    a->value = world_floats(&w, dtype, 2, KV, SEQ, DIM, 1, false);
    a->out = attn_view_of(world_memory(&w, 2 * HEADS * SEQ * DIM * 4), dtype, 2, HEADS, SEQ, DIM);
    a->lse = world_memory(&w, 2 * HEADS * SEQ * 4);
    a->mask.flags = ATTN_MASK_CAUSAL;
    ATTN_ARGS_INIT(&b);
    b.forward = a;
    b.d_out = world_floats(&w, dtype, 2, HEADS, SEQ, DIM, 1, false);
    const size_t rows = 2 * HEADS * SEQ * DIM * 4, keys = 2 * KV * SEQ * DIM * 4;
    assert_true(rows + 2 * keys == bytes);
    b.d_query = attn_view_of(gradients, ATTN_F32, 2, HEADS, SEQ, DIM);
    b.d_key = attn_view_of(gradients + rows, ATTN_F32, 2, KV, SEQ, DIM);
    b.d_value = attn_view_of(gradients + rows + keys, ATTN_F32, 2, KV, SEQ, DIM);
    assert_int_equal(attn_sdpa_forward(ctx, a, NULL, 0), ATTN_OK);
    assert_int_equal(attn_sdpa_backward(ctx, &b, NULL, 0), ATTN_OK);
    world_free(&w);
    attn_ctx_destroy(ctx);
}

static void bits_over_threads(void **state)
{
    const size_t bytes = (size_t)2 * (6 + 3 + 3) * 333 * 40 * 4;
    char *one = malloc(bytes), *many = malloc(bytes);
    (void)state;
    for (int n = 0; n < N_LEVELS * 2; n++) {
        if (!attn_cpu_has_isa(levels[n / 2]))
            continue;
        gradients_with(levels[n / 2], 1, n % 2 ? ATTN_BF16 : ATTN_F32, one, bytes);
        for (int32_t threads = 2; threads < 6; threads++) {
            gradients_with(levels[n / 2], threads, n % 2 ? ATTN_BF16 : ATTN_F32, many, bytes);
            assert_memory_equal(one, many, bytes);
        }
    }
    free(one), free(many);
}

static void scalar(void **state)
{
    (void)state;
    run_level(ATTN_ISA_SCALAR);
}
static void avx2(void **state)
{
    (void)state;
    run_level(ATTN_ISA_AVX2);
}
static void avx512(void **state)
{
    (void)state;
    run_level(ATTN_ISA_AVX512);
}
static void avx512bf16(void **state)
{
    (void)state;
    run_level(ATTN_ISA_AVX512BF16);
}
static void neon(void **state)
{
    (void)state;
    run_level(ATTN_ISA_NEON);
}
static void neonbf16(void **state)
{
    (void)state;
    run_level(ATTN_ISA_NEONBF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scalar), cmocka_unit_test(avx2), cmocka_unit_test(avx512), cmocka_unit_test(avx512bf16), cmocka_unit_test(neon), cmocka_unit_test(neonbf16),
                                       cmocka_unit_test(hard_scores), cmocka_unit_test(drawn_masks), cmocka_unit_test(bits_over_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
