/* bench_tiles_avx2 [--json] [ROUNDS] - see bench_tiles.inc. */
#include "bench_tiles.h"

#if ATTN_HAVE_AVX2
#define ISA bench_avx2
#define LEVEL ATTN_ISA_AVX2
#define ATTN_TARGET ATTN_TARGET_AVX2
#include "tile_level_avx2.h"
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx2.h"
#include "tile_calls.inc"
#include "bench_tiles.inc"
#include "kernels/simd/target_end.h"
#define RUN run_tiles
#else
#define RUN NULL
#endif

int main(int argc, char **argv)
{
    return bench_level(ATTN_ISA_AVX2, RUN, argc, argv);
}
