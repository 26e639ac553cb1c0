/* chat.c - conversations by the model's own template; of a model without one in the forms of common families, told apart by
 * the special tokens that a model has. */
#include "chat.h"

#include <stdlib.h>

/* How a family writes a conversation where its files say nothing. The tokenizer adds the beginning token, where a model wants
 * one. */
typedef struct chat_form {
    const char *marker; /* a special token that only this form has */
    const char *system_before, *system_after;
    const char *user_before, *user_after; /* user_after ends where the answer begins */
} chat_form;

static const chat_form forms[] = {
    /* ChatML: SmolLM2, Qwen, ... */
    {"<|im_start|>", "<|im_start|>system\n", "<|im_end|>\n", "<|im_start|>user\n",
     "<|im_end|>\n<|im_start|>assistant\n"},
    /* Llama 3 */
    {"<|start_header_id|>", "<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>",
     "<|start_header_id|>user<|end_header_id|>\n\n",
     "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    /* Gemma: no system role; its text stands before the user's */
    {"<start_of_turn>", "", "\n\n", "<start_of_turn>user\n",
     "<end_of_turn>\n<start_of_turn>model\n"},
    /* Mistral */
    {"[INST]", "", "\n\n", "[INST] ", " [/INST]"},
};

/* Does the model have `text` as one token of its own? */
static bool has_token(const cli_model *m, const char *text)
{
    int32_t id;
    int64_t n = 0;
    attn_status status =
        attn_model_tokenize(m->model, text, strlen(text), ATTN_TEXT_NO_SPECIAL, &id, 1, &n);
    return status == ATTN_OK && n == 1;
}

static char *add(char *at, const char *text, size_t bytes)
{
    memcpy(at, text, bytes);
    return at + bytes;
}

static char *by_special_tokens(const char *command, const cli_model *m, const char *system, const char *message,
                               size_t bytes, size_t *out_bytes)
{
    const chat_form *form = NULL;
    const char *parts[8];
    size_t total = 1;
    int n = 0;
    char *text, *at;
    for (size_t i = 0; !form && i < sizeof forms / sizeof *forms; i++)
        if (has_token(m, forms[i].marker))
            form = &forms[i];
    if (!form) {
        cli_error(command, "%s has neither a chat template nor chat tokens that are known here", m->info.name);
        cli_hint("write the conversation in the model's own form, without --chat");
        return NULL;
    }
    if (system && *form->system_before) {
        parts[n++] = form->system_before;
        parts[n++] = system;
        parts[n++] = form->system_after;
    }
    parts[n++] = form->user_before;
    if (system && !*form->system_before) {
        parts[n++] = system;
        parts[n++] = form->system_after;
    }
    for (int i = 0; i < n; i++)
        total += strlen(parts[i]);
    text = malloc(total + bytes + strlen(form->user_after));
    if (!text) {
        cli_error(command, "out of memory");
        return NULL;
    }
    at = text;
    for (int i = 0; i < n; i++)
        at = add(at, parts[i], strlen(parts[i]));
    at = add(at, message, bytes);
    at = add(at, form->user_after, strlen(form->user_after));
    *at = '\0';
    *out_bytes = (size_t)(at - text);
    return text;
}

char *chat_prompt(const char *command, const cli_model *m, const char *system, const char *message,
                  size_t bytes, size_t *out_bytes, uint32_t *flags)
{
    const attn_chat_message messages[] = {{"system", system, system ? strlen(system) : 0}, {"user", message, bytes}};
    const int64_t n = system ? 2 : 1;
    const uint32_t how = *flags & ATTN_TEXT_REPLACE_INVALID ? ATTN_CHAT_REPLACE_INVALID : 0;
    attn_status status = attn_model_chat(m->model, messages + 2 - n, n, how, NULL, 0, out_bytes);
    if (status == ATTN_ERR_UNSUPPORTED && strstr(attn_model_error(NULL), "has no chat template"))
        return by_special_tokens(command, m, system, message, bytes, out_bytes);
    char *text = status == ATTN_OK ? malloc(*out_bytes + 1) : NULL;
    if (text)
        status = attn_model_chat(m->model, messages + 2 - n, n, how, text, *out_bytes, out_bytes);
    if (!text || status != ATTN_OK) {
        free(text);
        cli_model_failed(command, "--chat", status == ATTN_OK ? ATTN_ERR_OUT_OF_MEMORY : status);
        return NULL;
    }
    *flags |= ATTN_TEXT_NO_SPECIAL;
    return text;
}
