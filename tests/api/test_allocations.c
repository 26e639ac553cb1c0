/* Every allocation may fail: the n-th one does, for n = 1, 2, ... until the call succeeds. Each failure is reported as
 * OUT_OF_MEMORY, leaks nothing, leaves outputs untouched, and the context works afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include "attn/attn.h"
#include "properties/random_problem.h"

typedef struct counting {
    int64_t until_failure; /* allocations left before one fails; negative: none fails */
    int64_t live, total;
} counting;

static void *counting_allocate(void *user, size_t bytes, size_t alignment)
{
    counting *c = user;
    void *memory = NULL;
    c->total++;
    if (c->until_failure == 0)
        return NULL;
    if (c->until_failure > 0)
        c->until_failure--;
    if (posix_memalign(&memory, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes ? bytes : 1))
        return NULL;
    c->live++;
    return memory;
}

static void counting_release(void *user, void *memory)
{
    counting *c = user;
    c->live--;
    free(memory);
}

static attn_status make_ctx(counting *c, int32_t n_threads, attn_ctx **ctx)
{
    attn_allocator allocator = {c, counting_allocate, counting_release};
    attn_ctx_options options;
    ATTN_ARGS_INIT(&options);
    options.allocator = &allocator;
    options.n_threads = n_threads;
    return attn_ctx_create(&options, ctx);
}

static void context_survives_each_failure(void **state)
{
    (void)state;
    for (int64_t n = 0;; n++) {
        counting c = {n, 0, 0};
        attn_ctx *ctx;
        attn_status status = make_ctx(&c, 3, &ctx);
        if (status == ATTN_OK) {
            assert_true(n > 0);
            attn_ctx_destroy(ctx);
            assert_int_equal(c.live, 0);
            return;
        }
        assert_int_equal(status, ATTN_ERR_OUT_OF_MEMORY);
        assert_null(ctx);
        assert_true(attn_ctx_error(NULL)[0] != 0);
        assert_int_equal(c.live, 0);
    }
}

typedef struct job {
    random_problem made;
    attn_sdpa_backward_args backward;
    attn_decode_args decode;
    attn_rope_args rope;
    attn_view weights, mass, merged;
    attn_cview parts[2];
    const void *lses[2];
    int64_t *indices, cache_len[1];
    float *top;
    attn_row_stat *stats;
    attn_row row;
} job;

enum { SEQ = 70, HEADS = 4, KV = 2, DIM = 24 };

static void job_make(job *j)
{
    memset(j, 0, sizeof *j);
    rng r = {5};
    random_problem *p = &j->made;
    attn_sdpa_args *a = &p->args;
    ATTN_ARGS_INIT(a);
    a->query = problem_floats(p, &r, 1, HEADS, SEQ, DIM, 1);
    a->key = problem_floats(p, &r, 1, KV, SEQ, DIM, 1);
    a->value = problem_floats(p, &r, 1, KV, SEQ, DIM, 1);
    a->out = attn_view_of(problem_memory(p, HEADS * SEQ * DIM * 4), ATTN_F32, 1, HEADS, SEQ, DIM);
    a->lse = problem_memory(p, HEADS * SEQ * 4);
    a->mask.flags = ATTN_MASK_CAUSAL;
    ATTN_ARGS_INIT(&j->backward);
    j->backward.forward = a;
    j->backward.d_out = problem_floats(p, &r, 1, HEADS, SEQ, DIM, 1);
    j->backward.d_query = attn_view_of(problem_memory(p, HEADS * SEQ * DIM * 4), ATTN_F32, 1, HEADS, SEQ, DIM);
    j->backward.d_key = attn_view_of(problem_memory(p, KV * SEQ * DIM * 4), ATTN_F32, 1, KV, SEQ, DIM);
    j->backward.d_value = attn_view_of(problem_memory(p, KV * SEQ * DIM * 4), ATTN_F32, 1, KV, SEQ, DIM);
    ATTN_ARGS_INIT(&j->decode);
    j->cache_len[0] = 50;
    j->decode.query = problem_floats(p, &r, 1, HEADS, 2, DIM, 1);
    j->decode.new_key = problem_floats(p, &r, 1, KV, 2, DIM, 1);
    j->decode.new_value = problem_floats(p, &r, 1, KV, 2, DIM, 1);
    j->decode.cache_key = attn_view_of(problem_memory(p, KV * SEQ * DIM * 4), ATTN_F32, 1, KV, SEQ, DIM);
    j->decode.cache_value = attn_view_of(problem_memory(p, KV * SEQ * DIM * 4), ATTN_F32, 1, KV, SEQ, DIM);
    j->decode.cache_len = j->cache_len;
    j->decode.out = attn_view_of(problem_memory(p, HEADS * 2 * DIM * 4), ATTN_F32, 1, HEADS, 2, DIM);
    j->decode.mask.flags = ATTN_MASK_CAUSAL;
    ATTN_ARGS_INIT(&j->rope);
    j->rope.x = a->query;
    j->rope.out = attn_view_of(problem_memory(p, HEADS * SEQ * DIM * 4), ATTN_F32, 1, HEADS, SEQ, DIM);
    j->weights = attn_view_of(problem_memory(p, SEQ * 4), ATTN_F32, 1, 1, 1, SEQ);
    j->mass = attn_view_of(problem_memory(p, HEADS * SEQ * 4), ATTN_F32, 1, HEADS, SEQ, 1);
    j->indices = problem_memory(p, 3 * 8);
    j->top = problem_memory(p, 3 * 4);
    j->stats = problem_memory(p, sizeof(attn_row_stat));
    j->row.query = SEQ - 1;
    j->parts[0] = j->parts[1] = a->query;
    j->lses[0] = j->lses[1] = problem_floats(p, &r, 1, HEADS, SEQ, 1, 1).data;
    j->merged = attn_view_of(problem_memory(p, HEADS * SEQ * DIM * 4), ATTN_F32, 1, HEADS, SEQ, DIM);
}

enum { CALL_FORWARD, CALL_BACKWARD, CALL_DECODE, CALL_ROWS, CALL_TOPK, CALL_MASS, CALL_STATS, CALL_MERGE, CALL_ROPE, N_CALLS };

static attn_status call(attn_ctx *ctx, job *j, int which)
{
    attn_sdpa_args *a = &j->made.args;
    switch (which) {
    case CALL_FORWARD:
        return attn_sdpa_forward(ctx, a, NULL, 0);
    case CALL_BACKWARD:
        return attn_sdpa_backward(ctx, &j->backward, NULL, 0);
    case CALL_DECODE:
        return attn_sdpa_decode(ctx, &j->decode, NULL, 0);
    case CALL_ROWS:
        return attn_sdpa_rows(ctx, a, &j->row, 1, &j->weights);
    case CALL_TOPK:
        return attn_sdpa_topk(ctx, a, &j->row, 1, 3, j->indices, j->top);
    case CALL_MASS:
        return attn_sdpa_key_mass(ctx, a, &j->mass);
    case CALL_STATS:
        return attn_sdpa_row_stats(ctx, a, &j->row, 1, j->stats);
    case CALL_MERGE:
        return attn_sdpa_merge(ctx, j->parts, j->lses, 2, &j->merged, NULL);
    default:
        return attn_rope(ctx, &j->rope);
    }
}

static void each_call_survives_each_failure(void **state)
{
    (void)state;
    for (int which = 0; which < N_CALLS; which++)
        for (int64_t n = 0;; n++) {
            job j;
            counting c = {-1, 0, 0};
            attn_ctx *ctx;
            job_make(&j);
            assert_int_equal(make_ctx(&c, 2, &ctx), ATTN_OK);
            float *out = j.made.args.out.data;
            for (int64_t m = 0; m < HEADS * SEQ * DIM; m++)
                out[m] = 42;
            c.until_failure = n;
            attn_status status = call(ctx, &j, which);
            c.until_failure = -1;
            if (status != ATTN_OK) {
                assert_int_equal(status, ATTN_ERR_OUT_OF_MEMORY);
                assert_true(attn_ctx_error(ctx)[0] != 0);
                for (int64_t m = 0; m < HEADS * SEQ * DIM; m++)
                    assert_true(out[m] == 42);
                assert_int_equal(call(ctx, &j, which), ATTN_OK); /* usable afterwards */
            }
            attn_ctx_destroy(ctx);
            assert_int_equal(c.live, 0);
            random_problem_free(&j.made);
            if (status == ATTN_OK)
                break;
        }
}

static void a_given_workspace_means_no_allocation(void **state)
{
    (void)state;
    job j;
    counting c = {-1, 0, 0};
    attn_ctx *ctx;
    job_make(&j);
    assert_int_equal(make_ctx(&c, 2, &ctx), ATTN_OK);
    size_t bytes[3];
    assert_int_equal(attn_sdpa_workspace(ctx, &j.made.args, &bytes[0]), ATTN_OK);
    assert_int_equal(attn_sdpa_backward_workspace(ctx, &j.backward, &bytes[1]), ATTN_OK);
    assert_int_equal(attn_sdpa_decode_workspace(ctx, &j.decode, &bytes[2]), ATTN_OK);
    for (int which = 0; which < 3; which++) {
        size_t rounded = (bytes[which] + 63) / 64 * 64 + 64;
        unsigned char *workspace = aligned_alloc(64, rounded);
        assert_non_null(workspace);
        memset(workspace, 0xff, rounded); /* NaN wherever something is read before it is written */
        int64_t before = c.total;
        assert_int_equal(which == 0   ? attn_sdpa_forward(ctx, &j.made.args, workspace, bytes[which])
                         : which == 1 ? attn_sdpa_backward(ctx, &j.backward, workspace, bytes[which])
                                      : attn_sdpa_decode(ctx, &j.decode, workspace, bytes[which]),
                         ATTN_OK);
        assert_int_equal(c.total, before);
        for (size_t n = bytes[which]; n < rounded; n++)
            assert_int_equal(workspace[n], 0xff);
        if (bytes[which] > 0) {
            assert_int_equal(which == 0   ? attn_sdpa_forward(ctx, &j.made.args, workspace, bytes[which] - 1)
                             : which == 1 ? attn_sdpa_backward(ctx, &j.backward, workspace, bytes[which] - 1)
                                          : attn_sdpa_decode(ctx, &j.decode, workspace, bytes[which] - 1),
                             ATTN_ERR_WORKSPACE_TOO_SMALL);
            assert_int_equal(attn_sdpa_forward(ctx, &j.made.args, workspace + 4, rounded - 64), ATTN_ERR_INVALID_ARGUMENT);
        }
        free(workspace);
    }
    attn_ctx_destroy(ctx);
    random_problem_free(&j.made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(context_survives_each_failure),
        cmocka_unit_test(each_call_survives_each_failure),
        cmocka_unit_test(a_given_workspace_means_no_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
