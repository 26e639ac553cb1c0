/* explain_input.c - the queries, keys and values to explain: two worked examples, or a JSON file.
 */
#include "explain.h"

#include "attn/viz.h"

#include <stdlib.h>

enum { MOST_SCORES = 1000000 };

void explain_input_free(explain_input *input)
{
    for (int64_t j = 0; input->names && j < input->n_key; j++)
        free(input->names[j]);
    free(input->names);
    free(input->title);
    free(input->query);
    free(input->key);
    free(input->value);
    memset(input, 0, sizeof *input);
}

void explain_key_name(const explain_input *input, int64_t j, char out[64])
{
    if (input->names)
        attn_text_visible(input->names[j], strlen(input->names[j]), 12, out, 64, NULL);
    else
        snprintf(out, 64, "k%lld", (long long)j + 1);
}

void explain_query_name(const explain_input *input, int64_t i, char out[64])
{
    int64_t position = i + input->offset;
    if (input->names && position >= 0 && position < input->n_key)
        explain_key_name(input, position, out);
    else
        snprintf(out, 64, "q%lld", (long long)position + 1);
}

static double *copy_of(const double *from, int64_t count)
{
    double *to = malloc((size_t)count * sizeof *to);
    if (to)
        memcpy(to, from, (size_t)count * sizeof *to);
    return to;
}

/* An example of d_k = d_v = 2 from constants; names are its tokens, or NULL. */
static bool example(explain_input *input, const char *title, const char *const *names,
                    int64_t n_query, const double *query, const double *key, const double *value)
{
    bool good;
    memset(input, 0, sizeof *input);
    input->n_query = n_query;
    input->n_key = 3;
    input->head_dim = input->value_dim = 2;
    input->causal = true;
    input->offset = input->n_key - n_query;
    input->title = strdup(title);
    input->query = copy_of(query, n_query * 2);
    input->key = copy_of(key, 6);
    input->value = copy_of(value, 6);
    good = input->title && input->query && input->key && input->value;
    if (names && good) {
        input->names = calloc(3, sizeof *input->names);
        for (int64_t j = 0; input->names && j < 3; j++)
            good = (input->names[j] = strdup(names[j])) != NULL && good;
        good = good && input->names;
    }
    if (!good) {
        cli_error("explain", "out of memory");
        explain_input_free(input);
    }
    return good;
}

bool explain_input_bridge(explain_input *input)
{
    static const char *const names[] = {"The", "bridge", "was"};
    static const double query[] = {1, 0, 0, 2, 2, 1};
    static const double key[] = {1, 0, 0, 1, 1, 1};
    static const double value[] = {2, 0, 0, 2, 1, 1};
    return example(input, "The bridge was: three tokens, one head, causal", names, 3, query, key,
                   value);
}

bool explain_input_trace(explain_input *input)
{
    static const double query[] = {1, 1};
    static const double key[] = {1, 0, 0, 1, 1, 1};
    static const double value[] = {1, 0, 0, 2, 2, 2};
    return example(input, "A trace of one step: the output y3 of the third of three positions",
                   NULL, 1, query, key, value);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Reads field `name` as [rows][columns] numbers. columns is taken from the first row. */
static bool read_matrix(const char *path, json_t *root, const char *name, double **matrix,
                        int64_t *rows, int64_t *columns)
{
    json_t *outer = json_object_get(root, name);
    size_t n = json_array_size(outer), m = json_array_size(json_array_get(outer, 0));
    if (!json_is_array(outer) || n == 0 || m == 0) {
        cli_error("explain",
                  "%s: \"%s\" must be a list of rows of numbers, like [[1, 0], [0, 1]]%s", path,
                  name, outer ? "" : "; it is missing");
        return false;
    }
    *matrix = calloc(n * m, sizeof **matrix);
    if (!*matrix) {
        cli_error("explain", "%s: out of memory for \"%s\"", path, name);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        json_t *row = json_array_get(outer, i);
        if (json_array_size(row) != m) {
            cli_error("explain", "%s: \"%s\" row %zu has %zu numbers, the first row has %zu", path,
                      name, i + 1, json_array_size(row), m);
            return false;
        }
        for (size_t d = 0; d < m; d++) {
            json_t *number = json_array_get(row, d);
            if (!json_is_number(number)) {
                cli_error("explain", "%s: \"%s\" row %zu, entry %zu is not a number", path, name,
                          i + 1, d + 1);
                return false;
            }
            (*matrix)[i * m + d] = json_number_value(number);
        }
    }
    *rows = (int64_t)n;
    *columns = (int64_t)m;
    return true;
}

static bool read_names(const char *path, json_t *tokens, explain_input *input)
{
    if (!json_is_array(tokens) || json_array_size(tokens) != (size_t)input->n_key) {
        cli_error("explain",
                  "%s: \"tokens\" must be a list of %lld texts, one for each row of \"k\"", path,
                  (long long)input->n_key);
        return false;
    }
    input->names = calloc((size_t)input->n_key, sizeof *input->names);
    for (int64_t j = 0; input->names && j < input->n_key; j++) {
        const char *name = json_string_value(json_array_get(tokens, (size_t)j));
        if (!name) {
            cli_error("explain", "%s: \"tokens\" entry %lld is not a text", path, (long long)j + 1);
            return false;
        }
        input->names[j] = strdup(name);
        if (!input->names[j])
            break;
    }
    if (!input->names || !input->names[input->n_key - 1]) {
        cli_error("explain", "out of memory");
        return false;
    }
    return true;
}

static bool check_keys(const char *path, json_t *root)
{
    static const char *const known[] = {
        "q", "k", "v", "causal", "tokens", "scale", "query_offset", "title"};
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value)
    {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found = found || strcmp(name, known[i]) == 0;
        if (!found) {
            cli_error("explain", "%s: unknown key \"%s\"", path, name);
            cli_hint("known: q, k, v, causal, tokens, scale, query_offset, title");
            return false;
        }
    }
    return true;
}

static bool read_shapes(const char *path, json_t *root, explain_input *input)
{
    int64_t key_dim = 0, n_value = 0;
    if (!read_matrix(path, root, "q", &input->query, &input->n_query, &input->head_dim) ||
        !read_matrix(path, root, "k", &input->key, &input->n_key, &key_dim) ||
        !read_matrix(path, root, "v", &input->value, &n_value, &input->value_dim))
        return false;
    if (key_dim != input->head_dim) {
        cli_error("explain",
                  "%s: rows of \"k\" have %lld numbers, rows of \"q\" %lld; a dot product needs "
                  "both equal",
                  path, (long long)key_dim, (long long)input->head_dim);
        return false;
    }
    if (n_value != input->n_key) {
        cli_error("explain", "%s: \"v\" has %lld rows, \"k\" has %lld; each key needs its value",
                  path, (long long)n_value, (long long)input->n_key);
        return false;
    }
    if (input->n_query > MOST_SCORES / input->n_key) {
        cli_error("explain", "%s: %lld queries by %lld keys; at most %d scores can be explained",
                  path, (long long)input->n_query, (long long)input->n_key, MOST_SCORES);
        return false;
    }
    return true;
}

static bool read_mask(const char *path, json_t *root, explain_input *input)
{
    json_t *causal = json_object_get(root, "causal"),
           *offset = json_object_get(root, "query_offset");
    if (causal && !json_is_boolean(causal)) {
        cli_error("explain", "%s: \"causal\" must be true or false", path);
        return false;
    }
    if (offset && !json_is_integer(offset)) {
        cli_error("explain", "%s: \"query_offset\" must be a whole number", path);
        return false;
    }
    input->causal = json_is_true(causal);
    input->offset = json_integer_value(offset);
    if (input->offset < -MOST_SCORES || input->offset > MOST_SCORES) {
        cli_error("explain", "%s: \"query_offset\" is %lld; it must lie within %d", path,
                  (long long)input->offset, MOST_SCORES);
        return false;
    }
    if (input->causal && !offset && input->n_query != input->n_key) {
        cli_error("explain", "%s: causal with %lld queries and %lld keys needs \"query_offset\"",
                  path, (long long)input->n_query, (long long)input->n_key);
        cli_hint("query i sees keys up to i + query_offset; %lld lines up the last query with the "
                 "last key",
                 (long long)(input->n_key - input->n_query));
        return false;
    }
    return true;
}

static bool read_root(const char *path, json_t *root, explain_input *input)
{
    json_t *scale = json_object_get(root, "scale"), *title = json_object_get(root, "title");
    json_t *tokens = json_object_get(root, "tokens");
    if (!json_is_object(root)) {
        cli_error("explain", "%s: the file must hold one JSON object", path);
        return false;
    }
    if (!check_keys(path, root) || !read_shapes(path, root, input) || !read_mask(path, root, input))
        return false;
    if (scale && !json_is_number(scale)) {
        cli_error("explain", "%s: \"scale\" must be a number (without it: 1/sqrt(d_k))", path);
        return false;
    }
    if (title && !json_is_string(title)) {
        cli_error("explain", "%s: \"title\" must be a text", path);
        return false;
    }
    input->scale_given = scale != NULL;
    input->scale = json_number_value(scale);
    input->title = strdup(title ? json_string_value(title) : path);
    if (!input->title) {
        cli_error("explain", "out of memory");
        return false;
    }
    return !tokens || read_names(path, tokens, input);
}

bool explain_input_file(const char *path, explain_input *input)
{
    char *text;
    size_t bytes;
    json_error_t error;
    json_t *root;
    bool good;
    memset(input, 0, sizeof *input);
    if (!cli_read_all("explain", path, &text, &bytes)) {
        cli_hint("attn explain --help shows what the file holds");
        return false;
    }
    root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!root) {
        cli_error("explain", "%s: line %d, column %d: %s", path, error.line, error.column,
                  error.text);
        return false;
    }
    good = read_root(path, root, input);
    if (!good)
        explain_input_free(input);
    json_decref(root);
    return good;
}
