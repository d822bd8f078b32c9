/* percentile.h -- order statistics of doubles. */
#ifndef SEG_DATA_PERCENTILE_H
#define SEG_DATA_PERCENTILE_H
#include <stdint.h>

/* Sorts x in ascending order; x contains no NaN. */
void numbers_sort(double *x, int64_t n);

/* Returns the q-th percentile, 0 .. 100, of n >= 1 ascending numbers, with
 * linear interpolation between two of the numbers at position q / 100 * (n -
 * 1), as numpy.percentile. */
double percentile_of(const double *sorted, int64_t n, double q);
#endif
