/* json_fields.h - members of JSON objects, checked; error texts name the path and the value found. */
#ifndef ATTN_TEXT_JSON_FIELDS_H
#define ATTN_TEXT_JSON_FIELDS_H

#include "io/json.h"
#include "text/tokenizer_impl.h"

/* A value and its path in the file, "model.merges[3]". */
typedef struct attn_field {
    const json_t *value; /* NULL: not there */
    char path[160];
} attn_field;

/* object.key; a null counts as not there. */
attn_field attn_field_member(const attn_field *object, const char *key);
/* array[index]. */
attn_field attn_field_at(const attn_field *array, size_t index);

/* "FIELD is VALUE, expected WHAT", status FORMAT. */
attn_status attn_field_expected(const attn_field *field, const char *what);
/* "FIELD is VALUE, which is not served", status UNSUPPORTED. */
attn_status attn_field_unsupported(const attn_field *field);

attn_status attn_field_object(const attn_field *field);
attn_status attn_field_array(const attn_field *field);
attn_status attn_field_text(const attn_field *field, attn_text *text);
/* Integers within [low, high]. */
attn_status attn_field_int(const attn_field *field, int64_t low, int64_t high, int64_t *value);

/* Members with a default for when they are not there. */
attn_status attn_field_flag(const attn_field *object, const char *key, bool missing, bool *value);
attn_status attn_field_text_of(const attn_field *object, const char *key, const char *missing, attn_text *text);

/* True when the field is the text. */
bool attn_field_is(const attn_field *field, const char *text);

/* Where a step stands: names mean different things in the three places. */
enum attn_step_family {
    ATTN_FAMILY_NORMALIZER,
    ATTN_FAMILY_SPLITTER,
    ATTN_FAMILY_DECODER
};

/* The parts of a tokenizer.json. */
attn_status attn_json_steps(const attn_field *field, enum attn_step_family family, attn_steps *steps);
attn_status attn_json_model(const attn_field *field, attn_tokenizer *tokenizer);
attn_status attn_json_post(const attn_field *field, attn_tokenizer *tokenizer);

#endif
