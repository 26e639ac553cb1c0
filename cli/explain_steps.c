/* explain_steps.c - the stages of one attention step, each read back from the library's operator.
 *
 * Nothing here multiplies queries with keys. With one key alone, lse_i = ln exp(s_ij) = s_ij, so
 * each score is the lse of a call that sees one key. Weights are attn_sdpa_rows, outputs
 * attn_sdpa_forward, all in f64. */
#include "explain.h"

#include <math.h>
#include <stdlib.h>

double explain_scale(const explain_input *input)
{
    return input->scale_given ? input->scale : 1.0 / sqrt((double)input->head_dim);
}

static double *numbers(int64_t rows, int64_t columns)
{
    size_t count = (size_t)(rows * columns);
    return calloc(count ? count : 1, sizeof(double));
}

static bool failed(attn_ctx *ctx, attn_status status, const char *what)
{
    const char *why = attn_ctx_error(ctx);
    cli_error("explain", "%s: %s%s%s", what, attn_status_string(status), why[0] ? ": " : "", why);
    return false;
}

static void set_scale(attn_sdpa_args *args, const explain_input *input, explain_scaling scaling)
{
    if (scaling == EXPLAIN_UNSCALED || input->scale_given) {
        args->flags |= ATTN_SCALE_GIVEN;
        args->scale = scaling == EXPLAIN_UNSCALED ? 1.0 : input->scale;
    }
}

/* scores[i * n_key + j], -inf where masked: each key is a batch entry of its own, the queries
 * repeat. */
static bool lone_key_scores(attn_ctx *ctx, const explain_input *input, explain_scaling scaling,
                            bool causal, double *scores)
{
    static const double nothing = 0.0;
    int64_t n = input->n_query, m = input->n_key, dim = input->head_dim;
    double *lse = numbers(m, n), *out = numbers(m, n);
    int64_t *offsets = calloc((size_t)(m ? m : 1), sizeof *offsets);
    attn_sdpa_args args;
    attn_status status = ATTN_ERR_OUT_OF_MEMORY;
    ATTN_ARGS_INIT(&args);
    args.query = attn_cview_of(input->query, ATTN_F64, m, 1, n, dim);
    args.query.stride[0] = 0;
    args.key = attn_cview_of(input->key, ATTN_F64, m, 1, 1, dim);
    args.value = attn_cview_of(&nothing, ATTN_F64, m, 1, 1, 1);
    args.value.stride[0] = 0;
    args.out = attn_view_of(out, ATTN_F64, m, 1, n, 1);
    args.lse = lse;
    set_scale(&args, input, scaling);
    if (lse && out && offsets) {
        for (int64_t j = 0; j < m; j++)
            offsets[j] = input->offset - j; /* key 0 of entry j is key j */
        if (causal) {
            args.mask.flags = ATTN_MASK_CAUSAL | ATTN_MASK_OFFSET;
            args.mask.query_offsets = offsets;
        }
        status = attn_sdpa_forward(ctx, &args, NULL, 0);
    }
    for (int64_t j = 0; status == ATTN_OK && j < m; j++)
        for (int64_t i = 0; i < n; i++)
            scores[i * m + j] = lse[j * n + i];
    free(lse);
    free(out);
    free(offsets);
    return status == ATTN_OK || failed(ctx, status, "scores");
}

/* weight[n_query, n_key]: every row of weights of the call that args describe. */
static attn_status row_weights(attn_ctx *ctx, const attn_sdpa_args *args, double *weight)
{
    int64_t n = args->query.shape[2], m = args->key.shape[2];
    attn_row *rows = calloc((size_t)(n ? n : 1), sizeof *rows);
    attn_view weights = attn_view_of(weight, ATTN_F64, 1, 1, n, m);
    attn_status status = ATTN_ERR_OUT_OF_MEMORY;
    for (int64_t i = 0; rows && i < n; i++)
        rows[i].query = i;
    if (rows)
        status = attn_sdpa_rows(ctx, args, rows, n, &weights);
    free(rows);
    return status;
}

/* out and weight: one call over all keys, and the weights of its rows. */
static bool outputs_and_weights(attn_ctx *ctx, const explain_input *input, explain_scaling scaling,
                                bool causal, explain_steps *steps)
{
    int64_t n = input->n_query, m = input->n_key;
    attn_sdpa_args args;
    attn_status status;
    ATTN_ARGS_INIT(&args);
    args.query = attn_cview_of(input->query, ATTN_F64, 1, 1, n, input->head_dim);
    args.key = attn_cview_of(input->key, ATTN_F64, 1, 1, m, input->head_dim);
    args.value = attn_cview_of(input->value, ATTN_F64, 1, 1, m, input->value_dim);
    args.out = attn_view_of(steps->out, ATTN_F64, 1, 1, n, input->value_dim);
    set_scale(&args, input, scaling);
    if (causal) {
        args.mask.flags = ATTN_MASK_CAUSAL | ATTN_MASK_OFFSET;
        args.mask.query_offset = input->offset;
    }
    status = attn_sdpa_forward(ctx, &args, NULL, 0);
    if (status == ATTN_OK)
        status = row_weights(ctx, &args, steps->weight);
    return status == ATTN_OK || failed(ctx, status, "weights");
}

void explain_steps_free(explain_steps *steps)
{
    free(steps->score);
    free(steps->scaled);
    free(steps->weight);
    free(steps->out);
    memset(steps, 0, sizeof *steps);
}

bool explain_compute(attn_ctx *ctx, const explain_input *input, explain_scaling scaling,
                     bool causal, explain_steps *steps)
{
    int64_t n = input->n_query, m = input->n_key;
    bool good;
    steps->score = numbers(n, m);
    steps->scaled = numbers(n, m);
    steps->weight = numbers(n, m);
    steps->out = numbers(n, input->value_dim);
    good = steps->score && steps->scaled && steps->weight && steps->out;
    if (!good)
        cli_error("explain", "out of memory for %lld by %lld scores", (long long)n, (long long)m);
    good = good && lone_key_scores(ctx, input, EXPLAIN_UNSCALED, false, steps->score) &&
           lone_key_scores(ctx, input, scaling, causal, steps->scaled) &&
           outputs_and_weights(ctx, input, scaling, causal, steps);
    if (!good)
        explain_steps_free(steps);
    return good;
}

bool explain_gradient(attn_ctx *ctx, const explain_input *input, explain_scaling scaling,
                      int64_t of, int64_t by, double *gradient)
{
    int64_t m = input->n_key;
    double lse, *work = numbers(3, m);
    double *bias = work, *d_bias = work + m, *value = work + 2 * m, one = 1.0, out;
    attn_sdpa_args args;
    attn_sdpa_backward_args back;
    attn_status status = ATTN_ERR_OUT_OF_MEMORY;
    ATTN_ARGS_INIT(&args);
    args.query = attn_cview_of(input->query, ATTN_F64, 1, 1, 1, input->head_dim);
    args.key = attn_cview_of(input->key, ATTN_F64, 1, 1, m, input->head_dim);
    args.value = attn_cview_of(value, ATTN_F64, 1, 1, m, 1); /* out = sum_j w_j [j = of] = w_of */
    args.out = attn_view_of(&out, ATTN_F64, 1, 1, 1, 1);
    args.lse = &lse;
    args.mask.bias = attn_cview_of(bias, ATTN_F64, 1, 1, 1, m);
    set_scale(&args, input, scaling);
    ATTN_ARGS_INIT(&back);
    back.forward = &args;
    back.d_out = attn_cview_of(&one, ATTN_F64, 1, 1, 1, 1);
    back.d_bias = attn_view_of(d_bias, ATTN_F64, 1, 1, 1, m);
    if (work) {
        value[of] = 1.0;
        status = attn_sdpa_forward(ctx, &args, NULL, 0);
        if (status == ATTN_OK)
            status = attn_sdpa_backward(ctx, &back, NULL, 0);
        *gradient = d_bias[by];
    }
    free(work);
    return status == ATTN_OK || failed(ctx, status, "gradient");
}

double *explain_admitted(attn_ctx *ctx, int64_t n, bool causal, int64_t window)
{
    static const double nothing = 0.0;
    double *weight = numbers(n, n);
    attn_sdpa_args args;
    attn_status status = ATTN_ERR_OUT_OF_MEMORY;
    ATTN_ARGS_INIT(&args);
    args.query = attn_cview_of(&nothing, ATTN_F64, 1, 1, n, 1);
    args.query.stride[2] = 0;
    args.key = args.query;
    args.mask.flags = causal ? ATTN_MASK_CAUSAL : 0;
    if (window > 0) {
        args.mask.flags |= ATTN_MASK_WINDOW;
        args.mask.left = window - 1;
        args.mask.right = causal ? 0 : window - 1;
    }
    if (weight)
        status = row_weights(ctx, &args, weight);
    if (status != ATTN_OK) {
        failed(ctx, status, "mask");
        free(weight);
        return NULL;
    }
    return weight;
}
