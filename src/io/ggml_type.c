/* ggml_type.c - table of the tensor types of GGUF files. */
#include "io/ggml_type.h"

#include <stddef.h>

/* Gaps are numbers that the format has withdrawn (Q4_2, Q4_3, the repacked Q4_0 and IQ4_NL
 * layouts). */
static const attn_ggml_type_info types[] = {
    [ATTN_GGML_F32] = {"F32", 1, 4},
    [ATTN_GGML_F16] = {"F16", 1, 2},
    [ATTN_GGML_Q4_0] = {"Q4_0", 32, 18},
    [ATTN_GGML_Q4_1] = {"Q4_1", 32, 20},
    [ATTN_GGML_Q5_0] = {"Q5_0", 32, 22},
    [ATTN_GGML_Q5_1] = {"Q5_1", 32, 24},
    [ATTN_GGML_Q8_0] = {"Q8_0", 32, 34},
    [9] = {"Q8_1", 32, 36},
    [10] = {"Q2_K", 256, 84},
    [11] = {"Q3_K", 256, 110},
    [ATTN_GGML_Q4_K] = {"Q4_K", 256, 144},
    [ATTN_GGML_Q5_K] = {"Q5_K", 256, 176},
    [ATTN_GGML_Q6_K] = {"Q6_K", 256, 210},
    [15] = {"Q8_K", 256, 292},
    [16] = {"IQ2_XXS", 256, 66},
    [17] = {"IQ2_XS", 256, 74},
    [18] = {"IQ3_XXS", 256, 98},
    [19] = {"IQ1_S", 256, 50},
    [20] = {"IQ4_NL", 32, 18},
    [21] = {"IQ3_S", 256, 110},
    [22] = {"IQ2_S", 256, 82},
    [23] = {"IQ4_XS", 256, 136},
    [24] = {"I8", 1, 1},
    [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},
    [27] = {"I64", 1, 8},
    [28] = {"F64", 1, 8},
    [29] = {"IQ1_M", 256, 56},
    [ATTN_GGML_BF16] = {"BF16", 1, 2},
    [34] = {"TQ1_0", 256, 54},
    [35] = {"TQ2_0", 256, 66},
    [39] = {"MXFP4", 32, 17},
    [40] = {"NVFP4", 64, 36},
    [41] = {"Q1_0", 128, 18},
};

const attn_ggml_type_info *attn_ggml_type(uint32_t type)
{
    if (type >= sizeof types / sizeof types[0] || !types[type].name)
        return NULL;
    return &types[type];
}

const char *attn_ggml_type_name(uint32_t type)
{
    const attn_ggml_type_info *info = attn_ggml_type(type);
    return info ? info->name : "unknown";
}
