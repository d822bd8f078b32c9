/* crop.h -- whole voxels cut out of a volume, or added around it. */
#ifndef SEG_DATA_RESAMPLE_CROP_H
#define SEG_DATA_RESAMPLE_CROP_H
#include "data/volume.h"

/* A block of voxels along w, h, d; it may reach beyond the volume. */
typedef struct Box {
    int32_t from[3], n[3];
} Box;

/* out = the box of v, a copy that changes no value; type, unit and channels
 * are v's. What lies outside v is 0 or, with `background` (F32 only), the
 * smallest value of each channel. Fails without memory. */
bool volume_cut(const Volume *v, const Box *box, bool background, Volume *out);

/* d x h x w voxels (0 keeps) in the middle of v, as volume_grid_fit has them,
 * or, with `start`, from its first voxel on. */
Box volume_box_fit(const Volume *v, int d, int h, int w, bool start);

/* The smallest box that has every voxel of v with a channel above `level`,
 * `margin` voxels wider on all sides but not beyond v; F32 or U8. False with
 * a reason (ERR_DATA) when there is none. */
bool volume_box_above(const Volume *v, float level, int32_t margin, Box *out);
#endif
