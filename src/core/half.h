/* half.h - bf16 and f16 as numbers: conversion to and from f32, rounding to nearest even.
 * Portable and exact; kernels have vector versions of the same. */
#ifndef ATTN_CORE_HALF_H
#define ATTN_CORE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t attn_f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float attn_f32_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float attn_bf16_to_f32(uint16_t h)
{
    return attn_f32_from_bits((uint32_t)h << 16);
}

static inline uint16_t attn_f32_to_bf16(float x)
{
    uint32_t u = attn_f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) /* NaN stays NaN, made quiet */
        return (uint16_t)((u >> 16) | 0x0040u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static inline float attn_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t magnitude = h & 0x7fffu;
    if (magnitude >= 0x7c00u) /* infinity, NaN */
        return attn_f32_from_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    if (magnitude >= 0x0400u) /* normal: move the exponent from bias 15 to bias 127 */
        return attn_f32_from_bits(sign | ((magnitude << 13) + (112u << 23)));
    /* subnormal: magnitude * 2^-24, exact in f32 */
    float value = (float)magnitude * 0x1p-24f;
    return sign ? -value : value;
}

static inline uint16_t attn_f32_to_f16(float x)
{
    uint32_t u = attn_f32_bits(x);
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
    uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) { /* normal: round the lowest 13 bits away, a carry moves the exponent */
        uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
        return (uint16_t)(sign | ((rounded - (112u << 23)) >> 13));
    }
    if (magnitude < 0x33000000u) /* below half the smallest subnormal */
        return sign;
    /* subnormal: adding 0.5 lines the value up with 2^-24 in the low bits of the sum, rounded by the FPU */
    float aligned = attn_f32_from_bits(magnitude) + 0.5f;
    return (uint16_t)(sign | (attn_f32_bits(aligned) - attn_f32_bits(0.5f)));
}

/* Double to 16 bits in one rounding (a detour over f32 could round twice). */
uint16_t attn_f64_to_f16(double x);
uint16_t attn_f64_to_bf16(double x);

#endif
