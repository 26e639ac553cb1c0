/* The backward pass at every level against the plain reference: random problems with every mix of options, types and strides,
 * each array right at a guard page and gaps filled with NaN (fwd_world.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/cpu.h"
#include "kernels/ref/ref_backward.h"
#include "ops/sdpa/validate_backward.h"
#include "fwd_world.h"

#define N_PROBLEMS 500 /* per level; ATTN_FWD_PROBLEMS in the environment replaces it */

static attn_view gradient_of(world *w, const attn_cview *of, int32_t dtype, bool odd)
{
    attn_view view;
    attn_cview v = world_view(w, dtype, of->shape, odd);
    memcpy(&view, &v, sizeof view);
    return view;
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
    return true;
}

/* One gradient: what it should be and how far rounding may move it, contiguous in the gradient's shape. */
typedef struct expected {
    double *want, *bound;
} expected;

static expected expected_make(const attn_view *v)
{
    size_t n = (size_t)(v->shape[0] * v->shape[1] * v->shape[2] * v->shape[3]) + 1;
    expected e = {calloc(n, sizeof(double)), calloc(n, sizeof(double))};
    return e;
}

static double size_dot(const attn_cview *x, int64_t h, int64_t n, const attn_cview *y, int64_t g, int64_t m, int64_t b)
{
    double sum = 0;
    for (int64_t d = 0; d < x->shape[3]; d++)
        sum += fabs(attn_cview_at(x, b, h, n, d) * attn_cview_at(y, b, g, m, d));
    return sum;
}

static void add(expected *e, int64_t row, int64_t n, double factor, double bound, const attn_cview *view, int64_t b, int64_t h, int64_t at)
{
    for (int64_t d = 0; d < n; d++) {
        double x = attn_cview_at(view, b, h, at, d);
        e->want[row * n + d] += factor * x;
        e->bound[row * n + d] += bound * fabs(x);
    }
}

/* Pairs of a row, u = 2^-24. A weight is off by e = 2 ((head_dim + 8) u A + (keys + 16) u + 4 u |lse|) of itself, as forward's
 * weights and lse are; <d_out, v> and D by (value_dim + 8) u of the sizes that they sum; D also by the rounding of out, which
 * small problems do not share; sums of n terms by n u of theirs. */
static void add_row(const attn_bwd_problem *g, const attn_ref_row *rows, const attn_entry *e, int64_t h, int64_t i, expected *grads)
{
    const attn_problem *p = &g->forward;
    const double u = 0x1p-24;
    int64_t lo, hi, b = e->batch, q = e->q_begin + i, kv = h / p->group;
    const attn_ref_row *row = &rows[(b * p->n_heads + h) * p->seq_q + q];
    attn_cview out = attn_view_const(&p->a.out);
    double size = 0, n = (double)(p->seq_kv + p->seq_q * p->group);
    attn_row_range(p, e, i, &lo, &hi);
    for (int64_t j = lo; j < hi; j++) {
        double here = score_size(p, e, h, i, j);
        size = here > size && isfinite(here) ? here : size;
    }
    double off = 2 * ((double)(p->head_dim + 8) * u * size + (double)(hi - lo + 16) * u + 4 * u * fabs(row->lse));
    double d_size = size_dot(&g->a.d_out, h, q, &out, h, q, b);
    for (int64_t j = lo; j < hi; j++) {
        attn_ref_pair pair;
        int64_t k = e->k_begin + j;
        if (!attn_ref_backward_pair(g, rows, e, h, i, j, &pair))
            continue;
        double score, f = attn_dropout_factor(p, e, h, i, j), value = f * size_dot(&g->a.d_out, h, q, &p->a.value, kv, k, b);
        attn_ref_score(p, e, h, i, j, &score);
        double w = exp(score - row->lse), moved = value + d_size + fabs(row->delta);
        double bound = w * ((off + n * u) * moved + 4 * (double)(p->value_dim + 8) * u * moved + 2 * rounding_of(p->a.out.dtype) * d_size);
        bound *= fabs(p->scale);
        add(&grads[0], (b * p->n_heads + h) * p->seq_q + q, p->head_dim, pair.d_dot, bound, &p->a.key, b, kv, k);
        add(&grads[1], (b * p->n_kv_heads + kv) * p->seq_kv + k, p->head_dim, pair.d_dot, bound, &p->a.query, b, h, q);
        add(&grads[2], (b * p->n_kv_heads + kv) * p->seq_kv + k, p->value_dim, pair.weight, (off + n * u) * w * f, &g->a.d_out, b, h, q);
    }
}

static bool differs(const attn_view *view, const expected *e, const char *name, uint64_t seed, const char *isa)
{
    const int64_t *s = view->shape;
    for (int64_t n = 0; n < s[0] * s[1] * s[2] * s[3]; n++) {
        double want = e->want[n], bound = e->bound[n], got = attn_load_element(
            view->data, view->dtype, attn_offset(view->stride, n / (s[1] * s[2] * s[3]), n / (s[2] * s[3]) % s[1], n / s[3] % s[2], n % s[3]));
        bound += (fabs(want) + bound) * rounding_of(view->dtype) + (view->dtype == ATTN_F16 ? 0x1p-25 : 0x1p-149);
        bool overflow = view->dtype == ATTN_F16 && fabs(want) + bound >= 65504 && isinf(got);
        bool good = isfinite(want) ? !isfinite(bound) || overflow || fabs(got - want) <= bound : !isfinite(got);
        if (!good) {
            printf("seed %llu on %s: %s[%lld] is %.9g, reference %.9g, bound %.3g\n", (unsigned long long)seed, isa, name, (long long)n, got,
                   want, bound);
            return true;
        }
    }
    return false;
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
        const attn_problem *p = &g.forward;
        attn_view *views[3] = {&g.a.d_query, &g.a.d_key, &g.a.d_value};
        static const char *const names[3] = {"d_query", "d_key", "d_value"};
        expected grads[3];
        attn_ref_row *rows = calloc((size_t)(p->batch * p->n_heads * p->seq_q) + 1, sizeof *rows);
        for (int n = 0; n < 3; n++)
            grads[n] = expected_make(views[n]);
        for (int64_t n = 0; n < p->batch * p->n_heads * p->seq_q; n++)
            rows[n] = attn_ref_backward_row(&g, n / p->seq_q / p->n_heads, n / p->seq_q % p->n_heads, n % p->seq_q);
        for (int64_t s = 0; s < p->n_entries; s++) {
            attn_entry e = attn_problem_entry(p, s);
            for (int64_t n = 0; n < p->n_heads * e.q_count; n++)
                add_row(&g, rows, &e, n / e.q_count, n % e.q_count, grads);
        }
        for (int n = 0; n < 3; n++) {
            failed = failed || differs(views[n], &grads[n], names[n], seed, attn_ctx_isa(ctx));
            free(grads[n].want), free(grads[n].bound);
        }
        if (failed)
            world_print(p, seed, attn_ctx_isa(ctx), "gradients");
        free(rows);
    }
    world_free(&w);
    return failed;
}

static void run_level(int32_t isa)
{
    const char *text = getenv("ATTN_FWD_PROBLEMS");
    int64_t problems = text && atoll(text) > 0 && atoll(text) < N_PROBLEMS ? atoll(text) : N_PROBLEMS, failures = 0;
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
    for (int64_t n = 0; n < problems && failures < 5; n++)
        failures += problem_fails(ctx, (uint64_t)(5000 + n), n % 3 ? 20 : 60, n % 5 ? 30 : 90, n % 4 ? 20 : 48);
    for (int64_t n = 0; n < problems / 20 && failures < 5; n++)
        failures += problem_fails(ctx, (uint64_t)(800000 + n), 130, 250, 24);
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
static void neon(void **state)
{
    (void)state;
    run_level(ATTN_ISA_NEON);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scalar), cmocka_unit_test(avx2), cmocka_unit_test(avx512), cmocka_unit_test(neon)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
