/* inspect_gradient.c - d outcome / d output of every head at every position, by one backward pass through the
 * activations, and from it the first-order effect of every knockout:
 *
 *     y' - y = (y - a v) / (1 - a) - y = a / (1 - a) (y - v)      estimate = <d outcome / d y, y' - y>
 *
 * (attribution patching of edges: Nanda 2023; Syed et al. 2023). Blocks with a norm in front of each sublayer:
 * h = x + attention(norm1(x)), y = h + mlp(norm2(h)). Activations inside a layer are computed again from the stream that
 * entered it; weights are transposed for one layer at a time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "inspect/inspect_run.h"

/* Beyond this weight the division by 1 - a is held at 1 - MOST_WEIGHT: a first-order estimate says nothing there. */
#define MOST_WEIGHT 0.99f

/* ---- pieces ---- */

/* dx += the gradient of y = norm(x) for rows of n numbers, dy with respect to y. Without weight: the identity. */
static void norm_backward(const attn_norm_options *o, const attn_norm *norm, int64_t rows, int64_t n, const float *x,
                          const float *dy, float *dx)
{
    for (int64_t r = 0; r < rows; r++, x += n, dy += n, dx += n) {
        double mean = 0, square = 0, along = 0, middle = 0;
        if (!norm->weight) {
            for (int64_t i = 0; i < n; i++)
                dx[i] += dy[i];
            continue;
        }
        const bool layer = o->kind == ATTN_NORM_LAYER;
        const double offset = layer ? 0 : (double)o->offset;
        for (int64_t i = 0; layer && i < n; i++)
            mean += (double)x[i] / (double)n;
        for (int64_t i = 0; i < n; i++)
            square += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
        const double scale = 1 / sqrt(square + o->eps);
        for (int64_t i = 0; i < n; i++) { /* the normed row has slope scale, less what lies along it and along 1 */
            const double g = ((double)norm->weight[i] + offset) * (double)dy[i];
            along += g * ((double)x[i] - mean) * scale / (double)n;
            middle += layer ? g / (double)n : 0;
        }
        for (int64_t i = 0; i < n; i++) {
            const double g = ((double)norm->weight[i] + offset) * (double)dy[i];
            dx[i] += (float)(scale * (g - middle - along * ((double)x[i] - mean) * scale));
        }
    }
}

/* The slope of an activation at x. */
static double slope(int32_t act, double x)
{
    const double pi = 3.14159265358979323846;
    double s, t, inner;
    switch (act) {
    case ATTN_ACT_RELU:
        return x > 0;
    case ATTN_ACT_SILU:
        s = 1 / (1 + exp(-x));
        return s * (1 + x * (1 - s));
    case ATTN_ACT_GELU_QUICK:
        s = 1 / (1 + exp(-1.702 * x));
        return s * (1 + 1.702 * x * (1 - s));
    case ATTN_ACT_GELU_ERF:
        return 0.5 * (1 + erf(x / sqrt(2))) + x * exp(-0.5 * x * x) / sqrt(2 * pi);
    case ATTN_ACT_GELU_TANH:
        inner = sqrt(2 / pi) * (x + 0.044715 * x * x * x);
        t = tanh(inner);
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
    case ATTN_ACT_TANH:
        t = tanh(x);
        return 1 - t * t;
    default:
        return 1;
    }
}

/* Columns of W [n_out, n_in] as rows. */
typedef struct columns {
    const float *w;
    int64_t n_in, n_out;
} columns;

static void column(void *arg, int64_t row, float *out)
{
    const columns *c = arg;
    for (int64_t o = 0; o < c->n_out; o++)
        out[o] = c->w[o * c->n_in + row];
}

/* dx (+)= dy W: the gradient of y = x W^T with respect to x. */
static attn_status linear_backward(const attn_inspect_run *run, const attn_linear *linear, int64_t rows, const float *dy,
                                   bool add, float *dx)
{
    const int64_t n_in = linear->w.n_in, n_out = linear->w.n_out;
    const attn_linear_format f32 = {.format = ATTN_PANEL_F32};
    attn_linear transposed = {0};
    float *w = malloc((size_t)(n_in * n_out) * sizeof *w), *scratch = malloc((size_t)n_out * sizeof *scratch);
    float *sum = add ? malloc((size_t)(rows * n_in) * sizeof *sum) : NULL;
    attn_status status = w && scratch && (!add || sum) ? attn_linear_create(&transposed, f32, n_out, n_in)
                                                       : attn_inspect_no_memory();
    if (status == ATTN_OK) {
        columns c = {w, n_in, n_out};
        for (int64_t o = 0; o < n_out; o++)
            attn_linear_row(linear, o, w + o * n_in);
        attn_linear_pack_rows(&transposed, 0, attn_panel_count(&transposed.w), column, &c, scratch);
        if (add)
            memcpy(sum, dx, (size_t)(rows * n_in) * sizeof *sum);
        const attn_linear_job job = {.linear = &transposed, .x = dy, .ldx = n_out, .y = dx, .ldy = n_in,
                                     .residual = sum, .ld_residual = n_in};
        attn_linear_run(&run->s->worker, &job, 1, rows);
    }
    attn_linear_destroy(&transposed);
    free(w);
    free(scratch);
    free(sum);
    return status;
}

static void linear(const attn_inspect_run *run, const attn_linear *l, int64_t rows, const float *x, const float *residual,
                   float *y)
{
    const attn_linear_job job = {.linear = l, .x = x, .ldx = l->w.n_in, .y = y, .ldy = l->w.n_out, .residual = residual,
                                 .ld_residual = l->w.n_out};
    attn_linear_run(&run->s->worker, &job, 1, rows);
}

/* ---- one layer, backwards ---- */

typedef struct buffers {
    float *dx;                         /* [n, d_model] gradient of the stream */
    float *middle, *normed, *d_normed; /* [n, d_model] */
    float *gate, *up, *d_gate, *d_up;  /* [n, d_ff] */
    float *heads, *d_heads, *d_q, *d_k, *d_v; /* [n, width] */
    float *q, *k, *lse;
    int64_t *positions;
} buffers;

static void norm(const attn_inspect_run *run, const attn_norm *n, const float *x, float *y)
{
    const int64_t dm = run->model->d.d_model;
    attn_norm_rows(&run->s->worker, &run->model->d.norm, n, run->a.n_tokens, dm, x, dm, y, dm);
}

/* dx += d mlp(norm2(middle)), with dx the gradient of what leaves the layer. */
static attn_status mlp_backward(const attn_inspect_run *run, const attn_layer_weights *w, buffers *b)
{
    const attn_description *d = &run->model->d;
    const int64_t n = run->a.n_tokens, size = n * d->d_ff;
    norm(run, &w->norm2, b->middle, b->normed);
    linear(run, &w->up, n, b->normed, NULL, b->up);
    ATTN_TRY(linear_backward(run, &w->down, n, b->dx, false, b->d_up));
    if (d->mlp.gated) {
        linear(run, &w->gate, n, b->normed, NULL, b->gate);
        for (int64_t i = 0; i < size; i++) {
            float value = b->gate[i];
            const float by = b->d_up[i];
            run->s->worker.kernels->activate(d->mlp.act, &value, 1);
            b->d_gate[i] = (float)((double)by * (double)b->up[i] * slope(d->mlp.act, (double)b->gate[i]));
            b->d_up[i] = by * value;
        }
        ATTN_TRY(linear_backward(run, &w->gate, n, b->d_gate, false, b->d_normed));
    } else {
        for (int64_t i = 0; i < size; i++)
            b->d_up[i] = (float)((double)b->d_up[i] * slope(d->mlp.act, (double)b->up[i]));
    }
    ATTN_TRY(linear_backward(run, &w->up, n, b->d_up, d->mlp.gated, b->d_normed));
    norm_backward(&d->norm, &w->norm2, n, d->d_model, b->middle, b->d_normed, b->dx);
    return ATTN_OK;
}

static attn_cview rows_view(const float *data, int64_t heads, int64_t n, int64_t dim)
{
    attn_cview v = attn_cview_of(data, ATTN_F32, 1, heads, n, dim);
    v.stride[1] = dim;
    v.stride[2] = heads * dim;
    return v;
}

static attn_view writable(float *data, int64_t heads, int64_t n, int64_t dim)
{
    attn_view v = attn_view_of(data, ATTN_F32, 1, heads, n, dim);
    v.stride[1] = dim;
    v.stride[2] = heads * dim;
    return v;
}

/* d_q, d_k and d_v of the operator's call of a layer, for d_heads. */
static attn_status operator_backward(const attn_inspect_run *run, int64_t layer, buffers *b)
{
    const attn_description *d = &run->model->d;
    const int64_t n = run->a.n_tokens, dim = d->head_dim;
    attn_sdpa_args args = run->attention[layer];
    attn_sdpa_backward_args back;
    args.query = rows_view(run->queries + layer * n * d->n_heads * dim, d->n_heads, n, dim);
    args.out = writable(b->heads, d->n_heads, n, dim);
    args.lse = b->lse;
    attn_status status = attn_sdpa_forward(run->s->ctx, &args, NULL, 0);
    ATTN_ARGS_INIT(&back);
    back.forward = &args;
    back.d_out = rows_view(b->d_heads, d->n_heads, n, dim);
    back.d_query = writable(b->d_q, d->n_heads, n, dim);
    back.d_key = writable(b->d_k, d->n_kv_heads, n, dim);
    back.d_value = writable(b->d_v, d->n_kv_heads, n, dim);
    if (status == ATTN_OK)
        status = attn_sdpa_backward(run->s->ctx, &back, NULL, 0);
    return status == ATTN_OK ? ATTN_OK : attn_model_fail(status, "attention: %s", attn_ctx_error(run->s->ctx));
}

/* Back through the norm over heads, where the family has one: x are the projections before it. */
static void head_norm_backward(const attn_inspect_run *run, const attn_norm *norm_of, int64_t dim, const attn_linear *l,
                               const float *normed, float *x, float *d)
{
    const int64_t n = run->a.n_tokens, size = n * l->w.n_out;
    if (!norm_of->weight)
        return;
    float *from = malloc((size_t)size * sizeof *from);
    linear(run, l, n, normed, NULL, x);
    if (from) {
        memcpy(from, d, (size_t)size * sizeof *from);
        memset(d, 0, (size_t)size * sizeof *d);
        norm_backward(&run->model->d.norm, norm_of, size / dim, dim, x, from, d);
    }
    free(from);
}

/* dx += d attention(norm1(x)); leaves d_heads. */
static attn_status attention_backward(const attn_inspect_run *run, int64_t layer, buffers *b)
{
    const attn_description *d = &run->model->d;
    const attn_layer_weights *w = &run->model->w.stack.layers[layer];
    const attn_attention_weights *a = &w->self;
    const int64_t n = run->a.n_tokens;
    const float *x = run->stream + layer * n * d->d_model;
    ATTN_TRY(linear_backward(run, &a->o, n, b->dx, false, b->d_heads));
    ATTN_TRY(operator_backward(run, layer, b));
    if (d->position == ATTN_POSITION_ROPE) {
        attn_pass pass = {.s = run->s, .d = d, .total = n, .positions = b->positions};
        ATTN_TRY(attn_pass_rotate(&pass, layer, d->n_heads, true, b->d_q));
        ATTN_TRY(attn_pass_rotate(&pass, layer, d->n_kv_heads, true, b->d_k));
    }
    norm(run, &w->norm1, x, b->normed);
    head_norm_backward(run, &a->q_norm, a->q_norm_dim, &a->q, b->normed, b->q, b->d_q);
    head_norm_backward(run, &a->k_norm, a->k_norm_dim, &a->k, b->normed, b->k, b->d_k);
    ATTN_TRY(linear_backward(run, &a->q, n, b->d_q, false, b->d_normed));
    ATTN_TRY(linear_backward(run, &a->k, n, b->d_k, true, b->d_normed));
    ATTN_TRY(linear_backward(run, &a->v, n, b->d_v, true, b->d_normed));
    norm_backward(&d->norm, &w->norm1, n, d->d_model, x, b->d_normed, b->dx);
    return ATTN_OK;
}

/* ---- estimates ---- */

static attn_status estimate_layer(attn_inspect_run *run, int64_t layer, const buffers *b)
{
    const attn_description *d = &run->model->d;
    const int64_t n = run->a.n_tokens, dim = d->head_dim, width = d->n_heads * dim;
    const attn_inspect_map *map = &run->out->maps[0];
    for (int64_t h = 0; h < d->n_heads; h++)
        for (int64_t q = 0; q < n; q++) {
            const int64_t row = (layer * d->n_heads + h) * n + q;
            const float *g = b->d_heads + q * width + h * dim, *y = b->heads + q * width + h * dim;
            for (int64_t i = map->starts[row]; i < map->starts[row + 1]; i++) {
                const float *v = attn_inspect_value(run, run->values, layer, h, map->keys[i]);
                const double a = (double)map->weights[i], left = 1 - (a > (double)MOST_WEIGHT ? (double)MOST_WEIGHT : a);
                double along = 0;
                for (int64_t k = 0; k < dim; k++)
                    along += (double)g[k] * ((double)y[k] - (double)v[k]);
                run->estimates[attn_estimate_at(run, layer, h, q, map->keys[i])] = (float)(a / left * along);
            }
        }
    return ATTN_OK;
}

static bool is_served(const attn_inspect_run *run)
{
    const attn_description *d = &run->model->d;
    bool served = run->to_outcome && !run->first_kept && run->a.n_tokens <= ATTN_INSPECT_WHOLE &&
                  d->place == ATTN_NORM_PRE && d->mlp.n_experts == 0 && d->softcap == 0;
    for (int64_t l = 0; l < d->n_layers; l++)
        served = served && !run->model->w.stack.layers[l].post2.weight;
    return served && run->out->maps[0].n_rows == run->a.n_tokens;
}

/* Gradient of the outcome with respect to what leaves the last layer: the final norm's, not frozen. */
static void outcome_backward(const attn_inspect_run *run, buffers *b)
{
    const attn_description *d = &run->model->d;
    const attn_weights *w = &run->model->w;
    const attn_linear *head = d->tied ? &w->embedding : &w->head;
    const int64_t dm = d->d_model, last = (run->a.n_tokens - 1) * dm;
    const double scale = d->logit_scale != 0 ? d->logit_scale : 1;
    memset(b->dx, 0, (size_t)(run->a.n_tokens * dm) * sizeof *b->dx);
    attn_linear_row(head, run->out->answers[0], b->normed);
    attn_linear_row(head, run->out->answers[1], b->d_normed);
    for (int64_t i = 0; i < dm; i++)
        b->normed[i] = (float)(scale * ((double)b->normed[i] - (double)b->d_normed[i]));
    norm_backward(&d->norm, &w->stack.final_norm, 1, dm, run->final_residual + last, b->normed, b->dx + last);
}

static attn_status backward(attn_inspect_run *run, buffers *b)
{
    const attn_description *d = &run->model->d;
    const int64_t n = run->a.n_tokens;
    for (int64_t i = 0; i < n; i++)
        b->positions[i] = i;
    outcome_backward(run, b);
    for (int64_t l = d->n_layers - 1; l >= 0; l--) {
        const attn_layer_weights *w = &run->model->w.stack.layers[l];
        linear(run, &w->self.o, n, run->heads + l * n * d->n_heads * d->head_dim, run->stream + l * n * d->d_model,
               b->middle);
        ATTN_TRY(mlp_backward(run, w, b));
        ATTN_TRY(attention_backward(run, l, b));
        ATTN_TRY(estimate_layer(run, l, b));
    }
    return ATTN_OK;
}

attn_status attn_inspect_gradient(attn_inspect_run *run)
{
    const attn_description *d = &run->model->d;
    const int64_t n = run->a.n_tokens, width = d->n_heads * d->head_dim;
    if (!is_served(run))
        return ATTN_OK;
    buffers b = {0};
    float **stream[] = {&b.dx, &b.middle, &b.normed, &b.d_normed}, **wide[] = {&b.gate, &b.up, &b.d_gate, &b.d_up};
    float **heads[] = {&b.heads, &b.d_heads, &b.d_q, &b.d_k, &b.d_v, &b.q, &b.k};
    float *memory = malloc((size_t)(n * (4 * d->d_model + 4 * d->d_ff + 7 * width + d->n_heads)) * sizeof *memory);
    float *at = memory;
    b.positions = malloc((size_t)n * sizeof *b.positions);
    run->estimates = calloc((size_t)(d->n_layers * d->n_heads * n * n), sizeof *run->estimates);
    attn_status status = memory && b.positions && run->estimates ? ATTN_OK : attn_inspect_no_memory();
    if (status == ATTN_OK) {
        for (int i = 0; i < 4; i++, at += n * d->d_model)
            *stream[i] = at;
        for (int i = 0; i < 4; i++, at += n * d->d_ff)
            *wide[i] = at;
        for (int i = 0; i < 7; i++, at += n * width)
            *heads[i] = at;
        b.lse = at;
        status = backward(run, &b);
        run->out->estimate = ATTN_ESTIMATE_GRADIENT;
    }
    free(memory);
    free(b.positions);
    return status;
}
