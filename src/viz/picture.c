/* picture.c - dots, lines, boxes and text in a picture of palette indices. */
#include "viz/picture.h"
#include <math.h>
#include <string.h>

/* 3 x 5 pixels a character, rows from the top, the leftmost pixel in bit 2. */
static const struct glyph {
    char c;
    uint8_t rows[5];
} glyphs[] = {{'0', {7, 5, 5, 5, 7}}, {'1', {2, 6, 2, 2, 7}}, {'2', {7, 1, 7, 4, 7}}, {'3', {7, 1, 7, 1, 7}},
              {'4', {5, 5, 7, 1, 1}}, {'5', {7, 4, 7, 1, 7}}, {'6', {7, 4, 7, 5, 7}}, {'7', {7, 1, 1, 2, 2}},
              {'8', {7, 5, 7, 5, 7}}, {'9', {7, 5, 7, 1, 7}}, {'.', {0, 0, 0, 0, 2}}, {'-', {0, 0, 7, 0, 0}},
              {'+', {0, 2, 7, 2, 0}}, {'e', {0, 7, 7, 4, 7}}, {'s', {0, 3, 6, 3, 6}}, {'t', {2, 7, 2, 2, 3}},
              {'p', {0, 7, 5, 7, 4}}, {'l', {2, 2, 2, 2, 2}}, {'o', {0, 7, 5, 5, 7}}, {'r', {0, 3, 2, 2, 2}},
              {'a', {0, 3, 5, 5, 3}}, {'i', {2, 0, 2, 2, 2}}, {'n', {0, 6, 5, 5, 5}}, {'g', {3, 5, 3, 1, 6}},
              {'v', {0, 5, 5, 5, 2}}, {'d', {1, 1, 7, 5, 7}}, {',', {0, 0, 0, 2, 4}}, {'h', {4, 4, 6, 5, 5}},
              {'w', {0, 5, 5, 7, 7}}, {'y', {0, 5, 5, 2, 4}}, {'u', {0, 5, 5, 5, 7}}, {'c', {0, 7, 4, 4, 7}},
              {'k', {4, 5, 6, 5, 5}}, {'m', {0, 7, 7, 5, 5}}, {'f', {1, 2, 7, 2, 2}}, {':', {0, 2, 0, 2, 0}},
              {';', {0, 2, 0, 2, 4}}, {'M', {5, 7, 7, 5, 5}}};

void attn_picture_box(attn_picture *p, int x, int y, int width, int height, uint8_t colour)
{
    const int left = x > 0 ? x : 0, right = x + width < p->width ? x + width : p->width;
    for (int row = y > 0 ? y : 0; row < y + height && row < p->height && left < right; row++)
        memset(p->pixels + (size_t)row * (size_t)p->width + left, colour, (size_t)(right - left));
}

/* Characters without a glyph leave a gap. */
void attn_picture_text(attn_picture *p, int x, int y, int align, const char *text, uint8_t colour)
{
    x -= (int)strlen(text) * 8 * align / 2;
    for (; *text; text++, x += 8)
        for (size_t g = 0; g < sizeof glyphs / sizeof *glyphs; g++)
            for (int k = 0; glyphs[g].c == *text && k < 60; k++)
                if (glyphs[g].rows[k / 12] >> (2 - k % 6 / 2) & 1)
                    attn_picture_box(p, x + k % 6, y + k / 6, 1, 1, colour);
}

void attn_picture_line(attn_picture *p, double x0, double y0, double x1, double y1, uint8_t colour)
{
    const int n = (int)fmax(fabs(x1 - x0), fabs(y1 - y0)) + 1;
    for (int i = 0; i <= n; i++)
        attn_picture_box(p, (int)lround(x0 + (x1 - x0) * i / n), (int)lround(y0 + (y1 - y0) * i / n), 1, 1, colour);
}
