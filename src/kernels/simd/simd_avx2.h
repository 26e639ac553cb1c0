/* simd_avx2.h - the vector vocabulary (simd_math.h lists it) for AVX2, FMA and F16C: 8 lanes, 16 registers. */
#ifndef ATTN_KERNELS_SIMD_AVX2_H
#define ATTN_KERNELS_SIMD_AVX2_H

#define V_N 8
typedef __m256 v_f32;
typedef __m256i v_i32;
typedef __m256 v_mask; /* all bits of a lane set, or none */

ATTN_INLINE __m256i v_lanes_below(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)(n > 8 ? 8 : n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* clang-format off */
ATTN_INLINE v_f32 v_zero(void) { return _mm256_setzero_ps(); }
ATTN_INLINE v_f32 v_set1(float x) { return _mm256_set1_ps(x); }
ATTN_INLINE v_f32 v_load(const float *p) { return _mm256_loadu_ps(p); }
ATTN_INLINE v_f32 v_load_n(const float *p, int64_t n) { return _mm256_maskload_ps(p, v_lanes_below(n)); }
ATTN_INLINE void v_store(float *p, v_f32 x) { _mm256_storeu_ps(p, x); }
ATTN_INLINE void v_store_n(float *p, v_f32 x, int64_t n) { _mm256_maskstore_ps(p, v_lanes_below(n), x); }

ATTN_INLINE v_f32 v_widen_bf16(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
ATTN_INLINE __m128i v_load_16x8(const void *p) { return _mm_loadu_si128((const __m128i *)p); }
ATTN_INLINE __m128i v_load_16x8_n(const uint16_t *p, int64_t n)
{
    uint16_t lanes[8] = {0};
    for (int64_t k = 0; k < n && k < 8; k++)
        lanes[k] = p[k];
    return v_load_16x8(lanes);
}
ATTN_INLINE __m128i v_load_8x8_n(const void *p, int64_t n)
{
    uint8_t lanes[8] = {0};
    for (int64_t k = 0; k < n && k < 8; k++)
        lanes[k] = ((const uint8_t *)p)[k];
    return _mm_loadl_epi64((const __m128i *)(const void *)lanes);
}
ATTN_INLINE v_f32 v_load_bf16(const uint16_t *p) { return v_widen_bf16(v_load_16x8(p)); }
ATTN_INLINE v_f32 v_load_bf16_even(const uint16_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p), 16));
}
ATTN_INLINE v_f32 v_load_bf16_odd(const uint16_t *p)
{
    __m256i pairs = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-0x10000)));
}
ATTN_INLINE v_f32 v_load_f16(const uint16_t *p) { return _mm256_cvtph_ps(v_load_16x8(p)); }
ATTN_INLINE v_f32 v_load_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
ATTN_INLINE v_f32 v_load_u8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
ATTN_INLINE v_f32 v_load_bf16_n(const uint16_t *p, int64_t n) { return v_widen_bf16(v_load_16x8_n(p, n)); }
ATTN_INLINE v_f32 v_load_f16_n(const uint16_t *p, int64_t n) { return _mm256_cvtph_ps(v_load_16x8_n(p, n)); }
ATTN_INLINE v_f32 v_load_i8_n(const int8_t *p, int64_t n)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v_load_8x8_n(p, n)));
}
ATTN_INLINE v_f32 v_load_u8_n(const uint8_t *p, int64_t n)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v_load_8x8_n(p, n)));
}

ATTN_INLINE __m128i v_narrow_bf16(v_f32 x)
{
    __m256i u = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i words = _mm256_blendv_epi8(rounded, quiet, nan);
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
    return _mm256_castsi256_si128(packed);
}
ATTN_INLINE void v_store_16x8_n(uint16_t *p, __m128i x, int64_t n)
{
    uint16_t lanes[8];
    _mm_storeu_si128((__m128i *)(void *)lanes, x);
    for (int64_t k = 0; k < n && k < 8; k++)
        p[k] = lanes[k];
}
ATTN_INLINE void v_store_bf16(uint16_t *p, v_f32 x) { _mm_storeu_si128((__m128i *)(void *)p, v_narrow_bf16(x)); }
ATTN_INLINE void v_store_f16(uint16_t *p, v_f32 x)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
ATTN_INLINE void v_store_bf16_n(uint16_t *p, v_f32 x, int64_t n) { v_store_16x8_n(p, v_narrow_bf16(x), n); }
ATTN_INLINE void v_store_f16_n(uint16_t *p, v_f32 x, int64_t n)
{
    v_store_16x8_n(p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT), n);
}

ATTN_INLINE v_f32 v_add(v_f32 a, v_f32 b) { return _mm256_add_ps(a, b); }
ATTN_INLINE v_f32 v_sub(v_f32 a, v_f32 b) { return _mm256_sub_ps(a, b); }
ATTN_INLINE v_f32 v_mul(v_f32 a, v_f32 b) { return _mm256_mul_ps(a, b); }
ATTN_INLINE v_f32 v_div(v_f32 a, v_f32 b) { return _mm256_div_ps(a, b); }
ATTN_INLINE v_f32 v_sqrt(v_f32 a) { return _mm256_sqrt_ps(a); }
ATTN_INLINE v_f32 v_fma(v_f32 a, v_f32 b, v_f32 c) { return _mm256_fmadd_ps(a, b, c); }
ATTN_INLINE v_f32 v_fnma(v_f32 a, v_f32 b, v_f32 c) { return _mm256_fnmadd_ps(a, b, c); }
ATTN_INLINE v_f32 v_max(v_f32 a, v_f32 b) { return _mm256_max_ps(a, b); }
ATTN_INLINE v_f32 v_min(v_f32 a, v_f32 b) { return _mm256_min_ps(a, b); }
ATTN_INLINE v_f32 v_abs(v_f32 a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
ATTN_INLINE v_f32 v_neg(v_f32 a) { return _mm256_xor_ps(_mm256_set1_ps(-0.0f), a); }
ATTN_INLINE v_f32 v_round(v_f32 a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
ATTN_INLINE float v_sum(v_f32 a)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
ATTN_INLINE v_f32 v_sum_rows(const v_f32 r[V_N])
{
    __m256 low = _mm256_hadd_ps(_mm256_hadd_ps(r[0], r[1]), _mm256_hadd_ps(r[2], r[3]));
    __m256 high = _mm256_hadd_ps(_mm256_hadd_ps(r[4], r[5]), _mm256_hadd_ps(r[6], r[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
}
ATTN_INLINE float v_max_lanes(v_f32 a)
{
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

ATTN_INLINE v_mask v_gt(v_f32 a, v_f32 b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
ATTN_INLINE v_mask v_ge(v_f32 a, v_f32 b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }
ATTN_INLINE v_mask v_eq(v_f32 a, v_f32 b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
ATTN_INLINE v_f32 v_select(v_mask m, v_f32 a, v_f32 b) { return _mm256_blendv_ps(b, a, m); }
ATTN_INLINE v_mask v_mask_and(v_mask a, v_mask b) { return _mm256_and_ps(a, b); }
ATTN_INLINE v_mask v_mask_or(v_mask a, v_mask b) { return _mm256_or_ps(a, b); }
ATTN_INLINE v_mask v_mask_not(v_mask a)
{
    return _mm256_xor_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(-1)));
}
ATTN_INLINE bool v_mask_any(v_mask a) { return _mm256_movemask_ps(a) != 0; }
ATTN_INLINE bool v_mask_all(v_mask a) { return _mm256_movemask_ps(a) == 0xff; }
ATTN_INLINE v_mask v_mask_first(int64_t n) { return _mm256_castsi256_ps(v_lanes_below(n)); }

ATTN_INLINE v_i32 v_i_set1(int32_t x) { return _mm256_set1_epi32(x); }
ATTN_INLINE v_i32 v_i_load(const int32_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
ATTN_INLINE v_i32 v_i_add(v_i32 a, v_i32 b) { return _mm256_add_epi32(a, b); }
ATTN_INLINE v_i32 v_i_and(v_i32 a, v_i32 b) { return _mm256_and_si256(a, b); }
ATTN_INLINE v_i32 v_i_shl4(v_i32 a) { return _mm256_slli_epi32(a, 4); }
ATTN_INLINE v_i32 v_i_shr4(v_i32 a) { return _mm256_srli_epi32(a, 4); }
ATTN_INLINE v_mask v_i_gt(v_i32 a, v_i32 b) { return _mm256_castsi256_ps(_mm256_cmpgt_epi32(a, b)); }
ATTN_INLINE v_f32 v_from_i(v_i32 a) { return _mm256_cvtepi32_ps(a); }
ATTN_INLINE v_i32 v_to_i(v_f32 a) { return _mm256_cvtps_epi32(a); }
ATTN_INLINE v_f32 v_shl23(v_f32 a) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a), 23)); }
ATTN_INLINE v_f32 v_swap(v_f32 a, const int width)
{
    return width == 4 ? _mm256_permute2f128_ps(a, a, 1) : width == 2 ? _mm256_permute_ps(a, 0x4e) : _mm256_permute_ps(a, 0xb1);
}
ATTN_INLINE v_f32 v_repeat(const float *p, const int n)
{
    double pair;
    if (n == 1)
        return v_set1(p[0]);
    if (n == 4) {
        __m128 x = _mm_loadu_ps(p);
        return _mm256_set_m128(x, x);
    }
    memcpy(&pair, p, sizeof pair);
    return _mm256_castpd_ps(_mm256_set1_pd(pair));
}
/* clang-format on */

ATTN_INLINE v_f32 v_scale2(v_f32 p, v_f32 n)
{
    const __m256i bias = _mm256_set1_epi32(127);
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), rest = _mm256_sub_epi32(whole, half);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}

ATTN_INLINE void v_transpose(v_f32 r[V_N])
{
    __m256 a[8], b[8];
    for (int k = 0; k < 4; k++) {
        a[2 * k] = _mm256_unpacklo_ps(r[2 * k], r[2 * k + 1]);
        a[2 * k + 1] = _mm256_unpackhi_ps(r[2 * k], r[2 * k + 1]);
    }
    for (int k = 0; k < 2; k++) {
        b[4 * k] = _mm256_shuffle_ps(a[4 * k], a[4 * k + 2], 0x44);
        b[4 * k + 1] = _mm256_shuffle_ps(a[4 * k], a[4 * k + 2], 0xee);
        b[4 * k + 2] = _mm256_shuffle_ps(a[4 * k + 1], a[4 * k + 3], 0x44);
        b[4 * k + 3] = _mm256_shuffle_ps(a[4 * k + 1], a[4 * k + 3], 0xee);
    }
    for (int k = 0; k < 4; k++) {
        r[k] = _mm256_permute2f128_ps(b[k], b[k + 4], 0x20);
        r[k + 4] = _mm256_permute2f128_ps(b[k], b[k + 4], 0x31);
    }
}

#include "kernels/simd/simd_math.h"

#endif
