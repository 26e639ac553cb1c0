/* model_error.c - the text of the last error of attn/model.h, one per thread. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
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
    size_t given;
    memset(ours, 0, size);
    if (!theirs)
        return attn_model_fail(ATTN_ERR_INVALID_ARGUMENT, "%s is NULL", name);
    memcpy(&given, theirs, sizeof given);
    if (given < sizeof given || given > 1 << 16)
        return attn_model_fail(ATTN_ERR_INVALID_ARGUMENT, "%s.struct_size is %zu", name, given);
    for (size_t i = size; i < given; i++)
        if (((const unsigned char *)theirs)[i])
            return attn_model_fail(ATTN_ERR_UNSUPPORTED, "%s.struct_size is %zu: field at byte %zu is not known here",
                                   name, given, i);
    memcpy(ours, theirs, given < size ? given : size);
    return ATTN_OK;
}
