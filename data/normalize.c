/* normalize.c -- intensities of one channel brought to a common scale.
 *
 * A channel of a volume or of a slice is every c-th element of a dense block.
 * Sums run in double in memory order, so the result is one number whatever
 * the number of threads. Percentiles are exact: order statistics, linear
 * between two of them (position p/100 * (n - 1)). */
#include "normalize.h"
#include <math.h>

/* Move the k-th smallest of x[0..n-1] to x[k], nothing larger before it and
 * nothing smaller after it. */
static void partition_at(float *x, int64_t n, int64_t k)
{
    int64_t lo = 0, hi = n - 1;
    while (lo < hi) {
        // the middle as pivot: images are often sorted in stretches
        float pivot = x[lo + (hi - lo) / 2];
        int64_t i = lo, j = hi;
        while (i <= j) {
            while (x[i] < pivot) i++;
            while (x[j] > pivot) j--;
            if (i > j) break;
            float t = x[i];
            x[i++] = x[j];
            x[j--] = t;
        }
        if (k <= j)
            hi = j;
        else if (k >= i)
            lo = i;
        else
            return;
    }
}

/* Percentile of x, whose order is changed; n >= 1. */
static double percentile(float *x, int64_t n, double per_cent)
{
    double at = per_cent / 100 * (double)(n - 1);
    int64_t k = (int64_t)at;
    partition_at(x, n, k);
    if (k + 1 >= n) return (double)x[k];
    float next = x[k + 1];
    for (int64_t i = k + 2; i < n; i++)
        if (x[i] < next) next = x[i];
    return (double)x[k] + (at - (double)k) * ((double)next - (double)x[k]);
}

typedef struct Selected {
    float *x;
    int64_t count, step; /* elements of this channel, distance */
    bool nonzero;
} Selected;

static bool counts(const Selected *s, float x)
{
    return !s->nonzero || x != 0;
}

/* Percentiles of the selected voxels; `work` has room for all of them. */
static void clip_bounds(const Selected *s, const double clip[2], float *work,
                        double *lo, double *hi)
{
    int64_t n = 0;
    *lo = INFINITY, *hi = -INFINITY;
    for (int64_t i = 0; i < s->count; i++) {
        float x = s->x[i * s->step];
        if (!counts(s, x)) continue;
        *lo = fmin(*lo, (double)x);
        *hi = fmax(*hi, (double)x);
        if (work) work[n++] = x;
    }
    if (n && clip[0] > 0) *lo = percentile(work, n, clip[0]);
    if (n && clip[1] < 100) *hi = percentile(work, n, clip[1]);
}

/* y = (x cut to lo..hi - shift) * scale for selected voxels. */
static void apply(const Selected *s, double lo, double hi, double shift,
                  double scale)
{
    for (int64_t i = 0; i < s->count; i++) {
        float *x = &s->x[i * s->step];
        if (counts(s, *x))
            *x = (float)((fmin(fmax((double)*x, lo), hi) - shift) * scale);
    }
}

static void one_channel(const Selected *s, const DataStep *step, float *work)
{
    double lo, hi, n = 0, sum = 0, square = 0;
    clip_bounds(s, step->normalize.clip, work, &lo, &hi);
    // constant, or nothing selected
    if (!(lo < hi)) {
        apply(s, 0, 0, 0, 0);
        return;
    }
    if ((int)step->normalize.method != NORMALIZE_ZSCORE) {
        apply(s, lo, hi, lo, 1 / (hi - lo));
        return;
    }
    for (int64_t i = 0; i < s->count; i++) {
        float x = s->x[i * s->step];
        if (counts(s, x)) sum += fmin(fmax((double)x, lo), hi), n++;
    }
    double mean = sum / n;
    for (int64_t i = 0; i < s->count; i++) {
        float x = s->x[i * s->step];
        if (!counts(s, x)) continue;
        double off = fmin(fmax((double)x, lo), hi) - mean;
        square += off * off;
    }
    double std = sqrt(square / n);
    apply(s, lo, hi, mean, std > 0 ? 1 / std : 0);
}

bool normalize_volume(const DataStep *step, Volume *v)
{
    Dims dim = v->voxels.dim;
    bool slices = (int)step->normalize.per == PER_SLICE;
    int64_t count = (int64_t)dim.h * dim.w * (slices ? 1 : dim.d);
    bool cut = step->normalize.clip[0] > 0 || step->normalize.clip[1] < 100;
    float *work = NULL;
    CHECK(v->voxels.type == F32);
    if (cut && !(work = mem_alloc((size_t)count * sizeof *work))) return false;
    for (int32_t d = 0; d < (slices ? dim.d : 1); d++)
        for (int32_t c = 0; c < dim.c; c++) {
            float *x = (float *)v->voxels.data + d * count * dim.c + c;
            Selected s = {x, count, dim.c, step->normalize.nonzero != 0};
            one_channel(&s, step, work);
        }
    mem_free(work);
    v->unit = UNIT_NONE;
    return true;
}
