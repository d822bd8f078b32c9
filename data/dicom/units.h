/* units.h -- do the values of an image have a meaning of their own?
 *
 * PhotometricInterpretation says how an image is displayed after the VOI
 * transformation (PS3.3 C.7.6.3.1.2), not what a sample is: the modality LUT,
 * which is RescaleSlope and RescaleIntercept here, applies to the sample as it
 * is stored (PS3.3 C.11.1). So MONOCHROME1 changes no HU, Bq/ml or Gy. Where
 * values have no unit, as in CR, DX, MG and secondary captures, grey is all
 * there is, and inverting makes MONOCHROME1 look as MONOCHROME2 does. */
#ifndef SEG_DATA_DICOM_UNITS_H
#define SEG_DATA_DICOM_UNITS_H
#include "data/dicom/header.h"

/* The name of the element by which values of this image, or of the frame with
 * these groups, are quantities: "Modality" (CT, PT, NM, RTDOSE; or the class
 * of such an image), "Units" (0054,1001), "RescaleType", a real-world value
 * mapping, or a rescale that is not the identity. NULL: values are grey
 * alone. After the rescale was read into *h. */
const char *units_by(const Walk *w, const FrameGroup *group,
                     const DicomHeader *h);
#endif
