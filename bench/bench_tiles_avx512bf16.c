/* bench_tiles_avx512bf16 [--json] [ROUNDS] - the register tiles of the backward pass in bf16 alone, on the blocks that it meets,
 * against the loop of independent dot products of bf16 pairs. As bench_tiles.inc: a round times every tile and the loop once, the
 * best of the rounds counts. */
#include "bench_tiles.h"
#include "kernels/sdpa/bwd_fast.h"

#if ATTN_HAVE_AVX512BF16
#define ISA bench_avx512bf16
#define ATTN_TARGET ATTN_TARGET_AVX512BF16
#define BWD_ROWS 12
#define BWD_VECTORS 2
#define BWD_PAIRS
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx512.h"
#include "kernels/simd/pairs_avx512bf16.h"
#include "kernels/sdpa/bwd_product.inc"

enum { ROWS = 96, KEYS = 96, MOST_DIM = 128, SCORE_ROW = KEYS + 16, CALLS = 20, N_ROWS = 6 };

/* Rows and keys of a task's tile, in slots; all pairs admitted. */
typedef struct block {
    float *query, *panels, *scores, *score_pairs, *score_rows, *query_pairs, *key_pairs, *d_key, *d_query;
    int32_t lo[ROWS], hi[ROWS], pair_hi[ROWS], slot_hi[ROWS];
    int64_t dim;
} block;

static void run_scores(block *b)
{
    score_product(b->query, b->dim / 2 + 16, ROWS, b->panels, b->dim / 2, KEYS, b->lo, b->hi, b->scores, SCORE_ROW);
}

static void run_keys(block *b)
{
    key_product(b->score_pairs, SCORE_ROW, ROWS / 2, b->query_pairs, b->dim + 16, b->dim, KEYS, b->lo, b->pair_hi, b->d_key);
}

static void run_queries(block *b)
{
    query_product(b->score_rows, SCORE_ROW / 2, ROWS, b->key_pairs, b->dim + 16, b->dim, b->lo, b->slot_hi, b->d_query);
}

typedef struct timed {
    const char *name;
    void (*run)(block *b);
    int64_t dim;
    double best;
} timed;

static void time_tile(timed *t, block *b)
{
    b->dim = t->dim;
    t->run(b);
    double start = bench_now();
    for (int n = 0; n < CALLS; n++)
        t->run(b);
    double took = (bench_now() - start) / CALLS;
    t->best = t->best == 0 || took < t->best ? took : t->best;
}

static void print_timed(const timed *t, double peak, bool json)
{
    double share = 2.0 * ROWS * KEYS * (double)t->dim / t->best * 1e-9 / peak;
    if (json)
        printf("{\"kind\": \"tile\", \"level\": \"avx512bf16\", \"row\": \"%s, d %d, %d keys, bf16\", \"seconds\": %.4g, \"share\": %.4f}\n",
               t->name, (int)t->dim, KEYS, t->best, share);
    else
        printf("%-17s d %3d %4d keys bf16  %9.3f us %6.1f %%\n", t->name, (int)t->dim, KEYS, t->best * 1e6, 100 * share);
}

static void run_tiles(int rounds, bool json)
{
    timed rows[N_ROWS] = {{"backward scores", run_scores, 64, 0}, {"backward keys", run_keys, 64, 0}, {"backward queries", run_queries, 64, 0},
                          {"backward scores", run_scores, 128, 0}, {"backward keys", run_keys, 128, 0}, {"backward queries", run_queries, 128, 0}};
    block b = {.dim = 0};
    float **arrays[] = {&b.query, &b.panels, &b.scores, &b.score_pairs, &b.score_rows, &b.query_pairs, &b.key_pairs, &b.d_key, &b.d_query};
    for (int n = 0; n < 9; n++)
        *arrays[n] = bench_memory((size_t)ROWS * (MOST_DIM + 32) * sizeof(float)); /* zeros */
    for (int n = 0; n < ROWS; n++)
        b.hi[n] = b.pair_hi[n] = KEYS, b.slot_hi[n] = KEYS / 2;
    double peak = 0; /* GFLOP/s */
    for (int round = 0; round < rounds; round++) {
        double rate = bench_peak_bf16_of(1);
        peak = rate > peak ? rate : peak;
        for (int n = 0; n < N_ROWS; n++)
            time_tile(&rows[n], &b);
    }
    if (!json)
        printf("avx512bf16: loop of dot products %.1f GFLOP/s; best of %d rounds\n", peak, rounds);
    for (int n = 0; n < N_ROWS; n++)
        print_timed(&rows[n], peak, json);
    for (int n = 0; n < 9; n++)
        free(*arrays[n]);
}
#include "kernels/simd/target_end.h"
#define RUN run_tiles
#else
#define RUN NULL
#endif

int main(int argc, char **argv)
{
    return bench_level(ATTN_ISA_AVX512BF16, RUN, argc, argv);
}
