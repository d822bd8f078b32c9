/* augment.h -- a random change of one sample, decided.
 *
 * Data steps draw what happens to a sample (data/augment/augment.c). What was
 * drawn is plain numbers, so that whoever holds the sample does the same with
 * it: the host (data/augment/apply.c) or a device (cuda/device/augment.cu). The
 * arithmetic that both must agree on stands here.
 *
 * Axes are counted 0 w, 1 h, 2 d. */
#ifndef SEG_ENGINE_BACKEND_AUGMENT_H
#define SEG_ENGINE_BACKEND_AUGMENT_H
#include "engine/backend/spline.h"
#include "engine/base/rng.h"
#include "engine/graph/tensor.h"

typedef enum ChangeKind {
    CHANGE_NONE,     /* left as it is                                        */
    CHANGE_FLIP,     /* voxels k and n-1-k of each named axis change places  */
    CHANGE_AFFINE,   /* y(p) = x(map p), all fields                          */
    CHANGE_ELASTIC,  /* y(p) = x(p + u(p)), all fields; spline.h             */
    CHANGE_CONTRAST, /* y = mean + amount (x - mean), mean of a channel      */
    CHANGE_BRIGHTNESS, /* y = x + amount */
    CHANGE_GAMMA,      /* y = lo + (hi - lo) ((x - lo) / (hi - lo))^amount, lo
                        * and hi of a channel; a constant one stays            */
    CHANGE_NOISE, /* y = x + amount z, z standard normal                  */
    CHANGE_HOST,  /* the first of those that no device does; formulas are those
                   * of data/steps/steps.def */
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

/* What a mirror image does to class numbers and numbers. */
typedef struct Mirrored {
    int32_t swaps;
    uint8_t swap[MAX_SWAPS][2]; /* classes that change places            */
    uint32_t
        negate; /* bit c: channel c (from 1) changes its sign; bit 0: all */
} Mirrored;

/* Changes of place are of all fields, the rest of images only. */
typedef struct Change {
    int32_t kind;
    uint32_t axes; /* FLIP: bit a for axis a; else what a step has to choose */
    float amount;
    Rng draw; /* NOISE: element i of an image has draw `first` + i, where
               * the first of the first image is CHANGE_DRAWS; see change_next
               */
    union {
        double map[3][4]; /* AFFINE: voxel (w, h, d) of the result shows place
                           * map[a][0] w + map[a][1] h + map[a][2] d +
                           * map[a][3] along axis a of the sample */
        Elastic elastic;
        Mirrored mirrored;             /* FLIP                          */
        double number[CHANGE_NUMBERS]; /* those of the host: see augment.c */
    };
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

/* Is this kind a look-up at other places? */
EVERYWHERE bool change_moves(int32_t kind)
{
    return kind == CHANGE_AFFINE || kind == CHANGE_ELASTIC;
}

/* That of an affine or elastic change along all axes; `points` as elastic_move
 * takes them. */
EVERYWHERE void change_places(const Change *c, const double *points, int32_t w,
                              int32_t h, int32_t d, double out[3])
{
    if (c->kind == CHANGE_AFFINE) {
        for (int a = 0; a < 3; a++) out[a] = change_place(c->map[a], w, h, d);
        return;
    }
    elastic_move(&c->elastic, points, w, h, d, out);
    out[0] += w, out[1] += h, out[2] += d;
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

/* A sample to be looked up in, (d, h, w, c) of n, mirrored along `axes` (bits
 * as of a flip) before. */
typedef struct ChangeSource {
    const float *x;
    Dims n;
    uint32_t axes;
} ChangeSource;

/* Place of the first channel of voxel (w, h, d) of the mirrored sample. */
EVERYWHERE int64_t change_voxel(Dims n, uint32_t axes, int32_t w, int32_t h,
                                int32_t d)
{
    if (axes & 1) w = n.w - 1 - w;
    if (axes & 2) h = n.h - 1 - h;
    if (axes & 4) d = n.d - 1 - d;
    return (((int64_t)d * n.h + h) * n.w + w) * n.c;
}

/* Eight neighbours of a place: the voxels before and behind it along each axis
 * and how far it is from the first. */
typedef struct Around {
    int32_t at[3], next[3];
    float t[3];
} Around;

/* Channel c between the four neighbours of slice d: along w first, then h. */
EVERYWHERE float change_slice(const ChangeSource *s, const Around *q, int32_t d,
                              int32_t c)
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

/* All channels at a place between voxels, into `to` (n.c). */
EVERYWHERE void change_between(const ChangeSource *s, const double place[3],
                               float *to)
{
    const int32_t n[] = {s->n.w, s->n.h, s->n.d};
    Around q;
    for (int a = 0; a < 3; a++) {
        change_linear(place[a], n[a], &q.at[a], &q.t[a]);
        // the last voxel has no next, which would have no weight
        q.next[a] = q.at[a] + (q.at[a] + 1 < n[a]);
    }
    for (int32_t c = 0; c < s->n.c; c++) {
        float v = change_slice(s, &q, q.at[2], c);
        if (q.t[2] > 0) v += q.t[2] * (change_slice(s, &q, q.next[2], c) - v);
        to[c] = v;
    }
}
#endif
