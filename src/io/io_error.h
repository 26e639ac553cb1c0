/* io_error.h - how the readers and writers of files report what was wrong.
 *
 * Every function of src/io that can fail returns an attn_status and takes `char *error, size_t
 * error_size`: on failure one line of text is written there (always ended by 0; may be NULL, 0 when
 * nobody reads it), naming the field and the value. On success the text is left as it was. Names
 * that come from a file are printed through attn_io_printable, so that no file can send control
 * characters to a terminal.
 */
#ifndef ATTN_IO_IO_ERROR_H
#define ATTN_IO_IO_ERROR_H

#include "attn/attn.h"
#include "core/compiler.h"

/* Writes the message and returns status, for `return attn_io_fail(error, error_size,
 * ATTN_ERR_FORMAT, ...)`. */
attn_status attn_io_fail(char *error, size_t error_size, attn_status status, const char *format,
                         ...) ATTN_PRINTF(4, 5);

/* Out of memory while reading `what`. */
attn_status attn_io_no_memory(char *error, size_t error_size, const char *what);

/* Copies at most `length` bytes of text into out as printable text: control bytes and bytes that
 * are not UTF-8 become
 * '?', a text that does not fit ends in "...". Returns out. out_size must be at least 4. */
const char *attn_io_printable(const char *text, size_t length, char *out, size_t out_size);

#endif
