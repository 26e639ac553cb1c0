/* compiler.h - the compiler extensions that portable code here may use, each under one name. */
#ifndef ATTN_CORE_COMPILER_H
#define ATTN_CORE_COMPILER_H

#if defined(__x86_64__)
#define ATTN_ARCH_X86_64 1
#else
#define ATTN_ARCH_X86_64 0
#endif
#if defined(__aarch64__)
#define ATTN_ARCH_AARCH64 1
#else
#define ATTN_ARCH_AARCH64 0
#endif

#if defined(__GNUC__)
#define ATTN_PRINTF(text_index, first) __attribute__((format(printf, text_index, first)))
#define ATTN_ALIGN(n) __attribute__((aligned(n)))
#define ATTN_LIKELY(x) __builtin_expect(!!(x), 1)
#define ATTN_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define ATTN_INLINE static inline __attribute__((always_inline))
#define ATTN_NOINLINE __attribute__((noinline))
#define ATTN_PREFETCH(p) __builtin_prefetch(p)
#define ATTN_PREFETCH_L2(p) __builtin_prefetch((p), 0, 2)
#else
#define ATTN_PRINTF(text_index, first)
#define ATTN_ALIGN(n)
#define ATTN_LIKELY(x) (x)
#define ATTN_UNLIKELY(x) (x)
#define ATTN_INLINE static inline
#define ATTN_NOINLINE
#define ATTN_PREFETCH(p) ((void)(p))
#define ATTN_PREFETCH_L2(p) ((void)(p))
#endif

/* In front of a loop over a register tile (at most 16 rounds): it has to be unrolled whole, or its sums live in memory. */
#if defined(__clang__)
#define ATTN_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define ATTN_UNROLL _Pragma("GCC unroll 16")
#else
#define ATTN_UNROLL
#endif

#define ATTN_CACHE_LINE 64

#endif
