/* explain_figures.c - the six figures of the first lesson as SVG, each drawn from numbers that the operator computed. */
#include "explain.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#define BLUE "#2348f2"
#define RED  "#c0392b"
#define INK  "#222222"
#define GREY "#888888"

/* ---- Drawing ---- */

static void open_svg(FILE *to, int width, int height, const char *title)
{
    fprintf(to, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" "
            "font-family=\"sans-serif\" font-size=\"13\" fill=\"" INK "\">\n<title>%s</title>\n"
            "<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerUnits=\"userSpaceOnUse\" markerWidth=\"9\" markerHeight=\"9\" orient=\"auto\">"
            "<path d=\"M0 0L8 4L0 8z\" fill=\"context-stroke\"/></marker></defs>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
            "<text x=\"%d\" y=\"22\" font-size=\"15\" text-anchor=\"middle\">%s</text>\n",
            width, height, width, height, title, width, height, width / 2, title);
}

static void text_at(FILE *to, double x, double y, const char *anchor, const char *colour, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

static void text_at(FILE *to, double x, double y, const char *anchor, const char *colour, const char *format, ...)
{
    va_list list;
    fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">", x, y, anchor, colour);
    va_start(list, format);
    vfprintf(to, format, list);
    va_end(list);
    fprintf(to, "</text>\n");
}

/* A box around its middle. */
static void box(FILE *to, double x, double y, double width, double height, const char *stroke, const char *fill)
{
    fprintf(to, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"3\" stroke=\"%s\" fill=\"%s\"/>\n", x - width / 2,
            y - height / 2, width, height, stroke, fill);
}

static void arrow(FILE *to, double x1, double y1, double x2, double y2, const char *colour, double width)
{
    fprintf(to, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"%.2f\" "
            "marker-end=\"url(#head)\"/>\n", x1, y1, x2, y2, colour, width);
}

/* ---- The data ---- */

/* Five tokens of two features each as their own queries, keys and values: the soft lookup. */
static bool five_tokens(explain_input *input)
{
    static const double rows[10] = {1, 0, 0, 1, 1, 1, 2, 0, 1, 2};
    memset(input, 0, sizeof *input);
    input->n_query = input->n_key = 5, input->head_dim = input->value_dim = 2, input->causal = true;
    input->query = malloc(sizeof rows), input->key = malloc(sizeof rows), input->value = malloc(sizeof rows);
    if (!input->query || !input->key || !input->value) {
        cli_error("explain", "out of memory");
        explain_input_free(input);
        return false;
    }
    memcpy(input->query, rows, sizeof rows), memcpy(input->key, rows, sizeof rows), memcpy(input->value, rows, sizeof rows);
    return true;
}

static bool five_steps(attn_ctx *ctx, explain_input *input, explain_steps *steps)
{
    if (!five_tokens(input))
        return false;
    if (explain_compute(ctx, input, EXPLAIN_SCALED, true, steps))
        return true;
    explain_input_free(input);
    return false;
}

/* ---- The figures ---- */

static bool draw_layer(FILE *to, attn_ctx *ctx)
{
    explain_input input;
    explain_steps steps;
    int reads = 0;
    if (!five_steps(ctx, &input, &steps))
        return false;
    open_svg(to, 640, 330, "One layer: as many outputs as inputs");
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++)
            if (steps.weight[i * 5 + j] > 0) {
                reads++;
                arrow(to, 120 + 100 * j, 262, 120 + 100 * i, 98, BLUE, 0.4 + 4 * steps.weight[i * 5 + j]);
            }
    for (int i = 0; i < 5; i++) {
        box(to, 120 + 100 * i, 80, 44, 30, BLUE, "#fff");
        text_at(to, 120 + 100 * i, 85, "middle", BLUE, "y%d", i + 1);
        box(to, 120 + 100 * i, 280, 44, 30, INK, "#fff");
        text_at(to, 120 + 100 * i, 285, "middle", INK, "x%d", i + 1);
    }
    text_at(to, 320, 52, "middle", INK, "outputs, one for each input");
    text_at(to, 320, 318, "middle", INK, "inputs; a line is a reading with a weight above 0 (%d of 25), its width the weight", reads);
    explain_steps_free(&steps);
    explain_input_free(&input);
    return true;
}

static bool draw_paths(FILE *to, attn_ctx *ctx)
{
    int64_t rnn[5], attention[5];
    double *chain = explain_recurrent(5), *all = explain_admitted(ctx, 5, true, 0);
    const bool good = chain && all;
    if (good) {
        explain_hops(chain, 5, rnn);
        explain_hops(all, 5, attention);
        open_svg(to, 720, 250, "Steps between two positions");
        for (int row = 0; row < 2; row++) {
            const double y = row ? 205 : 85;
            text_at(to, 90, y + 5, "end", row ? BLUE : INK, "%s", row ? "attention" : "RNN");
            for (int i = 0; i < 5; i++) {
                fprintf(to, "<circle cx=\"%d\" cy=\"%.0f\" r=\"17\" fill=\"#fff\" stroke=\"%s\"/>\n", 130 + 90 * i, y, row ? BLUE : INK);
                text_at(to, 130 + 90 * i, y + 5, "middle", row ? BLUE : INK, "%d", i + 1);
                for (int j = 0; j < i; j++)
                    if (!row && chain[i * 5 + j] > 0)
                        arrow(to, 130 + 90 * j + 18, y, 130 + 90 * i - 18, y, INK, 1.2);
            }
            text_at(to, 540, y + 5, "start", row ? BLUE : INK, "from 1 to 5: %lld", (long long)(row ? attention[4] : rnn[4]));
        }
        if (all[4 * 5] > 0)
            fprintf(to, "<path d=\"M143 192C220 120 400 120 477 190\" fill=\"none\" stroke=\"" BLUE "\" stroke-width=\"2\" "
                    "marker-end=\"url(#head)\"/>\n");
    }
    free(chain);
    free(all);
    return good;
}

/* The worked example's three keys and one query; figures 3 and 5. */
static bool trace_steps(attn_ctx *ctx, explain_input *input, explain_steps *steps)
{
    if (!explain_input_trace(input))
        return false;
    if (explain_compute(ctx, input, EXPLAIN_SCALED, false, steps))
        return true;
    explain_input_free(input);
    return false;
}

static bool draw_roles(FILE *to, attn_ctx *ctx)
{
    explain_input in;
    explain_steps s;
    if (!trace_steps(ctx, &in, &s))
        return false;
    open_svg(to, 720, 380, "One output from a query, keys and values");
    for (int j = 0; j < 3; j++) {
        const double x = 110 + 190 * j;
        box(to, x, 340, 50, 30, INK, "#fff");
        text_at(to, x, 345, "middle", INK, "x%d", j + 1);
        for (int value = 0; value < 2; value++) { /* with what becomes of them: a score, a weight */
            const double *row = (value ? in.value : in.key) + 2 * j, at = x + (value ? 47 : -47);
            box(to, at, 260, 88, 46, INK, "#fff");
            text_at(to, at, 255, "middle", INK, "%c%d = (%g, %g)", value ? 'v' : 'k', j + 1, row[0], row[1]);
            if (value)
                text_at(to, at, 275, "middle", BLUE, "weight %.3f", s.weight[j]);
            else
                text_at(to, at, 275, "middle", RED, "q3 k%d = %g", j + 1, s.score[j]);
            arrow(to, x, 325, at, 284, INK, 1);
        }
        arrow(to, x - 47, 237, 260 + 40 * j, 181, INK, 1);
        fprintf(to, "<line x1=\"%.1f\" y1=\"237\" x2=\"%d\" y2=\"88\" stroke=\"" BLUE "\" stroke-width=\"%.2f\"/>\n", x + 47,
                400 + 12 * j, 0.5 + 5 * s.weight[j]);
    }
    box(to, 662, 260, 94, 46, RED, "#fff");
    text_at(to, 662, 265, "middle", RED, "q3 = (%g, %g)", in.query[0], in.query[1]);
    arrow(to, 515, 335, 640, 284, RED, 1.2);
    fprintf(to, "<path d=\"M662 236L662 165L392 165\" fill=\"none\" stroke=\"" RED "\" stroke-dasharray=\"5 3\" "
            "marker-end=\"url(#head)\"/>\n");
    box(to, 300, 165, 180, 30, INK, "#f4f4f4");
    text_at(to, 300, 170, "middle", INK, "softmax of scores / %.3f", 1 / explain_scale(&in));
    text_at(to, 490, 120, "start", BLUE, "values times their weights");
    box(to, 412, 72, 170, 32, BLUE, "#fff");
    text_at(to, 412, 77, "middle", BLUE, "y3 = (%.3f, %.3f)", s.out[0], s.out[1]);
    explain_steps_free(&s);
    explain_input_free(&in);
    return true;
}

static bool draw_saturation(FILE *to, attn_ctx *ctx)
{
    static const char *const names[2] = {"unscaled", "scaled by 1/sqrt(d_k)"};
    open_svg(to, 640, 340, "The winner of two scores one standard deviation apart");
    for (int tick = 0; tick <= 2; tick++) {
        fprintf(to, "<line x1=\"80\" x2=\"600\" y1=\"%d\" y2=\"%d\" stroke=\"#ddd\"/>\n", 280 - 110 * tick, 280 - 110 * tick);
        text_at(to, 72, 285 - 110 * tick, "end", INK, "%.2f", 0.5 + 0.25 * tick);
    }
    for (int side = 0; side < 2; side++) {
        fprintf(to, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2.5\"%s points=\"", side ? RED : BLUE,
                side ? " stroke-dasharray=\"7 4\"" : "");
        double winner[5];
        for (int p = 0; p < 5; p++) {
            if (!explain_winner(ctx, (int64_t)4 << 2 * p, side ? EXPLAIN_SCALED : EXPLAIN_UNSCALED, &winner[p]))
                return false;
            fprintf(to, "%d,%.1f ", 110 + 115 * p, 280 - 440 * (winner[p] - 0.5));
        }
        fprintf(to, "\"/>\n");
        for (int p = 0; p < 5; p++) {
            text_at(to, 110 + 115 * p, 280 - 440 * (winner[p] - 0.5) + (side ? 18 : 20), "middle", side ? RED : BLUE, "%.4f", winner[p]);
            if (side == 0)
                text_at(to, 110 + 115 * p, 300, "middle", INK, "%d", 4 << 2 * p);
        }
        text_at(to, 590, side ? 168 : 50, "end", side ? RED : BLUE, "%s", names[side]);
    }
    text_at(to, 340, 326, "middle", INK, "d_k (logarithmic)");
    fprintf(to, "<text x=\"22\" y=\"170\" text-anchor=\"middle\" transform=\"rotate(-90 22 170)\">winner's probability</text>\n");
    return true;
}

static bool draw_trace(FILE *to, attn_ctx *ctx)
{
    static const char *const rows[4] = {"key", "raw score", "scaled", "weight"};
    explain_input in;
    explain_steps s;
    if (!trace_steps(ctx, &in, &s))
        return false;
    open_svg(to, 640, 310, "One attention step, number by number");
    for (int r = 0; r < 4; r++) {
        text_at(to, 130, 70 + 42 * r, "end", INK, "%s", rows[r]);
        for (int j = 0; j < 3; j++) {
            const double x = 220 + 150 * j, y = 65 + 42 * r;
            box(to, x, y, 130, 30, r == 3 ? BLUE : INK, "#fff");
            if (r == 0)
                text_at(to, x, y + 5, "middle", INK, "k%d = (%g, %g)", j + 1, in.key[2 * j], in.key[2 * j + 1]);
            else
                text_at(to, x, y + 5, "middle", r == 3 ? BLUE : INK, "%.3f", (r == 1 ? s.score : r == 2 ? s.scaled : s.weight)[j]);
            if (r == 3)
                arrow(to, x, y + 15, 370 + 30 * (j - 1), 256, BLUE, 0.5 + 5 * s.weight[j]);
        }
    }
    box(to, 370, 274, 220, 34, BLUE, "#fff");
    text_at(to, 370, 279, "middle", BLUE, "y3 = (%.3f, %.3f)", s.out[0], s.out[1]);
    text_at(to, 130, 279, "end", INK, "weighted values");
    explain_steps_free(&s);
    explain_input_free(&in);
    return true;
}

static bool draw_mask(FILE *to, attn_ctx *ctx)
{
    explain_input input;
    explain_steps steps;
    if (!five_steps(ctx, &input, &steps))
        return false;
    open_svg(to, 460, 440, "The causal mask on the scaled scores");
    for (int i = 0; i < 5; i++) {
        text_at(to, 112 + 68 * i, 62, "middle", INK, "k%d", i + 1);
        text_at(to, 66, 109 + 68 * i, "end", INK, "q%d", i + 1);
        for (int j = 0; j < 5; j++) {
            const bool masked = isinf(steps.scaled[i * 5 + j]);
            box(to, 112 + 68 * j, 104 + 68 * i, 66, 66, GREY, masked ? "#f2f2f2" : "#dfe6ff");
            if (masked)
                text_at(to, 112 + 68 * j, 109 + 68 * i, "middle", GREY, "-inf");
            else
                text_at(to, 112 + 68 * j, 109 + 68 * i, "middle", INK, "%.3f", steps.scaled[i * 5 + j]);
        }
    }
    text_at(to, 248, 432, "middle", INK, "keys j; row i keeps j up to i");
    fprintf(to, "<text x=\"24\" y=\"240\" text-anchor=\"middle\" transform=\"rotate(-90 24 240)\">queries i</text>\n");
    explain_steps_free(&steps);
    explain_input_free(&input);
    return true;
}

bool explain_figures(attn_ctx *ctx, const char *folder)
{
    static bool (*const figures[6])(FILE *, attn_ctx *) = {draw_layer, draw_paths, draw_roles, draw_saturation, draw_trace, draw_mask};
    struct stat there;
    if (mkdir(folder, 0777) != 0 && (errno != EEXIST || stat(folder, &there) != 0 || !S_ISDIR(there.st_mode))) {
        cli_error("explain", "cannot make the folder %s: %s", folder, strerror(errno));
        return false;
    }
    for (int f = 0; f < 6; f++) {
        char path[4096];
        cli_output out;
        if ((size_t)snprintf(path, sizeof path, "%s/figure-%d.svg", folder, f + 1) >= sizeof path) {
            cli_error("explain", "the folder's name is too long");
            return false;
        }
        if (!cli_output_open("explain", path, &out))
            return false;
        const bool good = figures[f](out.file, ctx) && fprintf(out.file, "</svg>\n") > 0;
        if (cli_output_close("explain", &out, good) != CLI_OK)
            return false;
    }
    return true;
}
