/* dvh.c -- see dvh.h. */
#include "data/metrics/dvh.h"
#include "data/percentile.h"
#include <math.h>

/* Rounds to the nearest whole number, halves to the even one. */
static double to_even(double x)
{
    const double low = floor(x), rest = x - low;
    if (rest != 0.5) return floor(x + 0.5);
    return fmod(low, 2) == 0 ? low : low + 1;
}

bool dvh_points(const float *dose, const float *inside, int64_t count,
                double voxel_mm3, Dvh *out)
{
    double sum = 0;
    int64_t n = 0;
    *out = (Dvh){0, NAN, NAN, NAN, NAN, NAN};
    for (int64_t i = 0; i < count; i++) n += inside[i] >= 0.5f;
    if (!n) return true;
    double *x = mem_alloc((size_t)n * sizeof *x);
    if (!x) return false;
    out->voxels = n;
    for (int64_t i = 0, k = 0; i < count; i++)
        if (inside[i] >= 0.5f) x[k++] = dose[i];
    numbers_sort(x, n);
    for (int64_t k = 0; k < n; k++) sum += x[k];
    const double tenth = fmax(1, to_even(100 / voxel_mm3));
    const double share = 100 - tenth / (double)n * 100;
    out->d_01cc = percentile_of(x, n, fmax(0, share));
    out->mean = sum / (double)n;
    out->d_99 = percentile_of(x, n, 1);
    out->d_95 = percentile_of(x, n, 5);
    out->d_1 = percentile_of(x, n, 99);
    mem_free(x);
    return true;
}

// Counts each voxel at the highest point that its dose reaches, then sums from
// the highest point down.
int64_t dvh_curve(const float *dose, const float *inside, int64_t count,
                  double first, double step, int points, double *percent)
{
    int64_t n = 0, reach = 0;
    for (int k = 0; k < points; k++) percent[k] = 0;

    for (int64_t i = 0; i < count; i++) {
        if (!(inside[i] >= 0.5f)) continue;
        n++;
        double last = floor(((double)dose[i] - first) / step);
        // the quotient may have been rounded to the other side of a point
        if (last + 1 < points && (double)dose[i] >= first + (last + 1) * step)
            last++;
        else if (last >= 0 && (double)dose[i] < first + last * step)
            last--;
        if (last >= 0) percent[(int)fmin(last, points - 1)]++;
    }

    for (int k = points - 1; k >= 0; k--) {
        reach += (int64_t)percent[k];
        percent[k] = n ? 100 * (double)reach / (double)n : NAN;
    }
    return n;
}
