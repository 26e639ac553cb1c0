/* rope_table.c - YaRN (Peng et al. 2023, section 3.2) with a correction range in fractions of a dimension. */
#include "models/rope_table.h"
#include <math.h>
#include <stdlib.h>

bool attn_rope_needs_table(const attn_description *d)
{
    return d->position == ATTN_POSITION_ROPE && d->rope.scaling == ATTN_ROPE_YARN && d->rope.no_truncate;
}

/* The pair whose wave turns `turns` times over the original length. */
static double pair_of(const attn_rope_desc *r, double turns)
{
    const double pi = acos(-1.0);
    return (double)r->rotary_dim * log((double)r->original_length / (turns * 2 * pi)) / (2 * log(r->base));
}

static double frequency_of(const attn_rope_desc *r, int64_t pair)
{
    double low = pair_of(r, r->beta_fast), high = pair_of(r, r->beta_slow);
    low = low < 0 ? 0 : low;
    high = high > (double)(r->rotary_dim - 1) ? (double)(r->rotary_dim - 1) : high;
    if (low == high)
        high += 0.001;
    double ramp = ((double)pair - low) / (high - low); /* 0: as trained, 1: stretched */
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    const double plain = pow(r->base, -2.0 * (double)pair / (double)r->rotary_dim);
    return plain / r->factor * ramp + plain * (1 - ramp);
}

attn_status attn_rope_reserve(attn_session *s, int64_t rows)
{
    const attn_rope_desc *r = &s->model->d.rope;
    const int64_t pairs = r->rotary_dim / 2;
    if (rows <= s->rope_rows)
        return ATTN_OK;
    rows = rows + rows / 2 + 64;
    float *table = malloc((size_t)(2 * rows * pairs) * sizeof *table);
    if (!table)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "no memory for rotations of %lld positions", (long long)rows);
    const double amplitude = r->attention_factor > 0 ? r->attention_factor : 0.1 * log(r->factor) + 1;
    for (int64_t m = 0; m < pairs; m++) {
        const double frequency = frequency_of(r, m);
        for (int64_t p = 0; p < rows; p++) {
            table[p * pairs + m] = (float)(amplitude * cos((double)p * frequency));
            table[(rows + p) * pairs + m] = (float)(amplitude * sin((double)p * frequency));
        }
    }
    free(s->rope_table);
    s->rope_table = table;
    s->rope_rows = rows;
    return ATTN_OK;
}
