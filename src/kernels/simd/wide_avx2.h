/* wide_avx2.h - the vocabulary for doubles (wide_math.h lists it) for AVX2 and FMA: 4 lanes. */
#ifndef ATTN_KERNELS_SIMD_WIDE_AVX2_H
#define ATTN_KERNELS_SIMD_WIDE_AVX2_H

#define W_N 4
typedef __m256d w_f64;

/* clang-format off */
ATTN_INLINE w_f64 w_zero(void) { return _mm256_setzero_pd(); }
ATTN_INLINE w_f64 w_set1(double x) { return _mm256_set1_pd(x); }
ATTN_INLINE w_f64 w_load(const double *p) { return _mm256_loadu_pd(p); }
ATTN_INLINE w_f64 w_load_f32(const float *p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
ATTN_INLINE void w_store(double *p, w_f64 x) { _mm256_storeu_pd(p, x); }
ATTN_INLINE w_f64 w_add(w_f64 a, w_f64 b) { return _mm256_add_pd(a, b); }
ATTN_INLINE w_f64 w_sub(w_f64 a, w_f64 b) { return _mm256_sub_pd(a, b); }
ATTN_INLINE w_f64 w_mul(w_f64 a, w_f64 b) { return _mm256_mul_pd(a, b); }
ATTN_INLINE w_f64 w_fma(w_f64 a, w_f64 b, w_f64 c) { return _mm256_fmadd_pd(a, b, c); }
ATTN_INLINE w_f64 w_max(w_f64 a, w_f64 b) { return _mm256_max_pd(a, b); }
ATTN_INLINE w_f64 w_min(w_f64 a, w_f64 b) { return _mm256_min_pd(a, b); }
ATTN_INLINE w_f64 w_round(w_f64 a) { return _mm256_round_pd(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* clang-format on */

ATTN_INLINE double w_sum(w_f64 a)
{
    __m128d x = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(x, _mm_unpackhi_pd(x, x)));
}

ATTN_INLINE w_f64 w_scale2(w_f64 p, w_f64 n)
{
    const __m128i bias = _mm_set1_epi32(1023);
    __m128i whole = _mm256_cvtpd_epi32(n), half = _mm_srai_epi32(whole, 1), rest = _mm_sub_epi32(whole, half);
    __m256i a = _mm256_slli_epi64(_mm256_cvtepi32_epi64(_mm_add_epi32(half, bias)), 52);
    __m256i b = _mm256_slli_epi64(_mm256_cvtepi32_epi64(_mm_add_epi32(rest, bias)), 52);
    return _mm256_mul_pd(_mm256_mul_pd(p, _mm256_castsi256_pd(a)), _mm256_castsi256_pd(b));
}

#include "kernels/simd/wide_math.h"

#endif
