/* safetensors_dtype.h - element types of safetensors files, and their elements as numbers. */
#ifndef ATTN_IO_SAFETENSORS_DTYPE_H
#define ATTN_IO_SAFETENSORS_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include "attn/attn.h"

typedef enum attn_st_dtype {
    ATTN_ST_BOOL,
    ATTN_ST_U8,
    ATTN_ST_I8,
    ATTN_ST_U16,
    ATTN_ST_I16,
    ATTN_ST_U32,
    ATTN_ST_I32,
    ATTN_ST_U64,
    ATTN_ST_I64,
    ATTN_ST_F16,
    ATTN_ST_BF16,
    ATTN_ST_F32,
    ATTN_ST_F64,
    ATTN_ST_F8_E4M3, /* no infinity; 0x7f and 0xff are NaN */
    ATTN_ST_F8_E5M2,
    /* known by size only: listed and copied, not read as numbers */
    ATTN_ST_F8_E8M0,
    ATTN_ST_F4,
    ATTN_ST_F6_E2M3,
    ATTN_ST_F6_E3M2,
    ATTN_ST_C64,
    ATTN_ST_DTYPES
} attn_st_dtype;

/* "BF16"; "unknown" outside the enum. Static. */
const char *attn_st_dtype_name(attn_st_dtype dtype);
/* Bits of one element; 0 outside the enum. */
uint32_t attn_st_dtype_bits(attn_st_dtype dtype);
/* The type called `name` (exactly, as the format spells it), or -1. */
int attn_st_dtype_from_name(const char *name);

/* n elements at `data` (any alignment) as numbers, to out[n]. f64 holds every type exactly except
 * U64 and I64 beyond 2^53; f32 rounds to nearest even. ATTN_ERR_UNSUPPORTED (out untouched) for
 * types that are known by size only. */
attn_status attn_st_to_f64(attn_st_dtype dtype, const uint8_t *data, size_t n, double *out);
attn_status attn_st_to_f32(attn_st_dtype dtype, const uint8_t *data, size_t n, float *out);

#endif
