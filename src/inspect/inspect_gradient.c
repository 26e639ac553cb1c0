/* inspect_gradient.c - d outcome / d output of every head at every position, by backward passes through the activations,
 * and from it the first-order effect of every knockout:
 *
 *     y' - y = (y - a v) / (1 - a) - y = a / (1 - a) (y - v)      estimate = <d outcome / d y, y' - y>
 *
 * (attribution patching of edges: Nanda 2023; Syed et al. 2023). An embedding is no number: its estimate is the distance
 * that it moves, from N_DIRECTIONS passes with normal random directions u, since the mean of (u J delta)^2 is |J delta|^2. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "inspect/inspect_backward.h"
#include "layers/rare_act.h"

/* Beyond this weight the division by 1 - a is held at 1 - MOST_WEIGHT: a first-order estimate says nothing there. */
#define MOST_WEIGHT  0.99f
#define N_DIRECTIONS 8

/* ---- estimates ---- */

/* Adds those of one layer (squared: to the squares). b holds the heads' outputs and their gradients. */
static void estimate_layer(attn_inspect_run *run, int32_t m, int64_t layer, const attn_backward *b, bool squared)
{
    const attn_description *d = &run->model->d;
    const attn_inspect_map *map = &run->out->maps[m];
    const attn_inspect_site *site = &run->sites[m];
    const int64_t dim = d->head_dim, width = d->n_heads * dim;
    for (int64_t h = 0; h < d->n_heads; h++)
        for (int64_t q = 0; q < site->n_queries; q++) {
            const int64_t row = (layer * d->n_heads + h) * site->n_queries + q;
            const float *g = b->d_heads + q * width + h * dim, *y = b->heads + q * width + h * dim;
            for (int64_t i = map->starts[row]; i < map->starts[row + 1]; i++) {
                const float *v = attn_inspect_value(run, site, site->values, layer, h, map->keys[i]);
                const double a = (double)map->weights[i], left = 1 - (a > (double)MOST_WEIGHT ? (double)MOST_WEIGHT : a);
                double along = 0;
                for (int64_t k = 0; k < dim; k++)
                    along += (double)g[k] * ((double)y[k] - (double)v[k]);
                along *= a / left;
                site->estimates[attn_estimate_at(run, site, layer, h, q, map->keys[i])] +=
                    (float)(squared ? along * along / N_DIRECTIONS : along);
            }
        }
}

static bool is_served(const attn_inspect_run *run)
{
    bool served = true;
    for (int32_t m = 0; m < run->out->n_maps; m++) {
        const attn_inspect_site *site = &run->sites[m];
        served = served && !site->first_kept && site->n_queries <= ATTN_INSPECT_WHOLE && site->n_keys <= ATTN_INSPECT_WHOLE &&
                 run->out->maps[m].n_rows == site->n_queries;
    }
    return served;
}

/* ---- where it starts: b->dx becomes the gradient of the outcome with respect to what leaves the last layer ---- */

/* d logit difference / d input of the head: rows of the head, less what a soft cap takes, through the matrix that a few
 * families have in front of it. */
static attn_status head_difference(const attn_inspect_run *run, attn_backward *b, float *to)
{
    const attn_description *d = &run->model->d;
    const attn_weights *w = &run->model->w;
    const attn_linear *head = d->tied ? &w->embedding : &w->head;
    const double scale = d->logit_scale != 0 ? d->logit_scale : 1;
    const int64_t columns = attn_embedding_dim(d);
    float *sum = d->embedding_dim ? b->gradient : to;
    memset(sum, 0, (size_t)columns * sizeof *sum);
    for (int side = 0; side < 2; side++) {
        const int32_t answer = run->out->answers[side];
        const double capped = d->final_softcap > 0 ? (double)run->results[answer] / d->final_softcap : 0;
        const double factor = (side ? -scale : scale) * (1 - capped * capped);
        attn_linear_row(head, answer, b->row);
        for (int64_t i = 0; i < columns; i++)
            sum[i] += (float)(factor * (double)b->row[i]);
    }
    return d->embedding_dim ? attn_inspect_linear_back(run, &w->project_out, 1, sum, false, to) : ATTN_OK;
}

/* A masked-language-model head in front: norm(act(transform h)). d [d_model] is changed in place. */
static attn_status transform_backward(const attn_inspect_run *run, attn_backward *b, const float *h, float *d_out)
{
    const attn_description *d = &run->model->d;
    const attn_weights *w = &run->model->w;
    float *before = b->other, *activated = b->d_other, *gradient = b->d_normed; /* a row each */
    if (!w->transform.w.values)
        return ATTN_OK;
    attn_inspect_linear(run, &w->transform, 1, h, NULL, before);
    memcpy(activated, before, (size_t)d->d_model * sizeof *before);
    attn_activate(&run->s->worker, d->transform_act, activated, d->d_model);
    memset(gradient, 0, (size_t)d->d_model * sizeof *gradient);
    attn_inspect_norm_back(&d->norm, &w->transform_norm, 1, d->d_model, activated, d_out, gradient);
    for (int64_t i = 0; i < d->d_model; i++)
        gradient[i] = (float)((double)gradient[i] * attn_activation_slope(d->transform_act, (double)before[i]));
    return attn_inspect_linear_back(run, &w->transform, 1, gradient, false, d_out);
}

static attn_status logits_backward(const attn_inspect_run *run, attn_backward *b)
{
    const attn_description *d = &run->model->d;
    const int64_t dm = d->d_model, at = run->out->outcome_position * dm;
    const attn_norm *norm = &run->model->w.stack.final_norm;
    const float *x = run->final_residual + at;
    ATTN_TRY(head_difference(run, b, b->middle));
    attn_norm_rows(&run->s->worker, &d->norm, norm, 1, dm, x, dm, b->normed, dm);
    ATTN_TRY(transform_backward(run, b, b->normed, b->middle));
    memset(b->dx, 0, (size_t)(attn_inspect_length(run) * dm) * sizeof(float));
    attn_inspect_norm_back(&d->norm, norm, 1, dm, x, b->middle, b->dx + at);
    return ATTN_OK;
}

static double normal(uint64_t *random) /* Box and Muller */
{
    const double u = ((double)(attn_inspect_random(random) >> 11) + 1) * 0x1p-53;
    const double v = (double)(attn_inspect_random(random) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

/* e = p / |p|, p the mean of normed rows (or the first): along u, d p = (u - (u e) e) / |p|. */
static void embedding_backward(attn_inspect_run *run, attn_backward *b)
{
    const attn_description *d = &run->model->d;
    const int64_t dm = d->d_model, n = run->a.n_tokens, pooled = d->pool_first ? 1 : n;
    const attn_norm *norm = &run->model->w.stack.final_norm;
    double squares = 0, along = 0;
    attn_norm_rows(&run->s->worker, &d->norm, norm, n, dm, run->final_residual, dm, b->normed, dm);
    for (int64_t i = 0; i < dm; i++) {
        double sum = 0;
        for (int64_t t = 0; t < pooled; t++)
            sum += (double)b->normed[t * dm + i] / (double)pooled;
        squares += sum * sum;
        b->row[i] = (float)normal(&run->random);
        along += (double)b->row[i] * (double)run->results[i];
    }
    memset(b->middle, 0, (size_t)(n * dm) * sizeof(float));
    for (int64_t t = 0; t < pooled; t++)
        for (int64_t i = 0; i < dm; i++)
            b->middle[t * dm + i] =
                (float)(((double)b->row[i] - along * (double)run->results[i]) / (sqrt(squares) * (double)pooled));
    memset(b->dx, 0, (size_t)(n * dm) * sizeof(float));
    attn_inspect_norm_back(&d->norm, norm, n, dm, run->final_residual, b->middle, b->dx);
}

/* ---- through the layers ---- */

static attn_status layer_backward(attn_inspect_run *run, int32_t m, int64_t layer, attn_backward *b, bool squared)
{
    const attn_inspect_site *site = &run->sites[m], *cross = &run->sites[2];
    const attn_layer_weights *w = &site->stack->layers[layer];
    const bool has_cross = m == 1 && w->has_cross;
    if (run->model->d.place == ATTN_NORM_PARALLEL) {
        ATTN_TRY(attn_backward_parallel(run, site, layer, b));
    } else {
        attn_backward_behind(run, has_cross ? cross : site, layer, b, b->middle);
        ATTN_TRY(attn_backward_mlp(run, w, b, site->n_queries, b->middle));
        if (has_cross) {
            ATTN_TRY(attn_backward_attention(run, cross, layer, b));
            estimate_layer(run, 2, layer, b, squared);
        }
        ATTN_TRY(attn_backward_attention(run, site, layer, b));
    }
    estimate_layer(run, m, layer, b, squared);
    return ATTN_OK;
}

static attn_status stack_backward(attn_inspect_run *run, int32_t m, attn_backward *b, bool squared)
{
    for (int64_t l = run->out->maps[m].n_layers - 1; l >= 0; l--)
        ATTN_TRY(layer_backward(run, m, l, b, squared));
    return ATTN_OK;
}

static attn_status backward(attn_inspect_run *run, attn_backward *b)
{
    const attn_description *d = &run->model->d;
    const bool two = d->kind == ATTN_MODEL_ENCODER_DECODER, squared = run->out->outcome_kind == ATTN_OUTCOME_EMBEDDING;
    const int64_t size = run->a.n_tokens * d->d_model;
    for (int i = 0; i < (squared ? N_DIRECTIONS : 1); i++) {
        if (squared)
            embedding_backward(run, b);
        else
            ATTN_TRY(logits_backward(run, b));
        memset(b->d_encoder, 0, (size_t)size * sizeof(float));
        ATTN_TRY(stack_backward(run, two ? 1 : 0, b, squared));
    }
    if (!two)
        return ATTN_OK;
    memset(b->dx, 0, (size_t)size * sizeof(float));
    attn_inspect_norm_back(&d->norm, &run->model->w.encoder.final_norm, run->a.n_tokens, d->d_model, run->encoder_residual,
                       b->d_encoder, b->dx);
    return stack_backward(run, 0, b, false);
}

static void take_roots(attn_inspect_run *run)
{
    const attn_inspect_site *site = &run->sites[0];
    const int64_t n = run->out->maps[0].n_layers * run->model->d.n_heads * site->n_queries * site->n_keys;
    for (int64_t i = 0; i < n; i++)
        site->estimates[i] = sqrtf(site->estimates[i]);
}

attn_status attn_inspect_gradient(attn_inspect_run *run)
{
    attn_backward b;
    if (!is_served(run))
        return ATTN_OK;
    for (int32_t m = 0; m < run->out->n_maps; m++) {
        attn_inspect_site *site = &run->sites[m];
        const int64_t rows = run->out->maps[m].n_layers * run->model->d.n_heads * site->n_queries;
        site->estimates = calloc((size_t)(rows * site->n_keys), sizeof *site->estimates);
        if (!site->estimates)
            return attn_inspect_no_memory();
    }
    attn_status status = attn_backward_start(run, &b);
    if (status == ATTN_OK)
        status = backward(run, &b);
    attn_backward_finish(&b);
    run->out->estimate = ATTN_ESTIMATE_GRADIENT;
    if (run->out->outcome_kind == ATTN_OUTCOME_EMBEDDING) {
        run->out->estimate = ATTN_ESTIMATE_DISTANCE;
        take_roots(run);
    }
    return status;
}
