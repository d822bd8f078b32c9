/* scale.h -- a volume at another size, with all of its voxels taken in.
 *
 * Linear interpolation reads the two voxels next to a place, so where a picture
 * becomes a quarter as wide it passes over half of them, and thin lines come
 * and go. A filter as wide as what a new voxel covers does not. */
#ifndef SEG_DATA_RESAMPLE_SCALE_H
#define SEG_DATA_RESAMPLE_SCALE_H
#include "data/volume.h"

typedef enum ScaleFilter {
    SCALE_TRIANGLE, /* 1 - |x|                                              */
    SCALE_CUBIC,    /* Keys, IEEE ASSP 29 (1981), a = -1/2: sharper, and may go
                     * a little beyond the values that there were           */
} ScaleFilter;

/* out = v (F32) on a grid with the axes of v, as volume_grid_at and
 * volume_grid_resize give one. Along each axis a voxel of the result at source
 * index p is sum_j f((j - p) / s) x_j / sum_j f((j - p) / s) over the voxels j
 * that there are, s = max(1, source voxels to a new one). The same as PyTorch's
 * interpolate(antialias=True). An axis that does not change is copied. Fails
 * without memory. */
bool volume_scale(const Volume *v, const Grid *grid, ScaleFilter filter,
                  Volume *out);
#endif
