/* bench_peak.h - what this machine can do at most: multiply-adds of one core, and reads of one and all cores. */
#ifndef BENCH_PEAK_H
#define BENCH_PEAK_H

#include "bench_clock.h"
#include "attn/attn.h"
#include "core/cpu.h"
#include "kernels/simd/simd_levels.h"
#include <pthread.h>
#if ATTN_ARCH_X86_64
#include <immintrin.h>
#endif

#define ROUNDS 200000
#define PASSES 9

/* Keeps a loop from being taken for one whose result is known: it runs each time it is called. */
#define BENCH_OPAQUE(x) __asm__ volatile("" : "+x"(x))

/* One loop of `chains` multiply-adds per round; seconds of the best of PASSES runs become GFLOP/s. */
static inline double best_rate(float (*loop)(void), double flops)
{
    double best = 0;
    for (int n = 0; n < PASSES; n++) {
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

/* GFLOP/s in f32 of one core: independent chains of multiply-adds at the best level here. */
static inline double bench_peak_f32(void)
{
#if ATTN_HAVE_AVX512
    if (attn_cpu_has_isa(ATTN_ISA_AVX512))
        return best_rate(loop_avx512, 24.0 * 16 * 2 * ROUNDS);
#endif
#if ATTN_HAVE_AVX2
    if (attn_cpu_has_isa(ATTN_ISA_AVX2))
        return best_rate(loop_avx2, 24.0 * 8 * 2 * ROUNDS);
#endif
    return best_rate(loop_scalar, 8.0 * 2 * ROUNDS);
}

/* The same for the bf16 dot product; 0 where the CPU has none. */
static inline double bench_peak_bf16(void)
{
#if ATTN_HAVE_AVX512BF16
    if (attn_cpu_has_isa(ATTN_ISA_AVX512BF16))
        return best_rate(loop_bf16, 24.0 * 32 * 2 * ROUNDS);
#endif
    return 0;
}

#define READ_BYTES ((size_t)256 << 20)

typedef struct reader {
    const uint64_t *data;
    size_t words;
    uint64_t sum;
    pthread_barrier_t *barrier;
} reader;

static void *read_all(void *user)
{
    reader *r = user;
    for (int pass = 0; pass < 5; pass++) {
        uint64_t s[8] = {0};
        pthread_barrier_wait(r->barrier);
        for (size_t n = 0; n + 8 <= r->words; n += 8)
            for (int k = 0; k < 8; k++)
                s[k] += r->data[n + (size_t)k];
        for (int k = 0; k < 8; k++)
            r->sum += s[k];
        pthread_barrier_wait(r->barrier);
    }
    return NULL;
}

/* GB/s of reading 256 MB with n threads, the best of several passes. */
static inline double bench_read_bandwidth(int n_threads)
{
    enum { MOST = 64 };
    int n = n_threads > MOST ? MOST : n_threads;
    uint64_t *data = bench_memory(READ_BYTES);
    pthread_barrier_t barrier;
    pthread_t thread[MOST];
    reader part[MOST];
    double best = 0;
    volatile uint64_t sink = 0;
    pthread_barrier_init(&barrier, NULL, (unsigned)n + 1);
    for (int t = 0; t < n; t++) {
        size_t words = READ_BYTES / 8 / (size_t)n;
        part[t] = (reader){data + (size_t)t * words, words, 0, &barrier};
        if (pthread_create(&thread[t], NULL, read_all, &part[t]))
            exit(1);
    }
    for (int pass = 0; pass < 5; pass++) {
        pthread_barrier_wait(&barrier);
        double start = bench_now();
        pthread_barrier_wait(&barrier);
        double rate = (double)READ_BYTES / (bench_now() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    for (int t = 0; t < n; t++) {
        pthread_join(thread[t], NULL);
        sink += part[t].sum;
    }
    (void)sink;
    pthread_barrier_destroy(&barrier);
    free(data);
    return best;
}

#endif
