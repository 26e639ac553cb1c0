/* heat.h - the colours of weights, and a head's matrix made small. */
#ifndef ATTN_VIZ_HEAT_H
#define ATTN_VIZ_HEAT_H

#include "attn/inspect.h"

/* 0xRRGGBB of n even steps of lightness from light yellow (weight 0) over green to dark violet (weight 1), in OKLCH: told
 * apart without red and green, and in grey. page/colour.js has the same formula. */
void attn_heat_ramp(uint32_t *colours, int n);

/* The largest weight of each cell of a head's matrix in size x size cells, readers down: out[size * size]. Where there are
 * fewer rows or keys than cells, one fills several. */
void attn_heat_pool(const attn_inspect_map *map, int64_t head, int64_t size, float *out);

#endif
