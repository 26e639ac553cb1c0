#include "kernels/sdpa/fwd_plan.h"

static int64_t round_up(int64_t x, int64_t step)
{
    return (x + step - 1) / step * step;
}

bool attn_fwd_suits(const attn_problem *p)
{
    const attn_sdpa_args *a = &p->a;
    return a->query.dtype != ATTN_F64 && p->kv_dtype != ATTN_F64 && a->value.dtype != ATTN_F64 && a->out.dtype != ATTN_F64 &&
           (!a->mask.bias.data || a->mask.bias.dtype != ATTN_F64);
}

bool attn_fwd_suits_bf16(const attn_problem *p)
{
    const attn_sdpa_args *a = &p->a;
    return a->query.dtype == ATTN_BF16 && p->kv_dtype == ATTN_BF16 && a->value.dtype == ATTN_BF16 &&
           a->out.dtype == ATTN_BF16 && !attn_drops(p);
}

/* Keys are read in place when they are rows of whole slots in the kernel's type that do not all fall into the same cache
 * sets. */
static bool keys_in_place(const attn_problem *p, int64_t pair)
{
    const attn_cview *key = &p->a.key;
    return (pair == 2 || key->dtype == ATTN_F32) && p->head_dim % pair == 0 && key->stride[3] == 1 &&
           !p->a.layout.block_table && !p->a.layout.ring && key->stride[2] * 4 / pair % 4096 != 0;
}

/* Most stacked rows that one entry can have. */
static int64_t longest_stack(const attn_problem *p)
{
    return p->seq_q * p->group;
}

static bool few_elements(const attn_problem *p)
{
    const double rows = (double)p->n_heads * (double)p->seq_q + (double)p->n_kv_heads * (double)p->seq_kv;
    return (double)p->batch * rows * (double)(p->head_dim + p->value_dim) <= ATTN_FWD_SMALL;
}

void attn_fwd_plan_make(const attn_problem *p, const attn_fwd_kernel *kernel, attn_fwd_plan *plan)
{
    const attn_mask *m = &p->a.mask;
    int64_t tile = (int64_t)kernel->lanes * kernel->vectors, rows = longest_stack(p), pair = kernel->pair;
    plan->problem = p;
    plan->kernel = kernel;
    plan->tile_rows = tile;
    rows = rows > 0 ? rows : 1;
    int64_t most = kernel->strip_floats / (p->head_dim + p->value_dim + 1);
    most = most < ATTN_FWD_STRIP_LEAST ? ATTN_FWD_STRIP_LEAST : most > ATTN_FWD_STRIP_MOST ? ATTN_FWD_STRIP_MOST : most;
    int64_t strips = (rows + most - 1) / most; /* as equal as whole tiles allow */
    plan->strip_rows = round_up((rows + strips - 1) / strips, tile);
    /* enough tasks for many threads where rows are few: by shape, so that the cut is the same on every machine */
    while (plan->strip_rows > 2 * tile && (rows / plan->strip_rows + 1) * p->n_entries * p->n_kv_heads < 16)
        plan->strip_rows = round_up(plan->strip_rows / 2, tile);
    plan->key_block = ATTN_FWD_KEY_BLOCK;
    int64_t block = p->seq_kv < plan->key_block ? round_up(p->seq_kv, 8) : plan->key_block;
    plan->small = few_elements(p);
    plan->copy_keys = !keys_in_place(p, pair);
    plan->rules = p->a.softcap > 0 || m->alibi_slopes || m->relative || m->bias.data || m->allow.data || !(p->scale > 0);
    plan->query_slots = (p->head_dim + pair - 1) / pair;
    plan->key_stride = round_up(p->head_dim, 16 * pair);
    if (plan->key_stride % (256 * pair) == 0)
        plan->key_stride += 16 * pair;
    plan->value_padded = round_up(p->value_dim, kernel->panel);
    plan->value_pitch = block / pair * kernel->panel + 16;
    int64_t at = 0, strip = plan->strip_rows;
    plan->query_at = at;
    at += round_up(strip * plan->query_slots, 16);
    plan->out_at = at;
    at += round_up(strip * plan->value_padded, 16);
    plan->score_at = at;
    at += round_up(tile * block, 16);
    plan->value_at = at;
    at += round_up(plan->value_padded / kernel->panel * plan->value_pitch, 16);
    plan->key_at = at;
    at += block * plan->key_stride / pair; /* used where keys are copied; counted always: memory may not depend on strides */
    plan->row_at = at;
    at += round_up(strip * ATTN_FWD_ROW_FLOATS, 16);
    plan->scratch_bytes = (size_t)at * sizeof(float);
}
