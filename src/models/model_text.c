/* model_text.c - the tokenizer of a model. */
#include "models/model_internal.h"

attn_status attn_model_load_tokenizer(const attn_model_source *source, attn_tokenizer **tokenizer, char *error,
                                      size_t error_size)
{
    (void)source, (void)error, (void)error_size;
    *tokenizer = NULL;
    return ATTN_OK;
}

void attn_model_free_tokenizer(attn_tokenizer *tokenizer)
{
    (void)tokenizer;
}
