/* attn_sdpa_describe tells what then happens, over random problems at every level: the memory that the allocator is asked for,
 * the threads that the caller's pool sees, and the way that the shape decides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include "core/cpu.h"
#include "fwd_world.h"
#include "ops/sdpa/decode_path.h"

static struct {
    size_t bytes;      /* of the largest allocation */
    int64_t workers;   /* most that a job asked for */
    int64_t n_jobs;
} seen;

static void *allocate(void *user, size_t bytes, size_t alignment)
{
    void *memory = NULL;
    (void)user;
    seen.bytes = bytes > seen.bytes ? bytes : seen.bytes;
    return posix_memalign(&memory, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes) ? NULL : memory;
}
static void release(void *user, void *memory)
{
    (void)user;
    free(memory);
}
static void run_parts(void *user, int64_t n, void (*body)(void *arg, int64_t index), void *arg)
{
    (void)user;
    seen.workers = n > seen.workers ? n : seen.workers;
    seen.n_jobs++;
    for (int64_t index = 0; index < n; index++)
        body(arg, index);
}

static attn_ctx *context_of(int32_t isa)
{
    static const attn_allocator allocator = {NULL, allocate, release};
    attn_ctx_options options;
    attn_ctx *ctx;
    ATTN_ARGS_INIT(&options);
    options.max_isa = isa;
    options.n_threads = 3;
    options.allocator = &allocator;
    options.parallel_for = run_parts;
    if (!attn_cpu_has_isa(isa))
        return NULL;
    assert_int_equal(attn_ctx_create(&options, &ctx), ATTN_OK);
    return ctx;
}

static void one_problem(uint64_t seed, int32_t isa)
{
    world w;
    attn_sdpa_plan plan;
    size_t bytes;
    attn_ctx *ctx = context_of(isa);
    if (!ctx)
        return;
    world_make(&w, seed, seed % 2 ? 12 : 150, seed % 3 ? 90 : 2500, 40);
    const attn_sdpa_args *a = &w.args;
    const int64_t *shape = a->query.shape;
    int64_t keys = a->layout.block_table || a->layout.ring ? a->layout.seq_kv : a->key.shape[2];
    int64_t kv_heads = a->key.shape[1], stack = shape[2] * shape[1] / kv_heads;
    attn_problem resolved;
    assert_int_equal(attn_sdpa_validate(ctx, a, ATTN_NEED_ALL, &resolved), ATTN_OK);
    const attn_decode_bound bound = attn_decode_bound_of(ctx, &resolved);
    bool either = a->mask.kv_len && stack > bound.rows && stack <= ATTN_DECODE_ROWS; /* an entry's own keys decide */
    bool lengths = a->mask.cu_seqlens_q || a->mask.q_len || either, dropout = a->dropout_p > 0 || a->keep.data;
    bool dense = (a->key.stride[3] == 1 || shape[3] == 1) && (a->value.stride[3] == 1 || a->value.shape[3] == 1);
    ATTN_ARGS_INIT(&plan);
    assert_int_equal(attn_sdpa_describe(ctx, a, &plan), ATTN_OK);
    assert_int_equal(attn_sdpa_workspace(ctx, a, &bytes), ATTN_OK);
    assert_string_equal(plan.isa, attn_ctx_isa(ctx));
    assert_true(plan.workspace_bytes == bytes);
    bool some_short = a->mask.kv_len || keys <= bound.keys;
    /* packed sequences may still be long or short, one by one */
    bool few = stack <= (some_short ? bound.rows : ATTN_DECODE_ROWS) && !dropout && dense;
    if (!a->mask.cu_seqlens_q)
        assert_string_equal(plan.kernel, few ? "keys read once" : "queries in lanes");
    assert_true(plan.n_splits == (strcmp(plan.kernel, "keys read once") ? 1 : (keys + 1023) / 1024));
    assert_true(plan.tile_rows >= 1 && plan.tile_keys >= 1 && plan.query_block >= plan.tile_rows && plan.key_block >= 1);
    if (!lengths && !few) /* strips of a kv head of a batch entry */
        assert_int_equal(plan.n_tasks, shape[0] * kv_heads * ((stack + plan.query_block - 1) / plan.query_block));
    if (!lengths && few && a->query.stride[0] != 0 && a->key.stride[0] != 0) /* one unit a kv head of a batch entry */
        assert_int_equal(plan.n_tasks, shape[0] * kv_heads * plan.n_splits);
    seen.bytes = 0;
    seen.workers = seen.n_jobs = 0;
    assert_int_equal(attn_sdpa_forward(ctx, a, NULL, 0), ATTN_OK);
    assert_true(seen.bytes == plan.workspace_bytes);
    if (!lengths) {
        assert_int_equal(seen.n_jobs, plan.n_threads > 1 ? 1 : 0);
        assert_true(plan.n_threads == 1 || seen.workers == plan.n_threads);
    }
    world_free(&w);
    attn_ctx_destroy(ctx);
}

static void the_plan_is_what_happens(void **state)
{
    (void)state;
    static const int32_t levels[] = {ATTN_ISA_SCALAR, ATTN_ISA_AVX2, ATTN_ISA_AVX512, ATTN_ISA_NEON};
    for (uint64_t seed = 1; seed <= 120; seed++)
        for (int n = 0; n < 4; n++)
            one_problem(seed, levels[n]);
}

static void doubles_have_a_plan_too(void **state)
{
    (void)state;
    enum { N = 100, D = 8 };
    double *x = calloc(4 * N * D, sizeof *x);
    attn_ctx *ctx = context_of(ATTN_ISA_SCALAR);
    attn_sdpa_args a;
    attn_sdpa_plan plan;
    ATTN_ARGS_INIT(&a);
    ATTN_ARGS_INIT(&plan);
    a.query = a.key = a.value = attn_cview_of(x, ATTN_F64, 2, 1, N, D);
    a.out = attn_view_of(x + 2 * N * D, ATTN_F64, 2, 1, N, D);
    assert_int_equal(attn_sdpa_describe(ctx, &a, &plan), ATTN_OK);
    assert_string_equal(plan.kernel, "doubles");
    assert_int_equal(plan.n_tasks, 2 * ((N + plan.query_block - 1) / plan.query_block));
    seen.bytes = 0;
    seen.workers = 0;
    assert_int_equal(attn_sdpa_forward(ctx, &a, NULL, 0), ATTN_OK);
    assert_true(seen.bytes == plan.workspace_bytes && seen.workers == plan.n_threads && plan.n_threads == 3);
    attn_ctx_destroy(ctx);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_is_what_happens),
        cmocka_unit_test(doubles_have_a_plan_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
