/* backward_paths.h - the two ways to run a backward pass: plain (double, everything) and fast (f32 tiles). Each says how
 * much memory it needs, then runs with that much. */
#ifndef ATTN_OPS_SDPA_BACKWARD_PATHS_H
#define ATTN_OPS_SDPA_BACKWARD_PATHS_H

#include "core/context.h"
#include "kernels/sdpa/bwd_fast.h"

attn_status attn_backward_plain_bytes(attn_ctx *ctx, const attn_bwd_problem *g, size_t *bytes);
void attn_backward_plain(attn_ctx *ctx, const attn_bwd_problem *g, void *memory);

/* False for f64 and for small problems, which the plain path computes. */
bool attn_backward_is_fast(const attn_bwd_problem *g);
/* Problems of at most this many multiply-adds a product and head (16 x 16 pairs of 2 x 128 numbers, 64 x 64 of 2 x 8) are done
 * in double in every dtype: it costs microseconds, and sums of few large terms that cancel keep their digits. By extents alone,
 * and never for packed sequences, so that the companions of a sequence do not show. */
#define ATTN_BACKWARD_SMALL 65536
bool attn_backward_is_small(const attn_bwd_problem *g);
attn_status attn_backward_fast_bytes(attn_ctx *ctx, const attn_bwd_problem *g, size_t *bytes);
void attn_backward_fast(attn_ctx *ctx, const attn_bwd_problem *g, void *memory);

/* The log-sum-exp of rows where the one given is so large that its rounding shows, in two parts (attn_ref_row): at |lse| = 2.8e6 an
 * f32 is off by up to 1/8, 13 % of every weight of the row; at -3e38 (biases that are all -FLT_MAX) it holds nothing of the number
 * of keys. Kept where it rounds to about the lse given. (It need not: rows merged from several key sets carry the lse of all of
 * them.) For kv heads first_head <= entry * n_kv_heads + head < first_head + n_heads. marked: [rows] nonzero where it may be done; NULL: everywhere. scratch: scratch_count doubles per worker, at least
 * attn_wide_scratch. */
void attn_backward_own_lse(attn_ctx *ctx, const attn_bwd_problem *g, int64_t first_head, int64_t n_heads, attn_ref_row *rows,
                           const uint8_t *marked, double *scratch, int64_t scratch_count);

/* The same for one kv head, by the worker that calls; scratch: its own. Not for packed sequences. */
void attn_backward_own_lse_of(int32_t isa, const attn_bwd_problem *g, int64_t head, attn_ref_row *rows,
                              const uint8_t *marked, double *scratch);

/* lse and D of every row again, in double and not from out. scratch: as above. */
void attn_backward_exact_rows(attn_ctx *ctx, const attn_bwd_problem *g, attn_ref_row *rows, double *scratch, int64_t scratch_count);

/* The gradients of things added to scores, by the plain path's passes: d_sinks and, where asked, d_bias and d_relative. */
void attn_backward_plain_tables(attn_ctx *ctx, const attn_bwd_problem *g, attn_ref_row *rows, bool bias, bool relative);

/* Adds round_up(count * size) to *bytes, a multiple of 64. False when that does not fit. */
bool attn_backward_add_bytes(size_t *bytes, size_t count, size_t size);

#endif
