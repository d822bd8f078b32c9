/* image_type.h -- is this image a slice at all?
 *
 * Some files have the place and spacing of a slice and are none: slices laid
 * out as tiles of one picture (Siemens MOSAIC, UIH VFRAME), pictures of a
 * screen. They would pass for a volume of wrong geometry. ImageType (PS3.3
 * C.7.6.1.1.2) and elements of the vendors tell. */
#ifndef SEG_DATA_DICOM_IMAGE_TYPE_H
#define SEG_DATA_DICOM_IMAGE_TYPE_H
#include "data/dicom/header.h"

/* After header_image, or multi_headers for the header of any frame: fails when
 * the file is refused by its kind. Projections that have the place of a slice
 * (MIP, CT localizers, radiographs) are noted under `where` as a warning. */
bool image_type_check(const Walk *w, const DicomHeader *h, const char *where,
                      DicomNotes *notes);

/* Row 71 of a file whose class has no functional groups: its frames are times,
 * or slices that only its own class places. Returns false. */
bool image_frames_unplaced(const Walk *w, const DicomHeader *h);

/* Row 52: no direction in the patient. A radiograph or a picture is named as
 * such, with the way to read it as one. Returns false. */
bool image_unoriented(const DicomHeader *h);
#endif
