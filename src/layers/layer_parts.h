/* layer_parts.h - the layers as other layers use them: arguments complete, checked before. */
#ifndef ATTN_LAYERS_LAYER_PARTS_H
#define ATTN_LAYERS_LAYER_PARTS_H

#include "layers/layers_context.h"
#include "ops/nn/gemm.h"
#include "ops/nn/nn_rows.h"

/* Checks and completes (strides of 0 become widths); x and weight must be there. */
attn_status attn_linear_check(attn_layers *layers, attn_linear_args *args);
void attn_linear_run_forward(attn_layers *layers, const attn_linear_args *args);
void attn_linear_run_backward(attn_layers *layers, const attn_linear_args *args, const attn_linear_gradients *gradients);

#endif
