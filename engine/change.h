/* change.h -- a random change of one sample, decided.
 *
 * Data steps draw what happens to a sample (data/augment.c). What was drawn is
 * plain numbers, so that whoever holds the sample does the same with it: the
 * host (data/change.c) or a device (cuda/change.cu). The arithmetic that both
 * must agree on stands here.
 *
 * Axes are counted 0 w, 1 h, 2 d. */
#ifndef SEG_CHANGE_H
#define SEG_CHANGE_H
#include "rng.h"
#include "tensor.h"

typedef enum ChangeKind {
    CHANGE_NONE,     /* left as it is                                        */
    CHANGE_FLIP,     /* voxels k and n-1-k of each named axis change places  */
    CHANGE_AFFINE,   /* y(p) = x(map p), all fields                          */
    CHANGE_CONTRAST, /* y = mean + amount (x - mean), mean of a channel      */
    CHANGE_BRIGHTNESS, /* y = x + amount */
    CHANGE_GAMMA,      /* y = lo + (hi - lo) ((x - lo) / (hi - lo))^amount, lo
                        * and hi of a channel; a constant one stays            */
    CHANGE_NOISE, /* y = x + amount z, z standard normal                  */
} ChangeKind;

/* Flips and affine maps are of all fields, the rest of images only. */
typedef struct Change {
    int32_t kind;
    uint32_t axes; /* FLIP: bit a for axis a                                */
    float amount;
    Rng draw; /* NOISE: element i of an image has draw `first` + i, where
               * the first of the first image is CHANGE_DRAWS; see change_next
               */
    double map[3][4]; /* AFFINE: voxel (w, h, d) of the result shows place
                       * map[a][0] w + map[a][1] h + map[a][2] d + map[a][3]
                       * along axis a of the sample */
} Change;

enum { CHANGE_DRAWS = 4 }; /* those before it decide */

/* First draw of noise of the image behind one of extents n whose first is
 * `first`. Even, as normal numbers come in pairs, which no two images share. */
EVERYWHERE uint32_t change_next(uint32_t first, Dims n)
{
    uint64_t count = (uint64_t)n.d * (uint64_t)n.h * (uint64_t)n.w;
    return first + (uint32_t)((count * (uint64_t)n.c + 1) / 2 * 2);
}

/* Along one axis: where a voxel of the result lies in the sample. */
EVERYWHERE double change_place(const double map[4], int32_t w, int32_t h,
                               int32_t d)
{
    return map[0] * w + map[1] * h + map[2] * d + map[3];
}

/* Linear: between voxels *at and *at + 1 of n, *t of the way; of the last one
 * *t is 0. Nearest: voxel *at. A place beyond the border is moved onto it: the
 * voxels there go on outside, for images and labels alike. In double up to
 * here, so that float rounding, of which devices have their own, decides
 * neither a label nor an interpolated value. */
EVERYWHERE void change_linear(double place, int32_t n, int32_t *at, float *t)
{
    if (!(place > 0)) place = 0;
    if (place > n - 1) place = n - 1;
    *at = (int32_t)place;
    *t = (float)(place - *at);
}

EVERYWHERE int32_t change_nearest(double place, int32_t n)
{
    if (!(place > 0)) place = 0;
    if (place > n - 1) place = n - 1;
    return (int32_t)(place + 0.5);
}
#endif
