/* nn_dot.h - products of 8-bit activations with 8- and 4-bit weights (--act-int8): whole numbers are multiplied and added, one
 * scale for a group of inputs. Only for those who ask: the default is f32 activations (nn_kernels.h).
 *
 *     x[m][k] ~ q[m][k] scale[m][k / group],  q = nearest(x / scale), scale = largest |x| of the group / 127
 *     y[m][n] = sum over groups b of  w_scale[n][b] scale[m][b] (sum_k q[m][k] w[n][k]) + w_min[n][b] scale[m][b] sum_k q[m][k]
 *
 * Sums of whole numbers are exact, groups follow in ascending order with one f32 accumulator: so the bits depend neither on the
 * number of rows, nor on threads, and a level differs from another only where it has fused multiply-adds.
 *
 * Inputs of a block of 32 stand in the order 0 8 16 24, 4 12 20 28, 1 9 17 25, ...: number 8 g + 4 h + i is input 8 i + 4 h + g.
 * That is how the bytes of a U4 word (nn_kernels.h) fall apart when its low and its high nibbles are masked. */
#ifndef ATTN_KERNELS_NN_NN_DOT_H
#define ATTN_KERNELS_NN_NN_DOT_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include "core/compiler.h"
#include "kernels/nn/nn_kernels.h"

#define ATTN_DOT_MAX_ROWS 96

/* Rows of activations. n_in: padded with zeros to a multiple of 32. */
typedef struct attn_dot_rows {
    int64_t n_rows, n_in, group, n_groups; /* n_rows: at least as many as there are; group: inputs that share a scale, a multiple of 32 */
    int8_t *q;      /* [rows][n_in] */
    int16_t *wide;  /* the same as 16-bit numbers, for AVX2 */
    float *scale;   /* [n_groups][n_rows] */
    int32_t *total; /* [n_groups][n_rows] sum of q */
    int32_t *start; /* [n_groups][n_rows] -128 times that: where sums begin whose weights have 128 added, for VNNI */
} attn_dot_rows;

typedef struct attn_dot_kernels {
    const char *isa;
    /* Rows m .. m + rows - 1 of `to` from rows x[n], ldx apart, n <= n_in; balance: NULL, or multipliers of x[n] (groups of 32
     * only). A group with a NaN or an infinity has no finite scale. */
    void (*quantise)(const float *x, int64_t ldx, int64_t rows, const float *balance, int64_t n, const attn_dot_rows *to, int64_t m);
    /* y[m - first_row][16 outputs of n_panels panels from `panel` on], n_panels 1 or 2, for rows first_row .. first_row + rows - 1,
     * with what `end` adds; whole panels are written. w is a D8 or U4 matrix whose scale_block, where the file's rows are longer, is
     * x->group. */
    void (*panels)(const attn_panels *w, int64_t panel, int64_t n_panels, const attn_dot_rows *x, int64_t first_row, int64_t rows,
                   const attn_panels_end *end, float *y, int64_t ldy);
    /* The sums alone, of one row and any number of panels, in one go and with the same bits; NULL where `panels` is as good. */
    void (*row)(const attn_panels *w, int64_t panel, int64_t n_panels, const attn_dot_rows *x, int64_t row, float *y);
} attn_dot_kernels;

/* The kernels of an ISA level (ATTN_ISA_SCALAR, ...); a level without its own gets the next lower. */
const attn_dot_kernels *attn_dot_kernels_for(int32_t isa);

extern const attn_dot_kernels attn_dot_kernels_scalar;
extern const attn_dot_kernels attn_dot_kernels_avx2;
extern const attn_dot_kernels attn_dot_kernels_avx512;
extern const attn_dot_kernels attn_dot_kernels_neondot;

void attn_dot_row_avx512(const attn_panels *w, int64_t panel, int64_t n_panels, const attn_dot_rows *x, int64_t row, float *y);

/* What brings a group to whole numbers; 0: all of them are 0. */
static inline float attn_dot_inverse(float largest)
{
    return largest > 1e-30f && largest < INFINITY ? 127.0f / largest : 0.0f;
}

/* Where input k of a block of 32 stands. */
static inline int64_t attn_dot_place(int64_t k)
{
    return 8 * (k % 4) + k / 4 % 2 * 4 + k / 8;
}

#endif
