/* length.h -- how many positions of a sample count.
 *
 * Sequences of a batch are as long as its longest; what stands behind the end
 * of a shorter one is padding, and no result may depend on it. Rows with the
 * flag LENGTHS have for that one number a sample as their last operand. */
#ifndef SEG_ENGINE_GRAPH_LENGTH_H
#define SEG_ENGINE_GRAPH_LENGTH_H
#include "engine/base/host_device.h"
#include "engine/graph/tensor.h"
#include <math.h>

/* Positions p = 0 .. count-1 with p < length; none for NaN. */
EVERYWHERE int64_t length_count(double length, int64_t count)
{
    if (!(length > 0)) return 0;
    return length < (double)count ? (int64_t)ceil(length) : count;
}

/* The same of sample n of `lengths` in memory of the host; NULL: all count. */
static inline int64_t length_of(const Tensor *lengths, int64_t n, int64_t count)
{
    return lengths ? length_count(tensor_get(lengths, n), count) : count;
}
#endif
