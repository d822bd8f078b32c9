/* surface.c -- see surface.h.
 *
 * Works in the smallest box that holds both masks: outside it both are empty,
 * so no surface changes, and the nearest voxel of the other surface lies inside
 * it. A liver in a scan of the trunk takes a tenth of the grid. */
#include "data/metrics/surface.h"
#include "data/distance.h"
#include "data/percentile.h"
#include <math.h>

/* A box in the grid: its first voxel and extents along w, h, d. */
typedef struct Frame {
    int32_t from[3], n[3];
    bool flat[3]; /* axes along which the grid has one voxel */
} Frame;

/* Finds the smallest box with all voxels of both masks; counts the voxels. */
static Frame find_frame(const uint8_t *a, const uint8_t *b, Dims n,
                        int64_t voxels[2])
{
    int32_t lo[3] = {n.w, n.h, n.d}, hi[3] = {-1, -1, -1};
    int64_t i = 0;

    for (int32_t d = 0; d < n.d; d++)
        for (int32_t h = 0; h < n.h; h++)
            for (int32_t w = 0; w < n.w; w++, i++) {
                const int32_t at[3] = {w, h, d};
                if (!a[i] && !b[i]) continue;
                voxels[0] += a[i] != 0, voxels[1] += b[i] != 0;
                for (int k = 0; k < 3; k++) {
                    if (at[k] < lo[k]) lo[k] = at[k];
                    if (at[k] > hi[k]) hi[k] = at[k];
                }
            }

    Frame f = {.flat = {n.w == 1, n.h == 1, n.d == 1}};
    for (int k = 0; k < 3; k++) {
        f.from[k] = hi[k] < 0 ? 0 : lo[k];
        f.n[k] = hi[k] < 0 ? 0 : hi[k] - lo[k] + 1;
    }
    return f;
}

/* Marks the surface of x in out, which has the extents of the frame. */
static int64_t mark_surface(const uint8_t *x, Dims n, const Frame *f,
                            uint8_t *out)
{
    const int64_t step[3] = {1, n.w, (int64_t)n.w * n.h};
    const int32_t all[3] = {n.w, n.h, n.d};
    int64_t count = 0;

    for (int32_t d = 0; d < f->n[2]; d++)
        for (int32_t h = 0; h < f->n[1]; h++)
            for (int32_t w = 0; w < f->n[0]; w++) {
                const int32_t at[3] = {f->from[0] + w, f->from[1] + h,
                                       f->from[2] + d};
                const int64_t i = at[0] + at[1] * step[1] + at[2] * step[2];
                bool edge = false;
                for (int k = 0; x[i] && !edge && k < 3; k++) {
                    if (f->flat[k]) continue;
                    edge = at[k] == 0 || !x[i - step[k]] ||
                           at[k] == all[k] - 1 || !x[i + step[k]];
                }
                *out++ = edge;
                count += edge;
            }
    return count;
}

/* Writes the distances of the voxels of `from` to the nearest voxel of `to` to
 * `out`, in the order of memory; `square` is scratch memory. */
static bool measure(const uint8_t *from, const uint8_t *to, Dims box,
                    const double mm[3], double *square, double *out)
{
    if (!distance_squared(to, box, mm, square)) return false;
    for (int64_t i = 0; i < positions(box); i++)
        if (from[i]) *out++ = sqrt(square[i]);
    return true;
}

/* mean of n numbers */
static double mean_of(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum / (double)n;
}

/* x: na distances from A to B followed by nb distances from B to A */
static void summarise(double *x, int64_t na, int64_t nb, double tolerance_mm,
                      Surface *out)
{
    const int64_t n = na + nb;
    int64_t near = 0;
    numbers_sort(x, na);
    numbers_sort(x + na, nb);
    for (int64_t i = 0; i < n; i++) near += x[i] <= tolerance_mm;
    out->asd[0] = mean_of(x, na), out->asd[1] = mean_of(x + na, nb);
    out->hd95 = fmax(percentile_of(x, na, 95), percentile_of(x + na, nb, 95));
    out->hd = fmax(x[na - 1], x[n - 1]);
    out->within = (double)near / (double)n;
    numbers_sort(x, n);
    out->assd = mean_of(x, n);
    out->hd95_union = percentile_of(x, n, 95);
}

bool surface_compare(const uint8_t *a, const uint8_t *b, Dims n,
                     const double mm[3], double tolerance_mm, Surface *out)
{
    uint8_t *edge[2] = {NULL, NULL};
    double *square = NULL, *x = NULL;
    bool ok = false;

    *out = (Surface){{0, 0}, NAN, NAN, NAN, {NAN, NAN}, NAN, NAN};
    const Frame f = find_frame(a, b, n, out->voxels);
    if (!out->voxels[0] || !out->voxels[1]) return true;
    const Dims box = {1, f.n[2], f.n[1], f.n[0], 1};
    const size_t size = (size_t)positions(box);
    edge[0] = mem_alloc(size);
    edge[1] = mem_alloc(size);
    square = mem_alloc(size * sizeof *square);
    TRY(edge[0] && edge[1] && square);
    const int64_t na = mark_surface(a, n, &f, edge[0]);
    const int64_t nb = mark_surface(b, n, &f, edge[1]);
    x = mem_alloc((size_t)(na + nb) * sizeof *x);
    TRY(x && measure(edge[0], edge[1], box, mm, square, x) &&
        measure(edge[1], edge[0], box, mm, square, x + na));
    summarise(x, na, nb, tolerance_mm, out);
    ok = true;

done:
    mem_free(edge[0]);
    mem_free(edge[1]);
    mem_free(square);
    mem_free(x);
    return ok;
}
