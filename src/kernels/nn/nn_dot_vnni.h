/* nn_dot_vnni.h - the instruction that 8-bit products in AVX-512 are made of: vpdpbusd adds four products of unsigned and signed bytes
 * to each lane. For stubs, behind simd_avx512.h. */
#ifndef ATTN_KERNELS_NN_NN_DOT_VNNI_H
#define ATTN_KERNELS_NN_NN_DOT_VNNI_H

ATTN_INLINE __m512i dot_four(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm512_set1_epi32(four);
}

/* sum + four products. Not by the intrinsic: gcc 12 copies sums before and behind it, 14 times for 8 products. */
ATTN_INLINE __m512i dot_add_four(__m512i sum, __m512i bytes, __m512i whole)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(bytes), "v"(whole));
    return sum;
}

#endif
