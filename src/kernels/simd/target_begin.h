/* target_begin.h - from here to target_end.h functions are compiled for the level that the stub chose. No include guard:
 * each stub includes it once, after all ordinary headers, having defined
 *   ISA          suffix of names, for example avx2
 *   ATTN_TARGET  one of ATTN_TARGET_* (simd_levels.h); left undefined where the base target is enough (scalar, NEON)
 * Names of the stub are made by ATTN_FN(name) -> name_avx2. */
#define ATTN_FN_JOIN(name, isa) name##_##isa
#define ATTN_FN_NAME(name, isa) ATTN_FN_JOIN(name, isa)
#define ATTN_FN(name) ATTN_FN_NAME(name, ISA)

#if ATTN_ARCH_X86_64
#include <immintrin.h>
#elif ATTN_ARCH_AARCH64
#include <arm_neon.h>
#endif
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef ATTN_TARGET
#define ATTN_PRAGMA_TEXT(x) #x
#define ATTN_PRAGMA(x) _Pragma(ATTN_PRAGMA_TEXT(x))
#if defined(__clang__)
ATTN_PRAGMA(clang attribute push(__attribute__((target(ATTN_TARGET))), apply_to = function))
#else
#pragma GCC push_options
ATTN_PRAGMA(GCC target(ATTN_TARGET))
#endif
#endif
