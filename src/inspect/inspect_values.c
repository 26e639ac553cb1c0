/* inspect_values.c - what a reading moves: |W_O v| of every value, and how much of it points towards the outcome. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "inspect/inspect_run.h"
#include "ops/nn/nn_parallel.h"

/* y = W_O of one head times v, in W's rows r. W: [d_model][n_heads * head_dim]. */
static double norm_directly(const float *w, int64_t d_model, int64_t width, int64_t dim, const float *v)
{
    double square = 0;
    for (int64_t r = 0; r < d_model; r++) {
        double y = 0;
        for (int64_t d = 0; d < dim; d++)
            y += (double)w[r * width + d] * (double)v[d];
        square += y * y;
    }
    return sqrt(square);
}

/* gram = W^T W of one head: |W v|^2 = v^T gram v costs head_dim^2 for a value instead of d_model * head_dim. */
static void gram_of(const float *w, int64_t d_model, int64_t width, int64_t dim, float *gram)
{
    memset(gram, 0, (size_t)(dim * dim) * sizeof *gram);
    for (int64_t r = 0; r < d_model; r++)
        for (int64_t a = 0; a < dim; a++) {
            const float scale = w[r * width + a];
            for (int64_t b = 0; b < dim; b++)
                gram[a * dim + b] += scale * w[r * width + b];
        }
}

static double norm_by_gram(const float *gram, int64_t dim, const float *v)
{
    double square = 0;
    for (int64_t a = 0; a < dim; a++) {
        float row = 0;
        for (int64_t b = 0; b < dim; b++)
            row += gram[a * dim + b] * v[b];
        square += (double)v[a] * (double)row;
    }
    return sqrt(square > 0 ? square : 0);
}

typedef struct norms_job {
    const attn_description *d;
    const attn_cview *value;
    const float *w;  /* [d_model][n_heads * head_dim] */
    float *grams;    /* [n_heads][head_dim * head_dim] */
    float *norms;
} norms_job;

static void norms_of_head(void *arg, int64_t h)
{
    const norms_job *job = arg;
    const attn_description *d = job->d;
    const int64_t dim = d->head_dim, width = d->n_heads * dim, n = job->value->shape[2], step = job->value->stride[2];
    const float *v = (const float *)job->value->data + h / (d->n_heads / d->n_kv_heads) * job->value->stride[1];
    float *gram = job->grams + h * dim * dim;
    const bool many = n > dim;
    if (many)
        gram_of(job->w + h * dim, d->d_model, width, dim, gram);
    for (int64_t j = 0; j < n; j++)
        job->norms[h * n + j] = (float)(many ? norm_by_gram(gram, dim, v + j * step)
                                             : norm_directly(job->w + h * dim, d->d_model, width, dim, v + j * step));
}

attn_status attn_inspect_values(const attn_inspect_run *run, const attn_attention_weights *weights,
                                const attn_layer_view *view, float *norms)
{
    const attn_description *d = &run->model->d;
    const int64_t dim = d->head_dim, width = d->n_heads * dim;
    float *w = malloc((size_t)(d->d_model * width) * sizeof *w), *grams = malloc((size_t)(width * dim) * sizeof *grams);
    norms_job job = {d, &view->attention->value, w, grams, norms};
    for (int64_t r = 0; w && grams && r < d->d_model; r++)
        attn_linear_row(&weights->o, r, w + r * width);
    if (w && grams)
        attn_nn_for(run->s->worker.n_threads, d->n_heads, norms_of_head, &job);
    free(w);
    free(grams);
    return w && grams ? ATTN_OK : attn_inspect_no_memory();
}

/* ---- direct effects ---- */

static bool has_direct_path(const attn_model *model)
{
    const attn_description *d = &model->d;
    bool direct = d->kind != ATTN_MODEL_ENCODER && d->place != ATTN_NORM_POST && d->final_softcap == 0;
    for (int64_t l = 0; l < d->n_layers; l++)
        direct = direct && !model->w.stack.layers[l].post1.weight;
    return direct;
}

/* The head's row of one answer less the other's; through the matrix in front of the head, where there is one. */
static attn_status answers_apart(const attn_inspect_run *run, const attn_linear *head, float *apart)
{
    const attn_description *d = &run->model->d;
    const int64_t columns = attn_embedding_dim(d), longest = columns > d->d_model ? columns : d->d_model;
    float *row = malloc((size_t)(2 * longest) * sizeof *row), *sum = row + longest;
    if (!row)
        return attn_inspect_no_memory();
    memset(sum, 0, (size_t)columns * sizeof *sum);
    for (int side = 0; side < 2; side++) {
        attn_linear_row(head, run->out->answers[side], row);
        for (int64_t i = 0; i < columns; i++)
            sum[i] += side ? -row[i] : row[i];
    }
    for (int64_t e = 0; d->embedding_dim && e < columns; e++) {
        attn_linear_row(&run->model->w.project_out, e, row);
        for (int64_t i = 0; i < d->d_model; i++)
            apart[i] += sum[e] * row[i];
    }
    if (!d->embedding_dim)
        memcpy(apart, sum, (size_t)columns * sizeof *apart);
    free(row);
    return ATTN_OK;
}

/* The final norm y = (x - mean) / sigma * gain (RMS: without the mean) with sigma frozen is linear in x; so is the logit
 * difference u y: its gradient is gain u / sigma, less its own mean where the norm subtracts one. */
attn_status attn_inspect_outcome_direction(attn_inspect_run *run)
{
    const attn_description *d = &run->model->d;
    const attn_weights *w = &run->model->w;
    const attn_linear *head = d->tied ? &w->embedding : &w->head;
    const int64_t dm = d->d_model;
    const float *x = run->final_residual + (attn_inspect_length(run) - 1) * dm, *gain = w->stack.final_norm.weight;
    const bool layer_norm = gain && d->norm.kind == ATTN_NORM_LAYER;
    double mean = 0, square = 0, middle = 0;
    if (!has_direct_path(run->model)) {
        snprintf(run->out->note, sizeof run->out->note,
                 "direct effects are not defined here: in the %s family a norm, a soft cap, or a masked-language-model head "
                 "or pooling stands between what a head writes and the outcome", d->family);
        return ATTN_OK;
    }
    run->to_outcome = calloc((size_t)dm, sizeof *run->to_outcome);
    if (!run->to_outcome)
        return attn_inspect_no_memory();
    ATTN_TRY(answers_apart(run, head, run->to_outcome));
    for (int64_t i = 0; layer_norm && i < dm; i++)
        mean += (double)x[i] / (double)dm;
    for (int64_t i = 0; i < dm; i++)
        square += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)dm;
    const double sigma = gain ? sqrt(square + d->norm.eps) : 1, scale = (d->logit_scale != 0 ? d->logit_scale : 1) / sigma;
    for (int64_t i = 0; i < dm; i++) {
        const double g = gain ? (double)gain[i] + (layer_norm ? 0 : (double)d->norm.offset) : 1;
        run->to_outcome[i] = (float)((double)run->to_outcome[i] * g * scale);
        middle += (double)run->to_outcome[i] / (double)dm;
    }
    for (int64_t i = 0; layer_norm && i < dm; i++)
        run->to_outcome[i] -= (float)middle;
    return ATTN_OK;
}

static float dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return (float)sum;
}

/* Of one kind of attention; an encoder beside a decoder writes into another stream: its direct effects are 0. */
static attn_status site_directs(attn_inspect_run *run, attn_inspect_site *site, attn_inspect_map *map, bool beside)
{
    const attn_description *d = &run->model->d;
    const int64_t dim = d->head_dim, width = d->n_heads * dim, n = map->n_keys;
    float *direction = malloc((size_t)width * sizeof *direction), *row = malloc((size_t)width * sizeof *row);
    map->value_directs = calloc((size_t)(map->n_layers * d->n_heads * n), sizeof(float));
    site->head_directs = calloc((size_t)(map->n_layers * d->n_heads), sizeof(float));
    const bool enough = direction && row && map->value_directs && site->head_directs;
    for (int64_t l = 0; enough && !beside && l < map->n_layers; l++) {
        const attn_layer_weights *w = &site->stack->layers[l];
        memset(direction, 0, (size_t)width * sizeof *direction);
        for (int64_t r = 0; r < d->d_model; r++) {
            attn_linear_row(site->cross ? &w->cross.o : &w->self.o, r, row);
            for (int64_t i = 0; i < width; i++)
                direction[i] += run->to_outcome[r] * row[i];
        }
        const float *last = site->heads + (l + 1) * (site->n_queries - site->first_kept) * width - width;
        for (int64_t h = 0; h < d->n_heads; h++) {
            const int64_t at = l * d->n_heads + h;
            for (int64_t j = 0; j < n; j++)
                map->value_directs[at * n + j] =
                    dot(direction + h * dim, attn_inspect_value(run, site, site->values, l, h, j), dim);
            site->head_directs[at] = dot(direction + h * dim, last + h * dim, dim);
        }
    }
    free(direction);
    free(row);
    return enough ? ATTN_OK : attn_inspect_no_memory();
}

attn_status attn_inspect_directs(attn_inspect_run *run)
{
    for (int32_t m = 0; run->to_outcome && m < run->out->n_maps; m++)
        ATTN_TRY(site_directs(run, &run->sites[m], &run->out->maps[m], run->out->n_maps > 1 && m == 0));
    return ATTN_OK;
}
