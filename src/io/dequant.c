/* dequant.c - block-quantised numbers to f32. One function for each format; the layouts are in
 * dequant.h. */
#include "io/dequant.h"

#include <string.h>

#include "core/half.h"
#include "io/bytes.h"
#include "io/ggml_type.h"
#include "io/io_error.h"

static float read_f16(const uint8_t *p)
{
    return attn_f16_to_f32(attn_read_u16(p));
}

static void dequant_f32(const uint8_t *in, int64_t n_blocks, float *out)
{
    for (int64_t i = 0; i < n_blocks; i++) {
        uint32_t bits = attn_read_u32(in + 4 * i);
        memcpy(&out[i], &bits, sizeof bits);
    }
}

static void dequant_f16(const uint8_t *in, int64_t n_blocks, float *out)
{
    for (int64_t i = 0; i < n_blocks; i++)
        out[i] = read_f16(in + 2 * i);
}

static void dequant_bf16(const uint8_t *in, int64_t n_blocks, float *out)
{
    for (int64_t i = 0; i < n_blocks; i++) {
        uint32_t bits = (uint32_t)attn_read_u16(in + 2 * i) << 16;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

static void dequant_q8_0(const uint8_t *in, int64_t n_blocks, float *out)
{
    for (int64_t b = 0; b < n_blocks; b++, in += 34, out += 32) {
        float d = read_f16(in);
        for (int i = 0; i < 32; i++)
            out[i] = (float)(int8_t)in[2 + i] * d;
    }
}

static void dequant_q4_0(const uint8_t *in, int64_t n_blocks, float *out)
{
    for (int64_t b = 0; b < n_blocks; b++, in += 18, out += 32) {
        float d = read_f16(in);
        for (int i = 0; i < 16; i++) {
            out[i] = (float)((in[2 + i] & 15) - 8) * d;
            out[i + 16] = (float)((in[2 + i] >> 4) - 8) * d;
        }
    }
}

static void dequant_q4_1(const uint8_t *in, int64_t n_blocks, float *out)
{
    for (int64_t b = 0; b < n_blocks; b++, in += 20, out += 32) {
        float d = read_f16(in), m = read_f16(in + 2);
        for (int i = 0; i < 16; i++) {
            out[i] = (float)(in[4 + i] & 15) * d + m;
            out[i + 16] = (float)(in[4 + i] >> 4) * d + m;
        }
    }
}

/* Number i of a 5-bit block: a nibble of the 16 bytes at `low`, and bit i of `high` as its fifth
 * bit. */
static int five_bits(const uint8_t *low, uint32_t high, int i)
{
    int nibble = i < 16 ? low[i] & 15 : low[i - 16] >> 4;
    return nibble | (int)((high >> i) & 1u) << 4;
}

static void dequant_q5_0(const uint8_t *in, int64_t n_blocks, float *out)
{
    for (int64_t b = 0; b < n_blocks; b++, in += 22, out += 32) {
        float d = read_f16(in);
        uint32_t high = attn_read_u32(in + 2);
        for (int i = 0; i < 32; i++)
            out[i] = (float)(five_bits(in + 6, high, i) - 16) * d;
    }
}

static void dequant_q5_1(const uint8_t *in, int64_t n_blocks, float *out)
{
    for (int64_t b = 0; b < n_blocks; b++, in += 24, out += 32) {
        float d = read_f16(in), m = read_f16(in + 2);
        uint32_t high = attn_read_u32(in + 4);
        for (int i = 0; i < 32; i++)
            out[i] = (float)five_bits(in + 8, high, i) * d + m;
    }
}

/* Scale and min number `group` (0..7) of the 12 packed bytes of Q4_K and Q5_K: groups 0 to 3 are
 * the low six bits of bytes 0..3 and 4..7; of groups 4 to 7 the low nibbles are in bytes 8..11
 * (scale low, min high), and the two bits above are the top bits of the bytes of group - 4. */
static void k_scale_min(const uint8_t *packed, int group, int *scale, int *min)
{
    if (group < 4) {
        *scale = packed[group] & 63;
        *min = packed[group + 4] & 63;
    } else {
        *scale = (packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4;
        *min = (packed[group + 4] >> 4) | (packed[group] >> 6) << 4;
    }
}

/* 256 numbers in 8 groups of 32; two groups share 32 bytes, the even one in the low nibbles. */
static void dequant_q4_k(const uint8_t *in, int64_t n_blocks, float *out)
{
    for (int64_t b = 0; b < n_blocks; b++, in += 144, out += 256) {
        float d = read_f16(in), dmin = read_f16(in + 2);
        for (int group = 0; group < 8; group++) {
            int scale, min, shift = 4 * (group & 1);
            k_scale_min(in + 4, group, &scale, &min);
            float step = d * (float)scale, base = dmin * (float)min;
            const uint8_t *low = in + 16 + 32 * (group / 2);
            for (int i = 0; i < 32; i++)
                out[32 * group + i] = step * (float)((low[i] >> shift) & 15) - base;
        }
    }
}

/* As Q4_K; the fifth bit of number i of a group is bit `group` of byte i of the 32 bytes of high
 * bits. */
static void dequant_q5_k(const uint8_t *in, int64_t n_blocks, float *out)
{
    for (int64_t b = 0; b < n_blocks; b++, in += 176, out += 256) {
        float d = read_f16(in), dmin = read_f16(in + 2);
        const uint8_t *high = in + 16;
        for (int group = 0; group < 8; group++) {
            int scale, min, shift = 4 * (group & 1);
            k_scale_min(in + 4, group, &scale, &min);
            float step = d * (float)scale, base = dmin * (float)min;
            const uint8_t *low = in + 48 + 32 * (group / 2);
            for (int i = 0; i < 32; i++) {
                int q = ((low[i] >> shift) & 15) | ((high[i] >> group) & 1) << 4;
                out[32 * group + i] = step * (float)q - base;
            }
        }
    }
}

/* Two halves of 128 numbers. In a half, run r (0..3) of 32 numbers takes the nibbles r / 2 of bytes
 * 32 * (r % 2) + i of its 64 low bytes, and bits 2r, 2r + 1 of byte i of its 32 high bytes. One
 * scale for 16 numbers. */
static void dequant_q6_k(const uint8_t *in, int64_t n_blocks, float *out)
{
    for (int64_t b = 0; b < n_blocks; b++, in += 210, out += 256) {
        float d = read_f16(in + 208);
        for (int group = 0; group < 16; group++) { /* 16 numbers each */
            int half = group / 8, run = group / 2 % 4, start = 16 * (group % 2);
            const uint8_t *low = in + 64 * half + 32 * (run % 2) + start;
            const uint8_t *high = in + 128 + 32 * half + start;
            float step = d * (float)(int8_t)in[192 + group];
            for (int i = 0; i < 16; i++) {
                int q = ((low[i] >> (4 * (run / 2))) & 15) | ((high[i] >> (2 * run)) & 3) << 4;
                out[16 * group + i] = step * (float)(q - 32);
            }
        }
    }
}

attn_dequant_fn attn_dequant_function(uint32_t type)
{
    switch (type) {
    case ATTN_GGML_F32:
        return dequant_f32;
    case ATTN_GGML_F16:
        return dequant_f16;
    case ATTN_GGML_BF16:
        return dequant_bf16;
    case ATTN_GGML_Q8_0:
        return dequant_q8_0;
    case ATTN_GGML_Q4_0:
        return dequant_q4_0;
    case ATTN_GGML_Q4_1:
        return dequant_q4_1;
    case ATTN_GGML_Q5_0:
        return dequant_q5_0;
    case ATTN_GGML_Q5_1:
        return dequant_q5_1;
    case ATTN_GGML_Q4_K:
        return dequant_q4_k;
    case ATTN_GGML_Q5_K:
        return dequant_q5_k;
    case ATTN_GGML_Q6_K:
        return dequant_q6_k;
    default:
        return NULL;
    }
}

attn_status attn_dequant(uint32_t type, const void *data, size_t bytes, int64_t first, int64_t n,
                         float *out, char *error, size_t error_size)
{
    const attn_ggml_type_info *info = attn_ggml_type(type);
    attn_dequant_fn function = attn_dequant_function(type);
    if (!info || !function)
        return attn_io_fail(error, error_size, ATTN_ERR_UNSUPPORTED,
                            "tensor type %s (%u) cannot be read as f32 here",
                            attn_ggml_type_name(type), (unsigned)type);
    int64_t block = info->block_elements;
    if (first < 0 || n < 0 || first % block || n % block)
        return attn_io_fail(error, error_size, ATTN_ERR_INVALID_ARGUMENT,
                            "elements %lld to %lld + %lld are not whole %s blocks of %lld",
                            (long long)first, (long long)first, (long long)n, info->name,
                            (long long)block);
    int64_t blocks = (int64_t)(bytes / (size_t)info->block_bytes);
    if (first / block > blocks || n / block > blocks - first / block)
        return attn_io_fail(error, error_size, ATTN_ERR_INVALID_ARGUMENT,
                            "elements %lld + %lld end past the %lld in %zu bytes of %s",
                            (long long)first, (long long)n, (long long)(blocks * block), bytes,
                            info->name);
    function((const uint8_t *)data + first / block * info->block_bytes, n / block, out);
    return ATTN_OK;
}
