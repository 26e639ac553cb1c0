/* linear_blocks.c - GGUF blocks into panels. The formats are written in io/dequant.h. */
#include "models/linear_blocks.h"
#include <string.h>
#include "core/half.h"
#include "io/bytes.h"
#include "ops/nn/linear_panels.h"

attn_linear_format attn_linear_format_of(uint32_t ggml_type, int64_t n_in)
{
    const attn_linear_format f32 = {.format = ATTN_PANEL_F32};
    if (ggml_type == ATTN_GGML_F16)
        return (attn_linear_format){.format = ATTN_PANEL_F16};
    if (ggml_type == ATTN_GGML_BF16)
        return (attn_linear_format){.format = ATTN_PANEL_BF16};
    if (n_in % ATTN_PANEL_BLOCK)
        return f32;
    switch (ggml_type) {
    case ATTN_GGML_Q4_0:
    case ATTN_GGML_Q4_1:
        return (attn_linear_format){ATTN_PANEL_U4, 32, 1, 1};
    case ATTN_GGML_Q4_K:
        return (attn_linear_format){ATTN_PANEL_U4, 32, 0, 1};
    case ATTN_GGML_Q8_0:
    case ATTN_GGML_Q5_0:
        return (attn_linear_format){ATTN_PANEL_I8, 32, 1, 0};
    case ATTN_GGML_Q5_1:
        return (attn_linear_format){ATTN_PANEL_I8, 32, 1, 1};
    case ATTN_GGML_Q5_K:
        return (attn_linear_format){ATTN_PANEL_I8, 32, 0, 1};
    case ATTN_GGML_Q6_K:
        return (attn_linear_format){ATTN_PANEL_I8, 16, 0, 0};
    default:
        return f32;
    }
}

static float read_f16(const uint8_t *p)
{
    return attn_f16_to_f32(attn_read_u16(p));
}

/* 32 numbers as q * scale[k / scale_block] + min. */
typedef struct block32 {
    int8_t q[ATTN_PANEL_BLOCK];
    float scale[2], min;
} block32;

static void fifth_bits(const uint8_t *p, const uint8_t *nibbles, int8_t *q, int bias)
{
    const uint32_t high = attn_read_u32(p);
    for (int k = 0; k < 16; k++) {
        q[k] = (int8_t)((int)((nibbles[k] & 15) | ((high >> k) & 1) << 4) - bias);
        q[k + 16] = (int8_t)((int)((nibbles[k] >> 4) | ((high >> (k + 16)) & 1) << 4) - bias);
    }
}

/* 6-bit scale and min of sub-block j of Q4_K and Q5_K. */
static void k_scale_min(const uint8_t *s, int64_t j, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
    }
}

static void read_k45(const uint8_t *super, int64_t j, bool five, block32 *out)
{
    int scale, min;
    k_scale_min(super + 4, j, &scale, &min);
    out->scale[0] = out->scale[1] = read_f16(super) * (float)scale;
    out->min = -(read_f16(super + 2) * (float)min);
    const uint8_t *high = super + 16, *low = super + (five ? 48 : 16) + j / 2 * 32;
    for (int k = 0; k < ATTN_PANEL_BLOCK; k++) {
        int q = j % 2 ? low[k] >> 4 : low[k] & 15;
        if (five)
            q |= ((high[k] >> j) & 1) << 4;
        out->q[k] = (int8_t)q;
    }
}

static void read_q6k(const uint8_t *super, int64_t j, block32 *out)
{
    /* half h of 128 numbers has 64 low bytes and 32 high bytes; its quarter r takes nibble r / 2 and bit pair r */
    const int64_t h = j / 4, r = j % 4;
    const uint8_t *low = super + h * 64 + r % 2 * 32, *high = super + 128 + h * 32;
    const uint8_t *scales = super + 192 + h * 8 + r * 2;
    const float d = read_f16(super + 208);
    for (int k = 0; k < ATTN_PANEL_BLOCK; k++) {
        int q = (r < 2 ? low[k] & 15 : low[k] >> 4) | ((high[k] >> (2 * r)) & 3) << 4;
        out->q[k] = (int8_t)(q - 32);
    }
    out->scale[0] = d * (float)(int8_t)scales[0];
    out->scale[1] = d * (float)(int8_t)scales[1];
    out->min = 0;
}

/* Block b (of 32 numbers) of a row. */
static void read_block(uint32_t type, const uint8_t *row, int64_t b, block32 *out)
{
    const uint8_t *p;
    out->min = 0;
    switch (type) {
    case ATTN_GGML_Q5_0:
        p = row + b * 22;
        out->scale[0] = out->scale[1] = read_f16(p);
        fifth_bits(p + 2, p + 6, out->q, 16);
        break;
    case ATTN_GGML_Q5_1:
        p = row + b * 24;
        out->scale[0] = out->scale[1] = read_f16(p);
        out->min = read_f16(p + 2);
        fifth_bits(p + 4, p + 8, out->q, 0);
        break;
    case ATTN_GGML_Q4_K:
        read_k45(row + b / 8 * 144, b % 8, false, out);
        break;
    case ATTN_GGML_Q5_K:
        read_k45(row + b / 8 * 176, b % 8, true, out);
        break;
    default:
        read_q6k(row + b / 8 * 210, b % 8, out);
        break;
    }
}

static void put_block(attn_panels *w, int64_t panel, int64_t lane, int64_t b, const block32 *block)
{
    const int64_t n_scales = attn_panel_scales(w), per_block = ATTN_PANEL_BLOCK / w->scale_block;
    if (w->format == ATTN_PANEL_U4) {
        uint8_t q[ATTN_PANEL_BLOCK];
        memcpy(q, block->q, sizeof q);
        attn_panel_put_nibbles(attn_panel_u4_words(w, panel, b, lane), q);
    } else {
        for (int k = 0; k < ATTN_PANEL_BLOCK; k++)
            ((int8_t *)w->values)[attn_panel_i8_at(w, panel, lane, b * ATTN_PANEL_BLOCK + k)] = block->q[k];
    }
    for (int64_t i = 0; i < per_block; i++) {
        int64_t at = (panel * n_scales + b * per_block + i) * ATTN_PANEL + lane;
        attn_panel_put_scale(w, w->scales, at, block->scale[i]);
        if (w->has_min)
            attn_panel_put_scale(w, w->mins, at, block->min);
    }
}

/* Q4_0 and Q4_1: byte 4 i + g holds numbers 4 i + g (low) and 16 + 4 i + g (high): nibbles i and 4 + i of word g. */
static void put_q4(attn_panels *w, int64_t panel, int64_t lane, int64_t b, const uint8_t *p, bool has_min)
{
    const int64_t at = (panel * attn_panel_scales(w) + b) * ATTN_PANEL + lane;
    uint32_t *words = attn_panel_u4_words(w, panel, b, lane);
    const uint8_t *nibbles = p + (has_min ? 4 : 2);
    for (int g = 0; g < 4; g++) {
        uint32_t word = 0;
        for (int i = 0; i < 4; i++) {
            uint32_t byte = nibbles[4 * i + g];
            word |= (byte & 15) << (4 * i) | (byte >> 4) << (16 + 4 * i);
        }
        words[g * ATTN_PANEL] = word;
    }
    ((uint16_t *)w->scales)[at] = attn_read_u16(p);
    ((uint16_t *)w->mins)[at] = has_min ? attn_read_u16(p + 2) : attn_f32_to_f16(-8.0f * read_f16(p));
}

static void put_q8(attn_panels *w, int64_t panel, int64_t lane, int64_t b, const uint8_t *p)
{
    for (int k = 0; k < ATTN_PANEL_BLOCK; k++)
        ((int8_t *)w->values)[attn_panel_i8_at(w, panel, lane, b * ATTN_PANEL_BLOCK + k)] = (int8_t)p[2 + k];
    ((uint16_t *)w->scales)[(panel * attn_panel_scales(w) + b) * ATTN_PANEL + lane] = attn_read_u16(p);
}

bool attn_linear_pack_blocks(attn_linear *linear, int64_t first, int64_t count, uint32_t ggml_type,
                             const uint8_t *data, int64_t row_bytes)
{
    attn_panels *w = &linear->w;
    const attn_linear_format want = attn_linear_format_of(ggml_type, w->n_in);
    const bool same = want.format == w->format || (want.format == ATTN_PANEL_I8 && w->format == ATTN_PANEL_D8);
    if (linear->balance || want.format < ATTN_PANEL_I8 || !same || want.scale_block != w->scale_block ||
        want.half_scales != w->half_scales || want.has_min != w->has_min)
        return false;
    for (int64_t panel = first; panel < first + count; panel++)
        for (int64_t b = 0; b < w->n_in / ATTN_PANEL_BLOCK; b++)
            for (int64_t lane = 0; lane < ATTN_PANEL; lane++) {
                const int64_t n = panel * ATTN_PANEL + lane;
                const uint8_t *row = data + n * row_bytes;
                block32 block = {{0}, {0, 0}, 0};
                if (n >= w->n_out) {
                    put_block(w, panel, lane, b, &block);
                } else if (ggml_type == ATTN_GGML_Q4_1) {
                    put_q4(w, panel, lane, b, row + b * 20, true);
                } else if (ggml_type == ATTN_GGML_Q4_0) {
                    put_q4(w, panel, lane, b, row + b * 18, false);
                } else if (ggml_type == ATTN_GGML_Q8_0) {
                    put_q8(w, panel, lane, b, row + b * 34);
                } else {
                    read_block(ggml_type, row, b, &block);
                    put_block(w, panel, lane, b, &block);
                }
            }
    return true;
}
