/* fuzz_op_args.c - argument structs of the operator. The input is a list of patches, 10 bytes each: which 8-byte word of a good
 * attn_sdpa_args (or of the backward's, or of the decode's) becomes which value. Queries must answer every one of them with a
 * status; where all arrays still lie inside the pool that they come from, the call itself runs too, and backward after it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "core/view.h"

enum { POOL = 1 << 16, ENTRIES = 32, TABLE = 1024, ROOM = 64 };

static float input_pool[POOL], output_pool[POOL], lse[POOL], gradient_pool[3][POOL];
static int64_t lengths[ENTRIES + 1];
static int32_t table[TABLE];

static const int64_t values[] = {0,  1,  -1, 2,  3,  4,  5,  7,         8,         16,        17,        31,      33,
                                 40, 64, -2, -8, 96, 63, 65, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1 << 20, 1LL << 40};

static attn_sdpa_args good_forward(void)
{
    attn_sdpa_args a;
    ATTN_ARGS_INIT(&a);
    a.query = attn_cview_of(input_pool + POOL / 2, ATTN_F32, 2, 4, 5, 8);
    a.key = attn_cview_of(input_pool + POOL / 2, ATTN_F32, 2, 2, 7, 8);
    a.value = attn_cview_of(input_pool + POOL / 2, ATTN_F32, 2, 2, 7, 3);
    a.out = attn_view_of(output_pool + POOL / 2, ATTN_F32, 2, 4, 5, 3);
    a.lse = lse;
    return a;
}

/* True when the view lies in the pool around its middle, where its data is put. */
static int inside(attn_cview *v, const float *pool)
{
    double low = 0, high = 0, limit = POOL / 2 - 1;
    size_t size = attn_dtype_size(v->dtype);
    if (!v->data)
        return 1;
    v->data = pool + POOL / 2;
    for (int n = 0; n < 4; n++) {
        if (v->shape[n] < 0)
            return 0;
        if (v->shape[n] > 0)
            *(v->stride[n] < 0 ? &low : &high) += (double)(v->shape[n] - 1) * (double)v->stride[n];
    }
    return size > 0 && size <= 8 && high * 2 < limit && low * 2 > -limit; /* elements of 8 bytes are two floats */
}

/* Pointers that a patch has hit point to arrays again, or to nothing. */
static void mend(attn_sdpa_args *a)
{
    attn_mask *m = &a->mask;
    int64_t batch = a->query.shape[0];
    int small = batch >= 0 && batch <= ENTRIES && m->n_segments >= 0 && m->n_segments <= ENTRIES;
    const int64_t **arrays[] = {&m->query_offsets, &m->kv_len, &m->q_len, &m->cu_seqlens_q, &m->cu_seqlens_k, &m->bias_offsets};
    for (int n = 0; n < 6; n++)
        *arrays[n] = *arrays[n] && small ? lengths : NULL;
    small = small && a->layout.block_table_stride >= 0 && a->layout.block_table_stride <= TABLE / ENTRIES;
    a->layout.block_table = a->layout.block_table && small ? table : NULL;
    int heads = a->query.shape[1] >= 0 && a->query.shape[1] <= 64;
    m->alibi_slopes = m->alibi_slopes && heads ? input_pool : NULL;
    a->sinks = a->sinks && heads ? input_pool : NULL;
    if (m->relative && (!heads || m->rel_left < 0 || m->rel_left > 100 || m->rel_right < 0 || m->rel_right > 100 ||
                        m->relative_stride < 0 || m->relative_stride > 500))
        m->relative = NULL;
    m->relative = m->relative ? input_pool : NULL;
    a->lse = a->lse ? lse : NULL;
}

static int runs(attn_sdpa_args *a)
{
    a->out.data = output_pool + POOL / 2;
    attn_cview out = attn_view_const(&a->out);
    attn_cview *views[] = {&a->query, &a->key, &a->value, &a->mask.allow, &a->mask.bias, &a->key_scale, &a->value_scale, &a->keep};
    for (int n = 0; n < 8; n++)
        if (!inside(views[n], input_pool))
            return 0;
    if (!inside(&out, output_pool))
        return 0;
    double pairs = (double)a->query.shape[0] * (double)a->query.shape[1] * (double)a->query.shape[2];
    pairs *= (double)(a->layout.block_table || a->layout.ring ? a->layout.seq_kv : a->key.shape[2]);
    return a->query.shape[0] * a->query.shape[1] * a->query.shape[2] < POOL / 2 &&
           pairs * (double)(a->query.shape[3] + a->value.shape[3] + 1) < 2e6;
}

static void patch(void *args, size_t bytes, const uint8_t *data, size_t size)
{
    for (; size >= 10; data += 10, size -= 10) {
        size_t word = (size_t)(data[0] | data[1] << 8) % (bytes / 8);
        int64_t value;
        memcpy(&value, data + 2, sizeof value);
        if (data[9] < 0xf0)
            value = values[data[9] % (sizeof values / sizeof *values)];
        memcpy((char *)args + word * 8, &value, sizeof value);
    }
}

static void run_all(attn_ctx *ctx, attn_sdpa_args *a)
{
    attn_sdpa_plan plan;
    attn_sdpa_backward_args b;
    size_t bytes;
    attn_status status = attn_sdpa_workspace(ctx, a, &bytes);
    ATTN_ARGS_INIT(&plan);
    ATTN_ARGS_INIT(&b);
    if (attn_sdpa_describe(ctx, a, &plan) != status || (status == ATTN_OK && plan.workspace_bytes != bytes))
        abort();
    if (status != ATTN_OK)
        return;
    b.forward = a;
    b.d_out = attn_cview_of(input_pool + POOL / 2, a->out.dtype, a->out.shape[0], a->out.shape[1], a->out.shape[2], a->out.shape[3]);
    attn_view *gradients[3] = {&b.d_query, &b.d_key, &b.d_value};
    const attn_cview *of[4] = {&a->query, &a->key, &a->value, &b.d_out};
    for (int n = 0; n < 3; n++)
        *gradients[n] = attn_view_of(gradient_pool[n], of[n]->dtype, of[n]->shape[0], of[n]->shape[1], of[n]->shape[2], of[n]->shape[3]);
    attn_sdpa_backward_workspace(ctx, &b, &bytes);
    if (!runs(a))
        return;
    if (attn_sdpa_forward(ctx, a, NULL, 0) != ATTN_OK)
        return;
    for (int n = 0; n < 4; n++) { /* gradients are contiguous, and may be larger than arrays that repeat */
        int64_t count;
        if (!attn_shape_count(of[n]->shape, &count) || count > POOL / 4)
            return;
    }
    attn_sdpa_backward(ctx, &b, NULL, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static attn_ctx *contexts[2];
    if (size < 1 || size > 4096)
        return 0;
    for (int n = 0; n < 2 && !contexts[0]; n++) {
        attn_ctx_options options;
        for (int k = 0; k < POOL; k++)
            input_pool[k] = (float)(k * 37 % 101 - 50) / 64;
        ATTN_ARGS_INIT(&options);
        options.n_threads = 1;
        options.max_isa = n == 0 ? ATTN_ISA_BEST : ATTN_ISA_SCALAR;
        if (attn_ctx_create(&options, &contexts[1 - n]) != ATTN_OK)
            abort();
    }
    for (int n = 0; n <= ENTRIES; n++)
        lengths[n] = (data[0] & 15) * n / 4;
    for (int n = 0; n < TABLE; n++)
        table[n] = n % 4;
    struct {
        attn_sdpa_args args;
        char later[ROOM]; /* of a newer version: struct_size may say so */
    } forward = {good_forward(), {0}};
    struct {
        attn_decode_args args;
        char later[ROOM];
    } decode;
    size_t bytes;
    memset(&decode, 0, sizeof decode);
    patch(&forward, sizeof forward, data + 1, size - 1);
    forward.args.struct_size %= sizeof forward + 1;
    mend(&forward.args);
    run_all(contexts[data[0] >> 7], &forward.args);
    ATTN_ARGS_INIT(&decode.args);
    decode.args.query = attn_cview_of(input_pool, ATTN_F32, 2, 4, 3, 8);
    decode.args.cache_key = attn_view_of(output_pool, ATTN_F32, 2, 2, 20, 8);
    decode.args.cache_value = attn_view_of(output_pool, ATTN_F32, 2, 2, 20, 3);
    decode.args.out = attn_view_of(lse, ATTN_F32, 2, 4, 3, 3);
    patch(&decode, sizeof decode, data + 1, size - 1);
    decode.args.struct_size %= sizeof decode + 1;
    decode.args.cache_len = decode.args.query.shape[0] <= ENTRIES ? lengths : NULL;
    decode.args.new_len = decode.args.new_len && decode.args.query.shape[0] <= ENTRIES ? lengths : NULL;
    decode.args.layout.block_table = decode.args.layout.block_table && decode.args.query.shape[0] <= ENTRIES && decode.args.layout.block_table_stride >= 0 &&
                                        decode.args.layout.block_table_stride <= TABLE / ENTRIES
                                    ? table
                                    : NULL;
    attn_sdpa_decode_workspace(contexts[data[0] >> 7], &decode.args, &bytes);
    return 0;
}
