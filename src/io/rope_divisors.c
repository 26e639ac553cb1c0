/* rope_divisors.c - Llama 3's RoPE scaling, read back from the divisors that it gives. */
#include "io/rope_divisors.h"

#include <math.h>

/* What the rule divides frequency i of n with. */
static double divisor(int64_t i, int64_t n, double base, double factor, int64_t length)
{
    const double turns = (double)length * pow(base, -(double)i / (double)n) / (2 * acos(-1.0));
    double share = (turns - ATTN_LLAMA3_LOW_FREQ) / (ATTN_LLAMA3_HIGH_FREQ - ATTN_LLAMA3_LOW_FREQ);
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    return 1 / ((1 - share) / factor + share);
}

bool attn_rope_llama3_rule(const float *divisors, int64_t n, double base, double *factor, int64_t *original_length)
{
    bool same = false;
    *factor = n > 0 ? (double)divisors[n - 1] : 0; /* the slowest frequency has it whole */
    for (int64_t length = 16; !same && length <= 1 << 20 && *factor >= 1; length *= 2) {
        *original_length = length;
        same = true;
        for (int64_t i = 0; same && i < n; i++)
            same = fabs((double)divisors[i] / divisor(i, n, base, *factor, length) - 1) < 1e-4;
    }
    return same;
}
