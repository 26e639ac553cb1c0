/* train_error.c - error texts of training. */
#include "train/train_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "attn/train.h"

static _Thread_local char last_error[ATTN_TRAIN_ERROR_BYTES];

const char *attn_train_error(void)
{
    return last_error;
}

char *attn_train_error_buffer(void)
{
    return last_error;
}

void attn_train_clear_error(void)
{
    last_error[0] = '\0';
}

attn_status attn_train_fail(attn_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(last_error, sizeof last_error, format, list);
    va_end(list);
    return status;
}

attn_status attn_train_no_memory(void)
{
    return attn_train_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
}

attn_status attn_train_args(void *ours, size_t size, const void *theirs, const char *name)
{
    size_t given;
    memset(ours, 0, size);
    if (!theirs)
        return attn_train_fail(ATTN_ERR_INVALID_ARGUMENT, "%s is NULL", name);
    memcpy(&given, theirs, sizeof given);
    if (given < sizeof given || given > 1 << 16)
        return attn_train_fail(ATTN_ERR_INVALID_ARGUMENT, "%s.struct_size is %zu", name, given);
    for (size_t i = size; i < given; i++)
        if (((const unsigned char *)theirs)[i])
            return attn_train_fail(ATTN_ERR_UNSUPPORTED,
                                   "%s.struct_size is %zu: field at byte %zu is not known here",
                                   name, given, i);
    memcpy(ours, theirs, given < size ? given : size);
    return ATTN_OK;
}
