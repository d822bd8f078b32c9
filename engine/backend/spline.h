/* spline.h -- smooth displacements: a grid of control points and the cubic
 * B-spline between them.
 *
 * Along an axis of n voxels control point i lies at voxel (i - 1) spacing, and
 * there are as many as reach every voxel; along an axis of one voxel there is
 * one of weight 1. At voxel v, with u = v / spacing and t = u -
 * floor(u), the four from floor(u) on have the weights
 *
 *     (1 - t)^3 / 6   (3 t^3 - 6 t^2 + 4) / 6
 *     (-3 t^3 + 3 t^2 + 3 t + 1) / 6   t^3 / 6
 *
 * whose sum is 1. Source: Rueckert et al., IEEE TMI 18 (1999), 712. Computed in
 * double and in a fixed order (along d first, then h, then w), so that host and
 * device get the same coordinates. */
#ifndef SEG_ENGINE_BACKEND_SPLINE_H
#define SEG_ENGINE_BACKEND_SPLINE_H
#include "engine/base/rng.h"
#include "engine/graph/tensor.h"

typedef struct Elastic {
    double spacing, amplitude; /* voxels; of each control point and axis */
    int32_t n[3];              /* control points along w, h, d           */
} Elastic;

/* Control points that `size` voxels need. */
HOST_DEVICE int32_t spline_points(double spacing, int32_t size)
{
    return size == 1 ? 1 : (int32_t)((size - 1) / spacing) + 4;
}

/* Returns the number of control points of all three axes together. */
HOST_DEVICE int64_t elastic_points(const Elastic *e)
{
    return (int64_t)e->n[0] * e->n[1] * e->n[2];
}

/* Computes the displacement of control point `i` (w fastest) along w, h and d,
 * from draws 0, 1, 2 of its own block of four; block 0 of `r` chooses the
 * parameters of the change. */
HOST_DEVICE void elastic_point(const Elastic *e, const Rng *r, int64_t i,
                               double out[3])
{
    uint32_t word[4];
    rng_block(r, 1 + (uint32_t)i, word);
    for (int a = 0; a < 3; a++)
        out[a] = e->amplitude * (2 * (double)rng_unit(word[a]) - 1);
}

/* Control points that contribute to a voxel along one axis: `count` from
 * `first`, with weights w. */
typedef struct Taps {
    int32_t first, count;
    double w[4];
} Taps;

HOST_DEVICE Taps spline_taps(double spacing, int32_t points, int32_t at)
{
    Taps k = {0, 1, {1, 0, 0, 0}};
    if (points == 1) return k;
    const double u = at / spacing;
    k.first = (int32_t)u, k.count = 4;
    const double t = u - k.first, s = 1 - t;
    k.w[0] = s * s * s / 6;
    k.w[1] = (3 * t * t * t - 6 * t * t + 4) / 6;
    k.w[2] = (-3 * t * t * t + 3 * t * t + 3 * t + 1) / 6;
    k.w[3] = t * t * t / 6;
    return k;
}

/* Returns the weighted sum of x[0], x[step], ... */
HOST_DEVICE double spline_sum(const Taps *k, const double *x, int64_t step)
{
    double sum = k->w[0] * x[0];
    for (int i = 1; i < k->count; i++) sum += k->w[i] * x[i * step];
    return sum;
}

/* Computes the displacement of voxel (w, h, d) along each axis. `points` has
 * the displacements of all control points, (d, h, w, 3). */
HOST_DEVICE void elastic_move(const Elastic *e, const double *points, int32_t w,
                              int32_t h, int32_t d, double out[3])
{
    const Taps kw = spline_taps(e->spacing, e->n[0], w);
    const Taps kh = spline_taps(e->spacing, e->n[1], h);
    const Taps kd = spline_taps(e->spacing, e->n[2], d);
    const int64_t row = 3 * (int64_t)e->n[0], slice = row * e->n[1];
    const double *x =
        points + kd.first * slice + kh.first * row + 3 * (int64_t)kw.first;
    for (int a = 0; a < 3; a++) {
        double along_w[4], along_h[4];
        for (int i = 0; i < kw.count; i++) {
            for (int j = 0; j < kh.count; j++)
                along_h[j] = spline_sum(&kd, x + j * row + 3 * i + a, slice);
            along_w[i] = spline_sum(&kh, along_h, 1);
        }
        out[a] = spline_sum(&kw, along_w, 1);
    }
}
#endif
