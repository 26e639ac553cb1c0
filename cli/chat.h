/* chat.h - messages in the form that a chat model was trained on. */
#ifndef ATTN_CLI_CHAT_H
#define ATTN_CLI_CHAT_H

#include "model_use.h"

/** One user message, and a system message where given (NULL: none), in the form of the model's own chat template, ending where
 * the answer begins; of a model without a template in the form that its special tokens tell. flags: ATTN_TEXT_REPLACE_INVALID;
 * receives ATTN_TEXT_NO_SPECIAL where the text has its beginning token already. To be freed; NULL after a message. */
char *chat_prompt(const char *command, const cli_model *m, const char *system, const char *message,
                  size_t bytes, size_t *out_bytes, uint32_t *flags);

#endif /* ATTN_CLI_CHAT_H */
