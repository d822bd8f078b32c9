/* linear.c -- a matrix product at every position, fast: see dispatch.h.
 *
 * y[n,p,co] = b[co] + sum_ci x[n,p,ci] w[co,ci]: a convolution with a window of
 * one position (op_window). window_flatten (window.h) makes all positions of
 * the batch one long row. */
#include "cpu/conv/dispatch.h"
#include "cpu/lib/kernels.h"

Space cpu_linear_space(const Call *c)
{
    return conv_call_space(c, false);
}

bool cpu_linear_fwd(const Call *c)
{
    conv_call_fwd(c, false);
    return true;
}

bool cpu_linear_bwd(const Call *c)
{
    conv_call_bwd(c, false);
    return true;
}
