/* mask.h -- functions for the three kinds of mask: mask.c (ordinary series),
 * seg.c (segmentation objects), structure_set.c (contours). */
#ifndef SEG_DATA_DICOM_MASK_H
#define SEG_DATA_DICOM_MASK_H
#include "data/dicom/load.h"

/* The image that a mask must match: its slices in spatial order, as stored. */
typedef struct MaskTarget {
    const DicomSeries *series;
    const DicomHeader *slices; /* grid.d headers */
    Grid grid;
    double slack_mm; /* tolerance for voxel corners    */
    double off_mm;   /* stack.off_mm of the image      */
} MaskTarget;

/* Rule G2: corners may differ by this fraction of the shortest edge of a
 * voxel. */
#define MASK_CORNER_SLACK 0.01

/* Do the pixels of b lie on the pixels of a: the same rows and columns, and the
 * corners of the planes within slack_mm? */
bool mask_planes_agree(const DicomHeader *a, const DicomHeader *b,
                       double slack_mm);

/* The slice of the target that is nearest to a plane along the normal. */
int32_t mask_nearest_slice(const MaskTarget *target, const DicomHeader *plane);

/* Describes two grids as volume_text does, then their differences: "grid ...,
 * image grid ...; they differ in spacing". */
enum { MASK_GRIDS_TEXT = 2 * VOLUME_TEXT + VOLUME_DIFFERENCES + 40 };
char *mask_grids_text(const Grid *own, const Grid *image,
                      char text[MASK_GRIDS_TEXT]);

/* For a mask whose grid differs from the target's: returns true if it may be
 * resampled (`resample`). Fails with row 72 of tests/shell/defects.csv if mask
 * and image cover different regions. Without `resample` fails with an error
 * that shows both grids and says how to allow it. */
bool mask_may_resample(const DicomSeries *mask, const Grid *own,
                       const MaskTarget *target, bool resample);

/* Resamples *mask onto the target's grid: labels by nearest neighbour,
 * fractions linearly. */
bool mask_resample(const MaskTarget *target, Volume *mask);

/* Makes a zeroed mask on a grid: labels (U8), or fractions (F32). */
bool mask_new(const Grid *grid, bool fractions, Volume *out);

/* A segment of a segmentation object, or a region of a structure set. */
typedef struct MaskPart {
    int32_t number;
    const char *name;
    uint8_t label; // label in the mask; 0: not selected
} MaskPart;

/* Sets the label of each part that the option `segments` names: the position of
 * its name there, from 1. "#2" selects the part with number 2 unless a part has
 * that name. what, tag: "segment" or "region" and the tag of its name, for
 * errors. */
bool mask_choose(const Walk *w, const char *what, uint32_t tag,
                 const DicomMaskOptions *options, MaskPart *part,
                 int32_t count);

/* Fails because two segments share voxels, and a voxel has one label; returns
 * false. */
bool mask_overlap(const Walk *w, uint32_t tag, const char *a, const char *b,
                  int64_t voxels);

/* out (mask_new on the target's grid) = the selected segments. */
bool seg_load(const DicomSeries *mask, const MaskTarget *target,
              const DicomMaskOptions *options, Volume *out, DicomNotes *notes);

/* The same for a file that the walker has parsed; `mask` names it in errors. */
bool seg_place(const Walk *w, const DicomSeries *mask, const MaskTarget *target,
               const DicomMaskOptions *options, Volume *out, DicomNotes *notes);

/* The same two functions for a structure set (structure_set.c). */
bool contour_load(const DicomSeries *mask, const MaskTarget *target,
                  const DicomMaskOptions *options, Volume *out,
                  DicomNotes *notes);
bool contour_place(const Walk *w, const DicomSeries *mask,
                   const MaskTarget *target, const DicomMaskOptions *options,
                   Volume *out, DicomNotes *notes);
bool contour_info(const DicomSeries *mask, Arena *arena, DicomSegInfo *out);
#endif
