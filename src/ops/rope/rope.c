/* rope.c - rotary position embedding and its published rescalings. Frequencies and angles are double; each pair is
 * rotated in double and rounded once. */
#include "core/context.h"
#include "core/view.h"

#include <math.h>

#define LL(x) ((long long)(x))
#define PI 3.14159265358979323846

typedef struct rope_job {
    attn_rope_args a;
    int64_t n_pairs;
    double amplitude;        /* cos and sin are multiplied by it (YaRN) */
    const double *frequency; /* [n_pairs] */
    double *tables;          /* per worker: cos [n_pairs], sin [n_pairs] */
} rope_job;

/* Dimension (of `dim`) whose wavelength fits `rotations` times into the original length (Peng et al. 2023, eq. 17). */
static double yarn_dimension(double rotations, double dim, double base, double original)
{
    return dim * log(original / (rotations * 2 * PI)) / (2 * log(base));
}

static void yarn_frequencies(const attn_rope_args *a, double dim, double *frequency, int64_t n)
{
    double low = yarn_dimension(a->beta_fast, dim, a->base, (double)a->original_length);
    double high = yarn_dimension(a->beta_slow, dim, a->base, (double)a->original_length);
    if (!(a->flags & ATTN_ROPE_YARN_EXACT)) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, dim - 1);
    if (low == high)
        high += 0.001; /* as published: no division by zero */
    for (int64_t m = 0; m < n; m++) {
        double ramp = fmin(fmax(((double)m - low) / (high - low), 0), 1);
        frequency[m] = frequency[m] / a->factor * ramp + frequency[m] * (1 - ramp);
    }
}

static void llama3_frequencies(const attn_rope_args *a, double *frequency, int64_t n)
{
    double original = (double)a->original_length;
    for (int64_t m = 0; m < n; m++) {
        double wavelength = 2 * PI / frequency[m], fits = original / wavelength;
        if (fits < a->low_freq_factor) {
            frequency[m] /= a->factor;
        } else if (fits <= a->high_freq_factor) {
            double smooth = (fits - a->low_freq_factor) / (a->high_freq_factor - a->low_freq_factor);
            frequency[m] = (1 - smooth) * frequency[m] / a->factor + smooth * frequency[m];
        }
    }
}

static void fill_frequencies(const rope_job *job, double *frequency)
{
    const attn_rope_args *a = &job->a;
    double dim = (double)(2 * job->n_pairs), base = a->base;
    if (a->scaling == ATTN_ROPE_NTK)
        base *= pow(a->factor, dim / (dim - 2));
    for (int64_t m = 0; m < job->n_pairs; m++)
        frequency[m] = pow(base, -2 * (double)m / dim);
    if (a->scaling == ATTN_ROPE_LINEAR)
        for (int64_t m = 0; m < job->n_pairs; m++)
            frequency[m] /= a->factor;
    if (a->scaling == ATTN_ROPE_LLAMA3)
        llama3_frequencies(a, frequency, job->n_pairs);
    if (a->scaling == ATTN_ROPE_YARN)
        yarn_frequencies(a, dim, frequency, job->n_pairs);
}

static int64_t position_of(const attn_rope_args *a, int64_t b, int64_t s)
{
    return a->positions ? a->positions[b * a->positions_stride + s] : a->position_offset + s;
}

static void fill_tables(const rope_job *job, int64_t position, double *cosine, double *sine)
{
    const attn_rope_args *a = &job->a;
    double direction = a->flags & ATTN_ROPE_INVERSE ? -1 : 1;
    for (int64_t m = 0; m < job->n_pairs; m++) {
        if (a->cos_table) {
            cosine[m] = (double)a->cos_table[position * job->n_pairs + m];
            sine[m] = direction * (double)a->sin_table[position * job->n_pairs + m];
        } else {
            double angle = (double)position * job->frequency[m];
            cosine[m] = job->amplitude * cos(angle);
            sine[m] = direction * job->amplitude * sin(angle);
        }
    }
}

static void rotate_f32(float *out, const float *x, const double *cosine, const double *sine, int64_t n, int64_t step,
                       int64_t apart)
{
    for (int64_t m = 0; m < n; m++) {
        double a = (double)x[m * step], b = (double)x[m * step + apart];
        out[m * step] = (float)(a * cosine[m] - b * sine[m]);
        out[m * step + apart] = (float)(a * sine[m] + b * cosine[m]);
    }
}

static void rotate_any(const rope_job *job, int64_t from, int64_t to, const double *cosine, const double *sine, int64_t step,
                       int64_t apart)
{
    const attn_cview *x = &job->a.x;
    const attn_view *out = &job->a.out;
    for (int64_t m = 0; m < job->n_pairs; m++) {
        double a = attn_load_element(x->data, x->dtype, from + m * step * x->stride[3]);
        double b = attn_load_element(x->data, x->dtype, from + (m * step + apart) * x->stride[3]);
        attn_store_element(out->data, out->dtype, to + m * step * out->stride[3], a * cosine[m] - b * sine[m]);
        attn_store_element(out->data, out->dtype, to + (m * step + apart) * out->stride[3], a * sine[m] + b * cosine[m]);
    }
}

/* One sequence position of one batch entry: the same angles for all heads. */
static void rope_task(void *arg, int64_t task, int32_t worker)
{
    const rope_job *job = arg;
    const attn_cview *x = &job->a.x;
    const attn_view *out = &job->a.out;
    int64_t b = task / x->shape[2], s = task % x->shape[2];
    double *cosine = job->tables + 2 * worker * job->n_pairs, *sine = cosine + job->n_pairs;
    bool interleaved = job->a.flags & ATTN_ROPE_INTERLEAVED, in_place = x->data == out->data;
    int64_t step = interleaved ? 2 : 1, apart = interleaved ? 1 : job->n_pairs;
    fill_tables(job, position_of(&job->a, b, s), cosine, sine);
    for (int64_t h = 0; h < x->shape[1]; h++) {
        int64_t from = attn_offset(x->stride, b, h, s, 0), to = attn_offset(out->stride, b, h, s, 0);
        if (x->dtype == ATTN_F32 && x->stride[3] == 1 && out->stride[3] == 1)
            rotate_f32((float *)out->data + to, (const float *)x->data + from, cosine, sine, job->n_pairs, step, apart);
        else
            rotate_any(job, from, to, cosine, sine, step, apart);
        for (int64_t d = 2 * job->n_pairs; d < x->shape[3] && !in_place; d++)
            attn_store_element(out->data, out->dtype, to + d * out->stride[3],
                               attn_load_element(x->data, x->dtype, from + d * x->stride[3]));
    }
}

static attn_status check_arrays(attn_ctx *ctx, attn_rope_args *a)
{
    attn_cview out = attn_view_const(&a->out);
    int64_t count;
    uintptr_t first, last;
    if (a->x.dtype != ATTN_F32 && a->x.dtype != ATTN_F64 && a->x.dtype != ATTN_BF16 && a->x.dtype != ATTN_F16)
        return attn_fail(ctx, ATTN_ERR_UNSUPPORTED, "x.dtype is %s: no kernel", attn_dtype_name(a->x.dtype));
    ATTN_REQUIRE(ctx, out.dtype == a->x.dtype, "out.dtype is %s, x.dtype is %s", attn_dtype_name(out.dtype),
                 attn_dtype_name(a->x.dtype));
    for (int n = 0; n < 4; n++) {
        ATTN_REQUIRE(ctx, a->x.shape[n] >= 0, "x.shape[%d] is %lld", n, LL(a->x.shape[n]));
        ATTN_REQUIRE(ctx, out.shape[n] == a->x.shape[n], "out.shape[%d] is %lld, x's is %lld", n, LL(out.shape[n]),
                     LL(a->x.shape[n]));
    }
    ATTN_REQUIRE(ctx, attn_shape_count(a->x.shape, &count) && attn_view_extent(&a->x, &first, &last) &&
                          attn_view_extent(&out, &first, &last),
                 "x or out has shape and strides whose extent overflows");
    ATTN_REQUIRE(ctx, count == 0 || (a->x.data && out.data), "x.data or out.data is NULL");
    bool same = a->x.data == out.data && !memcmp(a->x.stride, out.stride, sizeof out.stride);
    ATTN_REQUIRE(ctx, same || !attn_views_overlap(&a->x, &out), "out overlaps x without being x itself");
    return ATTN_OK;
}

static attn_status check_numbers(attn_ctx *ctx, attn_rope_args *a)
{
    if (a->flags & ~(uint64_t)(ATTN_ROPE_INTERLEAVED | ATTN_ROPE_INVERSE | ATTN_ROPE_YARN_EXACT))
        return attn_fail(ctx, ATTN_ERR_UNSUPPORTED, "flags is 0x%llx, unknown bits", (unsigned long long)a->flags);
    if (a->scaling < ATTN_ROPE_PLAIN || a->scaling > ATTN_ROPE_YARN)
        return attn_fail(ctx, ATTN_ERR_UNSUPPORTED, "scaling is %d, unknown", a->scaling);
    if (a->rotary_dim == 0)
        a->rotary_dim = a->x.shape[3];
    ATTN_REQUIRE(ctx, a->rotary_dim >= 0 && a->rotary_dim <= a->x.shape[3] && a->rotary_dim % 2 == 0,
                 "rotary_dim is %lld, must be even and at most head_dim, %lld", LL(a->rotary_dim), LL(a->x.shape[3]));
    if (a->base == 0)
        a->base = 10000;
    ATTN_REQUIRE(ctx, isfinite(a->base) && a->base > 0, "base is %g, must be positive", a->base);
    ATTN_REQUIRE(ctx, a->scaling == ATTN_ROPE_PLAIN || (isfinite(a->factor) && a->factor >= 1), "factor is %g, must be 1 or more",
                 a->factor);
    ATTN_REQUIRE(ctx, a->scaling != ATTN_ROPE_NTK || a->rotary_dim > 2, "rotary_dim is %lld, NTK needs more than 2",
                 LL(a->rotary_dim));
    ATTN_REQUIRE(ctx, a->scaling < ATTN_ROPE_LLAMA3 || a->original_length > 0, "original_length is %lld, must be positive",
                 LL(a->original_length));
    if (a->low_freq_factor == 0)
        a->low_freq_factor = 1;
    if (a->high_freq_factor == 0)
        a->high_freq_factor = 4;
    ATTN_REQUIRE(ctx, a->scaling != ATTN_ROPE_LLAMA3 || (a->low_freq_factor > 0 && a->high_freq_factor > a->low_freq_factor),
                 "high_freq_factor is %g, must be above low_freq_factor, %g", a->high_freq_factor, a->low_freq_factor);
    if (a->beta_fast == 0)
        a->beta_fast = 32;
    if (a->beta_slow == 0)
        a->beta_slow = 1;
    ATTN_REQUIRE(ctx, a->scaling != ATTN_ROPE_YARN || (a->beta_fast > 0 && a->beta_slow > 0 && a->base != 1),
                 "beta_fast is %g and beta_slow %g, must be positive (and base not 1)", a->beta_fast, a->beta_slow);
    if (a->attention_factor == 0)
        a->attention_factor = a->scaling == ATTN_ROPE_YARN ? 0.1 * log(a->factor) + 1 : 1;
    ATTN_REQUIRE(ctx, isfinite(a->attention_factor), "attention_factor is %g, must be finite", a->attention_factor);
    return ATTN_OK;
}

static attn_status check_positions(attn_ctx *ctx, const attn_rope_args *a)
{
    ATTN_REQUIRE(ctx, !a->cos_table == !a->sin_table, "cos_table or sin_table is NULL, both or neither");
    ATTN_REQUIRE(ctx, a->positions_stride >= 0, "positions_stride is %lld", LL(a->positions_stride));
    if (!a->cos_table)
        return ATTN_OK;
    for (int64_t b = 0; b < a->x.shape[0]; b++)
        for (int64_t s = 0; s < a->x.shape[2]; s++) {
            int64_t position = position_of(a, b, s);
            ATTN_REQUIRE(ctx, position >= 0 && position < a->table_rows, "position %lld (batch %lld, index %lld) is outside table_rows, %lld",
                         LL(position), LL(b), LL(s), LL(a->table_rows));
        }
    return ATTN_OK;
}

attn_status attn_rope(attn_ctx *ctx, const attn_rope_args *args)
{
    rope_job job;
    void *memory;
    if (!ctx)
        return ATTN_ERR_INVALID_ARGUMENT;
    ctx->error[0] = 0;
    ATTN_TRY(attn_args_copy(ctx, &job.a, sizeof job.a, args, "args"));
    ATTN_TRY(check_arrays(ctx, &job.a));
    ATTN_TRY(check_numbers(ctx, &job.a));
    ATTN_TRY(check_positions(ctx, &job.a));
    job.n_pairs = job.a.rotary_dim / 2;
    job.amplitude = job.a.scaling == ATTN_ROPE_YARN ? job.a.attention_factor : 1;
    int64_t n_tasks = job.a.x.shape[0] * job.a.x.shape[2];
    double work = (double)n_tasks * (double)(job.n_pairs * (30 + 4 * job.a.x.shape[1]));
    int32_t workers = attn_ctx_workers(ctx, n_tasks, work);
    size_t doubles = (size_t)job.n_pairs * (size_t)(1 + 2 * workers) + 1;
    ATTN_TRY(attn_ctx_workspace(ctx, NULL, 0, doubles * sizeof(double), &memory));
    double *frequency = memory;
    fill_frequencies(&job, frequency);
    job.frequency = frequency;
    job.tables = frequency + job.n_pairs;
    attn_ctx_for(ctx, n_tasks, workers, rope_task, &job);
    return ATTN_OK;
}
