/* nn_vec_scalar.h - the vector vocabulary of the nn templates in plain C: 8 numbers at a time, which any compiler
 * turns into what the base instruction set has. Multiply-adds are two operations here. */
#include <math.h>
#include <stdint.h>
#include "core/half.h"

#define V_N 8
#define NN_MR 2
#define NN_PLAIN 1
#define NN_INLINE static /* not forced: struct vectors inlined everywhere take minutes to compile under sanitizers */

typedef struct v_f32 {
    float lane[V_N];
} v_f32;
typedef struct v_u32 {
    uint32_t lane[V_N];
} v_u32;

#define V_EACH for (int lane = 0; lane < V_N; lane++)
#define V_MAP(expression)                                                                                              \
    do {                                                                                                               \
        v_f32 r;                                                                                                       \
        V_EACH r.lane[lane] = (expression);                                                                            \
        return r;                                                                                                      \
    } while (0)

static inline v_f32 v_zero(void) { V_MAP(0.0f); }
static inline v_f32 v_set(float x) { V_MAP(x); }
static inline v_f32 v_load(const float *p) { V_MAP(p[lane]); }
static inline void v_store(float *p, v_f32 x) { V_EACH p[lane] = x.lane[lane]; }
static inline v_f32 v_add(v_f32 a, v_f32 b) { V_MAP(a.lane[lane] + b.lane[lane]); }
static inline v_f32 v_sub(v_f32 a, v_f32 b) { V_MAP(a.lane[lane] - b.lane[lane]); }
static inline v_f32 v_mul(v_f32 a, v_f32 b) { V_MAP(a.lane[lane] * b.lane[lane]); }
static inline v_f32 v_div(v_f32 a, v_f32 b) { V_MAP(a.lane[lane] / b.lane[lane]); }
static inline v_f32 v_fma(v_f32 a, v_f32 b, v_f32 c) { V_MAP(a.lane[lane] * b.lane[lane] + c.lane[lane]); }
static inline v_f32 v_min(v_f32 a, v_f32 b) { V_MAP(a.lane[lane] < b.lane[lane] ? a.lane[lane] : b.lane[lane]); }
static inline v_f32 v_max(v_f32 a, v_f32 b) { V_MAP(a.lane[lane] > b.lane[lane] ? a.lane[lane] : b.lane[lane]); }
static inline v_f32 v_abs(v_f32 a) { V_MAP(fabsf(a.lane[lane])); }
static inline v_f32 v_if_negative(v_f32 x, v_f32 a, v_f32 b) { V_MAP(x.lane[lane] < 0 ? a.lane[lane] : b.lane[lane]); }
static inline v_f32 v_if_nan(v_f32 x, v_f32 a, v_f32 b) { V_MAP(isnan(x.lane[lane]) ? a.lane[lane] : b.lane[lane]); }
static inline v_f32 v_round(v_f32 a) { V_MAP(rintf(a.lane[lane])); }
static inline v_f32 v_scale2(v_f32 x, v_f32 n)
{
    V_MAP(x.lane[lane] * attn_f32_from_bits((uint32_t)((int32_t)n.lane[lane] + 127) << 23));
}
static inline v_f32 v_load_bf16(const uint16_t *p) { V_MAP(attn_bf16_to_f32(p[lane])); }
static inline v_f32 v_load_f16(const uint16_t *p) { V_MAP(attn_f16_to_f32(p[lane])); }
static inline v_f32 v_load_i8(const int8_t *p) { V_MAP((float)p[lane]); }
static inline v_u32 v_load_u32(const uint32_t *p)
{
    v_u32 r;
    V_EACH r.lane[lane] = p[lane];
    return r;
}
static inline v_f32 v_masked(v_u32 w, uint32_t mask) { V_MAP((float)(w.lane[lane] & mask)); }
static inline v_u32 v_shift4(v_u32 w)
{
    V_EACH w.lane[lane] >>= 4;
    return w;
}
static inline v_u32 v_set_u32(uint32_t x)
{
    v_u32 r;
    V_EACH r.lane[lane] = x;
    return r;
}
static inline v_u32 v_and(v_u32 a, v_u32 b)
{
    V_EACH a.lane[lane] &= b.lane[lane];
    return a;
}
static inline v_u32 v_shift_up4(v_u32 w)
{
    V_EACH w.lane[lane] <<= 4;
    return w;
}
static inline v_f32 v_from_u32(v_u32 w) { V_MAP((float)w.lane[lane]); }
