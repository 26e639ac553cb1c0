/* inspect_data.c - an inspection as JSON: for programs, or what the page needs beside its packed arrays. */
#include "viz/inspect_data.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inspect/collect.h"
#include "text/bytelevel.h"

#define TOKEN_BYTES  192 /* of a token's text that a page needs */
#define MOST_PARTS   12  /* tokens that the characters of one run are cut into */
#define MOST_ROUNDED 1500000

/* ---- tokens ---- */

static bool has_parts(const char *text, size_t n) /* of characters: they read as U+FFFD */
{
    for (size_t i = 0; i + 2 < n; i++)
        if (memcmp(text + i, "\xEF\xBF\xBD", 3) == 0)
            return true;
    return false;
}

/* A part of a character by itself: its bytes where the vocabulary is one of bytes, as \xE6, else its spelling there. */
static void part(attn_text_out *out, const char *spelling)
{
    char text[TOKEN_BYTES];
    attn_strbuf bytes = {0};
    bool all = false;
    if (attn_bytelevel_bytes(spelling, strlen(spelling), &bytes, &all) == ATTN_OK && all) {
        const size_t n = attn_text_visible(bytes.data, bytes.len, -1, text, sizeof text, NULL);
        attn_out_json_string(out, text, n < sizeof text ? n : sizeof text - 1);
    } else {
        attn_out_json_string(out, spelling, strnlen(spelling, TOKEN_BYTES));
    }
    attn_strbuf_free(&bytes);
}

static void token(attn_text_out *out, const attn_model *model, int32_t id)
{
    char text[TOKEN_BYTES + 4];
    size_t n = 0;
    const char *spelling = attn_model_token(model, id);
    const bool known = attn_model_detokenize(model, &id, 1, 0, text, TOKEN_BYTES, &n) == ATTN_OK;
    n = n > TOKEN_BYTES ? TOKEN_BYTES : n;
    while (n == TOKEN_BYTES && n > 0 && ((unsigned char)text[n - 1] & 0xC0) == 0x80)
        n--; /* not through a character: its lead byte becomes U+FFFD */
    if (known && n > 0 && !(spelling && has_parts(text, n)))
        attn_out_json_string(out, text, n);
    else if (spelling)
        part(out, spelling);
    else
        attn_out_format(out, "\"#%d\"", id);
}

/* How many tokens from ids[0] on are whole characters together, where the first by itself is a part of one; else 1. */
static int64_t whole_characters(const attn_model *model, const int32_t *ids, int64_t n, char text[TOKEN_BYTES], size_t *bytes)
{
    for (int64_t m = 1; m <= n && m <= MOST_PARTS; m++) {
        if (attn_model_detokenize(model, ids, m, 0, text, TOKEN_BYTES, bytes) != ATTN_OK || *bytes > TOKEN_BYTES)
            return 1;
        if (!has_parts(text, *bytes))
            return m;
    }
    return 1;
}

/* Their texts; of characters cut into several tokens each has the characters and which part it is: "\u6771[1/2]". */
static void tokens(attn_text_out *out, const attn_model *model, const char *name, const int32_t *ids, int64_t n)
{
    char text[TOKEN_BYTES + 32];
    attn_out_format(out, "\"%s\":[", name);
    for (int64_t i = 0; i < n;) {
        size_t bytes = 0;
        const int64_t parts = whole_characters(model, ids + i, n - i, text, &bytes);
        for (int64_t k = 0; k < parts; k++, i++) {
            attn_out_bytes(out, ",", i > 0);
            if (parts == 1) {
                token(out, model, ids[i]);
                continue;
            }
            const int tail = snprintf(text + bytes, 32, "[%d/%d]", (int)k + 1, (int)parts);
            attn_out_json_string(out, text, bytes + (size_t)tail);
        }
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

static void floats(attn_text_out *out, const char *name, const float *x, int64_t n)
{
    attn_out_format(out, "\"%s\":%s", name, x ? "[" : "null,\n");
    for (int64_t i = 0; x && i < n; i++) {
        attn_out_bytes(out, ",", i > 0);
        real(out, (double)x[i]);
    }
    attn_out_bytes(out, "],\n", x ? 3 : 0);
}

static void integers(attn_text_out *out, const char *name, const int32_t *x, int64_t n)
{
    attn_out_format(out, "\"%s\":[", name);
    for (int64_t i = 0; i < n; i++)
        attn_out_format(out, "%s%d", i ? "," : "", x[i]);
    attn_out_format(out, "],\n");
}

int attn_data_code(float weight)
{
    const float code = -24 * log2f(weight);
    return code > 255 ? 255 : code > 0 ? (int)lrintf(code) : 0;
}

float attn_data_least(const attn_inspect_map *map)
{
    int64_t counts[256] = {0}, left = MOST_ROUNDED;
    int code = 0;
    if (attn_data_exact(map))
        return map->least_kept;
    for (int64_t i = 0; i < map->starts[map->n_layers * map->n_heads * map->n_rows]; i++)
        counts[attn_data_code(map->weights[i])]++;
    while (code < 255 && left >= counts[code])
        left -= counts[code++];
    return fmaxf(map->least_kept, exp2f(-(float)code / 24));
}

static void rows(attn_text_out *out, const attn_inspect_map *map)
{
    const int64_t n = map->n_layers * map->n_heads * map->n_rows;
    integers(out, "queries", map->queries, map->n_rows);
    attn_out_format(out, "\"starts\":[");
    for (int64_t r = 0; r <= n; r++)
        attn_out_format(out, "%s%lld", r ? "," : "", (long long)map->starts[r]);
    attn_out_format(out, "],\n");
    integers(out, "keys", map->keys, map->starts[n]);
    floats(out, "weights", map->weights, map->starts[n]);
}

/* What `at` reads of a long text: the largest weights of each head, and what belongs to their keys. */
static void sparse_at(attn_text_out *out, const attn_inspect_map *map)
{
    const int64_t heads = map->n_layers * map->n_heads, n = map->n_keys, most = ATTN_DATA_AT;
    int64_t *order = malloc((size_t)n * sizeof *order), *starts = calloc((size_t)heads + 1, sizeof *starts);
    int32_t *keys = malloc((size_t)(heads * most) * sizeof *keys);
    float *values = malloc((size_t)(3 * heads * most) * sizeof *values);
    out->failed |= !order || !starts || !keys || !values;
    for (int64_t h = 0; h < heads && !out->failed; h++) {
        const int64_t kept = attn_inspect_largest(map->at_rows + h * n, n, most, 0, order);
        for (int64_t i = 0; i < kept; i++) {
            const int64_t at = starts[h] + i, from = h * n + order[i];
            keys[at] = (int32_t)order[i];
            values[at] = map->at_rows[from];
            values[heads * most + at] = map->value_norms[from];
            values[2 * heads * most + at] = map->value_directs ? map->value_directs[from] : NAN;
        }
        starts[h + 1] = starts[h] + kept;
    }
    if (!out->failed) {
        attn_out_format(out, "\"at_starts\":[");
        for (int64_t h = 0; h <= heads; h++)
            attn_out_format(out, "%s%lld", h ? "," : "", (long long)starts[h]);
        attn_out_format(out, "],\n");
        integers(out, "at_keys", keys, starts[heads]);
        floats(out, "at_weights", values, starts[heads]);
        floats(out, "at_norms", values + heads * most, starts[heads]);
        floats(out, "at_directs", map->value_directs ? values + 2 * heads * most : NULL, starts[heads]);
    }
    free(order);
    free(starts);
    free(keys);
    free(values);
}

static void one_map(attn_text_out *out, const attn_inspect_map *map, int64_t layer, int64_t head, bool for_page)
{
    const int64_t heads = map->n_layers * map->n_heads;
    attn_out_format(out, "{\"attention\":%d,\"encoder\":%d,\"n_layers\":%lld,\"n_heads\":%lld,\"n_queries\":%lld,"
                    "\"n_keys\":%lld,\"n_rows\":%lld,\"most_kept\":%lld,\"layer\":%lld,\"head\":%lld,\n",
                    map->attention, map->encoder, (long long)map->n_layers, (long long)map->n_heads,
                    (long long)map->n_queries, (long long)map->n_keys, (long long)map->n_rows, (long long)map->most_kept,
                    (long long)layer, (long long)head);
    field(out, "least_kept", (double)(for_page ? attn_data_least(map) : map->least_kept));
    if (for_page) {
        attn_out_format(out, "\"exact\":%s,\"thumb\":%lld,", attn_data_exact(map) ? "true" : "false",
                        (long long)attn_data_thumb(map));
    } else {
        const bool dense = heads * map->n_keys <= ATTN_DATA_DENSE;
        rows(out, map);
        floats(out, "at_rows", dense ? map->at_rows : NULL, heads * map->n_keys);
        floats(out, "value_norms", dense ? map->value_norms : NULL, heads * map->n_keys);
        floats(out, "value_directs", dense ? map->value_directs : NULL, heads * map->n_keys);
        if (!dense && map->at_rows && map->value_norms)
            sparse_at(out, map);
    }
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
    if (name)
        attn_out_format(out, "\"%s\":", name);
    if (e.difference != e.difference) {
        attn_out_format(out, "null%s", end);
        return;
    }
    attn_out_format(out, "[%.6g,", (double)e.difference);
    real(out, (double)e.kl);
    attn_out_format(out, "]%s", end);
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
        attn_out_format(out, "%s{\"map\":%d,\"layer\":%lld,\"head\":%lld,\"query\":%lld,\"key\":%lld,\"why\":%d,",
                        i ? ",\n" : "", e->map, (long long)e->layer, (long long)e->head, (long long)e->query, (long long)e->key, e->why);
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
    const int64_t layers = in->maps[in->window_map].n_layers;
    attn_out_format(out, "\"measures\":{");
    field(out, "outcome", (double)in->outcome);
    field(out, "pair_outcome", (double)in->pair_outcome);
    attn_out_format(out, "\"outcome_kind\":%d,\"outcome_position\":%lld,\"estimate\":%d,\"n_screened\":%lld,\n",
                    in->outcome_kind, (long long)in->outcome_position, in->estimate, (long long)in->n_screened);
    attn_out_format(out, "\"window\":%d,\"window_map\":%d,\"window_query\":%lld,\"window_key\":%lld,\n", in->window,
                    (int)in->window_map,
                    (long long)in->window_query,
                    (long long)in->window_key);
    correlation(out, "estimated", &in->estimated);
    correlation(out, "sampled", &in->sampled);
    edges(out, in);
    attn_out_format(out, "\"windows\":%s", in->windows ? "[" : "null");
    for (int64_t l = 0; in->windows && l < layers; l++)
        effect(out, NULL, in->windows[l], l + 1 < layers ? "," : "");
    attn_out_format(out, "%s,\n\"heads\":%s", in->windows ? "]" : "", in->heads ? "[" : "null");
    for (int64_t h = 0; in->heads && h < in->n_cut_heads; h++) {
        attn_out_format(out, "%s{\"map\":%d,\"layer\":%lld,\"head\":%lld,", h ? ",\n" : "", in->heads[h].map,
                        (long long)in->heads[h].layer, (long long)in->heads[h].head);
        field(out, "direct", (double)in->heads[h].direct);
        effect(out, "mean", in->heads[h].mean, ",");
        effect(out, "resample", in->heads[h].resample, ",");
        effect(out, "zero", in->heads[h].zero, ",");
        effect(out, "patch", in->heads[h].patch, ",");
        effect(out, "path", in->heads[h].path, "}");
    }
    attn_out_format(out, "%s},\n", in->heads ? "]" : "");
}

/* What was asked of which model, by which library: enough to run it again. */
static void provenance(attn_text_out *out, const attn_inspection *in, const attn_model_info *info)
{
    attn_out_format(out, "\"model\":");
    attn_out_json_string(out, info->name, strlen(info->name));
    attn_out_format(out, ",\"family\":");
    attn_out_json_string(out, info->family, strlen(info->family));
    attn_out_format(out, ",\"weights\":");
    attn_out_json_string(out, info->weights, strlen(info->weights));
    attn_out_format(out, ",\"n_parameters\":%lld,\"libattn\":\"%s\",\"isa\":\"%s\",\"seed\":%llu,\"n_exact\":%lld,"
                    "\"n_sample\":%lld,\n", (long long)info->n_parameters, attn_version(), attn_ctx_isa(NULL),
                    (unsigned long long)in->seed, (long long)in->n_exact, (long long)in->n_sample);
}

void attn_inspect_data(attn_text_out *out, const attn_model *model, const attn_inspection *in, const char *title,
                       bool for_page)
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
    attn_out_format(out, ",\n");
    provenance(out, in, &info);
    attn_out_format(out, "\"kind\":%d,\"at\":%lld,\"layer\":%lld,\"head\":%lld,\"note\":", in->kind, (long long)in->at,
                    (long long)layer, (long long)head);
    attn_out_json_string(out, in->note, strlen(in->note));
    attn_out_format(out, ",\n");
    if (!for_page)
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
        one_map(out, in->focus, in->layer, in->head, for_page);
    else
        attn_out_format(out, "null");
    attn_out_format(out, ",\n\"maps\":[");
    for (int32_t m = 0; m < in->n_maps; m++) {
        attn_out_bytes(out, ",\n", m ? 2 : 0);
        one_map(out, &in->maps[m], 0, 0, for_page);
    }
    attn_out_format(out, "]}\n");
}

attn_status attn_inspect_json(const attn_model *model, const attn_inspection *inspection, const char *title, char **text,
                              size_t *bytes)
{
    attn_text_out out = {0};
    if (!model || !inspection || !text || !bytes)
        return ATTN_ERR_INVALID_ARGUMENT;
    *text = NULL;
    attn_inspect_data(&out, model, inspection, title, false);
    if (out.failed) {
        free(out.text);
        return ATTN_ERR_OUT_OF_MEMORY;
    }
    *text = out.text;
    *bytes = out.bytes;
    return ATTN_OK;
}

void attn_viz_free(char *text)
{
    free(text);
}
