/* linear_panels.h - where a number lies inside packed panels (kernels/nn/nn_kernels.h), for those who fill them. */
#ifndef ATTN_OPS_NN_LINEAR_PANELS_H
#define ATTN_OPS_NN_LINEAR_PANELS_H

#include <stdint.h>
#include "core/half.h"
#include "kernels/nn/nn_dot.h"

static inline int64_t attn_panel_scales(const attn_panels *w)
{
    return (w->n_in + w->scale_block - 1) / w->scale_block;
}

static inline void attn_panel_put_scale(const attn_panels *w, void *scales, int64_t at, float value)
{
    if (w->half_scales)
        ((uint16_t *)scales)[at] = attn_f32_to_f16(value);
    else
        ((float *)scales)[at] = value;
}

static inline float attn_panel_get_scale(const attn_panels *w, const void *scales, int64_t at)
{
    return w->half_scales ? attn_f16_to_f32(((const uint16_t *)scales)[at]) : ((const float *)scales)[at];
}

/* Number k of a row in I8 and D8 panels. */
static inline int64_t attn_panel_i8_at(const attn_panels *w, int64_t panel, int64_t lane, int64_t k)
{
    if (w->format == ATTN_PANEL_I8)
        return (panel * w->n_in + k) * ATTN_PANEL + lane;
    const int64_t place = k / 32 * 32 + attn_dot_place(k % 32);
    return panel * attn_panel_bytes(w->format, w->n_in) + place / 4 * 4 * ATTN_PANEL + lane * 4 + place % 4;
}

/* 32 nibbles, one per byte, as the 4 words of one lane. */
static inline void attn_panel_put_nibbles(uint32_t *words, const uint8_t *q)
{
    for (int g = 0; g < 4; g++) {
        uint32_t word = 0;
        for (int j = 0; j < 8; j++)
            word |= (uint32_t)q[4 * j + g] << (4 * j);
        words[g * ATTN_PANEL] = word;
    }
}

static inline uint32_t *attn_panel_u4_words(const attn_panels *w, int64_t panel, int64_t block, int64_t lane)
{
    return (uint32_t *)w->values + panel * (w->n_in * ATTN_PANEL / 8) + block * 4 * ATTN_PANEL + lane;
}

#endif
