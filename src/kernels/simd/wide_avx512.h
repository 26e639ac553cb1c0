/* wide_avx512.h - the vocabulary for doubles (wide_math.h lists it) for AVX-512 F and DQ: 8 lanes. */
#ifndef ATTN_KERNELS_SIMD_WIDE_AVX512_H
#define ATTN_KERNELS_SIMD_WIDE_AVX512_H

#define W_N 8
typedef __m512d w_f64;

/* clang-format off */
ATTN_INLINE w_f64 w_zero(void) { return _mm512_setzero_pd(); }
ATTN_INLINE w_f64 w_set1(double x) { return _mm512_set1_pd(x); }
ATTN_INLINE w_f64 w_load(const double *p) { return _mm512_loadu_pd(p); }
ATTN_INLINE w_f64 w_load_f32(const float *p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
ATTN_INLINE void w_store(double *p, w_f64 x) { _mm512_storeu_pd(p, x); }
ATTN_INLINE w_f64 w_add(w_f64 a, w_f64 b) { return _mm512_add_pd(a, b); }
ATTN_INLINE w_f64 w_sub(w_f64 a, w_f64 b) { return _mm512_sub_pd(a, b); }
ATTN_INLINE w_f64 w_mul(w_f64 a, w_f64 b) { return _mm512_mul_pd(a, b); }
ATTN_INLINE w_f64 w_fma(w_f64 a, w_f64 b, w_f64 c) { return _mm512_fmadd_pd(a, b, c); }
ATTN_INLINE w_f64 w_max(w_f64 a, w_f64 b) { return _mm512_max_pd(a, b); }
ATTN_INLINE w_f64 w_min(w_f64 a, w_f64 b) { return _mm512_min_pd(a, b); }
ATTN_INLINE w_f64 w_round(w_f64 a) { return _mm512_roundscale_pd(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
ATTN_INLINE w_f64 w_scale2(w_f64 p, w_f64 n) { return _mm512_scalef_pd(p, n); }
/* clang-format on */

ATTN_INLINE double w_sum(w_f64 a)
{
    __m256d y = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    __m128d x = _mm_add_pd(_mm256_castpd256_pd128(y), _mm256_extractf128_pd(y, 1));
    return _mm_cvtsd_f64(_mm_add_sd(x, _mm_unpackhi_pd(x, x)));
}

#include "kernels/simd/wide_math.h"

#endif
