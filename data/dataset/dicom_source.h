/* dicom_source.h -- series of DICOM as sources of a data set.
 *
 * A mask or a dose is laid onto the slices of an image, so its source holds
 * that series beside its own (Source.image), and a case that comes from one
 * study or from paths that a table names is loaded by the same functions. */
#ifndef SEG_DATA_DATASET_DICOM_SOURCE_H
#define SEG_DATA_DATASET_DICOM_SOURCE_H
#include "data/dataset/dataset.h"

/* What a series is wanted for. */
typedef enum DicomRole {
    DICOM_AS_IMAGE,
    DICOM_AS_MASK,
    DICOM_AS_DOSE,
} DicomRole;

/* What Source.how points at: how the sources of a field are read. mask.image
 * are the options that load the image of its case. */
typedef struct DicomRead {
    DicomOptions files;
    DicomMaskOptions mask;
    bool resample_dose;
} DicomRead;

/* Is it of a kind that can be read so? A mask is a segmentation, a structure
 * set, or an image whose values are labels. */
bool dicom_may_be(const DicomSeries *s, DicomRole role);

/* `series` as a source; `image` is the series of the first field of its case
 * (of that one: itself), of a dose NULL: it stays on its own grid. All live as
 * long as the source. */
Source dicom_source(const DicomSeries *series, const DicomSeries *image,
                    DicomRole role, const DicomRead *how);

/* The series that `s` loads as an image; NULL when it loads anything else. */
const DicomSeries *dicom_source_series(const Source *s);

/* The one series at `path` (a file, or all below a folder) that can be a field
 * of this kind, as a source: an image series; of quantities also a dose; of
 * labels a mask for the image that `first`, the first source of the case,
 * loads. ERR_DATA when there is none or several, ERR_USAGE for a mask without
 * an image in DICOM. The index of the files lies in `mem`. */
bool dicom_source_find(const char *path, FieldKind kind, const Source *first,
                       const DicomRead *how, Arena *mem, Source *out);
#endif
