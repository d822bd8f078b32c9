/* timing.h -- shared by the speed tables: a clock, the median of rounds. */
#ifndef SEG_BENCH_TIMING_H
#define SEG_BENCH_TIMING_H
#include <stdlib.h>
#include <time.h>

/* Returns the time of a clock, in seconds. */
static inline double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the median of v[0 .. n-1], and sorts v. */
static inline double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return v[n / 2];
}
#endif
