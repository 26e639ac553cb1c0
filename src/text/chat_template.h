/* chat_template.h - the templates with which models write a conversation as one text (the part of Jinja that they use).
 *
 * Served: {{ }}, {% %}, {# #} with their white space rules (trim_blocks and lstrip_blocks on, as in Hugging Face's libraries); if,
 * for (with if, else, break, continue and loop), set (with blocks and namespaces), macro, raw, generation; all operators,
 * conditional expressions, slices, lists, dicts, tests, and the filters, methods and functions of chat_builtin.c. Anything
 * else is refused by name: a conversation in a wrong form would be read as something else.
 *
 * Templates come with model files, so nothing is trusted: steps, nesting and memory are bounded.
 */
#ifndef ATTN_TEXT_CHAT_TEMPLATE_H
#define ATTN_TEXT_CHAT_TEMPLATE_H

#include <jansson.h>
#include "attn/attn.h"

/**
 * Renders a template (UTF-8) with the members of `variables` as its global names.
 *
 * On success *text (free it; a 0 behind its *n_bytes) is the result. Returns OK; FORMAT (the template breaks the syntax, or
 * an operation has no meaning, with the line); UNSUPPORTED (a filter, test, method or statement that is not served);
 * INVALID_ARGUMENT (the template itself refuses the conversation: raise_exception); OUT_OF_MEMORY. Threads: any number.
 */
attn_status attn_chat_template_render(const char *source, size_t n_source, const json_t *variables, char **text,
                                      size_t *n_bytes, char *error, size_t error_size);

#endif
