/* head.h -- a made-up head: what lies at a point, and how bright it is.
 *
 * A Head is drawn from (seed, number): size, shape, folds, ventricles, one
 * tumour with oedema, small white spots that are no tumour. Points are LPS in
 * mm around the middle of the head; anatomy is a formula of the point, so a
 * volume of any grid shows the same head and slices fit together. It is made
 * to be learned from, not to be diagnosed from. */
#ifndef SEG_DATA_PHANTOM_HEAD_H
#define SEG_DATA_PHANTOM_HEAD_H
#include "engine/base/rng.h"
#include <stdbool.h>

enum { HEAD_LATTICE = 32, HEAD_SPOTS = 10 };

/* What a scanner weights by. */
typedef enum HeadContrast { HEAD_FLAIR, HEAD_T1 } HeadContrast;

typedef enum Tissue {
    AIR,
    SCALP,
    BONE,
    MARROW, /* of the bone                                    */
    BASE,   /* below the brain: bone, muscle and fat in turns */
    CSF,    /* around the brain and in its folds              */
    GRAY,
    WHITE,
    VENTRICLE,
    CAP,    /* bright seam of a ventricle: no tumour          */
    SPOT,   /* small bright lesion: no tumour                 */
    OEDEMA, /* from here on: tumour                           */
    RIM,    /* of the core                                    */
    CORE,
    TISSUES
} Tissue;

typedef struct Head {
    float pose[3][3]; /* head = pose * (point - shift)            */
    float shift[3];
    float skull[3];                             /* radii in mm   */
    float ventricle;                            /* scale of them */
    float folds;                                /* depth in mm   */
    float lesion[3], reach[3], turn[2], ragged; /* middle, radii, cosine and
                                                 * sine, share of noise      */
    bool tumour, core;
    float spot[HEAD_SPOTS][4]; /* middle, radius */
    int spots;
    float bright[2][TISSUES]; /* of each contrast, 0 .. 1 */
    /* Smooth noise is interpolated from these, -1 .. 1, repeating. */
    float lattice[HEAD_LATTICE][HEAD_LATTICE][HEAD_LATTICE];
} Head;

/* The head of patient `number`; without `tumour` one that is well. */
void head_draw(Head *h, uint64_t seed, uint32_t number, bool tumour);

/* The tissue at an LPS point in mm; *brain: inside the brain's envelope
 * (folds and ventricles included), which is what skull stripping keeps. */
Tissue head_tissue(const Head *h, const float lps_mm[3], bool *brain);

/* How bright it is there, 0 .. 1: the tissue's own, and its texture. */
float head_bright(const Head *h, HeadContrast contrast, Tissue t,
                  const float lps_mm[3]);
#endif
