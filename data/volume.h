/* volume.h -- voxels that know where they are.
 *
 * A Volume is a dense block (n = 1; d slices, h rows, w columns, c channels)
 * with a 4x4 affine from voxel index to patient space. Index order in the
 * affine's columns is (w, h, d) = (i, j, k) as in NIfTI; patient space is
 * LPS (x to the patient's left, y to posterior, z to superior) in mm, as in
 * DICOM. No path drops the affine: each step that changes the grid returns
 * the affine of the new grid. Voxel centres are at integer indices. */
#ifndef SEG_DATA_VOLUME_H
#define SEG_DATA_VOLUME_H
#include "engine/graph/tensor.h"

typedef enum Unit {
    UNIT_NONE,  /* arbitrary intensity */
    UNIT_HU,    /* CT numbers          */
    UNIT_GY,    /* dose                */
    UNIT_LABEL, /* class numbers       */
    UNIT_PIXEL, /* brightness of a picture, whole numbers 0 .. 255 */
} Unit;

typedef struct Volume {
    Tensor voxels;       /* F32, I16 or U8; memory owned by the volume    */
    double affine[4][4]; /* (w,h,d,1) -> LPS mm; last row 0 0 0 1         */
    Unit unit;
} Volume;

/* Voxels of the given extents and type, zeroed; identity affine. */
bool volume_new(Volume *v, Dims dim, Dtype type);
void volume_free(Volume *v); /* v is zero again */

/* Extents in the order of indices: w, h, d. */
void volume_extents(const Volume *v, int32_t n[3]);

/* Number i of any type, exact. */
static inline double volume_value(const Volume *v, int64_t i)
{
    const void *x = v->voxels.data;
    switch (v->voxels.type) {
    case U8:
        return ((const uint8_t *)x)[i];
    case I16:
        return ((const int16_t *)x)[i];
    default:
        return (double)((const float *)x)[i];
    }
}

/* The smallest of count >= 1 numbers, every step-th from x: what an image has
 * where there is nothing, if they are those of a channel. */
static inline float numbers_lowest(const float *x, int64_t count, int64_t step)
{
    float lowest = x[0];
    for (int64_t i = 1; i < count; i++)
        lowest = x[i * step] < lowest ? x[i * step] : lowest;
    return lowest;
}

/* Edge lengths of a voxel along w, h, d in mm. */
void volume_spacing_mm(const Volume *v, double spacing[3]);

/* Patient position (LPS mm) of voxel (w,h,d), fractions allowed. */
void volume_world(const Volume *v, double w, double h, double d,
                  double lps_mm[3]);

/* The same grid: equal extents, and the corners of b lie within 1 % of the
 * smallest voxel edge of those of a; else false with what differs and both
 * grids in the reason (ERR_DATA). Channels may differ. */
bool volume_same_grid(const Volume *a, const Volume *b);

/* What of two grids that are not the same differs, in text: "extents",
 * "spacing", "directions" and "origin", each that moves a corner by more than
 * volume_same_grid allows, with commas between. */
enum { VOLUME_DIFFERENCES = 40 };
char *volume_differences(const Volume *a, const Volume *b,
                         char text[VOLUME_DIFFERENCES]);

/* "256x256x24, 0.9x0.9x3 mm, axial, axes LPS, origin (-12.1 4.0 80.2)": in
 * text; axes as volume_code gives them. Only extents and affine of v are read.
 */
enum { VOLUME_TEXT = 176 };
char *volume_text(const Volume *v, char text[VOLUME_TEXT]);

/* Invert the affine; false with a reason (ERR_DATA) when it is singular or not
 * finite. No const: C11 does not add it to arrays of arrays. */
bool affine_invert(double a[4][4], double out[4][4]);
/* out = a b; out may be a or b. */
void affine_multiply(double a[4][4], double b[4][4], double out[4][4]);

/* Extents and affine without voxels: where a volume is to be sampled. */
typedef struct Grid {
    int32_t d, h, w;
    double affine[4][4];
} Grid;

Grid volume_grid(const Volume *v); /* v's own */

/* Edge lengths of a voxel along w, h, d in mm. */
void grid_spacing_mm(const Grid *g, double spacing[3]);

/* Share of the smaller of two fields of view that lies in both; below
 * GRID_LEAST_SHARE two grids show different things. ERR_DATA when an affine
 * cannot be inverted. */
#define GRID_LEAST_SHARE 0.5
bool grid_share(const Grid *a, const Grid *b, double *share);

/* Which voxel axis (0 w, 1 h, 2 d) runs along patient axis 0 x, 1 y, 2 z:
 * the assignment of all three with the largest sum of |cosine|, so each voxel
 * axis is named once however oblique the grid is. */
int volume_axis(const Volume *v, int patient_axis);

/* Where w, h and d run to, nearest letters: "LPS", "RAS", "PIL", ... */
char *volume_code(const Volume *v, char code[4]);

/* How a value between voxels is made. Labels are always NEAREST. */
typedef enum Interpolation { NEAREST, LINEAR } Interpolation;

/* out = v sampled on the grid; outside v: `outside`, which for I16 and U8 is
 * rounded and clamped to the type. `out` gets the type of v when NEAREST, F32
 * when LINEAR; unit and channels are v's.
 * v reaches to the outer faces of its edge voxels, half-open: -0.5 <= index
 * < extent - 0.5 (inside that, beyond the last centre, LINEAR repeats the
 * edge). Positions are told apart down to 1e-5 voxel, so a grid whose centres
 * fall on v's copies values bit for bit, and of two voxels equally near the
 * one with the higher index is taken. LINEAR does not low-pass, and is a
 * broken promise (CHECK) for UNIT_LABEL. ERR_DATA when v's affine cannot be
 * inverted. */
bool volume_resample(const Volume *v, const Grid *grid, Interpolation how,
                     float outside, Volume *out);

/* v's field of view at another spacing (mm along w, h, d; 0 keeps that axis):
 * extents rounded, at least 1. The first voxel's outer corner stays. */
Grid volume_grid_at(const Volume *v, const double spacing_mm[3]);

/* The n[0] x n[1] x n[2] voxels along w, h, d of v's grid, continued where it
 * ends, that begin at voxel from[]. */
Grid volume_grid_cut(const Volume *v, const int32_t from[3],
                     const int32_t n[3]);

/* v's field of view in exactly d x h x w voxels (0 keeps). */
Grid volume_grid_resize(const Volume *v, int d, int h, int w);

/* The planes a reader looks at. */
typedef enum Plane { AXIAL, CORONAL, SAGITTAL } Plane;

/* v's own voxels with axes swapped and turned so that d counts the slices of
 * `plane` and (w,h) is the picture as radiologists see it: axial w to left, h
 * to posterior, d to superior; coronal w to left, h to inferior, d to
 * posterior; sagittal w to posterior, h to inferior, d to left. Resampling
 * onto this grid only moves voxels. */
Grid volume_grid_plane(const Volume *v, Plane plane);

/* v's own voxels with axes swapped and turned so that each runs as nearly as
 * that can be along the same axis of `like`. Resampling onto this grid only
 * moves voxels; volume_same_grid tells whether they are those of `like`. */
Grid volume_grid_along(const Volume *v, const Volume *like);

/* Extents and affine of a grid, without voxels. */
Volume volume_of_grid(const Grid *grid);

/* out = v as F32. */
bool volume_to_f32(const Volume *v, Volume *out);
#endif
