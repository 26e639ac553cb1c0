/* table.h - which kernels a level runs. Filled from the bottom up: the scalar entries are complete, and each better level
 * overrides what it improves, so no pointer is NULL but where it says so. */
#ifndef ATTN_KERNELS_TABLE_H
#define ATTN_KERNELS_TABLE_H

#include "kernels/sdpa/fwd_plan.h"

typedef struct attn_kernels {
    attn_fwd_kernel forward;      /* queries in lanes: f32 arithmetic for f32, bf16, f16 and i8 arrays */
    attn_fwd_kernel forward_bf16; /* the same with products in bf16, for what attn_fwd_suits_bf16 says; strip may be NULL */
} attn_kernels;

/* The kernels of a level (ATTN_ISA_*); static. Levels that this build lacks fall back to the one below. */
const attn_kernels *attn_kernels_for(int32_t isa);
/* The kernel that a problem's strips take there. */
const attn_fwd_kernel *attn_fwd_kernel_for(int32_t isa, const attn_problem *p);

#endif
