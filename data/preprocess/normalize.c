/* normalize.c -- intensities of one channel brought to a common scale.
 *
 * A channel of a volume or of a slice is every c-th element of a dense block.
 * Sums run in double in memory order, so the result is one number whatever
 * the number of threads. Percentiles are exact: order statistics, linear
 * between two of them (position p/100 * (n - 1)). */
#include "data/preprocess/normalize.h"
#include <math.h>

/* Move the k-th smallest of x[0..n-1] to x[k], nothing larger before it and
 * nothing smaller after it. */
static void partition_at(float *x, int64_t n, int64_t k)
{
    int64_t lo = 0, hi = n - 1;
    while (lo < hi) {
        // the middle as pivot: images are often sorted in stretches
        // after the inner loop: x[lo..j] <= pivot <= x[i..hi], and what lies
        // between j and i equals it
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
    // position between two order statistics, 0 .. n - 1
    double at = per_cent / 100 * (double)(n - 1);
    int64_t k = (int64_t)at;
    partition_at(x, n, k);
    if (k + 1 >= n) return (double)x[k];
    // everything behind k is not smaller: the next one is the least of it
    float next = x[k + 1];
    for (int64_t i = k + 2; i < n; i++)
        if (x[i] < next) next = x[i];
    return (double)x[k] + (at - (double)k) * ((double)next - (double)x[k]);
}

/* One channel of a volume or slice, and which of its voxels take part. */
typedef struct Selected {
    float *x;
    int64_t count, step; /* elements of this channel, distance */
    bool nonzero;        /* 0 is no value: not counted, not changed */
} Selected;

/* What was met in all slices of a channel, to say why it was refused. */
typedef struct Seen {
    double lo, hi; /* least and greatest selected value, before any clip */
    int64_t count; /* selected voxels                                    */
    bool contrast; /* some slice was brought to the scale                */
} Seen;

static bool counts(const Selected *s, float x)
{
    return !s->nonzero || x != 0;
}

/* x cut to lo .. hi. Values are finite here, so that comparisons do, which take
 * a tenth of the time of fmin and fmax. */
static inline double cut(double x, double lo, double hi)
{
    x = x > lo ? x : lo;
    return x < hi ? x : hi;
}

/* *lo and *hi = percentiles clip[0] and clip[1] of the selected voxels, where
 * 0 and 100 are the extremes and need no sorting; nothing selected: +inf and
 * -inf. `work` has room for all voxels, NULL when only extremes are asked. */
static void clip_bounds(const Selected *s, const double clip[2], float *work,
                        double *lo, double *hi, Seen *seen)
{
    int64_t n = 0;
    float least = INFINITY, most = -INFINITY;
    for (int64_t i = 0; i < s->count; i++) {
        float x = s->x[i * s->step];
        if (!counts(s, x)) continue;
        least = x < least ? x : least;
        most = x > most ? x : most;
        seen->count++;
        if (work) work[n++] = x;
    }
    *lo = (double)least, *hi = (double)most;
    seen->lo = fmin(seen->lo, *lo);
    seen->hi = fmax(seen->hi, *hi);
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
            *x = (float)((cut((double)*x, lo, hi) - shift) * scale);
    }
}

/* Bring one channel of one volume or slice to the scale. Two passes for the
 * standard deviation: the mean first, then squares of small differences, which
 * do not cancel as the difference of two large sums would. */
static void one_channel(const Selected *s, const DataStep *step, float *work,
                        Seen *seen)
{
    double lo, hi, n = 0, sum = 0, square = 0;
    clip_bounds(s, step->normalize.clip, work, &lo, &hi, seen);
    // constant, or nothing selected; the caller judges all slices together
    seen->contrast = seen->contrast || lo < hi;
    if (!(lo < hi)) {
        // selected voxels become 0; without `nonzero` these are all
        apply(s, 0, 0, 0, 0);
        return;
    }
    if ((int)step->normalize.method != NORMALIZE_ZSCORE) {
        // minmax, of the values that are left after the cut
        apply(s, lo, hi, lo, 1 / (hi - lo));
        return;
    }
    for (int64_t i = 0; i < s->count; i++) {
        float x = s->x[i * s->step];
        if (counts(s, x)) sum += cut((double)x, lo, hi), n++;
    }
    double mean = sum / n;
    for (int64_t i = 0; i < s->count; i++) {
        float x = s->x[i * s->step];
        if (!counts(s, x)) continue;
        double off = cut((double)x, lo, hi) - mean;
        square += off * off;
    }
    // of the whole population (n, not n - 1), as torch.std(unbiased=False)
    double std = sqrt(square / n);
    apply(s, lo, hi, mean, std > 0 ? 1 / std : 0);
}

/* Why a channel cannot be normalized. */
static bool no_contrast(const DataStep *step, const Seen *seen, int64_t voxels)
{
    static const char fix[] = "fix: look at the file; leave the case out if "
                              "this is all it holds";
    const double *clip = step->normalize.clip;
    if (!seen->count)
        return fail_data("all %lld voxels are 0, there is nothing to "
                         "normalize; %s",
                         (long long)voxels, fix);
    if (seen->lo == seen->hi)
        return fail_data("all %lld voxels%s are %g, there is nothing to "
                         "normalize; %s",
                         (long long)seen->count,
                         seen->count < voxels ? " beside 0" : "", seen->lo,
                         fix);
    return fail_data("values from %g to %g, but percentiles %g and %g are the "
                     "same%s; fix: a wider clip, or nonzero = true",
                     seen->lo, seen->hi, clip[0], clip[1],
                     step->normalize.per == PER_SLICE ? " in every slice" : "");
}

bool normalize_volume(const DataStep *step, Volume *v, int *channel)
{
    Dims dim = v->voxels.dim;
    bool slices = (int)step->normalize.per == PER_SLICE;
    // together: the dense block is one channel
    const bool together = step->normalize.together != 0;
    const int32_t channels = together ? 1 : dim.c;
    int64_t count =
        (int64_t)dim.h * dim.w * (slices ? 1 : dim.d) * (dim.c / channels);
    bool cut = step->normalize.clip[0] > 0 || step->normalize.clip[1] < 100;
    float *work = NULL;
    CHECK(v->voxels.type == F32);
    *channel = -1;
    // only percentiles need a copy that may be reordered
    if (cut && !(work = mem_alloc((size_t)count * sizeof *work))) return false;
    bool ok = true;
    for (int32_t c = 0; ok && c < channels; c++) {
        Seen seen = {.lo = INFINITY, .hi = -INFINITY};
        for (int32_t d = 0; d < (slices ? dim.d : 1); d++) {
            float *x = (float *)v->voxels.data + d * count * channels + c;
            Selected s = {x, count, channels, step->normalize.nonzero != 0};
            one_channel(&s, step, work, &seen);
        }
        ok = seen.contrast ||
             no_contrast(step, &seen, positions(dim) * (dim.c / channels));
        if (!ok) *channel = c;
    }
    mem_free(work);
    v->unit = UNIT_NONE;
    return ok;
}
