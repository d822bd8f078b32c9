/* moments.h -- mean and deviation of numbers that come in parts.
 *
 * Parts are merged in the order of the calls, so that the result has the same
 * bits whichever thread found which part. */
#ifndef SEG_DATA_PREPROCESS_MOMENTS_H
#define SEG_DATA_PREPROCESS_MOMENTS_H
#include <stdint.h>

typedef struct Moments {
    double n, mean, square; /* square: sum (x - mean)^2 */
} Moments;

/* Of x[0], x[step], ..., n of them, each cut to low .. high. */
Moments moments_of(const float *x, int64_t n, int64_t step, double low,
                   double high);

/* all = of the numbers of both: Chan, Golub and LeVeque, "Algorithms for
 * computing the sample variance", The American Statistician 37 (1983). */
void moments_merge(Moments *all, const Moments *part);

/* Standard deviation of the whole population; 0 where rounding alone makes a
 * constant vary. */
double moments_sd(const Moments *m);

#endif
