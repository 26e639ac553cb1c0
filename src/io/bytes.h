/* bytes.h - reading little-endian numbers and UTF-8 from bytes that nobody vouches for.
 * Callers check that the bytes are there; these functions need no alignment and no particular host
 * byte order. */
#ifndef ATTN_IO_BYTES_H
#define ATTN_IO_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline uint16_t attn_read_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (uint16_t)p[1] << 8);
}

static inline uint32_t attn_read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t attn_read_u64(const uint8_t *p)
{
    return (uint64_t)attn_read_u32(p) | (uint64_t)attn_read_u32(p + 4) << 32;
}

static inline void attn_write_u16(uint8_t *p, uint16_t x)
{
    p[0] = (uint8_t)x;
    p[1] = (uint8_t)(x >> 8);
}

static inline void attn_write_u32(uint8_t *p, uint32_t x)
{
    attn_write_u16(p, (uint16_t)x);
    attn_write_u16(p + 2, (uint16_t)(x >> 16));
}

static inline void attn_write_u64(uint8_t *p, uint64_t x)
{
    attn_write_u32(p, (uint32_t)x);
    attn_write_u32(p + 4, (uint32_t)(x >> 32));
}

/* a * b and a + b in 64 bits; false when the result does not fit. */
static inline bool attn_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    if (a && b > UINT64_MAX / a)
        return false;
    *out = a * b;
    return true;
}

static inline bool attn_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    *out = a + b;
    return *out >= a;
}

/* Bytes of the UTF-8 character that starts at p, of which `size` bytes are there; 0 when it is
 * ill-formed (RFC 3629: no overlong form, no surrogate, at most U+10FFFF). */
static inline size_t attn_utf8_length(const uint8_t *p, size_t size)
{
    if (size == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;
    size_t length = p[0] >= 0xc2 && p[0] < 0xe0    ? 2
                    : (p[0] & 0xf0) == 0xe0        ? 3
                    : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4
                                                   : 0;
    if (length == 0 || size < length)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] >= 0xa0) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] >= 0x90))
        return 0;
    return length;
}

/* True when all `size` bytes are well-formed UTF-8. */
static inline bool attn_utf8_valid(const char *text, size_t size)
{
    for (size_t i = 0, step; i < size; i += step) {
        step = attn_utf8_length((const uint8_t *)text + i, size - i);
        if (!step)
            return false;
    }
    return true;
}

#endif
