/* wide_neon.h - the vocabulary for doubles (wide_math.h lists it) for Advanced SIMD: 2 lanes. */
#ifndef ATTN_KERNELS_SIMD_WIDE_NEON_H
#define ATTN_KERNELS_SIMD_WIDE_NEON_H

#define W_N 2
typedef float64x2_t w_f64;

/* clang-format off */
ATTN_INLINE w_f64 w_zero(void) { return vdupq_n_f64(0); }
ATTN_INLINE w_f64 w_set1(double x) { return vdupq_n_f64(x); }
ATTN_INLINE w_f64 w_load(const double *p) { return vld1q_f64(p); }
ATTN_INLINE w_f64 w_load_f32(const float *p) { return vcvt_f64_f32(vld1_f32(p)); }
ATTN_INLINE void w_store(double *p, w_f64 x) { vst1q_f64(p, x); }
ATTN_INLINE w_f64 w_add(w_f64 a, w_f64 b) { return vaddq_f64(a, b); }
ATTN_INLINE w_f64 w_sub(w_f64 a, w_f64 b) { return vsubq_f64(a, b); }
ATTN_INLINE w_f64 w_mul(w_f64 a, w_f64 b) { return vmulq_f64(a, b); }
ATTN_INLINE w_f64 w_fma(w_f64 a, w_f64 b, w_f64 c) { return vfmaq_f64(c, a, b); }
ATTN_INLINE w_f64 w_max(w_f64 a, w_f64 b) { return vbslq_f64(vcgtq_f64(a, b), a, b); }
ATTN_INLINE w_f64 w_min(w_f64 a, w_f64 b) { return vbslq_f64(vcltq_f64(a, b), a, b); }
ATTN_INLINE w_f64 w_round(w_f64 a) { return vrndnq_f64(a); }
ATTN_INLINE double w_sum(w_f64 a) { return vaddvq_f64(a); }
/* clang-format on */

ATTN_INLINE w_f64 w_scale2(w_f64 p, w_f64 n)
{
    const int64x2_t bias = vdupq_n_s64(1023);
    int64x2_t whole = vcvtq_s64_f64(n), half = vshrq_n_s64(whole, 1), rest = vsubq_s64(whole, half);
    p = vmulq_f64(p, vreinterpretq_f64_s64(vshlq_n_s64(vaddq_s64(half, bias), 52)));
    return vmulq_f64(p, vreinterpretq_f64_s64(vshlq_n_s64(vaddq_s64(rest, bias), 52)));
}

#include "kernels/simd/wide_math.h"

#endif
