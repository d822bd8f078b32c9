/* resample.h -- a volume sampled on another grid while only some of its slices
 * are there.
 *
 * A prediction grows slice by slice, and what is finished of it goes to the
 * grid of the input at once, so that all of it is never in memory. The numbers
 * are those of volume_resample (LINEAR, outside 0), bit for bit. */
#ifndef SEG_DATA_RESAMPLE_RESAMPLE_H
#define SEG_DATA_RESAMPLE_RESAMPLE_H
#include "data/resample/crop.h"

/* Slices first, first + 1, ... of a volume on `grid`, F32. */
typedef struct Slices {
    Grid grid; /* of all of its slices */
    int32_t channels;
    const float *data; /* slice `first` */
    int32_t first;
} Slices;

/* out (F32; the box's d, h, w and the channels) = the volume on the voxels
 * `box` of another grid. All slices that resample_reach names for them are
 * there. Fails where the grid of the volume cannot be inverted, or without
 * memory. */
bool resample_box(const Slices *from, const Grid *grid, const Box *box,
                  float *out);

/* Which axis of `grid` (0 w, 1 h, 2 d) crosses the slices of `source`, and for
 * each index along it the last slice that its voxels are made of, -1 for none:
 * then they are outside. The first one is that or the one before. axis = -1:
 * the grids are oblique to one another, every voxel may want any slice, and
 * nothing is written to last, which has room for the longest axis of `grid`. */
bool resample_reach(const Grid *source, const Grid *grid, int *axis,
                    int32_t *last);
#endif
