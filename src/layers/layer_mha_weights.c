/* layer_mha_weights.c - attention weights of an attention layer: chosen rows, every row, means over heads. */
#include <string.h>
#include "layers/layer_mha.h"

/* Numbers of weights that exist at once while means are taken. */
#define CHUNK_NUMBERS ((int64_t)1 << 20)

/* Weights of rows into out[n][ld], keys of the operator and then those behind them. */
static attn_status rows_into(attn_layers *layers, const attn_mha_plan *plan, const void *extra_kv, const attn_row *rows,
                             int64_t n, void *out, int64_t ld)
{
    const attn_mha_args *a = &plan->a;
    const bool merged = plan->n_extra && !plan->appended;
    for (int32_t extra = 0; extra <= (merged ? 1 : 0); extra++) {
        attn_sdpa_args s;
        const int64_t keys = extra ? plan->n_extra : plan->rows_kv;
        attn_mha_operator_args(plan, extra, extra_kv, &s);
        if (!merged) /* a further pass, and more digits than an f32 lse holds for scores far from 0 */
            s.lse = NULL;
        if (!extra)
            ATTN_TRY(attn_mha_widen_masks(layers, plan, &s));
        attn_view view = attn_view_of(attn_at(out, a->dtype, extra ? a->seq_kv : 0), a->dtype, 1, 1, n, keys);
        view.stride[2] = ld;
        if (keys)
            ATTN_TRY(attn_layers_ctx_status(layers, attn_sdpa_rows(layers->ctx, &s, rows, n, &view)));
    }
    return ATTN_OK;
}

static attn_status all_rows(attn_layers *layers, const attn_mha_plan *plan, const void *extra_kv)
{
    const attn_mha_args *a = &plan->a;
    const int64_t n = a->seq_q, keys = a->seq_kv + plan->n_extra;
    void *memory = NULL;
    ATTN_TRY(attn_layers_scratch(layers, 6 * n, ATTN_F32, &memory));
    attn_row *rows = memory;
    for (int64_t bh = 0; bh < a->batch * a->n_heads; bh++) {
        for (int64_t i = 0; i < n; i++)
            rows[i] = (attn_row){bh / a->n_heads, bh % a->n_heads, i};
        ATTN_TRY(rows_into(layers, plan, extra_kv, rows, n, attn_at(a->row_weights, a->dtype, bh * n * keys), keys));
    }
    return ATTN_OK;
}

/* mean[key] = sum over heads / n_heads for one query; weights[heads][keys]. */
static void mean_over_heads(const attn_mha_args *a, int64_t keys, const void *weights, void *mean)
{
    for (int64_t j = 0; j < keys; j++) {
        double sum = 0;
        for (int64_t h = 0; h < a->n_heads; h++)
            sum += a->dtype == ATTN_F64 ? ((const double *)weights)[h * keys + j]
                                        : (double)((const float *)weights)[h * keys + j];
        sum /= (double)a->n_heads;
        if (a->dtype == ATTN_F64)
            ((double *)mean)[j] = sum;
        else
            ((float *)mean)[j] = (float)sum;
    }
}

static attn_status means(attn_layers *layers, const attn_mha_plan *plan, const void *extra_kv)
{
    const attn_mha_args *a = &plan->a;
    const int64_t keys = a->seq_kv + plan->n_extra, h = a->n_heads, total = a->batch * a->seq_q;
    int64_t chunk = CHUNK_NUMBERS / (h * keys + 1) + 1;
    chunk = chunk < total ? chunk : total;
    void *weights = NULL, *memory = NULL;
    if (!total || !keys)
        return ATTN_OK;
    ATTN_TRY(attn_layers_scratch(layers, chunk * h * keys, a->dtype, &weights));
    ATTN_TRY(attn_layers_scratch(layers, 6 * chunk * h, ATTN_F32, &memory));
    attn_row *rows = memory;
    for (int64_t first = 0; first < total; first += chunk) {
        const int64_t n = total - first < chunk ? total - first : chunk;
        for (int64_t i = 0; i < n * h; i++)
            rows[i] = (attn_row){(first + i / h) / a->seq_q, i % h, (first + i / h) % a->seq_q};
        ATTN_TRY(rows_into(layers, plan, extra_kv, rows, n * h, weights, keys));
        for (int64_t i = 0; i < n; i++)
            mean_over_heads(a, keys, attn_at(weights, a->dtype, i * h * keys),
                            attn_at(a->mean_weights, a->dtype, (first + i) * keys));
    }
    return ATTN_OK;
}

attn_status attn_mha_show_weights(attn_layers *layers, const attn_mha_plan *plan, const void *extra_kv)
{
    const attn_mha_args *a = &plan->a;
    const int64_t keys = a->seq_kv + plan->n_extra;
    if (a->row_weights && a->weight_rows)
        ATTN_TRY(rows_into(layers, plan, extra_kv, a->weight_rows, a->n_weight_rows, a->row_weights, keys));
    else if (a->row_weights)
        ATTN_TRY(all_rows(layers, plan, extra_kv));
    return a->mean_weights ? means(layers, plan, extra_kv) : ATTN_OK;
}
