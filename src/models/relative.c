/* relative.c - buckets of distances. */
#include "models/relative.h"
#include <math.h>
#include <stdlib.h>

/* Half of the buckets hold one distance each, the other half grows in logarithmic steps up to the largest distance. */
static int64_t bucket_of(int64_t distance, int64_t buckets, int64_t max_distance, bool causal)
{
    int64_t first = 0, n = -distance; /* how far behind the query the key lies */
    if (causal) {
        n = n < 0 ? 0 : n;
    } else {
        buckets /= 2;
        first = distance > 0 ? buckets : 0;
        n = n < 0 ? -n : n;
    }
    const int64_t exact = buckets / 2;
    if (n < exact)
        return first + n;
    /* in f32, as the published code does: at the borders the rounding decides */
    const float ratio = logf((float)n / (float)exact) / (float)log((double)max_distance / (double)exact);
    const int64_t large = exact + (int64_t)(ratio * (float)(buckets - exact));
    return first + (large < buckets - 1 ? large : buckets - 1);
}

float *attn_relative_table(const attn_description *d, const attn_stack_weights *stack, bool causal)
{
    const int64_t reach = d->relative_max_distance, width = 2 * reach + 1;
    float *table = malloc((size_t)(d->n_heads * width) * sizeof *table);
    for (int64_t h = 0; table && h < d->n_heads; h++)
        for (int64_t i = 0; i < width; i++) {
            const int64_t bucket = bucket_of(i - reach, d->relative_buckets, reach, causal);
            table[h * width + i] = stack->relative ? stack->relative[bucket * d->n_heads + h] : 0.0f;
        }
    return table;
}
