/* text_error.h - error texts of the tokenizers: one line per thread, read by attn_tokenizer_error(). */
#ifndef ATTN_TEXT_TEXT_ERROR_H
#define ATTN_TEXT_TEXT_ERROR_H

#include "attn/attn.h"
#include "core/compiler.h"

enum { ATTN_TEXT_ERROR_BYTES = 512 };

/* Records the message for this thread and returns status. */
attn_status attn_text_fail(attn_status status, const char *format, ...) ATTN_PRINTF(2, 3);
/* Out of memory. */
attn_status attn_text_no_memory(void);
/* Empties this thread's message: at the start of every public call. */
void attn_text_clear_error(void);
/* This thread's buffer of ATTN_TEXT_ERROR_BYTES, for functions that write their message themselves. */
char *attn_text_error_buffer(void);

#define ATTN_TEXT_TRY(expression)                                                                  \
    do {                                                                                           \
        attn_status text_status_ = (expression);                                                   \
        if (text_status_ != ATTN_OK)                                                               \
            return text_status_;                                                                   \
    } while (0)

#endif
