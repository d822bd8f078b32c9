/* filter.h -- what convolution, transposed convolution and linear do with
 * their operands x, weights, bias, and with their gradients.
 *
 * A convolution reads its image through windows; a transposed one is the
 * gradient of a convolution, so forward and backward change places. */
#ifndef SEG_FILTER_H
#define SEG_FILTER_H
#include "op.h"

Space filter_space(const Call *c, bool transposed);
void filter_fwd(const Call *c, bool transposed);
void filter_bwd(const Call *c, bool transposed);
#endif
