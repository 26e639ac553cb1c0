/* The decode dataflow at every ISA level here: few rows over many keys, several chunks and splits, against the reference
 * in double; the same bits over threads and in pages; NaN wherever nothing may be read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include "core/cpu.h"
#include "ops/sdpa/decode_path.h"
#include "properties/cache_world.h"

static const int32_t levels[] = {ATTN_ISA_SCALAR,     ATTN_ISA_AVX2, ATTN_ISA_AVX512,
                                 ATTN_ISA_AVX512BF16, ATTN_ISA_NEON, ATTN_ISA_NEONBF16};
#define N_LEVELS ((int)(sizeof levels / sizeof *levels))

static attn_ctx *context_of(int32_t isa, int32_t n_threads)
{
    attn_ctx_options options;
    attn_ctx *ctx = NULL;
    ATTN_ARGS_INIT(&options);
    options.max_isa = isa;
    options.n_threads = n_threads;
    assert_int_equal(attn_ctx_create(&options, &ctx), ATTN_OK);
    return ctx;
}

/* A forward problem and the same in double. */
typedef struct pair_of_problems {
    random_problem memory;
    attn_sdpa_args args, exact;
    size_t out_bytes, lse_bytes;
} pair_of_problems;

/* Random numbers in dtype, and what they are in double. NaN beyond `used` rows of the third axis. */
static attn_cview numbers(pair_of_problems *p, rng *r, int32_t dtype, const int64_t shape[4], int64_t used, double amp, attn_cview *exact)
{
    int64_t n = shape[0] * shape[1] * shape[2] * shape[3];
    char *x = problem_memory(&p->memory, (size_t)n * attn_dtype_size(dtype));
    double *e = problem_memory(&p->memory, (size_t)n * sizeof *e);
    memset(x, 0xff, (size_t)n * attn_dtype_size(dtype)); /* NaN; -1 for i8, whose scale is NaN */
    for (int64_t k = 0; k < n; k++) {
        if (k / shape[3] % shape[2] >= used)
            continue;
        if (dtype == ATTN_I8)
            x[k] = (char)rng_range(r, -127, 127);
        else
            attn_store_element(x, dtype, k, amp * rng_normal(r));
        e[k] = attn_load_element(x, dtype, k);
    }
    *exact = attn_cview_of(e, ATTN_F64, shape[0], shape[1], shape[2], shape[3]);
    return attn_cview_of(x, dtype, shape[0], shape[1], shape[2], shape[3]);
}

static void multiply_scales(const attn_cview *exact, const attn_cview *scale)
{
    double *x = (double *)(uintptr_t)exact->data;
    int64_t rows = exact->shape[0] * exact->shape[1] * exact->shape[2];
    for (int64_t k = 0; k < rows * exact->shape[3]; k++)
        x[k] = x[k] == 0 ? 0 : x[k] * (double)((const float *)scale->data)[k / exact->shape[3]];
}

static void make_rules(pair_of_problems *p, rng *r, int64_t batch, int64_t heads, int64_t nq, int64_t nk)
{
    attn_mask *m = &p->args.mask;
    int64_t *offset = problem_memory(&p->memory, (size_t)batch * 8);
    for (int64_t b = 0; b < batch; b++)
        offset[b] = m->kv_len[b] - nq + rng_range(r, -2, 2);
    m->query_offsets = offset;
    m->flags = ATTN_MASK_OFFSET | (rng_chance(r, 0.5) ? ATTN_MASK_CAUSAL : 0u);
    if (rng_chance(r, 0.3)) {
        m->flags |= ATTN_MASK_WINDOW;
        m->left = rng_range(r, 0, nk);
        m->right = rng_range(r, -1, 5);
    }
    m->bias_offset = nk - nq;
    if (rng_chance(r, 0.25))
        m->alibi_slopes = problem_floats(&p->memory, r, 1, 1, 1, heads, 0.02).data;
    if (rng_chance(r, 0.25)) {
        m->rel_left = 7, m->rel_right = 3, m->relative_stride = 11;
        m->relative = problem_floats(&p->memory, r, 1, 1, heads, 11, 1).data;
    }
    if (rng_chance(r, 0.25)) {
        m->bias = problem_floats(&p->memory, r, 1, rng_chance(r, 0.5) ? heads : 1, nq, nk, 1);
        for (int64_t k = 0; k < m->bias.stride[0]; k += 5)
            ((float *)(uintptr_t)m->bias.data)[k] = -INFINITY;
    }
    if (rng_chance(r, 0.25)) {
        uint8_t *allow = problem_memory(&p->memory, (size_t)(batch * nq * nk));
        for (int64_t k = 0; k < batch * nq * nk; k++)
            allow[k] = rng_chance(r, 0.9);
        m->allow = attn_cview_of(allow, ATTN_BOOL, batch, 1, nq, nk);
    }
    p->args.softcap = rng_chance(r, 0.2) ? 4 : 0;
    if (rng_chance(r, 0.25))
        p->args.sinks = problem_floats(&p->memory, r, 1, 1, 1, heads, 3).data;
}

static void make_pair(pair_of_problems *p, rng *r)
{
    static const int64_t dims[] = {1, 7, 37, 64, 72, 80, 96, 128, 160};
    static const int32_t types[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_I8};
    memset(p, 0, sizeof *p);
    int64_t batch = rng_range(r, 1, 2), kv = rng_range(r, 1, 2), group = rng_range(r, 1, 8), nq = rng_range(r, 1, 16 / group);
    int64_t nk = rng_chance(r, 0.5) ? rng_range(r, 1, 600) : rng_range(r, 600, 2300), d = dims[rng_range(r, 0, 8)], dv = d;
    if (rng_chance(r, 0.2))
        dv = dims[rng_range(r, 0, 8)];
    int32_t type = types[rng_range(r, 0, 3)], query = types[rng_range(r, 0, 2)];
    int64_t *len = problem_memory(&p->memory, (size_t)batch * 8), used = 0;
    for (int64_t b = 0; b < batch; b++) {
        len[b] = rng_range(r, 0, nk);
        used = len[b] > used ? len[b] : used;
    }
    attn_sdpa_args *a = &p->args, *e = &p->exact;
    ATTN_ARGS_INIT(a);
    ATTN_ARGS_INIT(e);
    a->mask.kv_len = len;
    make_rules(p, r, batch, kv * group, nq, nk);
    attn_cview q, k, v, ignored;
    a->query = numbers(p, r, query, (int64_t[]){batch, kv * group, nq, d}, nq, 2, &q);
    a->key = numbers(p, r, type, (int64_t[]){batch, kv, nk, d}, used, 1, &k);
    a->value = numbers(p, r, type, (int64_t[]){batch, kv, nk, dv}, used, 1, &v);
    if (type == ATTN_I8) {
        a->key_scale = numbers(p, r, ATTN_F32, (int64_t[]){batch, kv, nk, 1}, used, 0.01, &ignored);
        a->value_scale = numbers(p, r, ATTN_F32, (int64_t[]){batch, kv, nk, 1}, used, 0.01, &ignored);
        multiply_scales(&k, &a->key_scale);
        multiply_scales(&v, &a->value_scale);
    }
    *e = *a;
    e->query = q, e->key = k, e->value = v;
    size_t rows = (size_t)(batch * kv * group * nq);
    p->out_bytes = rows * (size_t)dv * 4, p->lse_bytes = rows * 4;
    a->out = attn_view_of(problem_memory(&p->memory, p->out_bytes), ATTN_F32, batch, kv * group, nq, dv);
    a->lse = problem_memory(&p->memory, p->lse_bytes);
    e->out = attn_view_of(problem_memory(&p->memory, p->out_bytes * 2), ATTN_F64, batch, kv * group, nq, dv);
    e->lse = problem_memory(&p->memory, p->lse_bytes * 2);
}

static void run_reference(pair_of_problems *p, attn_ctx *ctx, attn_problem *exact)
{
    if (attn_sdpa_validate(ctx, &p->exact, ATTN_NEED_ALL, exact) != ATTN_OK)
        fail_msg("%s", attn_ctx_error(ctx));
    double *scratch = problem_memory(&p->memory, (size_t)exact->value_dim * 8);
    for (int64_t b = 0; b < exact->batch; b++) {
        attn_entry e = attn_problem_entry(exact, b);
        for (int64_t h = 0; h < exact->n_heads; h++)
            for (int64_t i = 0; i < e.q_count; i++)
                attn_ref_forward_row(exact, &e, h, i, scratch);
    }
}

static void check_rows(const pair_of_problems *p, const attn_problem *exact, const char *isa, uint64_t seed)
{
    const float *out = p->args.out.data, *lse = p->args.lse;
    const double *want = p->exact.out.data, *want_lse = p->exact.lse;
    for (int64_t row = 0; row < exact->batch * exact->n_heads * exact->seq_q; row++) {
        attn_entry e = attn_problem_entry(exact, row / exact->seq_q / exact->n_heads);
        double bound_out, bound_lse;
        attn_problem own = *exact; /* row_bounds reads batch entry 0 */
        own.a.query.data = (const double *)own.a.query.data + e.batch * own.a.query.stride[0];
        own.a.key.data = (const double *)own.a.key.data + e.batch * own.a.key.stride[0];
        own.a.value.data = (const double *)own.a.value.data + e.batch * own.a.value.stride[0];
        attn_entry first = e;
        first.batch = 0;
        if (own.a.mask.allow.data)
            own.a.mask.allow.data = (const uint8_t *)own.a.mask.allow.data + e.batch * own.a.mask.allow.stride[0];
        row_bounds(&own, &first, row / exact->seq_q % exact->n_heads, row % exact->seq_q, FLT_EPSILON, &bound_out, &bound_lse);
        if (!(lse[row] == want_lse[row] || fabs((double)lse[row] - want_lse[row]) <= bound_lse))
            fail_msg("seed %llu, %s: lse %d is %.9g, not %.9g", (unsigned long long)seed, isa, (int)row, (double)lse[row], want_lse[row]);
        for (int64_t d = 0; d < exact->value_dim; d++) {
            double x = (double)out[row * exact->value_dim + d], y = want[row * exact->value_dim + d];
            if (!(fabs(x - y) <= bound_out))
                fail_msg("seed %llu, %s: out[%d, %d] is %.9g, not %.9g (bound %.3g)", (unsigned long long)seed, isa, (int)row, (int)d, x,
                         y, bound_out);
        }
    }
}

/* The same keys and values in shuffled pages; unused pages are NaN. */
static attn_cview paged(pair_of_problems *p, const attn_cview *v, int64_t size, const int32_t *table, int64_t stride)
{
    size_t element = attn_dtype_size(v->dtype);
    int64_t blocks = v->shape[0] * stride, row = v->shape[3];
    char *x = problem_memory(&p->memory, (size_t)(blocks * v->shape[1] * size * row) * element);
    memset(x, 0xff, (size_t)(blocks * v->shape[1] * size * row) * element);
    for (int64_t b = 0; b < v->shape[0]; b++)
        for (int64_t g = 0; g < v->shape[1]; g++)
            for (int64_t j = 0; j < v->shape[2]; j++)
                memcpy(x + (size_t)(((table[b * stride + j / size] * v->shape[1] + g) * size + j % size) * row) * element,
                       (const char *)v->data + (size_t)(((b * v->shape[1] + g) * v->shape[2] + j) * row) * element, (size_t)row * element);
    return attn_cview_of(x, v->dtype, blocks, v->shape[1], size, row);
}

static void make_paged(pair_of_problems *p, rng *r)
{
    attn_sdpa_args *a = &p->args;
    int64_t size = rng_chance(r, 0.5) ? rng_range(r, 1, 40) : 32 * rng_range(r, 1, 3); /* lines are asked for across the latter */
    int64_t stride = (a->key.shape[2] + size - 1) / size, n = a->key.shape[0] * stride;
    int32_t *table = problem_memory(&p->memory, (size_t)n * sizeof *table);
    for (int64_t k = 0; k < n; k++) {
        int64_t at = rng_range(r, 0, k);
        table[k] = table[at];
        table[at] = (int32_t)k;
    }
    a->layout.block_table = table;
    a->layout.block_table_stride = stride;
    a->layout.seq_kv = a->key.shape[2];
    attn_cview *views[] = {&a->key, &a->value, &a->key_scale, &a->value_scale};
    for (int v = 0; v < (a->key.dtype == ATTN_I8 ? 4 : 2); v++)
        *views[v] = paged(p, views[v], size, table, stride);
}

static void few_rows_agree_with_the_reference(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        for (int n = 0; n < N_LEVELS; n++) {
            if (!attn_cpu_has_isa(levels[n]))
                continue;
            rng r = {seed};
            pair_of_problems p;
            attn_problem exact, resolved;
            attn_ctx *one = context_of(levels[n], 1), *three = context_of(levels[n], 3);
            make_pair(&p, &r);
            run_reference(&p, one, &exact);
            assert_int_equal(attn_sdpa_validate(one, &p.args, ATTN_NEED_ALL, &resolved), ATTN_OK);
            assert_true(attn_decode_suits(one, &resolved) || resolved.seq_kv <= 128);
            if (attn_sdpa_forward(one, &p.args, NULL, 0) != ATTN_OK)
                fail_msg("%s", attn_ctx_error(one));
            check_rows(&p, &exact, attn_ctx_isa(one), seed);
            void *out = p.args.out.data, *lse = p.args.lse;
            for (int pages = 0; pages < 2; pages++) {
                if (pages)
                    make_paged(&p, &r);
                p.args.out.data = problem_memory(&p.memory, p.out_bytes);
                p.args.lse = problem_memory(&p.memory, p.lse_bytes);
                assert_int_equal(attn_sdpa_forward(three, &p.args, NULL, 0), ATTN_OK);
                if (memcmp(out, p.args.out.data, p.out_bytes) || memcmp(lse, p.args.lse, p.lse_bytes))
                    fail_msg("seed %llu: %s give other bits", (unsigned long long)seed, pages ? "pages" : "threads");
            }
            attn_ctx_destroy(one);
            attn_ctx_destroy(three);
            random_problem_free(&p.memory);
        }
}

/* One NaN in an admitted key or value reaches exactly the rows that admit it; infinite scores give what they should. */
static void special_numbers_go_where_they_belong(void **state)
{
    (void)state;
    enum { KEYS = 300, DIM = 16, QUERIES = 4 };
    static float q[QUERIES * DIM], k[KEYS * DIM], v[KEYS * DIM], out[QUERIES * DIM], lse[QUERIES];
    for (int n = 0; n < N_LEVELS; n++) {
        if (!attn_cpu_has_isa(levels[n]))
            continue;
        attn_ctx *ctx = context_of(levels[n], 1);
        for (int kind = 0; kind < 4; kind++) {
            rng r = {(uint64_t)kind + 1};
            for (int d = 0; d < QUERIES * DIM; d++)
                q[d] = (float)fabs(rng_normal(&r)) + 0.1f;
            for (int d = 0; d < KEYS * DIM; d++) {
                k[d] = (float)rng_normal(&r);
                v[d] = (float)rng_normal(&r);
            }
            float *at = kind < 2 ? k : v; /* key 298 is seen by queries 2 and 3 only */
            at[298 * DIM + 3] = kind % 2 ? INFINITY : NAN;
            attn_sdpa_args a;
            ATTN_ARGS_INIT(&a);
            a.query = attn_cview_of(q, ATTN_F32, 1, 1, QUERIES, DIM);
            a.key = attn_cview_of(k, ATTN_F32, 1, 1, KEYS, DIM);
            a.value = attn_cview_of(v, ATTN_F32, 1, 1, KEYS, DIM);
            a.out = attn_view_of(out, ATTN_F32, 1, 1, QUERIES, DIM);
            a.lse = lse;
            a.mask.flags = ATTN_MASK_CAUSAL | ATTN_MASK_OFFSET;
            a.mask.query_offset = KEYS - QUERIES;
            assert_int_equal(attn_sdpa_forward(ctx, &a, NULL, 0), ATTN_OK);
            for (int i = 0; i < QUERIES; i++)
                for (int d = 0; d < DIM; d++) {
                    float x = out[i * DIM + d];
                    bool plain = i < 2 || (kind >= 2 && d != 3);
                    assert_true(plain ? isfinite(x) : kind == 3 ? isinf(x) : isnan(x));
                }
            assert_true(isfinite(lse[1]) && (kind >= 2 ? isfinite(lse[2]) : isnan(lse[2])));
        }
        attn_ctx_destroy(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_rows_agree_with_the_reference),
        cmocka_unit_test(special_numbers_go_where_they_belong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
