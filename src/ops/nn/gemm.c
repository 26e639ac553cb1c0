/* gemm.c - blocking of the general product in f32 and sharing it among threads. */
#include <stdbool.h>
#include "core/half.h"
#include "ops/nn/gemm.h"

/* Rows of A that are packed at a time, and the slots behind each, so that rows do not fall into the same sets of the
 * first cache. */
#define ROW_BLOCK 48
#define ROW_GAP 16
/* The most that any level asks for, and the columns that a last panel is filled up with. */
#define MOST_SLOTS 384
#define MOST_B (384 * MOST_SLOTS)
#define MAX_TILE_COLUMNS 32

_Static_assert((ROW_BLOCK * (MOST_SLOTS + ROW_GAP) + MOST_B + MAX_TILE_COLUMNS * MOST_SLOTS) * sizeof(float) <=
                   ATTN_TEAM_SCRATCH,
               "packed blocks fit a worker's scratch");

typedef struct gemm_plan {
    const attn_gemm_args *args;
    const attn_team *team;
    const attn_gemm_kernels *kernels;
    int64_t depth;         /* numbers of k in one block */
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

static const attn_gemm_kernels *kernels_of(const attn_team *team)
{
    return team->products == ATTN_BF16 && team->pairs ? team->pairs : team->kernels->gemm;
}

/* Where bf16 products have no kernels: packed f32 numbers become the bf16 numbers next to them. */
static void round_packed(const attn_team *team, float *x, int64_t n)
{
    if (team->products != ATTN_BF16 || team->pairs)
        return;
    for (int64_t i = 0; i < n; i++)
        x[i] = attn_bf16_to_f32(attn_f32_to_bf16(x[i]));
}

int64_t attn_gemm_packed_floats(const attn_team *team, int64_t n, int64_t k)
{
    const attn_gemm_kernels *kernels = kernels_of(team);
    return ceil_div(n, kernels->nr) * kernels->nr * ceil_div(k, kernels->numbers);
}

/* Columns first .. first + count - 1 of B, k0 .. k0 + k - 1, into panels that are `step` slots apart. */
static void pack_columns(const attn_team *team, int32_t kind, const float *b, int64_t ldb, int64_t first, int64_t count,
                         int64_t k0, int64_t k, int64_t step, float *out)
{
    const attn_gemm_kernels *kernels = kernels_of(team);
    if (kind == ATTN_GEMM_NT)
        kernels->pack(b + first * ldb + k0, ldb, 1, count, k, kernels->nr, step, out);
    else
        kernels->pack(b + k0 * ldb + first, ldb, 0, count, k, kernels->nr, step, out);
    round_packed(team, out, ceil_div(count, kernels->nr) * step);
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
    const attn_gemm_kernels *kernels = kernels_of(p->team);
    const int64_t nr = kernels->nr, step = nr * ceil_div(p->k, kernels->numbers);
    (void)worker;
    pack_columns(p->team, p->kind, p->b, p->ldb, task * nr, smaller(nr, p->n - task * nr), 0, p->k, step,
                 p->packed + task * step);
}

void attn_gemm_pack(const attn_team *team, int32_t kind, int64_t n, int64_t k, const float *b, int64_t ldb, float *packed)
{
    pack_plan plan = {team, b, packed, n, k, ldb, kind};
    const int64_t tasks = ceil_div(n, kernels_of(team)->nr);
    attn_team_for(team, tasks, attn_team_workers(team, tasks, (double)n * (double)k), pack_task, &plan);
}

/* Rows row .. row + rows - 1 of A, k numbers from k0 on, packed; sets where a block finds them. */
static void pack_rows(const gemm_plan *plan, int64_t row, int64_t rows, int64_t k0, int64_t k, float *packed,
                      attn_gemm_block *block)
{
    const attn_gemm_args *g = plan->args;
    const attn_gemm_kernels *kernels = plan->kernels;
    const float *a = g->a;
    block->a = packed;
    if (g->kind == ATTN_GEMM_TN) {
        block->a_panel = kernels->mr * block->slots, block->a_row = 1, block->a_step = kernels->mr;
        kernels->pack(a + k0 * g->lda + row, g->lda, 0, rows, k, kernels->mr, block->a_panel, packed);
        round_packed(plan->team, packed, ceil_div(rows, kernels->mr) * block->a_panel);
    } else {
        block->a_row = block->slots + ROW_GAP, block->a_panel = kernels->mr * block->a_row, block->a_step = 1;
        kernels->rows(a + row * g->lda + k0, g->lda, rows, k, block->a_row, packed);
        for (int64_t r = 0; r < rows; r++)
            round_packed(plan->team, packed + r * block->a_row, k);
    }
}

/* What pack_columns or pack_rows will read: `count` rows or columns of a matrix (by_row: they lie along k). */
static attn_gemm_ahead region(const float *x, int64_t ld, bool by_row, int64_t first, int64_t count, int64_t k0,
                              int64_t k)
{
    const float *from = by_row ? x + first * ld + k0 : x + k0 * ld + first;
    const attn_gemm_ahead ahead = {.row = (const char *)from, .ld = ld * (int64_t)sizeof *x,
                                   .width = (by_row ? k : count) * (int64_t)sizeof *x,
                                   .rows = count <= 0 ? 0 : by_row ? count : k};
    return ahead;
}

/* The first rows: each panel of B is packed just before they meet it, while the next one is on its way from memory. */
static void first_rows(const gemm_plan *plan, int64_t column, int64_t k, int64_t depth, float *packed_b,
                       const attn_gemm_block *all)
{
    const attn_gemm_args *g = plan->args;
    const int64_t nr = plan->kernels->nr, columns = all->cols;
    attn_gemm_block block = *all;
    for (int64_t n = 0; n < columns; n += nr) {
        float *panel = packed_b + n / nr * block.b_panel;
        attn_gemm_ahead ahead =
            region(g->b, g->ldb, g->kind == ATTN_GEMM_NT, column + n + nr, smaller(nr, columns - n - nr), k, depth);
        block.cols = smaller(nr, columns - n);
        pack_columns(plan->team, g->kind, g->b, g->ldb, column + n, block.cols, k, depth, block.b_panel, panel);
        block.b = panel, block.c = all->c + n, block.bias = all->bias ? all->bias + n : NULL, block.ahead = &ahead;
        plan->kernels->block(&block);
    }
}

static void gemm_task(void *arg, int64_t task, int32_t worker)
{
    const gemm_plan *plan = arg;
    const attn_gemm_args *g = plan->args;
    const attn_gemm_kernels *kernels = plan->kernels;
    const int64_t column = task % plan->column_tasks * plan->columns, row = task / plan->column_tasks * plan->rows;
    const int64_t columns = smaller(plan->columns, g->n - column), rows = smaller(plan->rows, g->m - row);
    float *packed_a = attn_team_scratch(plan->team, worker), *packed_b = packed_a + ROW_BLOCK * (MOST_SLOTS + ROW_GAP);
    attn_gemm_block block = {.cols = columns, .ldc = g->ldc};
    for (int64_t k = 0; k < g->k; k += plan->depth) {
        const int64_t depth = smaller(plan->depth, g->k - k);
        block.slots = ceil_div(depth, kernels->numbers);
        block.resume = k > 0 || g->accumulate;
        block.bias = g->bias && k + depth == g->k ? (const float *)g->bias + column : NULL;
        block.b = packed_b, block.b_panel = kernels->nr * block.slots;
        if (g->packed) {
            block.b_panel = kernels->nr * ceil_div(g->k, kernels->numbers);
            block.b = g->packed + column / kernels->nr * block.b_panel + k / kernels->numbers * kernels->nr;
        }
        for (int64_t m = 0; m < rows; m += ROW_BLOCK) {
            attn_gemm_ahead ahead = region(g->a, g->lda, g->kind != ATTN_GEMM_TN, row + m + ROW_BLOCK,
                                           smaller(ROW_BLOCK, rows - m - ROW_BLOCK), k, depth);
            block.rows = smaller(ROW_BLOCK, rows - m);
            block.c = (float *)g->c + (row + m) * g->ldc + column;
            block.ahead = &ahead;
            pack_rows(plan, row + m, block.rows, k, depth, packed_a, &block);
            if (m == 0 && !g->packed)
                first_rows(plan, column, k, depth, packed_b, &block);
            else
                kernels->block(&block);
        }
    }
}

/* k in equal blocks, columns in equal groups of whole tiles that stay in the second cache with them; rows are cut
 * only where columns do not give every thread its share. */
static void share(gemm_plan *plan, int32_t workers)
{
    const attn_gemm_args *g = plan->args;
    const attn_gemm_kernels *kernels = plan->kernels;
    const int64_t nr = kernels->nr, slots = ceil_div(g->k, kernels->numbers);
    const int64_t block_slots = ceil_div(slots, ceil_div(slots, kernels->block_slots));
    const int64_t most = (int64_t)kernels->block_columns * kernels->block_slots / block_slots / nr * nr;
    const int64_t wanted = workers <= 1 ? 1 : 4 * (int64_t)workers, row_blocks = ceil_div(g->m, ROW_BLOCK);
    int64_t groups = ceil_div(g->n, most);
    const int64_t row_parts = smaller(ceil_div(wanted, groups), ceil_div(row_blocks, 2));
    if (groups * row_parts < wanted)
        groups = smaller(ceil_div(wanted, row_parts), ceil_div(g->n, 4 * nr));
    groups = groups < ceil_div(g->n, most) ? ceil_div(g->n, most) : groups;
    plan->depth = block_slots * kernels->numbers;
    plan->columns = ceil_div(ceil_div(g->n, groups), nr) * nr;
    plan->rows = ceil_div(row_blocks, row_parts) * ROW_BLOCK;
    plan->column_tasks = ceil_div(g->n, plan->columns);
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
    gemm_plan plan = {.args = args, .team = team, .kernels = kernels_of(team)};
    const double operations = (double)args->m * (double)args->n * (double)args->k / 8;
    const int32_t workers = attn_team_workers(team, INT32_MAX, operations);
    share(&plan, workers);
    attn_team_for(team, plan.column_tasks * ceil_div(args->m, plan.rows), workers, gemm_task, &plan);
}
