/* image_type.h -- refuses images that are not slices of a volume.
 *
 * Some files have the position and spacing of a slice but hold another kind of
 * picture: slices tiled into one picture (Siemens MOSAIC, UIH VFRAME) or screen
 * captures. They would load as a volume with wrong geometry. ImageType (PS3.3
 * C.7.6.1.1.2) and vendor elements reveal them. */
#ifndef SEG_DATA_DICOM_IMAGE_TYPE_H
#define SEG_DATA_DICOM_IMAGE_TYPE_H
#include "data/dicom/header.h"

/* Call after header_image, or after multi_headers with the header of any frame.
 * Fails if the file is of a refused kind. Projections with the position of a
 * slice (MIP, CT localizers, radiographs) add a warning under `where`. */
bool image_type_check(const Walk *w, const DicomHeader *h, const char *where,
                      DicomNotes *notes);

/* Fails with row 71 for a multi-frame file of a class without functional
 * groups: its frames are time points, or slices positioned by elements of that
 * class alone. Returns false. */
bool image_frames_unplaced(const Walk *w, const DicomHeader *h);

/* Fails with row 52: the image has no orientation in the patient. A radiograph
 * or a photograph is called that in the error, with the way to read it as a
 * picture. Returns false. */
bool image_unoriented(const DicomHeader *h);
#endif
