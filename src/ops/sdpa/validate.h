/* validate.h - the door of all attention calls: checks arguments once and resolves them to an attn_problem. */
#ifndef ATTN_OPS_SDPA_VALIDATE_H
#define ATTN_OPS_SDPA_VALIDATE_H

#include "core/context.h"
#include "kernels/sdpa/problem.h"

enum {                       /* what a call needs of the arguments */
    ATTN_NEED_VALUE = 1,     /* value and out must be given (their shapes always are checked when they are) */
    ATTN_NEED_DATA = 2,      /* data pointers of non-empty arrays may not be NULL */
    ATTN_NEED_ALL = 3
};

/* dtype, shape and strides of one view on its own; data is not NULL where it must be. */
attn_status attn_check_view(attn_ctx *ctx, const attn_cview *v, const char *name, unsigned need);

/* False when two elements of a view that is written are one. */
bool attn_elements_distinct(const attn_cview *v);

/* Copies and checks *args (its struct_size read first) into *problem. The error text names field and value. */
attn_status attn_sdpa_validate(attn_ctx *ctx, const attn_sdpa_args *args, unsigned need, attn_problem *problem);

#endif
