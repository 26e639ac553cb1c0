/* Every status of every function of attn/attn.h is reached: a table of functions and the statuses that their comments name,
 * with the smallest change of a good call that brings each about. A function that is missing from the table fails the test, and
 * so does an error that writes to an output or leaves no text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include "attn/attn.h"
#include "properties/random_problem.h"

enum { SEQ = 40, HEADS = 2, DIM = 8, UNKNOWN_FLAG = 1 << 20 };

/* One good call of each function, all on the same arrays. */
typedef struct calls {
    random_problem made;
    attn_sdpa_backward_args backward;
    attn_decode_args decode;
    attn_rope_args rope;
    attn_ctx_options options;
    attn_view weights, mass, merged;
    attn_cview parts[2];
    const void *lses[2];
    int64_t *indices, cache_len, n_parts;
    float *top;
    attn_row_stat *stats;
    attn_row row;
    attn_sdpa_plan plan;
    size_t bytes;
    void *workspace;
    size_t workspace_bytes;
    float *first, *last; /* everything that calls may write */
} calls;

static float *output(calls *c, int64_t n)
{
    float *taken = c->last;
    c->last += n + n % 2;
    return taken;
}

static void calls_make(calls *c)
{
    rng r = {3};
    memset(c, 0, sizeof *c);
    random_problem *p = &c->made;
    attn_sdpa_args *a = &p->args;
    c->first = c->last = problem_memory(p, 200 * SEQ * DIM * sizeof(float));
    ATTN_ARGS_INIT(a);
    a->query = problem_floats(p, &r, 1, HEADS, SEQ, DIM, 1);
    a->key = problem_floats(p, &r, 1, 1, SEQ, DIM, 1);
    a->value = problem_floats(p, &r, 1, 1, SEQ, DIM, 1);
    a->out = attn_view_of(output(c, HEADS * SEQ * DIM), ATTN_F32, 1, HEADS, SEQ, DIM);
    a->lse = problem_memory(p, HEADS * SEQ * 4);
    ATTN_ARGS_INIT(&c->backward);
    c->backward.forward = a;
    c->backward.d_out = problem_floats(p, &r, 1, HEADS, SEQ, DIM, 1);
    c->backward.d_query = attn_view_of(output(c, HEADS * SEQ * DIM), ATTN_F32, 1, HEADS, SEQ, DIM);
    c->backward.d_key = attn_view_of(output(c, SEQ * DIM), ATTN_F32, 1, 1, SEQ, DIM);
    c->backward.d_value = attn_view_of(output(c, SEQ * DIM), ATTN_F32, 1, 1, SEQ, DIM);
    ATTN_ARGS_INIT(&c->decode);
    c->cache_len = 20;
    c->decode.query = problem_floats(p, &r, 1, HEADS, 2, DIM, 1);
    c->decode.new_key = problem_floats(p, &r, 1, 1, 2, DIM, 1);
    c->decode.new_value = problem_floats(p, &r, 1, 1, 2, DIM, 1);
    c->decode.cache_key = attn_view_of(output(c, SEQ * DIM), ATTN_F32, 1, 1, SEQ, DIM);
    c->decode.cache_value = attn_view_of(output(c, SEQ * DIM), ATTN_F32, 1, 1, SEQ, DIM);
    c->decode.cache_len = &c->cache_len;
    c->decode.out = attn_view_of(output(c, HEADS * 2 * DIM), ATTN_F32, 1, HEADS, 2, DIM);
    ATTN_ARGS_INIT(&c->rope);
    c->rope.x = a->query;
    c->rope.out = attn_view_of(output(c, HEADS * SEQ * DIM), ATTN_F32, 1, HEADS, SEQ, DIM);
    ATTN_ARGS_INIT(&c->options);
    c->options.n_threads = 1;
    ATTN_ARGS_INIT(&c->plan);
    c->weights = attn_view_of(output(c, SEQ), ATTN_F32, 1, 1, 1, SEQ);
    c->mass = attn_view_of(output(c, HEADS * SEQ), ATTN_F32, 1, HEADS, SEQ, 1);
    c->indices = (int64_t *)(void *)output(c, 3 * 2);
    c->top = output(c, 3);
    c->stats = (attn_row_stat *)(void *)output(c, sizeof(attn_row_stat) / sizeof(float));
    c->parts[0] = c->parts[1] = a->query;
    c->lses[0] = c->lses[1] = problem_floats(p, &r, 1, HEADS, SEQ, 1, 1).data;
    c->n_parts = 2;
    c->merged = attn_view_of(output(c, HEADS * SEQ * DIM), ATTN_F32, 1, HEADS, SEQ, DIM);
}

/* ---- The functions ------------------------------------------------------------------------------- */

typedef attn_status (*call_fn)(attn_ctx *ctx, calls *c);

static attn_status call_create(attn_ctx *ctx, calls *c)
{
    attn_ctx *other;
    attn_status status = attn_ctx_create(&c->options, &other);
    (void)ctx;
    assert_true((status == ATTN_OK) == (other != NULL));
    assert_true(status == ATTN_OK || attn_ctx_error(NULL)[0] != 0);
    attn_ctx_destroy(other);
    return status;
}
static attn_status call_forward(attn_ctx *ctx, calls *c)
{
    return attn_sdpa_forward(ctx, &c->made.args, c->workspace, c->workspace_bytes);
}
static attn_status call_workspace(attn_ctx *ctx, calls *c)
{
    return attn_sdpa_workspace(ctx, &c->made.args, &c->bytes);
}
static attn_status call_describe(attn_ctx *ctx, calls *c)
{
    return attn_sdpa_describe(ctx, &c->made.args, &c->plan);
}
static attn_status call_backward(attn_ctx *ctx, calls *c)
{
    return attn_sdpa_backward(ctx, &c->backward, c->workspace, c->workspace_bytes);
}
static attn_status call_backward_workspace(attn_ctx *ctx, calls *c)
{
    return attn_sdpa_backward_workspace(ctx, &c->backward, &c->bytes);
}
static attn_status call_decode(attn_ctx *ctx, calls *c)
{
    return attn_sdpa_decode(ctx, &c->decode, c->workspace, c->workspace_bytes);
}
static attn_status call_decode_workspace(attn_ctx *ctx, calls *c)
{
    return attn_sdpa_decode_workspace(ctx, &c->decode, &c->bytes);
}
static attn_status call_rows(attn_ctx *ctx, calls *c)
{
    return attn_sdpa_rows(ctx, &c->made.args, &c->row, 1, &c->weights);
}
static attn_status call_topk(attn_ctx *ctx, calls *c)
{
    return attn_sdpa_topk(ctx, &c->made.args, &c->row, 1, 3, c->indices, c->top);
}
static attn_status call_key_mass(attn_ctx *ctx, calls *c)
{
    return attn_sdpa_key_mass(ctx, &c->made.args, &c->mass);
}
static attn_status call_row_stats(attn_ctx *ctx, calls *c)
{
    return attn_sdpa_row_stats(ctx, &c->made.args, &c->row, 1, c->stats);
}
static attn_status call_merge(attn_ctx *ctx, calls *c)
{
    return attn_sdpa_merge(ctx, c->parts, c->lses, c->n_parts, &c->merged, NULL);
}
static attn_status call_rope(attn_ctx *ctx, calls *c)
{
    return attn_rope(ctx, &c->rope);
}

/* ---- What brings each status about ---------------------------------------------------------------- */


static void invalid(calls *c)
{
    c->made.args.softcap = -1;
    c->decode.softcap = -1;
    c->rope.rotary_dim = 3;
    c->options.n_threads = -1;
    c->n_parts = -1;
    c->row.query = SEQ;
}
static void unsupported(calls *c)
{
    c->made.args.flags = UNKNOWN_FLAG;
    c->decode.flags = UNKNOWN_FLAG;
    c->rope.flags = UNKNOWN_FLAG;
#if defined(__x86_64__)
    c->options.max_isa = ATTN_ISA_NEON;
#else
    c->options.max_isa = ATTN_ISA_AVX2;
#endif
}

#define INVALID (1 << 1)
#define UNSUPPORTED (1 << 2)
#define MEMORY (1 << 3)
#define WORKSPACE (1 << 4)

static const struct entry {
    const char *name;
    call_fn call;
    int errors; /* besides ATTN_OK: what its comment in attn/attn.h names */
} table[] = {
    {"attn_ctx_create", call_create, INVALID | UNSUPPORTED | MEMORY},
    {"attn_sdpa_forward", call_forward, INVALID | UNSUPPORTED | MEMORY | WORKSPACE},
    {"attn_sdpa_workspace", call_workspace, INVALID | UNSUPPORTED},
    {"attn_sdpa_describe", call_describe, INVALID | UNSUPPORTED},
    {"attn_sdpa_backward", call_backward, INVALID | UNSUPPORTED | MEMORY | WORKSPACE},
    {"attn_sdpa_backward_workspace", call_backward_workspace, INVALID | UNSUPPORTED},
    {"attn_sdpa_decode", call_decode, INVALID | UNSUPPORTED | MEMORY | WORKSPACE},
    {"attn_sdpa_decode_workspace", call_decode_workspace, INVALID | UNSUPPORTED},
    {"attn_sdpa_rows", call_rows, INVALID | UNSUPPORTED | MEMORY},
    {"attn_sdpa_topk", call_topk, INVALID | UNSUPPORTED | MEMORY},
    {"attn_sdpa_key_mass", call_key_mass, INVALID | UNSUPPORTED | MEMORY},
    {"attn_sdpa_row_stats", call_row_stats, INVALID | UNSUPPORTED | MEMORY},
    {"attn_sdpa_merge", call_merge, INVALID},
    {"attn_rope", call_rope, INVALID | UNSUPPORTED},
};
#define N_FUNCTIONS ((int)(sizeof table / sizeof *table))

static bool no_memory;

static void *allocate(void *user, size_t bytes, size_t alignment)
{
    void *memory = NULL;
    (void)user;
    return no_memory || posix_memalign(&memory, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes) ? NULL : memory;
}
static void release(void *user, void *memory)
{
    (void)user;
    free(memory);
}
static const attn_allocator allocator = {NULL, allocate, release};

static void one_error(const struct entry *entry, attn_status want)
{
    calls c;
    attn_ctx *ctx;
    attn_ctx_options options;
    float scratch[32] = {0}; /* too small for every call */
    ATTN_ARGS_INIT(&options);
    options.n_threads = 1;
    options.allocator = &allocator;
    assert_int_equal(attn_ctx_create(&options, &ctx), ATTN_OK);
    calls_make(&c);
    c.options.allocator = &allocator;
    for (float *x = c.first; x < c.last; x++)
        *x = 42;
    if (want == ATTN_ERR_INVALID_ARGUMENT)
        invalid(&c);
    if (want == ATTN_ERR_UNSUPPORTED)
        unsupported(&c);
    if (want == ATTN_ERR_WORKSPACE_TOO_SMALL) {
        c.workspace = (char *)scratch + (64 - (uintptr_t)scratch % 64) % 64;
        c.workspace_bytes = 64;
    }
    no_memory = want == ATTN_ERR_OUT_OF_MEMORY;
    attn_status got = entry->call(ctx, &c);
    no_memory = false;
    if (got != want)
        fail_msg("%s returns \"%s\" (%s), not \"%s\"", entry->name, attn_status_string(got), attn_ctx_error(ctx), attn_status_string(want));
    if (want != ATTN_OK) {
        assert_true(entry->call == call_create || attn_ctx_error(ctx)[0] != 0);
        for (float *x = c.first; x < c.last; x++)
            if (*x != 42)
                fail_msg("%s writes to an output although it fails (%s)", entry->name, attn_status_string(want));
    }
    attn_ctx_destroy(ctx);
    random_problem_free(&c.made);
}

static void every_status_is_reached(void **state)
{
    (void)state;
    for (int n = 0; n < N_FUNCTIONS; n++)
        for (int status = 0; status <= 4; status++)
            if (status == 0 || (table[n].errors & 1 << status))
                one_error(&table[n], (attn_status)-status);
}

/* The number without a negative is refused like any that is too far away. */
static void the_farthest_offset_is_refused(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) {
        calls c;
        attn_ctx *ctx;
        calls_make(&c);
        assert_int_equal(attn_ctx_create(NULL, &ctx), ATTN_OK);
        attn_mask *m = &c.made.args.mask;
        m->flags = ATTN_MASK_OFFSET | ATTN_MASK_CAUSAL;
        *(which == 0 ? &m->query_offset : which == 1 ? &m->bias_offset : &m->query_offset) = which == 2 ? INT64_MAX : INT64_MIN;
        assert_int_equal(attn_sdpa_forward(ctx, &c.made.args, NULL, 0), ATTN_ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(attn_ctx_error(ctx), "beyond 2^40"));
        attn_ctx_destroy(ctx);
        random_problem_free(&c.made);
    }
}

/* Functions that return a status are those of the table: read from the header itself. */
static void no_function_is_missing(void **state)
{
    (void)state;
    static const char marker[] = "ATTN_API attn_status ";
    char line[1000], name[200];
    int found = 0;
    FILE *file = fopen(ATTN_SOURCE_DIR "/include/attn/attn.h", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, marker, sizeof marker - 1) != 0 || sscanf(line + sizeof marker - 1, "%199[a-z_0-9](", name) != 1)
            continue;
        int n = 0;
        while (n < N_FUNCTIONS && strcmp(table[n].name, name) != 0)
            n++;
        if (n == N_FUNCTIONS)
            fail_msg("%s is not in the table of this test", name);
        found++;
    }
    fclose(file);
    assert_int_equal(found, N_FUNCTIONS);
}

static void every_status_has_a_text(void **state)
{
    (void)state;
    for (int n = 0; n <= 7; n++) {
        assert_true(attn_status_string((attn_status)-n)[0] != 0);
        for (int m = 0; m < n; m++)
            assert_string_not_equal(attn_status_string((attn_status)-n), attn_status_string((attn_status)-m));
    }
    assert_string_equal(attn_status_string((attn_status)-99), "unknown status");
    assert_string_equal(attn_status_string((attn_status)1), "unknown status");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_is_reached),
        cmocka_unit_test(the_farthest_offset_is_refused),
        cmocka_unit_test(no_function_is_missing),
        cmocka_unit_test(every_status_has_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
