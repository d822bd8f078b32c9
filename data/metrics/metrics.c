/* metrics.c -- see metrics.h. */
#include "data/metrics/metrics.h"
#include "data/metrics/roc.h"
#include <math.h>
#include <string.h>

/* One voxel of all volumes. */
typedef struct Voxel {
    const float *p, *t, *m; /* its channels; m NULL: the voxel counts */
} Voxel;

static int channels(const Volume *v)
{
    return v->voxels.dim.c;
}

static int64_t voxels_of(const Measured *m)
{
    return positions(m->prediction->voxels.dim);
}

static Voxel voxel_at(const Measured *m, int64_t i)
{
    const float *p = m->prediction->voxels.data, *t = m->truth->voxels.data;
    const float *k = m->mask ? m->mask->voxels.data : NULL;
    return (Voxel){p + i * channels(m->prediction), t + i * channels(m->truth),
                   k ? k + i * channels(m->mask) : NULL};
}

/* Is voxel i in a slice that counts? */
static bool is_used(const Measured *m, int64_t i)
{
    const Dims n = m->prediction->voxels.dim;
    return !m->used || m->used[i / ((int64_t)n.h * n.w)];
}

/* Does channel k of the voxel count? */
static bool counts(const Measured *m, const Voxel *v, int k)
{
    return !v->m || v->m[channels(m->mask) > 1 ? k : 0] != 0;
}

/* Returns the predicted class, -1: none. */
static int predicted_class(const Measured *m, const Voxel *v)
{
    const int c = channels(m->prediction);
    int best = 0;
    if (c == 1) return (double)v->p[0] > m->threshold ? 0 : -1;
    for (int k = 1; k < c; k++)
        if (v->p[k] > v->p[best]) best = k;
    return best;
}

/* Is class k true? */
static bool is_true(const Measured *m, const Voxel *v, int k)
{
    const int c = channels(m->truth);
    if (channels(m->prediction) > 1 && c == 1) return v->t[0] == (float)k;
    return v->t[c > 1 ? k : 0] >= 0.5f;
}

bool measure_check(const Measured *m)
{
    const Volume *all[3] = {m->prediction, m->truth, m->mask};
    const Dims n = m->prediction->voxels.dim;

    for (int i = 0; i < 3; i++) {
        if (!all[i]) continue;
        const Dims d = all[i]->voxels.dim;
        if (all[i]->voxels.type != F32)
            return fail_usage("the volumes to compare must be F32, got %s",
                              dtype_name(all[i]->voxels.type));
        if (d.d != n.d || d.h != n.h || d.w != n.w)
            return fail_usage("the volumes to compare must lie on one grid, "
                              "got %dx%dx%d and %dx%dx%d",
                              (int)n.w, (int)n.h, (int)n.d, (int)d.w, (int)d.h,
                              (int)d.d);
    }
    return true;
}

int64_t measure_overlap(const Measured *m, int64_t *count)
{
    const int c = channels(m->prediction);
    int64_t all = 0;
    memset(count, 0, 3 * (size_t)c * sizeof *count);

    for (int64_t i = 0; i < voxels_of(m); i++) {
        if (!is_used(m, i)) continue;
        const Voxel v = voxel_at(m, i);
        const int best = predicted_class(m, &v);
        all += counts(m, &v, 0);
        for (int k = 0; k < c; k++) {
            if (!counts(m, &v, k)) continue;
            const bool p = k == best, t = is_true(m, &v, k);
            count[3 * k] += p && t;
            count[3 * k + 1] += p;
            count[3 * k + 2] += t;
        }
    }
    return all;
}

void measure_confusion(const Measured *m, int64_t *count)
{
    const int c = channels(m->prediction), k = c > 1 ? c : 2;
    memset(count, 0, (size_t)k * (size_t)k * sizeof *count);
    for (int64_t i = 0; i < voxels_of(m); i++) {
        if (!is_used(m, i)) continue;
        const Voxel v = voxel_at(m, i);
        if (!counts(m, &v, 0)) continue;
        const int best = predicted_class(m, &v) + (c == 1);
        const float t = c > 1 ? v.t[0] : (float)is_true(m, &v, 0);
        if (t >= 0 && t < (float)k && t == floorf(t))
            count[(int)t * k + best]++;
    }
}

bool measure_surface(const Measured *m, int k, double tolerance_mm,
                     Surface *out)
{
    const int64_t n = voxels_of(m);
    double mm[3];
    uint8_t *a = mem_alloc((size_t)n), *b = mem_alloc((size_t)n);
    bool ok = a && b;

    for (int64_t i = 0; ok && i < n; i++) {
        const Voxel v = voxel_at(m, i);
        if (!is_used(m, i) || !counts(m, &v, k)) continue;
        a[i] = predicted_class(m, &v) == k;
        b[i] = is_true(m, &v, k);
    }

    volume_spacing_mm(m->prediction, mm);
    ok = ok && surface_compare(a, b, m->prediction->voxels.dim, mm,
                               tolerance_mm, out);
    mem_free(a);
    mem_free(b);
    return ok;
}

bool measure_roc(const Measured *m, int k, double *area)
{
    const int64_t n = voxels_of(m);
    size_t bytes;
    if (!size_mul((size_t)n, sizeof(float), &bytes)) return false;
    float *score = mem_alloc(bytes);
    uint8_t *truth = mem_alloc((size_t)n);
    int64_t count = 0;
    bool ok = score && truth;

    for (int64_t i = 0; ok && i < n; i++) {
        const Voxel v = voxel_at(m, i);
        if (!is_used(m, i) || !counts(m, &v, k)) continue;
        score[count] = v.p[k];
        truth[count++] = is_true(m, &v, k);
    }

    ok = ok && roc_area(score, truth, count, area);
    mem_free(score);
    mem_free(truth);
    return ok;
}

void measure_error(const Measured *m, double *sum, int64_t *n)
{
    const int c = channels(m->prediction);
    for (int k = 0; k < c; k++) sum[k] = 0, n[k] = 0;

    for (int64_t i = 0; i < voxels_of(m); i++) {
        if (!is_used(m, i)) continue;
        const Voxel v = voxel_at(m, i);
        for (int k = 0; k < c; k++) {
            if (!counts(m, &v, k)) continue;
            const float t = v.t[channels(m->truth) > 1 ? k : 0];
            sum[k] += fabs((double)v.p[k] - (double)t);
            n[k]++;
        }
    }
}

/* Returns the dose and one structure, one element per voxel, in one block from
 * mem_alloc; *inside points to the second half and is not freed by itself. NULL
 * without memory. */
static float *dose_of(const Measured *m, int channel, const float **inside)
{
    const int64_t n = voxels_of(m);
    size_t bytes;
    if (!size_mul((size_t)n, 2 * sizeof(float), &bytes)) return NULL;
    float *dose = mem_alloc(bytes);

    for (int64_t i = 0; dose && i < n; i++) {
        const Voxel v = voxel_at(m, i);
        // slices that are not used are outside the structure too
        const bool used = is_used(m, i);
        dose[i] = used && counts(m, &v, 0) ? v.p[0] : 0;
        dose[n + i] = used ? v.t[channel] : 0;
    }

    *inside = dose ? dose + n : NULL;
    return dose;
}

bool measure_dvh(const Measured *m, int channel, Dvh *out)
{
    const float *inside;
    double mm[3];
    float *dose = dose_of(m, channel, &inside);
    volume_spacing_mm(m->prediction, mm);
    const bool ok = dose && dvh_points(dose, inside, voxels_of(m),
                                       mm[0] * mm[1] * mm[2], out);
    mem_free(dose);
    return ok;
}

bool measure_dvh_curve(const Measured *m, int channel, double first,
                       double step, int points, double *percent,
                       int64_t *voxels)
{
    const float *inside;
    float *dose = dose_of(m, channel, &inside);
    if (!dose) return false;
    *voxels =
        dvh_curve(dose, inside, voxels_of(m), first, step, points, percent);
    mem_free(dose);
    return true;
}

void measure_reliability(const Measured *m, int64_t yes[MEASURE_BINS],
                         int64_t no[MEASURE_BINS])
{
    for (int b = 0; b < MEASURE_BINS; b++) yes[b] = no[b] = 0;
    for (int64_t i = 0; i < voxels_of(m); i++) {
        if (!is_used(m, i)) continue;
        const Voxel v = voxel_at(m, i);
        if (!counts(m, &v, 0)) continue;
        // p = 0 and p = 1 go to the first and last bin
        const double p = (double)v.p[0], z = log(p / (1 - p)) / MEASURE_BIN;
        const double half = MEASURE_BINS / 2;
        const int b = (int)(fmax(-half, fmin(floor(z), half - 1)) + half);
        (is_true(m, &v, 0) ? yes : no)[b]++;
    }
}

/* Returns the number of thresholds j / steps, 0 < j < steps, below p. */
static int thresholds_below(double p, int steps)
{
    int j = (int)fmin(fmax(p, 0) * steps, steps - 1);
    // the product may be off by one rounding; the comparison decides
    while (j > 0 && !(p > (double)j / steps)) j--;
    while (j < steps - 1 && p > (double)(j + 1) / steps) j++;
    return j;
}

void measure_thresholds(const Measured *m, int steps, int64_t *both,
                        int64_t *predicted, int64_t *truth)
{
    *truth = 0;
    for (int j = 0; j < steps; j++) both[j] = predicted[j] = 0;

    for (int64_t i = 0; i < voxels_of(m); i++) {
        if (!is_used(m, i)) continue;
        const Voxel v = voxel_at(m, i);
        if (!counts(m, &v, 0)) continue;
        const bool t = is_true(m, &v, 0);
        const int j = thresholds_below((double)v.p[0], steps);
        *truth += t;
        predicted[j]++;
        both[j] += t;
    }

    // a value above a threshold is above all lower thresholds
    for (int j = steps - 1; j > 0; j--) {
        both[j - 1] += both[j];
        predicted[j - 1] += predicted[j];
    }
}
