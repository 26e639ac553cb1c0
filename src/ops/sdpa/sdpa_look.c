/* sdpa_look.c - what attention read: weights of chosen rows, top-k keys, key mass and row statistics. One row of scores at a
 * time (seq_kv doubles per worker), so memory stays linear; weights are exp(score - lse). */
#include "ops/sdpa/look_row.h"
#include "core/view.h"

#define LL(x) ((long long)(x))

typedef struct look_job {
    const attn_problem *p;
    const attn_row *rows; /* NULL: every row */
    int64_t n_rows, k;
    double *scratch; /* attn_look_scratch(p) doubles per worker */
    const attn_view *weights;
    int64_t *indices;
    float *top;
    attn_row_stat *stats;
    const attn_view *mass;
    double *partial; /* key mass: one array of seq_kv doubles per part */
    int64_t head, n_parts;
} look_job;

static attn_row row_of(const look_job *job, int64_t r)
{
    const attn_problem *p = job->p;
    if (job->rows)
        return job->rows[r];
    attn_row row = {r / p->seq_q / p->n_heads, r / p->seq_q % p->n_heads, r % p->seq_q};
    return row;
}

static void rows_task(void *arg, int64_t task, int32_t worker)
{
    const look_job *job = arg;
    const attn_view *w = job->weights;
    attn_row row = row_of(job, task);
    attn_looked looked = attn_look_row(job->p, &row, job->scratch + worker * attn_look_scratch(job->p));
    for (int64_t j = 0; j < job->p->seq_kv; j++) {
        bool inside = j >= looked.first && j < looked.first + looked.count;
        attn_store_element(w->data, w->dtype, task * w->stride[2] + j * w->stride[3],
                           inside ? looked.weight[j - looked.first] : 0);
    }
}

/* True when (weight a, key i) goes before (weight b, key j): larger first, NaN last, then the lower key. */
static bool goes_before(float a, int64_t i, float b, int64_t j)
{
    bool a_nan = a != a, b_nan = b != b;
    if (a_nan != b_nan)
        return b_nan;
    if (!a_nan && a != b)
        return a > b;
    return i < j;
}

/* Heap of the best k so far, its worst on top. */
static void sift_down(float *w, int64_t *key, int64_t n, int64_t at)
{
    for (;;) {
        int64_t worst = at;
        for (int64_t child = 2 * at + 1; child <= 2 * at + 2 && child < n; child++)
            if (goes_before(w[worst], key[worst], w[child], key[child]))
                worst = child;
        if (worst == at)
            return;
        float weight = w[at];
        int64_t index = key[at];
        w[at] = w[worst], key[at] = key[worst];
        w[worst] = weight, key[worst] = index;
        at = worst;
    }
}

static void topk_task(void *arg, int64_t task, int32_t worker)
{
    const look_job *job = arg;
    int64_t k = job->k, n = 0;
    float *w = job->top + task * k;
    int64_t *key = job->indices + task * k;
    attn_row row = row_of(job, task);
    attn_looked looked = attn_look_row(job->p, &row, job->scratch + worker * attn_look_scratch(job->p));
    for (int64_t j = 0; j < looked.count && k > 0; j++) {
        float weight = (float)looked.weight[j];
        if (looked.excluded[j])
            continue;
        if (n < k) {
            w[n] = weight;
            key[n++] = looked.first + j;
            if (n == k)
                for (int64_t at = k / 2; at >= 0; at--)
                    sift_down(w, key, k, at);
        } else if (goes_before(weight, looked.first + j, w[0], key[0])) {
            w[0] = weight;
            key[0] = looked.first + j;
            sift_down(w, key, k, 0);
        }
    }
    if (n < k)
        for (int64_t at = n / 2; at >= 0 && n > 0; at--)
            sift_down(w, key, n, at);
    for (int64_t last = n - 1; last > 0; last--) { /* heap sort: the worst goes to the end */
        float weight = w[0];
        int64_t index = key[0];
        w[0] = w[last], key[0] = key[last];
        w[last] = weight, key[last] = index;
        sift_down(w, key, last, 0);
    }
    for (; n < k; n++) {
        w[n] = 0;
        key[n] = -1;
    }
}

static void stats_task(void *arg, int64_t task, int32_t worker)
{
    const look_job *job = arg;
    attn_row row = row_of(job, task);
    attn_looked looked = attn_look_row(job->p, &row, job->scratch + worker * attn_look_scratch(job->p));
    attn_row_stat s = {0, 0, 0, -1, 0};
    double far = 0;
    for (int64_t j = 0; j < looked.count; j++) {
        double w = looked.weight[j];
        if (looked.excluded[j])
            continue;
        if (s.max_key < 0 || w > s.max_weight) {
            s.max_weight = w;
            s.max_key = looked.first + j;
        }
        s.key_weight += w;
        s.entropy -= w > 0 ? w * log(w) : w; /* 0 ln 0 = 0; NaN stays NaN */
        far += w * fabs((double)(looked.position - j));
    }
    s.mean_distance = s.key_weight == 0 ? 0 : far / s.key_weight;
    job->stats[task] = s;
}

/* A fixed share of the query rows of one head, summed in ascending order: the parts depend on the shape alone. */
static void mass_task(void *arg, int64_t part, int32_t worker)
{
    const look_job *job = arg;
    const attn_problem *p = job->p;
    double *sum = job->partial + part * p->seq_kv;
    int64_t begin = p->seq_q * part / job->n_parts, end = p->seq_q * (part + 1) / job->n_parts;
    for (int64_t j = 0; j < p->seq_kv; j++)
        sum[j] = 0;
    for (int64_t i = begin; i < end; i++) {
        attn_row row = {job->head / p->n_heads, job->head % p->n_heads, i};
        attn_looked looked = attn_look_row(p, &row, job->scratch + worker * attn_look_scratch(p));
        for (int64_t j = 0; j < looked.count; j++)
            sum[looked.first + j] += looked.weight[j];
    }
}

static attn_status check_rows(attn_ctx *ctx, const attn_problem *p, const attn_row *rows, int64_t n_rows)
{
    int64_t all = p->batch * p->n_heads * p->seq_q;
    ATTN_REQUIRE(ctx, n_rows >= 0, "n_rows is %lld, must be 0 or more", LL(n_rows));
    ATTN_REQUIRE(ctx, rows || n_rows == all, "n_rows is %lld: with rows NULL it must be every row, %lld", LL(n_rows), LL(all));
    for (int64_t r = 0; rows && r < n_rows; r++) {
        ATTN_REQUIRE(ctx, rows[r].batch >= 0 && rows[r].batch < p->batch, "rows[%lld].batch is %lld, must be 0..%lld", LL(r),
                     LL(rows[r].batch), LL(p->batch - 1));
        ATTN_REQUIRE(ctx, rows[r].head >= 0 && rows[r].head < p->n_heads, "rows[%lld].head is %lld, must be 0..%lld", LL(r),
                     LL(rows[r].head), LL(p->n_heads - 1));
        ATTN_REQUIRE(ctx, rows[r].query >= 0 && rows[r].query < p->seq_q, "rows[%lld].query is %lld, must be 0..%lld", LL(r),
                     LL(rows[r].query), LL(p->seq_q - 1));
    }
    return ATTN_OK;
}

/* Scratch for the workers, `extra` doubles behind it. */
static attn_status take_scratch(attn_ctx *ctx, const attn_problem *p, int32_t n_workers, int64_t extra, double **scratch)
{
    void *memory;
    size_t each, all, bytes;
    if (!attn_add_size((size_t)attn_look_scratch(p), 0, &each) || !attn_mul_size(each, (size_t)n_workers, &all) ||
        !attn_add_size(all, (size_t)extra, &all) || !attn_mul_size(all, sizeof(double), &bytes))
        return attn_fail(ctx, ATTN_ERR_OUT_OF_MEMORY, "seq_kv is %lld: scratch overflows", LL(p->seq_kv));
    ATTN_TRY(attn_ctx_workspace(ctx, NULL, 0, bytes + ATTN_ALIGNMENT, &memory));
    *scratch = memory;
    return ATTN_OK;
}

static attn_status run_rows(attn_ctx *ctx, look_job *job, attn_task_fn task)
{
    const attn_problem *p = job->p;
    double work = (double)job->n_rows * (double)p->seq_kv * (double)(p->head_dim + 16);
    int32_t n_workers = attn_ctx_workers(ctx, job->n_rows, work);
    ATTN_TRY(take_scratch(ctx, p, n_workers, 0, &job->scratch));
    attn_ctx_for(ctx, job->n_rows, n_workers, task, job);
    return ATTN_OK;
}

attn_status attn_sdpa_rows(attn_ctx *ctx, const attn_sdpa_args *args, const attn_row *rows, int64_t n_rows,
                           const attn_view *weights)
{
    attn_problem p;
    ATTN_TRY(attn_sdpa_validate(ctx, args, ATTN_NEED_DATA, &p));
    ATTN_TRY(check_rows(ctx, &p, rows, n_rows));
    ATTN_REQUIRE(ctx, weights, "weights is NULL");
    ATTN_REQUIRE(ctx, weights->dtype == ATTN_F32 || weights->dtype == ATTN_F64, "weights.dtype is %s, must be f32 or f64",
                 attn_dtype_name(weights->dtype));
    ATTN_REQUIRE(ctx, weights->shape[0] == 1 && weights->shape[1] == 1 && weights->shape[2] == n_rows && weights->shape[3] == p.seq_kv,
                 "weights.shape is [%lld, %lld, %lld, %lld], must be [1, 1, n_rows %lld, seq_kv %lld]", LL(weights->shape[0]),
                 LL(weights->shape[1]), LL(weights->shape[2]), LL(weights->shape[3]), LL(n_rows), LL(p.seq_kv));
    ATTN_REQUIRE(ctx, weights->data || n_rows == 0 || p.seq_kv == 0, "weights.data is NULL");
    look_job job = {.p = &p, .rows = rows, .n_rows = n_rows, .weights = weights};
    return run_rows(ctx, &job, rows_task);
}

attn_status attn_sdpa_topk(attn_ctx *ctx, const attn_sdpa_args *args, const attn_row *rows, int64_t n_rows, int64_t k,
                           int64_t *indices, float *weights)
{
    attn_problem p;
    ATTN_TRY(attn_sdpa_validate(ctx, args, ATTN_NEED_DATA, &p));
    ATTN_TRY(check_rows(ctx, &p, rows, n_rows));
    ATTN_REQUIRE(ctx, k >= 0, "k is %lld, must be 0 or more", LL(k));
    ATTN_REQUIRE(ctx, n_rows == 0 || k <= INT64_MAX / 8 / n_rows, "k is %lld with n_rows %lld: too large", LL(k), LL(n_rows));
    ATTN_REQUIRE(ctx, (indices && weights) || n_rows == 0 || k == 0, "indices or weights is NULL");
    look_job job = {.p = &p, .rows = rows, .n_rows = n_rows, .k = k, .indices = indices, .top = weights};
    return run_rows(ctx, &job, topk_task);
}

attn_status attn_sdpa_row_stats(attn_ctx *ctx, const attn_sdpa_args *args, const attn_row *rows, int64_t n_rows,
                                attn_row_stat *stats)
{
    attn_problem p;
    ATTN_TRY(attn_sdpa_validate(ctx, args, ATTN_NEED_DATA, &p));
    ATTN_TRY(check_rows(ctx, &p, rows, n_rows));
    ATTN_REQUIRE(ctx, stats || n_rows == 0, "stats is NULL");
    look_job job = {.p = &p, .rows = rows, .n_rows = n_rows, .stats = stats};
    return run_rows(ctx, &job, stats_task);
}

/* Parts of a head's rows in key mass: enough for threads to share one long head, few enough to stay linear. */
#define MASS_ROWS 256
#define MASS_PARTS 8

attn_status attn_sdpa_key_mass(attn_ctx *ctx, const attn_sdpa_args *args, const attn_view *mass)
{
    attn_problem p;
    ATTN_TRY(attn_sdpa_validate(ctx, args, ATTN_NEED_DATA, &p));
    ATTN_REQUIRE(ctx, mass, "mass is NULL");
    ATTN_REQUIRE(ctx, mass->dtype == ATTN_F32 || mass->dtype == ATTN_F64, "mass.dtype is %s, must be f32 or f64",
                 attn_dtype_name(mass->dtype));
    ATTN_REQUIRE(ctx, mass->shape[0] == p.batch && mass->shape[1] == p.n_heads && mass->shape[2] == p.seq_kv && mass->shape[3] == 1,
                 "mass.shape is [%lld, %lld, %lld, %lld], must be [batch %lld, n_heads %lld, seq_kv %lld, 1]", LL(mass->shape[0]),
                 LL(mass->shape[1]), LL(mass->shape[2]), LL(mass->shape[3]), LL(p.batch), LL(p.n_heads), LL(p.seq_kv));
    int64_t heads = p.batch * p.n_heads;
    ATTN_REQUIRE(ctx, mass->data || heads == 0 || p.seq_kv == 0, "mass.data is NULL");
    int64_t n_parts = (p.seq_q + MASS_ROWS - 1) / MASS_ROWS;
    n_parts = n_parts < 1 ? 1 : n_parts > MASS_PARTS ? MASS_PARTS : n_parts;
    double work = (double)p.seq_q * (double)p.seq_kv * (double)(p.head_dim + 16);
    int32_t n_workers = attn_ctx_workers(ctx, n_parts, work);
    look_job job = {.p = &p, .n_parts = n_parts, .mass = mass};
    ATTN_TRY(take_scratch(ctx, &p, n_workers, n_parts * p.seq_kv, &job.scratch));
    job.partial = job.scratch + n_workers * attn_look_scratch(&p);
    for (job.head = 0; job.head < heads; job.head++) {
        attn_ctx_for(ctx, n_parts, n_workers, mass_task, &job);
        int64_t b = job.head / p.n_heads, h = job.head % p.n_heads;
        for (int64_t j = 0; j < p.seq_kv; j++) {
            double sum = 0;
            for (int64_t part = 0; part < n_parts; part++)
                sum += job.partial[part * p.seq_kv + j];
            attn_store_element(mass->data, mass->dtype, attn_offset(mass->stride, b, h, j, 0), sum);
        }
    }
    return ATTN_OK;
}
