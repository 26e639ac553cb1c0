/* model_error.c - the text of the last error of attn/model.h, one per thread. */
#include <stdarg.h>
#include <stdio.h>
#include "core/args.h"
#include "models/model_internal.h"

static _Thread_local char last_error[ATTN_MODEL_ERROR_BYTES];

char *attn_model_error_buffer(void)
{
    return last_error;
}

const char *attn_model_error(const attn_model *model)
{
    (void)model;
    return last_error;
}

attn_status attn_model_fail(attn_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(last_error, sizeof last_error, format, list);
    va_end(list);
    return status;
}

attn_status attn_model_args(void *ours, size_t size, const void *theirs, const char *name)
{
    char text[ATTN_ARGS_TEXT_BYTES];
    const attn_status status = attn_args_read(ours, size, theirs, name, text);
    return status == ATTN_OK ? ATTN_OK : attn_model_fail(status, "%s", text);
}
