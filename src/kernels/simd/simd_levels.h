/* simd_levels.h - which ISA levels this compiler can build: ATTN_HAVE_AVX2, _AVX512, _AVX512BF16, _NEON, _NEONDOT,
 * _NEONBF16, each 0 or 1.
 * A stub of a level that is 0 is empty, and the dispatch table skips it. */
#ifndef ATTN_KERNELS_SIMD_LEVELS_H
#define ATTN_KERNELS_SIMD_LEVELS_H

#include "core/compiler.h"

#if defined(__clang__)
#define ATTN_COMPILER_AVX2 (__clang_major__ >= 8)
#define ATTN_COMPILER_AVX512 (__clang_major__ >= 8)
#define ATTN_COMPILER_AVX512BF16 (__clang_major__ >= 10)
#if defined(__ARM_FEATURE_DOTPROD) /* before 16 its arm_neon.h hides what the command line does not allow */
#define ATTN_COMPILER_NEONDOT 1
#else
#define ATTN_COMPILER_NEONDOT (__clang_major__ >= 16)
#endif
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define ATTN_COMPILER_NEONBF16 1
#else
#define ATTN_COMPILER_NEONBF16 (__clang_major__ >= 16)
#endif
#elif defined(__GNUC__)
#define ATTN_COMPILER_AVX2 (__GNUC__ >= 7)
#define ATTN_COMPILER_AVX512 (__GNUC__ >= 8)
#define ATTN_COMPILER_AVX512BF16 (__GNUC__ >= 10)
#define ATTN_COMPILER_NEONDOT (__GNUC__ >= 8)
#define ATTN_COMPILER_NEONBF16 (__GNUC__ >= 10)
#else
#define ATTN_COMPILER_AVX2 0
#define ATTN_COMPILER_AVX512 0
#define ATTN_COMPILER_AVX512BF16 0
#define ATTN_COMPILER_NEONDOT 0
#define ATTN_COMPILER_NEONBF16 0
#endif

#define ATTN_HAVE_AVX2 (ATTN_ARCH_X86_64 && ATTN_COMPILER_AVX2)
#define ATTN_HAVE_AVX512 (ATTN_ARCH_X86_64 && ATTN_COMPILER_AVX512)
#define ATTN_HAVE_AVX512BF16 (ATTN_ARCH_X86_64 && ATTN_COMPILER_AVX512BF16)
#define ATTN_HAVE_NEON ATTN_ARCH_AARCH64
#define ATTN_HAVE_NEONDOT (ATTN_ARCH_AARCH64 && ATTN_COMPILER_NEONDOT)
#define ATTN_HAVE_NEONBF16 (ATTN_ARCH_AARCH64 && ATTN_COMPILER_NEONDOT && ATTN_COMPILER_NEONBF16)

/* Targets of the levels, for ATTN_TARGET in stubs. */
#define ATTN_TARGET_AVX2 "avx2,fma,f16c"
#define ATTN_TARGET_AVX512 "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"
#define ATTN_TARGET_AVX512BF16 "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16"
#if defined(__clang__) && __clang_major__ < 16
#define ATTN_TARGET_NEONDOT "dotprod"
#define ATTN_TARGET_NEONBF16 "dotprod,bf16"
#else
#define ATTN_TARGET_NEONDOT "arch=armv8.2-a+dotprod"
#define ATTN_TARGET_NEONBF16 "arch=armv8.2-a+dotprod+bf16"
#endif

#endif
