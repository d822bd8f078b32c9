/* augment_inside.h -- the parts of apply.c: one file for looking up at other
 * places (warp.c), for intensities (intensity.c, jitter.c, bias.c), for how
 * fine an image is (blur.c), for what is wiped out (erase.c), for bands of a
 * scale (bands.c), and for what a recipe does by itself (user_step.c). Private
 * to them and to their tests and benchmarks. */
#ifndef SEG_DATA_AUGMENT_AUGMENT_INSIDE_H
#define SEG_DATA_AUGMENT_AUGMENT_INSIDE_H
#include "data/augment/augment.h"

/* One image of a sample. */
typedef struct Image {
    float *x; /* (d, h, w, c) of n */
    Dims n;
    int32_t own;     /* of w that is no padding: 1 .. n.w                  */
    uint32_t first;  /* draw of its first element                          */
    uint32_t before; /* channels of the images of the sample that precede it */
} Image;

/* One channel of an image: every step-th of count elements. */
typedef struct Channel {
    float *x;
    int64_t count, step;
} Channel;

static inline Channel image_channel(const Image *m, int32_t c)
{
    return (Channel){m->x + c, positions(m->n), m->n.c};
}

/* What physics counts intensities from: see steps.def. */
static inline float channel_air(Channel c)
{
    return numbers_lowest(c.x, c.count, c.step);
}

/* y = x at the places of an affine or elastic change, which works from a copy:
 * false when there is no memory. Linear, labels nearest. The same bits as
 * change_places and change_between (engine/backend/augment.h) give voxel by
 * voxel. */
bool warp_field(const Change *c, float *x, Dims n, FieldKind kind);

/* Contrast, brightness, gamma, noise, rician. */
void intensity_change(const Change *c, const Image *m);

/* False with a reason (ERR_DATA) when the image is none of 3 channels of
 * 0 .. top. */
bool jitter_change(const Change *c, const Image *m);
/* What it does to an image of 3 channels, by vectors of so many floats, 4, 8 or
 * 16: the same bits. False, and nothing is done, where the processor has none.
 */
bool jitter_by(int floats, const Change *c, const Image *m);

/* False when there is no memory. */
bool bias_change(const Change *c, const Image *m);
bool blur_change(const Change *c, const Image *m);
bool lowres_change(const Change *c, const Image *m);

/* The function of the recipe that a sample varies by: fails as it does. */
bool user_step_sample(const Change *c, Sample *s);

/* False when there is no memory. */
bool bands_change(const Change *c, const Image *m);

/* Cutout and timemask. */
void cutout_change(const Change *c, const Image *m);
void timemask_change(const Change *c, const Image *m);
#endif
