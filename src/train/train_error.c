/* train_error.c - error texts of training. */
#include "train/train_error.h"

#include <stdarg.h>
#include <stdio.h>
#include "attn/train.h"
#include "core/args.h"

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
    char text[ATTN_ARGS_TEXT_BYTES];
    const attn_status status = attn_args_read(ours, size, theirs, name, text);
    return status == ATTN_OK ? ATTN_OK : attn_train_fail(status, "%s", text);
}
