/* nn_team.h - who computes for layers: the kernels of a level, threads, and scratch memory for each worker. */
#ifndef ATTN_OPS_NN_NN_TEAM_H
#define ATTN_OPS_NN_NN_TEAM_H

#include <stddef.h>
#include "attn/attn.h"
#include "kernels/nn/nn_kernels.h"

typedef struct attn_team {
    const attn_nn_kernels *kernels;
    attn_parallel_for parallel_for;
    void *parallel_for_user;
    int32_t n_threads;
    int32_t products;               /* ATTN_F32, or ATTN_BF16: products in f32 round their operands to bf16 (gemm.h) */
    const attn_gemm_kernels *pairs; /* what serves these; NULL: rounded numbers meet the f32 kernels */
    char *scratch; /* n_threads times ATTN_TEAM_SCRATCH bytes, 64-byte aligned */
} attn_team;

/* Scratch of one worker: the packed blocks of a product (gemm.c). */
#define ATTN_TEAM_SCRATCH ((size_t)1 << 20)

/* fn(arg, task, worker) for every task in 0 .. n_tasks - 1, on up to n_workers threads that take tasks from one
 * counter in ascending order; worker < n_workers names the scratch that the task may use. One worker: a plain loop. */
typedef void (*attn_team_fn)(void *arg, int64_t task, int32_t worker);
void attn_team_for(const attn_team *team, int64_t n_tasks, int32_t n_workers, attn_team_fn fn, void *arg);

/* Workers worth waking for so many elementary operations (additions, loads): one for each 50,000, at least 1. */
int32_t attn_team_workers(const attn_team *team, int64_t n_tasks, double operations);

static inline void *attn_team_scratch(const attn_team *team, int32_t worker)
{
    return team->scratch + (size_t)worker * ATTN_TEAM_SCRATCH;
}

#endif
