/* crop.h -- cuts blocks of whole voxels out of a volume, or pads it. */
#ifndef SEG_DATA_RESAMPLE_CROP_H
#define SEG_DATA_RESAMPLE_CROP_H
#include "data/volume.h"

/* A block of voxels along w, h, d; it may reach beyond the volume. */
typedef struct Box {
    int32_t from[3], n[3];
} Box;

/* Copies the voxels of the box; type, unit and channels are those of v, and no
 * value changes. Voxels outside v are 0 or, with `background` (F32 only), the
 * smallest value of each channel. Fails without memory. */
bool volume_cut(const Volume *v, const Box *box, bool background, Volume *out);

/* Returns the box of d x h x w voxels (0 keeps the extent) in the middle of v
 * or, with `start`, from its first voxel on. */
Box volume_box_fit(const Volume *v, int d, int h, int w, bool start);

/* Finds the smallest box that contains every voxel of v with a channel above
 * `level`, and widens it by `margin` voxels on all sides, limited to v; F32 or
 * U8. False with a reason (ERR_DATA) when there is no such voxel. */
bool volume_box_above(const Volume *v, float level, int32_t margin, Box *out);
#endif
