/* rare_act.h - activations that published models seldom have: one number at a time, without kernels. Their numbers follow those of
 * ATTN_ACT_*, for which the functions here call the kernels. */
#ifndef ATTN_LAYERS_RARE_ACT_H
#define ATTN_LAYERS_RARE_ACT_H

#include <stdbool.h>
#include "ops/nn/linear.h"

enum {
    ATTN_ACT_RARE = 100,
    ATTN_ACT_RELU2 = ATTN_ACT_RARE, /* max(x, 0)^2 (So et al. 2021) */
    ATTN_ACT_RELU6,                 /* min(max(x, 0), 6) */
    ATTN_ACT_LEAKY_RELU,            /* x, 0.01 x below 0 */
    ATTN_ACT_SIGMOID,               /* 1 / (1 + exp(-x)) */
    ATTN_ACT_MISH,                  /* x tanh(ln(1 + exp x)) (Misra 2019) */
    ATTN_ACT_GELU_10,               /* gelu, between -10 and 10 */
    ATTN_ACT_LAPLACE                /* (1 + erf((x - m) / (s sqrt 2))) / 2, m = 0.707107, s = 0.282095 (Ma et al. 2022) */
};

static inline bool attn_act_is_rare(int32_t act)
{
    return act >= ATTN_ACT_RARE;
}

/* act(x) and its derivative, for a rare one. */
double attn_rare_act(int32_t act, double x);
double attn_rare_act_slope(int32_t act, double x);

/* x = act(x), and gate = act(gate) * up, for any activation. */
void attn_activate(const attn_worker *worker, int32_t act, float *x, int64_t n);
void attn_activate_mul(const attn_worker *worker, int32_t act, float *gate, const float *up, int64_t n);

#endif
