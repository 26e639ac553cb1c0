/* gemm.c - blocking of the general product in f32 and sharing it among threads. */
#include "ops/nn/gemm.h"

/* A task packs its columns of B, up to K_SLICE deep, once (L3), and 96 rows of A at a time, K_BLOCK deep (L2). */
#define ROW_BLOCK 96
#define K_BLOCK 256
#define K_SLICE 1024
#define MAX_COLUMNS 704
#define MAX_TILE_COLUMNS 32
/* With so few columns, rows of A are not read often enough for packing them to pay. */
#define PLAIN_COLUMNS 256

_Static_assert((ROW_BLOCK * K_BLOCK + (MAX_COLUMNS + MAX_TILE_COLUMNS) * K_SLICE) * sizeof(float) <= ATTN_TEAM_SCRATCH,
               "packed blocks fit a worker's scratch");

typedef struct gemm_plan {
    const attn_gemm_args *args;
    const attn_team *team;
    int64_t columns, rows; /* of one task */
    int64_t column_tasks;
} gemm_plan;

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t attn_gemm_packed_floats(const attn_team *team, int64_t n, int64_t k)
{
    const int64_t nr = team->kernels->gemm_nr;
    return ceil_div(n, nr) * nr * k;
}

/* Columns first .. first + count - 1 of B, k0 .. k0 + k - 1, into panels that are `step` floats apart. */
static void pack_columns(const attn_nn_kernels *kernels, int32_t kind, const float *b, int64_t ldb, int64_t first,
                         int64_t count, int64_t k0, int64_t k, int64_t step, float *out)
{
    if (kind == ATTN_GEMM_NT)
        kernels->gemm_pack(b + first * ldb + k0, ldb, 1, count, k, kernels->gemm_nr, step, out);
    else
        kernels->gemm_pack(b + k0 * ldb + first, ldb, 0, count, k, kernels->gemm_nr, step, out);
}

typedef struct pack_plan {
    const attn_team *team;
    const float *b;
    float *packed;
    int64_t n, k, ldb;
    int32_t kind;
} pack_plan;

static void pack_task(void *arg, int64_t task, int32_t worker)
{
    const pack_plan *p = arg;
    const int64_t nr = p->team->kernels->gemm_nr;
    (void)worker;
    pack_columns(p->team->kernels, p->kind, p->b, p->ldb, task * nr, smaller(nr, p->n - task * nr), 0, p->k, nr * p->k,
                 p->packed + task * nr * p->k);
}

void attn_gemm_pack(const attn_team *team, int32_t kind, int64_t n, int64_t k, const float *b, int64_t ldb, float *packed)
{
    pack_plan plan = {team, b, packed, n, k, ldb, kind};
    const int64_t tasks = ceil_div(n, team->kernels->gemm_nr);
    attn_team_for(team, tasks, attn_team_workers(team, tasks, (double)n * (double)k), pack_task, &plan);
}

/* Rows of one block, all columns of the task, over one slice of k. */
static void row_block(const gemm_plan *plan, int64_t row, int64_t rows, int64_t column, int64_t columns, int64_t k0,
                      int64_t depth, const float *b, int64_t b_step, float *packed_a)
{
    const attn_gemm_args *g = plan->args;
    const attn_nn_kernels *kernels = plan->team->kernels;
    const int64_t mr = kernels->gemm_mr;
    attn_gemm_block block = {.rows = rows, .cols = columns, .b_panel = b_step, .ldc = g->ldc,
                             .c = (float *)g->c + row * g->ldc + column};
    for (int64_t k = k0; k < k0 + depth; k += K_BLOCK) {
        block.k = smaller(K_BLOCK, k0 + depth - k);
        const float *a = (const float *)g->a + (g->kind == ATTN_GEMM_TN ? k * g->lda + row : row * g->lda + k);
        if (g->kind != ATTN_GEMM_TN && columns <= PLAIN_COLUMNS) {
            block.a = a, block.a_panel = mr * g->lda, block.a_row = g->lda, block.a_step = 1;
        } else {
            kernels->gemm_pack(a, g->lda, g->kind != ATTN_GEMM_TN, rows, block.k, mr, mr * block.k, packed_a);
            block.a = packed_a, block.a_panel = mr * block.k, block.a_row = 1, block.a_step = mr;
        }
        block.b = b + (k - k0) * kernels->gemm_nr;
        block.resume = k > 0 || g->accumulate;
        block.bias = g->bias && k + block.k == g->k ? (const float *)g->bias + column : NULL;
        kernels->gemm_block(&block);
    }
}

static void gemm_task(void *arg, int64_t task, int32_t worker)
{
    const gemm_plan *plan = arg;
    const attn_gemm_args *g = plan->args;
    const attn_nn_kernels *kernels = plan->team->kernels;
    const int64_t nr = kernels->gemm_nr;
    const int64_t column = task % plan->column_tasks * plan->columns, row = task / plan->column_tasks * plan->rows;
    const int64_t columns = smaller(plan->columns, g->n - column), rows = smaller(plan->rows, g->m - row);
    float *packed_a = attn_team_scratch(plan->team, worker), *packed_b = packed_a + ROW_BLOCK * K_BLOCK;
    for (int64_t k = 0; k < g->k; k += K_SLICE) {
        const int64_t depth = smaller(K_SLICE, g->k - k);
        const float *b = packed_b;
        int64_t b_step = nr * depth;
        if (g->packed) {
            b = g->packed + column * g->k + k * nr;
            b_step = nr * g->k;
        } else {
            pack_columns(kernels, g->kind, g->b, g->ldb, column, columns, k, depth, b_step, packed_b);
        }
        for (int64_t m = 0; m < rows; m += ROW_BLOCK)
            row_block(plan, row + m, smaller(ROW_BLOCK, rows - m), column, columns, k, depth, b, b_step, packed_a);
    }
}

/* An empty sum: 0, or C as it is, and the bias. */
static void no_product(const attn_gemm_args *g)
{
    const float *bias = g->bias;
    float *c = g->c;
    for (int64_t m = 0; m < g->m; m++)
        for (int64_t n = 0; n < g->n; n++)
            c[m * g->ldc + n] = (g->accumulate ? c[m * g->ldc + n] : 0.0f) + (bias ? bias[n] : 0.0f);
}

void attn_gemm(const attn_team *team, const attn_gemm_args *args)
{
    if (args->m <= 0 || args->n <= 0)
        return;
    if (args->dtype == ATTN_F64) {
        attn_gemm_f64(team, args);
        return;
    }
    if (args->k <= 0) {
        no_product(args);
        return;
    }
    gemm_plan plan = {.args = args, .team = team};
    const int64_t nr = team->kernels->gemm_nr;
    const double operations = (double)args->m * (double)args->n * (double)args->k / 8;
    const int32_t workers = attn_team_workers(team, INT32_MAX, operations);
    /* columns in equal groups of whole tiles; rows are cut only where columns do not give every thread its share */
    const int64_t wanted = workers <= 1 ? 1 : 4 * (int64_t)workers;
    int64_t groups = ceil_div(args->n, MAX_COLUMNS);
    const int64_t row_blocks = ceil_div(args->m, ROW_BLOCK);
    int64_t row_parts = smaller(ceil_div(wanted, groups), ceil_div(row_blocks, 2));
    if (groups * row_parts < wanted)
        groups = smaller(ceil_div(wanted, row_parts), ceil_div(args->n, 4 * nr));
    groups = groups < ceil_div(args->n, MAX_COLUMNS) ? ceil_div(args->n, MAX_COLUMNS) : groups;
    plan.columns = ceil_div(ceil_div(args->n, groups), nr) * nr;
    plan.rows = ceil_div(row_blocks, row_parts) * ROW_BLOCK;
    plan.column_tasks = ceil_div(args->n, plan.columns);
    const int64_t tasks = plan.column_tasks * ceil_div(args->m, plan.rows);
    attn_team_for(team, tasks, workers, gemm_task, &plan);
}
