/* pairs_avx512bf16.h - vectors of pairs of bf16 numbers beside simd_avx512.h: a v_pair has V_N slots of two numbers, the first
 * in the low half. Arrays of slots are passed as the floats that they lie in place of. */
#ifndef ATTN_KERNELS_SIMD_PAIRS_AVX512BF16_H
#define ATTN_KERNELS_SIMD_PAIRS_AVX512BF16_H

typedef __m512i v_pair;
typedef v_pair v_pair_one; /* one slot that meets a whole vector: here in every lane */

/* clang-format off */
ATTN_INLINE v_pair v_pair_zero(void) { return _mm512_setzero_si512(); }
ATTN_INLINE v_f32 v_pair_as_f32(v_pair x) { return _mm512_castsi512_ps(x); } /* the same bits */
ATTN_INLINE v_pair v_pair_set1(const void *pair)
{
    int32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return _mm512_set1_epi32(bits);
}
ATTN_INLINE v_pair v_pair_of_f32(v_f32 x) { return _mm512_castps_si512(x); }
ATTN_INLINE v_pair_one v_pair_one_at(const void *pair) { return v_pair_set1(pair); }
ATTN_INLINE v_pair v_pair_load(const float *slots) { return _mm512_loadu_si512(slots); }
ATTN_INLINE void v_pair_store(float *slots, v_pair x) { _mm512_storeu_si512(slots, x); }

/* c + a.second * b.second, then + a.first * b.first; each sum rounded once, numbers below 2^-126 count as 0. */
ATTN_INLINE v_f32 v_pair_dot(v_pair a, v_pair b, v_f32 c) { return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b); }

ATTN_INLINE v_f32 v_pair_dot_one(v_pair_one a, v_pair b, v_f32 c) { return v_pair_dot(a, b, c); }

/* One number, rounded to nearest even; and two. */
ATTN_INLINE uint32_t v_pair_bf16(float x)
{
    return (uint32_t)_mm256_cvtsi256_si32((__m256i)_mm512_cvtneps_pbh(v_set1(x))) & 0xffffu;
}
ATTN_INLINE v_pair v_pair_narrow(v_f32 first, v_f32 second)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5,
                                           20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(second, first));
}
/* The same one after the other: slots of the first in the low half of the vector. */
ATTN_INLINE v_pair v_pair_narrow_row(v_f32 low, v_f32 high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }
/* Numbers 0 .. V_N - 1 of two rows side by side, and numbers V_N .. 2 * V_N - 1. */
ATTN_INLINE v_pair v_pair_zip_low(v_pair a, v_pair b)
{
    const __m512i order = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5,
                                           36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    return _mm512_permutex2var_epi16(a, order, b);
}
ATTN_INLINE v_pair v_pair_zip_high(v_pair a, v_pair b)
{
    const __m512i order = _mm512_set_epi16(63, 31, 62, 30, 61, 29, 60, 28, 59, 27, 58, 26, 57, 25, 56, 24, 55, 23, 54, 22, 53, 21,
                                           52, 20, 51, 19, 50, 18, 49, 17, 48, 16);
    return _mm512_permutex2var_epi16(a, order, b);
}
/* The first n < 2 * V_N numbers of a row, two in each slot; the rest is 0, and no other byte is read. */
ATTN_INLINE v_pair v_pair_load_n(const uint16_t *row, int64_t n)
{
    uint32_t numbers = n <= 0 ? 0u : n >= 32 ? 0xffffffffu : (1u << n) - 1u;
    return _mm512_maskz_loadu_epi16(numbers, row);
}
/* Numbers 0 .. n - 1 of two rows side by side; the rest is 0. */
ATTN_INLINE v_pair v_pair_join_n(const uint16_t *first, const uint16_t *second, int64_t n)
{
    __m512i low = _mm512_cvtepu16_epi32(v_load_16x16_n(first, n)), high = _mm512_cvtepu16_epi32(v_load_16x16_n(second, n));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}
/* The larger magnitude so far of each number, NaN above infinity; and whether all of them are finite. */
ATTN_INLINE v_pair v_pair_largest(v_pair so_far, v_pair x)
{
    return _mm512_max_epu16(so_far, _mm512_and_si512(x, _mm512_set1_epi16(0x7fff)));
}
ATTN_INLINE bool v_pair_finite(v_pair largest)
{
    return _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(0x7f80)) == 0;
}
/* x with 0 where p holds the number `marked`. */
ATTN_INLINE v_pair v_pair_without(v_pair x, v_pair p, uint16_t marked)
{
    return _mm512_maskz_mov_epi16(_mm512_cmpneq_epi16_mask(p, _mm512_set1_epi16((short)marked)), x);
}
/* clang-format on */

#endif
