/* explain_json.c - the steps of one example for programs. */
#include "explain.h"

#include <math.h>

json_t *explain_json_matrix(const double *matrix, int64_t rows, int64_t columns)
{
    json_t *outer = json_array();
    for (int64_t i = 0; i < rows; i++) {
        json_t *row = json_array();
        for (int64_t j = 0; j < columns; j++) {
            double x = matrix[i * columns + j];
            json_array_append_new(row, isfinite(x) ? json_real(x == 0.0 ? 0.0 : x) : json_null());
        }
        json_array_append_new(outer, row);
    }
    return outer;
}

static json_t *stages(attn_ctx *ctx, const explain_input *input, explain_scaling scaling,
                      bool causal)
{
    explain_steps steps;
    int64_t n = input->n_query, m = input->n_key;
    json_t *object;
    if (!explain_compute(ctx, input, scaling, causal, &steps))
        return NULL;
    object = json_object();
    json_object_set_new(object, "causal", json_boolean(causal));
    json_object_set_new(object, "scale",
                        json_real(scaling == EXPLAIN_UNSCALED ? 1.0 : explain_scale(input)));
    json_object_set_new(object, "scores", explain_json_matrix(steps.score, n, m));
    json_object_set_new(object, "scaled", explain_json_matrix(steps.scaled, n, m));
    json_object_set_new(object, "weights", explain_json_matrix(steps.weight, n, m));
    json_object_set_new(object, "outputs", explain_json_matrix(steps.out, n, input->value_dim));
    explain_steps_free(&steps);
    return object;
}

json_t *explain_json(attn_ctx *ctx, const explain_input *input)
{
    json_t *object = stages(ctx, input, EXPLAIN_SCALED, input->causal);
    json_t *unscaled = object ? stages(ctx, input, EXPLAIN_UNSCALED, input->causal) : NULL;
    json_t *bidirectional = unscaled ? stages(ctx, input, EXPLAIN_SCALED, false) : NULL;
    if (!bidirectional) {
        json_decref(object);
        json_decref(unscaled);
        return NULL;
    }
    json_object_set_new(object, "title", json_string(input->title));
    json_object_set_new(object, "q",
                        explain_json_matrix(input->query, input->n_query, input->head_dim));
    json_object_set_new(object, "k",
                        explain_json_matrix(input->key, input->n_key, input->head_dim));
    json_object_set_new(object, "v",
                        explain_json_matrix(input->value, input->n_key, input->value_dim));
    json_object_set_new(object, "query_offset", json_integer(input->offset));
    if (input->names) {
        json_t *tokens = json_array();
        for (int64_t j = 0; j < input->n_key; j++)
            json_array_append_new(tokens, json_string(input->names[j]));
        json_object_set_new(object, "tokens", tokens);
    }
    json_object_set_new(object, "unscaled", unscaled);
    json_object_set_new(object, "bidirectional", bidirectional);
    return object;
}
