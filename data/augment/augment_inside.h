/* augment_inside.h -- functions of apply.c, by file: spatial transforms
 * (warp.c), intensities (intensity.c, jitter.c, bias.c), resolution (blur.c),
 * erased regions (erase.c), bands of a scale (bands.c), functions of the recipe
 * (user_step.c). Private to these files, their tests and benchmarks. */
#ifndef SEG_DATA_AUGMENT_AUGMENT_INSIDE_H
#define SEG_DATA_AUGMENT_AUGMENT_INSIDE_H
#include "data/augment/augment.h"

/* One image of a sample. */
typedef struct Image {
    float *x; /* (d, h, w, c) of n */
    Dims n;
    int32_t own;     /* of w without padding: 1 .. n.w                     */
    uint32_t first;  /* draw of its first element                          */
    uint32_t before; /* channels of earlier images of the sample             */
} Image;

/* One channel of an image: every step-th of `count` elements. */
typedef struct Channel {
    float *x;
    int64_t count, step;
} Channel;

static inline Channel image_channel(const Image *m, int32_t c)
{
    return (Channel){m->x + c, positions(m->n), m->n.c};
}

/* The zero of physical intensities, "air": see steps.def. */
static inline float channel_air(Channel c)
{
    return numbers_lowest(c.x, c.count, c.step);
}

/* Warps x by an affine or elastic change, reading from a copy: false if memory
 * runs out. Linear interpolation, labels nearest. Gives the same bits as
 * change_places and change_between (engine/backend/augment.h) voxel by
 * voxel. */
bool warp_field(const Change *c, float *x, Dims n, FieldKind kind);

/* Contrast, brightness, gamma, noise, rician. */
void intensity_change(const Change *c, const Image *m);

/* False with a reason (ERR_DATA) unless the image has 3 channels of 0 ..
 * top. */
bool jitter_change(const Change *c, const Image *m);
/* Applies jitter to an image of 3 channels with vectors of 4, 8 or 16 floats:
 * the same bits. Returns false and changes nothing if the processor lacks
 * them. */
bool jitter_by(int floats, const Change *c, const Image *m);

/* False if memory runs out. */
bool bias_change(const Change *c, const Image *m);
bool blur_change(const Change *c, const Image *m);
bool lowres_change(const Change *c, const Image *m);

/* Runs the function of a vary step on a sample: fails as it does. */
bool user_step_sample(const Change *c, Sample *s);

/* False if memory runs out. */
bool bands_change(const Change *c, const Image *m);

/* Cutout and timemask. */
void cutout_change(const Change *c, const Image *m);
void timemask_change(const Change *c, const Image *m);
#endif
