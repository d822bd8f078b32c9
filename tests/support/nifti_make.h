/* nifti_make.h -- NIfTI files for tests, built byte by byte.
 *
 * Headers are built from the offsets in nifti1.h and nifti2.h, not with the
 * table of the reader, so that a wrong offset cannot match itself. A defect is
 * one change to a valid file. */
#ifndef SEG_TESTS_SUPPORT_NIFTI_MAKE_H
#define SEG_TESTS_SUPPORT_NIFTI_MAKE_H
#include "data/format/nifti.h"

enum { W = 5, H = 4, D = 3, COUNT = W * H * D, ROOM = 8192 };

/* A file under construction; `big` swaps the bytes of every number. */
typedef struct Maker {
    uint8_t bytes[ROOM];
    size_t size;
    int version;
    bool big;
} Maker;

/* A field in the two headers; NIfTI-2 widens most numbers. */
typedef struct Place {
    int at[2];
    char type[2]; /* b byte, s int16, i int32, l int64, f float, d double */
} Place;
extern const Place dim, intent, datatype, bitpix, pixdim, vox_offset, slope,
    inter, units, qform, sform, quatern, offset, srow;

/* Write a number of type `type` at byte `at`; write element `index` of a field.
 */
void put(Maker *m, size_t at, char type, double v);
void set(Maker *m, const Place *p, int index, double v);

/* A valid file: int16 voxels 100 + i, spacing 0.5 x 1.5 x 2, qform equal to
 * sform: 90 degrees about z, so that b, c are 0 and d is sqrt(1/2). */
void make(Maker *m, int version, bool big);

/* Its affine in LPS. */
extern const double made_lps[3][4];

/* nifti_decode of a copy of exactly the size of the file. */
bool decode(const Maker *m, const NiftiOptions *o, Volume *v);
bool decode_gz(const uint8_t *bytes, size_t count, Volume *v);

/* Voxel i of any type. */
double voxel(const Volume *v, int64_t i);

void expect_affine(const Volume *v, const double want[3][4], double tol);
#endif
