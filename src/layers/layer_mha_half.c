/* layer_mha_half.c - what the operator reads as bf16 where products round to bf16 (attn_layers_set_products) and the CPU multiplies such
 * numbers: to bf16 and back, in parallel pieces. */
#include <string.h>
#include "kernels/nn/nn_pair.h"
#include "layers/layer_mha.h"

#define PIECE 16384 /* numbers of one task: even, so that only the last one can leave a zero behind */

typedef struct conversion {
    const attn_pair_kernels *kernels;
    const void *x;
    void *out;
    int64_t n;
} conversion;

static int64_t piece_of(const conversion *c, int64_t task)
{
    const int64_t left = c->n - task * PIECE;
    return left < PIECE ? left : PIECE;
}

static void narrow_task(void *arg, int64_t task, int32_t worker)
{
    const conversion *c = arg;
    (void)worker;
    c->kernels->round((const float *)c->x + task * PIECE, piece_of(c, task), (uint16_t *)c->out + task * PIECE);
}

static void widen_task(void *arg, int64_t task, int32_t worker)
{
    const conversion *c = arg;
    const uint16_t *x = (const uint16_t *)c->x + task * PIECE;
    float *out = (float *)c->out + task * PIECE;
    (void)worker;
    for (int64_t i = 0; i < piece_of(c, task); i++) {
        const uint32_t bits = (uint32_t)x[i] << 16;
        memcpy(out + i, &bits, sizeof bits);
    }
}

static void convert(const attn_team *team, conversion *c, attn_team_fn fn)
{
    const int64_t tasks = (c->n + PIECE - 1) / PIECE;
    attn_team_for(team, tasks, attn_team_workers(team, tasks, (double)c->n), fn, c);
}

void attn_mha_narrow(const attn_team *team, const void *x, int64_t n, void *out)
{
    const int32_t isa = ATTN_ARCH_AARCH64 ? ATTN_ISA_NEONBF16 : ATTN_ISA_AVX512BF16; /* elsewhere nothing is narrowed */
    conversion c = {attn_pair_kernels_for(isa), x, out, n};
    convert(team, &c, narrow_task);
}

attn_status attn_mha_heads(attn_layers *layers, const attn_mha_plan *plan, const void **heads)
{
    const attn_mha_args *a = &plan->a;
    const int64_t n = a->batch * a->seq_q * a->n_heads * a->value_dim;
    void *wide = NULL;
    *heads = plan->heads;
    if (!plan->half)
        return ATTN_OK;
    ATTN_TRY(attn_layers_scratch(layers, n, a->dtype, &wide));
    conversion c = {NULL, plan->heads, wide, n};
    convert(&layers->team, &c, widen_task);
    *heads = wide;
    return ATTN_OK;
}
