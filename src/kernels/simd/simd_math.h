/* simd_math.h - functions over the vector vocabulary, the same at every level. Included by each simd_<isa>.h.
 *
 * The vocabulary (v_f32 holds V_N floats, v_i32 V_N integers, v_mask one truth value per lane):
 *   v_zero v_set1 v_load v_store          unaligned; v_load_n, v_store_n: the first n < V_N lanes only, no other byte is
 *                                         touched, the rest reads as 0
 *   v_load_bf16 _f16 _i8 _u8, .._n        widened to floats        v_store_bf16 _f16, .._n   rounded to nearest even
 *   v_load_bf16_even v_load_bf16_odd      numbers 0, 2, .. or 1, 3, .. of the 2 * V_N at p: no number changes its lane
 *   v_add v_sub v_mul v_div v_sqrt v_abs v_neg
 *   v_fma(a, b, c) = a*b + c, v_fnma = c - a*b; one rounding (scalar: two)
 *   v_max(a, b) = a > b ? a : b, v_min(a, b) = a < b ? a : b: with a NaN in either, b. So v_max(x, m) drops a NaN in x
 *   v_round                               to an integral value, nearest even
 *   v_sum v_max_lanes                     over lanes; v_sum adds halves onto each other (fixed order)
 *   v_sum_rows(r)                         lane k = the sum of the lanes of r[k]; one order of adding for every k
 *   v_sum_fours(r), v_sum_four_fours(f)   the same in two parts (16 lanes): f[k] = v_sum_fours(r + 4 * k)
 *   v_gt v_ge v_eq v_select(m, a, b) = m ? a : b; v_mask_and _or _not, v_mask_any, v_mask_all, v_mask_first(n)
 *   v_i_set1 v_i_load v_i_add v_i_gt v_i_and v_i_shl4 v_i_shr4 (zeros move in) v_from_i v_to_i
 *   v_scale2(p, n)                        p * 2^n for integral n in -151..129, subnormal results rounded once
 *   v_shl23                               bits of each lane shifted left by 23: an integer becomes an exponent
 *   v_swap(a, width)                      lane n = lane n ^ width of a; width a power of two below V_N
 *   v_repeat(p, n)                        p[0] .. p[n - 1] over and over; n is 1, 2 or 4 and at most V_N
 *   v_transpose(r)                        V_N rows of V_N floats, in place
 * Levels that define V_SIXTEENTHS have v_sixteenths, 2^(k/16) from the bits of a sum, and for it v_not_below (true for NaN), v_sub_where
 * and v_fma_where (0 where the mask is not set).
 * and from here: v_exp2 v_exp (within 2 ulp on the whole range) v_exp2_soft v_tanh.
 * Coefficients: Remez fits on the reduced ranges, rounded to f32; ulps are measured by tests/kernels/test_simd.c. */
#ifndef ATTN_KERNELS_SIMD_MATH_H
#define ATTN_KERNELS_SIMD_MATH_H

/* 2^r for |r| <= 1/2; relative error 4e-9 before rounding. */
ATTN_INLINE v_f32 v_exp2_poly(v_f32 r)
{
    v_f32 p = v_set1(0x1.446c7ep-13f);
    p = v_fma(p, r, v_set1(0x1.5f88fep-10f));
    p = v_fma(p, r, v_set1(0x1.3b29e4p-7f));
    p = v_fma(p, r, v_set1(0x1.c6ae2cp-5f));
    p = v_fma(p, r, v_set1(0x1.ebfbe0p-3f));
    p = v_fma(p, r, v_set1(0x1.62e432p-1f));
    return v_fma(p, r, v_set1(1.0f));
}

/* 2^x. Overflows to infinity, underflows through the subnormals to 0; NaN stays NaN. */
ATTN_INLINE v_f32 v_exp2(v_f32 x)
{
    x = v_max(v_set1(-151.0f), v_min(v_set1(129.0f), x));
    v_f32 n = v_round(x);
    return v_scale2(v_exp2_poly(v_sub(x, n)), n);
}

#ifdef V_SIXTEENTHS
/* 2^x for x <= 127, for weights of a softmax: results below 2^-126 are 0; NaN stays NaN. x = t + r with t the nearest 1/16 and
 * |r| <= 1/32; 2^t is a table's entry and an exponent, 2^r - 1 a polynomial of degree 3 with relative error 2e-9: five operations of the
 * multiply-add units where v_exp2_poly takes eight. Adding 1.5 * 2^19 leaves 16 t in the low bits of the sum. */
#define V_EXP2_MAGIC (0x1.8p19f)
#define V_EXP2_COEFFICIENTS {0x1.c6b46ap-5f, 0x1.ebfff4p-3f, 0x1.62e430p-1f}
#else
/* 2^x for x <= 127, for weights of a softmax: results below 2^-126.5 are 0; NaN stays NaN. Adding 1.5 * 2^23 leaves
 * round(x) in the low bits of the sum; the 127 makes them a biased exponent. */
#define V_EXP2_MAGIC (0x1.8p23f + 127.0f)
#define V_EXP2_COEFFICIENTS {0x1.446c7ep-13f, 0x1.5f88fep-10f, 0x1.3b29e4p-7f, 0x1.c6ae2cp-5f, 0x1.ebfbe0p-3f, 0x1.62e432p-1f, 1.0f}
#endif

/* v_exp2_soft of x[0] .. x[n - 1], step by step for all of them: a chain of dependent steps is several times as long as
 * its work, and a scheduler does not look far enough ahead to find the next one. n is a constant. */
ATTN_INLINE void v_exp2_soft_many(v_f32 *x, const int n)
{
    static const float c[] = V_EXP2_COEFFICIENTS;
    enum { DEGREE = sizeof c / sizeof c[0] - 1 };
    const v_f32 magic = v_set1(V_EXP2_MAGIC);
    v_f32 t[8], p[8];
#define EACH _Pragma("GCC unroll 8") for (int k = 0; k < n; k++)
#ifdef V_SIXTEENTHS
    v_mask normal[8];
    EACH normal[k] = v_not_below(x[k], v_set1(-126.0f));
    EACH t[k] = v_add(x[k], magic);
    EACH x[k] = v_sub_where(normal[k], x[k], v_sub(t[k], magic)); /* not from -infinity: that would be an invalid operation */
#else
    EACH x[k] = v_max(v_set1(-127.0f), x[k]);
    EACH t[k] = v_add(x[k], magic);
    EACH x[k] = v_sub(x[k], v_sub(t[k], magic));
#endif
    EACH p[k] = v_fma(v_set1(c[0]), x[k], v_set1(c[1]));
#pragma GCC unroll 8
    for (int step = 2; step <= DEGREE; step++)
        EACH p[k] = v_fma(p[k], x[k], v_set1(c[step]));
#ifdef V_SIXTEENTHS
    EACH t[k] = v_sixteenths(t[k]);
    EACH p[k] = v_mul(p[k], x[k]);
    EACH x[k] = v_fma_where(normal[k], p[k], t[k], t[k]);
#else
    EACH x[k] = v_mul(p[k], v_shl23(t[k]));
#endif
#undef EACH
}

ATTN_INLINE v_f32 v_exp2_soft(v_f32 x)
{
    v_exp2_soft_many(&x, 1);
    return x;
}

/* e^x: n = round(x log2 e), r = x - n ln 2 in two parts (Cody and Waite), |r| <= 0.3466. */
ATTN_INLINE v_f32 v_exp(v_f32 x)
{
    x = v_max(v_set1(-104.0f), v_min(v_set1(89.0f), x));
    v_f32 n = v_round(v_mul(x, v_set1(0x1.715476p+0f)));
    v_f32 r = v_fnma(n, v_set1(0x1.62e4p-1f), x);
    r = v_fnma(n, v_set1(0x1.7f7d1cp-20f), r);
    v_f32 p = v_set1(0x1.6a244cp-10f);
    p = v_fma(p, r, v_set1(0x1.1239d4p-7f));
    p = v_fma(p, r, v_set1(0x1.5558f2p-5f));
    p = v_fma(p, r, v_set1(0x1.555492p-3f));
    p = v_fma(p, r, v_set1(0x1.fffffcp-2f));
    p = v_fma(p, r, v_set1(1.0f));
    return v_scale2(v_fma(p, r, v_set1(1.0f)), n);
}

/* tanh(x): an odd polynomial below 0.625, 1 - 2 / (e^2|x| + 1) above. */
ATTN_INLINE v_f32 v_tanh(v_f32 x)
{
    v_f32 size = v_abs(x), square = v_mul(x, x);
    v_f32 p = v_set1(-0x1.975912p-8f);
    p = v_fma(p, square, v_set1(0x1.59d5cap-6f));
    p = v_fma(p, square, v_set1(-0x1.b968b4p-5f));
    p = v_fma(p, square, v_set1(0x1.110f9cp-3f));
    p = v_fma(p, square, v_set1(-0x1.555554p-2f));
    v_f32 small = v_fma(v_mul(p, square), x, x);
    v_f32 grown = v_exp(v_add(v_min(size, v_set1(20.0f)), v_min(size, v_set1(20.0f))));
    v_f32 large = v_sub(v_set1(1.0f), v_div(v_set1(2.0f), v_add(grown, v_set1(1.0f))));
    large = v_select(v_gt(v_zero(), x), v_neg(large), large);
    return v_select(v_gt(size, v_set1(0.625f)), large, small); /* NaN takes the small branch and stays */
}

#endif
