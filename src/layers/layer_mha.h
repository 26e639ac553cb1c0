/* layer_mha.h - attention with its projections, complete arguments (defaults filled in). */
#ifndef ATTN_LAYERS_LAYER_MHA_H
#define ATTN_LAYERS_LAYER_MHA_H

#include "layers/layer_parts.h"

/* What an attention layer works with. Queries, keys and values of self attention lie side by side in one array of rows
 * (ld wide), so that one product makes all three; otherwise each has its own. */
typedef struct attn_mha_plan {
    attn_mha_args a;            /* sizes and strides complete; key and value as given */
    const void *key_rows, *value_rows;
    int64_t ld_key_rows, ld_value_rows;
    int64_t n_extra;            /* keys behind the given ones: bias_k, ADD_ZERO */
    int64_t q_width, k_width, v_width; /* n_heads * head_dim, n_kv_heads * head_dim, n_kv_heads * value_dim */
    bool appended;              /* the keys behind lie in the same rows as the given ones, masks get columns for them */
    int64_t rows_kv;            /* keys of one batch entry in k and v */
    bool together;              /* one array of q, k, v */
    bool half;                  /* q, k, v and heads are kept as bf16, for products of bf16 numbers in the operator too */
    int64_t ld_q, ld_k, ld_v;
    void *q, *k, *v;            /* after projection and rotation: [batch * seq, width], of attn_mha_kept's type */
    void *heads;                /* [batch * seq_q, n_heads * value_dim], likewise */
    void *lse;                  /* [batch, n_heads, seq_q] */
    size_t saved_bytes;
} attn_mha_plan;

/* The type of q, k, v and heads. */
static inline int32_t attn_mha_kept(const attn_mha_plan *plan)
{
    return plan->half ? ATTN_BF16 : plan->a.dtype;
}

/* Checks, completes and lays out; with sizes_only data pointers may be missing. `base` (may be NULL): where q, k, v, heads and
 * lse lie. */
attn_status attn_mha_prepare(attn_layers *layers, attn_mha_plan *plan, const attn_mha_args *args, bool sizes_only);
void attn_mha_place(attn_mha_plan *plan, void *base);
attn_status attn_mha_run_forward(attn_layers *layers, attn_mha_plan *plan);
attn_status attn_mha_run_backward(attn_layers *layers, attn_mha_plan *plan, const attn_mha_gradients *gradients);

/* The heads as numbers of the layer's type: themselves, or a copy in scratch. */
attn_status attn_mha_heads(attn_layers *layers, const attn_mha_plan *plan, const void **heads);
/* Numbers rounded to bf16, to nearest even; n of them, room for one more. */
void attn_mha_narrow(const attn_team *team, const void *x, int64_t n, void *out);

/* Arguments of the operator over the given keys (extra 0) or over the keys behind them (extra 1; extra_kv from
 * attn_mha_extra). */
void attn_mha_operator_args(const attn_mha_plan *plan, int32_t extra, const void *extra_kv, attn_sdpa_args *s);
/* Keys, then values, behind the given ones: [n_extra, k_width + v_width] in scratch; NULL where there are none. */
attn_status attn_mha_extra(attn_layers *layers, const attn_mha_plan *plan, void **extra_kv);
/* Fills k and v rows of the keys behind the given ones where they are appended. */
void attn_mha_append(const attn_mha_plan *plan, const void *extra_kv);
/* Masks with columns for appended keys, in scratch: allow and bias of s->mask are replaced. */
attn_status attn_mha_widen_masks(attn_layers *layers, const attn_mha_plan *plan, attn_sdpa_args *s);
/* Rotates queries and keys (inverse: their gradients), rows as in the plan. */
attn_status attn_mha_rotate(attn_layers *layers, const attn_mha_plan *plan, void *q, void *k, uint64_t more_flags);
/* Fills row_weights and mean_weights. */
attn_status attn_mha_show_weights(attn_layers *layers, const attn_mha_plan *plan, const void *extra_kv);

#endif
