/* wide_math.h - the vocabulary for doubles, the same at every level; each simd/wide_<isa>.h includes it. w_f64 holds W_N
 * doubles:
 *   w_zero w_set1 w_load w_store          unaligned; w_load_f32: W_N floats, widened
 *   w_add w_sub w_mul w_fma(a, b, c) = a*b + c (one rounding; scalar: two)
 *   w_max(a, b) = a > b ? a : b, w_min(a, b) = a < b ? a : b: with a NaN in either, b
 *   w_round                               to an integral value, nearest even
 *   w_scale2(p, n)                        p * 2^n for integral n in -1080..1024, subnormal results rounded once
 *   w_sum                                 over lanes, in a fixed order
 * and from here w_exp. */
#ifndef ATTN_KERNELS_SIMD_WIDE_MATH_H
#define ATTN_KERNELS_SIMD_WIDE_MATH_H

/* e^x: n = round(x / ln 2), r = x - n ln 2 in two parts (Cody and Waite), |r| <= 0.3466; the Taylor sum to r^13 / 13! leaves
 * 4e-18. NaN stays NaN. */
ATTN_INLINE w_f64 w_exp(w_f64 x)
{
    static const double factor[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
                                    1.0 / 5040,       1.0 / 720,       1.0 / 120,      1.0 / 24,      1.0 / 6,      0.5};
    x = w_max(w_set1(-746.0), w_min(w_set1(710.0), x));
    w_f64 n = w_round(w_mul(x, w_set1(0x1.71547652b82fep+0)));
    w_f64 r = w_fma(n, w_set1(-0x1.62e42feep-1), x);
    r = w_fma(n, w_set1(-0x1.a39ef35793c76p-33), r);
    w_f64 p = w_set1(factor[0]);
    for (int k = 1; k < 12; k++)
        p = w_fma(p, r, w_set1(factor[k]));
    p = w_fma(w_mul(p, r), r, r);
    return w_scale2(w_add(p, w_set1(1.0)), n);
}

#endif
