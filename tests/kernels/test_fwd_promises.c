/* What the forward pass promises besides its numbers: the same bits for any number of threads, alone or in a batch, in chunks
 * or at once, paged or plain; no allocation where a workspace is given; every allocation may fail; hard scores. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/cpu.h"
#include "fwd_world.h"

static const int32_t levels[] = {ATTN_ISA_SCALAR,     ATTN_ISA_AVX2, ATTN_ISA_AVX512,
                                 ATTN_ISA_AVX512BF16, ATTN_ISA_NEON, ATTN_ISA_NEONBF16};
#define N_LEVELS ((int)(sizeof levels / sizeof *levels))
/* What does not depend on the arithmetic is asked at every level in f32 and in bf16, which has kernels of its own there. */
#define N_CASES (2 * N_LEVELS)
#define CASE_LEVEL(n) (levels[(n) / 2])
#define CASE_TYPE(n) ((n) % 2 ? ATTN_BF16 : ATTN_F32)

static attn_ctx *make_ctx(int32_t isa, int32_t threads)
{
    attn_ctx_options options;
    attn_ctx *ctx;
    ATTN_ARGS_INIT(&options);
    options.max_isa = isa;
    options.n_threads = threads;
    return attn_cpu_has_isa(isa) && attn_ctx_create(&options, &ctx) == ATTN_OK ? ctx : NULL;
}

/* A plain problem: arrays of one type from one seed. */
typedef struct plain {
    world w;
    int64_t batch, heads, kv, nq, nk, d;
} plain;

static void plain_make_as(plain *x, int32_t type, uint64_t seed, int64_t batch, int64_t heads, int64_t kv, int64_t nq, int64_t nk,
                          int64_t d)
{
    memset(x, 0, sizeof *x);
    x->w.r.state = seed;
    x->batch = batch, x->heads = heads, x->kv = kv, x->nq = nq, x->nk = nk, x->d = d;
    attn_sdpa_args *a = &x->w.args;
    ATTN_ARGS_INIT(a);
    a->query = world_floats(&x->w, type, batch, heads, nq, d, 1, false);
    a->key = world_floats(&x->w, type, batch, kv, nk, d, 1, false);
    a->value = world_floats(&x->w, type, batch, kv, nk, d, 1, false);
    size_t n = (size_t)(batch * heads * nq);
    a->out = attn_view_of(world_memory(&x->w, n * (size_t)d * attn_dtype_size(type)), type, batch, heads, nq, d);
    a->lse = world_memory(&x->w, n * 4);
}

static void plain_make(plain *x, uint64_t seed, int64_t batch, int64_t heads, int64_t kv, int64_t nq, int64_t nk, int64_t d)
{
    plain_make_as(x, ATTN_F32, seed, batch, heads, kv, nq, nk, d);
}

/* Element n of an array. */
static char *at_element(const attn_cview *v, int64_t n)
{
    return (char *)world_data(v) + n * (int64_t)attn_dtype_size(v->dtype);
}

static size_t out_bytes(const plain *x)
{
    return (size_t)(x->batch * x->heads * x->nq * x->d) * attn_dtype_size(x->w.args.out.dtype);
}

/* Results of a call, moved out of the arrays, which are then NaN again. */
static float *take_results(plain *x)
{
    size_t bytes = out_bytes(x), rows = (size_t)(x->batch * x->heads * x->nq) * 4;
    char *copy = malloc(bytes + rows);
    memcpy(copy, x->w.args.out.data, bytes);
    memcpy(copy + bytes, x->w.args.lse, rows);
    memset(x->w.args.out.data, 0xff, bytes);
    memset(x->w.args.lse, 0xff, rows);
    return (float *)(void *)copy;
}

static void threads_leave_no_trace(void **state)
{
    (void)state;
    for (int n = 0; n < N_CASES; n++) {
        static const int32_t threads[] = {1, 2, 3, 8};
        float *first = NULL;
        plain x;
        plain_make_as(&x, CASE_TYPE(n), 5, 2, 4, 2, 150, 150, 40);
        x.w.args.mask.flags = ATTN_MASK_CAUSAL;
        for (int t = 0; t < 4; t++) {
            attn_ctx *ctx = make_ctx(CASE_LEVEL(n), threads[t]);
            if (!ctx)
                break;
            assert_int_equal(attn_sdpa_forward(ctx, &x.w.args, NULL, 0), ATTN_OK);
            float *now = take_results(&x);
            if (first)
                assert_memory_equal(first, now, out_bytes(&x) + (size_t)(x.batch * x.heads * x.nq) * 4);
            else
                first = now;
            if (now != first)
                free(now);
            attn_ctx_destroy(ctx);
        }
        free(first);
        world_free(&x.w);
    }
}

static void alone_as_in_a_batch(void **state)
{
    (void)state;
    for (int n = 0; n < N_CASES; n++) {
        attn_ctx *ctx = make_ctx(CASE_LEVEL(n), 2);
        plain x;
        if (!ctx)
            continue;
        plain_make_as(&x, CASE_TYPE(n), 6, 3, 2, 1, 90, 333, 24);
        attn_sdpa_args *a = &x.w.args, one = *a;
        int64_t kv_len[3] = {333, 17, 250};
        a->mask.kv_len = kv_len;
        assert_int_equal(attn_sdpa_forward(ctx, a, NULL, 0), ATTN_OK);
        float *all = take_results(&x);
        one.query.shape[0] = one.key.shape[0] = one.value.shape[0] = one.out.shape[0] = 1;
        for (int64_t b = 0; b < 3; b++) {
            one.query.data = at_element(&a->query, b * a->query.stride[0]);
            one.key.data = at_element(&a->key, b * a->key.stride[0]);
            one.value.data = at_element(&a->value, b * a->value.stride[0]);
            one.mask.kv_len = kv_len + b;
            assert_int_equal(attn_sdpa_forward(ctx, &one, NULL, 0), ATTN_OK);
            assert_memory_equal(one.out.data, (char *)all + (size_t)b * out_bytes(&x) / 3, out_bytes(&x) / 3);
        }
        free(all);
        world_free(&x.w);
        attn_ctx_destroy(ctx);
    }
}

/* Chunks of a causal prefill with a window, each with its offset, against all queries at once. */
static void chunks_as_one_shot(void **state)
{
    (void)state;
    for (int n = 0; n < N_CASES; n++) {
        attn_ctx *ctx = make_ctx(CASE_LEVEL(n), 1);
        plain x;
        if (!ctx)
            continue;
        plain_make_as(&x, CASE_TYPE(n), 7, 1, 2, 2, 400, 400, 20);
        attn_sdpa_args *a = &x.w.args;
        a->mask.flags = ATTN_MASK_CAUSAL | ATTN_MASK_WINDOW | ATTN_MASK_OFFSET;
        a->mask.left = 210;
        assert_int_equal(attn_sdpa_forward(ctx, a, NULL, 0), ATTN_OK);
        float *all = take_results(&x);
        static const int64_t cut[] = {0, 37, 100, 121, 290, 400};
        for (int c = 0; c < 5; c++) {
            attn_sdpa_args part = *a;
            part.query.data = at_element(&a->query, cut[c] * x.d);
            part.out.data = (char *)a->out.data + (size_t)(cut[c] * x.d) * attn_dtype_size(CASE_TYPE(n));
            part.query.shape[2] = part.out.shape[2] = cut[c + 1] - cut[c];
            part.key.shape[2] = part.value.shape[2] = cut[c + 1]; /* the future is not there yet */
            part.mask.query_offset = cut[c];
            part.lse = NULL;
            assert_int_equal(attn_sdpa_forward(ctx, &part, NULL, 0), ATTN_OK);
        }
        assert_memory_equal(a->out.data, all, out_bytes(&x));
        free(all);
        world_free(&x.w);
        attn_ctx_destroy(ctx);
    }
}

static void paged_as_plain(void **state)
{
    (void)state;
    for (int n = 0; n < N_CASES; n++) {
        attn_ctx *ctx = make_ctx(CASE_LEVEL(n), 2);
        plain x;
        if (!ctx)
            continue;
        plain_make_as(&x, CASE_TYPE(n), 8, 1, 2, 1, 60, 301, 33);
        attn_sdpa_args *a = &x.w.args, paged = *a;
        assert_int_equal(attn_sdpa_forward(ctx, a, NULL, 0), ATTN_OK);
        float *plainly = take_results(&x);
        enum { SIZE = 16, BLOCKS = 19 };
        int32_t table[BLOCKS];
        size_t bytes = attn_dtype_size(CASE_TYPE(n));
        char *k = world_memory(&x.w, BLOCKS * SIZE * 33 * bytes), *v = world_memory(&x.w, BLOCKS * SIZE * 33 * bytes);
        for (int b = 0; b < BLOCKS; b++) { /* 7 is coprime to 19: a permutation */
            table[b] = b * 7 % BLOCKS;
            int64_t rows = x.nk - b * SIZE < SIZE ? x.nk - b * SIZE : SIZE;
            size_t to = (size_t)(table[b] * SIZE * 33) * bytes;
            memcpy(k + to, at_element(&a->key, b * SIZE * 33), (size_t)(rows * 33) * bytes);
            memcpy(v + to, at_element(&a->value, b * SIZE * 33), (size_t)(rows * 33) * bytes);
        }
        paged.key = attn_cview_of(k, CASE_TYPE(n), BLOCKS, 1, SIZE, 33);
        paged.value = attn_cview_of(v, CASE_TYPE(n), BLOCKS, 1, SIZE, 33);
        paged.layout.block_table = table;
        paged.layout.block_table_stride = BLOCKS;
        paged.layout.seq_kv = x.nk;
        assert_int_equal(attn_sdpa_forward(ctx, &paged, NULL, 0), ATTN_OK);
        assert_memory_equal(a->out.data, plainly, out_bytes(&x));
        free(plainly);
        world_free(&x.w);
        attn_ctx_destroy(ctx);
    }
}

/* An allocator that counts, and fails at one call. */
typedef struct counter {
    int64_t calls, fail_at, live;
} counter;

static void *count_allocate(void *user, size_t bytes, size_t alignment)
{
    counter *c = user;
    void *memory = NULL;
    if (++c->calls == c->fail_at || posix_memalign(&memory, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes))
        return NULL;
    c->live++;
    return memory;
}

static void count_release(void *user, void *pointer)
{
    counter *c = user;
    c->live -= pointer != NULL;
    free(pointer);
}

static void memory_is_asked_for_once(void **state)
{
    (void)state;
    plain x;
    plain_make(&x, 9, 2, 4, 2, 130, 200, 32);
    bool done = false;
    for (int64_t fail_at = 1; !done; fail_at++) {
        counter c = {0, fail_at, 0};
        attn_allocator allocator = {&c, count_allocate, count_release};
        attn_ctx_options options;
        attn_ctx *ctx;
        ATTN_ARGS_INIT(&options);
        options.allocator = &allocator;
        options.n_threads = 2;
        attn_status status = attn_ctx_create(&options, &ctx);
        if (status == ATTN_OK) {
            status = attn_sdpa_forward(ctx, &x.w.args, NULL, 0);
            if (status == ATTN_ERR_OUT_OF_MEMORY) { /* outputs untouched: still NaN */
                assert_true(isnan(((const float *)x.w.args.out.data)[0]) && isnan(((const float *)x.w.args.lse)[0]));
                assert_true(strlen(attn_ctx_error(ctx)) > 0);
            }
            done = status == ATTN_OK;
            attn_ctx_destroy(ctx);
        }
        assert_true(done || status == ATTN_ERR_OUT_OF_MEMORY);
        assert_int_equal(c.live, 0);
    }
    counter c = {0, 0, 0};
    attn_allocator allocator = {&c, count_allocate, count_release};
    attn_ctx_options options;
    attn_ctx *ctx;
    size_t bytes;
    ATTN_ARGS_INIT(&options);
    options.allocator = &allocator;
    options.n_threads = 2;
    assert_int_equal(attn_ctx_create(&options, &ctx), ATTN_OK);
    assert_int_equal(attn_sdpa_workspace(ctx, &x.w.args, &bytes), ATTN_OK);
    char *workspace = NULL;
    assert_int_equal(posix_memalign((void **)&workspace, 64, bytes + 64), 0);
    memset(workspace + bytes, 0x5a, 64);
    int64_t before = c.calls;
    assert_int_equal(attn_sdpa_forward(ctx, &x.w.args, workspace, bytes), ATTN_OK);
    assert_int_equal(c.calls, before);
    for (int k = 0; k < 64; k++)
        assert_int_equal(workspace[bytes + (size_t)k], 0x5a);
    free(workspace);
    attn_ctx_destroy(ctx);
    world_free(&x.w);
}

/* Scores that are hard on a softmax, against the reference within the bound of fwd_world.h. */
static void set_all(const attn_cview *v, float x)
{
    for (int64_t n = 0; n < v->shape[0] * v->shape[1] * v->shape[2] * v->shape[3]; n++)
        ((float *)world_data(v))[n] = x;
}

static void hard_scores(void **state)
{
    (void)state;
    enum { HUGE_SCORES, ALL_EQUAL, ONE_GIANT, SUBNORMAL, SINK_HIGH, SINK_LOW, BIAS_LOWEST, N_KINDS };
    for (int n = 0; n < N_LEVELS; n++) {
        attn_ctx *ctx = make_ctx(levels[n], 1);
        for (int kind = 0; ctx && kind < N_KINDS; kind++) {
            plain x;
            attn_problem p;
            float sinks[2] = {kind == SINK_HIGH ? 100.0f : -100.0f, 0.5f};
            plain_make(&x, (uint64_t)(20 + kind), 1, 2, 1, 50, 300, 16);
            attn_sdpa_args *a = &x.w.args;
            float *q = world_data(&a->query), *k = world_data(&a->key);
            if (kind == HUGE_SCORES)
                a->scale = 2500; /* scores of about 1e4, both signs */
            if (kind == ALL_EQUAL)
                set_all(&a->query, 3), set_all(&a->key, 1);
            if (kind == ONE_GIANT)
                for (int64_t d = 0; d < 16; d++)
                    k[141 * 16 + d] = 1e6f * q[7 * 16 + d];
            if (kind == SUBNORMAL) {
                set_all(&a->query, 0x1p-80f);
                for (int64_t m = 0; m < 300 * 16; m++)
                    k[m] *= 0x1p-60f, ((float *)world_data(&a->value))[m] *= 0x1p-130f;
            }
            if (kind == SINK_HIGH || kind == SINK_LOW)
                a->sinks = sinks;
            if (kind == BIAS_LOWEST) { /* rows whose keys all have the lowest finite bias: only a number to add */
                a->mask.bias = world_floats(&x.w, ATTN_F32, 1, 1, 50, 300, 0, false);
                set_all(&a->mask.bias, -3.4028235e38f);
            }
            assert_int_equal(attn_sdpa_forward(ctx, a, NULL, 0), ATTN_OK);
            assert_int_equal(attn_sdpa_validate(ctx, a, ATTN_NEED_ALL, &p), ATTN_OK);
            const char *wrong = world_wrong(&p, attn_ctx_isa(ctx));
            if (wrong)
                world_print(&p, (uint64_t)kind, attn_ctx_isa(ctx), wrong);
            assert_null(wrong);
            if (kind == BIAS_LOWEST) /* the bound is idle at such a size: equal weights give the mean of the values */
                for (int64_t d = 0; d < 16; d++) {
                    double mean = 0, size = 0;
                    for (int64_t j = 0; j < 300; j++) {
                        double v = attn_cview_at(&a->value, 0, 0, j, d);
                        mean += v / 300;
                        size += fabs(v) / 300;
                    }
                    assert_true(fabs((double)((const float *)a->out.data)[d] - mean) <= 2 * 324 * 0x1p-24 * size);
                }
            world_free(&x.w);
        }
        attn_ctx_destroy(ctx);
    }
}

/* A key of -infinity gives admitted pairs the score -inf and the weight 0, and 0 times the NaN in its value is NaN: in exactly
 * the rows that admit it, few or many. */
static void an_admitted_score_may_be_minus_infinity(void **state)
{
    (void)state;
    enum { KEYS = 40, BAD = 5 };
    float query[KEYS], key[KEYS], value[KEYS], out[KEYS], lse[KEYS];
    for (int n = 0; n < KEYS; n++)
        query[n] = 1, key[n] = value[n] = (float)n / KEYS;
    key[BAD] = -INFINITY;
    value[BAD] = NAN;
    for (int n = 0; n < N_LEVELS; n++)
        for (int first = 0; first <= 36; first += 4) { /* the rows from `first` on: 40 of them, or few */
            attn_ctx *ctx = make_ctx(levels[n], 1);
            attn_sdpa_args a;
            if (!ctx)
                continue;
            ATTN_ARGS_INIT(&a);
            a.query = attn_cview_of(query, ATTN_F32, 1, 1, KEYS - first, 1);
            a.key = attn_cview_of(key, ATTN_F32, 1, 1, KEYS, 1);
            a.value = attn_cview_of(value, ATTN_F32, 1, 1, KEYS, 1);
            a.out = attn_view_of(out, ATTN_F32, 1, 1, KEYS - first, 1);
            a.lse = lse;
            a.mask.flags = ATTN_MASK_CAUSAL | ATTN_MASK_OFFSET;
            a.mask.query_offset = first;
            assert_int_equal(attn_sdpa_forward(ctx, &a, NULL, 0), ATTN_OK);
            for (int i = 0; i < KEYS - first; i++) {
                assert_true(i + first < BAD ? isfinite(out[i]) : isnan(out[i]));
                assert_true(isfinite(lse[i]));
            }
            attn_ctx_destroy(ctx);
        }
}

/* NaN in every query, key and value from position t on changes no bit of the rows before, in strips and in few rows. */
static void the_future_does_not_show(void **state)
{
    (void)state;
    for (int n = 0; n < N_CASES; n++)
        for (int64_t length = 8; length <= 160; length += 152) {
            attn_ctx *ctx = make_ctx(CASE_LEVEL(n), 2);
            plain x;
            if (!ctx)
                continue;
            plain_make_as(&x, CASE_TYPE(n), 41, 1, 2, 1, length, length, 24);
            attn_sdpa_args *a = &x.w.args;
            a->mask.flags = ATTN_MASK_CAUSAL;
            assert_int_equal(attn_sdpa_forward(ctx, a, NULL, 0), ATTN_OK);
            float *all = take_results(&x);
            for (int64_t t = length - 1; t >= 0; t -= 7) {
                size_t bytes = (size_t)((length - t) * x.d) * attn_dtype_size(CASE_TYPE(n)); /* all ones: NaN */
                memset(at_element(&a->key, t * x.d), 0xff, bytes);
                memset(at_element(&a->value, t * x.d), 0xff, bytes);
                memset(at_element(&a->query, t * x.d), 0xff, bytes);
                memset(at_element(&a->query, (length + t) * x.d), 0xff, bytes);
                assert_int_equal(attn_sdpa_forward(ctx, a, NULL, 0), ATTN_OK);
                const char *out = a->out.data;
                size_t row = (size_t)x.d * attn_dtype_size(CASE_TYPE(n)), rows = (size_t)t;
                for (int64_t h = 0; h < 2; h++)
                    assert_memory_equal(out + (size_t)(h * length) * row, (char *)all + (size_t)(h * length) * row, rows * row);
                assert_true(isnan(attn_load_element(out, CASE_TYPE(n), t * x.d)));
            }
            free(all);
            world_free(&x.w);
            attn_ctx_destroy(ctx);
        }
}

/* The row that docs/operator.md works by hand, and the same cut in two and merged. */
static void one_row_by_hand(void **state)
{
    (void)state;
    const double score[3] = {1, 2, 3}, value[3] = {1, 2, 4}, one = 1;
    double out[3], lse[3], joined, joined_lse;
    for (int n = 0; n < N_LEVELS; n++) {
        attn_ctx *ctx = make_ctx(levels[n], 1);
        attn_cview parts[2];
        const void *lses[2] = {&lse[1], &lse[2]};
        if (!ctx)
            continue;
        for (int part = 0; part < 3; part++) { /* all keys; the first two; the last */
            attn_sdpa_args a;
            ATTN_ARGS_INIT(&a);
            int first = part == 2 ? 2 : 0, count = part == 0 ? 3 : part == 1 ? 2 : 1;
            a.query = attn_cview_of(&one, ATTN_F64, 1, 1, 1, 1);
            a.key = attn_cview_of(score + first, ATTN_F64, 1, 1, count, 1);
            a.value = attn_cview_of(value + first, ATTN_F64, 1, 1, count, 1);
            a.out = attn_view_of(&out[part], ATTN_F64, 1, 1, 1, 1);
            a.lse = &lse[part];
            assert_int_equal(attn_sdpa_forward(ctx, &a, NULL, 0), ATTN_OK);
            if (part > 0)
                parts[part - 1] = attn_cview_of(&out[part], ATTN_F64, 1, 1, 1, 1);
        }
        attn_view whole = attn_view_of(&joined, ATTN_F64, 1, 1, 1, 1);
        assert_int_equal(attn_sdpa_merge(ctx, parts, lses, 2, &whole, &joined_lse), ATTN_OK);
        assert_true(fabs(out[0] - 3.2405) < 5e-5 && fabs(lse[0] - 3.4076) < 5e-5);
        assert_true(fabs(out[1] - 1.7311) < 5e-5 && fabs(lse[1] - 2.3133) < 5e-5 && out[2] == 4 && lse[2] == 3);
        assert_true(fabs(joined - out[0]) < 1e-14 && fabs(joined_lse - lse[0]) < 1e-14);
        attn_ctx_destroy(ctx);
    }
}

static void plan_is_described(void **state)
{
    (void)state;
    attn_ctx *ctx = make_ctx(ATTN_ISA_SCALAR, 2);
    plain x;
    plain_make(&x, 30, 1, 2, 1, 500, 500, 16);
    attn_sdpa_plan plan;
    size_t bytes;
    ATTN_ARGS_INIT(&plan);
    assert_int_equal(attn_sdpa_describe(ctx, &x.w.args, &plan), ATTN_OK);
    assert_int_equal(attn_sdpa_workspace(ctx, &x.w.args, &bytes), ATTN_OK);
    assert_string_equal(plan.isa, "scalar");
    assert_string_equal(plan.kernel, "queries in lanes");
    assert_int_equal(plan.workspace_bytes, bytes);
    assert_int_equal(plan.n_tasks, (1000 + plan.query_block - 1) / plan.query_block);
    assert_int_equal(plan.query_block % plan.tile_rows, 0);
    assert_true(plan.n_threads == 2 && plan.n_splits == 1 && plan.key_block % plan.tile_keys == 0);
    world_free(&x.w);
    plain_make(&x, 31, 2, 2, 1, 1, 5000, 16); /* one query over many keys */
    assert_int_equal(attn_sdpa_describe(ctx, &x.w.args, &plan), ATTN_OK);
    assert_int_equal(attn_sdpa_workspace(ctx, &x.w.args, &bytes), ATTN_OK);
    assert_int_equal(plan.workspace_bytes, bytes);
    assert_string_equal(plan.kernel, "keys read once");
    assert_true(plan.n_splits > 1 && plan.n_tasks == 2 * plan.n_splits && plan.query_block == 2);
    world_free(&x.w);
    attn_ctx_destroy(ctx);
}

/* Whole tiles of rows under one mask and nothing else, which is added as scores leave the registers: -inf there, or a boolean of 0,
 * excludes whatever the score is. */
static void one_mask_alone(void **state)
{
    (void)state;
    for (int n = 0; n < 5 * N_CASES; n++) {
        attn_ctx *ctx = make_ctx(CASE_LEVEL(n / 5), 2);
        const int c = n % 5;
        const int32_t type = c == 3 && CASE_TYPE(n / 5) == ATTN_F32 ? ATTN_F16 : CASE_TYPE(n / 5);
        const int64_t heads = 2, kv = c == 1 ? 1 : 2, nq = 59, nk = 2 * 128 - 37 * c, d = c == 2 ? 20 : 64;
        plain x;
        attn_problem p;
        if (!ctx)
            continue;
        plain_make_as(&x, type, (uint64_t)(700 + n), 1, heads, kv, nq, nk, d);
        attn_cview *mask = c == 4 ? &x.w.args.mask.allow : &x.w.args.mask.bias;
        *mask = c == 4 ? world_bools(&x.w, 1, heads, nq, nk, 0.9, false)
                       : world_floats(&x.w, c == 0 ? ATTN_F32 : type, 1, c == 2 ? 1 : heads, nq, nk, 2, false);
        for (int64_t k = 0; c < 4 && k < 5 * nk; k++)
            attn_store_element(world_data(mask), mask->dtype, rng_range(&x.w.r, 0, mask->shape[1] * nq * nk - 1), -INFINITY);
        const int64_t bad = nk / 2; /* a key whose scores are infinite or NaN, excluded for all */
        for (int64_t k = 0; k < d; k++)
            attn_store_element(world_data(&x.w.args.key), type, bad * d + k, k ? INFINITY : NAN);
        for (int64_t row = 0; row < mask->shape[1] * nq; row++)
            if (c == 4)
                ((uint8_t *)world_data(mask))[row * nk + bad] = 0;
            else
                attn_store_element(world_data(mask), mask->dtype, row * nk + bad, -INFINITY);
        assert_int_equal(attn_sdpa_forward(ctx, &x.w.args, NULL, 0), ATTN_OK);
        assert_int_equal(attn_sdpa_validate(ctx, &x.w.args, ATTN_NEED_ALL, &p), ATTN_OK);
        const char *wrong = world_wrong(&p, attn_ctx_isa(ctx));
        if (wrong)
            print_message("case %d, %s: %s\n", n, attn_ctx_isa(ctx), wrong);
        assert_null(wrong);
        attn_ctx_destroy(ctx);
        world_free(&x.w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_leave_no_trace), cmocka_unit_test(alone_as_in_a_batch), cmocka_unit_test(chunks_as_one_shot),
        cmocka_unit_test(paged_as_plain),         cmocka_unit_test(memory_is_asked_for_once), cmocka_unit_test(hard_scores),
        cmocka_unit_test(one_mask_alone),
        cmocka_unit_test(an_admitted_score_may_be_minus_infinity),
        cmocka_unit_test(the_future_does_not_show),
        cmocka_unit_test(one_row_by_hand),
        cmocka_unit_test(plan_is_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
