/* tile_level_scalar.h - the shapes of the register tiles of the scalar stubs, for programs that call the tiles themselves. */
#define FWD_VECTORS 4
#define FWD_KEYS 4
#define FWD_DIMS 4
#define FWD_PANEL 4
#define V_LANES 1
#define DECODE_ACCS 4
#define BWD_ROWS 6
#define BWD_VECTORS 2
