/* volume.h -- voxels with their position in the patient.
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

/* Returns element i of a volume of any type, exactly. */
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

/* Returns the smallest of count >= 1 numbers, every step-th from x: for one
 * channel of an image, the value of its background. */
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

/* Returns true if the two grids are the same: equal extents, and corners at
 * most 1 % of the smallest voxel edge apart. Otherwise returns false; the
 * reason (ERR_DATA) names the differences and both grids. Channels may
 * differ. */
bool volume_same_grid(const Volume *a, const Volume *b);

/* Writes the properties in which two different grids differ: "extents",
 * "spacing", "directions" and "origin", separated by commas. A property is
 * listed if it moves a corner by more than volume_same_grid allows. */
enum { VOLUME_DIFFERENCES = 40 };
char *volume_differences(const Volume *a, const Volume *b,
                         char text[VOLUME_DIFFERENCES]);

/* Writes "256x256x24, 0.9x0.9x3 mm, axial, axes LPS, origin (-12.1 4.0 80.2)";
 * the axes are those of volume_code. Reads only the extents and the affine of
 * v. */
enum { VOLUME_TEXT = 176 };
char *volume_text(const Volume *v, char text[VOLUME_TEXT]);

/* Inverts the affine; false with a reason (ERR_DATA) when it is singular or not
 * finite. Parameters are not const: C11 has no conversion to const for arrays
 * of arrays. */
bool affine_invert(double a[4][4], double out[4][4]);
/* out = a b; out may be a or b. */
void affine_multiply(double a[4][4], double b[4][4], double out[4][4]);

/* Extents and affine without voxels: a grid to resample a volume on. */
typedef struct Grid {
    int32_t d, h, w;
    double affine[4][4];
} Grid;

Grid volume_grid(const Volume *v); /* the grid of v */

/* Edge lengths of a voxel along w, h, d in mm. */
void grid_spacing_mm(const Grid *g, double spacing[3]);

/* Fraction of the smaller of two fields of view that lies in both; below
 * GRID_LEAST_SHARE the two grids show different regions. ERR_DATA when an
 * affine cannot be inverted. */
#define GRID_LEAST_SHARE 0.5
bool grid_share(const Grid *a, const Grid *b, double *share);

/* Returns the voxel axis (0 w, 1 h, 2 d) along patient axis 0 x, 1 y, 2 z. The
 * assignment of all three axes maximises the sum of |cosine|, so each voxel
 * axis is used once however oblique the grid is. */
int volume_axis(const Volume *v, int patient_axis);

/* Writes the letters nearest to the directions of w, h and d: "LPS", "RAS",
 * ... */
char *volume_code(const Volume *v, char code[4]);

/* Interpolation between voxels. Labels are always NEAREST. */
typedef enum Interpolation { NEAREST, LINEAR } Interpolation;

/* out = v sampled on the grid. Positions outside v get `outside`, which for I16
 * and U8 is rounded and clamped to the type. `out` has the type of v when
 * NEAREST, F32 when LINEAR; unit and channels are those of v.
 * v extends to the outer faces of its edge voxels, half-open: -0.5 <= index <
 * extent - 0.5; between the last centre and the face, LINEAR repeats the edge.
 * Positions are rounded to 1e-5 voxel, so a grid with the voxel centres of v
 * copies values bit for bit, and of two voxels equally near, the one with the
 * higher index is used. LINEAR does not low-pass, and calling it for UNIT_LABEL
 * is a programming error (CHECK). ERR_DATA when the affine of v cannot be
 * inverted. */
bool volume_resample(const Volume *v, const Grid *grid, Interpolation how,
                     float outside, Volume *out);

/* The field of view of v at another spacing (mm along w, h, d; 0 keeps the
 * spacing of that axis): extents rounded, at least 1. The outer corner of the
 * first voxel stays. */
Grid volume_grid_at(const Volume *v, const double spacing_mm[3]);

/* The n[0] x n[1] x n[2] voxels along w, h, d of the grid of v that begin at
 * voxel from[]; the grid continues beyond its ends. */
Grid volume_grid_cut(const Volume *v, const int32_t from[3],
                     const int32_t n[3]);

/* The field of view of v in exactly d x h x w voxels (0 keeps). */
Grid volume_grid_resize(const Volume *v, int d, int h, int w);

/* The planes of reading. */
typedef enum Plane { AXIAL, CORONAL, SAGITTAL } Plane;

/* The voxels of v with axes permuted and flipped so that d counts the slices of
 * `plane` and (w,h) is the picture as radiologists see it: axial w to left, h
 * to posterior, d to superior; coronal w to left, h to inferior, d to
 * posterior; sagittal w to posterior, h to inferior, d to left. Resampling onto
 * this grid only moves voxels. */
Grid volume_grid_plane(const Volume *v, Plane plane);

/* The voxels of v with axes permuted and flipped so that each is as nearly
 * parallel as possible to the same axis of `like`. Resampling onto this grid
 * only moves voxels; volume_same_grid tells whether the result has the grid of
 * `like`. */
Grid volume_grid_along(const Volume *v, const Volume *like);

/* Extents and affine of a grid, without voxels. */
Volume volume_of_grid(const Grid *grid);

/* out = v as F32. */
bool volume_to_f32(const Volume *v, Volume *out);
#endif
