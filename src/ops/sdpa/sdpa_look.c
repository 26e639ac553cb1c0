/* sdpa_look.c - what attention read: weights of chosen rows, top-k keys, key mass and row statistics. Blocks of rows meet blocks
 * of keys in double (kernels/sdpa/wide.h), and what is kept of a block of weights is all that differs; memory does not grow with
 * the number of keys. */
#include "ops/sdpa/validate.h"
#include "kernels/sdpa/wide.h"
#include "core/view.h"

#define LL(x) ((long long)(x))

struct look_block;

typedef struct look_job {
    const attn_problem *p;
    const attn_wide_kernels *kernels;
    const attn_row *rows; /* NULL: every row */
    int64_t n_rows, k;
    int64_t slice; /* of chosen rows: how many a task takes, at most ATTN_WIDE_ROWS */
    double *scratch; /* scratch_count doubles per worker */
    int64_t scratch_count;
    const attn_view *weights;
    int64_t *indices;
    float *top;
    attn_row_stat *stats;
    const attn_view *mass;
    double *partial; /* key mass: one array of seq_kv doubles per part */
    int64_t head, n_parts;
    /* results of rows first .. first + count - 1 before and after their weights are visited */
    void (*begin)(const struct look_job *job, int64_t first, int64_t count);
    attn_wide_visit visit;
    void (*finish)(const struct look_block *block, int64_t first, int64_t count); /* NULL: nothing left to do */
} look_job;

/* A block of rows at work: its results are those of rows first .. first + rows.count - 1 of the call. */
typedef struct look_block {
    const look_job *job;
    int64_t first;
    int64_t found[ATTN_WIDE_ROWS]; /* topk: keys in the heap of each row */
    double far[ATTN_WIDE_ROWS];    /* stats: sum_j w_ij |p_i - j| */
    double *mass;                  /* key mass: where weights are added */
} look_block;

/* ---- Blocks of rows ------------------------------------------------------------------------------ */

/* Queries q .. q + count - 1 (whole query axis) of one head that belong to one entry; false: they belong to none. */
static bool look_rows(const attn_problem *p, int64_t b, int64_t h, int64_t q, int64_t count, attn_wide_rows *rows)
{
    int64_t i;
    if (!attn_entry_of_query(p, b, q, &rows->entry, &i)) {
        rows->count = 1;
        return false;
    }
    int64_t left = rows->entry.q_count - i;
    rows->kv_head = h / p->group;
    rows->head = h;
    rows->stack = 1;
    rows->begin = i;
    rows->count = left < count ? left : count;
    return true;
}

/* Rows whose |lse| is above this compute their own: the rounding of the one given, |lse| 2^-24 (f64: 2^-53) of every weight, would
 * show. */
static double exact_lse(const attn_problem *p)
{
    return p->lse_dtype == ATTN_F64 ? 0x1p20 : 1024;
}

/* lse and rest (attn_ref_row) of the rows, the first of which is query q of the whole axis: as given where that is exact enough,
 * or where it is not the rows' own (rows merged from several key sets carry the lse of all of them). */
static void find_lse(const look_job *job, const attn_wide_rows *rows, int64_t q, double *lse, double *rest, double *scratch)
{
    const attn_problem *p = job->p;
    int64_t first = (rows->entry.batch * p->n_heads + rows->head) * p->seq_q + q;
    double given[ATTN_WIDE_ROWS];
    bool exact = p->a.lse != NULL;
    for (int64_t r = 0; r < rows->count && p->a.lse; r++) {
        given[r] = lse[r] = attn_load_element(p->a.lse, p->lse_dtype, first + r);
        rest[r] = 0;
        exact &= !(fabs(given[r]) > exact_lse(p)) || isinf(given[r]);
    }
    if (exact)
        return;
    job->kernels->row_lse(p, rows, lse, rest, scratch);
    for (int64_t r = 0; r < rows->count && p->a.lse; r++)
        if (!(fabs(given[r]) > exact_lse(p)) || !attn_lse_is_own(p, lse[r] + rest[r], given[r])) {
            lse[r] = given[r];
            rest[r] = 0;
        }
}

/* Visits the weights of queries q .. q + count - 1, at most ATTN_WIDE_ROWS of one head; results go to rows `first` and on. */
static void look(look_block *block, int64_t b, int64_t h, int64_t q, int64_t count, double *scratch)
{
    const look_job *job = block->job;
    const attn_problem *p = job->p;
    while (count > 0) {
        attn_wide_rows rows;
        double lse[ATTN_WIDE_ROWS], rest[ATTN_WIDE_ROWS];
        if (look_rows(p, b, h, q, count, &rows)) {
            find_lse(job, &rows, q, lse, rest, scratch);
            job->kernels->weights(p, &rows, lse, rest, job->visit, block, scratch);
        }
        block->first += rows.count;
        q += rows.count;
        count -= rows.count;
    }
}

static int64_t blocks_per_head(const attn_problem *p)
{
    return (p->seq_q + ATTN_WIDE_ROWS - 1) / ATTN_WIDE_ROWS;
}

/* Chosen rows first .. end - 1: those that follow each other in one head share a block. */
static void look_chosen(look_block *block, int64_t end, double *scratch)
{
    const attn_row *rows = block->job->rows;
    while (block->first < end) {
        const attn_row *row = rows + block->first;
        int64_t count = 1;
        while (block->first + count < end && row[count].batch == row->batch && row[count].head == row->head &&
               row[count].query == row->query + count)
            count++;
        look(block, row->batch, row->head, row->query, count, scratch);
    }
}

/* A slice of chosen rows, or a block of rows where every row is wanted. */
static void look_task(void *arg, int64_t task, int32_t worker)
{
    const look_job *job = arg;
    const attn_problem *p = job->p;
    double *scratch = job->scratch + worker * job->scratch_count;
    look_block block = {.job = job};
    int64_t count, first;
    if (job->rows) {
        block.first = first = task * job->slice;
        count = job->n_rows - first < job->slice ? job->n_rows - first : job->slice;
        job->begin(job, first, count);
        look_chosen(&block, first + count, scratch);
    } else {
        int64_t head = task / blocks_per_head(p), query = task % blocks_per_head(p) * ATTN_WIDE_ROWS;
        count = p->seq_q - query < ATTN_WIDE_ROWS ? p->seq_q - query : ATTN_WIDE_ROWS;
        block.first = first = head * p->seq_q + query;
        job->begin(job, first, count);
        look(&block, head / p->n_heads, head % p->n_heads, query, count, scratch);
    }
    if (job->finish)
        job->finish(&block, first, count);
}

/* ---- Weights of rows ----------------------------------------------------------------------------- */

static void begin_rows(const look_job *job, int64_t first, int64_t count)
{
    const attn_view *w = job->weights;
    int64_t size = (int64_t)attn_dtype_size(w->dtype), n = job->p->seq_kv;
    for (int64_t row = first; row < first + count; row++) {
        char *to = (char *)w->data + row * w->stride[2] * size;
        if (w->stride[3] == 1)
            memset(to, 0, (size_t)(n * size));
        for (int64_t j = 0; w->stride[3] != 1 && j < n; j++)
            memset(to + j * w->stride[3] * size, 0, (size_t)size);
    }
}

static void visit_rows(void *user, const attn_wide_rows *rows, const attn_wide_block *b)
{
    const look_block *block = user;
    const attn_view *w = block->job->weights;
    for (int64_t r = 0; r < rows->count; r++) {
        int64_t at = (block->first + r) * w->stride[2] + (rows->entry.k_begin + b->first) * w->stride[3];
        const double *weight = b->weight + r * ATTN_WIDE_KEYS;
        for (int64_t j = b->low[r]; j < b->high[r]; j++)
            if (w->dtype == ATTN_F32)
                ((float *)w->data)[at + j * w->stride[3]] = (float)weight[j];
            else
                ((double *)w->data)[at + j * w->stride[3]] = weight[j];
    }
}

/* ---- Top-k --------------------------------------------------------------------------------------- */

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

/* A row's heap while keys come in ascending order; a heap only once it holds k. */
static void push(float *w, int64_t *key, int64_t k, int64_t *n, float weight, int64_t at)
{
    if (*n < k) {
        w[*n] = weight;
        key[(*n)++] = at;
        for (int64_t top = *n == k ? k / 2 : -1; top >= 0; top--)
            sift_down(w, key, k, top);
    } else if (goes_before(weight, at, w[0], key[0])) {
        w[0] = weight;
        key[0] = at;
        sift_down(w, key, k, 0);
    }
}

/* Rows are -1 and 0 until a key is found: a short row is left with them at its end. */
static void begin_topk(const look_job *job, int64_t first, int64_t count)
{
    for (int64_t n = first * job->k; n < (first + count) * job->k; n++) {
        job->top[n] = 0;
        job->indices[n] = -1;
    }
}

static void visit_topk(void *user, const attn_wide_rows *rows, const attn_wide_block *b)
{
    look_block *block = user;
    const look_job *job = block->job;
    for (int64_t r = 0; r < rows->count && job->k > 0; r++) {
        int64_t row = block->first + r, *n = &block->found[row % ATTN_WIDE_ROWS];
        for (int64_t j = b->low[r]; j < b->high[r]; j++)
            if (!b->excluded[r * ATTN_WIDE_KEYS + j])
                push(job->top + row * job->k, job->indices + row * job->k, job->k, n, (float)b->weight[r * ATTN_WIDE_KEYS + j],
                     rows->entry.k_begin + b->first + j);
    }
}

/* Heap sort: the worst goes to the end. */
static void sort_row(float *w, int64_t *key, int64_t k)
{
    int64_t n = 0;
    while (n < k && key[n] >= 0)
        n++;
    for (int64_t at = n / 2; at >= 0 && n > 0; at--)
        sift_down(w, key, n, at);
    for (int64_t last = n - 1; last > 0; last--) {
        float weight = w[0];
        int64_t index = key[0];
        w[0] = w[last], key[0] = key[last];
        w[last] = weight, key[last] = index;
        sift_down(w, key, last, 0);
    }
}

static void finish_topk(const look_block *block, int64_t first, int64_t count)
{
    int64_t k = block->job->k;
    for (int64_t row = first; row < first + count; row++)
        sort_row(block->job->top + row * k, block->job->indices + row * k, k);
}

/* ---- Statistics ---------------------------------------------------------------------------------- */

static void begin_stats(const look_job *job, int64_t first, int64_t count)
{
    for (int64_t row = first; row < first + count; row++)
        job->stats[row] = (attn_row_stat){0, 0, 0, -1, 0};
}

static void visit_stats(void *user, const attn_wide_rows *rows, const attn_wide_block *b)
{
    look_block *block = user;
    for (int64_t r = 0; r < rows->count; r++) {
        int64_t row = block->first + r, position = rows->begin + r + rows->entry.q_offset - b->first;
        attn_row_stat *s = &block->job->stats[row];
        double *far = &block->far[row % ATTN_WIDE_ROWS];
        for (int64_t j = b->low[r]; j < b->high[r]; j++) {
            double w = b->weight[r * ATTN_WIDE_KEYS + j];
            if (b->excluded[r * ATTN_WIDE_KEYS + j])
                continue;
            if (s->max_key < 0 || w > s->max_weight) {
                s->max_weight = w;
                s->max_key = rows->entry.k_begin + b->first + j;
            }
            s->key_weight += w;
            s->entropy -= w > 0 ? w * log(w) : w; /* 0 ln 0 = 0; NaN stays NaN */
            *far += w * fabs((double)(position - j));
        }
    }
}

static void finish_stats(const look_block *block, int64_t first, int64_t count)
{
    for (int64_t row = first; row < first + count; row++) {
        attn_row_stat *s = &block->job->stats[row];
        s->mean_distance = s->key_weight == 0 ? 0 : block->far[row % ATTN_WIDE_ROWS] / s->key_weight;
    }
}

/* ---- Key mass ------------------------------------------------------------------------------------ */

static void visit_mass(void *user, const attn_wide_rows *rows, const attn_wide_block *b)
{
    const look_block *block = user;
    double *mass = block->mass + rows->entry.k_begin + b->first;
    for (int64_t r = 0; r < rows->count; r++)
        for (int64_t j = b->low[r]; j < b->high[r]; j++)
            mass[j] += b->weight[r * ATTN_WIDE_KEYS + j];
}

/* A fixed share of the query rows of one head, summed in ascending order: the parts depend on the shape alone. */
static void mass_task(void *arg, int64_t part, int32_t worker)
{
    const look_job *job = arg;
    const attn_problem *p = job->p;
    int64_t begin = p->seq_q * part / job->n_parts, end = p->seq_q * (part + 1) / job->n_parts;
    look_block block = {.job = job, .mass = job->partial + part * p->seq_kv};
    for (int64_t j = 0; j < p->seq_kv; j++)
        block.mass[j] = 0;
    for (int64_t i = begin; i < end; i += ATTN_WIDE_ROWS)
        look(&block, job->head / p->n_heads, job->head % p->n_heads, i, end - i < ATTN_WIDE_ROWS ? end - i : ATTN_WIDE_ROWS,
             job->scratch + worker * job->scratch_count);
}

/* ---- The calls ------------------------------------------------------------------------------------ */

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
static attn_status take_scratch(attn_ctx *ctx, look_job *job, int32_t n_workers, int64_t extra)
{
    void *memory;
    size_t all, bytes;
    job->kernels = attn_wide_kernels_at(ctx->isa);
    job->scratch_count = attn_wide_scratch(job->p);
    if (!attn_mul_size((size_t)job->scratch_count, (size_t)n_workers, &all) || !attn_add_size(all, (size_t)extra, &all) ||
        !attn_mul_size(all, sizeof(double), &bytes) || bytes > SIZE_MAX - ATTN_ALIGNMENT)
        return attn_fail(ctx, ATTN_ERR_OUT_OF_MEMORY, "seq_kv is %lld: scratch overflows", LL(job->p->seq_kv));
    ATTN_TRY(attn_ctx_workspace(ctx, NULL, 0, bytes + ATTN_ALIGNMENT, &memory));
    job->scratch = memory;
    return ATTN_OK;
}

static attn_status run_rows(attn_ctx *ctx, look_job *job)
{
    const attn_problem *p = job->p;
    double work = (double)job->n_rows * (double)p->seq_kv * (double)(p->head_dim + 16);
    int64_t n_tasks = job->rows ? job->n_rows : p->batch * p->n_heads * blocks_per_head(p);
    int32_t n_workers = attn_ctx_workers(ctx, n_tasks, work);
    if (job->rows) { /* two slices for each worker, so that one who is late can be helped */
        const int64_t slice = job->n_rows / (2 * n_workers);
        job->slice = slice < 1 ? 1 : slice > ATTN_WIDE_ROWS ? ATTN_WIDE_ROWS : slice;
        n_tasks = (job->n_rows + job->slice - 1) / job->slice;
    }
    ATTN_TRY(take_scratch(ctx, job, n_workers, 0));
    attn_ctx_for(ctx, n_tasks, n_workers, look_task, job);
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
    look_job job = {.p = &p, .rows = rows, .n_rows = n_rows, .weights = weights, .begin = begin_rows, .visit = visit_rows};
    return run_rows(ctx, &job);
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
    look_job job = {.p = &p, .rows = rows, .n_rows = n_rows, .k = k, .indices = indices, .top = weights,
                    .begin = begin_topk, .visit = visit_topk, .finish = finish_topk};
    return run_rows(ctx, &job);
}

attn_status attn_sdpa_row_stats(attn_ctx *ctx, const attn_sdpa_args *args, const attn_row *rows, int64_t n_rows,
                                attn_row_stat *stats)
{
    attn_problem p;
    ATTN_TRY(attn_sdpa_validate(ctx, args, ATTN_NEED_DATA, &p));
    ATTN_TRY(check_rows(ctx, &p, rows, n_rows));
    ATTN_REQUIRE(ctx, stats || n_rows == 0, "stats is NULL");
    look_job job = {.p = &p, .rows = rows, .n_rows = n_rows, .stats = stats, .begin = begin_stats, .visit = visit_stats,
                    .finish = finish_stats};
    return run_rows(ctx, &job);
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
    look_job job = {.p = &p, .n_parts = n_parts, .mass = mass, .visit = visit_mass};
    ATTN_TRY(take_scratch(ctx, &job, n_workers, n_parts * p.seq_kv));
    job.partial = job.scratch + n_workers * job.scratch_count;
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
