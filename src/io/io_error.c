/* io_error.c - error texts of src/io. */
#include "io/io_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "io/bytes.h"

attn_status attn_io_fail(char *error, size_t error_size, attn_status status, const char *format,
                         ...)
{
    if (error && error_size) {
        va_list list;
        va_start(list, format);
        vsnprintf(error, error_size, format, list);
        va_end(list);
    }
    return status;
}

attn_status attn_io_no_memory(char *error, size_t error_size, const char *what)
{
    return attn_io_fail(error, error_size, ATTN_ERR_OUT_OF_MEMORY, "out of memory for %s", what);
}

const char *attn_io_printable(const char *text, size_t length, char *out, size_t out_size)
{
    const uint8_t *bytes = (const uint8_t *)text;
    size_t written = 0;
    for (size_t i = 0; i < length;) {
        size_t step = attn_utf8_length(bytes + i, length - i);
        bool visible = step > 1 ? !(step == 2 && bytes[i] == 0xc2 && bytes[i + 1] < 0xa0)
                                : step == 1 && bytes[i] >= 0x20 && bytes[i] != 0x7f;
        size_t need = visible ? step : 1;
        if (written + need + (i + (step ? step : 1) < length ? 3 : 0) + 1 > out_size) {
            memcpy(out + written, "...", 4);
            return out;
        }
        if (visible)
            memcpy(out + written, bytes + i, step);
        else
            out[written] = '?';
        written += need;
        i += step ? step : 1;
    }
    out[written] = '\0';
    return out;
}
