/* bench_tiles.h - ordinary headers of the bench_tiles_<isa>.c programs, and their main. */
#ifndef BENCH_TILES_H
#define BENCH_TILES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attn/attn.h"
#include "bench_clock.h"
#include "bench_peak.h"
#include "core/cpu.h"
#include "core/half.h"
#include "kernels/sdpa/fwd_plan.h"
#include "kernels/simd/simd_levels.h"

/* Seconds of `inner` calls. */
typedef double (*tiles_timer)(void *arg, int inner);

/* Runs the timers of a level, or says that it is not here. */
static inline int bench_level(int32_t isa, void (*run)(int rounds), int argc, char **argv)
{
    if (!run || !attn_cpu_has_isa(isa)) {
        printf("%s: not on this machine\n", attn_isa_name(isa));
        return 0;
    }
    run(argc > 1 ? atoi(argv[1]) : 200);
    return 0;
}

#endif
