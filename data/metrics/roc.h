/* roc.h -- area under the receiver operating characteristic. */
#ifndef SEG_DATA_METRICS_ROC_H
#define SEG_DATA_METRICS_ROC_H
#include "engine/graph/tensor.h"

/* Sets *area to the area under the ROC curve: the fraction of the pairs (one
 * true element, one false) in which the true element has the higher score,
 * equal scores counting half (Mann and Whitney). NaN when all elements or none
 * are true. Scores are finite. Linear in n; the order of the elements changes
 * nothing. Fails without memory. */
bool roc_area(const float *score, const uint8_t *truth, int64_t n,
              double *area);
#endif
