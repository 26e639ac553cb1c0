/* simd_neon.h - the vector vocabulary (simd_math.h lists it) for Advanced SIMD: 4 lanes, 32 registers. */
#ifndef ATTN_KERNELS_SIMD_NEON_H
#define ATTN_KERNELS_SIMD_NEON_H

#define V_N 4
typedef float32x4_t v_f32;
typedef int32x4_t v_i32;
typedef uint32x4_t v_mask;

ATTN_INLINE v_mask v_mask_first(int64_t n)
{
    const int32_t lane[4] = {0, 1, 2, 3};
    return vcgtq_s32(vdupq_n_s32((int32_t)(n > 4 ? 4 : n)), vld1q_s32(lane));
}

/* clang-format off */
ATTN_INLINE v_f32 v_zero(void) { return vdupq_n_f32(0); }
ATTN_INLINE v_f32 v_set1(float x) { return vdupq_n_f32(x); }
ATTN_INLINE v_f32 v_load(const float *p) { return vld1q_f32(p); }
ATTN_INLINE v_f32 v_load_n(const float *p, int64_t n)
{
    float lanes[4] = {0};
    for (int64_t k = 0; k < n && k < 4; k++)
        lanes[k] = p[k];
    return vld1q_f32(lanes);
}
ATTN_INLINE void v_store(float *p, v_f32 x) { vst1q_f32(p, x); }
ATTN_INLINE void v_store_n(float *p, v_f32 x, int64_t n)
{
    float lanes[4];
    vst1q_f32(lanes, x);
    for (int64_t k = 0; k < n && k < 4; k++)
        p[k] = lanes[k];
}

ATTN_INLINE v_f32 v_widen_bf16(uint16x4_t h) { return vreinterpretq_f32_u32(vshll_n_u16(h, 16)); }
ATTN_INLINE v_f32 v_widen_f16(uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }
ATTN_INLINE uint16x4_t v_load_16x4_n(const uint16_t *p, int64_t n)
{
    uint16_t lanes[4] = {0};
    for (int64_t k = 0; k < n && k < 4; k++)
        lanes[k] = p[k];
    return vld1_u16(lanes);
}
ATTN_INLINE v_f32 v_load_bf16(const uint16_t *p) { return v_widen_bf16(vld1_u16(p)); }
ATTN_INLINE v_f32 v_load_bf16_even(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u16(vld1q_u16(p)), 16));
}
ATTN_INLINE v_f32 v_load_bf16_odd(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u16(vld1q_u16(p)), vdupq_n_u32(0xffff0000u)));
}
ATTN_INLINE v_f32 v_load_f16(const uint16_t *p) { return v_widen_f16(vld1_u16(p)); }
ATTN_INLINE v_f32 v_load_bf16_n(const uint16_t *p, int64_t n) { return v_widen_bf16(v_load_16x4_n(p, n)); }
ATTN_INLINE v_f32 v_load_f16_n(const uint16_t *p, int64_t n) { return v_widen_f16(v_load_16x4_n(p, n)); }
ATTN_INLINE v_f32 v_load_i8_n(const int8_t *p, int64_t n)
{
    int32_t lanes[4] = {0};
    for (int64_t k = 0; k < n && k < 4; k++)
        lanes[k] = p[k];
    return vcvtq_f32_s32(vld1q_s32(lanes));
}
ATTN_INLINE v_f32 v_load_u8_n(const uint8_t *p, int64_t n)
{
    int32_t lanes[4] = {0};
    for (int64_t k = 0; k < n && k < 4; k++)
        lanes[k] = p[k];
    return vcvtq_f32_s32(vld1q_s32(lanes));
}
ATTN_INLINE v_f32 v_load_i8(const int8_t *p)
{
    int32_t word;
    memcpy(&word, p, sizeof word);
    int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(word)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}
ATTN_INLINE v_f32 v_load_u8(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(word)));
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide)));
}

ATTN_INLINE uint16x4_t v_narrow_bf16(v_f32 x)
{
    uint32x4_t u = vreinterpretq_u32_f32(x), high = vshrq_n_u32(u, 16);
    uint32x4_t odd = vandq_u32(high, vdupq_n_u32(1));
    uint32x4_t rounded = vshrq_n_u32(vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
    return vmovn_u32(vbslq_u32(vceqq_f32(x, x), rounded, vorrq_u32(high, vdupq_n_u32(0x40))));
}
ATTN_INLINE uint16x4_t v_narrow_f16(v_f32 x) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }
ATTN_INLINE void v_store_16x4_n(uint16_t *p, uint16x4_t x, int64_t n)
{
    uint16_t lanes[4];
    vst1_u16(lanes, x);
    for (int64_t k = 0; k < n && k < 4; k++)
        p[k] = lanes[k];
}
ATTN_INLINE void v_store_bf16(uint16_t *p, v_f32 x) { vst1_u16(p, v_narrow_bf16(x)); }
ATTN_INLINE void v_store_f16(uint16_t *p, v_f32 x) { vst1_u16(p, v_narrow_f16(x)); }
ATTN_INLINE void v_store_bf16_n(uint16_t *p, v_f32 x, int64_t n) { v_store_16x4_n(p, v_narrow_bf16(x), n); }
ATTN_INLINE void v_store_f16_n(uint16_t *p, v_f32 x, int64_t n) { v_store_16x4_n(p, v_narrow_f16(x), n); }

ATTN_INLINE v_f32 v_add(v_f32 a, v_f32 b) { return vaddq_f32(a, b); }
ATTN_INLINE v_f32 v_sub(v_f32 a, v_f32 b) { return vsubq_f32(a, b); }
ATTN_INLINE v_f32 v_mul(v_f32 a, v_f32 b) { return vmulq_f32(a, b); }
ATTN_INLINE v_f32 v_div(v_f32 a, v_f32 b) { return vdivq_f32(a, b); }
ATTN_INLINE v_f32 v_sqrt(v_f32 a) { return vsqrtq_f32(a); }
ATTN_INLINE v_f32 v_fma(v_f32 a, v_f32 b, v_f32 c) { return vfmaq_f32(c, a, b); }
ATTN_INLINE v_f32 v_fnma(v_f32 a, v_f32 b, v_f32 c) { return vfmsq_f32(c, a, b); }
ATTN_INLINE v_f32 v_max(v_f32 a, v_f32 b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
ATTN_INLINE v_f32 v_min(v_f32 a, v_f32 b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
ATTN_INLINE v_f32 v_abs(v_f32 a) { return vabsq_f32(a); }
ATTN_INLINE v_f32 v_neg(v_f32 a) { return vnegq_f32(a); }
ATTN_INLINE v_f32 v_round(v_f32 a) { return vrndnq_f32(a); }
ATTN_INLINE float v_sum(v_f32 a)
{
    float32x2_t x = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(x, 0) + vget_lane_f32(x, 1);
}
ATTN_INLINE v_f32 v_sum_rows(const v_f32 r[V_N]) { return vpaddq_f32(vpaddq_f32(r[0], r[1]), vpaddq_f32(r[2], r[3])); }
ATTN_INLINE float v_max_lanes(v_f32 a) { return vmaxnmvq_f32(a); }

ATTN_INLINE v_mask v_gt(v_f32 a, v_f32 b) { return vcgtq_f32(a, b); }
ATTN_INLINE v_mask v_ge(v_f32 a, v_f32 b) { return vcgeq_f32(a, b); }
ATTN_INLINE v_mask v_eq(v_f32 a, v_f32 b) { return vceqq_f32(a, b); }
ATTN_INLINE v_f32 v_select(v_mask m, v_f32 a, v_f32 b) { return vbslq_f32(m, a, b); }
ATTN_INLINE v_mask v_mask_and(v_mask a, v_mask b) { return vandq_u32(a, b); }
ATTN_INLINE v_mask v_mask_or(v_mask a, v_mask b) { return vorrq_u32(a, b); }
ATTN_INLINE v_mask v_mask_not(v_mask a) { return vmvnq_u32(a); }
ATTN_INLINE bool v_mask_any(v_mask a) { return vmaxvq_u32(a) != 0; }
ATTN_INLINE bool v_mask_all(v_mask a) { return vminvq_u32(a) != 0; }

ATTN_INLINE v_i32 v_i_set1(int32_t x) { return vdupq_n_s32(x); }
ATTN_INLINE v_i32 v_i_load(const int32_t *p) { return vld1q_s32(p); }
ATTN_INLINE v_i32 v_i_add(v_i32 a, v_i32 b) { return vaddq_s32(a, b); }
ATTN_INLINE v_i32 v_i_and(v_i32 a, v_i32 b) { return vandq_s32(a, b); }
ATTN_INLINE v_i32 v_i_shl4(v_i32 a) { return vshlq_n_s32(a, 4); }
ATTN_INLINE v_i32 v_i_shr4(v_i32 a) { return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a), 4)); }
ATTN_INLINE v_mask v_i_gt(v_i32 a, v_i32 b) { return vcgtq_s32(a, b); }
ATTN_INLINE v_f32 v_from_i(v_i32 a) { return vcvtq_f32_s32(a); }
ATTN_INLINE v_i32 v_to_i(v_f32 a) { return vcvtnq_s32_f32(a); }
ATTN_INLINE v_f32 v_shl23(v_f32 a) { return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(a), 23)); }
ATTN_INLINE v_f32 v_swap(v_f32 a, const int width) { return width == 2 ? vextq_f32(a, a, 2) : vrev64q_f32(a); }
ATTN_INLINE v_f32 v_repeat(const float *p, const int n)
{
    if (n == 1)
        return v_set1(p[0]);
    return n == 4 ? vld1q_f32(p) : vcombine_f32(vld1_f32(p), vld1_f32(p));
}
/* clang-format on */

ATTN_INLINE v_f32 v_scale2(v_f32 p, v_f32 n)
{
    const int32x4_t bias = vdupq_n_s32(127);
    int32x4_t whole = vcvtnq_s32_f32(n), half = vshrq_n_s32(whole, 1), rest = vsubq_s32(whole, half);
    p = vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23)));
    return vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23)));
}

ATTN_INLINE void v_transpose(v_f32 r[V_N])
{
    float32x4x2_t a = vtrnq_f32(r[0], r[1]), b = vtrnq_f32(r[2], r[3]);
    r[0] = vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0]));
    r[1] = vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1]));
    r[2] = vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0]));
    r[3] = vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1]));
}

#include "kernels/simd/simd_math.h"

#endif
