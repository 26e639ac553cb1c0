/* loss_curve.c - loss over steps as SVG text and as a PNG with a small bitmap font. */
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attn/train.h"
#include "io/atomic_file.h"
#include "models/model_internal.h"
#include "viz/picture.h"
#include "viz/png_write.h"

enum { WIDTH = 640, HEIGHT = 400, LEFT = 56, RIGHT = 16, TOP = 34, BOTTOM = 38, MOST_DRAWN = 1200 };
enum { WHITE, INK, GRID, TRAIN, VALIDATION, N_COLOURS };
static const uint32_t palette[N_COLOURS] = {0xFFFFFF, 0x333333, 0xDDDDDD, 0x6FA8DC, 0xCC5500};

/* What is drawn: points thinned to the picture's width, and the ranges of the axes. */
typedef struct curve {
    const attn_train_point *points;
    int64_t n, stride; /* every stride-th training loss is drawn, as the mean of the stride before it */
    double least, most; /* of all losses */
    double low, high, tick, step_tick, last; /* of the axes */
    bool log_scale;
    const char *title;
} curve;

static double x_of(const curve *c, double step)
{
    return LEFT + step / c->last * (WIDTH - LEFT - RIGHT);
}

static double y_of(const curve *c, double loss)
{
    const double share = c->log_scale ? log(c->high / fmax(loss, c->low)) / log(c->high / c->low)
                                      : (c->high - loss) / (c->high - c->low);
    return TOP + share * (HEIGHT - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten that cuts a range into 4 to 10. */
static double tick_of(double range)
{
    double power = pow(10, floor(log10(range / 4)));
    double times = range / 4 / power;
    return power * (times >= 5 ? 5 : times >= 2 ? 2 : 1);
}

/* The nearest 1, 2 or 5 times a power of ten, down or up from v > 0. */
static double round_tick(double v, bool up)
{
    static const double times[] = {1, 2, 5, 10};
    const double power = pow(10, floor(log10(v)));
    double found = times[0];
    for (int i = 0; i < 4; i++) {
        if (up && times[i] * power >= v * (1 - 1e-9))
            return times[i] * power;
        if (times[i] * power <= v * (1 + 1e-9))
            found = times[i];
    }
    return found * power;
}

static double next_tick(const curve *c, double v)
{
    return c->log_scale ? round_tick(v * 1.01, true) : v + c->tick;
}

/* Where ticks end, half of the last one's way beyond it. */
static double tick_end(const curve *c)
{
    return c->log_scale ? c->high * 1.001 : c->high + c->tick / 2;
}

/* Mean training loss of the stride that ends at point i; NaN where none was measured. */
static double mean_loss(const curve *c, int64_t i)
{
    double sum = 0;
    int64_t n = 0;
    for (int64_t k = i - c->stride + 1 > 0 ? i - c->stride + 1 : 0; k <= i; k++)
        if (isfinite(c->points[k].loss)) {
            sum += c->points[k].loss;
            n++;
        }
    return n ? sum / (double)n : NAN;
}

static void set_axes(curve *c, double low, double high, double last)
{
    c->tick = tick_of(high - low);
    c->low = floor(low / c->tick) * c->tick;
    c->high = ceil(high / c->tick) * c->tick;
    c->last = last;
    c->step_tick = fmax(tick_of(last), 1);
}

/* A loss that falls to a thousandth would lie on a linear axis: four decades at most, what is below lies on the axis. */
static void set_log_axes(curve *c, double low, double high, double last)
{
    c->log_scale = true;
    c->high = round_tick(high, true);
    c->low = round_tick(fmax(low, high / 1e4), false);
    c->last = last;
    c->step_tick = fmax(tick_of(last), 1);
}

static void set_ranges(curve *c)
{
    double low = INFINITY, high = -INFINITY;
    c->stride = (c->n + MOST_DRAWN - 1) / MOST_DRAWN;
    for (int64_t i = 0; i < c->n; i++) {
        const double values[2] = {i % c->stride ? NAN : mean_loss(c, i), c->points[i].validation};
        for (int k = 0; k < 2; k++)
            if (isfinite(values[k])) {
                low = fmin(low, values[k]);
                high = fmax(high, values[k]);
            }
    }
    if (!isfinite(low))
        low = 0, high = 1;
    if (high - low < 1e-6 * fabs(high) + 1e-9)
        high = low + 1e-6 * fabs(high) + 1e-3;
    c->least = low;
    c->most = high;
    set_axes(c, low, high, fmax((double)c->points[c->n - 1].step, 1));
}

/* ---- SVG ---- */

typedef struct text_buffer {
    char *data;
    size_t n, capacity;
    bool failed;
} text_buffer;

static void add_text(text_buffer *t, const char *format, ...) ATTN_PRINTF(2, 3);
static void add_text(text_buffer *t, const char *format, ...)
{
    va_list list;
    char line[512];
    va_start(list, format);
    size_t n = (size_t)vsnprintf(line, sizeof line, format, list);
    va_end(list);
    n = n < sizeof line ? n : sizeof line - 1;
    if (t->n + n > t->capacity) {
        size_t capacity = 2 * (t->n + n) + 4096;
        char *data = realloc(t->data, capacity);
        if (!data) {
            t->failed = true;
            return;
        }
        t->data = data;
        t->capacity = capacity;
    }
    memcpy(t->data + t->n, line, n);
    t->n += n;
}

/* Text inside SVG: markup characters spelled out, control characters left out. */
static void add_escaped(text_buffer *t, const char *text)
{
    for (; *text; text++) {
        if (*text == '<' || *text == '>' || *text == '&')
            add_text(t, "&#%d;", *text);
        else if ((unsigned char)*text >= 0x20)
            add_text(t, "%c", *text);
    }
}

static void svg_axes(text_buffer *t, const curve *c)
{
    for (double v = c->low; v <= tick_end(c); v = next_tick(c, v))
        add_text(t,
                 "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
                 "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
                 LEFT, WIDTH - RIGHT, y_of(c, v), y_of(c, v), LEFT - 6, y_of(c, v) + 4, !c->log_scale && fabs(v) < c->tick / 2 ? 0 : v);
    for (double s = 0; s <= c->last; s += c->step_tick)
        add_text(t, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>\n", x_of(c, s), HEIGHT - BOTTOM + 16, s);
    add_text(t, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n", (WIDTH + LEFT) / 2, HEIGHT - 6);
}

static void svg_lines(text_buffer *t, const curve *c)
{
    add_text(t, "<polyline fill=\"none\" stroke=\"#%06x\" stroke-width=\"1.2\" points=\"", (unsigned)palette[TRAIN]);
    for (int64_t i = 0; i < c->n; i += c->stride)
        if (isfinite(mean_loss(c, i)))
            add_text(t, "%.1f,%.1f ", x_of(c, (double)c->points[i].step), y_of(c, mean_loss(c, i)));
    add_text(t, "\"/>\n<polyline fill=\"none\" stroke=\"#%06x\" stroke-width=\"2\" points=\"", (unsigned)palette[VALIDATION]);
    for (int64_t i = 0; i < c->n; i++)
        if (isfinite(c->points[i].validation))
            add_text(t, "%.1f,%.1f ", x_of(c, (double)c->points[i].step), y_of(c, c->points[i].validation));
    add_text(t, "\"/>\n");
}

/* n curves side by side. */
static attn_status draw_svg(const curve *c, int64_t n, const char *path, char *error)
{
    text_buffer t = {0};
    const int width = WIDTH * (int)n;
    add_text(&t,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
             "font-family=\"sans-serif\" font-size=\"11\" fill=\"#333\">\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
             width, HEIGHT, width, HEIGHT, width, HEIGHT);
    for (int64_t i = 0; i < n; i++) {
        add_text(&t, "<g transform=\"translate(%d 0)\">\n<text x=\"%d\" y=\"18\" font-size=\"13\">", WIDTH * (int)i, LEFT);
        add_escaped(&t, c[i].title);
        add_text(&t,
                 "</text>\n<text x=\"%d\" y=\"18\" text-anchor=\"end\"><tspan fill=\"#%06x\">training</tspan> "
                 "<tspan fill=\"#%06x\">validation</tspan> loss, nats per token%s</text>\n",
                 WIDTH - RIGHT, (unsigned)palette[TRAIN], (unsigned)palette[VALIDATION], c[i].log_scale ? " (log scale)" : "");
        svg_axes(&t, &c[i]);
        svg_lines(&t, &c[i]);
        add_text(&t, "</g>\n");
    }
    add_text(&t, "</svg>\n");
    attn_status status = t.failed ? attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory")
                                  : attn_atomic_file_save(path, t.data, t.n, error, ATTN_MODEL_ERROR_BYTES);
    free(t.data);
    return status;
}

/* ---- PNG ---- */

static void png_axes(attn_picture *p, const curve *c)
{
    enum { TITLE_LETTERS = 44 }; /* up to the legend */
    char text[TITLE_LETTERS + 4];
    for (double v = c->low; v <= tick_end(c); v = next_tick(c, v)) {
        attn_picture_line(p, LEFT, y_of(c, v), WIDTH - RIGHT, y_of(c, v), GRID);
        snprintf(text, sizeof text, "%.4g", !c->log_scale && fabs(v) < c->tick / 2 ? 0 : v);
        attn_picture_text(p, LEFT - 6, (int)y_of(c, v) - 5, 2, text, INK);
    }
    for (double s = 0; s <= c->last; s += c->step_tick) {
        snprintf(text, sizeof text, "%.0f", s);
        attn_picture_text(p, (int)x_of(c, s), HEIGHT - BOTTOM + 6, 1, text, INK);
    }
    attn_picture_text(p, (WIDTH + LEFT) / 2, HEIGHT - 14, 1, "step", INK);
    snprintf(text, sizeof text, "%.*s", TITLE_LETTERS, c->title);
    attn_picture_text(p, LEFT, 5, 0, text, INK);
    attn_picture_text(p, LEFT, 19, 0, "nats per token", INK);
    attn_picture_text(p, WIDTH - RIGHT - 96, 5, 2, "training loss", TRAIN);
    attn_picture_text(p, WIDTH - RIGHT, 5, 2, "validation", VALIDATION);
}

static void png_lines(attn_picture *p, const curve *c)
{
    double x = NAN, y = NAN;
    for (int64_t i = 0; i < c->n; i += c->stride)
        if (isfinite(mean_loss(c, i))) {
            const double nx = x_of(c, (double)c->points[i].step), ny = y_of(c, mean_loss(c, i));
            attn_picture_line(p, isnan(x) ? nx : x, isnan(x) ? ny : y, nx, ny, TRAIN);
            x = nx, y = ny;
        }
    x = NAN;
    for (int64_t i = 0; i < c->n; i++)
        if (isfinite(c->points[i].validation)) {
            const double nx = x_of(c, (double)c->points[i].step), ny = y_of(c, c->points[i].validation);
            for (int k = 0; k < 2; k++)
                attn_picture_line(p, isnan(x) ? nx : x, (isnan(x) ? ny : y) + k, nx, ny + k, VALIDATION);
            x = nx, y = ny;
        }
}

static attn_status draw_png(const curve *c, const char *path, char *error)
{
    size_t size = 0;
    attn_picture p = {calloc((size_t)WIDTH * HEIGHT, 1), WIDTH, HEIGHT};
    uint8_t *bytes = NULL;
    if (p.pixels) {
        png_axes(&p, c);
        png_lines(&p, c);
        bytes = attn_png_encode(p.pixels, WIDTH, HEIGHT, palette, N_COLOURS, &size);
    }
    attn_status status = bytes ? attn_atomic_file_save(path, bytes, size, error, ATTN_MODEL_ERROR_BYTES)
                               : attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    free(bytes);
    free(p.pixels);
    return status;
}

static attn_status check_points(const attn_train_point *points, int64_t n)
{
    if (!points || n < 1)
        return attn_model_fail(ATTN_ERR_INVALID_ARGUMENT, "n is %lld, or points is NULL", (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (points[i].step < 0 || (i > 0 && points[i].step <= points[i - 1].step))
            return attn_model_fail(ATTN_ERR_INVALID_ARGUMENT, "points[%lld].step is %lld; steps must ascend from 0",
                                   (long long)i, (long long)points[i].step);
    return ATTN_OK;
}

attn_status attn_train_draw_curve(const attn_train_point *points, int64_t n, const char *title, const char *svg_path,
                                  const char *png_path)
{
    char *error = attn_model_error_buffer();
    attn_status status = check_points(points, n);
    if (status != ATTN_OK)
        return status;
    curve c = {.points = points, .n = n, .title = title ? title : ""};
    set_ranges(&c);
    status = svg_path ? draw_svg(&c, 1, svg_path, error) : ATTN_OK;
    if (status == ATTN_OK && png_path)
        status = draw_png(&c, png_path, error);
    return status;
}

attn_status attn_train_draw_curves(const attn_train_curve *curves, int64_t n_curves, const char *svg_path)
{
    enum { MOST_CURVES = 8 };
    curve c[MOST_CURVES];
    char *error = attn_model_error_buffer();
    if (!curves || !svg_path || n_curves < 1 || n_curves > MOST_CURVES)
        return attn_model_fail(ATTN_ERR_INVALID_ARGUMENT, "n_curves is %lld (1 to %d), or curves or svg_path is NULL",
                               (long long)n_curves, MOST_CURVES);
    for (int64_t i = 0; i < n_curves; i++) {
        attn_status status = check_points(curves[i].points, curves[i].n);
        if (status != ATTN_OK)
            return status;
        c[i] = (curve){.points = curves[i].points, .n = curves[i].n, .title = curves[i].title ? curves[i].title : ""};
        set_ranges(&c[i]);
    }
    double low = INFINITY, high = -INFINITY, last = 1;
    for (int64_t i = 0; i < n_curves; i++) {
        low = fmin(low, c[i].least);
        high = fmax(high, c[i].most);
        last = fmax(last, c[i].last);
    }
    for (int64_t i = 0; i < n_curves; i++)
        if (high > 0 && high > 1.01 * low)
            set_log_axes(&c[i], low, high, last);
        else
            set_axes(&c[i], low, high, last);
    return draw_svg(c, n_curves, svg_path, error);
}
