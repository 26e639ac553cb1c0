/* bench_tiles_neon [--json] [ROUNDS] - see bench_tiles.inc. */
#include "bench_tiles.h"

#if ATTN_HAVE_NEON
#define ISA bench_neon
#define LEVEL ATTN_ISA_NEON
#include "tile_level_neon.h"
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_neon.h"
#include "kernels/simd/slots_neon.h"
#include "tile_calls.inc"
#include "bench_tiles.inc"
#include "kernels/simd/target_end.h"
#define RUN run_tiles
#else
#define RUN NULL
#endif

int main(int argc, char **argv)
{
    return bench_level(ATTN_ISA_NEON, RUN, argc, argv);
}
