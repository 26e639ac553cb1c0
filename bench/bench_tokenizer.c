/* bench_tokenizer.c - throughput of a tokenizer on a text file, one thread.
 *
 *     bench_tokenizer TOKENIZER.json TEXT [RUNS]
 *
 * Prints MB/s by lines (ids only), on the whole text at once, and of decoding; the median of RUNS (5). Time is the
 * thread's own processor time, so that a busy machine does not show. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attn/tokenizer.h"

enum { MAX_RUNS = 99 };

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static char *read_all(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(*size + 1);
    if (text && fread(text, 1, *size, file) != *size) {
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
}

/* Encodes line by line, or all at once; returns the number of tokens, -1 on an error. */
static int64_t encode(const attn_tokenizer *tokenizer, const char *text, size_t size, int by_lines, attn_encoding *encoding)
{
    int64_t tokens = 0;
    for (size_t at = 0; at < size;) {
        const char *end = by_lines ? memchr(text + at, '\n', size - at) : NULL;
        size_t len = end ? (size_t)(end - text) - at : size - at;
        if (attn_tokenizer_encode(tokenizer, text + at, len, NULL, 0, NULL, encoding) != ATTN_OK)
            return -1;
        tokens += attn_encoding_length(encoding);
        at += len + (end != NULL);
    }
    return tokens;
}

static void report(const char *what, double seconds[], int runs, size_t size, int64_t tokens)
{
    qsort(seconds, (size_t)runs, sizeof *seconds, compare);
    double median = seconds[runs / 2];
    printf("%-10s %7.1f MB/s  (best %.1f, worst %.1f of %d runs)  %lld tokens, %.2f M/s\n", what,
           (double)size / median / 1e6, (double)size / seconds[0] / 1e6, (double)size / seconds[runs - 1] / 1e6, runs,
           (long long)tokens, (double)tokens / median / 1e6);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: bench_tokenizer TOKENIZER.json TEXT [RUNS]\n");
        return 2;
    }
    size_t size = 0, n_bytes = 0;
    int runs = argc > 3 ? atoi(argv[3]) : 5;
    char *text = read_all(argv[2], &size), *decoded = malloc(4 * size + 64);
    attn_tokenizer *tokenizer;
    attn_encoding *encoding;
    double seconds[MAX_RUNS];
    if (runs < 1 || runs > MAX_RUNS || !text || !decoded || attn_tokenizer_load(argv[1], &tokenizer) != ATTN_OK ||
        attn_encoding_create(&encoding) != ATTN_OK) {
        fprintf(stderr, "%s\n", text ? attn_tokenizer_error() : "cannot read the text");
        return 1;
    }
    int64_t tokens = 0;
    for (int by_lines = 1; by_lines >= 0; by_lines--) {
        for (int r = 0; r < runs; r++) {
            double start = cpu_seconds();
            tokens = encode(tokenizer, text, size, by_lines, encoding);
            seconds[r] = cpu_seconds() - start;
            if (tokens < 0) {
                fprintf(stderr, "%s\n", attn_tokenizer_error());
                return 1;
            }
        }
        report(by_lines ? "lines" : "whole", seconds, runs, size, tokens);
    }
    for (int r = 0; r < runs; r++) {
        double start = cpu_seconds();
        attn_tokenizer_decode(tokenizer, attn_encoding_ids(encoding), tokens, 0, decoded, 4 * size + 64, &n_bytes);
        seconds[r] = cpu_seconds() - start;
    }
    report("decode", seconds, runs, n_bytes, tokens);
    attn_encoding_destroy(encoding);
    attn_tokenizer_destroy(tokenizer);
    free(text);
    free(decoded);
    return 0;
}
