/* scale.h -- resizes a volume with a low-pass filter (antialiasing).
 *
 * Linear interpolation reads the two voxels next to a position. If a picture
 * becomes a quarter as wide, this skips half of its pixels, and thin lines
 * appear and disappear. A filter as wide as a new voxel does not. */
#ifndef SEG_DATA_RESAMPLE_SCALE_H
#define SEG_DATA_RESAMPLE_SCALE_H
#include "data/volume.h"

typedef enum ScaleFilter {
    SCALE_TRIANGLE, /* 1 - |x|                                              */
    SCALE_CUBIC,    /* Keys, IEEE ASSP 29 (1981), a = -1/2: sharper, and may
                     * slightly exceed the range of the source */
} ScaleFilter;

/* out = v (F32) on a grid with the axes of v, as from volume_grid_at and
 * volume_grid_resize. Along each axis a voxel of the result at source index p
 * is sum_j f((j - p) / s) x_j / sum_j f((j - p) / s) over the voxels j of v, s
 * = max(1, source voxels per new voxel). The same as
 * interpolate(antialias=True) of PyTorch. An unchanged axis is copied. Fails
 * without memory. */
bool volume_scale(const Volume *v, const Grid *grid, ScaleFilter filter,
                  Volume *out);
#endif
