/* model_chat.c - conversations in the form of a model's own chat template. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "io/io_error.h"
#include "io/mapped_file.h"
#include "models/model_internal.h"
#include "text/chat_template.h"
#include "text/utf8.h"

#define MOST_TEMPLATE ((size_t)1 << 20) /* bytes */

/* ---- The template ---- */

/* chat_template.jinja beside the model; NULL: none. */
static json_t *template_file(const attn_model_source *source)
{
    attn_mapped_file *file;
    json_t *text = NULL;
    char path[4200];
    const int n = source->folder ? snprintf(path, sizeof path, "%s/chat_template.jinja", source->folder) : -1;
    if (n < 0 || (size_t)n >= sizeof path || attn_mapped_file_open(path, &file, NULL, 0) != ATTN_OK)
        return NULL;
    text = json_stringn((const char *)file->data, file->size);
    attn_mapped_file_close(file);
    return text;
}

/* chat_template of tokenizer_config.json: a text, or a list of named ones. */
static json_t *template_of_config(const json_t *config)
{
    json_t *found = json_object_get(config, "chat_template");
    for (size_t i = 0; i < json_array_size(found); i++) {
        const json_t *entry = json_array_get(found, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && !strcmp(name, "default"))
            return json_incref(json_object_get(entry, "template"));
    }
    return json_is_string(found) ? json_incref(found) : NULL;
}

/* A new reference; NULL: the model has none. */
static json_t *find_template(const attn_model *model, const json_t *config)
{
    const attn_model_source *source = &model->source;
    attn_gguf_string text;
    if (source->gguf)
        return attn_gguf_find(source->gguf, "tokenizer.chat_template") &&
                       attn_gguf_get_string(source->gguf, "tokenizer.chat_template", &text, NULL, 0) == ATTN_OK
                   ? json_stringn(text.text, text.length)
                   : NULL;
    json_t *found = template_file(source);
    if (!found)
        found = template_of_config(config);
    if (!found) {
        json_t *file = attn_source_side_file(source, "chat_template.json");
        found = template_of_config(file);
        json_decref(file);
    }
    return found;
}

/* ---- Its variables ---- */

static json_t *spelling(const attn_model *model, int32_t id)
{
    const char *token = id >= 0 ? attn_model_token(model, id) : NULL;
    return token ? json_string(token) : NULL;
}

/* bos_token and its like, from tokenizer_config.json or special_tokens_map.json (a text, or an object with its content), in GGUF
 * from the ids. */
static void add_special_tokens(const attn_model *model, const json_t *config, json_t *variables)
{
    static const struct {
        const char *name;
        int32_t role;
    } names[] = {{"bos_token", ATTN_SPECIAL_BOS}, {"eos_token", ATTN_SPECIAL_EOS}, {"unk_token", ATTN_SPECIAL_UNK},
                 {"pad_token", ATTN_SPECIAL_PAD}};
    json_t *map = attn_source_side_file(&model->source, "special_tokens_map.json");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *token = json_object_get(config, names[i].name), *made = NULL;
        if (!token || json_is_null(token))
            token = json_object_get(map, names[i].name);
        if (json_is_object(token))
            token = json_object_get(token, "content");
        if (!token && !config && model->tokenizer)
            token = made = spelling(model, attn_tokenizer_special(model->tokenizer, names[i].role));
        if (json_is_string(token))
            json_object_set(variables, names[i].name, token);
        json_decref(made);
    }
    json_decref(map);
}

static attn_status add_messages(const attn_chat_message *messages, int64_t n_messages, uint32_t flags, json_t *variables)
{
    json_t *list = json_array();
    attn_status status = ATTN_OK;
    if (json_object_set_new(variables, "messages", list))
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    for (int64_t i = 0; i < n_messages && status == ATTN_OK; i++) {
        const attn_chat_message *m = &messages[i];
        const char *content = m->content ? m->content : "";
        const size_t good = attn_utf8_valid_prefix(content, m->n_bytes);
        attn_strbuf clean = {0};
        ATTN_MODEL_REQUIRE(m->role && (m->content || !m->n_bytes), "messages[%lld] has no role or no content", (long long)i);
        if (good < m->n_bytes && !(flags & ATTN_CHAT_REPLACE_INVALID))
            return attn_model_fail(ATTN_ERR_FORMAT, "messages[%lld]: invalid UTF-8 at byte %zu", (long long)i, good);
        if (attn_utf8_add_lossy(&clean, content, m->n_bytes) == ATTN_OK)
            status = json_array_append_new(list, json_pack("{s:s, s:o}", "role", m->role, "content",
                                                           json_stringn(clean.data ? clean.data : "", clean.len)))
                         ? attn_model_fail(ATTN_ERR_INVALID_ARGUMENT, "messages[%lld]: the role is not UTF-8", (long long)i)
                         : ATTN_OK;
        else
            status = attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
        attn_strbuf_free(&clean);
    }
    return status;
}

static attn_status render(const attn_model *model, const json_t *config, const attn_chat_message *messages, int64_t n_messages,
                          uint32_t flags, char **text, size_t *n_bytes)
{
    json_t *template_text = find_template(model, config), *variables = json_object();
    attn_status status = ATTN_OK;
    if (!template_text)
        status = attn_model_fail(ATTN_ERR_UNSUPPORTED, "%s has no chat template", model->name);
    else if (!json_is_string(template_text) || json_string_length(template_text) > MOST_TEMPLATE)
        status = attn_model_fail(ATTN_ERR_FORMAT, "chat_template is no text of at most %zu bytes", MOST_TEMPLATE);
    if (status == ATTN_OK)
        status = add_messages(messages, n_messages, flags, variables);
    if (status == ATTN_OK) {
        add_special_tokens(model, config, variables);
        json_object_set_new(variables, "add_generation_prompt", json_boolean(!(flags & ATTN_CHAT_NO_PROMPT)));
        json_object_set_new(variables, "tools", json_null());
        json_object_set_new(variables, "documents", json_null());
        status = attn_chat_template_render(json_string_value(template_text), json_string_length(template_text), variables, text,
                                           n_bytes, attn_model_error_buffer(), ATTN_MODEL_ERROR_BYTES);
    }
    json_decref(template_text);
    json_decref(variables);
    return status;
}

attn_status attn_model_chat(const attn_model *model, const attn_chat_message *messages, int64_t n_messages, uint32_t flags,
                            char *text, size_t capacity, size_t *n_bytes)
{
    char *made = NULL;
    size_t n = 0;
    ATTN_MODEL_REQUIRE(model && n_bytes && (text || !capacity), "model, text or n_bytes is NULL");
    ATTN_MODEL_REQUIRE(messages && n_messages > 0, "messages is NULL or n_messages is %lld", (long long)n_messages);
    if (flags & ~(uint32_t)(ATTN_CHAT_NO_PROMPT | ATTN_CHAT_REPLACE_INVALID))
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "flags is 0x%x", flags);
    json_t *config = model->source.gguf ? NULL : attn_source_side_file(&model->source, "tokenizer_config.json");
    const attn_status status = render(model, config, messages, n_messages, flags, &made, &n);
    json_decref(config);
    if (status == ATTN_OK) {
        *n_bytes = n;
        if (capacity && n)
            memcpy(text, made, n < capacity ? n : capacity);
    }
    free(made);
    return status;
}
