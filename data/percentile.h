/* percentile.h -- order statistics of doubles. */
#ifndef SEG_DATA_PERCENTILE_H
#define SEG_DATA_PERCENTILE_H
#include <stdint.h>

/* Sort so that they go up; none is NaN. */
void numbers_sort(double *x, int64_t n);

/* The q-th percentile, 0 .. 100, of n >= 1 numbers that go up, linear between
 * two of them at place q / 100 * (n - 1), as numpy.percentile has it. */
double percentile_of(const double *sorted, int64_t n, double q);
#endif
