/* gemm.h - the product that training is made of: C (+)= op(A) op(B), f32 and f64.
 *
 * Each number of C has one accumulator over ascending k (from 0, or from C when accumulating), so its bits depend
 * neither on m and n, nor on tiles, nor on threads; with ATTN_GEMM_NT they are those of attn_linear_run on f32 panels.
 *
 * A team whose products are ATTN_BF16 rounds both operands of an f32 product to bf16 (to nearest even) while they
 * are packed; sums, C and bias stay f32. With vdpbf16ps numbers k + 1 and k of a pair are added in this order and
 * subnormal numbers count as 0; elsewhere rounded numbers take the f32 way. */
#ifndef ATTN_OPS_NN_GEMM_H
#define ATTN_OPS_NN_GEMM_H

#include "ops/nn/nn_team.h"

enum {
    ATTN_GEMM_NN = 0, /* A [m, k], B [k, n]: d_x = d_y W */
    ATTN_GEMM_NT = 1, /* A [m, k], B [n, k]: y = x W^T */
    ATTN_GEMM_TN = 2  /* A [k, m], B [k, n]: d_W = d_y^T x */
};

typedef struct attn_gemm_args {
    int32_t dtype, kind; /* ATTN_F32 or ATTN_F64; ATTN_GEMM_* */
    int64_t m, n, k;
    const void *a;
    int64_t lda;
    const void *b;
    int64_t ldb;
    const float *packed; /* f32 only: B as attn_gemm_pack of the same team left it, instead of b; NULL: pack it here */
    void *c;
    int64_t ldc;
    const void *bias;    /* [n], added last; NULL: none */
    int32_t accumulate;  /* C += */
    int32_t reserved;
} attn_gemm_args;

void attn_gemm(const attn_team *team, const attn_gemm_args *args);

/* Where one B serves many products of few rows: packs it once. Floats that it takes, and the packing itself. */
int64_t attn_gemm_packed_floats(const attn_team *team, int64_t n, int64_t k);
void attn_gemm_pack(const attn_team *team, int32_t kind, int64_t n, int64_t k, const float *b, int64_t ldb, float *packed);

/* The same in plain loops, for f64. */
void attn_gemm_f64(const attn_team *team, const attn_gemm_args *args);

#endif
