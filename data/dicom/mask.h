/* mask.h -- shared by the three kinds of mask: mask.c (ordinary
 * series), seg.c (segmentation objects), structure_set.c (contours). */
#ifndef SEG_DATA_DICOM_MASK_H
#define SEG_DATA_DICOM_MASK_H
#include "data/dicom/load.h"

/* What a mask is laid onto: the slices of the image in order, as stored. */
typedef struct MaskTarget {
    const DicomSeries *series;
    const DicomHeader *slices; /* grid.d of them */
    Grid grid;
    double slack_mm; /* corners may differ by so much  */
    double off_mm;   /* stack.off_mm of the image      */
} MaskTarget;

/* Rule G2: corners may differ by this share of the smallest edge of a voxel. */
#define MASK_CORNER_SLACK 0.01

/* Do the pixels of b lie on those of a: the same number, and the corners of
 * the plane within slack_mm? */
bool mask_planes_agree(const DicomHeader *a, const DicomHeader *b,
                       double slack_mm);

/* The slice of the target nearest to a plane along the normal. */
int32_t mask_nearest_slice(const MaskTarget *target, const DicomHeader *plane);

/* Two grids in the words of volume_text, and what of them differs: "grid ...,
 * image grid ...; they differ in spacing". */
enum { MASK_GRIDS_TEXT = 2 * VOLUME_TEXT + VOLUME_DIFFERENCES + 40 };
char *mask_grids_text(const Grid *own, const Grid *image,
                      char text[MASK_GRIDS_TEXT]);

/* A mask whose own grid is not the target's: true when it may be resampled,
 * else the reason says row 72, or both grids and the fix. */
bool mask_may_resample(const DicomSeries *mask, const Grid *own,
                       const MaskTarget *target, bool resample);

/* *mask on another grid becomes one on the target's grid: labels by nearest
 * neighbour, fractions linearly. */
bool mask_resample(const MaskTarget *target, Volume *mask);

/* A zeroed mask on a grid: labels (U8), or fractions (F32). */
bool mask_new(const Grid *grid, bool fractions, Volume *out);

/* A segment of a segmentation object, or a region of a structure set. */
typedef struct MaskPart {
    int32_t number;
    const char *name;
    uint8_t label; // what it becomes; 0: not wanted
} MaskPart;

/* The label of each part that the option `segments` names: the place of its
 * name there, from 1. "#2" is the part with number 2 where none is called so.
 * what, tag: "segment" or "region" and the tag of its name, for reasons. */
bool mask_choose(const Walk *w, const char *what, uint32_t tag,
                 const DicomMaskOptions *options, MaskPart *part,
                 int32_t count);

/* Two segments share voxels, which one label each cannot say; returns false. */
bool mask_overlap(const Walk *w, uint32_t tag, const char *a, const char *b,
                  int64_t voxels);

/* out (mask_new on the target's grid) = the segments wanted. */
bool seg_load(const DicomSeries *mask, const MaskTarget *target,
              const DicomMaskOptions *options, Volume *out, DicomNotes *notes);

/* The same of a file that has been walked; `mask` names it in reasons. */
bool seg_place(const Walk *w, const DicomSeries *mask, const MaskTarget *target,
               const DicomMaskOptions *options, Volume *out, DicomNotes *notes);

/* The same two of a structure set (structure_set.c). */
bool contour_load(const DicomSeries *mask, const MaskTarget *target,
                  const DicomMaskOptions *options, Volume *out,
                  DicomNotes *notes);
bool contour_place(const Walk *w, const DicomSeries *mask,
                   const MaskTarget *target, const DicomMaskOptions *options,
                   Volume *out, DicomNotes *notes);
bool contour_info(const DicomSeries *mask, Arena *arena, DicomSegInfo *out);
#endif
