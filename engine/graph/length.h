/* length.h -- the number of valid positions of a sample.
 *
 * Sequences of a batch are padded to the longest one, and no result may depend
 * on padding. Operators with the flag LENGTHS take one length per sample as
 * their last operand. */
#ifndef SEG_ENGINE_GRAPH_LENGTH_H
#define SEG_ENGINE_GRAPH_LENGTH_H
#include "engine/base/host_device.h"
#include "engine/graph/tensor.h"
#include <math.h>

/* Returns the number of positions p = 0 .. count-1 with p < length; 0 for
 * NaN. */
HOST_DEVICE int64_t length_count(double length, int64_t count)
{
    if (!(length > 0)) return 0;
    return length < (double)count ? (int64_t)ceil(length) : count;
}

/* The same for sample n of `lengths` in host memory; NULL: all positions. */
static inline int64_t length_of(const Tensor *lengths, int64_t n, int64_t count)
{
    return lengths ? length_count(tensor_get(lengths, n), count) : count;
}
#endif
