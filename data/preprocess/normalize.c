/* normalize.c -- scales the intensities of a channel.
 *
 * A channel of a volume or of a slice is every c-th element of a dense block.
 * Sums run in double in memory order, so the result does not depend on the
 * number of threads. Percentiles are exact: order statistics, linear between
 * two of them (position p/100 * (n - 1)). */
#include "data/preprocess/normalize.h"
#include <math.h>

/* Moves the k-th smallest of x[0..n-1] to x[k], so that no element before it is
 * larger and no element after it is smaller. */
static void partition_at(float *x, int64_t n, int64_t k)
{
    int64_t lo = 0, hi = n - 1;
    while (lo < hi) {
        // the middle as pivot: images often have sorted runs. After the inner
        // loop: x[lo..j] <= pivot <= x[i..hi], and elements between j and i
        // equal pivot
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

/* Percentile of x, which is reordered; n >= 1. */
static double percentile(float *x, int64_t n, double per_cent)
{
    // position between two order statistics, 0 .. n - 1
    double at = per_cent / 100 * (double)(n - 1);
    int64_t k = (int64_t)at;
    partition_at(x, n, k);
    if (k + 1 >= n) return (double)x[k];
    // elements after k are not smaller: the next order statistic is their
    // minimum
    float next = x[k + 1];
    for (int64_t i = k + 2; i < n; i++)
        if (x[i] < next) next = x[i];
    return (double)x[k] + (at - (double)k) * ((double)next - (double)x[k]);
}

/* One channel of a volume or slice, and which of its voxels are selected. */
typedef struct Selected {
    float *x;
    int64_t count, step; /* elements of this channel, distance */
    bool nonzero;        /* 0 is not selected: not counted, not changed */
} Selected;

/* Statistics over all slices of a channel, for the error text. */
typedef struct Seen {
    double lo, hi; /* smallest and largest selected value, before clipping */
    int64_t count; /* selected voxels                                    */
    bool contrast; /* some slice had contrast                            */
} Seen;

static bool counts(const Selected *s, float x)
{
    return !s->nonzero || x != 0;
}

/* Clips x to lo .. hi. Values are finite here, so that comparisons suffice,
 * which take a tenth of the time of fmin and fmax. */
static inline double cut(double x, double lo, double hi)
{
    x = x > lo ? x : lo;
    return x < hi ? x : hi;
}

/* *lo and *hi = percentiles clip[0] and clip[1] of the selected voxels; 0 and
 * 100 are the extremes and need no sorting. No selected voxel: +inf and -inf.
 * `work` has room for all voxels; NULL if only extremes are needed. */
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

/* y = (x clipped to lo..hi - shift) * scale for selected voxels. */
static void apply(const Selected *s, double lo, double hi, double shift,
                  double scale)
{
    for (int64_t i = 0; i < s->count; i++) {
        float *x = &s->x[i * s->step];
        if (counts(s, *x))
            *x = (float)((cut((double)*x, lo, hi) - shift) * scale);
    }
}

/* Scales one channel of one volume or slice. The standard deviation takes two
 * passes: the mean first, then squares of small differences, which do not
 * cancel as the difference of two large sums would. */
static void one_channel(const Selected *s, const DataStep *step, float *work,
                        Seen *seen)
{
    double lo, hi, n = 0, sum = 0, square = 0;
    clip_bounds(s, step->normalize.clip, work, &lo, &hi, seen);

    // constant, or no voxel selected; the caller checks all slices together
    seen->contrast = seen->contrast || lo < hi;
    if (!(lo < hi)) {
        // selected voxels become 0; without `nonzero` all voxels are selected
        apply(s, 0, 0, 0, 0);
        return;
    }

    if ((int)step->normalize.method != NORMALIZE_ZSCORE) {
        // minmax, of the values after clipping
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

    // population standard deviation (n, not n - 1), as
    // torch.std(unbiased=False)
    double std = sqrt(square / n);
    apply(s, lo, hi, mean, std > 0 ? 1 / std : 0);
}

/* Fails with the reason why a channel cannot be normalised. */
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
                         seen->count < voxels ? " except zeros" : "", seen->lo,
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
