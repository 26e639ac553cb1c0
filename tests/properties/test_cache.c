/* Decoding through a cache: every storage, dtype and rule against plain attention in double, and against each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include "properties/cache_world.h"

#define N_THREADS 4
static const int32_t thread_counts[N_THREADS] = {1, 2, 3, 8};
static attn_ctx *contexts[N_THREADS];

static int make_contexts(void **state)
{
    (void)state;
    for (int n = 0; n < N_THREADS; n++) {
        attn_ctx_options options;
        ATTN_ARGS_INIT(&options);
        options.n_threads = thread_counts[n];
        if (attn_ctx_create(&options, &contexts[n]) != ATTN_OK)
            return 1;
    }
    return 0;
}
static int drop_contexts(void **state)
{
    (void)state;
    for (int n = 0; n < N_THREADS; n++)
        attn_ctx_destroy(contexts[n]);
    return 0;
}

static size_t out_bytes(const cache_world *w, const world_call *call)
{
    return (size_t)(w->batch * w->heads * call->n_new * w->value_dim) * attn_dtype_size(w->out_type);
}
static size_t lse_bytes(const cache_world *w, const world_call *call)
{
    return (size_t)(w->batch * w->heads * call->n_new) * (w->query_type == ATTN_F64 ? 8 : 4);
}

static void run_call(const cache_world *w, attn_ctx *ctx, world_call *call, uint64_t seed)
{
    attn_status status = attn_sdpa_decode(ctx, &call->args, NULL, 0);
    if (status != ATTN_OK)
        fail_msg("seed %llu: %s: %s", (unsigned long long)seed, attn_status_string(status), attn_ctx_error(ctx));
    (void)w;
}

/* Half an ulp of the output's dtype at x, and a denormal's step for f16. */
static double rounding(int32_t dtype, double x)
{
    double unit = dtype == ATTN_BF16 ? 0x1p-8 : dtype == ATTN_F16 ? 0x1p-11 : dtype == ATTN_F32 ? 0x1p-24 : 0x1p-53;
    return unit * fabs(x) + (dtype == ATTN_F16 ? 0x1p-25 : 0);
}

static void check_answers(cache_world *w, const world_call *call, uint64_t seed)
{
    for (int64_t b = 0; b < w->batch; b++) {
        world_answer want = world_expect(w, contexts[0], call, b);
        int64_t n = call->new_len[b];
        for (int64_t h = 0; h < w->heads; h++)
            for (int64_t i = 0; i < call->n_new; i++) {
                int64_t row = h * n + i;
                double lse = attn_load_element(call->lse, w->query_type == ATTN_F64 ? ATTN_F64 : ATTN_F32,
                                               (b * w->heads + h) * call->n_new + i);
                bool close = i >= n ? lse == -INFINITY : lse == want.lse[row] || fabs(lse - want.lse[row]) <= want.bound_lse[row] * 2;
                if (!close)
                    fail_msg("seed %llu: lse[%d, %d, %d] is %.9g, not %.9g", (unsigned long long)seed, (int)b, (int)h, (int)i, lse,
                             i < n ? want.lse[row] : -INFINITY);
                for (int64_t d = 0; d < w->value_dim; d++) {
                    double got = attn_load_element(call->out.data, w->out_type, attn_offset(call->out.stride, b, h, i, d));
                    double exact = i < n ? want.out[row * w->value_dim + d] : 0;
                    double bound = i < n ? want.bound_out[row] * 2 + rounding(w->out_type, exact) : 0;
                    if (!(fabs(got - exact) <= bound))
                        fail_msg("seed %llu: out[%d, %d, %d, %d] is %.9g, not %.9g (bound %.3g)", (unsigned long long)seed, (int)b,
                                 (int)h, (int)i, (int)d, got, exact, bound);
                }
            }
    }
}

static void keep_outputs(cache_world *w, world_call *call)
{ /* fresh outputs of the same shape, so that the old ones stay for comparison */
    call->out = call->args.out = poisoned(w, w->out_type, w->batch, w->heads, call->n_new, w->value_dim);
    call->lse = call->args.lse = poisoned(w, w->query_type == ATTN_F64 ? ATTN_F64 : ATTN_F32, w->batch, w->heads, call->n_new, 1).data;
}

static void same_outputs(const cache_world *w, const world_call *call, const void *out, const void *lse, const char *what, uint64_t seed)
{
    if (memcmp(call->out.data, out, out_bytes(w, call)) || memcmp(call->lse, lse, lse_bytes(w, call)))
        fail_msg("seed %llu: %s: bits differ", (unsigned long long)seed, what);
}

/* Every sequence of the call alone: the same bits. Appending again writes the same bytes to the same slots. */
static void check_alone(cache_world *w, const world_call *call, uint64_t seed)
{
    for (int64_t b = 0; b < w->batch && w->batch > 1; b++) {
        world_call one = *call;
        attn_decode_args *a = &one.args;
        attn_cview *inputs[] = {&a->query, &a->new_key, &a->new_value, &a->mask.allow, &a->mask.bias};
        attn_view *caches[] = {&a->cache_key, &a->cache_value, &a->cache_key_scale, &a->cache_value_scale};
        for (int n = 0; n < 5; n++)
            if (inputs[n]->data && inputs[n]->shape[0] > 1) {
                inputs[n]->data = (const char *)inputs[n]->data + b * inputs[n]->stride[0] * (int64_t)attn_dtype_size(inputs[n]->dtype);
                inputs[n]->shape[0] = 1;
            }
        for (int n = 0; n < 4 && !a->layout.block_table; n++) {
            caches[n]->data = (char *)caches[n]->data + b * caches[n]->stride[0] * (int64_t)attn_dtype_size(caches[n]->dtype);
            caches[n]->shape[0] = 1;
        }
        if (a->layout.block_table)
            a->layout.block_table += b * a->layout.block_table_stride;
        a->cache_len = &call->cache_len[b];
        a->new_len = &call->new_len[b];
        a->out = poisoned(w, w->out_type, 1, w->heads, call->n_new, w->value_dim);
        a->lse = poisoned(w, ATTN_F64, 1, w->heads, call->n_new, 1).data;
        run_call(w, contexts[1], &one, seed);
        size_t out = out_bytes(w, call) / (size_t)w->batch, lse = lse_bytes(w, call) / (size_t)w->batch;
        if (memcmp(a->out.data, (char *)call->out.data + (size_t)b * out, out) || memcmp(a->lse, (char *)call->lse + (size_t)b * lse, lse))
            fail_msg("seed %llu: sequence %d alone gives other bits than in the batch", (unsigned long long)seed, (int)b);
    }
}

static void one_world(uint64_t seed, int64_t max_tokens, bool windowed)
{
    rng r = {seed};
    cache_world w;
    world_make(&w, &r, max_tokens, windowed);
    int n_stores = windowed ? N_STORES : STORE_RING;
    world_cache caches[N_STORES];
    for (int s = 0; s < n_stores; s++)
        caches[s] = world_cache_make(&w, &r, s);
    int64_t length[8] = {0};
    int kept = w.memory.n_owned;
    for (int step = 0; step < 12; step++) {
        int64_t count[8] = {0}, n_new = 0;
        for (int64_t b = 0; b < w.batch; b++) {
            int64_t room = w.tokens - length[b];
            count[b] = rng_range(&r, 0, room < w.most_new ? room : w.most_new);
            n_new = count[b] > n_new ? count[b] : n_new;
        }
        if (w.most_new > n_new && rng_chance(&r, 0.3))
            n_new++;
        world_call call = world_call_make(&w, &r, length, n_new, count);
        const void *out = NULL, *lse = NULL;
        for (int s = 0; s < n_stores; s++)
            for (int t = 0; t < (s == 0 ? N_THREADS : 2); t++) {
                world_call_use(&call, &caches[s]);
                run_call(&w, contexts[t], &call, seed);
                if (!out)
                    check_answers(&w, &call, seed);
                else
                    same_outputs(&w, &call, out, lse, s == 0 ? "another thread count" : s == 1 ? "paged" : "ring", seed);
                if (t == 0)
                    check_alone(&w, &call, seed);
                out = call.out.data;
                lse = call.lse;
                keep_outputs(&w, &call);
            }
        for (int64_t b = 0; b < w.batch; b++)
            length[b] += count[b];
        while (w.memory.n_owned > kept)
            free(w.memory.owned[--w.memory.n_owned]);
    }
    random_problem_free(&w.memory);
}

static void chunks_agree_with_plain_attention(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 150; seed++)
        one_world(seed, seed % 10 == 0 ? 90 : 30, false);
}

static void windowed_chunks_fit_a_ring(void **state)
{
    (void)state;
    for (uint64_t seed = 1001; seed <= 1120; seed++)
        one_world(seed, 40, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_agree_with_plain_attention),
        cmocka_unit_test(windowed_chunks_fit_a_ring),
    };
    return cmocka_run_group_tests(tests, make_contexts, drop_contexts);
}
