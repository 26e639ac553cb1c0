/* fuzz_chat_template.c - a chat template, rendered for a short conversation. */
#include <stdint.h>
#include <stdlib.h>
#include "io/bytes.h"
#include "text/chat_template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text, error[300] = "";
    size_t n;
    json_t *variables = json_pack("{s:[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}], s:b, s:s, s:s, s:n}", "messages", "role", "system", "content",
                                  " be ", "role", "user", "content", "\xC3\xA4 a,b\n", "role", "assistant", "content", "<think>x</think>y",
                                  "add_generation_prompt", 1, "bos_token", "<s>", "eos_token", "</s>", "tools");
    attn_status status = attn_chat_template_render((const char *)data, size, variables, &text, &n, error, sizeof error);
    if ((status == ATTN_OK) != (text != NULL) || (status != ATTN_OK && !error[0]) || (text && text[n] != '\0'))
        abort();
    if (text && attn_utf8_valid((const char *)data, size) && !attn_utf8_valid(text, n))
        abort();
    free(text);
    json_decref(variables);
    return 0;
}
