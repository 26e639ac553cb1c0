/* chat.c - the chat forms of common model families, told apart by the special tokens that a model
 * has. */
#include "chat.h"

#include <stdlib.h>

/* How a family writes a conversation. The tokenizer adds the beginning token, where a model wants
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

/* System messages that a model's own template writes when none is given. */
static const struct {
    const char *name; /* part of the model's name, in lower case */
    const char *text;
} default_systems[] = {
    {"smollm2", "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
    {"qwen2.5", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    {"qwen2 ", "You are a helpful assistant."},
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

static const char *default_system(const cli_model *m)
{
    char name[256];
    size_t n = 0;
    for (; m->info.name[n] && n + 1 < sizeof name; n++) {
        char c = m->info.name[n];
        name[n] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    name[n] = '\0';
    for (size_t i = 0; i < sizeof default_systems / sizeof *default_systems; i++)
        if (strstr(name, default_systems[i].name))
            return default_systems[i].text;
    return NULL;
}

static char *add(char *at, const char *text, size_t bytes)
{
    memcpy(at, text, bytes);
    return at + bytes;
}

char *chat_prompt(const char *command, const cli_model *m, const char *system, const char *message,
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
        cli_error(command, "%s has no chat tokens that are known here", m->info.name);
        cli_hint("write the conversation in the model's own form, without --chat");
        return NULL;
    }
    system = system ? system : default_system(m);
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
