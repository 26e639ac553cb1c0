/* The backward pass against finite differences of the forward pass in f64, for random mixes of every rule; and its promises:
 * the same bits for any number of threads and in any batch, nothing read that is excluded, accumulate adds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include "kernels/ref/ref_sdpa.h"
#include "ops/sdpa/validate.h"
#include "properties/gradient_problem.h"

static attn_ctx *ctx; /* one thread */

static attn_ctx *context_of(int32_t n_threads)
{
    attn_ctx_options options;
    attn_ctx *made;
    ATTN_ARGS_INIT(&options);
    options.n_threads = n_threads;
    assert_int_equal(attn_ctx_create(&options, &made), ATTN_OK);
    return made;
}
static int make_ctx(void **state)
{
    (void)state;
    ctx = context_of(1);
    return 0;
}
static int drop_ctx(void **state)
{
    (void)state;
    attn_ctx_destroy(ctx);
    return 0;
}

static void forward(attn_ctx *with, gradient_problem *g)
{
    attn_status status = attn_sdpa_forward(with, &g->made.args, NULL, 0);
    if (status != ATTN_OK)
        fail_msg("forward: %s", attn_ctx_error(with));
}
static void backward(attn_ctx *with, gradient_problem *g)
{
    attn_status status = attn_sdpa_backward(with, &g->args, NULL, 0);
    if (status != ATTN_OK)
        fail_msg("backward: %s", attn_ctx_error(with));
}

/* sum(out * d_out) + sum(lse * d_lse) over rows that see something. */
static double loss(gradient_problem *g)
{
    const attn_sdpa_args *a = &g->made.args;
    forward(ctx, g);
    double sum = 0;
    attn_cview out = attn_view_const(&a->out);
    for (int64_t k = 0; k < view_count(&out); k++)
        sum += attn_load_element(out.data, out.dtype, k) * attn_load_element(g->args.d_out.data, g->args.d_out.dtype, k);
    for (int64_t k = 0; g->args.d_lse && k < out.shape[0] * out.shape[1] * out.shape[2]; k++) {
        double lse = ((const double *)a->lse)[k];
        if (lse != -INFINITY)
            sum += lse * ((const double *)g->args.d_lse)[k];
    }
    return sum;
}

/* Central difference at steps h and 2h, combined so that the error is O(h^4) (Richardson). */
static double finite_difference(gradient_problem *g, int index, int64_t k)
{
    int32_t dtype;
    void *data = input_data(g, index, &dtype);
    const double h = 0x1p-9, at = attn_load_element(data, dtype, k); /* at +- 2h is exact in f32 */
    double slope[2];
    for (int n = 0; n < 2; n++) {
        attn_store_element(data, dtype, k, at + h * (n + 1));
        double above = loss(g);
        attn_store_element(data, dtype, k, at - h * (n + 1));
        slope[n] = (above - loss(g)) / (2 * h * (n + 1));
    }
    attn_store_element(data, dtype, k, at);
    return (4 * slope[0] - slope[1]) / 3;
}

/* Truncation: 4 h^4 / 120 * fifth derivative. A score moves by |k| * scale <= 4 sqrt(20) per unit, weights are at most 1/4
 * curved, d_out and values are below 4: fifth derivatives of a few thousand times the gradient's size are possible where the
 * scale is large; h^4 is 1.5e-11. Rounding: loss / h * 2^-50 < 1e-9. */
#define FINITE_DIFFERENCE_BOUND(size) (1e-6 * (1 + fabs(size)))

static void gradients_agree_with_finite_differences(void **state)
{
    (void)state;
    int64_t checked[N_GRADS] = {0};
    for (uint64_t seed = 1; seed <= 300; seed++) {
        gradient_problem g;
        gradient_problem_make(&g, seed, 9, ATTN_F64, ATTN_F64);
        rng r = {seed * 77};
        forward(ctx, &g);
        backward(ctx, &g);
        for (int index = 0; index < N_GRADS; index++)
            for (int n = 0; n < 4 && g.count[index]; n++) {
                int32_t dtype;
                int64_t k = rng_range(&r, 0, g.count[index] - 1);
                const void *data = input_data(&g, index, &dtype);
                if (attn_load_element(data, dtype, k) == -INFINITY)
                    continue;
                double got = gradient_at(&g, index, k), want = finite_difference(&g, index, k);
                checked[index] += got != 0;
                if (!(fabs(got - want) <= FINITE_DIFFERENCE_BOUND(want)))
                    fail_msg("seed %d: %s[%d] is %.10g, finite difference %.10g", (int)seed, gradient_name(index), (int)k, got,
                             want);
            }
        gradient_problem_free(&g);
    }
    for (int index = 0; index < N_GRADS; index++)
        assert_true(checked[index] > 20); /* gradients that are not 0 were among them */
}

/* admitted_row[b,h,i], admitted_key[b,g,j]: takes part in some pair. */
static void find_admitted(const gradient_problem *g, uint8_t *admitted_row, uint8_t *admitted_key)
{
    attn_problem p;
    assert_int_equal(attn_sdpa_validate(ctx, &g->made.args, ATTN_NEED_ALL, &p), ATTN_OK);
    for (int64_t s = 0; s < p.n_entries; s++) {
        attn_entry e = attn_problem_entry(&p, s);
        for (int64_t h = 0; h < p.n_heads; h++)
            for (int64_t i = 0; i < e.q_count; i++) {
                int64_t lo, hi;
                double score;
                attn_row_range(&p, &e, i, &lo, &hi);
                for (int64_t j = lo; j < hi; j++)
                    if (attn_ref_score(&p, &e, h, i, j, &score)) {
                        admitted_row[(e.batch * p.n_heads + h) * p.seq_q + e.q_begin + i] = 1;
                        admitted_key[(e.batch * p.n_kv_heads + h / p.group) * p.seq_kv + e.k_begin + j] = 1;
                    }
            }
    }
}

static void fill_rows(const attn_cview *view, const uint8_t *admitted, double x)
{
    for (int64_t k = 0; k < view_count(view); k++)
        if (!admitted[k / view->shape[3]])
            attn_store_element((void *)(uintptr_t)view->data, view->dtype, k, x);
}

static void assert_rows_zero(const attn_view *gradient, const uint8_t *admitted, const char *name)
{
    attn_cview view = attn_view_const(gradient);
    for (int64_t k = 0; k < view_count(&view); k++)
        if (!admitted[k / view.shape[3]] && attn_load_element(view.data, view.dtype, k) != 0)
            fail_msg("%s[%d] of a row that takes part in nothing is %g", name, (int)k, attn_load_element(view.data, view.dtype, k));
}

static void *copied(const void *data, size_t bytes)
{
    void *copy = malloc(bytes ? bytes : 1);
    if (bytes)
        memcpy(copy, data, bytes);
    return copy;
}

/* Rows and keys that take part in nothing have gradient 0 and may hold anything. */
static void excluded_rows_are_zero_and_unread(int32_t dtype, uint64_t seed, int64_t max_seq)
{
    gradient_problem g;
    void *clean[N_GRADS];
    gradient_problem_make(&g, seed, max_seq, dtype, dtype);
    const attn_sdpa_args *a = &g.made.args;
    uint8_t *row = problem_memory(&g.made, (size_t)(a->query.shape[0] * a->query.shape[1] * a->query.shape[2]));
    uint8_t *key = problem_memory(&g.made, (size_t)(a->key.shape[0] * a->key.shape[1] * a->key.shape[2]));
    find_admitted(&g, row, key);
    forward(ctx, &g);
    backward(ctx, &g);
    assert_rows_zero(&g.args.d_query, row, "d_query");
    assert_rows_zero(&g.args.d_key, key, "d_key");
    assert_rows_zero(&g.args.d_value, key, "d_value");
    for (int index = 0; index < N_GRADS; index++) {
        int32_t unused;
        clean[index] = copied(gradient_data(&g, index, &unused), gradient_bytes(&g, index));
    }
    fill_rows(&a->query, row, NAN);
    fill_rows(&a->key, key, NAN);
    fill_rows(&a->value, key, INFINITY);
    fill_rows(&g.args.d_out, row, NAN);
    forward(ctx, &g);
    backward(ctx, &g);
    for (int index = 0; index < N_GRADS; index++) {
        int32_t unused;
        if (g.count[index] && memcmp(clean[index], gradient_data(&g, index, &unused), gradient_bytes(&g, index)) != 0)
            fail_msg("seed %d: NaN in an excluded place changed %s", (int)seed, gradient_name(index));
        free(clean[index]);
    }
    gradient_problem_free(&g);
}

static void excluded_places_never_reach_a_gradient(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++)
        excluded_rows_are_zero_and_unread(ATTN_F64, seed, 24);
    for (uint64_t seed = 1; seed <= 200; seed++)
        excluded_rows_are_zero_and_unread(ATTN_F32, seed, seed % 16 ? 70 : 250);
}

static void threads_do_not_show(void **state)
{
    (void)state;
    static const int32_t counts[3] = {2, 3, 8}, dtypes[4] = {ATTN_F32, ATTN_F64, ATTN_BF16, ATTN_F16};
    attn_ctx *others[3];
    for (int n = 0; n < 3; n++)
        others[n] = context_of(counts[n]);
    for (uint64_t seed = 1; seed <= 60; seed++) {
        gradient_problem g;
        int32_t dtype = dtypes[seed % 4], unused; /* seeds of the long ones are f32 */
        void *one[N_GRADS];
        gradient_problem_make(&g, seed, seed % 8 ? 150 : 400, dtype, dtype);
        forward(ctx, &g);
        backward(ctx, &g);
        for (int index = 0; index < N_GRADS; index++)
            one[index] = copied(gradient_data(&g, index, &unused), gradient_bytes(&g, index));
        for (int n = 0; n < 3; n++) {
            backward(others[n], &g);
            for (int index = 0; index < N_GRADS; index++)
                if (g.count[index] && memcmp(one[index], gradient_data(&g, index, &unused), gradient_bytes(&g, index)) != 0)
                    fail_msg("seed %d: %s has other bits with %d threads", (int)seed, gradient_name(index), counts[n]);
        }
        for (int index = 0; index < N_GRADS; index++)
            free(one[index]);
        gradient_problem_free(&g);
    }
    for (int n = 0; n < 3; n++)
        attn_ctx_destroy(others[n]);
}

static attn_cview entry_of(attn_cview v, int64_t b, int64_t elements_before)
{
    if (v.data && v.shape[0] > 1) {
        v.data = (const char *)v.data + (size_t)(b * v.stride[0]) * attn_dtype_size(v.dtype);
        v.shape[0] = 1;
    }
    (void)elements_before;
    return v;
}

/* Batch entry b alone, without the generator's dropout (whose counter holds the entry), gives the bits it has in the batch. */
static void a_batch_does_not_show(void **state)
{
    (void)state;
    int n_checked = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        gradient_problem g;
        int32_t dtype = seed % 2 ? ATTN_F32 : ATTN_BF16;
        gradient_problem_make(&g, seed, 90, dtype, ATTN_F32);
        attn_sdpa_args *a = &g.made.args, alone = *a;
        int64_t n = a->query.shape[0], b = n - 1, rows = a->query.shape[1] * a->query.shape[2];
        if (n > 1 && (a->dropout_p == 0 || a->keep.data)) {
            forward(ctx, &g);
            backward(ctx, &g);
            gradient_problem one = g;
            void *grads[3];
            attn_view *views[3] = {&one.args.d_query, &one.args.d_key, &one.args.d_value};
            const int64_t *offsets[3] = {a->mask.query_offsets, a->mask.kv_len, a->mask.q_len};
            alone.query = entry_of(a->query, b, 0);
            alone.key = entry_of(a->key, b, 0);
            alone.value = entry_of(a->value, b, 0);
            alone.mask.bias = entry_of(a->mask.bias, b, 0);
            alone.mask.allow = entry_of(a->mask.allow, b, 0);
            alone.keep = entry_of(a->keep, b, 0);
            alone.mask.query_offsets = offsets[0] ? offsets[0] + b : NULL;
            alone.mask.kv_len = offsets[1] ? offsets[1] + b : NULL;
            alone.mask.q_len = offsets[2] ? offsets[2] + b : NULL;
            alone.out.data = (char *)a->out.data + (size_t)(b * a->out.stride[0]) * attn_dtype_size(dtype);
            alone.out.shape[0] = 1;
            alone.lse = (float *)a->lse + b * rows;
            one.args.forward = &alone;
            one.args.d_out = entry_of(g.args.d_out, b, 0);
            one.args.d_lse = g.args.d_lse ? (const float *)g.args.d_lse + b * rows : NULL;
            one.args.d_bias.data = NULL;
            one.args.d_relative = one.args.d_sinks = NULL;
            for (int index = 0; index < 3; index++) {
                views[index]->shape[0] = 1;
                grads[index] = views[index]->data = malloc((size_t)g.count[index] * 4 + 1);
            }
            backward(ctx, &one);
            for (int index = 0; index < 3; index++) {
                int32_t unused;
                size_t bytes = gradient_bytes(&g, index) / (size_t)n;
                if (memcmp(grads[index], (char *)gradient_data(&g, index, &unused) + bytes * (size_t)b, bytes) != 0)
                    fail_msg("seed %d: %s of entry %d has other bits alone", (int)seed, gradient_name(index), (int)b);
                free(grads[index]);
            }
            n_checked++;
        }
        gradient_problem_free(&g);
    }
    assert_true(n_checked > 10);
}

/* One problem in a narrow type against the f64 gradients of the same numbers, which the plain path computes. A weight
 * exp(s - lse) is off by the rounding of s and lse, |lse| * 2^-24 and a few more; D by the rounding of out to the type, `unit`.
 * Errors of the terms of a sum add at random, so they are held to a few units of the largest gradient, or of a term, 4. Tables
 * sum over whole rows, with the same error of D in each of a row's pairs: sqrt(rows) of them. */
static void agrees_with_f64(uint64_t seed, int64_t max_seq, int32_t dtype, double unit)
{
    gradient_problem wide, narrow;
    gradient_problem_make(&wide, seed, max_seq, ATTN_F64, ATTN_F64);
    gradient_problem_make(&narrow, seed, max_seq, dtype, seed % 2 ? dtype : ATTN_F32);
    forward(ctx, &wide);
    forward(ctx, &narrow);
    backward(ctx, &wide);
    backward(ctx, &narrow);
    double lse = 8;
    int64_t rows = view_count(&wide.made.args.query) / wide.made.args.query.shape[3];
    for (int64_t r = 0; r < rows; r++)
        if (isfinite(((const double *)wide.made.args.lse)[r]))
            lse = fmax(lse, fabs(((const double *)wide.made.args.lse)[r]));
    for (int index = 0; index < N_GRADS; index++) {
        double largest = 0, terms = index < GRAD_BIAS ? 1 : (double)rows;
        for (int64_t k = 0; k < wide.count[index]; k++)
            largest = fmax(largest, fabs(gradient_at(&wide, index, k)));
        for (int64_t k = 0; k < wide.count[index]; k++) {
            double got = gradient_at(&narrow, index, k), want = gradient_at(&wide, index, k);
            if (!(fabs(got - want) <= 4 * sqrt(terms) * (unit + lse * 0x1p-24) * (4 + largest)))
                fail_msg("seed %d dtype %s: %s[%d] is %.9g, f64 %.9g", (int)seed, attn_dtype_name(dtype), gradient_name(index),
                         (int)k, got, want);
        }
    }
    gradient_problem_free(&wide);
    gradient_problem_free(&narrow);
}

static void narrow_types_agree_with_f64(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        agrees_with_f64(seed, 60, ATTN_F32, 0x1p-24);
        agrees_with_f64(seed, 60, ATTN_BF16, 0x1p-9);
        agrees_with_f64(seed, 60, ATTN_F16, 0x1p-12);
    }
    for (uint64_t seed = 301; seed <= 316; seed++) /* several key blocks and query blocks */
        agrees_with_f64(seed, 300, ATTN_F32, 0x1p-24);
}

static void accumulate_adds(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 80; seed++) {
        gradient_problem g;
        int32_t dtype = seed % 2 ? ATTN_F64 : ATTN_F32;
        double *first[N_GRADS];
        gradient_problem_make(&g, seed, 40, dtype, dtype);
        forward(ctx, &g);
        backward(ctx, &g);
        for (int index = 0; index < N_GRADS; index++) {
            int32_t type;
            void *data = gradient_data(&g, index, &type);
            first[index] = malloc(sizeof(double) * (size_t)g.count[index] + 1);
            for (int64_t k = 0; k < g.count[index]; k++) {
                first[index][k] = gradient_at(&g, index, k);
                attn_store_element(data, type, k, 2); /* what was there before */
            }
        }
        g.args.flags = ATTN_GRAD_ACCUMULATE;
        backward(ctx, &g);
        for (int index = 0; index < N_GRADS; index++) {
            int32_t type;
            gradient_data(&g, index, &type);
            /* the sum is rounded when it is added; heads and batch entries that share an element add one after another */
            int64_t roundings = index == GRAD_BIAS || index == GRAD_RELATIVE ? g.made.args.query.shape[0] * g.made.args.query.shape[1] : 1;
            for (int64_t k = 0; k < g.count[index]; k++) {
                double want = 2 + first[index][k], unit = (double)roundings * (type == ATTN_F64 ? 0x1p-52 : 0x1p-23);
                if (!(fabs(gradient_at(&g, index, k) - want) <= unit * (2 + fabs(want))))
                    fail_msg("seed %d: %s[%d] is %.9g, wanted 2 + %.9g", (int)seed, gradient_name(index), (int)k,
                             gradient_at(&g, index, k), first[index][k]);
            }
            free(first[index]);
        }
        gradient_problem_free(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_finite_differences),
        cmocka_unit_test(excluded_places_never_reach_a_gradient),
        cmocka_unit_test(threads_do_not_show),
        cmocka_unit_test(a_batch_does_not_show),
        cmocka_unit_test(narrow_types_agree_with_f64),
        cmocka_unit_test(accumulate_adds),
    };
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
