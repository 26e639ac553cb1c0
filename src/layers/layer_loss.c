/* layer_loss.c - softmax cross-entropy of the output projection, a chunk of rows at a time. */
#include <math.h>
#include <string.h>
#include "layers/layer_parts.h"

/* Logits that exist at once, and the rows that a chunk has at least. */
#define CHUNK_BYTES ((int64_t)32 << 20)
#define CHUNK_ROWS 64

typedef struct loss_run {
    const attn_team *team;
    const attn_cross_entropy_args *a;
    int64_t first;      /* row of the chunk */
    const void *logits; /* [rows of the chunk, vocab] */
    int64_t ld;
    void *d_logits;     /* NULL: not wanted; may be logits */
    int64_t ld_d;
    double scale;       /* of gradients */
    double *loss;       /* [rows of the chunk] */
    int32_t *correct;
} loss_run;

/* The lowest index of the largest number is the target. */
static int32_t is_correct_f32(const float *x, int64_t n, int64_t target, float largest)
{
    if (!(x[target] == largest))
        return 0;
    for (int64_t i = 0; i < n && i < target; i++)
        if (x[i] == largest)
            return 0;
    return 1;
}

static void row_f32(const loss_run *run, int64_t r, int64_t target)
{
    const attn_nn_kernels *kernels = run->team->kernels;
    const int64_t n = run->a->vocab;
    const float *x = (const float *)run->logits + r * run->ld;
    const double s = run->a->label_smoothing, uniform = s / (double)n;
    const float largest = kernels->row_max(x, n), at_target = x[target];
    const double sum = kernels->exp_sum(x, n, largest);
    double mean = 0;
    if (s > 0) {
        for (int64_t i = 0; i < n; i++)
            mean += (double)x[i];
        mean /= (double)n;
    }
    run->loss[r] = (double)largest + log(sum) - (1 - s) * (double)at_target - (s > 0 ? s * mean : 0);
    run->correct[r] = is_correct_f32(x, n, target, largest);
    if (!run->d_logits)
        return;
    float *d = (float *)run->d_logits + r * run->ld_d;
    if (d != x)
        memcpy(d, x, (size_t)n * sizeof *d);
    kernels->softmax_row(d, n, largest, (float)(run->scale / sum), (float)(-uniform * run->scale));
    /* the target's own again, so that 1 - p keeps its digits where p is near 1 */
    d[target] = (float)((exp((double)at_target - (double)largest) / sum - uniform - (1 - s)) * run->scale);
}

static void row_f64(const loss_run *run, int64_t r, int64_t target)
{
    const int64_t n = run->a->vocab;
    const double *x = (const double *)run->logits + r * run->ld;
    const double s = run->a->label_smoothing, uniform = s / (double)n, at_target = x[target];
    double largest = x[0], sum = 0, mean = 0;
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > largest)
            largest = x[i], best = i;
    for (int64_t i = 0; i < n; i++) {
        sum += exp(x[i] - largest);
        mean += x[i] / (double)n;
    }
    run->loss[r] = largest + log(sum) - (1 - s) * at_target - (s > 0 ? s * mean : 0);
    run->correct[r] = best == target && at_target == largest;
    if (!run->d_logits)
        return;
    double *d = (double *)run->d_logits + r * run->ld_d;
    for (int64_t i = 0; i < n; i++)
        d[i] = (exp(x[i] - largest) / sum - uniform - (i == target ? 1 - s : 0)) * run->scale;
}

static void row_task(void *arg, int64_t r, int32_t worker)
{
    const loss_run *run = arg;
    const int32_t target = run->a->targets[run->first + r];
    (void)worker;
    if (target == run->a->ignore_index) {
        run->loss[r] = 0;
        run->correct[r] = 0;
        if (run->d_logits)
            memset(attn_at(run->d_logits, run->a->dtype, r * run->ld_d), 0,
                   (size_t)run->a->vocab * (run->a->dtype == ATTN_F64 ? 8 : 4));
    } else if (run->a->dtype == ATTN_F64) {
        row_f64(run, r, target);
    } else {
        row_f32(run, r, target);
    }
}

static attn_status check(attn_layers *layers, attn_cross_entropy_args *a, const attn_cross_entropy_args *args)
{
    ATTN_TRY(attn_layers_args(layers, a, sizeof *a, args, "args"));
    ATTN_TRY(attn_layers_dtype(layers, a->dtype));
    ATTN_TRY(attn_layers_size(layers, a->rows, "args.rows"));
    ATTN_TRY(attn_layers_width(layers, a->vocab, "args.vocab"));
    ATTN_TRY(attn_layers_width(layers, a->d_model, "args.d_model"));
    ATTN_LAYERS_REQUIRE(layers, a->weight || a->d_model == a->vocab,
                        "args.d_model is %lld and vocab %lld: without weight x holds logits", (long long)a->d_model,
                        (long long)a->vocab);
    ATTN_LAYERS_REQUIRE(layers, a->weight || !a->bias, "args.bias is given without args.weight");
    ATTN_TRY(attn_layers_stride(layers, &a->ldx, a->d_model, "args.ldx"));
    ATTN_TRY(attn_layers_pointer(layers, a->x, a->rows, "args.x"));
    ATTN_TRY(attn_layers_pointer(layers, a->targets, a->rows, "args.targets"));
    ATTN_TRY(attn_layers_probability(layers, a->label_smoothing, "args.label_smoothing"));
    ATTN_LAYERS_REQUIRE(layers, isfinite(a->gradient_scale), "args.gradient_scale is %g", a->gradient_scale);
    for (int64_t r = 0; r < a->rows; r++)
        ATTN_LAYERS_REQUIRE(layers, a->targets[r] == a->ignore_index || (a->targets[r] >= 0 && a->targets[r] < a->vocab),
                            "args.targets[%lld] is %d, vocab is %lld and ignore_index %d", (long long)r, a->targets[r],
                            (long long)a->vocab, a->ignore_index);
    return ATTN_OK;
}

/* Gradients of x, weight and bias from those of a chunk's logits. */
static void project_back(attn_layers *layers, const attn_cross_entropy_args *a, const attn_cross_entropy_gradients *g,
                         int64_t first, int64_t rows, const void *d_logits)
{
    const attn_linear_args linear = {.dtype = a->dtype, .rows = rows, .n_in = a->d_model, .n_out = a->vocab,
                                     .x = attn_at(a->x, a->dtype, first * a->ldx), .ldx = a->ldx, .weight = a->weight};
    const attn_linear_gradients back = {.flags = g->flags, .d_y = d_logits, .ld_dy = a->vocab,
                                        .d_x = g->d_x ? attn_at(g->d_x, a->dtype, first * g->ld_dx) : NULL,
                                        .ld_dx = g->ld_dx, .weight = g->weight, .bias = g->bias};
    attn_linear_run_backward(layers, &linear, &back);
}

static attn_status run_chunks(attn_layers *layers, const attn_cross_entropy_args *a,
                              const attn_cross_entropy_gradients *g, double scale, double *loss, int32_t *correct)
{
    const int64_t size = a->dtype == ATTN_F64 ? 8 : 4;
    int64_t chunk = CHUNK_BYTES / (a->vocab * size) / 16 * 16;
    chunk = chunk < CHUNK_ROWS ? CHUNK_ROWS : chunk;
    chunk = chunk > a->rows ? a->rows : chunk;
    void *scratch = NULL;
    /* logits that came as x have room of their own unless their gradient replaces or ignores what was there */
    const bool own = a->weight || (g && (g->flags & ATTN_GRAD_ACCUMULATE));
    if (own)
        ATTN_TRY(attn_layers_scratch(layers, chunk * a->vocab, a->dtype, &scratch));
    for (int64_t first = 0; first < a->rows; first += chunk) {
        const int64_t rows = a->rows - first < chunk ? a->rows - first : chunk;
        loss_run run = {.team = &layers->team, .a = a, .first = first, .logits = attn_at(a->x, a->dtype, first * a->ldx),
                        .ld = a->ldx, .scale = scale, .loss = loss + first, .correct = correct + first};
        if (a->weight) {
            const attn_linear_args linear = {.dtype = a->dtype, .rows = rows, .n_in = a->d_model, .n_out = a->vocab,
                                             .x = run.logits, .ldx = a->ldx, .weight = a->weight, .bias = a->bias,
                                             .y = scratch, .ldy = a->vocab};
            attn_linear_run_forward(layers, &linear);
            run.logits = scratch, run.ld = a->vocab;
        }
        if (g) {
            run.d_logits = own ? scratch : g->d_x ? attn_at(g->d_x, a->dtype, first * g->ld_dx) : NULL;
            run.ld_d = own ? a->vocab : g->ld_dx;
        }
        attn_team_for(&layers->team, rows, attn_team_workers(&layers->team, rows, 8 * (double)rows * (double)a->vocab),
                      row_task, &run);
        if (g && a->weight)
            project_back(layers, a, g, first, rows, scratch);
        else if (g && own && g->d_x)
            attn_rows_add(&layers->team, a->dtype, rows, a->vocab, scratch, a->vocab,
                          attn_at(g->d_x, a->dtype, first * g->ld_dx), g->ld_dx);
    }
    return ATTN_OK;
}

static attn_status cross_entropy(attn_layers *layers, const attn_cross_entropy_args *args,
                                 const attn_cross_entropy_gradients *gradients)
{
    attn_cross_entropy_args a;
    attn_cross_entropy_gradients g;
    void *loss = NULL, *correct = NULL;
    ATTN_TRY(check(layers, &a, args));
    if (gradients) {
        ATTN_TRY(attn_layers_args(layers, &g, sizeof g, gradients, "gradients"));
        ATTN_TRY(attn_layers_flags(layers, g.flags, ATTN_GRAD_ACCUMULATE, "gradients.flags"));
        ATTN_TRY(attn_layers_stride(layers, &g.ld_dx, a.d_model, "gradients.ld_dx"));
        ATTN_LAYERS_REQUIRE(layers, a.weight || !g.weight, "gradients.weight is given without args.weight");
        ATTN_LAYERS_REQUIRE(layers, a.bias || !g.bias, "gradients.bias is given without args.bias");
    }
    ATTN_TRY(attn_layers_scratch(layers, a.rows, ATTN_F64, &loss));
    ATTN_TRY(attn_layers_scratch(layers, a.rows, ATTN_F32, &correct));
    int64_t counted = 0, right = 0;
    double sum = 0;
    for (int64_t r = 0; r < a.rows; r++)
        counted += a.targets[r] != a.ignore_index;
    const double scale = a.gradient_scale != 0 ? a.gradient_scale : counted ? 1 / (double)counted : 0;
    ATTN_TRY(run_chunks(layers, &a, gradients ? &g : NULL, scale, loss, correct));
    for (int64_t r = 0; r < a.rows; r++) {
        sum += ((double *)loss)[r];
        right += ((int32_t *)correct)[r];
    }
    if (a.loss)
        *a.loss = sum;
    if (a.n_counted)
        *a.n_counted = counted;
    if (a.n_correct)
        *a.n_correct = right;
    if (a.row_loss)
        memcpy(a.row_loss, loss, (size_t)a.rows * sizeof(double));
    return ATTN_OK;
}

attn_status attn_cross_entropy(attn_layers *layers, const attn_cross_entropy_args *args,
                               const attn_cross_entropy_gradients *gradients)
{
    return ATTN_LAYERS_CALL(layers, cross_entropy(layers, args, gradients));
}
