/* bench_tiles_avx2 [ROUNDS] - see bench_tiles.inc. */
#include "bench_tiles.h"

#if ATTN_HAVE_AVX2
#define ISA bench_avx2
#define LEVEL ATTN_ISA_AVX2
#define ATTN_TARGET ATTN_TARGET_AVX2
#define FWD_VECTORS 3
#define FWD_KEYS 4
#define FWD_DIMS 4
#define FWD_PANEL 8
#include "kernels/simd/target_begin.h"
#include "kernels/simd/simd_avx2.h"
#include "kernels/sdpa/fwd_tile.inc"
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
