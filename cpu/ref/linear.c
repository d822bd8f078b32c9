/* linear.c -- y[n,p,co] = b[co] + sum_ci x[n,p,ci] w[co,ci]
 *
 * A convolution with a window of one position (op_window). */
#include "cpu/lib/plain.h"

Space KERNEL(linear_space)(const Call *c)
{
    return KERNEL(conv_space)(c);
}

bool KERNEL(linear_fwd)(const Call *c)
{
    return KERNEL(conv_fwd)(c);
}

bool KERNEL(linear_bwd)(const Call *c)
{
    return KERNEL(conv_bwd)(c);
}
