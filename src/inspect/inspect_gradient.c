/* inspect_gradient.c - d outcome / d output of every head at every position, by backward passes through the activations
 * (attribution patching of edges: Nanda 2023; Syed et al. 2023). Layer after layer is left to inspect_screen.c, which makes the
 * first-order effect of every knockout of it. An embedding is no number: its gradients are taken along normal random directions,
 * all of them one layer at a time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "inspect/inspect_screen.h"
#include "layers/rare_act.h"

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

/* e = p / |p|, p the mean of pooled normed rows: along u, d p = (u - (u e) e) / |p|. */
static void embedding_backward(attn_inspect_run *run, attn_backward *b)
{
    const attn_description *d = &run->model->d;
    int64_t first;
    const int64_t dm = d->d_model, n = run->a.n_tokens, pooled = attn_inspect_pooled(run, &first);
    const attn_norm *norm = &run->model->w.stack.final_norm;
    double squares = 0, along = 0;
    attn_norm_rows(&run->s->worker, &d->norm, norm, n, dm, run->final_residual, dm, b->normed, dm);
    for (int64_t i = 0; i < dm; i++) {
        double sum = 0;
        for (int64_t t = first; t < first + pooled; t++)
            sum += (double)b->normed[t * dm + i] / (double)pooled;
        squares += sum * sum;
        b->row[i] = (float)normal(&run->random);
        along += (double)b->row[i] * (double)run->results[i];
    }
    memset(b->middle, 0, (size_t)(n * dm) * sizeof(float));
    for (int64_t t = first; t < first + pooled; t++)
        for (int64_t i = 0; i < dm; i++)
            b->middle[t * dm + i] =
                (float)(((double)b->row[i] - along * (double)run->results[i]) / (sqrt(squares) * (double)pooled));
    memset(b->dx, 0, (size_t)(n * dm) * sizeof(float));
    attn_inspect_norm_back(&d->norm, norm, n, dm, run->final_residual, b->middle, b->dx);
}

/* ---- through the layers ---- */

/* One sublayer of attention, with the feed-forward part behind it where `behind` says so, in all directions. */
static attn_status sublayer_backward(attn_screen *screen, int32_t m, int64_t layer, attn_backward *b, bool behind)
{
    const attn_inspect_run *run = screen->run;
    const attn_inspect_site *site = &run->sites[m];
    const bool parallel = run->model->d.place == ATTN_NORM_PARALLEL;
    ATTN_TRY(attn_backward_again(run, site, layer, b));
    if (behind && !parallel)
        attn_backward_behind(run, site, layer, b, b->middle);
    for (int64_t u = 0; u < attn_backward_directions(run); u++) {
        attn_backward_turn(run, b, u);
        if (parallel) {
            ATTN_TRY(attn_backward_parallel(run, site, layer, b));
            continue;
        }
        if (behind)
            ATTN_TRY(attn_backward_mlp(run, &site->stack->layers[layer], b, site->n_queries, b->middle));
        ATTN_TRY(attn_backward_attention(run, site, layer, b));
    }
    return attn_screen_layer(screen, m, layer, b);
}

static attn_status stack_backward(attn_screen *screen, int32_t m, attn_backward *b)
{
    const attn_inspect_site *site = &screen->run->sites[m];
    for (int64_t l = screen->run->out->maps[m].n_layers - 1; l >= 0; l--) {
        const bool cross = m == 1 && site->stack->layers[l].has_cross;
        if (cross)
            ATTN_TRY(sublayer_backward(screen, 2, l, b, true));
        ATTN_TRY(sublayer_backward(screen, m, l, b, !cross));
        ATTN_TRY(attn_inspect_progress(screen->run));
    }
    return ATTN_OK;
}

static attn_status backward(attn_screen *screen, attn_backward *b)
{
    attn_inspect_run *run = screen->run;
    const attn_description *d = &run->model->d;
    const bool two = d->kind == ATTN_MODEL_ENCODER_DECODER;
    const size_t bytes = (size_t)(run->a.n_tokens * d->d_model) * sizeof(float);
    for (int64_t u = 0; u < attn_backward_directions(run); u++) {
        attn_backward_turn(run, b, u);
        if (run->out->outcome_kind == ATTN_OUTCOME_EMBEDDING)
            embedding_backward(run, b);
        else
            ATTN_TRY(logits_backward(run, b));
    }
    if (!two)
        return stack_backward(screen, 0, b);
    memset(b->d_encoder, 0, bytes);
    ATTN_TRY(stack_backward(screen, 1, b));
    memset(b->dx, 0, bytes);
    attn_inspect_norm_back(&d->norm, &run->model->w.encoder.final_norm, run->a.n_tokens, d->d_model, run->encoder_residual,
                           b->d_encoder, b->dx);
    return stack_backward(screen, 0, b);
}

attn_status attn_inspect_gradient(attn_inspect_run *run, attn_screen *screen)
{
    attn_backward b;
    const bool two = run->model->d.kind == ATTN_MODEL_ENCODER_DECODER;
    run->out->estimate = run->out->outcome_kind == ATTN_OUTCOME_EMBEDDING ? ATTN_ESTIMATE_DISTANCE : ATTN_ESTIMATE_GRADIENT;
    run->all_passes += run->out->maps[0].n_layers + (two ? run->out->maps[1].n_layers : 0);
    attn_status status = attn_backward_start(run, &b);
    if (status == ATTN_OK)
        status = backward(screen, &b);
    attn_backward_finish(&b);
    return status;
}
