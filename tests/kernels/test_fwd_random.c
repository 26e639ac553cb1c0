/* The forward dataflow at every level against the reference, over random problems with every mix of options. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/cpu.h"
#include "fwd_world.h"

#define N_SMALL 1800 /* per level; ATTN_FWD_PROBLEMS in the environment replaces it */
#define N_LARGE 60

static int64_t n_problems(int64_t usual)
{
    const char *text = getenv("ATTN_FWD_PROBLEMS");
    return text && atoll(text) > 0 ? atoll(text) : usual;
}

static bool problem_fails(attn_ctx *ctx, uint64_t seed, int64_t max_q, int64_t max_k, int64_t max_dim)
{
    world w;
    attn_problem p;
    world_make(&w, seed, max_q, max_k, max_dim);
    attn_status status = attn_sdpa_forward(ctx, &w.args, NULL, 0);
    const char *wrong = status == ATTN_OK ? NULL : attn_ctx_error(ctx);
    bool resolved = attn_sdpa_validate(ctx, &w.args, ATTN_NEED_ALL, &p) == ATTN_OK;
    if (status == ATTN_OK && resolved)
        wrong = world_wrong(&p, attn_ctx_isa(ctx));
    if (wrong && resolved)
        world_print(&p, seed, attn_ctx_isa(ctx), wrong);
    else if (wrong)
        printf("seed %llu: refused: %s\n", (unsigned long long)seed, wrong);
    world_free(&w);
    return wrong != NULL;
}

static void run_level(int32_t isa)
{
    attn_ctx_options options;
    attn_ctx *ctx;
    ATTN_ARGS_INIT(&options);
    options.max_isa = isa;
    options.n_threads = 2;
    if (!attn_cpu_has_isa(isa)) {
        print_message("%s: not on this machine\n", attn_isa_name(isa));
        skip();
    }
    assert_int_equal(attn_ctx_create(&options, &ctx), ATTN_OK);
    int64_t failures = 0;
    for (int64_t n = 0; n < n_problems(N_SMALL) && failures < 5; n++)
        failures += problem_fails(ctx, (uint64_t)(1000 + n), n % 3 ? 20 : 60, n % 5 ? 30 : 90, n % 4 ? 20 : 48);
    for (int64_t n = 0; n < n_problems(N_LARGE) && n < N_LARGE && failures < 5; n++)
        failures += problem_fails(ctx, (uint64_t)(900000 + n), 150, 700, 24);
    attn_ctx_destroy(ctx);
    assert_int_equal(failures, 0);
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalar),     cmocka_unit_test(avx2), cmocka_unit_test(avx512),
        cmocka_unit_test(avx512bf16), cmocka_unit_test(neon), cmocka_unit_test(neonbf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
