/* png_write.h - an 8-bit greyscale or palette picture as PNG bytes. */
#ifndef ATTN_VIZ_PNG_WRITE_H
#define ATTN_VIZ_PNG_WRITE_H

#include <stddef.h>
#include <stdint.h>

/* A picture whose pixels are indices into a palette of at most 256 colours (0xRRGGBB). Returns the bytes of a PNG file
 * (free them) and their number in *size; NULL: out of memory.
 *
 * Deflate with fixed Huffman codes, one match candidate for each pixel (the row above): few colours and straight lines
 * come out small, and no library is needed. (RFC 1951, RFC 2083) */
uint8_t *attn_png_encode(const uint8_t *pixels, int32_t width, int32_t height, const uint32_t *palette, int32_t n_colours,
                         size_t *size);

#endif
