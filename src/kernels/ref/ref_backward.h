/* ref_backward.h - the gradient of attention written plainly, once: every gradient is a sum over admitted pairs of what
 * one function says about a pair. Double precision, no tiling; serves every dtype, mask and option of attn/attn.h.
 *
 * With w_ij the weight, f_ij the dropout factor (0 or 1/(1-p); 1 without dropout), s_ij the score:
 *
 *     out_i = sum_j w_ij f_ij v_j
 *     D_i   = <d_out_i, out_i>                             (Dao et al. 2022, appendix B.2, equation 4)
 *     dS_ij = w_ij (f_ij <d_out_i, v_j> - D_i + d_lse_i)   the gradient of the score, and of anything added to it
 *     dA_ij = dS_ij * scale * (1 - tanh^2)                 the gradient of <q_i, k_j>, through the softcap
 *     d_query_i = sum_j dA_ij k_j       d_key_j = sum_i dA_ij q_i       d_value_j = sum_i w_ij f_ij d_out_i
 *     d_bias = sum of dS_ij over the pairs that share an element        d_relative likewise
 *     d_sinks[h] = sum_i exp(sinks[h] - lse_i) (d_lse_i - D_i)
 *
 * Each function below computes one element or row of a gradient alone, in a fixed order of pairs, and adds it to or
 * stores it in the array: so any division of the rows among threads gives the same bits. */
#ifndef ATTN_KERNELS_REF_BACKWARD_H
#define ATTN_KERNELS_REF_BACKWARD_H

#include "kernels/sdpa/bwd_problem.h"

#define ATTN_REF_BIAS_BLOCK 64 /* keys of d_bias that one task sums at a time */

/* What is known of a row before any pair is looked at. Functions below read an array of these, [batch, n_heads, seq_q]. */
typedef struct attn_ref_row {
    double lse;   /* forward's, or the row's largest score; -inf: the row sees nothing, or is padding */
    double rest;  /* a weight is exp(score - lse - rest): 0, or what the log-sum-exp is above the largest score */
    double delta; /* D_i - d_lse_i; D_i is 0 where no key is seen */
} attn_ref_row;

/* What a pair contributes. */
typedef struct attn_ref_pair {
    double weight;  /* w f: how much of v_j is in out_i */
    double d_score; /* dS */
    double d_dot;   /* dA */
} attn_ref_pair;

/* Row q of head h in batch entry b, its lse as given. */
attn_ref_row attn_ref_backward_row(const attn_bwd_problem *g, int64_t b, int64_t h, int64_t q);

/* Pair (i, j) of head h in entry e, where attn_row_range admits it. False when a mask excludes it; its key and value are
 * then not read. */
bool attn_ref_backward_pair(const attn_bwd_problem *g, const attn_ref_row *rows, const attn_entry *e, int64_t h, int64_t i,
                            int64_t j, attn_ref_pair *pair);

/* The same for a caller that has the products: dot = <q_i, k_j>, d_out_dot = <d_out_i, v_j>. */
bool attn_ref_backward_pair_of(const attn_bwd_problem *g, const attn_ref_row *rows, const attn_entry *e, int64_t h, int64_t i,
                               int64_t j, double dot, double d_out_dot, attn_ref_pair *pair);

/* d_query[b, h, q, :]. acc: head_dim doubles of scratch. */
void attn_ref_backward_query(const attn_bwd_problem *g, const attn_ref_row *rows, int64_t b, int64_t h, int64_t q, double *acc);

/* d_key[b, kv_head, k, :] and d_value[b, kv_head, k, :], over all query heads of the group. acc: head_dim + value_dim
 * doubles of scratch. */
void attn_ref_backward_key(const attn_bwd_problem *g, const attn_ref_row *rows, int64_t b, int64_t kv_head, int64_t k,
                           double *acc);

/* Elements d_bias[b, h, q, k .. k + ATTN_REF_BIAS_BLOCK) (indices within d_bias, the block cut at its end). */
void attn_ref_backward_bias(const attn_bwd_problem *g, const attn_ref_row *rows, int64_t b, int64_t h, int64_t q, int64_t k);

/* d_relative[table * relative_stride + column]; with relative_stride 0 the only table is summed over all heads. */
void attn_ref_backward_relative(const attn_bwd_problem *g, const attn_ref_row *rows, int64_t table, int64_t column);

/* d_sinks[h]. */
void attn_ref_backward_sink(const attn_bwd_problem *g, const attn_ref_row *rows, int64_t h);

#endif
