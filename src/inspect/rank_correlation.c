/* rank_correlation.c - Spearman's rank correlation (Spearman 1904): Pearson's correlation of the ranks. */
#include <math.h>
#include <stdlib.h>
#include "inspect/inspect_run.h"

typedef struct ranked {
    float value;
    int32_t at;
} ranked;

static int by_value(const void *a, const void *b)
{
    const float x = ((const ranked *)a)->value, y = ((const ranked *)b)->value;
    return (x > y) - (x < y);
}

/* rank[i] of values[i], equal values sharing the mean of their ranks. */
static void ranks_of(const float *values, int64_t n, ranked *sorted, double *rank)
{
    for (int64_t i = 0; i < n; i++)
        sorted[i] = (ranked){values[i], (int32_t)i};
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && !(sorted[end].value > sorted[i].value); end++) {
        }
        for (int64_t j = i; j < end; j++)
            rank[sorted[j].at] = (double)(i + end - 1) / 2;
    }
}

double attn_rank_correlation(const float *a, const float *b, int64_t n)
{
    if (n < 3 || n > INT32_MAX)
        return NAN;
    ranked *sorted = malloc((size_t)n * sizeof *sorted);
    double *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)n * sizeof *y);
    double xx = 0, yy = 0, xy = 0, result = NAN;
    if (sorted && x && y) {
        const double mean = (double)(n - 1) / 2;
        ranks_of(a, n, sorted, x);
        ranks_of(b, n, sorted, y);
        for (int64_t i = 0; i < n; i++) {
            xx += (x[i] - mean) * (x[i] - mean);
            yy += (y[i] - mean) * (y[i] - mean);
            xy += (x[i] - mean) * (y[i] - mean);
        }
        result = xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : NAN;
    }
    free(sorted);
    free(x);
    free(y);
    return result;
}
