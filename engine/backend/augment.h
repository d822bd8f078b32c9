/* augment.h -- one augmentation of one sample, with its random numbers drawn.
 *
 * Data steps draw the parameters of each augmentation
 * (data/augment/augment.c). They are plain numbers, so that the host
 * (data/augment/apply.c) and a device (cuda/device/augment.cu) compute the same
 * sample from them. This header has the arithmetic that both share.
 *
 * Axes are counted 0 w, 1 h, 2 d. */
#ifndef SEG_ENGINE_BACKEND_AUGMENT_H
#define SEG_ENGINE_BACKEND_AUGMENT_H
#include "engine/backend/spline.h"
#include "engine/base/rng.h"
#include "engine/graph/tensor.h"

typedef enum ChangeKind {
    CHANGE_NONE,     /* unchanged                                            */
    CHANGE_FLIP,     /* mirrored: y(k) = x(n-1-k) along each axis of `axes`  */
    CHANGE_AFFINE,   /* y(p) = x(map p), all fields                          */
    CHANGE_ELASTIC,  /* y(p) = x(p + u(p)), all fields; spline.h             */
    CHANGE_CONTRAST, /* y = mean + amount (x - mean), mean of a channel      */
    CHANGE_BRIGHTNESS, /* y = x + amount */
    CHANGE_GAMMA,      /* y = lo + (hi - lo) ((x - lo) / (hi - lo))^amount; lo
                        * and hi: minimum and maximum of the channel;
                        * unchanged if lo = hi                                */
    CHANGE_NOISE, /* y = x + amount z, z standard normal                  */
    CHANGE_HOST,  /* this and later kinds run on the host only; their formulas
                   * are in data/steps/steps.def */
    CHANGE_TIMESHIFT = CHANGE_HOST,
    CHANGE_JITTER,
    CHANGE_BIAS,
    CHANGE_BLUR,
    CHANGE_LOWRES,
    CHANGE_RICIAN,
    CHANGE_CUTOUT,
    CHANGE_TIMEMASK,
    CHANGE_BANDS,
    CHANGE_FUNCTION, /* of the recipe: data/steps/user_step.h */
} ChangeKind;

enum { MAX_SWAPS = 16, CHANGE_NUMBERS = 12 };

/* Effect of a flip on class numbers and on numbers of a case. */
typedef struct Mirrored {
    int32_t swaps;
    uint8_t swap[MAX_SWAPS][2]; /* pairs of classes that are exchanged  */
    uint32_t
        negate; /* bit c: channel c (from 1) changes its sign; bit 0: all */
} Mirrored;

/* Spatial changes apply to all fields, intensity changes to images only. */
typedef struct Change {
    int32_t kind;
    uint32_t axes; /* FLIP: bit a for axis a; else a choice of the data step */
    float amount;
    Rng draw; /* NOISE: element i of an image has draw `first` + i; `first` of
               * the first image is CHANGE_DRAWS; see change_next */
    union {
        double map[3][4]; /* AFFINE: voxel (w, h, d) of the result is read at
                           * map[a][0] w + map[a][1] h + map[a][2] d +
                           * map[a][3] along axis a of the sample */
        Elastic elastic;
        Mirrored mirrored;             /* FLIP                          */
        double number[CHANGE_NUMBERS]; /* kinds of the host: augment.c  */
    };
} Change;

enum { CHANGE_DRAWS = 4 }; /* draws before it choose the parameters */

/* Returns the first noise draw of the image after an image of extents n with
 * first draw `first`. It is even, because normal numbers are drawn in pairs
 * and no two images share a pair. */
HOST_DEVICE uint32_t change_next(uint32_t first, Dims n)
{
    uint64_t count = (uint64_t)n.d * (uint64_t)n.h * (uint64_t)n.w;
    return first + (uint32_t)((count * (uint64_t)n.c + 1) / 2 * 2);
}

/* Returns the coordinate in the sample, along one axis, of a voxel of the
 * result. */
HOST_DEVICE double change_place(const double map[4], int32_t w, int32_t h,
                                int32_t d)
{
    return map[0] * w + map[1] * h + map[2] * d + map[3];
}

/* Returns whether this kind interpolates the sample at other coordinates. */
HOST_DEVICE bool change_moves(int32_t kind)
{
    return kind == CHANGE_AFFINE || kind == CHANGE_ELASTIC;
}

/* Computes the coordinates in the sample for an affine or elastic change;
 * `points` as in elastic_move. */
HOST_DEVICE void change_places(const Change *c, const double *points, int32_t w,
                               int32_t h, int32_t d, double out[3])
{
    if (c->kind == CHANGE_AFFINE) {
        for (int a = 0; a < 3; a++) out[a] = change_place(c->map[a], w, h, d);
        return;
    }
    elastic_move(&c->elastic, points, w, h, d, out);
    out[0] += w, out[1] += h, out[2] += d;
}

/* Linear interpolation reads voxels *at and *at + 1 of n with weights 1 - *t
 * and *t; *t is 0 at the last voxel. Nearest neighbour reads one voxel.
 * Coordinates outside are clamped to the border, for images and labels alike.
 * Coordinates are double, so that the float rounding of a device changes
 * neither a label nor an interpolated value. */
HOST_DEVICE void change_linear(double place, int32_t n, int32_t *at, float *t)
{
    if (!(place > 0)) place = 0;
    if (place > n - 1) place = n - 1;
    *at = (int32_t)place;
    *t = (float)(place - *at);
}

HOST_DEVICE int32_t change_nearest(double place, int32_t n)
{
    if (!(place > 0)) place = 0;
    if (place > n - 1) place = n - 1;
    return (int32_t)(place + 0.5);
}

/* A sample to interpolate, (d, h, w, c) with extents n, first mirrored along
 * `axes` (bits as in a flip). */
typedef struct ChangeSource {
    const float *x;
    Dims n;
    uint32_t axes;
} ChangeSource;

/* Returns the index of the first channel of voxel (w, h, d) of the mirrored
 * sample. */
HOST_DEVICE int64_t change_voxel(Dims n, uint32_t axes, int32_t w, int32_t h,
                                 int32_t d)
{
    if (axes & 1) w = n.w - 1 - w;
    if (axes & 2) h = n.h - 1 - h;
    if (axes & 4) d = n.d - 1 - d;
    return (((int64_t)d * n.h + h) * n.w + w) * n.c;
}

/* The eight neighbours of a point: along each axis the voxels before and after
 * it and the weight of the second. */
typedef struct Around {
    int32_t at[3], next[3];
    float t[3];
} Around;

/* Interpolates channel c between four neighbours in slice d: along w, then h.
 */
HOST_DEVICE float change_slice(const ChangeSource *s, const Around *q,
                               int32_t d, int32_t c)
{
    float v[2];
    for (int k = 0; k < 2; k++) {
        const int32_t h = k ? q->next[1] : q->at[1];
        const float a = s->x[change_voxel(s->n, s->axes, q->at[0], h, d) + c];
        const float b = s->x[change_voxel(s->n, s->axes, q->next[0], h, d) + c];
        v[k] = a + q->t[0] * (b - a);
    }
    return v[0] + q->t[1] * (v[1] - v[0]);
}

/* Interpolates all channels at `place` into `to` (n.c). */
HOST_DEVICE void change_between(const ChangeSource *s, const double place[3],
                                float *to)
{
    const int32_t n[] = {s->n.w, s->n.h, s->n.d};
    Around q;
    for (int a = 0; a < 3; a++) {
        change_linear(place[a], n[a], &q.at[a], &q.t[a]);
        // the last voxel is its own neighbour, with weight 0
        q.next[a] = q.at[a] + (q.at[a] + 1 < n[a]);
    }
    for (int32_t c = 0; c < s->n.c; c++) {
        float v = change_slice(s, &q, q.at[2], c);
        if (q.t[2] > 0) v += q.t[2] * (change_slice(s, &q, q.next[2], c) - v);
        to[c] = v;
    }
}
#endif
