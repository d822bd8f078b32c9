/* relabel.h -- class numbers as the values that files of the truth have. */
#ifndef SEG_DATA_DATASET_RELABEL_H
#define SEG_DATA_DATASET_RELABEL_H
#include "data/volume.h"

/* out = `classes` (U8, from 0) with the values that a file has for them: class
 * i becomes label[i - 1]; 0, and a class beyond `count`, stay. U8 when all
 * values fit, else I16, else F32, which is exact up to 2^24: a larger one is an
 * error. */
bool volume_relabel(const Volume *classes, const int32_t *label, int count,
                    Volume *out);
#endif
