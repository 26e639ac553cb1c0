/* tile_level_avx2.h - the shapes of the register tiles of the avx2 stubs, for programs that call the tiles themselves. */
#define FWD_VECTORS 3
#define FWD_KEYS 4
#define FWD_DIMS 4
#define FWD_PANEL 8
#define V_LANES 8
#define DECODE_ACCS 8
#define BWD_ROWS 6
#define BWD_VECTORS 2
