/* safetensors_dtype.c - table of the element types, and conversion of elements. */
#include "io/safetensors_dtype.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "core/half.h"
#include "io/bytes.h"

typedef struct dtype_info {
    const char *name;
    uint32_t bits;
} dtype_info;

static const dtype_info dtypes[ATTN_ST_DTYPES] = {
    [ATTN_ST_BOOL] = {"BOOL", 8},       [ATTN_ST_U8] = {"U8", 8},
    [ATTN_ST_I8] = {"I8", 8},           [ATTN_ST_U16] = {"U16", 16},
    [ATTN_ST_I16] = {"I16", 16},        [ATTN_ST_U32] = {"U32", 32},
    [ATTN_ST_I32] = {"I32", 32},        [ATTN_ST_U64] = {"U64", 64},
    [ATTN_ST_I64] = {"I64", 64},        [ATTN_ST_F16] = {"F16", 16},
    [ATTN_ST_BF16] = {"BF16", 16},      [ATTN_ST_F32] = {"F32", 32},
    [ATTN_ST_F64] = {"F64", 64},        [ATTN_ST_F8_E4M3] = {"F8_E4M3", 8},
    [ATTN_ST_F8_E5M2] = {"F8_E5M2", 8}, [ATTN_ST_F8_E8M0] = {"F8_E8M0", 8},
    [ATTN_ST_F4] = {"F4", 4},           [ATTN_ST_F6_E2M3] = {"F6_E2M3", 6},
    [ATTN_ST_F6_E3M2] = {"F6_E3M2", 6}, [ATTN_ST_C64] = {"C64", 64},
};

const char *attn_st_dtype_name(attn_st_dtype dtype)
{
    return (unsigned)dtype < ATTN_ST_DTYPES ? dtypes[dtype].name : "unknown";
}

uint32_t attn_st_dtype_bits(attn_st_dtype dtype)
{
    return (unsigned)dtype < ATTN_ST_DTYPES ? dtypes[dtype].bits : 0;
}

int attn_st_dtype_from_name(const char *name)
{
    for (int d = 0; d < ATTN_ST_DTYPES; d++)
        if (!strcmp(name, dtypes[d].name))
            return d;
    return -1;
}

/* 1 sign bit, 4 exponent bits (bias 7), 3 mantissa bits; the all-ones pattern alone is NaN. */
static double f8_e4m3(uint8_t x)
{
    int exponent = (x >> 3) & 15, mantissa = x & 7;
    double magnitude = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    if ((x & 0x7f) == 0x7f)
        return (double)NAN;
    return x & 0x80 ? -magnitude : magnitude;
}

/* The upper byte of an f16. */
static double f8_e5m2(uint8_t x)
{
    return (double)attn_f16_to_f32((uint16_t)(x << 8));
}

static double read_f64(const uint8_t *p)
{
    uint64_t bits = attn_read_u64(p);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Element i; *known is false for a type that is known by size only. */
static double element(attn_st_dtype dtype, const uint8_t *data, size_t i, bool *known)
{
    switch (dtype) {
    case ATTN_ST_BOOL:
        return data[i] != 0;
    case ATTN_ST_U8:
        return data[i];
    case ATTN_ST_I8:
        return (int8_t)data[i];
    case ATTN_ST_U16:
        return attn_read_u16(data + 2 * i);
    case ATTN_ST_I16:
        return (int16_t)attn_read_u16(data + 2 * i);
    case ATTN_ST_U32:
        return attn_read_u32(data + 4 * i);
    case ATTN_ST_I32:
        return (int32_t)attn_read_u32(data + 4 * i);
    case ATTN_ST_U64:
        return (double)attn_read_u64(data + 8 * i);
    case ATTN_ST_I64:
        return (double)(int64_t)attn_read_u64(data + 8 * i);
    case ATTN_ST_F16:
        return (double)attn_f16_to_f32(attn_read_u16(data + 2 * i));
    case ATTN_ST_BF16:
        return (double)attn_bf16_to_f32(attn_read_u16(data + 2 * i));
    case ATTN_ST_F32:
        return (double)attn_f32_from_bits(attn_read_u32(data + 4 * i));
    case ATTN_ST_F64:
        return read_f64(data + 8 * i);
    case ATTN_ST_F8_E4M3:
        return f8_e4m3(data[i]);
    case ATTN_ST_F8_E5M2:
        return f8_e5m2(data[i]);
    default:
        *known = false;
        return 0;
    }
}

attn_status attn_st_to_f64(attn_st_dtype dtype, const uint8_t *data, size_t n, double *out)
{
    bool known = (unsigned)dtype <= ATTN_ST_F8_E5M2;
    for (size_t i = 0; known && i < n; i++)
        out[i] = element(dtype, data, i, &known);
    return known ? ATTN_OK : ATTN_ERR_UNSUPPORTED;
}

/* 64-bit integers go to f32 in one rounding, not by way of f64. */
static void integers_to_f32(attn_st_dtype dtype, const uint8_t *data, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = attn_read_u64(data + 8 * i);
        out[i] = dtype == ATTN_ST_I64 ? (float)(int64_t)bits : (float)bits;
    }
}

attn_status attn_st_to_f32(attn_st_dtype dtype, const uint8_t *data, size_t n, float *out)
{
    bool known = (unsigned)dtype <= ATTN_ST_F8_E5M2;
    switch (dtype) {
    case ATTN_ST_F32:
        for (size_t i = 0; i < n; i++)
            out[i] = attn_f32_from_bits(attn_read_u32(data + 4 * i));
        break;
    case ATTN_ST_BF16:
        for (size_t i = 0; i < n; i++)
            out[i] = attn_bf16_to_f32(attn_read_u16(data + 2 * i));
        break;
    case ATTN_ST_F16:
        for (size_t i = 0; i < n; i++)
            out[i] = attn_f16_to_f32(attn_read_u16(data + 2 * i));
        break;
    case ATTN_ST_I64:
    case ATTN_ST_U64:
        integers_to_f32(dtype, data, n, out);
        break;
    default:
        for (size_t i = 0; known && i < n; i++)
            out[i] = (float)element(dtype, data, i, &known);
    }
    return known ? ATTN_OK : ATTN_ERR_UNSUPPORTED;
}
