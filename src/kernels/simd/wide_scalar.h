/* wide_scalar.h - the vocabulary for doubles (wide_math.h lists it) in plain C: one lane. */
#ifndef ATTN_KERNELS_SIMD_WIDE_SCALAR_H
#define ATTN_KERNELS_SIMD_WIDE_SCALAR_H

#define W_N 1
typedef double w_f64;

/* clang-format off */
ATTN_INLINE w_f64 w_zero(void) { return 0; }
ATTN_INLINE w_f64 w_set1(double x) { return x; }
ATTN_INLINE w_f64 w_load(const double *p) { return *p; }
ATTN_INLINE w_f64 w_load_f32(const float *p) { return (double)*p; }
ATTN_INLINE void w_store(double *p, w_f64 x) { *p = x; }
ATTN_INLINE w_f64 w_add(w_f64 a, w_f64 b) { return a + b; }
ATTN_INLINE w_f64 w_sub(w_f64 a, w_f64 b) { return a - b; }
ATTN_INLINE w_f64 w_mul(w_f64 a, w_f64 b) { return a * b; }
ATTN_INLINE w_f64 w_fma(w_f64 a, w_f64 b, w_f64 c) { return a * b + c; }
ATTN_INLINE w_f64 w_max(w_f64 a, w_f64 b) { return a > b ? a : b; }
ATTN_INLINE w_f64 w_min(w_f64 a, w_f64 b) { return a < b ? a : b; }
ATTN_INLINE double w_sum(w_f64 a) { return a; }
/* clang-format on */

/* Adding 1.5 * 2^52 leaves no bits for a fraction. */
ATTN_INLINE w_f64 w_round(w_f64 a)
{
    return (a + 0x1.8p52) - 0x1.8p52;
}

/* In two steps, so that the factor of a subnormal result is a normal number. */
ATTN_INLINE w_f64 w_scale2(w_f64 p, w_f64 n)
{
    if (n != n)
        return n;
    int64_t whole = (int64_t)n, half = whole >= 0 ? whole / 2 : -((1 - whole) / 2);
    uint64_t first = (uint64_t)(half + 1023) << 52, second = (uint64_t)(whole - half + 1023) << 52;
    double a, b;
    memcpy(&a, &first, sizeof a);
    memcpy(&b, &second, sizeof b);
    return p * a * b;
}

#include "kernels/simd/wide_math.h"

#endif
