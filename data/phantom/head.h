/* head.h -- a synthetic head: tissue and brightness at a point.
 *
 * A Head is drawn from (seed, number): size, shape, folds, ventricles, one
 * tumour with oedema, small white spots that are not part of the tumour. Points
 * are LPS in mm from the middle of the head. Anatomy is a formula of the point,
 * so a volume on any grid shows the same head and slices are consistent. It is
 * made for training networks, not for diagnosis. */
#ifndef SEG_DATA_PHANTOM_HEAD_H
#define SEG_DATA_PHANTOM_HEAD_H
#include "engine/base/rng.h"
#include <stdbool.h>

enum { HEAD_LATTICE = 32, HEAD_SPOTS = 10 };

/* Contrast of the sequence. */
typedef enum HeadContrast { HEAD_FLAIR, HEAD_T1 } HeadContrast;

typedef enum Tissue {
    AIR,
    SCALP,
    BONE,
    MARROW, /* of the bone                                    */
    BASE,   /* below the brain: alternating bone, muscle and fat */
    CSF,    /* around the brain and in its sulci */
    GRAY,
    WHITE,
    VENTRICLE,
    CAP,    /* bright rim of a ventricle: no tumour */
    SPOT,   /* small bright lesion: no tumour                 */
    OEDEMA, /* from here on: tumour */
    RIM,    /* rim of the core */
    CORE,
    TISSUES
} Tissue;

typedef struct Head {
    float pose[3][3]; /* head = pose * (point - shift) */
    float shift[3];
    float skull[3];                             /* radii in mm */
    float ventricle;                            /* scale of the ventricles */
    float folds;                                /* depth of the sulci in mm */
    float lesion[3], reach[3], turn[2], ragged; /* middle, radii, cosine and
                                                 * sine, share of noise */
    bool tumour, core;
    float spot[HEAD_SPOTS][4]; /* middle, radius */
    int spots;
    float bright[2][TISSUES]; /* for each contrast, 0 .. 1 */
    /* Smooth noise is interpolated from this lattice, -1 .. 1, periodic. */
    float lattice[HEAD_LATTICE][HEAD_LATTICE][HEAD_LATTICE];
} Head;

/* Draws the head of patient `number`; without `tumour`, a healthy one. */
void head_draw(Head *h, uint64_t seed, uint32_t number, bool tumour);

/* Returns the tissue at an LPS point in mm; *brain: inside the envelope of the
 * brain (sulci and ventricles included), the region that skull stripping
 * keeps. */
Tissue head_tissue(const Head *h, const float lps_mm[3], bool *brain);

/* Returns the brightness at a point, 0 .. 1: that of the tissue, with its
 * texture. */
float head_bright(const Head *h, HeadContrast contrast, Tissue t,
                  const float lps_mm[3]);
#endif
