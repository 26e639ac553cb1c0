/* pairs_neonbf16.h - vectors of pairs of bf16 numbers beside simd_neon.h, with the names of pairs_avx512bf16.h: a v_pair has V_N slots
 * of two numbers, the first in the low half. bfdot multiplies a vector by another one or by a slot of a register, which costs no
 * broadcast: v_pair_two holds one or two slots for that, v_pair_dot_lane takes one of a whole vector. */
#ifndef ATTN_KERNELS_SIMD_PAIRS_NEONBF16_H
#define ATTN_KERNELS_SIMD_PAIRS_NEONBF16_H

typedef uint16x8_t v_pair;
typedef bfloat16x4_t v_pair_two;
typedef v_pair_two v_pair_one; /* in its first slot */

/* clang-format off */
ATTN_INLINE v_pair v_pair_zero(void) { return vdupq_n_u16(0); }
ATTN_INLINE v_f32 v_pair_as_f32(v_pair x) { return vreinterpretq_f32_u16(x); } /* the same bits */
ATTN_INLINE v_pair v_pair_of_f32(v_f32 x) { return vreinterpretq_u16_f32(x); }
ATTN_INLINE bfloat16x8_t v_pair_numbers(v_pair x) { return vreinterpretq_bf16_u16(x); }
ATTN_INLINE v_pair v_pair_set1(const void *pair)
{
    uint32_t bits;
    memcpy(&bits, pair, sizeof bits);
    uint32x4_t slots = vdupq_n_u32(bits);
    __asm__("" : "+w"(slots)); /* a constant of ones in bf16 would be `fmov v.8h, 1.0` (gcc 12), which is 1 in f16 */
    return vreinterpretq_u16_u32(slots);
}
ATTN_INLINE v_pair_one v_pair_one_at(const void *pair)
{
    float bits;
    memcpy(&bits, pair, sizeof bits);
    const float32x2_t slots = {bits, 0}; /* ldr s; vdup would make it ld1r, which takes a vector port too */
    return vreinterpret_bf16_f32(slots);
}
ATTN_INLINE v_pair_two v_pair_two_at(const void *pairs)
{
    uint64_t bits;
    memcpy(&bits, pairs, sizeof bits);
    return vreinterpret_bf16_u64(vcreate_u64(bits));
}
ATTN_INLINE v_pair v_pair_load(const float *slots) { return v_pair_of_f32(vld1q_f32(slots)); }
ATTN_INLINE void v_pair_store(float *slots, v_pair x) { vst1q_f32(slots, v_pair_as_f32(x)); }

/* c + (a.first * b.first + a.second * b.second): both sums are rounded to odd, numbers below 2^-126 count as 0. So a sum of n
 * products has an error of at most (n + 1) 2^-24 of their sizes, where one that is rounded to nearest n times has n 2^-24. */
ATTN_INLINE v_f32 v_pair_dot(v_pair a, v_pair b, v_f32 c) { return vbfdotq_f32(c, v_pair_numbers(a), v_pair_numbers(b)); }
/* The same with one slot in place of a: of two, of four. */
ATTN_INLINE v_f32 v_pair_dot_one(v_pair_one a, v_pair b, v_f32 c) { return vbfdotq_lane_f32(c, v_pair_numbers(b), a, 0); }
ATTN_INLINE v_f32 v_pair_dot_second(v_pair_two a, v_pair b, v_f32 c) { return vbfdotq_lane_f32(c, v_pair_numbers(b), a, 1); }
ATTN_INLINE v_f32 v_pair_dot_lane(v_pair a, const int lane, v_pair b, v_f32 c)
{
    const bfloat16x8_t slots = v_pair_numbers(a), x = v_pair_numbers(b);
    switch (lane) {
    case 0: return vbfdotq_laneq_f32(c, x, slots, 0);
    case 1: return vbfdotq_laneq_f32(c, x, slots, 1);
    case 2: return vbfdotq_laneq_f32(c, x, slots, 2);
    default: return vbfdotq_laneq_f32(c, x, slots, 3);
    }
}

/* Both rounded to nearest even. */
ATTN_INLINE v_pair v_pair_narrow(v_f32 first, v_f32 second)
{
    return vzip1q_u16(vreinterpretq_u16_bf16(vcvtq_low_bf16_f32(first)), vreinterpretq_u16_bf16(vcvtq_low_bf16_f32(second)));
}
/* The same one after the other: slots of the first in the low half of the vector. */
ATTN_INLINE v_pair v_pair_narrow_row(v_f32 low, v_f32 high)
{
    return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(low), high));
}
/* One number. */
ATTN_INLINE uint32_t v_pair_bf16(float x) { return vgetq_lane_u16(v_pair_narrow_row(v_set1(x), v_zero()), 0); }
/* Numbers 0 .. V_N - 1 of two rows side by side, and numbers V_N .. 2 * V_N - 1. */
ATTN_INLINE v_pair v_pair_zip_low(v_pair a, v_pair b) { return vzip1q_u16(a, b); }
ATTN_INLINE v_pair v_pair_zip_high(v_pair a, v_pair b) { return vzip2q_u16(a, b); }
/* The first n numbers of a row, two in each slot; the rest is 0, and no other byte is read. */
ATTN_INLINE v_pair v_pair_load_n(const uint16_t *row, int64_t n)
{
    uint16_t numbers[2 * V_N] = {0};
    if (n >= 2 * V_N)
        return vld1q_u16(row);
    for (int64_t k = 0; k < n; k++)
        numbers[k] = row[k];
    return vld1q_u16(numbers);
}
/* Numbers 0 .. n - 1 of two rows side by side; the rest is 0. */
ATTN_INLINE v_pair v_pair_join_n(const uint16_t *first, const uint16_t *second, int64_t n)
{
    const uint16x4_t low = n >= V_N ? vld1_u16(first) : v_load_16x4_n(first, n);
    const uint16x4_t high = n >= V_N ? vld1_u16(second) : v_load_16x4_n(second, n);
    return vcombine_u16(vzip1_u16(low, high), vzip2_u16(low, high));
}
/* The larger magnitude so far of each number, NaN above infinity; and whether all of them are finite. */
ATTN_INLINE v_pair v_pair_largest(v_pair so_far, v_pair x) { return vmaxq_u16(so_far, vandq_u16(x, vdupq_n_u16(0x7fff))); }
ATTN_INLINE bool v_pair_finite(v_pair largest) { return vmaxvq_u16(largest) < 0x7f80; }
/* x with 0 where p holds the number `marked`. */
ATTN_INLINE v_pair v_pair_without(v_pair x, v_pair p, uint16_t marked) { return vbicq_u16(x, vceqq_u16(p, vdupq_n_u16(marked))); }
/* clang-format on */

#endif
