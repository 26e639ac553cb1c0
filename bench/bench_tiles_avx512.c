/* bench_tiles_avx512 [--json] [ROUNDS] - see bench_tiles.inc. */
#include "bench_tiles.h"

#if ATTN_HAVE_AVX512
#define ISA bench_avx512
#define LEVEL ATTN_ISA_AVX512
#define ATTN_TARGET ATTN_TARGET_AVX512
#include "tile_level_avx512.h"
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx512.h"
#include "tile_calls.inc"
#include "bench_tiles.inc"
#include "kernels/simd/target_end.h"
#define RUN run_tiles
#else
#define RUN NULL
#endif

int main(int argc, char **argv)
{
    return bench_level(ATTN_ISA_AVX512, RUN, argc, argv);
}
