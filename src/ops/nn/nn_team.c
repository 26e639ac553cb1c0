/* nn_team.c - sharing tasks among the workers of a team. */
#include "ops/nn/nn_team.h"
#include "core/pool.h"

void attn_team_for(const attn_team *team, int64_t n_tasks, int32_t n_workers, attn_team_fn fn, void *arg)
{
    if (n_workers > n_tasks)
        n_workers = (int32_t)n_tasks;
    if (n_workers <= 1) {
        for (int64_t task = 0; task < n_tasks; task++)
            fn(arg, task, 0);
        return;
    }
    attn_task_queue queue = {fn, arg, n_tasks, 0};
    team->parallel_for(team->parallel_for_user, n_workers, attn_task_queue_drain, &queue);
}

int32_t attn_team_workers(const attn_team *team, int64_t n_tasks, double operations)
{
    const double worth = operations / 50000;
    int64_t n = worth > team->n_threads ? team->n_threads : (int64_t)worth;
    n = n > n_tasks ? n_tasks : n;
    return n < 1 ? 1 : (int32_t)n;
}
