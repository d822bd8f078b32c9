/* scale.c -- see scale.h: one axis after the other, w first. Weights are
 * computed once per axis, in double; sums over few voxels run in float. */
#include "data/resample/scale.h"
#include <math.h>
#include <string.h>

/* Taps of voxel i of the result: voxels from .. from + count - 1 of the source
 * with the weights at `weight`. */
typedef struct Taps {
    int32_t from, count;
    float *weight;
} Taps;

/* The source index of result index i along an axis is first + i * step. */
typedef struct Axis {
    int32_t in, out;
    double first, step;
} Axis;

static double filter_at(ScaleFilter filter, double x)
{
    x = fabs(x);
    if (filter == SCALE_TRIANGLE) return x < 1 ? 1 - x : 0;
    if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

/* Makes all taps of an axis in one block of memory, which the caller frees. */
static Taps *make_taps(const Axis *a, ScaleFilter filter)
{
    const double scale = a->step > 1 ? a->step : 1;
    const double reach = (filter == SCALE_TRIANGLE ? 1 : 2) * scale;
    const size_t most = (size_t)(2 * reach) + 3;
    size_t weights, bytes;

    if (!size_mul(most, (size_t)a->out, &weights) ||
        !size_mul(weights, sizeof(float), &weights) ||
        !size_mul((size_t)a->out, sizeof(Taps), &bytes) ||
        !size_add(bytes, weights, &bytes))
        return NULL;

    Taps *taps = mem_alloc(bytes);
    if (!taps) return NULL;
    float *weight = (float *)(taps + a->out);

    for (int32_t i = 0; i < a->out; i++, weight += most) {
        const double at = a->first + i * a->step;
        int32_t lo = (int32_t)fmax(0, ceil(at - reach));
        int32_t hi = (int32_t)fmin(a->in - 1, floor(at + reach));
        double sum = 0;
        // a position beyond the last voxel uses the last voxel
        if (lo > a->in - 1) lo = a->in - 1;
        if (hi < lo) hi = lo;
        for (int32_t j = lo; j <= hi; j++)
            sum += filter_at(filter, (j - at) / scale);
        taps[i] = (Taps){lo, hi - lo + 1, weight};
        for (int32_t j = lo; j <= hi; j++)
            weight[j - lo] =
                sum > 0 ? (float)(filter_at(filter, (j - at) / scale) / sum)
                        : j == lo;
    }
    return taps;
}

/* y = x resized along an axis: `outer` blocks of axis x `inner` elements. */
static void run_axis(const float *x, float *y, const Taps *taps, const Axis *a,
                     int64_t outer, int64_t inner)
{
    for (int64_t o = 0; o < outer; o++, x += a->in * inner)
        for (int32_t i = 0; i < a->out; i++, y += inner) {
            const Taps *t = &taps[i];
            const float *from = x + t->from * inner;
            for (int64_t k = 0; k < inner; k++) y[k] = t->weight[0] * from[k];
            for (int32_t j = 1; j < t->count; j++) {
                from += inner;
                for (int64_t k = 0; k < inner; k++)
                    y[k] += t->weight[j] * from[k];
            }
        }
}

/* Resizes *v along one axis: 0 w, 1 h, 2 d. */
static bool scale_axis(Volume *v, int axis, const Axis *a, ScaleFilter filter)
{
    Dims n = v->voxels.dim, m = n;
    Volume out;
    int64_t inner = n.c, outer;

    *(axis == 0 ? &m.w : axis == 1 ? &m.h : &m.d) = a->out;
    if (axis > 0) inner *= n.w;
    if (axis > 1) inner *= n.h;
    outer = axis == 2 ? 1 : axis == 1 ? n.d : (int64_t)n.d * n.h;
    Taps *taps = make_taps(a, filter);
    if (!taps) return false;
    bool ok = volume_new(&out, m, F32);
    if (ok) run_axis(v->voxels.data, out.voxels.data, taps, a, outer, inner);
    mem_free(taps);
    if (!ok) return false;
    out.unit = v->unit;
    volume_free(v);
    *v = out;
    return true;
}

bool volume_scale(const Volume *v, const Grid *grid, ScaleFilter filter,
                  Volume *out)
{
    const Dims n = v->voxels.dim;
    const int32_t in[3] = {n.w, n.h, n.d}, to[3] = {grid->w, grid->h, grid->d};
    double from[4][4], inverse[4][4], goal[4][4];

    CHECK(v->voxels.type == F32 && v->unit != UNIT_LABEL);
    memcpy(from, v->affine, sizeof from);
    memcpy(goal, grid->affine, sizeof goal);
    if (!affine_invert(from, inverse)) return within("scale");
    affine_multiply(inverse, goal, inverse);
    if (!volume_new(out, n, F32)) return false;
    memcpy(out->voxels.data, v->voxels.data, tensor_bytes(&v->voxels));
    out->unit = v->unit;

    for (int a = 0; a < 3; a++) {
        const Axis axis = {in[a], to[a], inverse[a][3], inverse[a][a]};
        // differences by rounding of the affines are ignored
        bool same = axis.in == axis.out && fabs(axis.first) < 1e-5 &&
                    fabs(axis.step - 1) * axis.out < 1e-5;
        if (same || scale_axis(out, a, &axis, filter)) continue;
        volume_free(out);
        return within("scale");
    }

    memcpy(out->affine, grid->affine, sizeof out->affine);
    return true;
}
