/* chat.h - messages in the form that a chat model was trained on. */
#ifndef ATTN_CLI_CHAT_H
#define ATTN_CLI_CHAT_H

#include "model_use.h"

/** One user message, and a system message where given, in the model's form, ending where the answer
 * begins. To be freed; NULL after a message (the model has no form that is known here). */
char *chat_prompt(const char *command, const cli_model *m, const char *system, const char *message,
                  size_t bytes, size_t *out_bytes);

#endif /* ATTN_CLI_CHAT_H */
