/* train_error.h - the text of attn_train_error(), one per thread. */
#ifndef ATTN_TRAIN_TRAIN_ERROR_H
#define ATTN_TRAIN_TRAIN_ERROR_H

#include "attn/attn.h"
#include "core/compiler.h"

enum { ATTN_TRAIN_ERROR_BYTES = 512 };

/* Records the message for this thread and returns status. */
attn_status attn_train_fail(attn_status status, const char *format, ...) ATTN_PRINTF(2, 3);
attn_status attn_train_no_memory(void);
/* This thread's buffer, for functions of io that write their message themselves. */
char *attn_train_error_buffer(void);
/* Empties this thread's message: at the start of every public call. */
void attn_train_clear_error(void);

/* Copies a versioned struct: missing fields read as zero, unknown bytes must be zero. */
attn_status attn_train_args(void *ours, size_t size, const void *theirs, const char *name);

#define ATTN_TRAIN_TRY(expression)                                                                 \
    do {                                                                                           \
        attn_status train_status_ = (expression);                                                  \
        if (train_status_ != ATTN_OK)                                                              \
            return train_status_;                                                                  \
    } while (0)

#define ATTN_TRAIN_REQUIRE(condition, ...)                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return attn_train_fail(ATTN_ERR_INVALID_ARGUMENT, __VA_ARGS__);                        \
    } while (0)

#endif
