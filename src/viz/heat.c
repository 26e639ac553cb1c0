/* heat.c - the colours of weights, and a head's matrix made small. */
#include "viz/heat.h"
#include <math.h>
#include <string.h>

/* Linear light to sRGB, 0 to 255. */
static uint32_t encode(double v)
{
    const double s = v <= 0.0031308 ? 12.92 * v : 1.055 * pow(v, 1 / 2.4) - 0.055;
    return (uint32_t)lround(255 * fmin(1, fmax(0, s)));
}

/* OKLCH to sRGB (Ottosson 2020, "A perceptual color space for image processing"). */
static uint32_t oklch(double lightness, double chroma, double hue)
{
    const double a = chroma * cos(hue), b = chroma * sin(hue);
    const double l = pow(lightness + 0.3963377774 * a + 0.2158037573 * b, 3);
    const double m = pow(lightness - 0.1055613458 * a - 0.0638541728 * b, 3);
    const double s = pow(lightness - 0.0894841775 * a - 1.2914855480 * b, 3);
    return encode(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s) << 16 |
           encode(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s) << 8 |
           encode(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s);
}

void attn_heat_ramp(uint32_t *colours, int n)
{
    for (int i = 0; i < n; i++) {
        const double u = 1 - (double)i / (n - 1);
        colours[i] = oklch(0.24 + 0.73 * u, 0.05 + 0.28 * u * (1 - u) + 0.02 * u, (300 - 195 * u) * 3.14159265358979 / 180);
    }
}

void attn_heat_pool(const attn_inspect_map *map, int64_t head, int64_t size, float *out)
{
    memset(out, 0, (size_t)(size * size) * sizeof *out);
    for (int64_t r = 0; r < map->n_rows; r++) {
        const int64_t top = r * size / map->n_rows, next = (r + 1) * size / map->n_rows;
        const int64_t row = head * map->n_rows + r;
        for (int64_t i = map->starts[row]; i < map->starts[row + 1]; i++) {
            const int64_t left = map->keys[i] * size / map->n_keys, right = (map->keys[i] + 1) * size / map->n_keys;
            for (int64_t y = top; y < (next > top ? next : top + 1); y++)
                for (int64_t x = left; x < (right > left ? right : left + 1); x++)
                    out[y * size + x] = fmaxf(out[y * size + x], map->weights[i]);
        }
    }
}
