/* nn_kernels.h - what layers compute besides attention: products with packed weight panels, norms,
 * activations.
 *
 * Weights of a linear layer y = W x (W: [n_out, n_in]) lie in panels of 16 outputs, input-major, so
 * that one vector holds one input's weights for neighbouring outputs and nothing is ever summed
 * across lanes. Every output has one accumulator, from 0 over inputs in ascending order with one
 * fused multiply-add each. So its bits depend neither on the number of rows, nor on tiles, nor on
 * threads; a block-quantised weight is turned into the very f32 number that its format defines and
 * then takes the same path, so both forms give equal bits too.
 *
 * Measured on Zen 3 (one thread, 64 x 576 x 1536): oneDNN 2.6 packs nothing below AVX-512 and
 * repacks at each call (61 GFLOP/s), and its rows differ between 1, 8 and 64 rows; hence these
 * kernels.
 */
#ifndef ATTN_KERNELS_NN_NN_KERNELS_H
#define ATTN_KERNELS_NN_NN_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include "attn/layers.h" /* ATTN_ACT_* */
#include "core/compiler.h"

#define ATTN_PANEL       16 /* outputs of one panel */
#define ATTN_PANEL_BLOCK 32 /* inputs that share scales in I8 and U4 panels */

enum {
    ATTN_PANEL_F32 = 0,  /* [n_in][16] f32 */
    ATTN_PANEL_BF16 = 1, /* [n_in][16] bf16 */
    ATTN_PANEL_F16 = 2,  /* [n_in][16] f16 */
    ATTN_PANEL_I8 = 3,   /* [n_in][16] int8; w = q * scale (+ min) */
    ATTN_PANEL_U4 = 4,   /* per 32 inputs [4][16] u32: nibble j of word g belongs to input 4 j + g; w = q * scale + min */
    ATTN_PANEL_P16 = 6,  /* [n_in / 2][16][2] bf16, a zero behind an odd row. For bf16 activations alone (nn_pair.h) */
    ATTN_PANEL_D8 = 5    /* [n_in / 4][16][4] int8, n_in filled up to 32, in the order of nn_dot.h; w as in I8. For 8-bit
                            activations alone */
};

/* A packed matrix. Panels follow one another; the last one is filled up with zeros. */
typedef struct attn_panels {
    int32_t format;      /* ATTN_PANEL_* */
    int32_t scale_block; /* inputs per scale: 16 or 32 (I8), 32 (U4), 32 or all (D8) */
    int32_t half_scales; /* scales and mins are f16 instead of f32 */
    int32_t has_min;
    int64_t n_in, n_out;
    void *values;
    void *scales; /* [panels][ceil(n_in / scale_block)][16] */
    void *mins;   /* the same */
} attn_panels;

/* Bytes of one panel's values. */
static inline int64_t attn_panel_bytes(int32_t format, int64_t n_in)
{
    switch (format) {
    case ATTN_PANEL_F32:
        return n_in * ATTN_PANEL * 4;
    case ATTN_PANEL_BF16:
    case ATTN_PANEL_F16:
        return n_in * ATTN_PANEL * 2;
    case ATTN_PANEL_I8:
        return n_in * ATTN_PANEL;
    case ATTN_PANEL_P16:
        return (n_in + 1) / 2 * 2 * ATTN_PANEL * 2;
    case ATTN_PANEL_D8:
        return (n_in + 31) / 32 * 32 * ATTN_PANEL;
    default:
        return n_in * ATTN_PANEL / 2;
    }
}

static inline int64_t attn_panel_count(const attn_panels *w)
{
    return (w->n_out + ATTN_PANEL - 1) / ATTN_PANEL;
}

/* What is added to the sums of panels: y[m][n] = (sum + bias[n]) + residual[m][n]. Either may be NULL. */
typedef struct attn_panels_end {
    const float *bias, *residual; /* of the first panel's outputs; residual: of the first row */
    int64_t ld_residual;
} attn_panels_end;

/* The same from row m on. */
static inline attn_panels_end attn_panels_end_at(const attn_panels_end *end, int64_t m)
{
    return (attn_panels_end){end->bias, end->residual ? end->residual + m * end->ld_residual : NULL, end->ld_residual};
}

/* The same from panel p on. */
static inline attn_panels_end attn_panels_end_of_panel(const attn_panels_end *end, int64_t p)
{
    const int64_t at = p * ATTN_PANEL;
    return (attn_panels_end){end->bias ? end->bias + at : NULL, end->residual ? end->residual + at : NULL, end->ld_residual};
}

/* What `end` adds to the sums of a panel that are stored already. */
static inline void attn_panels_add_end(int mr, const attn_panels_end *end, float *y, int64_t ldy)
{
    for (int m = 0; m < mr; m++)
        for (int n = 0; n < ATTN_PANEL; n++) {
            if (end->bias)
                y[m * ldy + n] += end->bias[n];
            if (end->residual)
                y[m * ldy + n] += end->residual[m * end->ld_residual + n];
        }
}

/* Asks for a part of n panels from `panel` on, for tile `part` of `parts` that pass over the panels before them; with few tiles there is
 * no time for it. What lies behind the last panel is not asked for. */
static inline void attn_panels_ahead(const attn_panels *w, int64_t panel, int64_t n, int64_t part, int64_t parts)
{
    const int64_t bytes = attn_panel_bytes(w->format, w->n_in), left = attn_panel_count(w) - panel;
    const int64_t all = (left < n ? left : n) * bytes, first = all * part / parts, end = all * (part + 1) / parts;
    for (int64_t at = first; parts >= 4 && at < end; at += ATTN_CACHE_LINE)
        ATTN_PREFETCH_L2((const char *)w->values + panel * bytes + at);
}

/* Rows of `width` bytes, ld bytes apart, that a block fetches beside its own work; it moves row, at and rows on. */
typedef struct attn_gemm_ahead {
    const char *row;
    int64_t ld, width, rows, at;
} attn_gemm_ahead;

/* c[m][n] = (resume ? c[m][n] : 0) + sum_k a b (+ bias[n]), m < rows, n < cols: one accumulator, k ascending. Slots
 * of four bytes hold one number of k (f32) or two (bf16). */
typedef struct attn_gemm_block {
    int64_t rows, cols, slots;
    /* slot (m, k) lies at a[m / mr * a_panel + m % mr * a_row + k * a_step], mr: rows of a register tile */
    const float *a;
    int64_t a_panel, a_row, a_step;
    const float *b; /* packed columns; b_panel slots from one panel to the next */
    int64_t b_panel;
    float *c;
    int64_t ldc;
    const float *bias; /* NULL: none */
    attn_gemm_ahead *ahead;
    int32_t resume;
} attn_gemm_block;

/* The general product (nn_gemm.inc): packed rows of A times packed columns of B. */
typedef struct attn_gemm_kernels {
    int32_t mr, nr;        /* rows and columns of a register tile */
    int32_t numbers;       /* of k in one slot: 1 or 2 */
    int32_t block_slots;   /* slots of k and columns of B, packed, that stay in the second cache */
    int32_t block_columns;
    /* out[panel][slot][width] = element (panel * width + i, k) of x, i < count in all, zeros beyond; that element
     * lies at x[i * ld + k] (then width is nr), or at x[k * ld + i] where by_row is 0 (width is mr or nr). Panels
     * are `step` slots apart. */
    void (*pack)(const float *x, int64_t ld, int32_t by_row, int64_t count, int64_t k, int64_t width, int64_t step,
                 float *out);
    /* out[r * step + slot] = slots of rows x[r * ld] .. x[r * ld + k - 1] */
    void (*rows)(const float *x, int64_t ld, int64_t rows, int64_t k, int64_t step, float *out);
    void (*block)(const attn_gemm_block *block);
} attn_gemm_kernels;

/* Inputs of 96 rows and the weights of two panels, a slice of them (nn_matmul.inc). */
#define ATTN_MATMUL_SCRATCH (96 * 400 + 2 * 384 * ATTN_PANEL)

typedef struct attn_nn_kernels {
    const char *isa;
    /* y[m][n] = sum_k x[m][k] w[n][k] for the outputs of panels first .. first + count - 1, m <
     * rows <= 96; y points at row 0 of output 16 * first and nothing is written beyond n_out. scratch:
     * ATTN_MATMUL_SCRATCH floats, 64-byte aligned */
    void (*matmul)(const attn_panels *w, int64_t first, int64_t count, const float *x, int64_t ldx,
                   int64_t rows, float *y, int64_t ldy, float *scratch);
    /* y = x / sqrt(mean(x^2) + eps) * (weight + offset); weight NULL: without the factor */
    void (*rms_norm)(const float *x, const float *weight, float offset, double eps, int64_t n,
                     float *y);
    /* y = (x - mean) / sqrt(var + eps) * weight + bias; weight and bias may be NULL */
    void (*layer_norm)(const float *x, const float *weight, const float *bias, double eps,
                       int64_t n, float *y);
    void (*activate)(int32_t act, const float *x, int64_t n, float *y); /* y = act(x); y may be x */
    /* y = act(gate) * up; y may be gate */
    void (*activate_mul)(int32_t act, const float *gate, const float *up, int64_t n, float *y);
    void (*add)(float *y, const float *x, int64_t n); /* y += x */
    /* sum[i] = x[0][i] + x[1][i] + ... over rows that are ld apart, each from 0 in this order */
    void (*sum_rows)(const float *x, int64_t ld, int64_t rows, int64_t n, float *sum);

    const attn_gemm_kernels *gemm; /* f32 */

    /* Gradients (nn_gradients.inc). accumulate: add to dx and dup instead of writing them; any
     * output may be NULL. */
    /* of y = act(x) (* up): dx = dy act'(x) (* up), dup = dy act(x), and y itself again, with the bits of activate;
     * dx or dup may be dy */
    void (*activate_grad)(int32_t act, const float *x, const float *up, const float *dy, int64_t n,
                          int32_t accumulate, float *dx, float *dup, float *y);
    /* of one normalised row (kind: ATTN_NORM_*); dw and db are always added to; dx may be dy */
    void (*norm_grad)(int32_t kind, const float *x, const float *weight, float offset, double eps,
                      const float *dy, int64_t n, int32_t accumulate, float *dx, float *dw,
                      float *db);
    float (*row_max)(const float *x, int64_t n);
    double (*exp_sum)(const float *x, int64_t n, float shift); /* sum of exp(x - shift) */
    void (*softmax_row)(float *x, int64_t n, float shift, float factor,
                        float plus); /* x = exp(x - shift) factor + plus */
    /* What dropout multiplies elements first .. first + n - 1 with: 0 or 1 / (1 - p). first is a
     * multiple of 4; element i is kept when word i % 4 of Philox (core/philox.h) with counter i / 4
     * is at or above p 2^32. */
    void (*dropout_factors)(int64_t first, int64_t n, double p, uint64_t seed, float *factors);
} attn_nn_kernels;

/* The kernels of an ISA level (ATTN_ISA_SCALAR, ..., as attn/attn.h); a level without its own gets
 * the next lower. */
const attn_nn_kernels *attn_nn_kernels_for(int32_t isa);

extern const attn_nn_kernels attn_nn_kernels_scalar;
extern const attn_nn_kernels attn_nn_kernels_avx2;
extern const attn_nn_kernels attn_nn_kernels_avx512;
extern const attn_nn_kernels attn_nn_kernels_neon;

#endif
