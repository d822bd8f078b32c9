/* percentile.c -- see percentile.h. */
#include "data/percentile.h"
#include <math.h>
#include <stdlib.h>

static int by_size(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

void numbers_sort(double *x, int64_t n)
{
    qsort(x, (size_t)n, sizeof *x, by_size);
}

double percentile_of(const double *sorted, int64_t n, double q)
{
    const double at = q / 100 * (double)(n - 1);
    const int64_t low = (int64_t)floor(at);
    if (low >= n - 1) return sorted[n - 1];
    return sorted[low] + (at - (double)low) * (sorted[low + 1] - sorted[low]);
}
