/* bench_clock.h - time, memory and medians for the programs of bench/. */
#ifndef BENCH_CLOCK_H
#define BENCH_CLOCK_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What bench_now reads. CLOCK_PROCESS_CPUTIME_ID counts processor time of all threads: on a machine with other work, and for
 * one thread only, the time that the call itself took. */
static clockid_t bench_clock = CLOCK_MONOTONIC;

static inline double bench_now(void)
{
    struct timespec t;
    clock_gettime(bench_clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Page-aligned and touched; ends the program when there is none. */
static inline void *bench_memory(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, bytes ? bytes : 1)) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    memset(memory, 0, bytes);
    return memory;
}

/* A line of /proc/self/status in MB; 0 where there is none. */
static inline double bench_memory_mb(const char *key)
{
    char line[256];
    double value = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, key, strlen(key)))
            value = atof(line + strlen(key)) * 1024e-6;
    if (file)
        fclose(file);
    return value;
}

/* Makes VmHWM start again from the present size. */
static inline void bench_reset_peak(void)
{
    int file = open("/proc/self/clear_refs", O_WRONLY);
    if (file < 0)
        return;
    if (write(file, "5", 1) != 1)
        fprintf(stderr, "cannot reset the peak of the memory\n");
    close(file);
}

static int bench_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct bench_times {
    double median, best, worst; /* seconds a call */
    int runs;
} bench_times;

/* Calls run(arg) once to warm up, then for about `budget` seconds, at least `least` and at most `most` (<= 200) times.
 * Calls shorter than a millisecond are timed in loops of about one millisecond. */
static inline bench_times bench_measure(void (*run)(void *), void *arg, double budget, int least, int most)
{
    double taken[200], start = bench_now(), one;
    run(arg);
    one = bench_now() - start;
    if (one < 0.01) { /* once more, warm */
        start = bench_now();
        run(arg);
        one = bench_now() - start;
    }
    int inner = one < 1e-3 ? (int)(1e-3 / (one + 1e-9)) : 1, n = (int)(budget / (one * inner + 1e-9));
    n = n < least ? least : n > most ? most : n;
    for (int k = 0; k < n; k++) {
        start = bench_now();
        for (int i = 0; i < inner; i++)
            run(arg);
        taken[k] = (bench_now() - start) / inner;
    }
    qsort(taken, (size_t)n, sizeof *taken, bench_order);
    bench_times t = {n % 2 ? taken[n / 2] : 0.5 * (taken[n / 2 - 1] + taken[n / 2]), taken[0], taken[n - 1], n};
    return t;
}

static inline double bench_median(void (*run)(void *), void *arg, double budget, int least, int most, int *runs)
{
    bench_times t = bench_measure(run, arg, budget, least, most);
    *runs = t.runs;
    return t.median;
}

#endif
