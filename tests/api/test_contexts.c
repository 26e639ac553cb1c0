/* Several contexts at once, each from its own thread, give the bits that one gives alone; contexts work after fork, with the
 * caller's parallel_for, and whatever the caller's floating-point environment is. Run under ThreadSanitizer too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fenv.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "attn/attn.h"
#include "properties/random_problem.h"

enum { SEQ = 150, HEADS = 4, KV = 2, DIM = 32, N_THREADS = 4, OUT = HEADS * SEQ * DIM };

typedef struct inputs {
    random_problem made;
} inputs;

static void inputs_make(inputs *in)
{
    rng r = {17};
    memset(in, 0, sizeof *in);
    attn_sdpa_args *a = &in->made.args;
    ATTN_ARGS_INIT(a);
    a->query = problem_floats(&in->made, &r, 1, HEADS, SEQ, DIM, 1);
    a->key = problem_floats(&in->made, &r, 1, KV, SEQ, DIM, 1);
    a->value = problem_floats(&in->made, &r, 1, KV, SEQ, DIM, 1);
    a->mask.flags = ATTN_MASK_CAUSAL;
}

static attn_status forward(attn_ctx *ctx, const inputs *in, float *out)
{
    attn_sdpa_args a = in->made.args;
    a.out = attn_view_of(out, ATTN_F32, 1, HEADS, SEQ, DIM);
    return attn_sdpa_forward(ctx, &a, NULL, 0);
}

static attn_ctx *make_ctx(int32_t n_threads)
{
    attn_ctx_options options;
    attn_ctx *ctx;
    ATTN_ARGS_INIT(&options);
    options.n_threads = n_threads;
    return attn_ctx_create(&options, &ctx) == ATTN_OK ? ctx : NULL;
}

typedef struct thread_job {
    const inputs *in;
    const float *alone; /* what one context gives by itself */
    float *out;
    pthread_barrier_t *start;
    int32_t n_threads;
    int failures;
} thread_job;

static void *thread_main(void *user)
{
    thread_job *job = user;
    for (int round = 0; round < 5; round++) {
        attn_ctx *ctx = make_ctx(job->n_threads);
        pthread_barrier_wait(job->start); /* calls overlap on a busy machine too */
        for (int call = 0; call < 12; call++) {
            if (!ctx || forward(ctx, job->in, job->out) != ATTN_OK || memcmp(job->out, job->alone, OUT * sizeof *job->out))
                job->failures++;
            memset(job->out, 0, OUT * sizeof *job->out);
        }
        attn_ctx_destroy(ctx);
    }
    return NULL;
}

static void several_contexts_at_once(void **state)
{
    (void)state;
    inputs in;
    inputs_make(&in);
    float *alone = malloc(OUT * sizeof *alone), *out = malloc(N_THREADS * OUT * sizeof *out);
    attn_ctx *ctx = make_ctx(1);
    assert_int_equal(forward(ctx, &in, alone), ATTN_OK);
    attn_ctx_destroy(ctx);
    pthread_t thread[N_THREADS];
    thread_job job[N_THREADS];
    pthread_barrier_t start;
    assert_int_equal(pthread_barrier_init(&start, NULL, N_THREADS), 0);
    for (int t = 0; t < N_THREADS; t++) {
        job[t] = (thread_job){&in, alone, out + t * OUT, &start, t + 1, 0};
        assert_int_equal(pthread_create(&thread[t], NULL, thread_main, &job[t]), 0);
    }
    for (int t = 0; t < N_THREADS; t++) {
        pthread_join(thread[t], NULL);
        assert_int_equal(job[t].failures, 0);
    }
    pthread_barrier_destroy(&start);
    free(alone);
    free(out);
    random_problem_free(&in.made);
}

static void works_after_fork(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* ThreadSanitizer does not support new threads in the child of a process with threads */
#endif
    if (getenv("ATTN_UNDER_QEMU"))
        skip(); /* nor does qemu-user 7.2: it aborts in cpu_exec, also for a program of a few lines */
    inputs in;
    inputs_make(&in);
    float *before = malloc(OUT * sizeof *before), *after = malloc(OUT * sizeof *after);
    attn_ctx *ctx = make_ctx(3);
    assert_int_equal(forward(ctx, &in, before), ATTN_OK);
    pid_t child = fork();
    if (child == 0) {
        int ok = forward(ctx, &in, after) == ATTN_OK && !memcmp(before, after, OUT * sizeof *after);
        attn_ctx_destroy(ctx);
        _exit(ok ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(forward(ctx, &in, after), ATTN_OK);
    attn_ctx_destroy(ctx);
    free(before);
    free(after);
    random_problem_free(&in.made);
}

static int64_t bodies_run;

static void backwards_parallel_for(void *user, int64_t n, void (*body)(void *arg, int64_t index), void *arg)
{
    (void)user;
    for (int64_t index = n - 1; index >= 0; index--, bodies_run++)
        body(arg, index);
}

static void uses_the_callers_parallel_for(void **state)
{
    (void)state;
    inputs in;
    inputs_make(&in);
    float *own = malloc(OUT * sizeof *own), *theirs = malloc(OUT * sizeof *theirs);
    attn_ctx *ctx = make_ctx(1), *other;
    attn_ctx_options options;
    ATTN_ARGS_INIT(&options);
    options.n_threads = 4;
    options.parallel_for = backwards_parallel_for;
    assert_int_equal(attn_ctx_create(&options, &other), ATTN_OK);
    assert_int_equal(forward(ctx, &in, own), ATTN_OK);
    assert_int_equal(forward(other, &in, theirs), ATTN_OK);
    assert_true(bodies_run > 0);
    assert_memory_equal(own, theirs, OUT * sizeof *own);
    attn_ctx_destroy(ctx);
    attn_ctx_destroy(other);
    free(own);
    free(theirs);
    random_problem_free(&in.made);
}

static void the_callers_rounding_mode_changes_nothing(void **state)
{
    (void)state;
    inputs in;
    inputs_make(&in);
    float *nearest = malloc(OUT * sizeof *nearest), *upward = malloc(OUT * sizeof *upward);
    attn_ctx *ctx = make_ctx(2);
    assert_int_equal(forward(ctx, &in, nearest), ATTN_OK);
    assert_int_equal(fesetround(FE_UPWARD), 0);
    attn_status status = forward(ctx, &in, upward);
    int mode = fegetround();
    fesetround(FE_TONEAREST);
    assert_int_equal(status, ATTN_OK);
    assert_int_equal(mode, FE_UPWARD); /* and it is still there afterwards */
    assert_memory_equal(nearest, upward, OUT * sizeof *nearest);
    attn_ctx_destroy(ctx);
    free(nearest);
    free(upward);
    random_problem_free(&in.made);
}

static void environment_variables(void **state)
{
    (void)state;
    char *isa = getenv("ATTN_ISA") ? strdup(getenv("ATTN_ISA")) : NULL;
    attn_ctx *ctx;
    setenv("ATTN_ISA", "sse9", 1);
    assert_int_equal(attn_ctx_create(NULL, &ctx), ATTN_ERR_INVALID_ARGUMENT);
    assert_null(ctx);
    assert_non_null(strstr(attn_ctx_error(NULL), "sse9"));
    setenv("ATTN_ISA", "scalar", 1);
    assert_int_equal(attn_ctx_create(NULL, &ctx), ATTN_OK);
    assert_string_equal(attn_ctx_isa(ctx), "scalar");
    attn_ctx_destroy(ctx);
#if defined(__x86_64__)
    setenv("ATTN_ISA", "neon", 1);
    assert_int_equal(attn_ctx_create(NULL, &ctx), ATTN_ERR_UNSUPPORTED);
#endif
    if (isa)
        setenv("ATTN_ISA", isa, 1);
    else
        unsetenv("ATTN_ISA");
    free(isa);
    setenv("ATTN_NUM_THREADS", "3", 1);
    assert_int_equal(attn_ctx_create(NULL, &ctx), ATTN_OK);
    assert_int_equal(attn_ctx_threads(ctx), 3);
    attn_ctx_destroy(ctx);
    setenv("ATTN_NUM_THREADS", "many", 1);
    assert_int_equal(attn_ctx_create(NULL, &ctx), ATTN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_ctx_error(NULL), "many"));
    unsetenv("ATTN_NUM_THREADS");
    attn_ctx_options options;
    ATTN_ARGS_INIT(&options);
    options.n_threads = -1;
    assert_int_equal(attn_ctx_create(&options, &ctx), ATTN_ERR_INVALID_ARGUMENT);
    options.n_threads = 0;
    options.max_isa = 77;
    assert_int_equal(attn_ctx_create(&options, &ctx), ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(attn_ctx_create(NULL, NULL), ATTN_ERR_INVALID_ARGUMENT);
    assert_string_equal(attn_status_string((attn_status)-99), "unknown status");
    for (int n = 0; n >= ATTN_ERR_CANCELLED; n--)
        assert_true(strcmp(attn_status_string((attn_status)n), "unknown status") != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_contexts_at_once),      cmocka_unit_test(works_after_fork),
        cmocka_unit_test(uses_the_callers_parallel_for), cmocka_unit_test(the_callers_rounding_mode_changes_nothing),
        cmocka_unit_test(environment_variables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
