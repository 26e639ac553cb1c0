/* nn_rows.h - what layers do to rows of numbers besides products, in f32 and f64: sums, norms, activations, dropout, and
 * their gradients. Pointers are to numbers of dtype (ATTN_F32, ATTN_F64); ld counts elements. Bits do not depend on threads. */
#ifndef ATTN_OPS_NN_NN_ROWS_H
#define ATTN_OPS_NN_NN_ROWS_H

#include "ops/nn/nn_team.h"

/* y += x */
void attn_rows_add(const attn_team *team, int32_t dtype, int64_t rows, int64_t n, const void *x, int64_t ldx, void *y,
                   int64_t ldy);
/* y = x */
void attn_rows_copy(const attn_team *team, int32_t dtype, int64_t rows, int64_t n, const void *x, int64_t ldx, void *y,
                    int64_t ldy);
/* sum[i] += sum over rows of x[r][i], r ascending; f32 rows are summed in f32 over at most 64 rows at a time, those in f64. */
void attn_rows_sum(const attn_team *team, int32_t dtype, int64_t rows, int64_t n, const void *x, int64_t ldx, void *sum);

typedef struct attn_rows_norm_job {
    int32_t dtype, kind; /* ATTN_NORM_* */
    int64_t rows, n;
    double eps, offset;
    const void *x;
    int64_t ldx;
    const void *weight, *bias;
    void *y;             /* forward */
    int64_t ldy;
    const void *d_y;     /* backward */
    int64_t ld_dy;
    void *d_x;           /* NULL: not wanted; may be d_y */
    int64_t ld_dx;
    void *d_weight, *d_bias;
    int32_t accumulate;  /* d_x += */
    int32_t reserved;
    void *partial;       /* attn_rows_norm_partial() numbers of dtype, where d_weight or d_bias is wanted */
} attn_rows_norm_job;

void attn_rows_norm(const attn_team *team, const attn_rows_norm_job *job);
int64_t attn_rows_norm_partial(const attn_rows_norm_job *job);
void attn_rows_norm_grad(const attn_team *team, const attn_rows_norm_job *job);

/* y = act(x) (* up), n numbers; y may be x. */
void attn_rows_activate(const attn_team *team, int32_t dtype, int32_t act, int64_t n, const void *x, const void *up, void *y);
/* Gradients of it; either may be d_y or NULL; accumulate: both are added to. y, where it is not NULL, is written again. */
void attn_rows_activate_grad(const attn_team *team, int32_t dtype, int32_t act, int64_t n, const void *x, const void *up,
                             const void *d_y, int32_t accumulate, void *d_x, void *d_up, void *y);

/* y = (residual) + x * factors of dropout (attn/layers.h); y may be x or residual. p 0: y = residual + x. */
void attn_rows_dropout(const attn_team *team, int32_t dtype, int64_t n, const void *x, const void *residual, double p,
                       uint64_t seed, void *y);

/* One row in f64, as the formulas are written (nn_rows_f64.c). */
double attn_act_f64(int32_t act, double x);
double attn_act_slope_f64(int32_t act, double x);
void attn_norm_row_f64(const attn_rows_norm_job *job, const double *x, double *y);
void attn_norm_row_grad_f64(const attn_rows_norm_job *job, const double *x, const double *dy, double *dx, double *dw,
                            double *db);

#endif
