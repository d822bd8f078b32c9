/* moments.h -- mean and standard deviation of numbers that come in parts.
 *
 * Parts are merged in the order of the calls, so the result has the same bits
 * for any assignment of parts to threads. */
#ifndef SEG_DATA_PREPROCESS_MOMENTS_H
#define SEG_DATA_PREPROCESS_MOMENTS_H
#include <stdint.h>

typedef struct Moments {
    double n, mean, square; /* square: sum (x - mean)^2 */
} Moments;

/* The moments of the n numbers x[0], x[step], ..., each clipped to low ..
 * high. */
Moments moments_of(const float *x, int64_t n, int64_t step, double low,
                   double high);

/* all = the moments of both: Chan, Golub and LeVeque, "Algorithms for computing
 * the sample variance", The American Statistician 37 (1983). */
void moments_merge(Moments *all, const Moments *part);

/* Population standard deviation; 0 if it is so small that rounding of a
 * constant explains it. */
double moments_sd(const Moments *m);

#endif
