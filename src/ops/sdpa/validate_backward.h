/* validate_backward.h - the door of the backward pass. */
#ifndef ATTN_OPS_SDPA_VALIDATE_BACKWARD_H
#define ATTN_OPS_SDPA_VALIDATE_BACKWARD_H

#include "core/context.h"
#include "kernels/sdpa/bwd_problem.h"

/* Copies and checks *args and *args->forward into *problem. with_data: data pointers and overlaps are checked too (not for
 * a workspace query). The error text names field and value. */
attn_status attn_sdpa_validate_backward(attn_ctx *ctx, const attn_sdpa_backward_args *args, bool with_data,
                                        attn_bwd_problem *problem);

#endif
