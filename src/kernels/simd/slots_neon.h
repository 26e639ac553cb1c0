/* slots_neon.h - multiply-adds of Advanced SIMD that take one slot of a register, which costs no broadcast. A slot has four bytes: an
 * f32 number, or with SLOTS_OF_PAIRS two of bf16 (pairs_neonbf16.h). v_slots is a vector of V_N slots, v_slot_two holds two, a
 * v_slot_one has one in its first place; a sum is always of f32. */
#ifndef ATTN_KERNELS_SIMD_SLOTS_NEON_H
#define ATTN_KERNELS_SIMD_SLOTS_NEON_H

#ifdef SLOTS_OF_PAIRS
typedef v_pair v_slots;
typedef v_pair_two v_slot_two;
typedef v_pair_one v_slot_one;
#define v_slots_load v_pair_load
#define v_slot_two_at v_pair_two_at
#define v_slot_one_at v_pair_one_at
#define v_slots_fma_one v_pair_dot_one
#define v_slots_fma_second v_pair_dot_second
#define v_slots_fma_lane v_pair_dot_lane
#else
typedef v_f32 v_slots;
typedef float32x2_t v_slot_two;
typedef v_slot_two v_slot_one;
#define v_slots_load v_load

/* clang-format off */
ATTN_INLINE v_slot_two v_slot_two_at(const float *two)
{
    v_slot_two x = vld1_f32(two);
    __asm__ volatile("" : "+w"(x)); /* gcc 12 would load each number by itself, and all of them first, which takes too many registers */
    return x;
}
ATTN_INLINE v_slot_one v_slot_one_at(const float *one)
{
    const v_slot_one x = {*one, 0}; /* ldr s; vdup would make it ld1r, which takes a vector port too */
    return x;
}
/* c + a b for the first or second slot of a, or one of a whole vector. */
ATTN_INLINE v_f32 v_slots_fma_one(v_slot_one a, v_slots b, v_f32 c) { return vfmaq_lane_f32(c, b, a, 0); }
ATTN_INLINE v_f32 v_slots_fma_second(v_slot_two a, v_slots b, v_f32 c) { return vfmaq_lane_f32(c, b, a, 1); }
ATTN_INLINE v_f32 v_slots_fma_lane(v_slots a, const int lane, v_slots b, v_f32 c)
{
    switch (lane) {
    case 0: return vfmaq_laneq_f32(c, b, a, 0);
    case 1: return vfmaq_laneq_f32(c, b, a, 1);
    case 2: return vfmaq_laneq_f32(c, b, a, 2);
    default: return vfmaq_laneq_f32(c, b, a, 3);
    }
}
/* clang-format on */
#endif
#endif
