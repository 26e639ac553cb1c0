/* nn_vec_avx2.h - the vector vocabulary of the nn templates in AVX2, FMA and F16C: 8 lanes. */
#include <immintrin.h>
#include <stdint.h>

#define V_N 8
#define NN_INLINE ATTN_INLINE
#define NN_MR 6 /* 6 rows x 2 vectors: 12 accumulators of 16 registers */

typedef __m256 v_f32;
typedef __m256i v_u32;

static inline v_f32 v_zero(void) { return _mm256_setzero_ps(); }
static inline v_f32 v_set(float x) { return _mm256_set1_ps(x); }
static inline v_f32 v_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void v_store(float *p, v_f32 x) { _mm256_storeu_ps(p, x); }
static inline v_f32 v_add(v_f32 a, v_f32 b) { return _mm256_add_ps(a, b); }
static inline v_f32 v_sub(v_f32 a, v_f32 b) { return _mm256_sub_ps(a, b); }
static inline v_f32 v_mul(v_f32 a, v_f32 b) { return _mm256_mul_ps(a, b); }
static inline v_f32 v_div(v_f32 a, v_f32 b) { return _mm256_div_ps(a, b); }
static inline v_f32 v_fma(v_f32 a, v_f32 b, v_f32 c) { return _mm256_fmadd_ps(a, b, c); }
static inline v_f32 v_min(v_f32 a, v_f32 b) { return _mm256_min_ps(a, b); }
static inline v_f32 v_max(v_f32 a, v_f32 b) { return _mm256_max_ps(a, b); }
static inline v_f32 v_abs(v_f32 a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
/* a where x < 0, else b */
static inline v_f32 v_if_negative(v_f32 x, v_f32 a, v_f32 b)
{
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ));
}
/* a where x is NaN, else b */
static inline v_f32 v_if_nan(v_f32 x, v_f32 a, v_f32 b)
{
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}
static inline v_f32 v_round(v_f32 a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* x * 2^n for whole n in [-126, 127] */
static inline v_f32 v_scale2(v_f32 x, v_f32 n)
{
    __m256i e = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(x, _mm256_castsi256_ps(e));
}
static inline v_f32 v_load_bf16(const uint16_t *p)
{
    __m256i u = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(u, 16));
}
static inline v_f32 v_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline v_f32 v_load_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
static inline v_u32 v_load_u32(const uint32_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
/* The bits of `mask` as an integer in f32; v_shift4 first moves the word down by 4. */
static inline v_f32 v_masked(v_u32 w, uint32_t mask)
{
    return _mm256_cvtepi32_ps(_mm256_and_si256(w, _mm256_set1_epi32((int32_t)mask)));
}
static inline v_u32 v_shift4(v_u32 w) { return _mm256_srli_epi32(w, 4); }
static inline v_u32 v_set_u32(uint32_t x) { return _mm256_set1_epi32((int32_t)x); }
static inline v_u32 v_and(v_u32 a, v_u32 b) { return _mm256_and_si256(a, b); }
static inline v_u32 v_shift_up4(v_u32 w) { return _mm256_slli_epi32(w, 4); }
static inline v_f32 v_from_u32(v_u32 w) { return _mm256_cvtepi32_ps(w); } /* below 2^31 */
