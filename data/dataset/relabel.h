/* relabel.h -- class numbers back to the label values of the ground truth
 * files. */
#ifndef SEG_DATA_DATASET_RELABEL_H
#define SEG_DATA_DATASET_RELABEL_H
#include "data/volume.h"

/* out = `classes` (U8, from 0) with label values: class i becomes label[i - 1];
 * 0, and a class beyond `count`, are kept. U8 if all values fit, else I16, else
 * F32, which is exact up to 2^24: a larger value is an error. */
bool volume_relabel(const Volume *classes, const int32_t *label, int count,
                    Volume *out);
#endif
