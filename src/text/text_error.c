/* text_error.c - error texts of the tokenizers. */
#include "text/text_error.h"

#include <stdarg.h>
#include <stdio.h>

#include "attn/tokenizer.h"

static _Thread_local char last_error[ATTN_TEXT_ERROR_BYTES];

attn_status attn_text_fail(attn_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(last_error, sizeof last_error, format, list);
    va_end(list);
    return status;
}

attn_status attn_text_no_memory(void)
{
    return attn_text_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
}

void attn_text_clear_error(void)
{
    last_error[0] = '\0';
}

char *attn_text_error_buffer(void)
{
    return last_error;
}

const char *attn_tokenizer_error(void)
{
    return last_error;
}
