/* inspect_backward.c - sublayers of a block backwards, from what entered them in the clean pass. Activations inside are
 * computed again; weights are transposed for one matrix at a time.
 *
 *     PRE       h = x + post(f(norm(x)))     POST  h = norm(x + f(x))     PARALLEL  y = x + attention(norm1 x) + mlp(norm2 x)
 *
 * Each function takes dx, the gradient of what leaves, and leaves there the gradient of what entered. */
#include "inspect/inspect_backward.h"
#include "layers/rare_act.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ops/nn/nn_parallel.h"

/* ---- pieces ---- */

/* dx += the gradient of y = norm(x) for rows of n numbers, dy with respect to y. Without weight: the identity. */
void attn_inspect_norm_back(const attn_norm_options *o, const attn_norm *norm, int64_t rows, int64_t n, const float *x,
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
double attn_activation_slope(int32_t act, double x)
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
        return attn_act_is_rare(act) ? attn_rare_act_slope(act, x) : 1;
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
attn_status attn_inspect_linear_back(const attn_inspect_run *run, const attn_linear *linear, int64_t rows, const float *dy,
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

void attn_inspect_linear(const attn_inspect_run *run, const attn_linear *l, int64_t rows, const float *x,
                       const float *residual, float *y)
{
    const attn_linear_job job = {.linear = l, .x = x, .ldx = l->w.n_in, .y = y, .ldy = l->w.n_out, .residual = residual,
                                 .ld_residual = l->w.n_out};
    attn_linear_run(&run->s->worker, &job, 1, rows);
}

static void norm_again(const attn_inspect_run *run, const attn_norm *n, int64_t rows, const float *x, float *y)
{
    const int64_t dm = run->model->d.d_model;
    attn_norm_rows(&run->s->worker, &run->model->d.norm, n, rows, dm, x, dm, y, dm);
}

static void add(int64_t n, const float *x, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

/* ---- feed-forward parts ---- */

/* Elements of a feed-forward part, in pieces that threads share. */
typedef struct slopes {
    const attn_inspect_run *run;
    int64_t n;
    const float *d_out;
    float *gate, *up; /* gate NULL: a plain part */
} slopes;

#define SLOPES 4096

/* Of a plain part: up becomes the gradient before the activation. */
static void plain_slopes(const slopes *s, int64_t from, int64_t n)
{
    for (int64_t i = from; i < from + n; i++)
        s->up[i] = (float)((double)s->d_out[i] * attn_activation_slope(s->run->model->d.mlp.act, (double)s->up[i]));
}

static void gate_slopes(const slopes *s, int64_t from, int64_t n)
{
    const attn_mlp_options *o = &s->run->model->d.mlp;
    float value[SLOPES], *gate = s->gate + from, *up = s->up + from;
    memcpy(value, gate, (size_t)n * sizeof *value);
    attn_activate(&s->run->s->worker, o->act, value, n);
    for (int64_t i = 0; i < n; i++) {
        const double by = (double)s->d_out[from + i], g = (double)gate[i], u = (double)up[i];
        if (o->swiglu_limit > 0) { /* (up + 1) gate / (1 + exp(-alpha gate)), both clamped: no slope beyond */
            const double limit = o->swiglu_limit, gc = fmin(g, limit), uc = fmax(-limit, fmin(u, limit));
            const double sigmoid = 1 / (1 + exp(-o->swiglu_alpha * gc));
            gate[i] = (float)(g > limit ? 0 : by * (uc + 1) * sigmoid * (1 + o->swiglu_alpha * gc * (1 - sigmoid)));
            up[i] = (float)(fabs(u) > limit ? 0 : by * gc * sigmoid);
        } else {
            gate[i] = (float)(by * u * attn_activation_slope(o->act, g));
            up[i] = (float)by * value[i];
        }
    }
}

static void some_slopes(void *arg, int64_t piece)
{
    const slopes *s = arg;
    const int64_t from = piece * SLOPES, n = s->n - from < SLOPES ? s->n - from : SLOPES;
    if (s->gate)
        gate_slopes(s, from, n);
    else
        plain_slopes(s, from, n);
}

/* The gate's product and its slopes: gate and up [n] become d_gate and d_up, d_out the gradient of the product. Without a gate
 * up becomes the gradient before the activation. */
static void activation_backward(const attn_inspect_run *run, int64_t n, const float *d_out, float *gate, float *up)
{
    slopes s = {run, n, d_out, gate, up};
    attn_nn_for(run->s->worker.n_threads, (n + SLOPES - 1) / SLOPES, some_slopes, &s);
}

/* d_in = the gradient of y = mlp(in) for d_out; they do not overlap. */
static attn_status dense_backward(const attn_inspect_run *run, const attn_layer_weights *w, attn_backward *b, int64_t n,
                                  const float *in, const float *d_out, float *d_in)
{
    const attn_description *d = &run->model->d;
    attn_inspect_linear(run, &w->up, n, in, NULL, b->up);
    ATTN_TRY(attn_inspect_linear_back(run, &w->down, n, d_out, false, b->d_wide));
    if (d->mlp.gated) {
        attn_inspect_linear(run, &w->gate, n, in, NULL, b->gate);
        activation_backward(run, n * d->d_ff, b->d_wide, b->gate, b->up);
        ATTN_TRY(attn_inspect_linear_back(run, &w->gate, n, b->gate, false, d_in));
        return attn_inspect_linear_back(run, &w->up, n, b->up, true, d_in);
    }
    activation_backward(run, n * d->d_ff, b->d_wide, NULL, b->up);
    return attn_inspect_linear_back(run, &w->up, n, b->up, false, d_in);
}

/* One row of a mixture: through its experts, and through the softmax over those chosen. */
static attn_status mixture_row(const attn_inspect_run *run, const attn_layer_weights *w, attn_backward *b, const float *in,
                               const float *d_out, float *d_in)
{
    const attn_description *d = &run->model->d;
    const attn_mlp_options *o = &d->mlp;
    float *logits = b->d_wide, *act = b->d_wide + o->n_experts; /* rows of a mixture need one row of d_ff each */
    float weights[64], d_weights[64];
    int64_t chosen[64];
    double mean = 0;
    attn_inspect_linear(run, &w->router, 1, in, NULL, logits);
    attn_choose_experts(logits, o, chosen, weights);
    memset(d_in, 0, (size_t)d->d_model * sizeof *d_in);
    for (int64_t i = 0; i < o->experts_per_token; i++) {
        const int64_t e = chosen[i];
        double along = 0;
        attn_inspect_linear(run, &w->expert_gate[e], 1, in, NULL, b->gate);
        attn_inspect_linear(run, &w->expert_up[e], 1, in, NULL, b->up);
        for (int64_t k = 0; k < d->d_ff; k++) {
            const double limit = o->swiglu_limit, g = fmin((double)b->gate[k], limit);
            const double u = fmax(-limit, fmin((double)b->up[k], limit));
            float value = b->gate[k];
            attn_activate(&run->s->worker, o->act, &value, 1);
            act[k] = limit > 0 ? (float)((u + 1) * g / (1 + exp(-o->swiglu_alpha * g))) : value * b->up[k];
        }
        attn_inspect_linear(run, &w->expert_down[e], 1, act, NULL, b->row);
        for (int64_t k = 0; k < d->d_model; k++) {
            along += (double)d_out[k] * (double)b->row[k];
            b->row[k] = weights[i] * d_out[k];
        }
        d_weights[i] = (float)along;
        mean += (double)weights[i] * along;
        ATTN_TRY(attn_inspect_linear_back(run, &w->expert_down[e], 1, b->row, false, act));
        activation_backward(run, d->d_ff, act, b->gate, b->up);
        ATTN_TRY(attn_inspect_linear_back(run, &w->expert_gate[e], 1, b->gate, true, d_in));
        ATTN_TRY(attn_inspect_linear_back(run, &w->expert_up[e], 1, b->up, true, d_in));
    }
    for (int64_t i = 0; i < o->experts_per_token; i++) {
        const double d_logit = (double)weights[i] * ((double)d_weights[i] - mean);
        attn_linear_row(&w->router, chosen[i], b->row);
        for (int64_t k = 0; k < d->d_model; k++)
            d_in[k] += (float)(d_logit * (double)b->row[k]);
    }
    return ATTN_OK;
}

static attn_status mlp_backward(const attn_inspect_run *run, const attn_layer_weights *w, attn_backward *b, int64_t n,
                                const float *in, const float *d_out, float *d_in)
{
    const int64_t dm = run->model->d.d_model;
    if (!run->model->d.mlp.n_experts)
        return dense_backward(run, w, b, n, in, d_out, d_in);
    for (int64_t r = 0; r < n; r++)
        ATTN_TRY(mixture_row(run, w, b, in + r * dm, d_out + r * dm, d_in + r * dm));
    return ATTN_OK;
}

static void mlp_again(const attn_inspect_run *run, const attn_layer_weights *w, attn_backward *b, int64_t n, const float *in,
                      float *out)
{
    const attn_description *d = &run->model->d;
    attn_mlp_forward(&run->s->worker, &d->mlp, w, n, d->d_model, d->d_ff, in, NULL, out, b->scratch);
}

attn_status attn_backward_mlp(const attn_inspect_run *run, const attn_layer_weights *w, attn_backward *b, int64_t n,
                              const float *x)
{
    const attn_description *d = &run->model->d;
    const int64_t dm = d->d_model, size = n * dm;
    if (d->place == ATTN_NORM_POST) {
        mlp_again(run, w, b, n, x, b->normed);
        add(size, x, b->normed);
        memset(b->d_normed, 0, (size_t)size * sizeof(float));
        attn_inspect_norm_back(&d->norm, &w->norm2, n, dm, b->normed, b->dx, b->d_normed);
        ATTN_TRY(mlp_backward(run, w, b, n, x, b->d_normed, b->dx));
        add(size, b->d_normed, b->dx);
        return ATTN_OK;
    }
    const float *d_out = b->dx;
    norm_again(run, &w->norm2, n, x, b->normed);
    if (w->post2.weight) {
        mlp_again(run, w, b, n, b->normed, b->other);
        memset(b->d_other, 0, (size_t)size * sizeof(float));
        attn_inspect_norm_back(&d->norm, &w->post2, n, dm, b->other, b->dx, b->d_other);
        d_out = b->d_other;
    }
    ATTN_TRY(mlp_backward(run, w, b, n, b->normed, d_out, b->d_normed));
    attn_inspect_norm_back(&d->norm, &w->norm2, n, dm, x, b->d_normed, b->dx);
    return ATTN_OK;
}

/* ---- attention ---- */

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

attn_sdpa_args attn_backward_call(const attn_inspect_run *run, const attn_inspect_site *site, int64_t layer,
                                  const attn_backward *b)
{
    const attn_description *d = &run->model->d;
    const int64_t n = site->n_queries, keys = site->n_keys, dim = d->head_dim, kv_width = d->n_kv_heads * dim;
    attn_sdpa_args args = site->attention[layer];
    args.query = rows_view(b->queries, d->n_heads, n, dim);
    args.key = rows_view(site->keys + layer * keys * kv_width, d->n_kv_heads, keys, dim);
    args.value = attn_cview_of(site->values + layer * keys * kv_width, ATTN_F32, 1, d->n_kv_heads, keys, dim);
    args.out = writable(b->heads, d->n_heads, n, dim);
    args.lse = b->lse;
    return args;
}

static const float *entered(const attn_inspect_run *run, const attn_inspect_site *site, int64_t layer)
{
    return site->stream + layer * site->n_queries * run->model->d.d_model;
}

static const attn_norm *norm_in_front(const attn_inspect_site *site, int64_t layer)
{
    const attn_layer_weights *w = &site->stack->layers[layer];
    return site->cross ? &w->norm_cross : &w->norm1;
}

static const attn_attention_weights *weights_of(const attn_inspect_site *site, int64_t layer)
{
    const attn_layer_weights *w = &site->stack->layers[layer];
    return site->cross ? &w->cross : &w->self;
}

static attn_status rotate(const attn_inspect_run *run, const attn_inspect_site *site, int64_t layer, const attn_backward *b,
                          int64_t heads, bool back, float *x)
{
    attn_pass pass = {.s = run->s, .d = &run->model->d, .total = site->n_queries, .positions = b->positions};
    if (run->model->d.position != ATTN_POSITION_ROPE || site->cross)
        return ATTN_OK;
    const attn_status status = attn_pass_rotate(&pass, layer, heads, back, x);
    attn_pass_drop_tables(&pass);
    return status;
}

attn_status attn_backward_again(const attn_inspect_run *run, const attn_inspect_site *site, int64_t layer, attn_backward *b)
{
    const attn_description *d = &run->model->d;
    const attn_attention_weights *a = weights_of(site, layer);
    const int64_t n = site->n_queries, all = n * d->n_heads * d->head_dim;
    const float *in = entered(run, site, layer);
    if (d->place != ATTN_NORM_POST) {
        norm_again(run, norm_in_front(site, layer), n, in, b->normed);
        in = b->normed;
    }
    attn_inspect_linear(run, &a->q, n, in, NULL, b->queries);
    if (a->q_norm.weight)
        attn_norm_rows(&run->s->worker, &d->norm, &a->q_norm, all / a->q_norm_dim, a->q_norm_dim, b->queries, a->q_norm_dim,
                       b->queries, a->q_norm_dim);
    ATTN_TRY(rotate(run, site, layer, b, d->n_heads, false, b->queries));
    const attn_sdpa_args args = attn_backward_call(run, site, layer, b);
    const attn_status status = attn_sdpa_forward(run->s->ctx, &args, NULL, 0);
    return status == ATTN_OK ? ATTN_OK : attn_model_fail(status, "attention: %s", attn_ctx_error(run->s->ctx));
}

/* d_q, d_k and d_v of the operator's call of a layer, for d_heads. */
static attn_status operator_backward(const attn_inspect_run *run, const attn_inspect_site *site, int64_t layer,
                                     attn_backward *b)
{
    const attn_description *d = &run->model->d;
    const int64_t n = site->n_queries, keys = site->n_keys, dim = d->head_dim;
    const attn_sdpa_args args = attn_backward_call(run, site, layer, b);
    attn_sdpa_backward_args back;
    ATTN_ARGS_INIT(&back);
    back.forward = &args;
    back.d_out = rows_view(b->d_heads, d->n_heads, n, dim);
    back.d_query = writable(b->d_q, d->n_heads, n, dim);
    back.d_key = writable(b->d_k, d->n_kv_heads, keys, dim);
    back.d_value = writable(b->d_v, d->n_kv_heads, keys, dim);
    const attn_status status = attn_sdpa_backward(run->s->ctx, &back, NULL, 0);
    return status == ATTN_OK ? ATTN_OK : attn_model_fail(status, "attention: %s", attn_ctx_error(run->s->ctx));
}

/* Back through the norm over heads, where the family has one: x are the projections before it, of rows `in`. */
static attn_status head_norm_backward(const attn_inspect_run *run, const attn_norm *norm_of, int64_t dim,
                                      const attn_linear *l, int64_t n, const float *in, float *x, float *d)
{
    const int64_t size = n * l->w.n_out;
    if (!norm_of->weight)
        return ATTN_OK;
    float *from = malloc((size_t)size * sizeof *from);
    if (!from)
        return attn_inspect_no_memory();
    attn_inspect_linear(run, l, n, in, NULL, x);
    memcpy(from, d, (size_t)size * sizeof *from);
    memset(d, 0, (size_t)size * sizeof *d);
    attn_inspect_norm_back(&run->model->d.norm, norm_of, size / dim, dim, x, from, d);
    free(from);
    return ATTN_OK;
}

/* d_in = the gradient of the projections' input `in`; of cross attention keys and values add to d_encoder. */
static attn_status projections_backward(const attn_inspect_run *run, const attn_inspect_site *site, int64_t layer,
                                        attn_backward *b, const float *in, float *d_in)
{
    const attn_description *d = &run->model->d;
    const attn_attention_weights *a = weights_of(site, layer);
    const int64_t n = site->n_queries;
    ATTN_TRY(rotate(run, site, layer, b, d->n_heads, true, b->d_q));
    ATTN_TRY(rotate(run, site, layer, b, d->n_kv_heads, true, b->d_k));
    ATTN_TRY(head_norm_backward(run, &a->q_norm, a->q_norm_dim, &a->q, n, in, b->q, b->d_q));
    ATTN_TRY(attn_inspect_linear_back(run, &a->q, n, b->d_q, false, d_in));
    if (site->cross) {
        ATTN_TRY(attn_inspect_linear_back(run, &a->k, site->n_keys, b->d_k, true, b->d_encoder));
        return attn_inspect_linear_back(run, &a->v, site->n_keys, b->d_v, true, b->d_encoder);
    }
    ATTN_TRY(head_norm_backward(run, &a->k_norm, a->k_norm_dim, &a->k, n, in, b->q, b->d_k));
    ATTN_TRY(attn_inspect_linear_back(run, &a->k, n, b->d_k, true, d_in));
    return attn_inspect_linear_back(run, &a->v, n, b->d_v, true, d_in);
}

attn_status attn_backward_attention(const attn_inspect_run *run, const attn_inspect_site *site, int64_t layer,
                                    attn_backward *b)
{
    const attn_description *d = &run->model->d;
    const attn_layer_weights *w = &site->stack->layers[layer];
    const attn_norm *norm = norm_in_front(site, layer);
    const attn_linear *o = &weights_of(site, layer)->o;
    const int64_t n = site->n_queries, dm = d->d_model, size = n * dm;
    const float *x = entered(run, site, layer), *heads = b->heads;
    if (d->place == ATTN_NORM_POST) {
        attn_inspect_linear(run, o, n, heads, x, b->other);
        memset(b->d_other, 0, (size_t)size * sizeof(float));
        attn_inspect_norm_back(&d->norm, norm, n, dm, b->other, b->dx, b->d_other);
        ATTN_TRY(attn_inspect_linear_back(run, o, n, b->d_other, false, b->d_heads));
        ATTN_TRY(operator_backward(run, site, layer, b));
        ATTN_TRY(projections_backward(run, site, layer, b, x, b->dx));
        add(size, b->d_other, b->dx);
        return ATTN_OK;
    }
    const float *d_out = b->dx;
    if (w->post1.weight && !site->cross) {
        attn_inspect_linear(run, o, n, heads, NULL, b->other);
        memset(b->d_other, 0, (size_t)size * sizeof(float));
        attn_inspect_norm_back(&d->norm, &w->post1, n, dm, b->other, b->dx, b->d_other);
        d_out = b->d_other;
    }
    ATTN_TRY(attn_inspect_linear_back(run, o, n, d_out, false, b->d_heads));
    ATTN_TRY(operator_backward(run, site, layer, b));
    norm_again(run, norm, n, x, b->normed);
    ATTN_TRY(projections_backward(run, site, layer, b, b->normed, b->d_normed));
    attn_inspect_norm_back(&d->norm, norm, n, dm, x, b->d_normed, b->dx);
    return ATTN_OK;
}

void attn_backward_behind(const attn_inspect_run *run, const attn_inspect_site *site, int64_t layer, attn_backward *b,
                          float *x)
{
    const attn_layer_weights *w = &site->stack->layers[layer];
    const attn_linear *o = &weights_of(site, layer)->o;
    const int64_t n = site->n_queries;
    if (w->post1.weight && !site->cross) {
        attn_inspect_linear(run, o, n, b->heads, NULL, b->other);
        norm_again(run, &w->post1, n, b->other, x);
        add(n * run->model->d.d_model, entered(run, site, layer), x);
        return;
    }
    attn_inspect_linear(run, o, n, b->heads, entered(run, site, layer), x);
    if (run->model->d.place == ATTN_NORM_POST)
        norm_again(run, norm_in_front(site, layer), n, x, x);
}

attn_status attn_backward_parallel(const attn_inspect_run *run, const attn_inspect_site *site, int64_t layer,
                                   attn_backward *b)
{
    const attn_description *d = &run->model->d;
    const attn_layer_weights *w = &site->stack->layers[layer];
    const attn_norm *norm2 = w->norm2.weight ? &w->norm2 : &w->norm1; /* else both read norm1's output */
    const int64_t n = site->n_queries, dm = d->d_model;
    const float *x = entered(run, site, layer);
    memcpy(b->d_other, b->dx, (size_t)(n * dm) * sizeof(float));
    norm_again(run, norm2, n, x, b->normed);
    ATTN_TRY(mlp_backward(run, w, b, n, b->normed, b->d_other, b->d_normed));
    attn_inspect_norm_back(&d->norm, norm2, n, dm, x, b->d_normed, b->dx);
    ATTN_TRY(attn_inspect_linear_back(run, &w->self.o, n, b->d_other, false, b->d_heads));
    ATTN_TRY(operator_backward(run, site, layer, b));
    norm_again(run, &w->norm1, n, x, b->normed);
    ATTN_TRY(projections_backward(run, site, layer, b, b->normed, b->d_normed));
    attn_inspect_norm_back(&d->norm, &w->norm1, n, dm, x, b->d_normed, b->dx);
    return ATTN_OK;
}

/* ---- memory ---- */

int64_t attn_backward_directions(const attn_inspect_run *run)
{
    return run->out->outcome_kind == ATTN_OUTCOME_EMBEDDING ? ATTN_INSPECT_DIRECTIONS : 1;
}

static int64_t longest(const attn_inspect_run *run)
{
    return run->a.n_tokens > run->a.n_target ? run->a.n_tokens : run->a.n_target;
}

void attn_backward_turn(const attn_inspect_run *run, attn_backward *b, int64_t direction)
{
    const attn_description *d = &run->model->d;
    b->dx = b->all_dx + direction * longest(run) * d->d_model;
    b->d_heads = b->all_d_heads + direction * longest(run) * d->n_heads * d->head_dim;
}

/* Floats of all arrays, each from a 64-byte line on; memory, where not NULL, is handed out to them. */
static int64_t lay_out(const attn_inspect_run *run, attn_backward *b, float *memory)
{
    const attn_description *d = &run->model->d;
    const int64_t n = longest(run), directions = attn_backward_directions(run), width = d->n_heads * d->head_dim;
    const int64_t row = d->d_model > d->embedding_dim ? d->d_model : d->embedding_dim, size = n * d->d_model;
    const int64_t wide = (d->mlp.n_experts ? 1 : n) * d->d_ff, scratch = attn_mlp_scratch(&d->mlp, n, d->d_model, d->d_ff);
    const struct {
        float **to;
        int64_t n;
    } parts[] = {{&b->all_dx, directions * size}, {&b->all_d_heads, directions * n * width},
                 {&b->other, size},               {&b->d_other, size},
                 {&b->middle, size},              {&b->normed, size},
                 {&b->d_normed, size},            {&b->d_encoder, d->kind == ATTN_MODEL_ENCODER_DECODER ? size : 0},
                 {&b->row, row},                  {&b->gradient, row},
                 {&b->gate, wide},                {&b->up, wide},
                 {&b->d_wide, wide + d->mlp.n_experts},
                 {&b->queries, n * width},        {&b->heads, n * width},
                 {&b->d_q, n * width},            {&b->d_k, n * width},
                 {&b->d_v, n * width},            {&b->q, n * width},
                 {&b->lse, n * d->n_heads},       {&b->scratch, scratch}};
    int64_t all = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; all += (parts[i++].n + 15) / 16 * 16)
        if (memory)
            *parts[i].to = memory + all;
    return all;
}

int64_t attn_backward_bytes(const attn_inspect_run *run)
{
    attn_backward none;
    return lay_out(run, &none, NULL) * (int64_t)sizeof(float) + longest(run) * (int64_t)sizeof(int64_t);
}

attn_status attn_backward_start(const attn_inspect_run *run, attn_backward *b)
{
    const int64_t n = longest(run);
    memset(b, 0, sizeof *b);
    b->memory = aligned_alloc(64, (size_t)lay_out(run, b, NULL) * sizeof(float));
    b->positions = malloc((size_t)n * sizeof *b->positions);
    if (!b->memory || !b->positions)
        return attn_inspect_no_memory();
    lay_out(run, b, b->memory);
    attn_backward_turn(run, b, 0);
    for (int64_t i = 0; i < n; i++)
        b->positions[i] = i;
    return ATTN_OK;
}

void attn_backward_finish(attn_backward *b)
{
    free(b->memory);
    free(b->positions);
}
