/* tile_level_avx512.h - the shapes of the register tiles of the avx512 stubs, for programs that call the tiles themselves. */
#define FWD_VECTORS 3
#define FWD_KEYS 8
#define FWD_DIMS 8
#define FWD_PANEL 16
#define V_LANES 16
#define DECODE_ACCS 16
#define BWD_ROWS 12
#define BWD_VECTORS 2
