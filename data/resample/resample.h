/* resample.h -- resamples a volume on another grid while only some of its
 * slices are in memory.
 *
 * A prediction is completed slice by slice, and completed slices are resampled
 * to the grid of the input at once, so that the whole prediction is never in
 * memory. The values equal those of volume_resample (LINEAR, outside 0) bit for
 * bit. */
#ifndef SEG_DATA_RESAMPLE_RESAMPLE_H
#define SEG_DATA_RESAMPLE_RESAMPLE_H
#include "data/resample/crop.h"

/* Slices first, first + 1, ... of a volume on `grid`, F32. */
typedef struct Slices {
    Grid grid; /* of the whole volume */
    int32_t channels;
    const float *data; /* slice `first` */
    int32_t first;
} Slices;

/* Sets out (F32; d, h, w of the box and the channels) to the volume resampled
 * on the voxels `box` of another grid. All slices that resample_reach returns
 * for these voxels must be in memory. Fails where the affine of the volume
 * cannot be inverted, or without memory. */
bool resample_box(const Slices *from, const Grid *grid, const Box *box,
                  float *out);

/* Finds the axis of `grid` (0 w, 1 h, 2 d) that crosses the slices of `source`
 * and, for each index along it, the last slice that its voxels depend on; -1 if
 * they lie outside. The first such slice is the same or the one before. axis =
 * -1: the grids are oblique to one another, every voxel may depend on any
 * slice, and `last`, which has room for the longest axis of `grid`, is not
 * written. */
bool resample_reach(const Grid *source, const Grid *grid, int *axis,
                    int32_t *last);
#endif
