/* lab_plot.c - the figure of an experiment: lines over linear or logarithmic axes, as SVG. (The loss curves of training have
 * fixed linear axes and two fixed lines; see viz/loss_curve.c.) */
#include <math.h>
#include "lab/lab.h"

enum { WIDTH = 720, HEIGHT = 400, LEFT = 70, RIGHT = 20, TOP = 70, BOTTOM = 46, LEGEND_LINE = 3 };
/* Okabe and Ito's colours, which stay apart for colour-blind readers; each line also has its own dashes. */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#8a6d00", "#333333"};
static const char *const dashes[] = {"none", "7 3", "2 3", "9 3 2 3", "none", "7 3", "2 3"};

typedef struct axis {
    double low, high;
    bool log;
} axis;

static double scaled(const axis *a, double x)
{
    return a->log ? log10(x) : x;
}

static bool shown(const axis *a, double x)
{
    return isfinite(x) && (!a->log || x > 0);
}

static double place(const axis *a, double x, double from, double to)
{
    return from + (scaled(a, x) - a->low) / (a->high - a->low) * (to - from);
}

static void widen(axis *a, double x)
{
    if (!shown(a, x))
        return;
    a->low = fmin(a->low, scaled(a, x));
    a->high = fmax(a->high, scaled(a, x));
}

static double tick_of(double range)
{
    const double power = pow(10, floor(log10(range / 4))), times = range / 4 / power;
    return power * (times >= 5 ? 5 : times >= 2 ? 2 : 1);
}

/* Bounds at ticks; a logarithmic axis has its ticks at whole powers of ten. */
static double settle(axis *a)
{
    if (!(a->low <= a->high))
        a->low = 0, a->high = 1;
    if (a->high - a->low < 1e-12 + 1e-9 * fabs(a->high))
        a->high = a->low + 1;
    double tick = tick_of(a->high - a->low);
    if (a->log)
        tick = fmax(1, ceil(tick));
    a->low = floor(a->low / tick + 1e-9) * tick;
    a->high = ceil(a->high / tick - 1e-9) * tick;
    return tick;
}

static void escaped(FILE *to, const char *text)
{
    for (; *text; text++)
        if (*text == '<' || *text == '>' || *text == '&')
            fprintf(to, "&#%d;", *text);
        else
            fputc(*text, to);
}

static void axes(FILE *to, const lab_result *r, const axis *x, const axis *y, double tick)
{
    for (double v = y->low; v <= y->high + tick / 2; v += tick) {
        const double at = HEIGHT - BOTTOM + (v - y->low) / (y->high - y->low) * (TOP - HEIGHT + BOTTOM);
        fprintf(to, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%.3g</text>\n", LEFT, WIDTH - RIGHT, at, at, LEFT - 6, at + 4,
                y->log ? pow(10, v) : fabs(v) < tick / 2 ? 0 : v);
    }
    double last = -1000;
    for (int i = 0; i < r->n_rows; i++) {
        const double at = place(x, r->cells[i][0], LEFT, WIDTH - RIGHT);
        if (at - last > 34)
            fprintf(to, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g</text>\n", at, HEIGHT - BOTTOM + 16,
                    r->cells[i][0]), last = at;
    }
    fprintf(to, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (WIDTH + LEFT) / 2, HEIGHT - 8);
    escaped(to, r->columns[0]);
    fprintf(to, "%s</text>\n<text x=\"14\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 14 %d)\">",
            x->log ? " (logarithmic)" : "", HEIGHT / 2, HEIGHT / 2);
    escaped(to, r->y_label);
    fprintf(to, "%s</text>\n", y->log ? " (logarithmic)" : "");
}

/* The name of a line beside a piece of it, three in a row. */
static void legend(FILE *to, const char *name, int line)
{
    const int x = LEFT + line % LEGEND_LINE * (WIDTH - LEFT - RIGHT) / LEGEND_LINE, y = 38 + line / LEGEND_LINE * 16;
    fprintf(to, "<line x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"2\" "
            "stroke-dasharray=\"%s\"/><text x=\"%d\" y=\"%d\">", x, x + 26, y - 4, y - 4, colours[line % 7],
            dashes[line % 7], x + 32, y);
    escaped(to, name);
    fprintf(to, "</text>\n");
}

void lab_draw(FILE *to, const char *title, const lab_result *r)
{
    axis x = {INFINITY, -INFINITY, r->log_x}, y = {INFINITY, -INFINITY, r->log_y};
    for (int i = 0; i < r->n_rows; i++) {
        widen(&x, r->cells[i][0]);
        for (int c = 1; c < r->n_columns; c++)
            if (r->drawn >> c & 1)
                widen(&y, r->cells[i][c]);
    }
    if (!y.log && y.low > 0 && y.low < y.high)
        y.low = 0;
    const double tick = settle(&y);
    if (!(x.low < x.high))
        x.high = x.low + 1;
    fprintf(to, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" "
            "font-family=\"sans-serif\" font-size=\"11\" fill=\"#333\">\n<title>", WIDTH, HEIGHT, WIDTH, HEIGHT);
    escaped(to, title);
    fprintf(to, "</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n<text x=\"%d\" y=\"18\" font-size=\"14\">", WIDTH,
            HEIGHT, LEFT);
    escaped(to, title);
    fprintf(to, "</text>\n");
    for (int c = 1, line = 0; c < r->n_columns; c++)
        if (r->drawn >> c & 1)
            legend(to, r->columns[c], line++);
    axes(to, r, &x, &y, tick);
    for (int c = 1, line = 0; c < r->n_columns; c++) {
        if (!(r->drawn >> c & 1))
            continue;
        fprintf(to, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-dasharray=\"%s\" points=\"",
                colours[line % 7], dashes[line % 7]);
        for (int i = 0; i < r->n_rows; i++)
            if (shown(&y, r->cells[i][c]))
                fprintf(to, "%.1f,%.1f ", place(&x, r->cells[i][0], LEFT, WIDTH - RIGHT),
                        place(&y, r->cells[i][c], HEIGHT - BOTTOM, TOP));
        fprintf(to, "\"/>\n");
        for (int i = 0; i < r->n_rows; i++) /* what was measured; the line between is for the eye */
            if (shown(&y, r->cells[i][c]))
                fprintf(to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                        place(&x, r->cells[i][0], LEFT, WIDTH - RIGHT), place(&y, r->cells[i][c], HEIGHT - BOTTOM, TOP),
                        colours[line % 7]);
        line++;
    }
    fprintf(to, "</svg>\n");
}
