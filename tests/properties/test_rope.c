/* Rotary embedding against the written formulas, and merge against a forward pass over all keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/half.h"
#include "core/view.h"
#include "properties/random_problem.h"
#include "properties/rope_golden.h"

static attn_ctx *ctx;

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

enum { B = 2, H = 3, S = 5, D = 12 };

static void rotates_pairs_by_position_times_frequency(void **state)
{
    (void)state;
    double x[B * H * S * D], y[B * H * S * D];
    rng r = {3};
    for (int n = 0; n < B * H * S * D; n++)
        x[n] = rng_normal(&r);
    for (int interleaved = 0; interleaved < 2; interleaved++)
        for (int rotary = 4; rotary <= D; rotary += 4) {
            int64_t positions[B * S];
            for (int n = 0; n < B * S; n++)
                positions[n] = rng_range(&r, 0, 9000);
            attn_rope_args a;
            ATTN_ARGS_INIT(&a);
            a.x = attn_cview_of(x, ATTN_F64, B, H, S, D);
            a.out = attn_view_of(y, ATTN_F64, B, H, S, D);
            a.rotary_dim = rotary;
            a.flags = interleaved ? ATTN_ROPE_INTERLEAVED : 0;
            a.base = 500;
            a.positions = positions;
            a.positions_stride = S;
            assert_int_equal(attn_rope(ctx, &a), ATTN_OK);
            for (int b = 0; b < B; b++)
                for (int h = 0; h < H; h++)
                    for (int s = 0; s < S; s++) {
                        const double *p = x + ((b * H + h) * S + s) * D, *q = y + ((b * H + h) * S + s) * D;
                        for (int m = 0; m < rotary / 2; m++) {
                            int u = interleaved ? 2 * m : m, v = interleaved ? 2 * m + 1 : m + rotary / 2;
                            double angle = (double)positions[b * S + s] * pow(500, -2.0 * m / rotary);
                            assert_true(fabs(q[u] - (p[u] * cos(angle) - p[v] * sin(angle))) < 1e-11);
                            assert_true(fabs(q[v] - (p[u] * sin(angle) + p[v] * cos(angle))) < 1e-11);
                        }
                        for (int d = rotary; d < D; d++)
                            assert_true(q[d] == p[d]);
                    }
            a.x = attn_cview_of(y, ATTN_F64, B, H, S, D); /* back, in place */
            a.flags |= ATTN_ROPE_INVERSE;
            assert_int_equal(attn_rope(ctx, &a), ATTN_OK);
            for (int n = 0; n < B * H * S * D; n++)
                assert_true(fabs(y[n] - x[n]) < 1e-13);
        }
}

/* The rotation angle of each pair at position 1, read off the rotation of (1, 0). */
static void angles_of(attn_rope_args *a, int64_t dim, double *angle)
{
    double x[256] = {0}, y[256];
    for (int64_t m = 0; m < dim / 2; m++)
        x[m] = 1;
    a->x = attn_cview_of(x, ATTN_F64, 1, 1, 1, dim);
    a->out = attn_view_of(y, ATTN_F64, 1, 1, 1, dim);
    a->position_offset = 1;
    assert_int_equal(attn_rope(ctx, a), ATTN_OK);
    for (int64_t m = 0; m < dim / 2; m++)
        angle[m] = atan2(y[m + dim / 2], y[m]);
}

static void rescalings_match_their_definitions(void **state)
{
    (void)state;
    double angle[128], pi = acos(-1);
    attn_rope_args a;
    ATTN_ARGS_INIT(&a);
    a.scaling = ATTN_ROPE_LINEAR;
    a.factor = 4;
    angles_of(&a, 64, angle);
    for (int m = 0; m < 32; m++)
        assert_true(fabs(angle[m] - pow(10000, -m / 32.0) / 4) < 1e-12);
    a.scaling = ATTN_ROPE_NTK;
    angles_of(&a, 64, angle);
    for (int m = 0; m < 32; m++) /* the lowest frequency is divided by the factor, the highest stays */
        assert_true(fabs(angle[m] - pow(10000 * pow(4, 64.0 / 62), -m / 32.0)) < 1e-12);
    assert_true(fabs(angle[31] - pow(10000, -31 / 32.0) / 4) < 1e-12 && angle[0] == 1);
    a.scaling = ATTN_ROPE_LLAMA3;
    a.factor = 8;
    a.base = 500000;
    a.original_length = 8192;
    angles_of(&a, 128, angle);
    int kept = 0, divided = 0, between = 0;
    for (int m = 0; m < 64; m++) {
        double f = pow(500000, -m / 64.0), fits = 8192 * f / (2 * pi);
        if (fits > 4) { /* short waves keep their frequency */
            assert_true(fabs(angle[m] - f) < 1e-12);
            kept++;
        } else if (fits < 1) {
            assert_true(fabs(angle[m] - f / 8) < 1e-12);
            divided++;
        } else {
            double smooth = (fits - 1) / 3;
            assert_true(fabs(angle[m] - f * ((1 - smooth) / 8 + smooth)) < 1e-12);
            between++;
        }
    }
    assert_true(kept && divided && between);
    ATTN_ARGS_INIT(&a);
    a.scaling = ATTN_ROPE_YARN;
    a.factor = 16;
    a.original_length = 4096;
    a.attention_factor = 1;
    angles_of(&a, 128, angle);
    double low = floor(128 * log(4096 / (32 * 2 * pi)) / (2 * log(10000))), high = ceil(128 * log(4096 / (2 * pi)) / (2 * log(10000)));
    for (int m = 0; m < 64; m++) {
        double f = pow(10000, -m / 64.0), ramp = fmin(fmax((m - low) / (high - low), 0), 1);
        assert_true(fabs(angle[m] - f * (ramp / 16 + 1 - ramp)) < 1e-12);
    }
}

/* Frequencies and amplitudes as Transformers has them (rope_golden.h), read off the rotation of (1, 0) by one position. Its
 * numbers are float32 powers of bases up to 1e6, off by up to ln(1e6) 2^-24 and a few roundings: 2^-19 of themselves. */
static void rescalings_match_transformers(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof rope_goldens / sizeof *rope_goldens; n++)
        for (int interleaved = 0; interleaved < 2; interleaved++) {
            const rope_golden *g = &rope_goldens[n];
            double x[128], y[128];
            int64_t pairs = g->rotary_dim / 2, step = interleaved ? 2 : 1, apart = interleaved ? 1 : pairs;
            attn_rope_args a;
            ATTN_ARGS_INIT(&a);
            for (int64_t d = 0; d < g->head_dim; d++)
                x[d] = d >= g->rotary_dim ? 7 : (interleaved ? d % 2 == 0 : d < pairs) ? 1 : 0;
            a.x = attn_cview_of(x, ATTN_F64, 1, 1, 1, g->head_dim);
            a.out = attn_view_of(y, ATTN_F64, 1, 1, 1, g->head_dim);
            a.rotary_dim = g->rotary_dim;
            a.flags = g->flags | (interleaved ? ATTN_ROPE_INTERLEAVED : 0);
            a.base = g->base;
            a.position_offset = 1;
            a.scaling = g->scaling;
            a.factor = g->factor;
            a.low_freq_factor = g->low, a.high_freq_factor = g->high;
            a.beta_fast = g->beta_fast, a.beta_slow = g->beta_slow;
            a.attention_factor = g->attention_factor;
            a.original_length = g->original_length;
            assert_int_equal(attn_rope(ctx, &a), ATTN_OK);
            for (int64_t m = 0; m < pairs; m++) {
                double angle = atan2(y[m * step + apart], y[m * step]), size = hypot(y[m * step], y[m * step + apart]);
                if (!(fabs(angle - g->frequency[m]) <= 0x1p-19 * g->frequency[m]) || !(fabs(size - g->amplitude) <= 1e-12))
                    fail_msg("%s: pair %d turns by %.9g (%.9g there) times %.9g (%.9g)", g->name, (int)m, angle, g->frequency[m], size,
                             g->amplitude);
            }
            for (int64_t d = g->rotary_dim; d < g->head_dim; d++)
                assert_true(y[d] == 7);
        }
}

/* ATTN_ROPE_INVERSE is the gradient: <y, rope(x)> = <inverse(y), x> for every rescaling, YaRN's amplitude included; in place. */
static void inverse_is_the_gradient(void **state)
{
    (void)state;
    rng r = {9};
    for (int scaling = 0; scaling <= ATTN_ROPE_YARN; scaling++)
        for (int flags = 0; flags < 2; flags++) {
            double x[B * H * S * D], y[B * H * S * D], rotated[B * H * S * D], forward = 0, backward = 0, size = 0;
            attn_rope_args a;
            for (int n = 0; n < B * H * S * D; n++)
                x[n] = rng_normal(&r), y[n] = rng_normal(&r);
            ATTN_ARGS_INIT(&a);
            a.x = attn_cview_of(x, ATTN_F64, B, H, S, D);
            a.out = attn_view_of(rotated, ATTN_F64, B, H, S, D);
            a.rotary_dim = 8;
            a.flags = flags ? ATTN_ROPE_INTERLEAVED : 0;
            a.position_offset = 1000;
            a.scaling = scaling;
            a.factor = 4;
            a.original_length = 64;
            assert_int_equal(attn_rope(ctx, &a), ATTN_OK);
            for (int n = 0; n < B * H * S * D; n++)
                forward += y[n] * rotated[n];
            a.x = attn_cview_of(y, ATTN_F64, B, H, S, D);
            a.out = attn_view_of(y, ATTN_F64, B, H, S, D);
            a.flags |= ATTN_ROPE_INVERSE;
            assert_int_equal(attn_rope(ctx, &a), ATTN_OK);
            for (int n = 0; n < B * H * S * D; n++) {
                backward += y[n] * x[n];
                size += fabs(y[n] * x[n]);
            }
            assert_true(fabs(forward - backward) <= 1e-14 * size);
        }
}

static void tables_and_types(void **state)
{
    (void)state;
    float cosine[6] = {1, 0.5f, 0.25f, 0, -1, 0.75f}, sine[6] = {0, 0.5f, -0.25f, 1, 0.5f, 0.125f};
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8];
    uint16_t h[8], g[8];
    int64_t positions[2] = {2, 1};
    attn_rope_args a;
    ATTN_ARGS_INIT(&a);
    a.x = attn_cview_of(x, ATTN_F32, 1, 1, 2, 4);
    a.out = attn_view_of(y, ATTN_F32, 1, 1, 2, 4);
    a.cos_table = cosine;
    a.sin_table = sine;
    a.table_rows = 3;
    a.positions = positions;
    assert_int_equal(attn_rope(ctx, &a), ATTN_OK);
    assert_true(y[0] == 1 * -1.0f - 3 * 0.5f && y[2] == 1 * 0.5f + 3 * -1.0f);
    assert_true(y[5] == 6 * 0.0f - 8 * 1.0f && y[7] == 6 * 1.0f + 8 * 0.0f);
    for (int32_t dtype = ATTN_BF16; dtype <= ATTN_F16; dtype++) {
        for (int n = 0; n < 8; n++)
            attn_store_element(h, dtype, n, (double)x[n]);
        a.x = attn_cview_of(h, dtype, 1, 1, 2, 4);
        a.out = attn_view_of(g, dtype, 1, 1, 2, 4);
        assert_int_equal(attn_rope(ctx, &a), ATTN_OK);
        for (int n = 0; n < 8; n++)
            assert_true(attn_load_element(g, dtype, n) == (double)y[n]); /* these values are exact in 16 bits */
    }
    positions[0] = 3;
    assert_int_equal(attn_rope(ctx, &a), ATTN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_ctx_error(ctx), "position 3"));
    a.sin_table = NULL;
    assert_int_equal(attn_rope(ctx, &a), ATTN_ERR_INVALID_ARGUMENT);
    a.cos_table = NULL;
    a.rotary_dim = 3;
    assert_int_equal(attn_rope(ctx, &a), ATTN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_ctx_error(ctx), "rotary_dim is 3"));
    a.rotary_dim = 0;
    a.scaling = 9;
    assert_int_equal(attn_rope(ctx, &a), ATTN_ERR_UNSUPPORTED);
    a.scaling = ATTN_ROPE_LINEAR;
    assert_int_equal(attn_rope(ctx, &a), ATTN_ERR_INVALID_ARGUMENT); /* factor 0 */
    a.scaling = 0;
    a.x.dtype = a.out.dtype = ATTN_I8;
    assert_int_equal(attn_rope(ctx, &a), ATTN_ERR_UNSUPPORTED);
}

static void merged_parts_equal_the_whole(void **state)
{
    (void)state;
    rng r = {11};
    for (int round = 0; round < 60; round++) {
        random_problem made;
        memset(&made, 0, sizeof made);
        int64_t nq = rng_range(&r, 1, 9), nk = rng_range(&r, 0, 30), d = rng_range(&r, 1, 9), parts = rng_range(&r, 1, 4);
        attn_sdpa_args a;
        ATTN_ARGS_INIT(&a);
        a.query = problem_floats(&made, &r, 2, 2, nq, d, 1);
        attn_cview key = problem_floats(&made, &r, 2, 1, nk, d, 1), value = problem_floats(&made, &r, 2, 1, nk, d, 1);
        attn_cview outs[4];
        const void *lses[4];
        int64_t begin = 0;
        float *whole = problem_memory(&made, (size_t)(4 * nq * d) * 4), *whole_lse = problem_memory(&made, (size_t)(4 * nq) * 4);
        for (int64_t n = 0; n <= parts; n++) { /* the last round is the whole */
            int64_t end = n == parts ? nk : n == parts - 1 ? nk : rng_range(&r, begin, nk);
            int64_t from = n == parts ? 0 : begin;
            a.key = key;
            a.value = value;
            a.key.shape[2] = a.value.shape[2] = end - from;
            a.key.data = (const float *)key.data + from * d;
            a.value.data = (const float *)value.data + from * d;
            float *out = n == parts ? whole : problem_memory(&made, (size_t)(4 * nq * d) * 4);
            float *lse = n == parts ? whole_lse : problem_memory(&made, (size_t)(4 * nq) * 4);
            a.out = attn_view_of(out, ATTN_F32, 2, 2, nq, d);
            a.lse = lse;
            assert_int_equal(attn_sdpa_forward(ctx, &a, NULL, 0), ATTN_OK);
            if (n < parts) {
                if (end == from) /* an empty part may hold anything */
                    for (int64_t m = 0; m < 4 * nq * d; m++)
                        out[m] = NAN;
                outs[n] = attn_cview_of(out, ATTN_F32, 2, 2, nq, d);
                lses[n] = lse;
            }
            begin = end;
        }
        attn_view merged = attn_view_of((void *)(uintptr_t)outs[0].data, ATTN_F32, 2, 2, nq, d); /* into the first part */
        float *merged_lse = (float *)(uintptr_t)lses[0];
        assert_int_equal(attn_sdpa_merge(ctx, outs, lses, parts, &merged, merged_lse), ATTN_OK);
        for (int64_t m = 0; m < 4 * nq * d; m++)
            assert_true(fabsf(((float *)merged.data)[m] - whole[m]) <= 16 * 0x1p-23f * 4);
        for (int64_t m = 0; m < 4 * nq; m++)
            assert_true(merged_lse[m] == whole_lse[m] || fabsf(merged_lse[m] - whole_lse[m]) <= 8 * 0x1p-23f * (1 + fabsf(whole_lse[m])));
        random_problem_free(&made);
    }
    float out[2] = {1, 2}, lse[1] = {0};
    attn_view view = attn_view_of(out, ATTN_F32, 1, 1, 1, 2);
    assert_int_equal(attn_sdpa_merge(ctx, NULL, NULL, 0, &view, lse), ATTN_OK);
    assert_true(out[0] == 0 && out[1] == 0 && lse[0] == -INFINITY);
    assert_int_equal(attn_sdpa_merge(ctx, NULL, NULL, 1, &view, lse), ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(attn_sdpa_merge(ctx, NULL, NULL, -1, &view, lse), ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(attn_sdpa_merge(ctx, NULL, NULL, 0, NULL, lse), ATTN_ERR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotates_pairs_by_position_times_frequency),
        cmocka_unit_test(rescalings_match_their_definitions),
        cmocka_unit_test(rescalings_match_transformers),
        cmocka_unit_test(inverse_is_the_gradient),
        cmocka_unit_test(tables_and_types),
        cmocka_unit_test(merged_parts_equal_the_whole),
    };
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
