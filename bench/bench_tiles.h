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
#include "core/view.h"
#include "kernels/table.h"
#include "kernels/sdpa/decode_plan.h"
#include "kernels/simd/simd_levels.h"
#include "ops/sdpa/validate.h"

/* bench_tiles_<isa> [--json] [ROUNDS]: runs the timers of a level, or says that it is not here. */
static inline int bench_level(int32_t isa, void (*run)(int rounds, bool json), int argc, char **argv)
{
    bool json = argc > 1 && !strcmp(argv[1], "--json");
    int rounds = argc > 1 + json ? atoi(argv[1 + json]) : 60;
    if (!run || !attn_cpu_has_isa(isa)) {
        fprintf(stderr, "%s: not on this machine\n", attn_isa_name(isa));
        return 0;
    }
    run(rounds, json);
    return 0;
}

#endif
