/* simd_avx512.h - the vector vocabulary (simd_math.h lists it) for AVX-512 F, BW, DQ, VL: 16 lanes, 32 registers. */
#ifndef ATTN_KERNELS_SIMD_AVX512_H
#define ATTN_KERNELS_SIMD_AVX512_H

#define V_N 16
typedef __m512 v_f32;
typedef __m512i v_i32;
typedef __mmask16 v_mask;

/* clang-format off */
ATTN_INLINE v_mask v_mask_first(int64_t n)
{
    unsigned lanes = n <= 0 ? 0u : n >= 16 ? 0xffffu : (1u << n) - 1u;
    return (__mmask16)lanes;
}
ATTN_INLINE v_f32 v_zero(void) { return _mm512_setzero_ps(); }
ATTN_INLINE v_f32 v_set1(float x) { return _mm512_set1_ps(x); }
ATTN_INLINE v_f32 v_load(const float *p) { return _mm512_loadu_ps(p); }
ATTN_INLINE v_f32 v_load_n(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(v_mask_first(n), p); }
ATTN_INLINE void v_store(float *p, v_f32 x) { _mm512_storeu_ps(p, x); }
ATTN_INLINE void v_store_n(float *p, v_f32 x, int64_t n) { _mm512_mask_storeu_ps(p, v_mask_first(n), x); }

ATTN_INLINE v_f32 v_widen_bf16(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
ATTN_INLINE __m256i v_load_16x16(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
ATTN_INLINE __m256i v_load_16x16_n(const void *p, int64_t n) { return _mm256_maskz_loadu_epi16(v_mask_first(n), p); }
ATTN_INLINE __m128i v_load_8x16(const void *p) { return _mm_loadu_si128((const __m128i *)p); }
ATTN_INLINE __m128i v_load_8x16_n(const void *p, int64_t n) { return _mm_maskz_loadu_epi8(v_mask_first(n), p); }
ATTN_INLINE v_f32 v_load_bf16(const uint16_t *p) { return v_widen_bf16(v_load_16x16(p)); }
ATTN_INLINE v_f32 v_load_bf16_even(const uint16_t *p) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16)); }
ATTN_INLINE v_f32 v_load_bf16_odd(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(-0x10000)));
}
ATTN_INLINE v_f32 v_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(v_load_16x16(p)); }
ATTN_INLINE v_f32 v_load_i8(const int8_t *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v_load_8x16(p))); }
ATTN_INLINE v_f32 v_load_u8(const uint8_t *p) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(v_load_8x16(p))); }
ATTN_INLINE v_f32 v_load_bf16_n(const uint16_t *p, int64_t n) { return v_widen_bf16(v_load_16x16_n(p, n)); }
ATTN_INLINE v_f32 v_load_f16_n(const uint16_t *p, int64_t n) { return _mm512_cvtph_ps(v_load_16x16_n(p, n)); }
ATTN_INLINE v_f32 v_load_i8_n(const int8_t *p, int64_t n)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v_load_8x16_n(p, n)));
}
ATTN_INLINE v_f32 v_load_u8_n(const uint8_t *p, int64_t n)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(v_load_8x16_n(p, n)));
}

ATTN_INLINE __m256i v_narrow_bf16(v_f32 x)
{
    __m512i u = _mm512_castps_si512(x), high = _mm512_srli_epi32(u, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40)));
}
ATTN_INLINE __m256i v_narrow_f16(v_f32 x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
ATTN_INLINE void v_store_bf16(uint16_t *p, v_f32 x) { _mm256_storeu_si256((__m256i *)(void *)p, v_narrow_bf16(x)); }
ATTN_INLINE void v_store_f16(uint16_t *p, v_f32 x) { _mm256_storeu_si256((__m256i *)(void *)p, v_narrow_f16(x)); }
ATTN_INLINE void v_store_bf16_n(uint16_t *p, v_f32 x, int64_t n)
{
    _mm256_mask_storeu_epi16(p, v_mask_first(n), v_narrow_bf16(x));
}
ATTN_INLINE void v_store_f16_n(uint16_t *p, v_f32 x, int64_t n)
{
    _mm256_mask_storeu_epi16(p, v_mask_first(n), v_narrow_f16(x));
}

ATTN_INLINE v_f32 v_add(v_f32 a, v_f32 b) { return _mm512_add_ps(a, b); }
ATTN_INLINE v_f32 v_sub(v_f32 a, v_f32 b) { return _mm512_sub_ps(a, b); }
ATTN_INLINE v_f32 v_mul(v_f32 a, v_f32 b) { return _mm512_mul_ps(a, b); }
ATTN_INLINE v_f32 v_div(v_f32 a, v_f32 b) { return _mm512_div_ps(a, b); }
ATTN_INLINE v_f32 v_sqrt(v_f32 a) { return _mm512_sqrt_ps(a); }
ATTN_INLINE v_f32 v_fma(v_f32 a, v_f32 b, v_f32 c) { return _mm512_fmadd_ps(a, b, c); }
ATTN_INLINE v_f32 v_fnma(v_f32 a, v_f32 b, v_f32 c) { return _mm512_fnmadd_ps(a, b, c); }
ATTN_INLINE v_f32 v_max(v_f32 a, v_f32 b) { return _mm512_max_ps(a, b); }
ATTN_INLINE v_f32 v_min(v_f32 a, v_f32 b) { return _mm512_min_ps(a, b); }
ATTN_INLINE v_f32 v_abs(v_f32 a) { return _mm512_abs_ps(a); }
ATTN_INLINE v_f32 v_neg(v_f32 a) { return _mm512_xor_ps(_mm512_set1_ps(-0.0f), a); }
ATTN_INLINE v_f32 v_round(v_f32 a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
ATTN_INLINE float v_sum(v_f32 a)
{
    __m256 y = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
ATTN_INLINE v_f32 v_sum_pairs(v_f32 a, v_f32 b) { return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)); }
ATTN_INLINE v_f32 v_sum_fours(const v_f32 *r)
{
    __m512 a = v_sum_pairs(r[0], r[1]), b = v_sum_pairs(r[2], r[3]);
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
}
ATTN_INLINE v_f32 v_sum_four_fours(const v_f32 *f)
{
    __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(f[0], f[1], 0x44), _mm512_shuffle_f32x4(f[0], f[1], 0xee));
    __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(f[2], f[3], 0x44), _mm512_shuffle_f32x4(f[2], f[3], 0xee));
    return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
}
ATTN_INLINE v_f32 v_sum_rows(const v_f32 r[V_N])
{
    const v_f32 fours[4] = {v_sum_fours(r), v_sum_fours(r + 4), v_sum_fours(r + 8), v_sum_fours(r + 12)};
    return v_sum_four_fours(fours);
}
ATTN_INLINE float v_max_lanes(v_f32 a)
{
    __m256 y = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

ATTN_INLINE v_mask v_gt(v_f32 a, v_f32 b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
ATTN_INLINE v_mask v_ge(v_f32 a, v_f32 b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
ATTN_INLINE v_mask v_eq(v_f32 a, v_f32 b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
ATTN_INLINE v_f32 v_select(v_mask m, v_f32 a, v_f32 b) { return _mm512_mask_blend_ps(m, b, a); }
ATTN_INLINE v_mask v_mask_and(v_mask a, v_mask b) { return (__mmask16)(a & b); }
ATTN_INLINE v_mask v_mask_or(v_mask a, v_mask b) { return (__mmask16)(a | b); }
ATTN_INLINE v_mask v_mask_not(v_mask a) { return (__mmask16)(a ^ 0xffff); }
ATTN_INLINE bool v_mask_any(v_mask a) { return a != 0; }
ATTN_INLINE bool v_mask_all(v_mask a) { return a == 0xffff; }

ATTN_INLINE v_i32 v_i_set1(int32_t x) { return _mm512_set1_epi32(x); }
ATTN_INLINE v_i32 v_i_load(const int32_t *p) { return _mm512_loadu_si512(p); }
ATTN_INLINE v_i32 v_i_add(v_i32 a, v_i32 b) { return _mm512_add_epi32(a, b); }
ATTN_INLINE v_i32 v_i_and(v_i32 a, v_i32 b) { return _mm512_and_si512(a, b); }
ATTN_INLINE v_i32 v_i_shl4(v_i32 a) { return _mm512_slli_epi32(a, 4); }
ATTN_INLINE v_i32 v_i_shr4(v_i32 a) { return _mm512_srli_epi32(a, 4); }
ATTN_INLINE v_mask v_i_gt(v_i32 a, v_i32 b) { return _mm512_cmpgt_epi32_mask(a, b); }
ATTN_INLINE v_f32 v_from_i(v_i32 a) { return _mm512_cvtepi32_ps(a); }
ATTN_INLINE v_i32 v_to_i(v_f32 a) { return _mm512_cvtps_epi32(a); }
ATTN_INLINE v_f32 v_shl23(v_f32 a) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a), 23)); }
ATTN_INLINE v_f32 v_scale2(v_f32 p, v_f32 n) { return _mm512_scalef_ps(p, n); }
/* For v_exp2_soft: 2^(k/16) for k in the low 13 bits of each lane's bits, two's complement. The table's numbers have k subtracted
 * where the shift will put it. */
#define V_SIXTEENTHS
ATTN_INLINE v_f32 v_sixteenths(v_f32 t)
{
    const __m512i table = _mm512_setr_epi32(0x3f800000, 0x3f7daac3, 0x3f7b95c2, 0x3f79c3d3, 0x3f7837f0, 0x3f76f532, 0x3f75fed7,
                                            0x3f75583f, 0x3f7504f3, 0x3f7508a4, 0x3f75672a, 0x3f76248c, 0x3f7744fd, 0x3f78ccdf,
                                            0x3f7ac0c7, 0x3f7d257d);
    const __m512i bits = _mm512_castps_si512(t);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_permutexvar_epi32(bits, table), _mm512_slli_epi32(bits, 19)));
}
ATTN_INLINE v_mask v_not_below(v_f32 a, v_f32 b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); } /* true for NaN */
ATTN_INLINE v_f32 v_sub_where(v_mask m, v_f32 a, v_f32 b) { return _mm512_maskz_sub_ps(m, a, b); } /* elsewhere 0 */
ATTN_INLINE v_f32 v_fma_where(v_mask m, v_f32 a, v_f32 b, v_f32 c) { return _mm512_maskz_fmadd_ps(m, a, b, c); }
ATTN_INLINE v_f32 v_swap(v_f32 a, const int width)
{
    if (width >= 4)
        return width == 8 ? _mm512_shuffle_f32x4(a, a, 0x4e) : _mm512_shuffle_f32x4(a, a, 0xb1);
    return width == 2 ? _mm512_permute_ps(a, 0x4e) : _mm512_permute_ps(a, 0xb1);
}
ATTN_INLINE v_f32 v_repeat(const float *p, const int n)
{
    double pair;
    if (n == 1)
        return v_set1(p[0]);
    if (n == 4)
        return _mm512_broadcast_f32x4(_mm_loadu_ps(p));
    memcpy(&pair, p, sizeof pair);
    return _mm512_castpd_ps(_mm512_set1_pd(pair));
}
/* clang-format on */

ATTN_INLINE void v_transpose(v_f32 r[V_N])
{
    __m512 a[16], b[16];
    for (int k = 0; k < 8; k++) { /* pairs of rows interleaved, then fours: 4 x 4 blocks turned inside 128 bits */
        a[2 * k] = _mm512_unpacklo_ps(r[2 * k], r[2 * k + 1]);
        a[2 * k + 1] = _mm512_unpackhi_ps(r[2 * k], r[2 * k + 1]);
    }
    for (int k = 0; k < 4; k++) {
        b[4 * k] = _mm512_shuffle_ps(a[4 * k], a[4 * k + 2], 0x44);
        b[4 * k + 1] = _mm512_shuffle_ps(a[4 * k], a[4 * k + 2], 0xee);
        b[4 * k + 2] = _mm512_shuffle_ps(a[4 * k + 1], a[4 * k + 3], 0x44);
        b[4 * k + 3] = _mm512_shuffle_ps(a[4 * k + 1], a[4 * k + 3], 0xee);
    }
    for (int k = 0; k < 4; k++) { /* then the 4 x 4 matrix of 128-bit blocks */
        __m512 low01 = _mm512_shuffle_f32x4(b[k], b[k + 4], 0x44), high01 = _mm512_shuffle_f32x4(b[k], b[k + 4], 0xee);
        __m512 low23 = _mm512_shuffle_f32x4(b[k + 8], b[k + 12], 0x44);
        __m512 high23 = _mm512_shuffle_f32x4(b[k + 8], b[k + 12], 0xee);
        r[k] = _mm512_shuffle_f32x4(low01, low23, 0x88);
        r[k + 4] = _mm512_shuffle_f32x4(low01, low23, 0xdd);
        r[k + 8] = _mm512_shuffle_f32x4(high01, high23, 0x88);
        r[k + 12] = _mm512_shuffle_f32x4(high01, high23, 0xdd);
    }
}

#include "kernels/simd/simd_math.h"

#endif
