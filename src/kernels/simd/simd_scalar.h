/* simd_scalar.h - the vector vocabulary (simd_math.h lists it) with one lane, in plain C. The fallback everywhere, and
 * the meaning of each name. */
#ifndef ATTN_KERNELS_SIMD_SCALAR_H
#define ATTN_KERNELS_SIMD_SCALAR_H

#include "core/half.h"

#define V_N 1
typedef float v_f32;
typedef int32_t v_i32;
typedef bool v_mask;

/* clang-format off */
ATTN_INLINE v_f32 v_zero(void) { return 0; }
ATTN_INLINE v_f32 v_set1(float x) { return x; }
ATTN_INLINE v_f32 v_load(const float *p) { return *p; }
ATTN_INLINE v_f32 v_load_n(const float *p, int64_t n) { return n > 0 ? *p : 0; }
ATTN_INLINE void v_store(float *p, v_f32 x) { *p = x; }
ATTN_INLINE void v_store_n(float *p, v_f32 x, int64_t n) { if (n > 0) *p = x; }
ATTN_INLINE v_f32 v_load_bf16(const uint16_t *p) { return attn_bf16_to_f32(*p); }
ATTN_INLINE v_f32 v_load_bf16_even(const uint16_t *p) { return attn_bf16_to_f32(p[0]); }
ATTN_INLINE v_f32 v_load_bf16_odd(const uint16_t *p) { return attn_bf16_to_f32(p[1]); }
ATTN_INLINE v_f32 v_load_f16(const uint16_t *p) { return attn_f16_to_f32(*p); }
ATTN_INLINE v_f32 v_load_i8(const int8_t *p) { return (float)*p; }
ATTN_INLINE v_f32 v_load_u8(const uint8_t *p) { return (float)*p; }
ATTN_INLINE v_f32 v_load_bf16_n(const uint16_t *p, int64_t n) { return n > 0 ? attn_bf16_to_f32(*p) : 0; }
ATTN_INLINE v_f32 v_load_f16_n(const uint16_t *p, int64_t n) { return n > 0 ? attn_f16_to_f32(*p) : 0; }
ATTN_INLINE v_f32 v_load_i8_n(const int8_t *p, int64_t n) { return n > 0 ? (float)*p : 0; }
ATTN_INLINE v_f32 v_load_u8_n(const uint8_t *p, int64_t n) { return n > 0 ? (float)*p : 0; }
ATTN_INLINE void v_store_bf16(uint16_t *p, v_f32 x) { *p = attn_f32_to_bf16(x); }
ATTN_INLINE void v_store_f16(uint16_t *p, v_f32 x) { *p = attn_f32_to_f16(x); }
ATTN_INLINE void v_store_bf16_n(uint16_t *p, v_f32 x, int64_t n) { if (n > 0) *p = attn_f32_to_bf16(x); }
ATTN_INLINE void v_store_f16_n(uint16_t *p, v_f32 x, int64_t n) { if (n > 0) *p = attn_f32_to_f16(x); }

ATTN_INLINE v_f32 v_add(v_f32 a, v_f32 b) { return a + b; }
ATTN_INLINE v_f32 v_sub(v_f32 a, v_f32 b) { return a - b; }
ATTN_INLINE v_f32 v_mul(v_f32 a, v_f32 b) { return a * b; }
ATTN_INLINE v_f32 v_div(v_f32 a, v_f32 b) { return a / b; }
ATTN_INLINE v_f32 v_sqrt(v_f32 a) { return sqrtf(a); }
ATTN_INLINE v_f32 v_fma(v_f32 a, v_f32 b, v_f32 c) { return a * b + c; }
ATTN_INLINE v_f32 v_fnma(v_f32 a, v_f32 b, v_f32 c) { return c - a * b; }
ATTN_INLINE v_f32 v_max(v_f32 a, v_f32 b) { return a > b ? a : b; }
ATTN_INLINE v_f32 v_min(v_f32 a, v_f32 b) { return a < b ? a : b; }
ATTN_INLINE v_f32 v_abs(v_f32 a) { return fabsf(a); }
ATTN_INLINE v_f32 v_neg(v_f32 a) { return -a; }
/* |x| < 2^22 is rounded by the addition; larger values come only as they are. */
ATTN_INLINE v_f32 v_round(v_f32 a) { return fabsf(a) < 0x1p22f ? (a + 0x1.8p23f) - 0x1.8p23f : a; }
ATTN_INLINE float v_sum(v_f32 a) { return a; }
ATTN_INLINE v_f32 v_sum_rows(const v_f32 r[V_N]) { return r[0]; }
ATTN_INLINE float v_max_lanes(v_f32 a) { return a; }

ATTN_INLINE v_mask v_gt(v_f32 a, v_f32 b) { return a > b; }
ATTN_INLINE v_mask v_ge(v_f32 a, v_f32 b) { return a >= b; }
ATTN_INLINE v_mask v_eq(v_f32 a, v_f32 b) { return a == b; }
ATTN_INLINE v_f32 v_select(v_mask m, v_f32 a, v_f32 b) { return m ? a : b; }
ATTN_INLINE v_mask v_mask_and(v_mask a, v_mask b) { return a && b; }
ATTN_INLINE v_mask v_mask_or(v_mask a, v_mask b) { return a || b; }
ATTN_INLINE v_mask v_mask_not(v_mask a) { return !a; }
ATTN_INLINE bool v_mask_any(v_mask a) { return a; }
ATTN_INLINE bool v_mask_all(v_mask a) { return a; }
ATTN_INLINE v_mask v_mask_first(int64_t n) { return n > 0; }

ATTN_INLINE v_i32 v_i_set1(int32_t x) { return x; }
ATTN_INLINE v_i32 v_i_load(const int32_t *p) { return *p; }
ATTN_INLINE v_i32 v_i_add(v_i32 a, v_i32 b) { return a + b; }
ATTN_INLINE v_i32 v_i_and(v_i32 a, v_i32 b) { return a & b; }
ATTN_INLINE v_i32 v_i_shl4(v_i32 a) { return (int32_t)((uint32_t)a << 4); }
ATTN_INLINE v_i32 v_i_shr4(v_i32 a) { return (int32_t)((uint32_t)a >> 4); }
ATTN_INLINE v_mask v_i_gt(v_i32 a, v_i32 b) { return a > b; }
ATTN_INLINE v_f32 v_from_i(v_i32 a) { return (float)a; }
ATTN_INLINE v_i32 v_to_i(v_f32 a) { return (int32_t)a; } /* integral values that fit */
ATTN_INLINE v_f32 v_shl23(v_f32 a) { return attn_f32_from_bits(attn_f32_bits(a) << 23); }
ATTN_INLINE v_f32 v_swap(v_f32 a, const int width) { (void)width; return a; }
ATTN_INLINE v_f32 v_repeat(const float *p, const int n) { (void)n; return p[0]; }
/* clang-format on */

ATTN_INLINE v_f32 v_scale2(v_f32 p, v_f32 n)
{
    if (!(n == n))
        return p;
    int32_t half = (int32_t)n / 2, rest = (int32_t)n - half;
    return p * attn_f32_from_bits((uint32_t)(half + 127) << 23) * attn_f32_from_bits((uint32_t)(rest + 127) << 23);
}

ATTN_INLINE void v_transpose(v_f32 r[V_N])
{
    (void)r;
}

#include "kernels/simd/simd_math.h"

#endif
