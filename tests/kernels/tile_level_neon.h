/* tile_level_neon.h - the shapes of the register tiles of the neon stubs, for programs that call the tiles themselves. */
#define FWD_VECTORS 3
#define FWD_KEYS 8
#define FWD_DIMS 8
#define FWD_PANEL 8
#define FWD_STEPS "kernels/sdpa/fwd_steps_neon.inc"
#define V_LANES 4
#define DECODE_ACCS 16
#define BWD_ROWS 12
#define BWD_VECTORS 2
#define BWD_STEPS "kernels/sdpa/bwd_steps_neon.inc"
