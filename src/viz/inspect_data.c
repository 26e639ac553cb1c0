/* inspect_data.c - an inspection as JSON: arrays of numbers for programs, or packed for the page. */
#include "viz/inspect_data.h"
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_BYTES 192 /* of a token's text that a page needs */

/* ---- tokens ---- */

static void token(attn_text_out *out, const attn_model *model, int32_t id)
{
    char text[TOKEN_BYTES + 4];
    size_t n = 0;
    const char *spelling = attn_model_token(model, id);
    const bool known = attn_model_detokenize(model, &id, 1, 0, text, TOKEN_BYTES, &n) == ATTN_OK;
    n = n > TOKEN_BYTES ? TOKEN_BYTES : n;
    while (n == TOKEN_BYTES && n > 0 && ((unsigned char)text[n - 1] & 0xC0) == 0x80)
        n--; /* not through a character: its lead byte becomes U+FFFD */
    bool part = false; /* of a character: the vocabulary's spelling tells more than U+FFFD */
    for (size_t i = 0; i + 2 < n; i++)
        part |= memcmp(text + i, "\xEF\xBF\xBD", 3) == 0;
    if (known && n > 0 && !(part && spelling))
        attn_out_json_string(out, text, n);
    else if (spelling)
        attn_out_json_string(out, spelling, strnlen(spelling, TOKEN_BYTES));
    else
        attn_out_format(out, "\"#%d\"", id);
}

static void tokens(attn_text_out *out, const attn_model *model, const char *name, const int32_t *ids, int64_t n)
{
    attn_out_format(out, "\"%s\":[", name);
    for (int64_t i = 0; i < n; i++) {
        attn_out_bytes(out, ",", i > 0);
        token(out, model, ids[i]);
    }
    attn_out_format(out, "],\n");
}

/* ---- numbers ---- */

static void real(attn_text_out *out, double x)
{
    if (isfinite(x))
        attn_out_format(out, "%.6g", x);
    else
        attn_out_format(out, "null");
}

static void field(attn_text_out *out, const char *name, double x)
{
    attn_out_format(out, "\"%s\":", name);
    real(out, x);
    attn_out_bytes(out, ",", 1);
}

static void floats(attn_text_out *out, const char *name, const float *x, int64_t n, bool packed)
{
    attn_out_format(out, "\"%s\":", name);
    if (!x) {
        attn_out_format(out, "null,\n");
        return;
    }
    if (packed) {
        attn_out_base64(out, x, (size_t)n * sizeof *x);
    } else {
        attn_out_bytes(out, "[", 1);
        for (int64_t i = 0; i < n; i++) {
            attn_out_bytes(out, ",", i > 0);
            real(out, (double)x[i]);
        }
        attn_out_bytes(out, "]", 1);
    }
    attn_out_format(out, ",\n");
}

static void integers(attn_text_out *out, const char *name, const int32_t *x, int64_t n)
{
    attn_out_format(out, "\"%s\":[", name);
    for (int64_t i = 0; i < n; i++)
        attn_out_format(out, "%s%d", i ? "," : "", x[i]);
    attn_out_format(out, "],\n");
}

/* Counts, keys and weights of all rows as 16-bit numbers (keys as 32-bit ones beyond 65,536 tokens). */
static void packed_rows(attn_text_out *out, const attn_inspect_map *map)
{
    const int64_t rows = map->n_layers * map->n_heads * map->n_rows, n = map->starts[rows];
    const bool wide = map->n_keys > 65536;
    uint16_t *half = malloc((size_t)(rows > n ? rows : n) * sizeof *half + 2);
    out->failed |= !half;
    if (!half)
        return;
    attn_out_format(out, "\"queries\":");
    attn_out_base64(out, map->queries, (size_t)map->n_rows * sizeof *map->queries);
    attn_out_format(out, ",\n\"counts\":");
    for (int64_t r = 0; r < rows; r++)
        half[r] = (uint16_t)(map->starts[r + 1] - map->starts[r]);
    attn_out_base64(out, half, (size_t)rows * sizeof *half);
    attn_out_format(out, ",\n\"keys\":");
    for (int64_t i = 0; i < n && !wide; i++)
        half[i] = (uint16_t)map->keys[i];
    attn_out_base64(out, wide ? (const void *)map->keys : half, (size_t)n * (wide ? sizeof *map->keys : sizeof *half));
    attn_out_format(out, ",\n\"weights\":");
    for (int64_t i = 0; i < n; i++)
        half[i] = (uint16_t)lrintf(65535 * fminf(map->weights[i], 1));
    attn_out_base64(out, half, (size_t)n * sizeof *half);
    attn_out_format(out, ",\n");
    free(half);
}

static void plain_rows(attn_text_out *out, const attn_inspect_map *map)
{
    const int64_t rows = map->n_layers * map->n_heads * map->n_rows;
    integers(out, "queries", map->queries, map->n_rows);
    attn_out_format(out, "\"starts\":[");
    for (int64_t r = 0; r <= rows; r++)
        attn_out_format(out, "%s%lld", r ? "," : "", (long long)map->starts[r]);
    attn_out_format(out, "],\n");
    integers(out, "keys", map->keys, map->starts[rows]);
    floats(out, "weights", map->weights, map->starts[rows], false);
}

static void one_map(attn_text_out *out, const attn_inspect_map *map, int64_t layer, int64_t head, bool packed)
{
    const int64_t heads = map->n_layers * map->n_heads;
    attn_out_format(out, "{\"attention\":%d,\"encoder\":%d,\"n_layers\":%lld,\"n_heads\":%lld,\"n_queries\":%lld,"
                    "\"n_keys\":%lld,\"most_kept\":%lld,\"layer\":%lld,\"head\":%lld,\n",
                    map->attention, map->encoder, (long long)map->n_layers, (long long)map->n_heads,
                    (long long)map->n_queries, (long long)map->n_keys, (long long)map->most_kept, (long long)layer,
                    (long long)head);
    field(out, "least_kept", (double)map->least_kept);
    (packed ? packed_rows : plain_rows)(out, map);
    floats(out, "at_rows", map->at_rows, heads * map->n_keys, packed);
    floats(out, "value_norms", map->value_norms, heads * map->n_keys, packed);
    floats(out, "value_directs", map->value_directs, heads * map->n_keys, packed);
    attn_out_format(out, "\"stats\":[");
    for (int64_t h = 0; h < heads; h++) {
        const attn_inspect_stat *s = &map->stats[h];
        attn_out_format(out, "%s[%.5g,%.5g,%.5g,%.5g,%d,%d]", h ? "," : "", (double)s->entropy, (double)s->distance,
                        (double)s->first, (double)s->largest, s->query, s->key);
    }
    attn_out_format(out, "]}");
}

/* ---- measures ---- */

static void effect(attn_text_out *out, const char *name, attn_inspect_effect e, const char *end)
{
    attn_out_format(out, "\"%s\":", name);
    if (e.difference != e.difference)
        attn_out_format(out, "null%s", end);
    else
        attn_out_format(out, "[%.6g,%.6g]%s", (double)e.difference, (double)e.kl, end);
}

static void correlation(attn_text_out *out, const char *name, const attn_inspect_correlation *c)
{
    attn_out_format(out, "\"%s\":{\"n\":%lld,\"n_without_first\":%lld,", name, (long long)c->n,
                    (long long)c->n_without_first);
    field(out, "all", c->all);
    attn_out_format(out, "\"without_first\":");
    real(out, c->without_first);
    attn_out_format(out, "},\n");
}

static void edges(attn_text_out *out, const attn_inspection *in)
{
    attn_out_format(out, "\"edges\":[");
    for (int64_t i = 0; i < in->n_edges; i++) {
        const attn_inspect_edge *e = &in->edges[i];
        attn_out_format(out, "%s{\"layer\":%lld,\"head\":%lld,\"query\":%lld,\"key\":%lld,\"why\":%d,", i ? ",\n" : "",
                        (long long)e->layer, (long long)e->head, (long long)e->query, (long long)e->key, e->why);
        field(out, "weight", (double)e->weight);
        field(out, "moved", (double)e->moved);
        field(out, "direct", (double)e->direct);
        field(out, "estimate", (double)e->estimate);
        effect(out, "knockout", e->knockout, ",");
        effect(out, "removal", e->removal, ",");
        effect(out, "mean", e->mean, ",");
        effect(out, "pair", e->pair, "}");
    }
    attn_out_format(out, "],\n");
}

static void measures(attn_text_out *out, const attn_inspection *in)
{
    const int64_t layers = in->maps[0].n_layers, heads = layers * in->maps[0].n_heads;
    attn_out_format(out, "\"measures\":{");
    field(out, "outcome", (double)in->outcome);
    field(out, "pair_outcome", (double)in->pair_outcome);
    attn_out_format(out, "\"estimate\":%d,\"n_screened\":%lld,\"window\":%d,\"window_query\":%lld,\"window_key\":%lld,\n",
                    in->estimate, (long long)in->n_screened, in->window, (long long)in->window_query,
                    (long long)in->window_key);
    correlation(out, "estimated", &in->estimated);
    correlation(out, "sampled", &in->sampled);
    edges(out, in);
    attn_out_format(out, "\"windows\":%s", in->windows ? "[" : "null");
    for (int64_t l = 0; in->windows && l < layers; l++)
        attn_out_format(out, "%s[%.6g,%.6g]", l ? "," : "", (double)in->windows[l].difference, (double)in->windows[l].kl);
    attn_out_format(out, "%s,\n\"heads\":%s", in->windows ? "]" : "", in->heads ? "[" : "null");
    for (int64_t h = 0; in->heads && h < heads; h++) {
        attn_out_format(out, "%s{", h ? ",\n" : "");
        field(out, "direct", (double)in->heads[h].direct);
        effect(out, "mean", in->heads[h].mean, ",");
        effect(out, "resample", in->heads[h].resample, ",");
        effect(out, "zero", in->heads[h].zero, ",");
        effect(out, "patch", in->heads[h].patch, ",");
        effect(out, "path", in->heads[h].path, "}");
    }
    attn_out_format(out, "%s},\n", in->heads ? "]" : "");
}

void attn_inspect_data(attn_text_out *out, const attn_model *model, const attn_inspection *in, const char *title,
                       bool packed)
{
    attn_model_info info;
    ATTN_ARGS_INIT(&info);
    attn_model_get_info(model, &info);
    int64_t layer = in->layer >= 0 ? in->layer : 0, head = in->head >= 0 ? in->head : 0;
    const attn_inspect_map *main_map = &in->maps[in->n_maps > 1 ? 1 : 0];
    float most = -1; /* where nobody asked: the head that reads most elsewhere at the position */
    for (int64_t h = 0; (in->layer < 0 || in->head < 0) && main_map->at_rows && h < main_map->n_layers * main_map->n_heads; h++)
        for (int64_t j = 1; j < main_map->n_keys; j++)
            if ((in->layer < 0 || h / main_map->n_heads == in->layer) && (in->head < 0 || h % main_map->n_heads == in->head) &&
                j != in->at && h / main_map->n_heads > main_map->n_layers / 3 && main_map->at_rows[h * main_map->n_keys + j] > most) {
                most = main_map->at_rows[h * main_map->n_keys + j];
                layer = h / main_map->n_heads;
                head = h % main_map->n_heads;
            }
    attn_out_format(out, "{\"format\":\"attn-inspect-1\",\"title\":");
    attn_out_json_string(out, title ? title : "", title ? strnlen(title, 2000) : 0);
    attn_out_format(out, ",\n\"model\":");
    attn_out_json_string(out, info.name, strlen(info.name));
    attn_out_format(out, ",\"family\":");
    attn_out_json_string(out, info.family, strlen(info.family));
    attn_out_format(out, ",\"kind\":%d,\"at\":%lld,\"layer\":%lld,\"head\":%lld,\"note\":", in->kind, (long long)in->at,
                    (long long)layer, (long long)head);
    attn_out_json_string(out, in->note, strlen(in->note));
    attn_out_format(out, ",\n");
    integers(out, "ids", in->tokens, in->n_tokens);
    tokens(out, model, "tokens", in->tokens, in->n_tokens);
    if (in->target)
        tokens(out, model, "target", in->target, in->n_target);
    if (in->pair)
        tokens(out, model, "pair", in->pair, in->n_tokens);
    attn_out_format(out, "\"top\":[");
    for (int i = 0; i < in->n_top; i++) {
        attn_out_format(out, "%s[", i ? "," : "");
        token(out, model, in->top_ids[i]);
        attn_out_format(out, ",%.6g,%.6g]", (double)in->top_probabilities[i], (double)in->top_logits[i]);
    }
    attn_out_format(out, "],\n");
    if (in->n_top)
        tokens(out, model, "answers", in->answers, 2);
    if (in->measured)
        measures(out, in);
    attn_out_format(out, "\"focus\":");
    if (in->focus)
        one_map(out, in->focus, in->layer, in->head, packed);
    else
        attn_out_format(out, "null");
    attn_out_format(out, ",\n\"maps\":[");
    for (int32_t m = 0; m < in->n_maps; m++) {
        attn_out_bytes(out, ",\n", m ? 2 : 0);
        one_map(out, &in->maps[m], 0, 0, packed);
    }
    attn_out_format(out, "]}\n");
}

/* ---- documents ---- */

static attn_status finish(attn_text_out *out, char **text, size_t *bytes)
{
    if (out->failed) {
        free(out->text);
        return ATTN_ERR_OUT_OF_MEMORY;
    }
    *text = out->text;
    *bytes = out->bytes;
    return ATTN_OK;
}

attn_status attn_inspect_json(const attn_model *model, const attn_inspection *inspection, const char *title, char **text,
                              size_t *bytes)
{
    attn_text_out out = {0};
    if (!model || !inspection || !text || !bytes)
        return ATTN_ERR_INVALID_ARGUMENT;
    *text = NULL;
    attn_inspect_data(&out, model, inspection, title, false);
    return finish(&out, text, bytes);
}

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
    attn_out_format(&out, "</script>\n<script>");
    attn_out_bytes(&out, attn_asset_js, attn_asset_js_bytes);
    attn_out_format(&out, "</script></body></html>\n");
    return finish(&out, text, bytes);
}

/* ---- SVG ---- */

static void shade(attn_text_out *out, double x, double y, double size, float weight)
{
    const double t = sqrt((double)weight); /* white over teal to dark blue: order by lightness alone */
    attn_out_format(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"rgb(%d,%d,%d)\"><title>%.4f"
                    "</title></rect>", x, y, size, size, (int)(255 * (1 - t) * (1 - t * .3)), (int)(255 * (1 - .75 * t)),
                    (int)(255 * (1 - .55 * t)), (double)weight);
}

static void svg_head(attn_text_out *out, const attn_inspect_map *map, int64_t head, double x, double y, double size,
                     float least)
{
    const double n = (double)(map->n_keys > map->n_queries ? map->n_keys : map->n_queries), cell = size / n;
    for (int64_t r = 0; r < map->n_rows; r++)
        for (int64_t i = map->starts[head * map->n_rows + r]; i < map->starts[head * map->n_rows + r + 1]; i++)
            if (map->weights[i] >= least)
                shade(out, x + cell * (double)map->keys[i], y + cell * (double)map->queries[r], cell, map->weights[i]);
    attn_out_format(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"none\" stroke=\"#999\" "
                    "stroke-width=\"0.5\"/>", x, y, size, size);
}

static void svg_label(attn_text_out *out, const attn_model *model, int32_t id, double x, double y, int turn)
{
    char text[64], shown[256];
    size_t n = 0;
    if (attn_model_detokenize(model, &id, 1, 0, text, sizeof text, &n) != ATTN_OK)
        n = 0;
    attn_text_visible(text, n < sizeof text ? n : sizeof text, 14, shown, sizeof shown, NULL);
    attn_out_format(out, turn ? "<text transform=\"translate(%.1f,%.1f) rotate(-90)\">"
                              : "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", x, y);
    for (const char *c = shown; *c; c++)
        if (strchr("<>&\"", *c))
            attn_out_format(out, "&#%d;", *c);
        else
            attn_out_bytes(out, c, 1);
    attn_out_format(out, "</text>");
}

attn_status attn_inspect_svg(const attn_model *model, const attn_inspection *inspection, int64_t layer, int64_t head,
                             char **text, size_t *bytes)
{
    attn_text_out out = {0};
    if (!model || !inspection || !text || !bytes)
        return ATTN_ERR_INVALID_ARGUMENT;
    *text = NULL;
    const attn_inspect_map *map = &inspection->maps[0];
    if (layer >= map->n_layers || head >= map->n_heads)
        return ATTN_ERR_INVALID_ARGUMENT;
    const bool one = layer >= 0 && head >= 0, labels = one && map->n_keys <= 64 && map->n_queries <= 64;
    const double left = labels ? 130 : 30, size = one ? 600 : 56, step = size + 6;
    const double width = left + (one ? size : step * (double)map->n_heads) + 10;
    const double height = left + (one ? size : step * (double)map->n_layers) + 30;
    attn_out_format(&out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" "
                    "font-size=\"12\"><rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", width, height);
    if (one) {
        const double cell = size / (double)(map->n_keys > map->n_queries ? map->n_keys : map->n_queries);
        svg_head(&out, map, layer * map->n_heads + head, left, left, size, 0.002f);
        for (int64_t i = 0; labels && i < map->n_queries; i++)
            svg_label(&out, model, inspection->tokens[i], left - 5, left + cell * ((double)i + .5) + 4, 0);
        for (int64_t i = 0; labels && i < map->n_keys; i++)
            svg_label(&out, model, inspection->tokens[i], left + cell * ((double)i + .5) + 4, left - 5, 1);
        attn_out_format(&out, "<text x=\"%.1f\" y=\"%.1f\">layer %lld, head %lld: readers down, what is read across</text>",
                        left, height - 8, (long long)layer, (long long)head);
    }
    for (int64_t h = 0; !one && h < map->n_layers * map->n_heads; h++)
        svg_head(&out, map, h, left + step * (double)(h % map->n_heads), left + step * (double)(h / map->n_heads), size,
                 0.05f);
    for (int64_t l = 0; !one && l < map->n_layers; l++)
        attn_out_format(&out, "<text x=\"4\" y=\"%.1f\">%lld</text>", left + step * ((double)l + .5), (long long)l);
    for (int64_t h = 0; !one && h < map->n_heads; h++)
        attn_out_format(&out, "<text x=\"%.1f\" y=\"20\">%lld</text>", left + step * ((double)h + .4), (long long)h);
    attn_out_format(&out, "</svg>\n");
    return finish(&out, text, bytes);
}

void attn_viz_free(char *text)
{
    free(text);
}
