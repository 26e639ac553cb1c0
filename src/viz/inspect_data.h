/* inspect_data.h - an inspection as JSON. */
#ifndef ATTN_VIZ_INSPECT_DATA_H
#define ATTN_VIZ_INSPECT_DATA_H

#include "attn/viz.h"
#include "viz/text_out.h"

/* Numbers for every key of every head are written up to this many; else the largest readings of `at` alone. */
#define ATTN_DATA_DENSE 4000000
#define ATTN_DATA_AT    512 /* of each head */

/* Does the page hold the weights of a map with 16 bits? Else with 8. A focus is of one head. */
static inline bool attn_data_exact(const attn_inspect_map *map)
{
    const int64_t heads = map->n_layers * map->n_heads;
    return heads == 1 || map->starts[heads * map->n_rows] <= 200000;
}

/* A weight as 8 bits: 24 steps for each halving, from 1 down to 1/1579. */
int attn_data_code(float weight);
/* The least weight of a map that the page holds: where it does with 8 bits, so that about 1,500,000 are left. */
float attn_data_least(const attn_inspect_map *map);

/* Cells across a thumbnail of the page: one for each token of a short text. */
static inline int64_t attn_data_thumb(const attn_inspect_map *map)
{
    const int64_t n = map->n_keys > map->n_queries ? map->n_keys : map->n_queries;
    return n < 32 ? n : 32;
}

/* for_page: without the arrays of the maps, which the page holds packed (inspect_page.c). */
void attn_inspect_data(attn_text_out *out, const attn_model *model, const attn_inspection *in, const char *title,
                       bool for_page);

#endif
