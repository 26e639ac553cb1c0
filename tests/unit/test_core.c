/* The core room: conversions, versioned structs, the pool, and a first forward call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <time.h>
#include "attn/attn.h"
#include "core/context.h"
#include "core/half.h"
#include "core/view.h"

static void f16_round_trips_every_value(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000u; h++) {
        float x = attn_f16_to_f32((uint16_t)h);
        if (isnan(x))
            assert_true(isnan(attn_f16_to_f32(attn_f32_to_f16(x))));
        else
            assert_int_equal(attn_f32_to_f16(x), h);
        float y = attn_bf16_to_f32((uint16_t)h);
        if (isnan(y))
            assert_true(isnan(attn_bf16_to_f32(attn_f32_to_bf16(y))));
        else
            assert_int_equal(attn_f32_to_bf16(y), h);
    }
}

static void f16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7bffu; h++) { /* halfway between neighbours goes to the even one */
        double a = (double)attn_f16_to_f32((uint16_t)h), b = (double)attn_f16_to_f32((uint16_t)(h + 1)), mid = (a + b) / 2;
        assert_int_equal(attn_f32_to_f16((float)mid), h & 1 ? h + 1 : h);
        assert_int_equal(attn_f64_to_f16(mid), h & 1 ? h + 1 : h);
        assert_int_equal(attn_f64_to_f16(mid * (1 + 0x1p-50)), h + 1);
        assert_int_equal(attn_f64_to_f16(mid * (1 - 0x1p-50)), h);
    }
    assert_int_equal(attn_f32_to_f16(65519.99f), 0x7bff);
    assert_int_equal(attn_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(attn_f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(attn_f64_to_bf16(1e300), 0x7f80);
}

typedef struct counted {
    int32_t runs[1000];
} counted;

static void count_task(void *arg, int64_t task, int32_t worker)
{
    counted *c = arg;
    (void)worker;
    c->runs[task]++;
}

static void every_task_runs_once(void **state)
{
    (void)state;
    for (int32_t n_threads = 1; n_threads <= 5; n_threads++) {
        attn_ctx_options options;
        ATTN_ARGS_INIT(&options);
        options.n_threads = n_threads;
        attn_ctx *ctx;
        assert_int_equal(attn_ctx_create(&options, &ctx), ATTN_OK);
        for (int round = 0; round < 50; round++) {
            counted c = {{0}};
            attn_ctx_for(ctx, 1000, n_threads, count_task, &c);
            for (int t = 0; t < 1000; t++)
                assert_int_equal(c.runs[t], 1);
        }
        attn_ctx_destroy(ctx);
    }
}

/* Jobs one upon the other, so that workers meet them spinning, asleep, waking up and too late. */
static void short_jobs_run_once(void **state)
{
    (void)state;
    for (int32_t n_threads = 2; n_threads <= 4; n_threads++) {
        attn_ctx_options options;
        ATTN_ARGS_INIT(&options);
        options.n_threads = n_threads;
        attn_ctx *ctx;
        assert_int_equal(attn_ctx_create(&options, &ctx), ATTN_OK);
        for (int round = 0; round < 2000; round++) {
            counted c = {{0}};
            const int64_t n = 1 + round % 7;
            if (round % 200 == 199)
                nanosleep(&(struct timespec){0, 300000}, NULL); /* long enough for workers to fall asleep */
            attn_ctx_for(ctx, n, 1 + round % n_threads, count_task, &c);
            for (int64_t t = 0; t < 8; t++)
                assert_int_equal(c.runs[t], t < n);
        }
        attn_ctx_destroy(ctx);
    }
}

static void versioned_structs(void **state)
{
    (void)state;
    struct {
        attn_ctx_options options;
        uint64_t later;
    } newer;
    memset(&newer, 0, sizeof newer);
    newer.options.struct_size = sizeof newer;
    newer.options.n_threads = 1;
    attn_ctx *ctx;
    assert_int_equal(attn_ctx_create(&newer.options, &ctx), ATTN_OK);
    attn_ctx_destroy(ctx);
    newer.later = 1;
    assert_int_equal(attn_ctx_create(&newer.options, &ctx), ATTN_ERR_UNSUPPORTED);
    assert_null(ctx);
    size_t garbage = SIZE_MAX; /* a struct that nobody initialised: nothing behind it is read */
    assert_int_equal(attn_ctx_create((const attn_ctx_options *)(const void *)&garbage, &ctx), ATTN_ERR_INVALID_ARGUMENT);
    assert_null(ctx);
    size_t older = sizeof older;
    assert_int_equal(attn_ctx_create((const attn_ctx_options *)(const void *)&older, &ctx), ATTN_OK);
    attn_ctx_destroy(ctx);
    attn_ctx_destroy(NULL);
}

static void lesson_trace(void **state)
{
    (void)state;
    const float query[2] = {1, 1}, key[6] = {1, 0, 0, 1, 1, 1}, value[6] = {1, 0, 0, 2, 2, 2};
    float out[2], lse[1];
    attn_ctx *ctx;
    assert_int_equal(attn_ctx_create(NULL, &ctx), ATTN_OK);
    attn_sdpa_args args;
    ATTN_ARGS_INIT(&args);
    args.query = attn_cview_of(query, ATTN_F32, 1, 1, 1, 2);
    args.key = attn_cview_of(key, ATTN_F32, 1, 1, 3, 2);
    args.value = attn_cview_of(value, ATTN_F32, 1, 1, 3, 2);
    args.out = attn_view_of(out, ATTN_F32, 1, 1, 1, 2);
    args.lse = lse;
    assert_int_equal(attn_sdpa_forward(ctx, &args, NULL, 0), ATTN_OK);
    assert_float_equal(out[0], 1.255f, 0.0005f);
    assert_float_equal(out[1], 1.503f, 0.0005f);
    args.key.shape[3] = 3;
    assert_int_equal(attn_sdpa_forward(ctx, &args, NULL, 0), ATTN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_ctx_error(ctx), "key.shape[3] is 3"));
    attn_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_round_trips_every_value), cmocka_unit_test(f16_rounds_to_nearest_even),
        cmocka_unit_test(every_task_runs_once), cmocka_unit_test(short_jobs_run_once),
        cmocka_unit_test(versioned_structs), cmocka_unit_test(lesson_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
