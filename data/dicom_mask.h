/* dicom_mask.h -- shared by the two kinds of mask: dicom_mask.c (ordinary
 * series) and dicom_seg.c (segmentation objects). */
#ifndef SEG_DICOM_MASK_H
#define SEG_DICOM_MASK_H
#include "dicom_load.h"

/* What a mask is laid onto: the slices of the image in order, as stored. */
typedef struct MaskTarget {
    const DicomSeries *series;
    const DicomHeader *slices; /* grid.d of them */
    Grid grid;
    double edge_mm; /* smallest edge of a voxel */
} MaskTarget;

/* Do the pixels of b lie on those of a: the same number, and the corners of
 * the plane within 1 % of edge_mm? */
bool mask_planes_agree(const DicomHeader *a, const DicomHeader *b,
                       double edge_mm);

/* The slice of the target nearest to a plane along the normal. */
int32_t mask_nearest_slice(const MaskTarget *target, const DicomHeader *plane);

/* A mask whose own grid is not the target's: true when it may be resampled,
 * else the reason says row 72, or both grids and the fix. */
bool mask_may_resample(const DicomSeries *mask, const Grid *own,
                       const MaskTarget *target, bool resample);

/* *labels, a mask on another grid, becomes one on the target's grid. */
bool mask_resample(const MaskTarget *target, Volume *labels);

/* out (U8, zero, on the target's grid) = the segments wanted. */
bool seg_load(const DicomSeries *mask, const MaskTarget *target,
              const DicomMaskOptions *options, Volume *out, DicomNotes *notes);

/* The same of a file that has been walked; `mask` names it in reasons. */
bool seg_place(const Walk *w, const DicomSeries *mask, const MaskTarget *target,
               const DicomMaskOptions *options, Volume *out, DicomNotes *notes);
#endif
