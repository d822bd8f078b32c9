/* crop.c -- see crop.h. Rows are copied in the order of memory; padding is
 * filled before. */
#include "data/resample/crop.h"
#include <string.h>

/* Sets every voxel of `out` to the smallest value of each channel of v. */
static void fill_background(const Volume *v, Volume *out)
{
    int64_t n = positions(v->voxels.dim), c = v->voxels.dim.c;
    int64_t m = positions(out->voxels.dim);
    const float *x = v->voxels.data;
    float *y = out->voxels.data;
    for (int64_t k = 0; k < c; k++) y[k] = numbers_lowest(x + k, n, c);
    for (int64_t p = 1; p < m; p++) memcpy(y + p * c, y, (size_t)c * sizeof *y);
}

/* Copies the rows of v that lie in the box; all channels of a voxel at once. */
static void copy_rows(const Volume *v, const Box *box, Volume *out)
{
    const Dims n = v->voxels.dim, m = out->voxels.dim;
    const int32_t w0 = box->from[0];
    const int32_t from = w0 < 0 ? -w0 : 0;
    const int32_t to = n.w - w0 < m.w ? n.w - w0 : m.w;
    const size_t size = dtype_bytes(v->voxels.type) * (size_t)n.c;

    for (int32_t d = 0; d < m.d; d++)
        for (int32_t h = 0; h < m.h; h++) {
            int32_t sd = d + box->from[2], sh = h + box->from[1];
            if (sd < 0 || sd >= n.d || sh < 0 || sh >= n.h || from >= to)
                continue;
            int64_t at = ((int64_t)sd * n.h + sh) * n.w + from + w0;
            int64_t into = ((int64_t)d * m.h + h) * m.w + from;
            memcpy((char *)out->voxels.data + (size_t)into * size,
                   (const char *)v->voxels.data + (size_t)at * size,
                   (size_t)(to - from) * size);
        }
}

bool volume_cut(const Volume *v, const Box *box, bool background, Volume *out)
{
    const Grid grid = volume_grid_cut(v, box->from, box->n);
    const Dims m = {1, grid.d, grid.h, grid.w, v->voxels.dim.c};
    CHECK(!background || v->voxels.type == F32);
    if (!volume_new(out, m, v->voxels.type)) return false;
    memcpy(out->affine, grid.affine, sizeof out->affine);
    out->unit = v->unit;
    if (background) fill_background(v, out);
    copy_rows(v, box, out);
    return true;
}

Box volume_box_fit(const Volume *v, int d, int h, int w, bool start)
{
    const int want[3] = {w, h, d};
    Box box;
    volume_extents(v, box.n);
    for (int a = 0; a < 3; a++) {
        int32_t to = want[a] ? want[a] : box.n[a];
        // truncate for crop and pad alike, so that one undoes the other
        box.from[a] = start ? 0 : (box.n[a] - to) / 2;
        box.n[a] = to;
    }
    return box;
}

bool volume_box_above(const Volume *v, float level, int32_t margin, Box *out)
{
    const Dims n = v->voxels.dim;
    const bool bytes = v->voxels.type == U8;
    const uint8_t *u8 = v->voxels.data;
    const float *f32 = v->voxels.data;
    int32_t lo[3] = {n.w, n.h, n.d}, hi[3] = {-1, -1, -1}, size[3];

    CHECK(bytes || v->voxels.type == F32);
    volume_extents(v, size);

    for (int64_t i = 0; i < numel(n); i++) {
        if (!((bytes ? u8[i] : f32[i]) > level)) continue;
        const int64_t p = i / n.c;
        const int32_t at[3] = {(int32_t)(p % n.w), (int32_t)(p / n.w % n.h),
                               (int32_t)(p / n.w / n.h)};
        for (int a = 0; a < 3; a++) {
            if (at[a] < lo[a]) lo[a] = at[a];
            if (at[a] > hi[a]) hi[a] = at[a];
        }
    }

    if (hi[0] < 0)
        return fail_data("no voxel is above %g: there is nothing to crop to",
                         (double)level);

    for (int a = 0; a < 3; a++) {
        // in 64 bits, because the margin has no limit
        int64_t from = (int64_t)lo[a] - margin, to = (int64_t)hi[a] + margin;
        if (from < 0) from = 0;
        if (to > size[a] - 1) to = size[a] - 1;
        out->from[a] = (int32_t)from;
        out->n[a] = (int32_t)(to - from + 1);
    }
    return true;
}
