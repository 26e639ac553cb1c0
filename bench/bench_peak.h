/* bench_peak.h - what this machine can do at most: multiply-adds of one core at each level, reads of one and all threads.
 *
 * Limits are measured between the runs of a row (bench_limit), never once for all: on a shared machine they move. */
#ifndef BENCH_PEAK_H
#define BENCH_PEAK_H

#include "bench_clock.h"
#include "attn/attn.h"
#include "core/context.h"
#include "core/cpu.h"
#include "core/pages.h"
#include "kernels/simd/simd_levels.h"
#if ATTN_ARCH_X86_64
#include <immintrin.h>
#elif ATTN_HAVE_NEON
#include <arm_neon.h>
#endif

#define ROUNDS 100000
#define PASSES 9

/* Keeps a loop from being taken for one whose result is known: it runs each time it is called. */
#define BENCH_OPAQUE(x) __asm__ volatile("" : "+x"(x))

/* One loop of independent multiply-adds; seconds of the best of `passes` runs become GFLOP/s. */
static inline double best_rate(float (*loop)(void), double flops, int passes)
{
    double best = 0;
    for (int n = 0; n < passes; n++) {
        double start = bench_now();
        volatile float sink = loop();
        double rate = flops / (bench_now() - start) * 1e-9;
        (void)sink;
        best = rate > best ? rate : best;
    }
    return best;
}

#if ATTN_HAVE_AVX2
__attribute__((target("avx2,fma"))) static inline float loop_avx2(void)
{
    __m256 a[12], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
    BENCH_OPAQUE(x);
    for (int k = 0; k < 12; k++)
        a[k] = _mm256_set1_ps((float)k);
    for (int n = 0; n < ROUNDS; n++) {
#pragma GCC unroll 12
        for (int k = 0; k < 12; k++)
            a[k] = _mm256_fmadd_ps(a[k], x, y);
#pragma GCC unroll 12
        for (int k = 0; k < 12; k++)
            a[k] = _mm256_fmadd_ps(a[k], x, y);
    }
    for (int k = 1; k < 12; k++)
        a[0] = _mm256_add_ps(a[0], a[k]);
    return _mm256_cvtss_f32(a[0]);
}
#endif
#if ATTN_HAVE_AVX512
__attribute__((target("avx512f"))) static inline float loop_avx512(void)
{
    __m512 a[24], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
    BENCH_OPAQUE(y);
    for (int k = 0; k < 24; k++)
        a[k] = _mm512_set1_ps((float)k);
    for (int n = 0; n < ROUNDS; n++) {
#pragma GCC unroll 24
        for (int k = 0; k < 24; k++)
            a[k] = _mm512_fmadd_ps(a[k], x, y);
    }
    for (int k = 1; k < 24; k++)
        a[0] = _mm512_add_ps(a[0], a[k]);
    return _mm512_cvtss_f32(a[0]);
}
#endif
#if ATTN_HAVE_AVX512BF16
__attribute__((target("avx512f,avx512bf16"))) static inline float loop_bf16(void)
{
    __m512 a[24];
    __m512 start = _mm512_set1_ps(0.5f);
    BENCH_OPAQUE(start);
    __m512bh x = _mm512_cvtne2ps_pbh(start, _mm512_set1_ps(0.25f));
    for (int k = 0; k < 24; k++)
        a[k] = _mm512_set1_ps((float)k);
    for (int n = 0; n < ROUNDS; n++) {
#pragma GCC unroll 24
        for (int k = 0; k < 24; k++)
            a[k] = _mm512_dpbf16_ps(a[k], x, x);
    }
    for (int k = 1; k < 24; k++)
        a[0] = _mm512_add_ps(a[0], a[k]);
    return _mm512_cvtss_f32(a[0]);
}
#endif
#if ATTN_HAVE_AVX512
__attribute__((target("avx512f,avx512vnni"))) static inline float loop_u8s8(void)
{
    __m512i a[24], x = _mm512_set1_epi8(1);
#pragma GCC unroll 24
    for (int k = 0; k < 24; k++)
        a[k] = _mm512_set1_epi32(k);
    for (int n = 0; n < ROUNDS; n++) {
#pragma GCC unroll 24
        for (int k = 0; k < 24; k++) /* not the intrinsic: gcc 12 copies every sum of it */
            __asm__("vpdpbusd %1, %1, %0" : "+v"(a[k]) : "v"(x));
    }
#pragma GCC unroll 24
    for (int k = 1; k < 24; k++)
        a[0] = _mm512_add_epi32(a[0], a[k]);
    return (float)_mm_cvtsi128_si32(_mm512_castsi512_si128(a[0]));
}
#endif
#if ATTN_HAVE_NEON
static inline float loop_neon(void)
{
    float32x4_t a[24], x = vdupq_n_f32(0.999f), y = vdupq_n_f32(0.001f);
    __asm__ volatile("" : "+w"(x));
    for (int k = 0; k < 24; k++)
        a[k] = vdupq_n_f32((float)k);
    for (int n = 0; n < ROUNDS; n++) {
#pragma GCC unroll 24
        for (int k = 0; k < 24; k++)
            a[k] = vfmaq_f32(y, a[k], x);
    }
    for (int k = 1; k < 24; k++)
        a[0] = vaddq_f32(a[0], a[k]);
    return vgetq_lane_f32(a[0], 0);
}
#endif
#if ATTN_HAVE_NEONBF16
__attribute__((target(ATTN_TARGET_NEONBF16))) static inline float loop_neonbf16(void)
{
    float32x4_t a[24];
    uint32x4_t ones = vdupq_n_u32(0x3f003f00);
    __asm__ volatile("" : "+w"(ones));
    const bfloat16x8_t x = vreinterpretq_bf16_u32(ones);
    for (int k = 0; k < 24; k++)
        a[k] = vdupq_n_f32((float)k);
    for (int n = 0; n < ROUNDS; n++) {
#pragma GCC unroll 24
        for (int k = 0; k < 24; k++)
            a[k] = vbfdotq_f32(a[k], x, x);
    }
    for (int k = 1; k < 24; k++)
        a[0] = vaddq_f32(a[0], a[k]);
    return vgetq_lane_f32(a[0], 0);
}
#endif
static inline float loop_scalar(void)
{
    float a[8];
    volatile float first = 1;
    for (int k = 0; k < 8; k++)
        a[k] = first + (float)k;
    for (int n = 0; n < ROUNDS; n++)
        for (int k = 0; k < 8; k++)
            a[k] = a[k] * 0.999f + 0.001f;
    return a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7];
}

/* GFLOP/s in f32 of one core at a level (ATTN_ISA_*) that is here: the best of `passes` loops of about a millisecond. */
static inline double bench_peak_at(int32_t isa, int passes)
{
#if ATTN_HAVE_AVX512
    if (isa == ATTN_ISA_AVX512 || isa == ATTN_ISA_AVX512BF16)
        return best_rate(loop_avx512, 24.0 * 16 * 2 * ROUNDS, passes);
#endif
#if ATTN_HAVE_AVX2
    if (isa == ATTN_ISA_AVX2)
        return best_rate(loop_avx2, 24.0 * 8 * 2 * ROUNDS, passes);
#endif
#if ATTN_HAVE_NEON
    if (isa >= ATTN_ISA_NEON)
        return best_rate(loop_neon, 24.0 * 4 * 2 * ROUNDS, passes);
#endif
    (void)isa;
    return best_rate(loop_scalar, 8.0 * 2 * ROUNDS, passes);
}

static inline double bench_peak_f32(void)
{
    return bench_peak_at(attn_cpu_best_isa(), PASSES);
}

/* The same for the bf16 dot product; 0 where the CPU has none. */
static inline double bench_peak_bf16_of(int passes)
{
#if ATTN_HAVE_AVX512BF16
    if (attn_cpu_has_isa(ATTN_ISA_AVX512BF16))
        return best_rate(loop_bf16, 24.0 * 32 * 2 * ROUNDS, passes);
#endif
#if ATTN_HAVE_NEONBF16
    if (attn_cpu_has_isa(ATTN_ISA_NEONBF16))
        return best_rate(loop_neonbf16, 24.0 * 8 * 2 * ROUNDS, passes);
#endif
    (void)passes;
    return 0;
}

static inline double bench_peak_bf16(void)
{
    return bench_peak_bf16_of(PASSES);
}

/* The same for products of unsigned by signed bytes with sums of 32 bits (VNNI), in Gop/s; 0 where the CPU has none. */
static inline double bench_peak_u8s8(void)
{
#if ATTN_HAVE_AVX512
    if (attn_cpu_has_isa(ATTN_ISA_AVX512))
        return best_rate(loop_u8s8, 24.0 * 64 * 2 * ROUNDS, PASSES);
#endif
    return 0;
}

/* ---- Reads ----------------------------------------------------------------------------------- */

typedef struct bench_reading {
    const char *data;
    size_t bytes, part;
    uint64_t found[4096];
} bench_reading;

/* A part is read in STREAMS places at once, each asked for a few lines ahead: one place after the other keeps a core far from what
 * its memory gives (AMD Zen 3: 7.5 GB/s against 13.6). Ends of less than STREAMS lines are left out. */
#define STREAMS 8

static inline uint64_t read_plain(const uint64_t *w, size_t n)
{
    const size_t each = n / STREAMS / 8 * 8;
    uint64_t s[8] = {0}, all = 0;
    for (size_t at = 0; at < each; at += 8)
        for (size_t stream = 0; stream < STREAMS; stream++) {
            const uint64_t *line = w + stream * each + at;
            __builtin_prefetch(line + 32);
            for (int k = 0; k < 8; k++)
                s[k] ^= line[k];
        }
    for (int k = 0; k < 8; k++)
        all ^= s[k];
    return all;
}

#if ATTN_HAVE_AVX2
__attribute__((target("avx2"))) static inline uint64_t read_avx2(const uint64_t *w, size_t n)
{
    const size_t each = n / STREAMS / 8 * 8;
    __m256i s[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    uint64_t lanes[4];
    for (size_t at = 0; at < each; at += 8)
#pragma GCC unroll 8
        for (size_t stream = 0; stream < STREAMS; stream++) {
            const __m256i *line = (const __m256i *)(const void *)(w + stream * each + at);
            __builtin_prefetch(line + 8);
            s[stream % 2] = _mm256_xor_si256(s[stream % 2], _mm256_loadu_si256(line));
            s[2 + stream % 2] = _mm256_xor_si256(s[2 + stream % 2], _mm256_loadu_si256(line + 1));
        }
    _mm256_storeu_si256((__m256i *)(void *)lanes,
                        _mm256_xor_si256(_mm256_xor_si256(s[0], s[1]), _mm256_xor_si256(s[2], s[3])));
    return lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3];
}
#endif

static inline void read_task(void *arg, int64_t task, int32_t worker)
{
    bench_reading *r = arg;
    size_t at = (size_t)task * r->part, n = r->bytes - at < r->part ? r->bytes - at : r->part;
    const uint64_t *w = (const uint64_t *)(const void *)(r->data + at);
    (void)worker;
#if ATTN_HAVE_AVX2
    if (attn_cpu_has_isa(ATTN_ISA_AVX2)) {
        r->found[task] ^= read_avx2(w, n / 8);
        return;
    }
#endif
    r->found[task] ^= read_plain(w, n / 8);
}

/* GB/s of reading these bytes once with the threads of ctx, in parts of 128 KB to 4 MB, a sixteenth where that lies between. */
static inline double bench_read_rate(attn_ctx *ctx, const void *data, size_t bytes)
{
    static bench_reading r;
    r.data = data;
    r.bytes = bytes;
    r.part = (size_t)128 << 10;
    while ((r.part < (size_t)4 << 20 && r.part < bytes / 16) || (bytes + r.part - 1) / r.part > 4000)
        r.part *= 2;
    double start = bench_now();
    attn_ctx_for(ctx, (int64_t)((bytes + r.part - 1) / r.part), attn_ctx_threads(ctx), read_task, &r);
    return (double)bytes / (bench_now() - start) * 1e-9;
}

/* A context with this many threads at a level (0: the best); ends the program when there is none. */
static inline attn_ctx *bench_context(int32_t threads, int32_t isa)
{
    attn_ctx_options options;
    attn_ctx *ctx;
    ATTN_ARGS_INIT(&options);
    options.n_threads = threads;
    options.max_isa = isa;
    if (attn_ctx_create(&options, &ctx) != ATTN_OK) {
        fprintf(stderr, "%s\n", attn_ctx_error(NULL));
        exit(1);
    }
    return ctx;
}

/* Memory for a limit of reads, on large pages as weights are: small ones give 5 to 10 % less. Freed with free(). */
static inline void *bench_read_memory(size_t bytes)
{
    void *data = attn_pages_allocate(bytes);
    if (!data) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    memset(data, 0, bytes);
    return data;
}

/* GB/s of reading 256 MB with n threads, the best of several passes. */
static inline double bench_read_bandwidth(int n_threads)
{
    const size_t bytes = (size_t)256 << 20;
    attn_ctx *ctx = bench_context(n_threads, 0);
    void *data = bench_read_memory(bytes);
    double best = 0;
    for (int pass = 0; pass < 7; pass++) {
        double rate = bench_read_rate(ctx, data, bytes);
        best = rate > best ? rate : best;
    }
    free(data);
    attn_ctx_destroy(ctx);
    return best;
}

#endif
