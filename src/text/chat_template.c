/* chat_template.c - chat templates: cutting a template into pieces, and running its statements. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "io/io_error.h"
#include "text/chat_run.h"

#define MOST_STEPS 2000000
#define MOST_DEPTH 60

json_t *chat_fail(chat_run *r, attn_status status, const char *format, ...)
{
    char text[300];
    va_list list;
    int line = 1;
    if (r->failed)
        return NULL;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    for (const char *p = r->source; r->at && p < r->at; p++)
        line += *p == '\n';
    r->failed = true;
    r->status = status;
    attn_io_fail(r->error, r->error_size, status, "chat template, line %d: %s", line, text);
    return NULL;
}

bool chat_step(chat_run *r)
{
    if (++r->steps > MOST_STEPS)
        chat_fail(r, ATTN_ERR_FORMAT, "more than %d steps", MOST_STEPS);
    return !r->failed;
}

/* ---- Pieces ---- */

static chat_segment *add_segment(chat_run *r, enum chat_kind kind, const char *at, const char *end)
{
    if (attn_grow(&r->segments, &r->segment_room, r->n_segments + 1, sizeof *r->segments) != ATTN_OK) {
        chat_fail(r, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
        return NULL;
    }
    chat_segment *s = &r->segments[r->n_segments++];
    memset(s, 0, sizeof *s);
    s->kind = kind;
    s->at = at;
    s->end = end;
    s->next = -1;
    return s;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Where the tag that begins at p (behind its two signs) ends: its closing sign, outside texts and brackets; NULL: nowhere. */
static const char *tag_end(const chat_run *r, const char *p, char kind)
{
    const char close = kind == '{' ? '}' : kind;
    int open = 0;
    for (; p + 1 < r->source_end; p++) {
        if (kind != '#' && (*p == '"' || *p == '\'')) {
            const char quote = *p++;
            while (p < r->source_end && *p != quote)
                p += *p == '\\' && p + 1 < r->source_end ? 2 : 1;
        } else if (*p == close && p[1] == '}' && open <= 0) {
            return p;
        } else if (kind != '#') {
            open += strchr("{[(", *p) && *p ? 1 : strchr("}])", *p) && *p ? -1 : 0;
        }
    }
    return NULL;
}

/* A tag's text without the signs that ask for trimming. */
typedef struct chat_tag {
    const char *at, *end, *behind; /* behind: where the text after the tag goes on */
    char kind;                     /* '{', '%' or '#' */
    bool line_start;               /* the text behind begins a line */
} chat_tag;

static bool read_tag(chat_run *r, const char *p, chat_tag *tag)
{
    tag->kind = p[1];
    tag->at = r->at = p + 2;
    tag->end = tag_end(r, tag->at, tag->kind);
    if (!tag->end) {
        chat_fail(r, ATTN_ERR_FORMAT, "{%c has no end", tag->kind);
        return false;
    }
    tag->behind = tag->end + 2;
    tag->line_start = false;
    const bool trims = tag->end > tag->at && tag->end[-1] == '-', keeps = tag->end > tag->at && tag->end[-1] == '+';
    if (trims) {
        while (tag->behind < r->source_end && is_space(*tag->behind))
            tag->behind++;
    } else if (tag->kind != '{' && !keeps && tag->behind < r->source_end && *tag->behind == '\n') {
        tag->behind++;
    }
    tag->line_start = tag->behind[-1] == '\n';
    tag->end -= trims || (keeps && tag->kind != '{');
    tag->at += tag->at < tag->end && (*tag->at == '-' || *tag->at == '+');
    return true;
}

/* Text before a tag, without what the tag's beginning takes away. */
static void add_text(chat_run *r, const char *from, const char *tag, bool line_start)
{
    const char *end = tag;
    const bool trims = tag < r->source_end && tag[2] == '-', keeps = tag < r->source_end && tag[2] == '+';
    while (trims && end > from && is_space(end[-1]))
        end--;
    if (!trims && !keeps && tag < r->source_end && tag[1] != '{') {
        const char *blank = tag;
        while (blank > from && is_space(blank[-1]) && blank[-1] != '\n')
            blank--;
        if (blank > from ? blank[-1] == '\n' : line_start)
            end = blank;
    }
    if (end > from)
        add_segment(r, CHAT_TEXT, from, end);
}

static bool is_word(const chat_segment *s, const char *word)
{
    return s->kind == CHAT_STATEMENT && strcmp(s->word, word) == 0;
}

/* `set x` without a '=' takes what follows up to endset. */
static bool is_block_set(const chat_segment *s)
{
    if (!is_word(s, "set"))
        return false;
    for (const char *p = s->at; p < s->end; p++)
        if (*p == '=')
            return false;
    return true;
}

static bool opens(const chat_segment *s)
{
    return is_word(s, "if") || is_word(s, "for") || is_word(s, "macro") || is_word(s, "generation") || is_block_set(s);
}

/* Joins each part of a statement with its next one. */
static void link_statements(chat_run *r)
{
    int32_t open[MOST_DEPTH], kind[MOST_DEPTH], depth = 0;
    for (size_t i = 0; i < r->n_segments && !r->failed; i++) {
        chat_segment *s = &r->segments[i];
        const bool part = is_word(s, "else") || is_word(s, "elif"), end = strncmp(s->word, "end", 3) == 0;
        r->at = s->at;
        if (s->kind != CHAT_STATEMENT)
            continue;
        if ((part || end) && depth == 0)
            chat_fail(r, ATTN_ERR_FORMAT, "%s without a beginning", s->word);
        else if (opens(s) && depth == MOST_DEPTH)
            chat_fail(r, ATTN_ERR_FORMAT, "statements nest deeper than %d", MOST_DEPTH);
        if (r->failed)
            return;
        if (part || end) {
            const char *opener = r->segments[kind[depth - 1]].word;
            if (part ? !(strcmp(opener, "if") == 0 || (strcmp(opener, "for") == 0 && is_word(s, "else"))) : strcmp(s->word + 3, opener) != 0)
                chat_fail(r, ATTN_ERR_FORMAT, "%s within %s", s->word, opener);
            r->segments[open[depth - 1]].next = (int32_t)i;
            open[depth - 1] = (int32_t)i;
            depth -= end;
        } else if (opens(s)) {
            open[depth] = kind[depth] = (int32_t)i;
            depth++;
        }
    }
    if (depth)
        chat_fail(r, ATTN_ERR_FORMAT, "%s without an end", r->segments[kind[depth - 1]].word);
}

static void add_statement(chat_run *r, const chat_tag *tag)
{
    static const char *const words[] = {"if", "elif", "else", "endif", "for", "endfor", "set", "endset", "macro", "endmacro",
                                        "break", "continue", "generation", "endgeneration"};
    const char *name = "";
    size_t n = 0;
    r->at = tag->at;
    r->end = tag->end;
    chat_name(r, &name, &n);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == n && !memcmp(words[i], name, n)) {
            chat_segment *s = add_segment(r, CHAT_STATEMENT, r->at, tag->end);
            if (s)
                snprintf(s->word, sizeof s->word, "%.15s", words[i]);
            return;
        }
    chat_fail(r, ATTN_ERR_UNSUPPORTED, "the statement %.*s is not served", (int)(n < 40 ? n : 40), name);
}

/* {% raw %} ... {% endraw %}: the text in between as it is. Gives where to go on. */
static const char *add_raw(chat_run *r, const chat_tag *raw, bool *line_start)
{
    for (const char *p = raw->behind; p + 1 < r->source_end; p++) {
        chat_tag tag;
        if (p[0] != '{' || p[1] != '%' || !read_tag(r, p, &tag))
            continue;
        while (tag.at < tag.end && is_space(*tag.at))
            tag.at++;
        if (tag.end - tag.at >= 6 && !memcmp(tag.at, "endraw", 6)) {
            add_text(r, raw->behind, p, raw->line_start);
            *line_start = tag.line_start;
            return tag.behind;
        }
    }
    chat_fail(r, ATTN_ERR_FORMAT, "raw without an end");
    return r->source_end;
}

static void cut(chat_run *r)
{
    const char *p = r->source;
    bool line_start = true;
    while (p < r->source_end && !r->failed) {
        const char *tag_at = p;
        chat_tag tag;
        while (tag_at + 2 < r->source_end && !(*tag_at == '{' && strchr("{%#", tag_at[1]) && tag_at[1]))
            tag_at++;
        if (tag_at + 2 >= r->source_end)
            tag_at = r->source_end;
        add_text(r, p, tag_at, line_start);
        if (tag_at == r->source_end || !read_tag(r, tag_at, &tag))
            break;
        p = tag.behind;
        line_start = tag.line_start;
        if (tag.kind == '{') {
            add_segment(r, CHAT_OUTPUT, tag.at, tag.end);
        } else if (tag.kind == '%') {
            r->at = tag.at;
            r->end = tag.end;
            if (chat_sign(r, "raw"))
                p = add_raw(r, &tag, &line_start);
            else
                add_statement(r, &tag);
        }
    }
    if (!r->failed)
        link_statements(r);
}

/* ---- Names ---- */

json_t *chat_look_up(chat_run *r, const char *name, size_t n)
{
    char text[64];
    for (size_t i = r->n_variables; i-- > 0;)
        if (r->variables[i].n_name == n && !memcmp(r->variables[i].name, name, n))
            return r->variables[i].value;
    snprintf(text, sizeof text, "%.*s", (int)n, name);
    json_t *value = n < sizeof text ? json_object_get(r->globals, text) : NULL;
    return value || !chat_is_function(text) ? value : json_true(); /* it is defined */
}

void chat_set(chat_run *r, const char *name, size_t n, json_t *value)
{
    for (size_t i = r->scope; i < r->n_variables; i++)
        if (r->variables[i].n_name == n && !memcmp(r->variables[i].name, name, n)) {
            r->variables[i].value = value;
            return;
        }
    if (attn_grow(&r->variables, &r->variable_room, r->n_variables + 1, sizeof *r->variables) != ATTN_OK)
        chat_fail(r, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    else
        r->variables[r->n_variables++] = (chat_variable){name, n, value};
}

/* a or a, b: names for the parts of a value. */
static void set_targets(chat_run *r, const char *at, const char *end, json_t *value)
{
    const char *name, *keep_at = r->at, *keep_end = r->end;
    size_t n, i = 0;
    r->at = at;
    r->end = end;
    const bool bracket = chat_sign(r, "(");
    while (chat_name(r, &name, &n)) {
        const bool several = i > 0 || chat_peek(r, ",");
        if (several && (!json_is_array(value) || i >= json_array_size(value)))
            chat_fail(r, ATTN_ERR_FORMAT, "there are not as many values as names");
        chat_set(r, name, n, several ? json_array_get(value, i) : value);
        i++;
        if (!chat_sign(r, ","))
            break;
    }
    if (i == 0 || (bracket && !chat_sign(r, ")")) || !chat_at_end(r))
        chat_fail(r, ATTN_ERR_FORMAT, "names are missing");
    if (!r->failed) {
        r->at = keep_at;
        r->end = keep_end;
    }
}

/* ---- Statements ---- */

static size_t run_parts(chat_run *r, size_t from, size_t to);

static void need_end(chat_run *r)
{
    if (!r->failed && !chat_at_end(r))
        chat_fail(r, ATTN_ERR_FORMAT, "\"%.*s\" is one too many", (int)(r->end - r->at < 40 ? r->end - r->at : 40), r->at);
}

static void begin(chat_run *r, const chat_segment *s)
{
    r->at = s->at;
    r->end = s->end;
}

/* Runs the part whose condition holds; gives the index behind endif. */
static size_t run_if(chat_run *r, size_t i)
{
    bool done = false;
    while (!r->failed && !is_word(&r->segments[i], "endif")) {
        const size_t next = (size_t)r->segments[i].next;
        begin(r, &r->segments[i]);
        const bool holds = !done && (is_word(&r->segments[i], "else") || chat_true(chat_condition_free(r)));
        if (!done)
            need_end(r);
        if (holds && !r->failed)
            run_parts(r, i + 1, next);
        done = done || holds;
        i = next;
    }
    return i + 1;
}

static json_t *loop_of(chat_run *r, const json_t *list, size_t i)
{
    const json_int_t n = (json_int_t)json_array_size(list), at = (json_int_t)i;
    json_t *loop = json_pack("{s:I, s:I, s:I, s:I, s:b, s:b, s:I, s:I}", "index", at + 1, "index0", at, "revindex", n - at,
                             "revindex0", n - at - 1, "first", at == 0, "last", at == n - 1, "length", n, "depth", (json_int_t)1);
    if (loop && i > 0)
        json_object_set(loop, "previtem", json_array_get(list, i - 1));
    if (loop && i + 1 < json_array_size(list))
        json_object_set(loop, "nextitem", json_array_get(list, i + 1));
    return chat_own(r, loop);
}

/* Elements for which the condition at r->at holds. */
static json_t *kept(chat_run *r, json_t *list, const char *names, const char *names_end)
{
    json_t *out = chat_own(r, json_array());
    const char *condition = r->at;
    for (size_t i = 0; i < json_array_size(list) && chat_step(r); i++) {
        json_t *item = json_array_get(list, i);
        r->at = condition;
        set_targets(r, names, names_end, item);
        if (chat_true(chat_expression(r)))
            json_array_append(out, item);
    }
    if (json_array_size(list) == 0)
        r->at = r->end;
    return out;
}

/* for NAMES in LIST [if CONDITION]; gives the index behind endfor. */
static size_t run_for(chat_run *r, size_t i)
{
    const size_t body = i + 1, end = (size_t)r->segments[i].next, scope = r->scope, n_variables = r->n_variables;
    const bool has_else = is_word(&r->segments[end], "else");
    begin(r, &r->segments[i]);
    const char *names = r->at, *names_end;
    while (!chat_at_end(r) && !chat_peek(r, "in"))
        r->at++;
    names_end = r->at;
    if (!chat_sign(r, "in"))
        chat_fail(r, ATTN_ERR_FORMAT, "for without in");
    json_t *list = r->failed ? NULL : chat_list_of(r, chat_condition_free(r));
    r->scope = r->n_variables;
    if (chat_sign(r, "if"))
        list = kept(r, list, names, names_end);
    if (chat_sign(r, "recursive"))
        chat_fail(r, ATTN_ERR_UNSUPPORTED, "a recursive loop");
    need_end(r);
    for (size_t k = 0; k < json_array_size(list) && chat_step(r) && r->jump != CHAT_BREAK; k++) {
        r->n_variables = r->scope;
        set_targets(r, names, names_end, json_array_get(list, k));
        chat_set(r, "loop", 4, loop_of(r, list, k));
        r->jump = CHAT_GO_ON;
        run_parts(r, body, end);
    }
    r->jump = CHAT_GO_ON;
    r->n_variables = n_variables;
    r->scope = scope;
    if (has_else && !r->failed && json_array_size(list) == 0)
        run_parts(r, end + 1, (size_t)r->segments[end].next);
    return (has_else ? (size_t)r->segments[end].next : end) + 1;
}

/* Runs parts with an output of their own, which becomes a value. */
static json_t *captured(chat_run *r, size_t from, size_t to)
{
    attn_strbuf outer = r->out;
    r->out = (attn_strbuf){0};
    run_parts(r, from, to);
    json_t *value = r->failed ? NULL : chat_string(r, r->out.data, r->out.len);
    attn_strbuf_free(&r->out);
    r->out = outer;
    return value;
}

/* An object that a namespace holds is a copy: it may hold the namespace, and a ring would never be freed. */
static void set_attribute(chat_run *r, const char *name, size_t n, json_t *value)
{
    const char *key;
    size_t n_key;
    char text[64];
    json_t *object = chat_look_up(r, name, n);
    if (!chat_name(r, &key, &n_key) || n_key >= sizeof text || !json_is_object(object))
        chat_fail(r, ATTN_ERR_FORMAT, "%.*s is no namespace", (int)(n < 40 ? n : 40), name);
    if (r->failed || !chat_weigh(r, value))
        return;
    snprintf(text, sizeof text, "%.*s", (int)n_key, key);
    if (json_is_array(value) || json_is_object(value))
        value = chat_own(r, json_deep_copy(value));
    if (!r->failed && json_object_set(object, text, value ? value : json_null()))
        chat_fail(r, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
}

static size_t run_set(chat_run *r, size_t i)
{
    const bool block = is_block_set(&r->segments[i]);
    const size_t next = block ? (size_t)r->segments[i].next : i;
    const char *target, *target_end, *name;
    size_t n;
    begin(r, &r->segments[i]);
    target = r->at;
    while (r->at < r->end && *r->at != '=')
        r->at++;
    target_end = r->at;
    r->at += !block;
    json_t *value = block ? captured(r, i + 1, next) : chat_expression_list(r);
    if (!block)
        need_end(r);
    if (r->failed)
        return next + 1;
    r->at = target;
    r->end = target_end;
    if (chat_name(r, &name, &n) && chat_sign(r, "."))
        set_attribute(r, name, n, value);
    else
        set_targets(r, target, target_end, value);
    return next + 1;
}

/* A macro is a variable that holds where it is defined. */
static size_t define_macro(chat_run *r, size_t i)
{
    const char *name;
    size_t n;
    begin(r, &r->segments[i]);
    if (!chat_name(r, &name, &n))
        chat_fail(r, ATTN_ERR_FORMAT, "a macro has no name");
    else
        chat_set(r, name, n, chat_own(r, json_pack("{s:I}", "macro at", (json_int_t)i)));
    return (size_t)r->segments[i].next + 1;
}

/* Parameters of the macro from r->at on become variables. */
static void bind_parameters(chat_run *r, const chat_args *args)
{
    const char *name;
    size_t n;
    char text[64];
    chat_sign(r, "(");
    for (int32_t i = 0; !r->failed && !chat_sign(r, ")"); i++) {
        if (!chat_name(r, &name, &n) || n >= sizeof text) {
            chat_fail(r, ATTN_ERR_FORMAT, "a macro's parameters are not names");
            return;
        }
        snprintf(text, sizeof text, "%.*s", (int)n, name);
        json_t *value = i < args->n ? args->value[i] : json_object_get(args->named, text);
        const bool given = i < args->n || value;
        if (chat_sign(r, "=")) {
            json_t *fallback = chat_expression(r);
            value = given ? value : fallback;
        }
        chat_set(r, name, n, value);
        chat_sign(r, ",");
    }
}

bool chat_call_macro(chat_run *r, const char *name, size_t n, const chat_args *args, json_t **value)
{
    const json_t *macro = chat_look_up(r, name, n), *at = json_object_get(macro, "macro at");
    if (!json_is_integer(at))
        return false;
    const size_t i = (size_t)json_integer_value(at), scope = r->scope, n_variables = r->n_variables;
    const char *keep_at = r->at, *keep_end = r->end;
    const char *own;
    size_t n_own;
    if (i >= r->n_segments || !is_word(&r->segments[i], "macro") || ++r->depth > MOST_DEPTH) {
        chat_fail(r, ATTN_ERR_FORMAT, "macros call each other too deep");
        return true;
    }
    r->scope = r->n_variables;
    begin(r, &r->segments[i]);
    chat_name(r, &own, &n_own);
    bind_parameters(r, args);
    if (!r->failed)
        *value = captured(r, i + 1, (size_t)r->segments[i].next);
    r->n_variables = n_variables;
    r->scope = scope;
    r->depth--;
    if (!r->failed) {
        r->at = keep_at;
        r->end = keep_end;
    }
    return true;
}

static size_t run_statement(chat_run *r, size_t i)
{
    const chat_segment *s = &r->segments[i];
    if (is_word(s, "if"))
        return run_if(r, i);
    if (is_word(s, "for"))
        return run_for(r, i);
    if (is_word(s, "set"))
        return run_set(r, i);
    if (is_word(s, "macro"))
        return define_macro(r, i);
    if (is_word(s, "break") || is_word(s, "continue"))
        r->jump = is_word(s, "break") ? CHAT_BREAK : CHAT_CONTINUE;
    return i + 1; /* generation marks what a model is trained on */
}

static size_t run_parts(chat_run *r, size_t from, size_t to)
{
    if (++r->depth > MOST_DEPTH)
        chat_fail(r, ATTN_ERR_FORMAT, "statements nest too deep");
    for (size_t i = from; i < to && chat_step(r) && r->jump == CHAT_GO_ON;) {
        const chat_segment *s = &r->segments[i];
        if (s->kind == CHAT_STATEMENT) {
            i = run_statement(r, i);
            continue;
        }
        begin(r, s);
        if (s->kind == CHAT_OUTPUT) {
            json_t *value = chat_expression_list(r);
            need_end(r);
            if (!r->failed)
                chat_print(r, &r->out, value);
        } else if (attn_strbuf_add(&r->out, s->at, (size_t)(s->end - s->at)) != ATTN_OK) {
            chat_fail(r, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
        }
        i++;
    }
    r->depth--;
    return to;
}

attn_status attn_chat_template_render(const char *source, size_t n_source, const json_t *variables, char **text,
                                      size_t *n_bytes, char *error, size_t error_size)
{
    chat_run r = {.source = source, .source_end = source + n_source, .globals = variables, .error = error,
                  .error_size = error_size};
    *text = NULL;
    *n_bytes = 0;
    if (n_source && source[n_source - 1] == '\n')
        r.source_end--;
    r.pool = json_array();
    if (!r.pool)
        return attn_io_no_memory(error, error_size, "a chat template");
    cut(&r);
    if (!r.failed)
        run_parts(&r, 0, r.n_segments);
    if (!r.failed && attn_strbuf_add(&r.out, "", 1) != ATTN_OK)
        chat_fail(&r, ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    if (!r.failed) {
        *text = r.out.data;
        *n_bytes = r.out.len - 1;
        r.out = (attn_strbuf){0};
    }
    attn_strbuf_free(&r.out);
    free(r.segments);
    free(r.variables);
    json_decref(r.pool);
    return r.failed ? r.status : ATTN_OK;
}
