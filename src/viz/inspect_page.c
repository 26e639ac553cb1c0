/* inspect_page.c - an inspection as one HTML page: the data as JSON, the arrays of its maps packed beside it, in blocks
 * that the script reads when a view needs them:
 *
 *     q<map>          queries whose rows are kept, as gaps; missing: all of them
 *     r<map>.<layer>  rows of its heads, see put_row
 *     a<map>          the row of `at` of every head: scales of sizes and directs (f32), a count, then gap, 16-bit weight,
 *                     size of what is moved (8 bits of its scale) and direct effect (8 bits, signed)
 *     n<map>          for every head the two scales, then the size for every key, then the direct effect for every key
 *     t<map>          thumbnails, 8 bits of the root of the weight
 *
 * Counts and gaps are LEB128 numbers, all of it in base64. Maps count from 0; the focus is map 3. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "inspect/collect.h"
#include "viz/heat.h"
#include "viz/inspect_data.h"
#include "viz/page_assets.h"

enum {
    MOST_THUMB = 32,
    MOST_DENSE = 1500000, /* heads times keys up to which every key's size is kept */
    FOCUS = 3
};
#define LEAST_AT 1e-4f /* of the weights that `at` reads */

/* ---- Bytes ---- */

static void put_byte(attn_text_out *block, uint8_t byte)
{
    attn_out_bytes(block, &byte, 1);
}

static void put_number(attn_text_out *block, uint64_t n)
{
    for (; n > 127; n >>= 7)
        put_byte(block, (uint8_t)(n & 127) | 128);
    put_byte(block, (uint8_t)n);
}

static void put_16(attn_text_out *block, float weight)
{
    const long code = lrintf(65535 * fminf(weight, 1));
    put_byte(block, (uint8_t)(code & 255));
    put_byte(block, (uint8_t)(code >> 8));
}

static void put_f32(attn_text_out *block, float x)
{
    attn_out_bytes(block, &x, sizeof x); /* little-endian, as every machine here and every browser */
}

static float largest_of(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; x && i < n; i++)
        most = fmaxf(most, fabsf(x[i]));
    return most;
}

static void put_scaled(attn_text_out *block, const float *x, int64_t i, float most, int steps)
{
    const float share = x && most > 0 && isfinite(x[i]) ? x[i] / most : 0;
    put_byte(block, (uint8_t)(int8_t)lrintf(share * (float)steps));
}

/* ---- Blocks ---- */

static void put_block(attn_text_out *out, char kind, int map, int64_t layer, attn_text_out *block)
{
    attn_out_format(out, layer < 0 ? "<script type=\"text/plain\" id=\"%c%d\">" : "<script type=\"text/plain\" id=\"%c%d.%lld\">",
                    kind, map, (long long)layer);
    attn_out_base64(out, block->text, block->bytes);
    attn_out_format(out, "</script>\n");
    out->failed |= block->failed;
    free(block->text);
}

static void queries_block(attn_text_out *out, const attn_inspect_map *map, int id)
{
    attn_text_out block = {0};
    if (map->n_rows == map->n_queries)
        return;
    for (int64_t r = 0, next = 0; r < map->n_rows; next = map->queries[r++] + 1)
        put_number(&block, (uint64_t)(map->queries[r] - next));
    put_block(out, 'q', id, -1, &block);
}

/* One row: 8 times the first key plus its number of weights (7: the rest of the number follows), the weight, then gaps and
 * weights. Most rows have few weights and begin at key 0: their first number takes one byte. */
static void put_row(attn_text_out *block, const attn_inspect_map *map, int64_t row, float least, bool exact)
{
    const int64_t begin = map->starts[row], end = map->starts[row + 1];
    int64_t count = 0, next = 0;
    bool first = true;
    for (int64_t i = begin; i < end; i++)
        count += map->weights[i] >= least;
    if (count == 0)
        put_number(block, 0);
    for (int64_t i = begin; i < end; i++) {
        if (map->weights[i] < least)
            continue;
        const uint64_t gap = (uint64_t)(map->keys[i] - next);
        put_number(block, first ? 8 * gap + (uint64_t)(count < 7 ? count : 7) : gap);
        if (first && count >= 7)
            put_number(block, (uint64_t)(count - 7));
        if (exact)
            put_16(block, map->weights[i]);
        else
            put_byte(block, (uint8_t)attn_data_code(map->weights[i]));
        next = map->keys[i] + 1;
        first = false;
    }
}

static void rows_block(attn_text_out *out, const attn_inspect_map *map, int id, int64_t layer, float least, bool exact)
{
    attn_text_out block = {0};
    for (int64_t row = layer * map->n_heads * map->n_rows; row < (layer + 1) * map->n_heads * map->n_rows; row++)
        put_row(&block, map, row, least, exact);
    put_block(out, 'r', id, layer, &block);
}

static void at_block(attn_text_out *out, const attn_inspect_map *map, int id)
{
    const int64_t heads = map->n_layers * map->n_heads, n = map->n_keys;
    int64_t *order = malloc((size_t)n * sizeof *order);
    attn_text_out block = {0};
    out->failed |= !order;
    for (int64_t h = 0; h < heads && order; h++) {
        const float *w = map->at_rows + h * n, *norms = map->value_norms + h * n;
        const float *directs = map->value_directs ? map->value_directs + h * n : NULL;
        const float norm = largest_of(norms, n), direct = largest_of(directs, n);
        const int64_t kept = attn_inspect_largest(w, n, ATTN_DATA_AT, n > 64 ? LEAST_AT : 0, order);
        put_f32(&block, norm);
        put_f32(&block, direct);
        put_number(&block, (uint64_t)kept);
        for (int64_t i = 0, next = 0; i < kept; next = order[i++] + 1) {
            put_number(&block, (uint64_t)(order[i] - next));
            put_16(&block, w[order[i]]);
            put_byte(&block, (uint8_t)lrintf(norm > 0 ? 255 * norms[order[i]] / norm : 0));
            put_scaled(&block, directs, order[i], direct, 127);
        }
    }
    free(order);
    put_block(out, 'a', id, -1, &block);
}

static void sizes_block(attn_text_out *out, const attn_inspect_map *map, int id)
{
    const int64_t heads = map->n_layers * map->n_heads, n = map->n_keys;
    attn_text_out block = {0};
    if (heads * n > MOST_DENSE)
        return;
    for (int64_t h = 0; h < heads; h++) {
        const float *norms = map->value_norms + h * n, *directs = map->value_directs ? map->value_directs + h * n : NULL;
        const float norm = largest_of(norms, n), direct = largest_of(directs, n);
        put_f32(&block, norm);
        put_f32(&block, direct);
        for (int64_t j = 0; j < n; j++)
            put_byte(&block, (uint8_t)lrintf(norm > 0 ? 255 * norms[j] / norm : 0));
        for (int64_t j = 0; j < n && directs; j++)
            put_scaled(&block, directs, j, direct, 127);
    }
    put_block(out, 'n', id, -1, &block);
}

static void thumbs_block(attn_text_out *out, const attn_inspect_map *map, int id)
{
    float cells[MOST_THUMB * MOST_THUMB];
    const int64_t size = attn_data_thumb(map);
    attn_text_out block = {0};
    for (int64_t h = 0; h < map->n_layers * map->n_heads; h++) {
        attn_heat_pool(map, h, size, cells);
        for (int i = 0; i < size * size; i++)
            put_byte(&block, (uint8_t)lrintf(255 * sqrtf(fminf(cells[i], 1))));
    }
    put_block(out, 't', id, -1, &block);
}

static void map_blocks(attn_text_out *out, const attn_inspect_map *map, int id)
{
    const float least = attn_data_least(map);
    queries_block(out, map, id);
    for (int64_t l = 0; l < map->n_layers; l++)
        rows_block(out, map, id, l, least, attn_data_exact(map));
    if (map->at_rows && map->value_norms)
        at_block(out, map, id);
    if (map->value_norms)
        sizes_block(out, map, id);
    thumbs_block(out, map, id);
}

/* ---- The page ---- */

attn_status attn_inspect_html(const attn_model *model, const attn_inspection *inspection, const char *title, char **text,
                              size_t *bytes)
{
    static const char head[] = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                               "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
                               "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                               "script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:\">"
                               "<link rel=\"icon\" href=\"data:,\"><title>attn</title><style>\n";
    attn_text_out out = {0};
    if (!model || !inspection || !text || !bytes)
        return ATTN_ERR_INVALID_ARGUMENT;
    *text = NULL;
    attn_out_bytes(&out, head, sizeof head - 1);
    attn_out_bytes(&out, attn_asset_css, attn_asset_css_bytes);
    attn_out_format(&out, "</style></head><body>\n");
    attn_out_bytes(&out, attn_asset_html, attn_asset_html_bytes);
    attn_out_format(&out, "<script type=\"application/json\" id=\"data\">");
    attn_inspect_data(&out, model, inspection, title, true);
    attn_out_format(&out, "</script>\n");
    for (int m = 0; m < inspection->n_maps; m++)
        map_blocks(&out, &inspection->maps[m], m);
    if (inspection->focus)
        map_blocks(&out, inspection->focus, FOCUS);
    attn_out_format(&out, "<script>");
    attn_out_bytes(&out, attn_asset_js, attn_asset_js_bytes);
    attn_out_format(&out, "</script></body></html>\n");
    if (out.failed) {
        free(out.text);
        return ATTN_ERR_OUT_OF_MEMORY;
    }
    *text = out.text;
    *bytes = out.bytes;
    return ATTN_OK;
}
