/* units.h -- do the values of an image have a physical unit?
 *
 * PhotometricInterpretation defines how an image is displayed after the VOI
 * transformation (PS3.3 C.7.6.3.1.2), not the meaning of a sample: the modality
 * LUT, here RescaleSlope and RescaleIntercept, applies to the sample as stored
 * (PS3.3 C.11.1). MONOCHROME1 therefore does not change HU, Bq/ml or Gy. Values
 * without a unit, as in CR, DX, MG and secondary captures, are only grey
 * levels, and inversion makes MONOCHROME1 look like MONOCHROME2. */
#ifndef SEG_DATA_DICOM_UNITS_H
#define SEG_DATA_DICOM_UNITS_H
#include "data/dicom/header.h"

/* The name of the element that makes the values of this image, or of the frame
 * with these groups, quantities: "Modality" (CT, PT, NM, RTDOSE, or the SOP
 * class of such an image), "Units" (0054,1001), "RescaleType", a real-world
 * value mapping, or a rescale that is not the identity. NULL: the values are
 * only grey levels. Call after the rescale has been read into *h. */
const char *units_by(const Walk *w, const FrameGroup *group,
                     const DicomHeader *h);
#endif
