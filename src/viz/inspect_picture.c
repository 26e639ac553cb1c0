/* inspect_picture.c - an inspection as SVG and as PNG: one head's matrix, or all heads as thumbnails, with a legend. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attn/viz.h"
#include "viz/heat.h"
#include "viz/picture.h"
#include "viz/png_write.h"
#include "viz/text_out.h"

enum { WHITE, INK, GREY, N_PLAIN, N_HEAT = 256 - N_PLAIN };
enum {
    THUMB = 32,       /* pixels of a thumbnail, and twice as many units of the SVG */
    GAP = 4,
    LEFT = 40,        /* room for numbers */
    TOP = 44,
    MATRIX = 640,     /* at most, of one head */
    LEGEND = 160,
    MOST_LABELS = 64, /* tokens that are written beside a matrix */
    MOST_RECTS = 40000
};

static void make_palette(uint32_t palette[256])
{
    palette[WHITE] = 0xFFFFFF;
    palette[INK] = 0x1B1E23;
    palette[GREY] = 0xE9ECF0;
    attn_heat_ramp(palette + N_PLAIN, N_HEAT);
}

/* The square root spreads small weights; the legend says so. */
static uint8_t heat(double weight)
{
    const double t = sqrt(fmin(1, fmax(0, weight)));
    return (uint8_t)(N_PLAIN + lround(t * (N_HEAT - 1)));
}

static bool sees(const attn_inspect_map *map, int64_t query, int64_t key)
{
    return map->encoder || map->attention != ATTN_ATTENTION_SELF || key <= query;
}

/* ---- Pixels ---- */

/* All heads, layers down; `step` pixels each. */
static attn_status draw_thumbs(attn_picture *p, const attn_inspect_map *map, int left, int top, int thumb, int gap)
{
    float *cells = malloc((size_t)thumb * (size_t)thumb * sizeof *cells);
    if (!cells)
        return ATTN_ERR_OUT_OF_MEMORY;
    for (int64_t h = 0; h < map->n_layers * map->n_heads; h++) {
        const int x0 = left + (int)(h % map->n_heads) * (thumb + gap), y0 = top + (int)(h / map->n_heads) * (thumb + gap);
        attn_heat_pool(map, h, thumb, cells);
        for (int y = 0; y < thumb; y++)
            for (int x = 0; x < thumb; x++)
                attn_picture_box(p, x0 + x, y0 + y, 1, 1, heat((double)cells[y * thumb + x]));
    }
    free(cells);
    return ATTN_OK;
}

/* One head: a cell for each reader and key where they fit, else the largest weights of what falls together. */
static attn_status draw_matrix(attn_picture *p, const attn_inspect_map *map, int64_t head, int left, int top, int size)
{
    const int64_t n = map->n_keys > map->n_queries ? map->n_keys : map->n_queries;
    const int64_t cell = n <= size ? size / n : 1, rows = map->n_queries * cell, columns = map->n_keys * cell;
    if (n > size) {
        float *cells = malloc((size_t)size * (size_t)size * sizeof *cells);
        if (!cells)
            return ATTN_ERR_OUT_OF_MEMORY;
        attn_heat_pool(map, head, size, cells);
        for (int y = 0; y < size; y++)
            for (int x = 0; x < size; x++) {
                const bool seen = sees(map, (y + 1) * map->n_queries / size, x * map->n_keys / size);
                attn_picture_box(p, left + x, top + y, 1, 1, seen ? heat((double)cells[y * size + x]) : GREY);
            }
        free(cells);
        return ATTN_OK;
    }
    attn_picture_box(p, left, top, (int)columns, (int)rows, GREY);
    for (int64_t i = 0; i < map->n_queries; i++)
        for (int64_t j = 0; j < map->n_keys; j++)
            if (sees(map, i, j))
                attn_picture_box(p, left + (int)(j * cell), top + (int)(i * cell), (int)cell, (int)cell, heat(0));
    for (int64_t r = 0; r < map->n_rows; r++)
        for (int64_t i = map->starts[head * map->n_rows + r]; i < map->starts[head * map->n_rows + r + 1]; i++)
            attn_picture_box(p, left + (int)(map->keys[i] * cell), top + (int)(map->queries[r] * cell), (int)cell,
                             (int)cell, heat((double)map->weights[i]));
    return ATTN_OK;
}

static void png_legend(attn_picture *p, int x, int y)
{
    attn_picture_text(p, x, y, 0, "weight 0", INK);
    for (int i = 0; i < LEGEND; i++) {
        const double t = (double)i / (LEGEND - 1);
        attn_picture_box(p, x + 72 + i, y, 1, 10, heat(t * t));
    }
    attn_picture_line(p, x + 72 + LEGEND / 2, y + 10, x + 72 + LEGEND / 2, y + 13, INK);
    attn_picture_text(p, x + 72 + LEGEND / 2, y + 15, 1, "0.25", INK);
    attn_picture_text(p, x + 80 + LEGEND, y, 0, "1", INK);
}

/* Numbers along both sides, at most one for each 26 pixels. */
static void png_numbers(attn_picture *p, int left, int top, int64_t across, int64_t down, double step)
{
    char text[24];
    int64_t every = 1;
    for (int64_t more = 2; step * (double)every < 26; every *= more, more = more == 2 ? 5 : 2)
        ;
    for (int64_t i = 0; i < (across > down ? across : down); i += every) {
        const int at = (int)(step * ((double)i + 0.5));
        snprintf(text, sizeof text, "%lld", (long long)i);
        if (i < across)
            attn_picture_text(p, left + at, top - 14, 1, text, INK);
        if (i < down)
            attn_picture_text(p, left - 6, top + at - 5, 2, text, INK);
    }
}

static attn_status draw_png(attn_picture *p, const attn_inspect_map *map, int64_t layer, int64_t head)
{
    const bool one = layer >= 0 && head >= 0;
    const int64_t n = map->n_keys > map->n_queries ? map->n_keys : map->n_queries;
    const int side = one ? (int)(n <= MATRIX ? MATRIX / n * n : MATRIX) : 0;
    char text[64];
    p->width = LEFT + (one ? side : (int)map->n_heads * (THUMB + GAP)) + 12;
    p->width = p->width < 380 ? 380 : p->width;
    p->height = TOP + (one ? side : (int)map->n_layers * (THUMB + GAP)) + 44;
    p->pixels = calloc((size_t)p->width * (size_t)p->height, 1);
    if (!p->pixels)
        return ATTN_ERR_OUT_OF_MEMORY;
    snprintf(text, sizeof text, one ? "layer %lld head %lld: key across" : "head across, layer down", (long long)layer,
             (long long)head);
    attn_picture_text(p, LEFT, 8, 0, text, INK);
    png_legend(p, LEFT, p->height - 30);
    if (one) {
        png_numbers(p, LEFT, TOP, map->n_keys, map->n_queries, (double)side / (double)n);
        return draw_matrix(p, map, layer * map->n_heads + head, LEFT, TOP, side);
    }
    png_numbers(p, LEFT, TOP, map->n_heads, map->n_layers, THUMB + GAP);
    return draw_thumbs(p, map, LEFT, TOP, THUMB, GAP);
}

static const attn_inspect_map *map_of(const attn_inspection *in, int64_t *layer, int64_t head)
{
    if (!in->focus || *layer != in->layer || head != in->head)
        return &in->maps[in->n_maps > 1 ? 1 : 0]; /* a decoder's own where there are three */
    *layer = 0;
    return in->focus;
}

static attn_status check(const attn_model *model, const attn_inspection *in, int64_t layer, int64_t head, char **text,
                         const size_t *bytes)
{
    if (!model || !in || !text || !bytes)
        return ATTN_ERR_INVALID_ARGUMENT;
    *text = NULL;
    const attn_inspect_map *map = &in->maps[in->n_maps > 1 ? 1 : 0];
    return layer >= map->n_layers || head >= map->n_heads ? ATTN_ERR_INVALID_ARGUMENT : ATTN_OK;
}

attn_status attn_inspect_png(const attn_model *model, const attn_inspection *inspection, int64_t layer, int64_t head,
                             char **text, size_t *bytes)
{
    attn_picture p = {NULL, 0, 0};
    uint32_t palette[256];
    attn_status status = check(model, inspection, layer, head, text, bytes);
    if (status != ATTN_OK)
        return status;
    make_palette(palette);
    const attn_inspect_map *map = map_of(inspection, &layer, head);
    status = draw_png(&p, map, layer, map == inspection->focus ? 0 : head);
    if (status == ATTN_OK) {
        *text = (char *)attn_png_encode(p.pixels, p.width, p.height, palette, 256, bytes);
        status = *text ? ATTN_OK : ATTN_ERR_OUT_OF_MEMORY;
    }
    free(p.pixels);
    return status;
}

/* ---- SVG ---- */

typedef struct svg {
    attn_text_out out;
    const attn_model *model;
    const attn_inspection *in;
    const attn_inspect_map *map;
    uint32_t palette[256];
} svg;

static void svg_legend(svg *s, double x, double y)
{
    attn_out_format(&s->out, "<text x=\"%.0f\" y=\"%.0f\">weight 0</text>", x, y + 11);
    for (int i = 0; i < 40; i++)
        attn_out_format(&s->out, "<rect x=\"%.1f\" y=\"%.0f\" width=\"4.2\" height=\"12\" fill=\"#%06x\"/>", x + 58 + 4 * i, y,
                        (unsigned)s->palette[heat(i / 39.0 * i / 39.0)]);
    attn_out_format(&s->out, "<text x=\"%.0f\" y=\"%.0f\">1</text><text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">"
                    "0.25</text>\n", x + 224, y + 11, x + 138, y + 26);
}

static void svg_label(svg *s, int32_t id, double x, double y, bool turned)
{
    char text[64], shown[256];
    size_t n = 0;
    if (attn_model_detokenize(s->model, &id, 1, 0, text, sizeof text, &n) != ATTN_OK)
        n = 0;
    attn_text_visible(text, n < sizeof text ? n : sizeof text, 14, shown, sizeof shown, NULL);
    attn_out_format(&s->out, turned ? "<text transform=\"translate(%.1f,%.1f) rotate(-90)\">"
                                    : "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", x, y);
    for (const char *c = shown; *c; c++)
        if (strchr("<>&\"", *c))
            attn_out_format(&s->out, "&#%d;", *c);
        else
            attn_out_bytes(&s->out, c, 1);
    attn_out_format(&s->out, "</text>");
}

static void svg_cells(svg *s, int64_t head, double left, double top, double cell)
{
    const attn_inspect_map *map = s->map;
    int64_t drawn = 0;
    for (int64_t r = 0; r < map->n_rows; r++)
        for (int64_t i = map->starts[head * map->n_rows + r]; i < map->starts[head * map->n_rows + r + 1]; i++) {
            const double w = (double)map->weights[i], x = left + cell * map->keys[i], y = top + cell * map->queries[r];
            if (w < 0.002 || drawn++ >= MOST_RECTS)
                continue;
            attn_out_format(&s->out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"#%06x\">"
                            "<title>%.4f</title></rect>", x, y, fmax(cell, 0.6), fmax(cell, 0.6),
                            (unsigned)s->palette[heat(w)], w);
            if (cell >= 26)
                attn_out_format(&s->out, "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"middle\" fill=\"%s\" font-size=\"11\">"
                                "%.2f</text>", x + cell / 2, y + cell / 2 + 4, w > 0.2 ? "#fff" : "#111", w);
        }
}

/* The pairs that count: keys up to the reader. */
static void svg_stairs(svg *s, double left, double top, double cell)
{
    const int64_t n = s->map->n_queries, step = n / 512 + 1; /* of a long text some rows together */
    attn_out_format(&s->out, "<path fill=\"#%06x\" d=\"M%.2f,%.2f", (unsigned)s->palette[heat(0)], left, top);
    for (int64_t q = 0; q < n; q += step)
        attn_out_format(&s->out, "H%.2fv%.2f", left + cell * (double)(q + step < n ? q + step : n), cell * (double)step);
    attn_out_format(&s->out, "H%.2fz\"/>\n", left);
}

static void svg_head(svg *s, int64_t layer, int64_t head, int64_t stored)
{
    const attn_inspect_map *map = s->map;
    const int64_t n = map->n_keys > map->n_queries ? map->n_keys : map->n_queries;
    const bool labels = n <= MOST_LABELS, cross = map->attention == ATTN_ATTENTION_CROSS;
    const double left = labels ? 120 : 24, size = fmin(600, 56 * (double)n), cell = size / (double)n;
    const double rows = cell * (double)map->n_queries, columns = cell * (double)map->n_keys;
    const int32_t *readers = s->in->n_maps > 1 && !map->encoder ? s->in->target : s->in->tokens;
    const int32_t *read = cross ? s->in->tokens : readers;
    attn_out_format(&s->out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" "
                    "font-size=\"12\" fill=\"#1b1e23\"><rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
                    "<text x=\"%.0f\" y=\"18\" font-size=\"14\">layer %lld, head %lld: readers down, what is read across</text>\n",
                    left + fmax(size, 320) + 16, left + 30 + rows + 60, 12.0, (long long)layer, (long long)head);
    const double top = left + 30;
    if (map->encoder || cross)
        attn_out_format(&s->out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"#%06x\"/>", left, top,
                        columns, rows, (unsigned)s->palette[heat(0)]);
    else
        svg_stairs(s, left, top, cell);
    svg_cells(s, stored, left, top, cell);
    for (int64_t i = 0; labels && i < map->n_queries; i++)
        svg_label(s, readers[i], left - 6, top + cell * ((double)i + 0.5) + 4, false);
    for (int64_t i = 0; labels && i < map->n_keys; i++)
        svg_label(s, read[i], left + cell * ((double)i + 0.5) + 4, top - 6, true);
    attn_out_format(&s->out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"none\" stroke=\"#999\" "
                    "stroke-width=\"0.5\"/>\n", left, top, columns, rows);
    svg_legend(s, left, top + rows + 18);
}

/* The thumbnails are one picture inside: a rectangle for each weight of each head would be tens of megabytes. */
static attn_status svg_thumbs(svg *s)
{
    const attn_inspect_map *map = s->map;
    const int scale = 2, step = scale * (THUMB + GAP);
    const int width = (int)map->n_heads * (THUMB + GAP), height = (int)map->n_layers * (THUMB + GAP);
    attn_picture p = {calloc((size_t)width * (size_t)height, 1), width, height};
    size_t bytes = 0;
    attn_status status = p.pixels ? draw_thumbs(&p, map, 0, 0, THUMB, GAP) : ATTN_ERR_OUT_OF_MEMORY;
    uint8_t *png = status == ATTN_OK ? attn_png_encode(p.pixels, width, height, s->palette, 256, &bytes) : NULL;
    free(p.pixels);
    if (!png)
        return ATTN_ERR_OUT_OF_MEMORY;
    attn_out_format(&s->out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
                    "font-size=\"12\" fill=\"#1b1e23\"><rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
                    "<text x=\"12\" y=\"18\" font-size=\"14\">every layer (down) and head (across)</text>\n"
                    "<image x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" style=\"image-rendering:pixelated\" "
                    "href=\"data:image/png;base64,", LEFT + (width * scale > 320 ? width * scale : 320) + 8,
                    TOP + height * scale + 52, LEFT, TOP, width * scale, height * scale);
    attn_out_base64(&s->out, png, bytes);
    attn_out_format(&s->out, "\"/>\n");
    free(png);
    for (int64_t l = 0; l < map->n_layers; l++)
        attn_out_format(&s->out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%lld</text>", LEFT - 6,
                        TOP + step * ((double)l + 0.5), (long long)l);
    for (int64_t h = 0; h < map->n_heads; h++)
        attn_out_format(&s->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%lld</text>",
                        LEFT + step * ((double)h + 0.45), TOP - 6, (long long)h);
    svg_legend(s, LEFT, TOP + height * scale + 14);
    return ATTN_OK;
}

attn_status attn_inspect_svg(const attn_model *model, const attn_inspection *inspection, int64_t layer, int64_t head,
                             char **text, size_t *bytes)
{
    svg s = {.model = model, .in = inspection};
    attn_status status = check(model, inspection, layer, head, text, bytes);
    if (status != ATTN_OK)
        return status;
    int64_t stored = layer;
    make_palette(s.palette);
    s.map = map_of(inspection, &stored, head);
    if (layer >= 0 && head >= 0)
        svg_head(&s, layer, head, s.map == inspection->focus ? 0 : layer * s.map->n_heads + head);
    else
        status = svg_thumbs(&s);
    attn_out_format(&s.out, "</svg>\n");
    if (status != ATTN_OK || s.out.failed) {
        free(s.out.text);
        return ATTN_ERR_OUT_OF_MEMORY;
    }
    *text = s.out.text;
    *bytes = s.out.bytes;
    return ATTN_OK;
}
