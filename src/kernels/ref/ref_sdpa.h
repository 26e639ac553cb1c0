/* ref_sdpa.h - attention written plainly, once: the meaning that every fast kernel is held to. Double precision, no
 * tiling, no tricks; serves every dtype, mask, layout and option of attn/attn.h. */
#ifndef ATTN_KERNELS_REF_SDPA_H
#define ATTN_KERNELS_REF_SDPA_H

#include "kernels/sdpa/problem.h"

/* Score of pair (i, j) of head h in entry e, all terms added. Returns false when boolean mask or bias exclude it (the key is
 * then not read). lo <= j < hi of attn_row_range is the caller's part. */
bool attn_ref_score(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i, int64_t j, double *score);

/* The score of a pair from its dot product: scale, softcap, ALiBi and relative table; the bias is the caller's part. */
double attn_ref_finish_score(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i, int64_t j, double dot);

/* Log-sum-exp of row i of head h, the sink included; -inf when the row sees nothing. */
double attn_ref_row_lse(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i);

/* The same as the largest score and the logarithm of sum exp(score - largest): of a score of -3e38, a double has no place for
 * the logarithm of a few hundred keys. */
void attn_ref_row_lse_parts(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i, double *max, double *log_sum);

/* One row of the forward pass: writes out[b, h, i, :] and lse[b, h, i]. acc: value_dim doubles of scratch. */
void attn_ref_forward_row(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i, double *acc);

/* Value element d of logical key j of kv head g, dequantised. */
double attn_ref_value(const attn_problem *p, const attn_entry *e, int64_t g, int64_t j, int64_t d);

/* Writes out = 0 and lse = `lse` for query row `q` (of the whole query axis) of batch entry b, head h. */
void attn_ref_empty_row(const attn_problem *p, int64_t b, int64_t h, int64_t q, double lse);

#endif
