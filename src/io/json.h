/* json.h - strict JSON over jansson, for bytes that nobody vouches for. */
#ifndef ATTN_IO_JSON_H
#define ATTN_IO_JSON_H

#include <jansson.h>
#include <stddef.h>

/* Containers within containers that attn_json_parse follows. */
#define ATTN_JSON_MAX_DEPTH 64

/**
 * Parses `size` bytes that hold one JSON object or array, with white space around it and nothing
 * else.
 *
 * Refused: ill-formed UTF-8, lone surrogates, NUL characters, integers beyond 64 bits, numbers
 * beyond a double, a key that is twice in one object, nesting deeper than ATTN_JSON_MAX_DEPTH.
 * Objects keep the order of the text. Memory is at most about 40 times the text. Returns a new
 * reference (json_decref), or NULL with line, column and reason in error (may be NULL, 0). Threads:
 * any number may parse; a json_t belongs to one thread at a time where references are counted.
 */
json_t *attn_json_parse(const char *bytes, size_t size, char *error, size_t error_size);

/** The same for files in which an integer may be beyond 64 bits (Hugging Face's tokenizer_config.json writes 1e30 in digits): where
 * one is, all integers are read as real numbers. */
json_t *attn_json_parse_wide(const char *bytes, size_t size, char *error, size_t error_size);

/**
 * The text of a value (free it), with a 0 behind its *size bytes; flags are those of json_dumps.
 * NULL: out of memory. (The json_dumps of jansson 2.14 can return a text that is cut short when
 * memory runs out; this does not.)
 */
char *attn_json_text(const json_t *json, size_t flags, size_t *size);

#endif
