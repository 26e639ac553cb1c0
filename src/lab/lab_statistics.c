/* lab_statistics.c - means, bootstrap intervals, exact sign-flip tests. */
#include <math.h>
#include <stdlib.h>
#include "lab/lab_evidence.h"

enum { DRAWS = 2000, MOST_FLIPPED = 20 };

double lab_mean(const double *x, int64_t n, int64_t stride)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i * stride];
    return sum / (double)n;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void lab_bootstrap(lab *l, const double *x, int64_t n, int64_t stride, double *low, double *high)
{
    double means[DRAWS];
    for (int d = 0; d < DRAWS; d++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += x[(int64_t)lab_below(l, (uint64_t)n) * stride];
        means[d] = sum / (double)n;
    }
    qsort(means, DRAWS, sizeof *means, ascending);
    *low = means[DRAWS / 40], *high = means[DRAWS - 1 - DRAWS / 40];
}

double lab_sign_flip_p(const double *x, int64_t n, int64_t stride)
{
    double sum = 0, size = 0;
    int sign[MOST_FLIPPED];
    int64_t count = 0;
    n = n < MOST_FLIPPED ? n : MOST_FLIPPED;
    for (int64_t i = 0; i < n; i++)
        sum += x[i * stride], size += fabs(x[i * stride]), sign[i] = 1;
    const double observed = fabs(sum) - 1e-12 * size; /* the sum itself counts, however it was rounded */
    for (int64_t flip = 1; flip <= (int64_t)1 << n; flip++) { /* in Gray's order, one sign at a time */
        count += fabs(sum) >= observed;
        int64_t bit = 0;
        while (!(flip >> bit & 1))
            bit++;
        if (bit == n)
            break;
        sum -= 2 * sign[bit] * x[bit * stride];
        sign[bit] = -sign[bit];
    }
    return (double)count / (double)((int64_t)1 << n);
}
