/* png_write.c - PNG with a small deflate of our own. */
#include "viz/png_write.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- Bytes and bits ---- */

typedef struct bit_writer {
    uint8_t *data;
    size_t n, capacity;
    uint32_t bits, n_bits;
    bool failed;
} bit_writer;

static void put_byte(bit_writer *w, uint8_t byte)
{
    if (w->n == w->capacity) {
        size_t capacity = w->capacity ? 2 * w->capacity : 4096;
        uint8_t *data = realloc(w->data, capacity);
        if (!data) {
            w->failed = true;
            return;
        }
        w->data = data;
        w->capacity = capacity;
    }
    w->data[w->n++] = byte;
}

static void put_u32(bit_writer *w, uint32_t value)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        put_byte(w, (uint8_t)(value >> shift));
}

/* The lowest bit first, as deflate wants numbers. */
static void put_bits(bit_writer *w, uint32_t value, uint32_t n)
{
    w->bits |= value << w->n_bits;
    w->n_bits += n;
    for (; w->n_bits >= 8; w->n_bits -= 8, w->bits >>= 8)
        put_byte(w, (uint8_t)w->bits);
}

/* The highest bit first, as deflate wants Huffman codes. */
static void put_code(bit_writer *w, uint32_t code, uint32_t n)
{
    for (uint32_t i = n; i-- > 0;)
        put_bits(w, code >> i & 1, 1);
}

/* ---- Deflate with the fixed codes (RFC 1951, section 3.2.6) ---- */

static void put_symbol(bit_writer *w, uint32_t symbol)
{
    if (symbol < 144)
        put_code(w, 0x30 + symbol, 8);
    else if (symbol < 256)
        put_code(w, 0x190 + symbol - 144, 9);
    else if (symbol < 280)
        put_code(w, symbol - 256, 7);
    else
        put_code(w, 0xC0 + symbol - 280, 8);
}

/* Codes in groups that share a number of extra bits. */
static void put_match(bit_writer *w, uint32_t length, uint32_t distance)
{
    if (length == 258) {
        put_symbol(w, 285);
    } else {
        uint32_t base = 3, symbol = 257, extra = 0, in_group = 8;
        while (length >= base + (in_group << extra)) { /* 8 codes without extra bits, then 4 for each number of them */
            base += in_group << extra;
            symbol += in_group;
            in_group = 4;
            extra++;
        }
        put_symbol(w, symbol + ((length - base) >> extra));
        put_bits(w, (length - base) & ((1u << extra) - 1), extra);
    }
    uint32_t base = 1, symbol = 0, extra = 0, in_group = 4;
    while (distance >= base + (in_group << extra)) {
        base += in_group << extra;
        symbol += in_group;
        in_group = 2;
        extra++;
    }
    put_code(w, symbol + ((distance - base) >> extra), 5);
    put_bits(w, (distance - base) & ((1u << extra) - 1), extra);
}

static uint32_t match_length(const uint8_t *bytes, size_t n, size_t at, size_t distance)
{
    uint32_t length = 0;
    while (at >= distance && at + length < n && length < 258 && bytes[at + length] == bytes[at + length - distance])
        length++;
    return length;
}

static void deflate_bytes(bit_writer *w, const uint8_t *bytes, size_t n, size_t row)
{
    put_bits(w, 1, 1); /* last block */
    put_bits(w, 1, 2); /* fixed codes */
    for (size_t at = 0; at < n;) {
        uint32_t above = match_length(bytes, n, at, row), before = match_length(bytes, n, at, 1);
        uint32_t length = above > before ? above : before;
        if (length >= 3)
            put_match(w, length, (uint32_t)(above > before ? row : 1));
        else
            put_symbol(w, bytes[at]);
        at += length >= 3 ? length : 1;
    }
    put_symbol(w, 256);
    if (w->n_bits)
        put_bits(w, 0, 8 - w->n_bits);
}

/* ---- PNG ---- */

static uint32_t crc_of(const uint8_t *bytes, size_t n)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++)
            crc = crc & 1 ? 0xEDB88320u ^ crc >> 1 : crc >> 1;
    }
    return ~crc;
}

static uint32_t adler_of(const uint8_t *bytes, size_t n)
{
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < n; i++) {
        a = (a + bytes[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

/* Starts a chunk; end_chunk fills its length and adds the sum. */
static size_t begin_chunk(bit_writer *w, const char *name)
{
    size_t at = w->n;
    put_u32(w, 0);
    for (int i = 0; i < 4; i++)
        put_byte(w, (uint8_t)name[i]);
    return at;
}

static void end_chunk(bit_writer *w, size_t at)
{
    if (w->failed)
        return;
    uint32_t length = (uint32_t)(w->n - at - 8);
    for (int i = 0; i < 4; i++)
        w->data[at + (size_t)i] = (uint8_t)(length >> (24 - 8 * i));
    put_u32(w, crc_of(w->data + at + 4, w->n - at - 4));
}

static void put_header(bit_writer *w, int32_t width, int32_t height, const uint32_t *palette, int32_t n_colours)
{
    static const uint8_t signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    for (int i = 0; i < 8; i++)
        put_byte(w, signature[i]);
    size_t at = begin_chunk(w, "IHDR");
    put_u32(w, (uint32_t)width);
    put_u32(w, (uint32_t)height);
    put_byte(w, 8); /* bits */
    put_byte(w, 3); /* palette */
    for (int i = 0; i < 3; i++)
        put_byte(w, 0);
    end_chunk(w, at);
    at = begin_chunk(w, "PLTE");
    for (int32_t i = 0; i < n_colours; i++)
        for (int shift = 16; shift >= 0; shift -= 8)
            put_byte(w, (uint8_t)(palette[i] >> shift));
    end_chunk(w, at);
}

uint8_t *attn_png_encode(const uint8_t *pixels, int32_t width, int32_t height, const uint32_t *palette, int32_t n_colours,
                         size_t *size)
{
    bit_writer w = {0};
    const size_t row = (size_t)width + 1, n = row * (size_t)height;
    uint8_t *lines = malloc(n);
    if (!lines)
        return NULL;
    for (int32_t y = 0; y < height; y++) { /* each row begins with its filter: none */
        lines[(size_t)y * row] = 0;
        memcpy(lines + (size_t)y * row + 1, pixels + (size_t)y * (size_t)width, (size_t)width);
    }
    put_header(&w, width, height, palette, n_colours);
    size_t at = begin_chunk(&w, "IDAT");
    put_byte(&w, 0x78);
    put_byte(&w, 0x01);
    deflate_bytes(&w, lines, n, row);
    put_u32(&w, adler_of(lines, n));
    end_chunk(&w, at);
    end_chunk(&w, begin_chunk(&w, "IEND"));
    free(lines);
    if (w.failed) {
        free(w.data);
        return NULL;
    }
    *size = w.n;
    return w.data;
}
