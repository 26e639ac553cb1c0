/* chat_run.h - what the files of the template interpreter share: the run, values, expressions.
 *
 * Values are json_t: the undefined value is NULL, none is null. Every value that is made belongs to the run's pool and lives as
 * long as the run. After a failure `failed` is set and every function returns at once.
 */
#ifndef ATTN_TEXT_CHAT_RUN_H
#define ATTN_TEXT_CHAT_RUN_H

#include <stdbool.h>
#include "core/compiler.h"
#include "text/chat_template.h"
#include "text/strbuf.h"

#define CHAT_MAX_ARGS 8

enum chat_kind { CHAT_TEXT, CHAT_OUTPUT, CHAT_STATEMENT };

/* A piece of the template: text as it is, {{ expression }} or {% statement %}. */
typedef struct chat_segment {
    enum chat_kind kind;
    const char *at, *end;
    char word[16];   /* of a statement */
    int32_t next;    /* of a statement with a body: where its next part begins (else, elif, end...) */
} chat_segment;

typedef struct chat_variable {
    const char *name; /* not terminated */
    size_t n_name;
    json_t *value;
} chat_variable;

typedef struct chat_run {
    const char *source, *source_end;
    chat_segment *segments;
    size_t n_segments, segment_room;
    const json_t *globals;
    json_t *pool;             /* an array that owns every value made */
    chat_variable *variables;
    size_t n_variables, variable_room, scope; /* scope: the first variable of the innermost scope */
    attn_strbuf out;
    const char *at;           /* where an expression is being read */
    const char *end;
    int32_t skip;             /* > 0: an expression is read and not evaluated */
    int32_t depth;
    int64_t steps;
    size_t bytes;             /* made so far */
    enum { CHAT_GO_ON, CHAT_BREAK, CHAT_CONTINUE } jump;
    bool failed;
    attn_status status;
    char *error;
    size_t error_size;
} chat_run;

typedef struct chat_args {
    json_t *value[CHAT_MAX_ARGS];
    int32_t n;
    json_t *named; /* an object */
} chat_args;

/* Fails with the line of r->at in front; the first failure stays. Returns NULL. */
json_t *chat_fail(chat_run *r, attn_status status, const char *format, ...) ATTN_PRINTF(3, 4);
/* Counts a step; false when there were too many, or a failure. */
bool chat_step(chat_run *r);

/* ---- Values (chat_value.c) ---- */
json_t *chat_own(chat_run *r, json_t *value); /* takes the reference over; a NULL is "out of memory" */
json_t *chat_string(chat_run *r, const char *text, size_t n);
json_t *chat_bool(bool value);
bool chat_true(const json_t *value);
bool chat_equal(chat_run *r, const json_t *a, const json_t *b);
/* Fails where a value has more members, counted through all its lists, than anyone needs (a list of itself twice, forty times). */
bool chat_weigh(chat_run *r, const json_t *value);
/* Appends the value as Jinja prints it. */
void chat_print(chat_run *r, attn_strbuf *out, const json_t *value);
/* The same as a string value; strings as they are. */
json_t *chat_text_of(chat_run *r, json_t *value);
/* What a loop goes over: lists as they are, keys of dicts, characters of strings; undefined: nothing. */
json_t *chat_list_of(chat_run *r, json_t *value);
int64_t chat_length(chat_run *r, const json_t *value);
json_t *chat_contains(chat_run *r, json_t *item, json_t *container);
json_t *chat_binary(chat_run *r, char op, json_t *a, json_t *b);         /* + - * / % and 'f' for // */
json_t *chat_order(chat_run *r, const json_t *a, const json_t *b, int *order);
json_t *chat_item(chat_run *r, json_t *value, json_t *key);              /* value[key] */
json_t *chat_slice(chat_run *r, json_t *value, json_t *first, json_t *last, json_t *step);
json_t *chat_trim(chat_run *r, const json_t *text, const json_t *characters, bool left, bool right);

/* ---- Filters, tests, methods, functions (chat_builtin.c) ---- */
json_t *chat_filter(chat_run *r, const char *name, json_t *value, const chat_args *args);
json_t *chat_test(chat_run *r, const char *name, json_t *value, const chat_args *args);
json_t *chat_method(chat_run *r, const char *name, json_t *value, const chat_args *args);
json_t *chat_function(chat_run *r, const char *name, const chat_args *args);
bool chat_is_function(const char *name);
bool chat_test_takes_argument(const char *name);

/* ---- Expressions (chat_expression.c): read from r->at ---- */
json_t *chat_expression(chat_run *r);
json_t *chat_condition_free(chat_run *r); /* an expression that an `if` may follow */
json_t *chat_expression_list(chat_run *r); /* a, b: a list */
bool chat_name(chat_run *r, const char **name, size_t *n);
bool chat_sign(chat_run *r, const char *sign); /* takes the sign (or word) when it is next */
bool chat_peek(chat_run *r, const char *sign);
bool chat_at_end(chat_run *r);

/* ---- Statements (chat_template.c) ---- */
json_t *chat_look_up(chat_run *r, const char *name, size_t n);
void chat_set(chat_run *r, const char *name, size_t n, json_t *value);
/* True and the value where a macro of that name was defined. */
bool chat_call_macro(chat_run *r, const char *name, size_t n, const chat_args *args, json_t **value);

#endif
