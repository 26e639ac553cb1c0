/* layer_parts.h - the layers as other layers use them: arguments complete (strides, defaults), checked before. */
#ifndef ATTN_LAYERS_LAYER_PARTS_H
#define ATTN_LAYERS_LAYER_PARTS_H

#include "layers/layers_context.h"
#include "ops/nn/gemm.h"
#include "ops/nn/nn_rows.h"

/* Checks and completes (strides of 0 become widths); x and weight must be there. */
attn_status attn_linear_check(attn_layers *layers, attn_linear_args *args);
void attn_linear_run_forward(attn_layers *layers, const attn_linear_args *args);
void attn_linear_run_backward(attn_layers *layers, const attn_linear_args *args, const attn_linear_gradients *gradients);

attn_status attn_act_check(attn_layers *layers, int32_t act);

attn_status attn_norm_check(attn_layers *layers, attn_norm_args *args);
attn_rows_norm_job attn_norm_job(const attn_norm_args *args);
attn_status attn_norm_run_backward(attn_layers *layers, const attn_norm_args *args, const attn_norm_gradients *gradients);

/* sizes_only: data pointers may be missing (the size of saved is asked for). */
attn_status attn_ffn_check(attn_layers *layers, attn_ffn_args *args, bool sizes_only);
size_t attn_ffn_saved_size(const attn_ffn_args *args);
attn_status attn_ffn_run_forward(attn_layers *layers, const attn_ffn_args *args);
attn_status attn_ffn_run_backward(attn_layers *layers, const attn_ffn_args *args, const attn_ffn_gradients *gradients);

#endif
