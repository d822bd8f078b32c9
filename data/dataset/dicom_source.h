/* dicom_source.h -- DICOM series as sources of a data set.
 *
 * A mask or a dose is loaded onto the slices of an image, so its source also
 * holds the series of the image (Source.image). The same functions load a case
 * from one study and a case from paths in a table. */
#ifndef SEG_DATA_DATASET_DICOM_SOURCE_H
#define SEG_DATA_DATASET_DICOM_SOURCE_H
#include "data/dataset/dataset.h"

/* How a series is loaded. */
typedef enum DicomRole {
    DICOM_AS_IMAGE,
    DICOM_AS_MASK,
    DICOM_AS_DOSE,
} DicomRole;

/* Options of the sources of a field (Source.how). mask.image are the options
 * that load the image of the case. */
typedef struct DicomRead {
    DicomOptions files;
    DicomMaskOptions mask;
    bool resample_dose;
} DicomRead;

/* Can a series of this kind be loaded in this role? A mask is a segmentation, a
 * structure set, or an image with labels as values. */
bool dicom_may_be(const DicomSeries *s, DicomRole role);

/* Makes a source of `series`. `image` is the series of the first field of the
 * case (for that field: itself); NULL for a dose: it keeps its own grid. All
 * arguments live as long as the source. */
Source dicom_source(const DicomSeries *series, const DicomSeries *image,
                    DicomRole role, const DicomRead *how);

/* The series that `s` loads as an image; NULL if it loads anything else. */
const DicomSeries *dicom_source_series(const Source *s);

/* Finds the one series at `path` (a file, or all below a folder) that can be a
 * field of this kind and makes it a source: an image series; for quantities
 * also a dose; for labels a mask of the image that `first`, the first source of
 * the case, loads. ERR_DATA for none or several, ERR_USAGE for a mask without a
 * DICOM image. The index of the files lives in `mem`. */
bool dicom_source_find(const char *path, FieldKind kind, const Source *first,
                       const DicomRead *how, Arena *mem, Source *out);
#endif
