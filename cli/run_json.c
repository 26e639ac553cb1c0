/* run_json.c - `attn run --json`: the key names of the project's golden files where they mean the
 * same. */
#include "run_view.h"

#include <math.h>
#include <stdlib.h>

static json_t *token_json(const run_state *s, int32_t id)
{
    size_t bytes;
    char *text = cli_token_text(&s->m, id, &bytes);
    json_t *value = text ? cli_text_json(text, bytes) : NULL;
    free(text);
    return value;
}

static json_t *real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *ids_json(const int32_t *ids, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static json_t *reals_json(const double *x, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(list, real(x[i]));
    return list;
}

static json_t *weights_json(const float *weights, int64_t n)
{
    json_t *list = json_array();
    for (int64_t j = 0; j < n; j++)
        json_array_append_new(list, real(weights[j]));
    return list;
}

static json_t *model_json(const run_state *s)
{
    const attn_model_info *i = &s->m.info;
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name", i->name,
                     "family", i->family, "parameters", (json_int_t)i->n_parameters, "layers",
                     (json_int_t)i->n_layers, "d_model", (json_int_t)i->d_model, "heads",
                     (json_int_t)i->n_heads, "kv_heads", (json_int_t)i->n_kv_heads, "head_dim",
                     (json_int_t)i->head_dim, "vocab_size", (json_int_t)i->vocab_size,
                     "context_length", (json_int_t)i->context_length);
}

static void add_prompt(json_t *root, const run_state *s)
{
    json_t *tokens = json_array();
    for (int64_t i = 0; i < s->n; i++) {
        const char *spelling = attn_model_token(s->m.model, s->ids[i]);
        json_array_append_new(tokens, spelling ? json_string(spelling) : json_null());
    }
    json_object_set_new(root, "text", cli_text_json(s->text, s->text_bytes));
    json_object_set_new(root, "ids", ids_json(s->ids, s->n));
    json_object_set_new(root, "tokens", tokens);
    json_object_set_new(root, "logprob_of_next", reals_json(s->logprobs, s->n - 1));
}

static void add_top(json_t *root, const run_state *s)
{
    json_t *ids = json_array(), *logits = json_array(), *probabilities = json_array(),
           *tokens = json_array();
    for (int t = 0; t < s->n_top; t++) {
        json_array_append_new(ids, json_integer(s->top[t].id));
        json_array_append_new(logits, real(s->top[t].logit));
        json_array_append_new(probabilities, real(s->top[t].probability));
        if (t < RUN_SHOWN)
            json_array_append_new(tokens, token_json(s, s->top[t].id));
    }
    json_object_set_new(root, "top_ids", ids);
    json_object_set_new(root, "top_logits", logits);
    json_object_set_new(root, "top_probabilities", probabilities);
    json_object_set_new(root, "top_tokens", tokens);
}

/* All generated tokens as text, the end token included when it came. */
static json_t *decoded_json(const run_state *s, const run_generated *g)
{
    size_t bytes = 0;
    char *text;
    json_t *value;
    attn_status status = attn_model_detokenize(s->m.model, g->ids, g->n, 0, NULL, 0, &bytes);
    text = status == ATTN_OK ? malloc(bytes + 1) : NULL;
    if (text)
        status = attn_model_detokenize(s->m.model, g->ids, g->n, 0, text, bytes, &bytes);
    value = text && status == ATTN_OK ? cli_text_json(text, bytes) : json_null();
    free(text);
    return value;
}

static void add_generated(json_t *root, const run_state *s, const run_generated *g)
{
    bool greedy = s->options->sampling.temperature == 0.0;
    json_object_set_new(root, greedy ? "greedy_ids" : "sampled_ids", ids_json(g->ids, g->n));
    json_object_set_new(root, greedy ? "greedy_margins" : "sampled_logprobs",
                        reals_json(greedy ? g->margins : g->logprobs, g->n));
    json_object_set_new(root, greedy ? "greedy_text" : "sampled_text", decoded_json(s, g));
    json_object_set_new(root, "stop", json_string(cli_stop_name(g->stop)));
}

static json_t *reading_json(const run_state *s, const run_reading *r)
{
    json_t *object = json_object();
    json_object_set_new(object, "layer", json_integer(r->layer));
    json_object_set_new(object, "head", json_integer(r->head));
    json_object_set_new(object, "first", real(r->first));
    json_object_set_new(object, "own", real(r->own));
    json_object_set_new(object, "elsewhere", real(r->elsewhere));
    json_object_set_new(object, "weights", weights_json(r->weights, s->at + 1));
    if (r->key >= 0) {
        json_object_set_new(object, "largest_index", json_integer(r->key));
        json_object_set_new(object, "largest_weight", real(r->weight));
    }
    if (r->measured)
        json_object_set_new(object, "cut",
                            json_pack("{s:o, s:o, s:i, s:o}", "logit_difference",
                                      real(r->difference), "kl", real(r->kl), "moved_id",
                                      (int)r->moved, "moved_by", real(r->moved_by)));
    return object;
}

static void add_readings(json_t *root, const run_state *s)
{
    json_t *rows = json_array(), *object = json_object();
    for (int64_t r = 0; r < s->n_readings; r++)
        json_array_append_new(rows, reading_json(s, &s->readings[r]));
    json_object_set_new(object, "index", json_integer(s->at));
    json_object_set_new(object, "token", token_json(s, s->ids[s->at]));
    if (s->n_top > 1) {
        int32_t pair[2] = {s->top[0].id, s->top[1].id};
        json_object_set_new(object, "outcome_ids", ids_json(pair, 2));
        json_object_set_new(object, "logit_difference", real(s->top[0].logit - s->top[1].logit));
    }
    json_object_set_new(object, "heads", rows);
    json_object_set_new(root, "reading", object);
}

/* [layer][head][key]; the name says which position when it is not the last. */
static void add_all_heads(json_t *root, const run_state *s)
{
    json_t *layers = json_array();
    for (int64_t l = 0; l < s->m.info.n_layers; l++) {
        json_t *heads = json_array();
        for (int64_t h = 0; h < s->m.info.n_heads; h++)
            json_array_append_new(
                heads, weights_json(s->rows + (l * s->m.info.n_heads + h) * s->n, s->at + 1));
        json_array_append_new(layers, heads);
    }
    json_object_set_new(root, s->at == s->n - 1 ? "last_row_attention" : "row_attention", layers);
}

json_t *run_json(const run_state *s, const run_generated *g)
{
    json_t *root = json_object();
    json_object_set_new(root, "model", model_json(s));
    add_prompt(root, s);
    add_top(root, s);
    add_generated(root, s, g);
    add_readings(root, s);
    if (s->options->all_heads)
        add_all_heads(root, s);
    return root;
}
