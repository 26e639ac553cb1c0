/* The backward pass at the door: every status, messages that name the field, memory that runs out; and cases whose numbers
 * were computed elsewhere. Gradients themselves: tests/properties/test_gradients.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attn/attn.h"

enum { BATCH = 2, HEADS = 4, KV = 2, SEQ = 3, DIM = 4, ROWS = BATCH * HEADS * SEQ };

static struct small {
    float query[ROWS * DIM], key[BATCH * KV * SEQ * DIM], value[BATCH * KV * SEQ * DIM], out[ROWS * DIM], lse[ROWS];
    float d_out[ROWS * DIM], d_query[ROWS * DIM], d_key[BATCH * KV * SEQ * DIM], d_value[BATCH * KV * SEQ * DIM];
    float bias[SEQ * SEQ], d_bias[SEQ * SEQ], relative[HEADS * 3], d_relative[HEADS * 3], sinks[HEADS], d_sinks[HEADS];
    attn_sdpa_args forward;
    attn_sdpa_backward_args args;
} s;

static attn_ctx *ctx;

static void reset(void)
{
    memset(&s, 0, sizeof s);
    for (int n = 0; n < ROWS * DIM; n++) {
        s.query[n] = (float)sin(n);
        s.d_out[n] = (float)cos(3 * n);
    }
    for (int n = 0; n < BATCH * KV * SEQ * DIM; n++) {
        s.key[n] = (float)sin(2 * n + 1);
        s.value[n] = (float)cos(n + 2);
    }
    ATTN_ARGS_INIT(&s.forward);
    ATTN_ARGS_INIT(&s.args);
    s.forward.query = attn_cview_of(s.query, ATTN_F32, BATCH, HEADS, SEQ, DIM);
    s.forward.key = attn_cview_of(s.key, ATTN_F32, BATCH, KV, SEQ, DIM);
    s.forward.value = attn_cview_of(s.value, ATTN_F32, BATCH, KV, SEQ, DIM);
    s.forward.out = attn_view_of(s.out, ATTN_F32, BATCH, HEADS, SEQ, DIM);
    s.forward.lse = s.lse;
    s.forward.mask.bias = attn_cview_of(s.bias, ATTN_F32, 1, 1, SEQ, SEQ);
    s.forward.mask.relative = s.relative;
    s.forward.mask.relative_stride = 3;
    s.forward.mask.rel_left = s.forward.mask.rel_right = 1;
    s.forward.sinks = s.sinks;
    s.args.forward = &s.forward;
    s.args.d_out = attn_cview_of(s.d_out, ATTN_F32, BATCH, HEADS, SEQ, DIM);
    s.args.d_query = attn_view_of(s.d_query, ATTN_F32, BATCH, HEADS, SEQ, DIM);
    s.args.d_key = attn_view_of(s.d_key, ATTN_F32, BATCH, KV, SEQ, DIM);
    s.args.d_value = attn_view_of(s.d_value, ATTN_F32, BATCH, KV, SEQ, DIM);
    s.args.d_bias = attn_view_of(s.d_bias, ATTN_F32, 1, 1, SEQ, SEQ);
    s.args.d_relative = s.d_relative;
    s.args.d_sinks = s.d_sinks;
    assert_int_equal(attn_sdpa_forward(ctx, &s.forward, NULL, 0), ATTN_OK);
    for (int n = 0; n < ROWS * DIM; n++)
        s.d_query[n] = 77; /* to see that errors leave it alone */
}

static int make_ctx(void **state)
{
    (void)state;
    return attn_ctx_create(NULL, &ctx) != ATTN_OK;
}
static int drop_ctx(void **state)
{
    (void)state;
    attn_ctx_destroy(ctx);
    return 0;
}

/* The call fails with this status and a text that holds both words, and writes nothing. */
static void refused(attn_status want, const char *field, const char *value)
{
    attn_status status = attn_sdpa_backward(ctx, &s.args, NULL, 0);
    const char *text = attn_ctx_error(ctx);
    if (status != want || !strstr(text, field) || !strstr(text, value))
        fail_msg("got %s, \"%s\"; wanted %s with \"%s\" and \"%s\"", attn_status_string(status), text,
                 attn_status_string(want), field, value);
    assert_true(s.d_query[0] == 77);
    reset();
}
#define INVALID ATTN_ERR_INVALID_ARGUMENT
#define UNSUPPORTED ATTN_ERR_UNSUPPORTED

static void bad_arguments_are_named(void **state)
{
    (void)state;
    size_t bytes;
    reset();
    assert_int_equal(attn_sdpa_backward(NULL, &s.args, NULL, 0), INVALID);
    assert_int_equal(attn_sdpa_backward(ctx, NULL, NULL, 0), INVALID);
    assert_int_equal(attn_sdpa_backward_workspace(ctx, &s.args, NULL), INVALID);
    assert_int_equal(attn_sdpa_backward_workspace(ctx, NULL, &bytes), INVALID);
    s.args.struct_size = 3, refused(INVALID, "struct_size", "3");
    s.args.forward = NULL, refused(INVALID, "forward", "NULL");
    s.forward.lse = NULL, refused(INVALID, "forward->lse", "NULL");
    s.forward.softcap = -1, refused(INVALID, "softcap", "-1");
    s.args.flags = 6, refused(UNSUPPORTED, "flags", "0x6");
    s.args.d_out.data = NULL, refused(INVALID, "d_out.data", "NULL");
    s.args.d_out.shape[2] = 2, refused(INVALID, "d_out.shape[2]", "2");
    s.args.d_out.dtype = 17, refused(INVALID, "d_out.dtype", "17");
    s.args.d_out.dtype = ATTN_BF16, refused(UNSUPPORTED, "d_out.dtype", "bf16");
    s.args.d_out.reserved = 1, refused(INVALID, "d_out.reserved", "1");
    s.args.d_query.dtype = ATTN_F16, refused(UNSUPPORTED, "d_query.dtype", "f16");
    s.args.d_query.shape[1] = 3, refused(INVALID, "d_query.shape[1]", "3");
    s.args.d_key.shape[3] = -5, refused(INVALID, "d_key.shape[3]", "-5");
    s.args.d_key.shape[1] = HEADS, refused(INVALID, "d_key.shape[1]", "4");
    s.args.d_value.stride[2] = 0, refused(INVALID, "d_value.stride", "overlap");
    s.args.d_value.stride[0] = INT64_MAX, refused(INVALID, "d_value", "overflow");
    s.args.d_bias.dtype = ATTN_F64, refused(UNSUPPORTED, "d_bias.dtype", "f64");
    s.args.d_bias.shape[3] = 2, refused(INVALID, "d_bias.shape[3]", "2");
    s.args.d_bias.stride[3] = 2, refused(INVALID, "d_bias.stride", "overlap");
    s.forward.mask.bias.data = NULL, refused(INVALID, "d_bias", "mask.bias");
    s.forward.mask.relative = NULL, refused(INVALID, "d_relative", "mask.relative");
    s.forward.mask.relative_stride = 2, refused(INVALID, "relative_stride", "2");
    s.forward.sinks = NULL, refused(INVALID, "d_sinks", "sinks");
    s.args.d_query.data = s.query, refused(INVALID, "d_query", "forward->query");
    s.args.d_key.data = s.out, refused(INVALID, "d_key", "forward->out");
    s.args.d_value.data = s.d_key, refused(INVALID, "d_value", "d_key");
    s.args.d_sinks = s.lse, refused(INVALID, "d_sinks", "forward->lse");
    s.args.d_sinks = s.d_relative + 5, refused(INVALID, "d_sinks", "d_relative");
    s.args.d_lse = s.d_sinks, refused(INVALID, "d_sinks", "d_lse");
    int32_t table[2] = {0, 1};
    s.forward.layout.block_table = table, s.forward.layout.block_table_stride = 1, s.forward.layout.seq_kv = SEQ;
    refused(INVALID, "forward->layout", "paged");
    s.forward.layout.ring = 1, s.forward.layout.seq_kv = SEQ, refused(INVALID, "forward->layout", "ring");
    s.forward.key.dtype = s.forward.value.dtype = ATTN_BF16, refused(UNSUPPORTED, "key.dtype", "bf16");
    assert_int_equal(attn_sdpa_backward(ctx, &s.args, NULL, 0), ATTN_OK);
    assert_true(s.d_query[0] != 77);
}

static void workspace_is_checked_and_enough(void **state)
{
    (void)state;
    size_t bytes;
    reset();
    s.forward.lse = NULL; /* a query needs shapes only */
    assert_int_equal(attn_sdpa_backward_workspace(ctx, &s.args, &bytes), ATTN_OK);
    s.forward.lse = s.lse;
    char *memory = aligned_alloc(64, (bytes + 127) / 64 * 64), *end = memory + bytes;
    memset(end, 0x5a, 64);
    assert_int_equal(attn_sdpa_backward(ctx, &s.args, memory, bytes - 1), ATTN_ERR_WORKSPACE_TOO_SMALL);
    assert_int_equal(attn_sdpa_backward(ctx, &s.args, memory + 4, bytes), ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(attn_sdpa_backward(ctx, &s.args, NULL, bytes), ATTN_ERR_INVALID_ARGUMENT);
    assert_true(s.d_query[0] == 77);
    assert_int_equal(attn_sdpa_backward(ctx, &s.args, memory, bytes), ATTN_OK);
    for (int n = 0; n < 64; n++)
        assert_int_equal(end[n], 0x5a);
    free(memory);
}

typedef struct failing {
    int left; /* allocations until NULL; negative: none fails */
    int n_calls, n_live;
} failing;

static void *failing_allocate(void *user, size_t bytes, size_t alignment)
{
    failing *f = user;
    f->n_calls++;
    if (f->left == 0)
        return NULL;
    f->left -= f->left > 0;
    f->n_live++;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
static void failing_release(void *user, void *pointer)
{
    failing *f = user;
    f->n_live--;
    free(pointer);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int n = 0;; n++) {
        reset();
        failing f = {n, 0, 0};
        attn_allocator allocator = {&f, failing_allocate, failing_release};
        attn_ctx_options options;
        attn_ctx *limited;
        ATTN_ARGS_INIT(&options);
        options.n_threads = 2;
        options.allocator = &allocator;
        attn_status status = attn_ctx_create(&options, &limited);
        if (status == ATTN_OK) {
            status = attn_sdpa_backward(limited, &s.args, NULL, 0);
            if (status == ATTN_OK) { /* a second call, and one with a workspace, allocate nothing */
                size_t bytes;
                int before = f.n_calls;
                assert_int_equal(attn_sdpa_backward_workspace(limited, &s.args, &bytes), ATTN_OK);
                void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
                assert_int_equal(attn_sdpa_backward(limited, &s.args, NULL, 0), ATTN_OK);
                assert_int_equal(attn_sdpa_backward(limited, &s.args, memory, bytes), ATTN_OK);
                assert_int_equal(f.n_calls, before);
                free(memory);
            } else {
                assert_true(strstr(attn_ctx_error(limited), "memory") != NULL);
                assert_true(s.d_query[0] == 77);
            }
            attn_ctx_destroy(limited);
        }
        assert_int_equal(f.n_live, 0);
        if (status == ATTN_OK)
            break;
        assert_int_equal(status, ATTN_ERR_OUT_OF_MEMORY);
        assert_true(n < 10);
    }
}

static void empty_axes_are_valid(void **state)
{
    (void)state;
    for (int axis = 0; axis < 4; axis++) {
        reset();
        for (int n = 0; n < BATCH * KV * SEQ * DIM; n++)
            s.d_key[n] = s.d_value[n] = 5;
        s.forward.mask.bias.data = NULL;
        s.args.d_bias.data = NULL;
        if (axis == 0) { /* no batch entry */
            s.forward.query.shape[0] = s.forward.key.shape[0] = s.forward.value.shape[0] = s.forward.out.shape[0] = 0;
            s.args.d_out.shape[0] = s.args.d_query.shape[0] = s.args.d_key.shape[0] = s.args.d_value.shape[0] = 0;
        } else if (axis == 1) { /* no query */
            s.forward.query.shape[2] = s.forward.out.shape[2] = s.args.d_out.shape[2] = s.args.d_query.shape[2] = 0;
        } else if (axis == 2) { /* no key */
            s.forward.key.shape[2] = s.forward.value.shape[2] = s.args.d_key.shape[2] = s.args.d_value.shape[2] = 0;
        } else { /* no value channel */
            s.forward.value.shape[3] = s.forward.out.shape[3] = s.args.d_out.shape[3] = s.args.d_value.shape[3] = 0;
        }
        assert_int_equal(attn_sdpa_forward(ctx, &s.forward, NULL, 0), ATTN_OK);
        assert_int_equal(attn_sdpa_backward(ctx, &s.args, NULL, 0), ATTN_OK);
        assert_true(s.d_query[0] == (axis < 2 ? 77 : 0));
        assert_true(s.d_key[0] == (axis == 0 || axis == 2 ? 5 : 0));
        for (int h = 0; axis < 2 && h < HEADS; h++)
            assert_true(s.d_sinks[h] == 0 && s.d_relative[h] == 0);
    }
}

static void gradients_may_be_left_out_or_strided(void **state)
{
    (void)state;
    float key[BATCH * KV * SEQ * DIM], wide[BATCH * KV * SEQ * DIM * 2];
    reset();
    assert_int_equal(attn_sdpa_backward(ctx, &s.args, NULL, 0), ATTN_OK);
    memcpy(key, s.d_key, sizeof key);
    reset();
    s.args.d_query.data = s.args.d_value.data = s.args.d_bias.data = NULL;
    s.args.d_relative = s.args.d_sinks = NULL;
    s.args.d_key = attn_view_of(wide + sizeof wide / sizeof *wide - 1, ATTN_F32, BATCH, KV, SEQ, DIM);
    for (int n = 0; n < 4; n++)
        s.args.d_key.stride[n] *= -2;
    assert_int_equal(attn_sdpa_backward(ctx, &s.args, NULL, 0), ATTN_OK);
    for (int n = 0; n < BATCH * KV * SEQ * DIM; n++)
        assert_true(key[n] == wide[sizeof wide / sizeof *wide - 1 - 2 * (size_t)n]);
    assert_true(s.d_query[0] == 77 && s.d_value[0] == 0 && s.d_sinks[0] == 0);
}

/* The tile that docs/operator-backward.md works by hand: two queries, two keys, dim 1, scale 1. */
static void one_tile_by_hand(void **state)
{
    (void)state;
    double query[2] = {1, 0}, key[2] = {0, log(3)}, value[2] = {1, 3}, out[2], lse[2], d_out[2] = {2, 1};
    double got[6];
    attn_sdpa_args forward;
    attn_sdpa_backward_args args;
    ATTN_ARGS_INIT(&forward);
    ATTN_ARGS_INIT(&args);
    forward.query = attn_cview_of(query, ATTN_F64, 1, 1, 2, 1);
    forward.key = attn_cview_of(key, ATTN_F64, 1, 1, 2, 1);
    forward.value = attn_cview_of(value, ATTN_F64, 1, 1, 2, 1);
    forward.out = attn_view_of(out, ATTN_F64, 1, 1, 2, 1);
    forward.lse = lse;
    args.forward = &forward;
    args.d_out = attn_cview_of(d_out, ATTN_F64, 1, 1, 2, 1);
    args.d_query = attn_view_of(got, ATTN_F64, 1, 1, 2, 1);
    args.d_key = attn_view_of(got + 2, ATTN_F64, 1, 1, 2, 1);
    args.d_value = attn_view_of(got + 4, ATTN_F64, 1, 1, 2, 1);
    assert_int_equal(attn_sdpa_forward(ctx, &forward, NULL, 0), ATTN_OK);
    assert_int_equal(attn_sdpa_backward(ctx, &args, NULL, 0), ATTN_OK);
    const double want[6] = {0.75 * log(3), 0.5 * log(3), -0.75, 0.75, 1, 2};
    for (int n = 0; n < 6; n++)
        assert_true(fabs(got[n] - want[n]) < 1e-14);
    assert_true(fabs(out[0] - 2.5) < 1e-14 && fabs(out[1] - 2) < 1e-14 && fabs(lse[0] - log(4)) < 1e-14);
}

/* Scores of 2.8e6, all equal (a public overflow report): d_query and d_key 0, d_value the mean of d_out over rows. */
static void huge_equal_scores(void **state)
{
    (void)state;
    enum { N = 5, D = 8 };
    float x[N * D], out[N * D], lse[N], d_out[N * D], d_query[N * D], d_key[N * D], d_value[N * D];
    attn_sdpa_args forward;
    attn_sdpa_backward_args args;
    ATTN_ARGS_INIT(&forward);
    ATTN_ARGS_INIT(&args);
    for (int n = 0; n < N * D; n++) {
        x[n] = 1000;
        d_out[n] = (float)((n * 37) % 128 - 64) / 64;
    }
    forward.query = forward.key = forward.value = attn_cview_of(x, ATTN_F32, 1, 1, N, D);
    forward.out = attn_view_of(out, ATTN_F32, 1, 1, N, D);
    forward.lse = lse;
    args.forward = &forward;
    args.d_out = attn_cview_of(d_out, ATTN_F32, 1, 1, N, D);
    args.d_query = attn_view_of(d_query, ATTN_F32, 1, 1, N, D);
    args.d_key = attn_view_of(d_key, ATTN_F32, 1, 1, N, D);
    args.d_value = attn_view_of(d_value, ATTN_F32, 1, 1, N, D);
    assert_int_equal(attn_sdpa_forward(ctx, &forward, NULL, 0), ATTN_OK);
    assert_int_equal(attn_sdpa_backward(ctx, &args, NULL, 0), ATTN_OK);
    for (int n = 0; n < N * D; n++) {
        double mean = 0;
        for (int i = 0; i < N; i++)
            mean += (double)d_out[i * D + n % D] / N;
        assert_true(d_query[n] == 0 && d_key[n] == 0);
        assert_true(fabs(d_value[n] - mean) < 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_arguments_are_named),
        cmocka_unit_test(workspace_is_checked_and_enough),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(empty_axes_are_valid),
        cmocka_unit_test(gradients_may_be_left_out_or_strided),
        cmocka_unit_test(one_tile_by_hand),
        cmocka_unit_test(huge_equal_scores),
    };
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
