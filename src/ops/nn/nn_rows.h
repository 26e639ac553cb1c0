/* nn_rows.h - what layers do to rows of numbers besides products, in f32 and f64: sums, norms, activations, dropout, and
 * their gradients. Pointers are to numbers of dtype (ATTN_F32, ATTN_F64); ld counts elements. Bits do not depend on threads. */
#ifndef ATTN_OPS_NN_NN_ROWS_H
#define ATTN_OPS_NN_NN_ROWS_H

#include "ops/nn/nn_team.h"

/* y += x */
void attn_rows_add(const attn_team *team, int32_t dtype, int64_t rows, int64_t n, const void *x, int64_t ldx, void *y,
                   int64_t ldy);
/* sum[i] += sum over rows of x[r][i], r ascending; f32 rows are summed in f32 over at most 64 rows at a time, those in f64. */
void attn_rows_sum(const attn_team *team, int32_t dtype, int64_t rows, int64_t n, const void *x, int64_t ldx, void *sum);

#endif
