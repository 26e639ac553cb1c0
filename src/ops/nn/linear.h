/* linear.h - linear layers y = x W^T + b over packed weights: packing once at load, running many times.
 *
 * Panels and their arithmetic are described in kernels/nn/nn_kernels.h. Bits of a row do not depend on the number of
 * rows or threads. */
#ifndef ATTN_OPS_NN_LINEAR_H
#define ATTN_OPS_NN_LINEAR_H

#include <stddef.h>
#include <stdint.h>
#include "attn/attn.h"
#include "kernels/nn/nn_dot.h"
#include "kernels/nn/nn_kernels.h"
#include "kernels/nn/nn_pair.h"
#include "ops/nn/linear_memory.h"

#define ATTN_LINEAR_MAX_JOBS 4

typedef struct attn_linear {
    attn_panels w;
    int32_t shared; /* 1: the panels lie in an attn_linear_memory, which frees them */
    float *bias;  /* [n_out] or NULL; owned */
    size_t bytes; /* of values, scales and mins */
    int32_t act_i8; /* 1: U4 is multiplied with 8-bit activations (D8 always is) */
    float *balance; /* [n_in] powers of two or NULL; owned. W holds its columns divided by them, and inputs are multiplied by them */
} attn_linear;

/* What computes: kernels of an ISA level, a number of threads, memory for the tiles of each of them (attn_linear_tiles bytes, 64-byte
 * aligned), and for 8- and 16-bit activations (attn_linear_scratch bytes for the rows and the largest n_in of a run; NULL where no
 * matrix takes them). One run at a time. */
typedef struct attn_worker {
    const attn_nn_kernels *kernels;
    const attn_dot_kernels *dot;
    const attn_pair_kernels *pair;
    int32_t n_threads;
    void *scratch;
    float *tiles;
} attn_worker;

/* How a matrix will be held. half_scales, has_min and scale_block are read for I8, U4 and D8 (where scale_block 0 is one scale
 * for all inputs of an output). */
typedef struct attn_linear_format {
    int32_t format, scale_block, half_scales, has_min;
} attn_linear_format;

/* Allocates the panels of [n_out, n_in], outputs beyond n_out zero. U4 needs n_in to be a multiple of 32.
 * Returns OK; INVALID_ARGUMENT; OUT_OF_MEMORY (linear is then empty). */
attn_status attn_linear_create(attn_linear *linear, attn_linear_format format, int64_t n_in, int64_t n_out);

/* The same with panels in `memory`, which must live longer than the matrix. */
attn_status attn_linear_create_in(attn_linear_memory *memory, attn_linear *linear, attn_linear_format format, int64_t n_in, int64_t n_out);

/* Balances a D8 matrix in blocks of 32 before it is packed: a column of W is divided by a power of two near the square root of its
 * norm, and x multiplied by it, so that neither the blocks of W nor those of x are ruled by a few columns (SmoothQuant, Xiao et al.
 * 2023, section 4, without activations to look at). Nothing is rounded by it. row(arg, n, out) gives row n of W; scratch: n_in
 * floats. Returns OK or OUT_OF_MEMORY. */
typedef void (*attn_linear_row_fn)(void *arg, int64_t row, float *out);
attn_status attn_linear_balance(attn_linear *linear, attn_linear_row_fn row, void *arg, float *scratch);

/* Frees what create and balance allocated, and the bias. A zeroed linear is fine. */
void attn_linear_destroy(attn_linear *linear);

/* Packs panels first .. first + count - 1. row(arg, n, out) gives row n of W as f32; rows are rounded to the format
 * (I8: symmetric, absmax / 127 per block). scratch: n_in floats. */
void attn_linear_pack_rows(attn_linear *linear, int64_t first, int64_t count, attn_linear_row_fn row, void *arg,
                           float *scratch);

/* Row n of W as f32: out[n_in]. */
void attn_linear_row(const attn_linear *linear, int64_t row, float *out);

/* One product of a run: y[m] = act(W x[m] + bias) + residual[m]. */
typedef struct attn_linear_job {
    const attn_linear *linear;
    const float *x;
    int64_t ldx;
    float *y; /* must not overlap x or residual */
    int64_t ldy;
    const float *residual; /* NULL: none */
    int64_t ld_residual;
    int32_t act; /* ATTN_ACT_* */
} attn_linear_job;

/* Runs up to ATTN_LINEAR_MAX_JOBS products over the same number of rows, side by side. */
void attn_linear_run(const attn_worker *worker, const attn_linear_job *jobs, int32_t n_jobs, int64_t rows);

size_t attn_linear_scratch(int64_t rows, int64_t n_in);

static inline size_t attn_linear_tiles(int32_t n_threads)
{
    return (size_t)n_threads * ATTN_MATMUL_SCRATCH * sizeof(float);
}

#endif
