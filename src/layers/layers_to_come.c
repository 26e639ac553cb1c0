/* layers_to_come.c - declared in attn/layers.h, not there yet: UNSUPPORTED, in so many words. */
#include "layers/layers_context.h"

#define TO_COME(name)                                                                                                  \
    (layers ? attn_layers_fail(layers, ATTN_ERR_UNSUPPORTED, name " is not implemented yet") : ATTN_ERR_INVALID_ARGUMENT)

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
