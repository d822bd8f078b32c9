/* roc.h -- how well scores tell two classes apart. */
#ifndef SEG_DATA_METRICS_ROC_H
#define SEG_DATA_METRICS_ROC_H
#include "engine/graph/tensor.h"

/* *area = the area under the ROC curve: the share of the pairs (one that is
 * true, one that is not) in which the true one has the higher score, equal
 * scores counting half (Mann and Whitney). NaN when all are true or none is.
 * Scores are finite. Linear in n; the order of the elements changes nothing.
 * Fails without memory. */
bool roc_area(const float *score, const uint8_t *truth, int64_t n,
              double *area);
#endif
