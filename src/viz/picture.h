/* picture.h - a picture of palette indices, drawn into by simple means; png_write.h makes a file of it. */
#ifndef ATTN_VIZ_PICTURE_H
#define ATTN_VIZ_PICTURE_H

#include <stdint.h>

typedef struct attn_picture {
    uint8_t *pixels; /* [height][width] */
    int32_t width, height;
} attn_picture;

/* All of these leave out what lies outside the picture. */
void attn_picture_box(attn_picture *p, int x, int y, int width, int height, uint8_t colour);
void attn_picture_line(attn_picture *p, double x0, double y0, double x1, double y1, uint8_t colour);
/* Figures and small letters, 8 x 10 pixels each; align 0: x is the left edge, 1: the middle, 2: the right edge. */
void attn_picture_text(attn_picture *p, int x, int y, int align, const char *text, uint8_t colour);

#endif
