#include "core/half.h"

/* Rounding a double to f32 "to odd" keeps enough information for one correct rounding to 16 bits. */
static float round_to_odd(double x)
{
    float f = (float)x;
    double back = (double)f;
    if (back == x || x != x)
        return f;
    uint32_t u = attn_f32_bits(f);
    double magnitude = x < 0 ? -x : x;
    double back_magnitude = back < 0 ? -back : back;
    if (back_magnitude > magnitude) /* truncate toward zero first; also turns an overflow into FLT_MAX */
        u -= 1;
    return attn_f32_from_bits(u | 1u);
}

uint16_t attn_f64_to_f16(double x)
{
    return attn_f32_to_f16(round_to_odd(x));
}

uint16_t attn_f64_to_bf16(double x)
{
    return attn_f32_to_bf16(round_to_odd(x));
}
