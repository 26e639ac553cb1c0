/* linear_pack.c - rows of f32 into panels and back. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/half.h"
#include "ops/nn/linear.h"
#include "ops/nn/linear_panels.h"

/* Columns with less of the largest one's square are left as they are. */
#define LEAST_SHARE 1e-12

/* ---- rows of f32 ---- */

/* x / scale as a whole number in [low, high]; 0 where that is no number. */
static long nearest(float x, float scale, long low, long high)
{
    const float q = x / scale;
    if (!(q >= (float)low)) /* too low, or NaN */
        return q < (float)low ? low : 0;
    return q > (float)high ? high : lrintf(q);
}

static void put_row_i8(attn_panels *w, int64_t panel, int64_t lane, const float *row)
{
    const int64_t n_scales = attn_panel_scales(w);
    int8_t *values = w->values;
    for (int64_t b = 0; b < n_scales; b++) {
        int64_t k0 = b * w->scale_block, k1 = k0 + w->scale_block < w->n_in ? k0 + w->scale_block : w->n_in;
        float largest = 0;
        for (int64_t k = k0; k < k1; k++)
            largest = fabsf(row[k]) > largest ? fabsf(row[k]) : largest;
        const int64_t at = (panel * n_scales + b) * ATTN_PANEL + lane;
        attn_panel_put_scale(w, w->scales, at, largest / 127.0f);
        const float scale = attn_panel_get_scale(w, w->scales, at); /* as it will be read */
        for (int64_t k = k0; k < k1; k++)
            values[attn_panel_i8_at(w, panel, lane, k)] = (int8_t)nearest(row[k], scale, -127, 127);
        if (w->has_min)
            attn_panel_put_scale(w, w->mins, at, 0);
    }
}

/* Rounded to 16 significant bits, so that scale times a nibble is exact in f32. */
static float short_scale(float x)
{
    return attn_f32_from_bits((attn_f32_bits(x) + 0x80u) & ~0xffu);
}

static void put_row_u4(attn_panels *w, int64_t panel, int64_t lane, const float *row)
{
    const int64_t n_scales = attn_panel_scales(w);
    for (int64_t b = 0; b < n_scales; b++) {
        const float *x = row + b * ATTN_PANEL_BLOCK;
        float low = x[0], high = x[0];
        for (int k = 1; k < ATTN_PANEL_BLOCK; k++) {
            low = x[k] < low ? x[k] : low;
            high = x[k] > high ? x[k] : high;
        }
        const int64_t at = (panel * n_scales + b) * ATTN_PANEL + lane;
        attn_panel_put_scale(w, w->scales, at, short_scale((high - low) / 15.0f));
        attn_panel_put_scale(w, w->mins, at, low);
        const float scale = attn_panel_get_scale(w, w->scales, at), min = attn_panel_get_scale(w, w->mins, at);
        uint8_t q[ATTN_PANEL_BLOCK];
        for (int k = 0; k < ATTN_PANEL_BLOCK; k++)
            q[k] = (uint8_t)nearest(x[k] - min, scale, 0, 15);
        attn_panel_put_nibbles(attn_panel_u4_words(w, panel, b, lane), q);
    }
}

static void put_row(attn_panels *w, int64_t panel, int64_t lane, const float *row)
{
    const int64_t base = panel * w->n_in * ATTN_PANEL + lane;
    switch (w->format) {
    case ATTN_PANEL_F32:
        for (int64_t k = 0; k < w->n_in; k++)
            ((float *)w->values)[base + k * ATTN_PANEL] = row[k];
        break;
    case ATTN_PANEL_BF16:
        for (int64_t k = 0; k < w->n_in; k++)
            ((uint16_t *)w->values)[base + k * ATTN_PANEL] = attn_f32_to_bf16(row[k]);
        break;
    case ATTN_PANEL_F16:
        for (int64_t k = 0; k < w->n_in; k++)
            ((uint16_t *)w->values)[base + k * ATTN_PANEL] = attn_f32_to_f16(row[k]);
        break;
    case ATTN_PANEL_P16: {
        const int64_t n = attn_pair_inputs(w->n_in);
        uint16_t *to = (uint16_t *)w->values + panel * n * ATTN_PANEL + 2 * lane;
        for (int64_t k = 0; k < n; k++)
            to[k / 2 * 2 * ATTN_PANEL + k % 2] = k < w->n_in ? attn_f32_to_bf16(row[k]) : 0;
        break;
    }
    case ATTN_PANEL_I8:
    case ATTN_PANEL_D8:
        put_row_i8(w, panel, lane, row);
        break;
    default:
        put_row_u4(w, panel, lane, row);
        break;
    }
}

attn_status attn_linear_balance(attn_linear *linear, attn_linear_row_fn row, void *arg, float *scratch)
{
    const int64_t n_in = linear->w.n_in;
    double *squares = calloc((size_t)n_in, sizeof *squares), largest = 0;
    linear->balance = malloc((size_t)n_in * sizeof *linear->balance);
    if (!squares || !linear->balance) {
        free(squares);
        return ATTN_ERR_OUT_OF_MEMORY;
    }
    for (int64_t n = 0; n < linear->w.n_out; n++) {
        row(arg, n, scratch);
        for (int64_t k = 0; k < n_in; k++)
            squares[k] += (double)scratch[k] * (double)scratch[k];
    }
    for (int64_t k = 0; k < n_in; k++)
        largest = squares[k] > largest ? squares[k] : largest;
    for (int64_t k = 0; k < n_in; k++) {
        const double share = squares[k] / largest; /* of the norm's square: a quarter of its exponent */
        linear->balance[k] = share > LEAST_SHARE && share <= 1 ? (float)exp2(rint(0.25 * log2(share))) : 1.0f;
    }
    free(squares);
    return ATTN_OK;
}

void attn_linear_pack_rows(attn_linear *linear, int64_t first, int64_t count, attn_linear_row_fn row, void *arg,
                           float *scratch)
{
    attn_panels *w = &linear->w;
    for (int64_t panel = first; panel < first + count; panel++)
        for (int64_t lane = 0; lane < ATTN_PANEL; lane++) {
            int64_t n = panel * ATTN_PANEL + lane;
            if (n < w->n_out)
                row(arg, n, scratch);
            else
                memset(scratch, 0, (size_t)w->n_in * sizeof *scratch);
            for (int64_t k = 0; linear->balance && k < w->n_in; k++)
                scratch[k] /= linear->balance[k];
            put_row(w, panel, lane, scratch);
        }
}

/* ---- back to rows ---- */

void attn_linear_row(const attn_linear *linear, int64_t row, float *out)
{
    const attn_panels *w = &linear->w;
    const int64_t panel = row / ATTN_PANEL, lane = row % ATTN_PANEL;
    const int64_t base = panel * w->n_in * ATTN_PANEL + lane;
    for (int64_t k = 0; k < w->n_in; k++) {
        if (w->format == ATTN_PANEL_F32) {
            out[k] = ((const float *)w->values)[base + k * ATTN_PANEL];
        } else if (w->format == ATTN_PANEL_P16) {
            const int64_t at = panel * attn_pair_inputs(w->n_in) * ATTN_PANEL + k / 2 * 2 * ATTN_PANEL + 2 * lane + k % 2;
            out[k] = attn_bf16_to_f32(((const uint16_t *)w->values)[at]);
        } else if (w->format == ATTN_PANEL_BF16) {
            out[k] = attn_bf16_to_f32(((const uint16_t *)w->values)[base + k * ATTN_PANEL]);
        } else if (w->format == ATTN_PANEL_F16) {
            out[k] = attn_f16_to_f32(((const uint16_t *)w->values)[base + k * ATTN_PANEL]);
        } else {
            const int64_t at = (panel * attn_panel_scales(w) + k / w->scale_block) * ATTN_PANEL + lane;
            float q, min = w->has_min ? attn_panel_get_scale(w, w->mins, at) : 0.0f;
            if (w->format != ATTN_PANEL_U4)
                q = (float)((const int8_t *)w->values)[attn_panel_i8_at(w, panel, lane, k)];
            else
                q = (float)((attn_panel_u4_words(w, panel, k / 32, lane)[k % 4 * ATTN_PANEL] >> (k % 32 / 4 * 4)) & 15);
            out[k] = q * attn_panel_get_scale(w, w->scales, at) + min; /* the product is exact (nn_kernels.h) */
            out[k] *= linear->balance ? linear->balance[k] : 1.0f;
        }
    }
}
