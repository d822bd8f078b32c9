/* intensity.c -- see intensity.h. Two passes: squares of small differences do
 * not cancel as the difference of two large sums would. */
#include "data/preprocess/intensity.h"
#include <math.h>

static Intensity find_channel(const float *x, int64_t n, int64_t step)
{
    Intensity out = {.lo = x[0], .hi = x[0]};
    double sum = 0, squares = 0;

    for (int64_t i = 0; i < n; i++) {
        const float v = x[i * step];
        out.lo = v < out.lo ? v : out.lo;
        out.hi = v > out.hi ? v : out.hi;
        sum += (double)v;
    }

    const double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) {
        const double off = (double)x[i * step] - mean;
        squares += off * off;
    }
    out.mean = (float)mean;
    out.sd = (float)sqrt(squares / (double)n);
    return out;
}

int intensity_find(const Volume *v, Intensity out[INTENSITY_CHANNELS])
{
    const int32_t c = v->voxels.dim.c;
    const int count = c < INTENSITY_CHANNELS ? c : INTENSITY_CHANNELS;
    CHECK(v->voxels.type == F32);
    for (int k = 0; k < count; k++)
        out[k] = find_channel((const float *)v->voxels.data + k,
                              numel(v->voxels.dim) / c, c);
    return count;
}
