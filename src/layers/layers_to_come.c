/* layers_to_come.c - declared in attn/layers.h, not there yet: UNSUPPORTED, in so many words. */
#include "layers/layers_context.h"

#define TO_COME(name)                                                                                                  \
    (layers ? attn_layers_fail(layers, ATTN_ERR_UNSUPPORTED, name " is not implemented yet") : ATTN_ERR_INVALID_ARGUMENT)

attn_status attn_activation_forward(attn_layers *layers, const attn_activation_args *args)
{
    (void)args;
    return TO_COME("attn_activation_forward");
}

attn_status attn_activation_backward(attn_layers *layers, const attn_activation_args *args, const attn_activation_gradients *gradients)
{
    (void)args;
    (void)gradients;
    return TO_COME("attn_activation_backward");
}

attn_status attn_norm_forward(attn_layers *layers, const attn_norm_args *args)
{
    (void)args;
    return TO_COME("attn_norm_forward");
}

attn_status attn_norm_backward(attn_layers *layers, const attn_norm_args *args, const attn_norm_gradients *gradients)
{
    (void)args;
    (void)gradients;
    return TO_COME("attn_norm_backward");
}

attn_status attn_residual_forward(attn_layers *layers, const attn_residual_args *args)
{
    (void)args;
    return TO_COME("attn_residual_forward");
}

attn_status attn_residual_backward(attn_layers *layers, const attn_residual_args *args, const void *d_y, void *d_x, uint64_t flags)
{
    (void)args;
    (void)d_y;
    (void)d_x;
    (void)flags;
    return TO_COME("attn_residual_backward");
}

attn_status attn_embedding_forward(attn_layers *layers, const attn_embedding_args *args)
{
    (void)args;
    return TO_COME("attn_embedding_forward");
}

attn_status attn_embedding_backward(attn_layers *layers, const attn_embedding_args *args, const attn_embedding_gradients *gradients)
{
    (void)args;
    (void)gradients;
    return TO_COME("attn_embedding_backward");
}

attn_status attn_mha_saved_bytes(attn_layers *layers, const attn_mha_args *args, size_t *bytes)
{
    (void)args;
    (void)bytes;
    return TO_COME("attn_mha_saved_bytes");
}

attn_status attn_mha_forward(attn_layers *layers, const attn_mha_args *args)
{
    (void)args;
    return TO_COME("attn_mha_forward");
}

attn_status attn_mha_backward(attn_layers *layers, const attn_mha_args *args, const attn_mha_gradients *gradients)
{
    (void)args;
    (void)gradients;
    return TO_COME("attn_mha_backward");
}

attn_status attn_ffn_saved_bytes(attn_layers *layers, const attn_ffn_args *args, size_t *bytes)
{
    (void)args;
    (void)bytes;
    return TO_COME("attn_ffn_saved_bytes");
}

attn_status attn_ffn_forward(attn_layers *layers, const attn_ffn_args *args)
{
    (void)args;
    return TO_COME("attn_ffn_forward");
}

attn_status attn_ffn_backward(attn_layers *layers, const attn_ffn_args *args, const attn_ffn_gradients *gradients)
{
    (void)args;
    (void)gradients;
    return TO_COME("attn_ffn_backward");
}

attn_status attn_block_saved_bytes(attn_layers *layers, const attn_block_args *args, size_t *bytes)
{
    (void)args;
    (void)bytes;
    return TO_COME("attn_block_saved_bytes");
}

attn_status attn_block_forward(attn_layers *layers, const attn_block_args *args)
{
    (void)args;
    return TO_COME("attn_block_forward");
}

attn_status attn_block_backward(attn_layers *layers, const attn_block_args *args, const attn_block_gradients *gradients)
{
    (void)args;
    (void)gradients;
    return TO_COME("attn_block_backward");
}

attn_status attn_cross_entropy(attn_layers *layers, const attn_cross_entropy_args *args, const attn_cross_entropy_gradients *gradients)
{
    (void)args;
    (void)gradients;
    return TO_COME("attn_cross_entropy");
}

attn_status attn_rnn_saved_bytes(attn_layers *layers, const attn_rnn_args *args, size_t *bytes)
{
    (void)args;
    (void)bytes;
    return TO_COME("attn_rnn_saved_bytes");
}

attn_status attn_rnn_forward(attn_layers *layers, const attn_rnn_args *args)
{
    (void)args;
    return TO_COME("attn_rnn_forward");
}

attn_status attn_rnn_backward(attn_layers *layers, const attn_rnn_args *args, const attn_rnn_gradients *gradients)
{
    (void)args;
    (void)gradients;
    return TO_COME("attn_rnn_backward");
}

attn_status attn_decoder_rnn_saved_bytes(attn_layers *layers, const attn_decoder_rnn_args *args, size_t *bytes)
{
    (void)args;
    (void)bytes;
    return TO_COME("attn_decoder_rnn_saved_bytes");
}

attn_status attn_decoder_rnn_forward(attn_layers *layers, const attn_decoder_rnn_args *args)
{
    (void)args;
    return TO_COME("attn_decoder_rnn_forward");
}

attn_status attn_decoder_rnn_backward(attn_layers *layers, const attn_decoder_rnn_args *args, const attn_decoder_rnn_gradients *gradients)
{
    (void)args;
    (void)gradients;
    return TO_COME("attn_decoder_rnn_backward");
}
