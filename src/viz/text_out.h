/* text_out.h - a growing text; after the first failure it stays failed. */
#ifndef ATTN_VIZ_TEXT_OUT_H
#define ATTN_VIZ_TEXT_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include "core/compiler.h"

typedef struct attn_text_out {
    char *text;
    size_t bytes, capacity;
    bool failed;
} attn_text_out;

void attn_out_bytes(attn_text_out *out, const void *bytes, size_t n);
void attn_out_format(attn_text_out *out, const char *format, ...) ATTN_PRINTF(2, 3);
/* A JSON string, quotes included, that may also stand inside an HTML script: '<', '>', '&' and line separators are
 * escaped, bytes that are not UTF-8 become U+FFFD. */
void attn_out_json_string(attn_text_out *out, const char *text, size_t n);
void attn_out_base64(attn_text_out *out, const void *bytes, size_t n);

#endif
