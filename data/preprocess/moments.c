/* moments.c -- see moments.h. Two passes over a part: squares of small
 * differences do not cancel as the difference of two large sums would. */
#include "data/preprocess/moments.h"
#include <math.h>

Moments moments_of(const float *x, int64_t n, int64_t step, double low,
                   double high)
{
    Moments m = {.n = (double)n};
    for (int64_t i = 0; i < n; i++)
        m.mean += fmin(fmax((double)x[i * step], low), high);
    m.mean = n ? m.mean / m.n : 0;
    for (int64_t i = 0; i < n; i++) {
        const double off = fmin(fmax((double)x[i * step], low), high) - m.mean;
        m.square += off * off;
    }
    return m;
}

void moments_merge(Moments *all, const Moments *part)
{
    const double n = all->n + part->n, off = part->mean - all->mean;
    if (part->n == 0) return;
    all->square += part->square + off * off * all->n * part->n / n;
    all->mean += off * part->n / n;
    all->n = n;
}

double moments_sd(const Moments *m)
{
    const double sd = m->n > 0 ? sqrt(m->square / m->n) : 0;
    return sd > 1e-12 * fabs(m->mean) ? sd : 0;
}
