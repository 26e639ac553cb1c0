/* normalize.c - normalisers over the work text. */
#include "text/tokenizer_impl.h"

attn_status attn_normalize(const attn_step *step, attn_scratch *scratch)
{
    (void)scratch;
    return attn_text_fail(ATTN_ERR_UNSUPPORTED, "normalizer kind %d is not served", (int)step->kind);
}
