/* distance.c -- see distance.h.
 *
 * The square of a distance is a sum over the axes, so the minimum over all
 * voxels of the set is a minimum along d of a minimum along h of a minimum
 * along w. Each is, for every voxel x of a line, the lowest of the parabolas
 * g(p) + (mm (x - p))^2 with apexes at the voxels p of the line, where g is the
 * result of the previous axes. The lowest parabola changes only where two
 * neighbours of the lower envelope cross. */
#include "data/distance.h"
#include <math.h>

/* Scratch memory for one line of at most `most` voxels. */
typedef struct Line {
    double *g;    /* result of the previous axes */
    double *from; /* parabola k is the lowest from here on */
    int32_t *at;  /* voxel at the apex of parabola k */
} Line;

/* Sets y (every step-th from y) to the lowest parabola at each of n voxels. */
static void lowest(const Line *l, int32_t n, double mm, double *y, int64_t step)
{
    int32_t top = -1;
    for (int32_t q = 0; q < n; q++) {
        double cross = -INFINITY;
        l->g[q] = y[q * step];
        // no voxel of the set on this line so far
        if (l->g[q] == INFINITY) continue;
        for (; top >= 0; top--) {
            const int32_t p = l->at[top];
            cross = ((l->g[q] - l->g[p]) / (mm * (q - p)) + mm * (q + p)) / 2;
            if (cross > l->from[top]) break;
        }
        if (top < 0) cross = -INFINITY;
        l->at[++top] = q, l->from[top] = cross;
    }

    if (top < 0) return; // the whole line is infinite, and stays so
    for (int32_t q = 0, k = 0; q < n; q++) {
        while (k < top && l->from[k + 1] < mm * q) k++;
        const double e = mm * (q - l->at[k]);
        y[q * step] = l->g[l->at[k]] + e * e;
    }
}

bool distance_squared(const uint8_t *set, Dims n, const double mm[3],
                      double *out)
{
    const int32_t extent[3] = {n.w, n.h, n.d};
    const int64_t step[3] = {1, n.w, (int64_t)n.w * n.h}, all = positions(n);
    size_t most = 0;

    for (int a = 0; a < 3; a++)
        if ((size_t)extent[a] > most) most = (size_t)extent[a];
    Line l = {mem_alloc(most * sizeof *l.g), mem_alloc(most * sizeof *l.from),
              mem_alloc(most * sizeof *l.at)};
    const bool ok = l.g && l.from && l.at;
    for (int64_t i = 0; ok && i < all; i++) out[i] = set[i] ? 0 : INFINITY;

    for (int a = 0; ok && a < 3; a++) {
        // a line begins at every voxel with index 0 along this axis
        const int64_t line = step[a] * extent[a];
        for (int64_t block = 0; extent[a] > 1 && block < all; block += line)
            for (int64_t i = block; i < block + step[a]; i++)
                lowest(&l, extent[a], mm[a], out + i, step[a]);
    }

    mem_free(l.g);
    mem_free(l.from);
    mem_free(l.at);
    return ok;
}

/* The distance outside, then the one inside with the complement as the set. */
bool distance_signed(const uint8_t *set, Dims n, const double mm[3], float *out,
                     int64_t step)
{
    const int64_t all = positions(n);
    uint8_t *other = mem_alloc((size_t)all);
    double *square = mem_alloc((size_t)all * sizeof *square);
    bool ok = other && square && distance_squared(set, n, mm, square);
    bool boundary = ok && isfinite(square[0]);

    for (int64_t i = 0; boundary && i < all; i++) {
        out[i * step] = (float)sqrt(square[i]);
        other[i] = !set[i];
    }

    ok = ok && (!boundary || distance_squared(other, n, mm, square));
    boundary = ok && boundary && isfinite(square[0]);
    for (int64_t i = 0; ok && i < all; i++)
        out[i * step] = boundary ? out[i * step] - (float)sqrt(square[i]) : 0;

    mem_free(other);
    mem_free(square);
    return ok;
}
